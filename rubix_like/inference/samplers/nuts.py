"""The No-U-Turn sampler (Hoffman & Gelman 2014) by the library blackjax, on a lattice, with Stan's warm-up.

Sums over particles are rounded differently on every number of devices, and a chain amplifies such differences by about
e per draw. The leapfrog steps here therefore go from point to point of a lattice: each increment is rounded to it,
which forgets differences far below its spacing, so that the same keys give the same draws on any devices. Steps on a
lattice are reversible to the last bit and keep volumes (Levesque & Verlet 1993, J. Stat. Phys. 72, 519): the chain is a
valid one.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray

from rubix_like.errors import ConfigError
from rubix_like.inference.posterior.posterior import SquaredLoss
from rubix_like.inference.samplers.whitening import White, Whitening

MOST_STEPS: int = 64
"""Most steps of a chain in one call of the compiled program."""

_FIRST_STEP_SIZE = 0.5
_FAST, _SLOW, _WINDOW_END, _LAST, _NONE = range(5)

_PREVIOUS = 10.0
"""Draws that the inverse mass matrix of a window counts for in the next one; the first is that of the approximation."""

_FEWEST_LAST = 10
"""Steps after the last window, at least: the step size begins anew there, with ten times the old one."""

_STEP_SIZE_BITS = 20
"""Binary digits of a step size: all that is kept, so that rounding is not handed on by it."""


class Step(NamedTuple):
    """What is kept of every step of a chain."""

    latent: Float[Array, "*step latent"]
    loss: Float[Array, "*step"]
    acceptance_rate: Float[Array, "*step"]
    n_leapfrog: Int[Array, "*step"]
    tree_depth: Int[Array, "*step"]
    diverging: Bool[Array, "*step"]
    energy: Float[Array, "*step"]


class ChainState(eqx.Module):
    """A chain between two of its steps: all there is to know; `adaptation`, `metric`: of the library's warm-up."""

    white: White
    log_density: Float[Array, ""]
    gradient: White
    step_size: Float[Array, ""]
    adaptation: Any
    metric: Any


class Nuts(eqx.Module):
    """A kernel with its warm-up; `dense`: of the inverse mass matrix, which starts as the identity in z."""

    whitening: Whitening
    target: Float[Array, ""]
    tree_depth: int = eqx.field(static=True)
    dense: bool = eqx.field(static=True)

    def begin(self, posterior: SquaredLoss, white: White) -> ChainState:
        """A chain that stands at these coordinates."""
        at = self.whitening.rounded(white)
        log_density, gradient = jax.value_and_grad(lambda own: self.whitening.log_density(posterior, own))(at)
        return self.state(at, log_density, gradient)

    def state(self, white: White, log_density: Float[Array, ""], gradient: White) -> ChainState:
        """Before the first step. No type of an array is weak, so that what follows is compiled once."""
        size = jnp.asarray(_FIRST_STEP_SIZE, white.dtype)
        step_sizes, metrics = self._adaptations()
        with _loose():
            state = ChainState(white, log_density, gradient, size, step_sizes[0](size), metrics[0](len(white)))
        return jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(jnp.asarray(leaf).dtype), state)

    def run(
        self,
        posterior: SquaredLoss,
        state: ChainState,
        key: Array,
        stages: Int[Array, " step"],
        first: Int[Array, ""],
        count: Int[Array, ""],
    ) -> tuple[ChainState, Step]:
        """The steps `first` to `first + count`, at most MOST_STEPS, each with a key of its own."""
        shapes = jax.eval_shape(lambda: self._step(posterior, state, key, stages[0])[1])
        empty = jax.tree.map(lambda leaf: jnp.zeros((MOST_STEPS, *leaf.shape), leaf.dtype), shapes)

        def body(number: Array, carry: tuple[ChainState, Step]) -> tuple[ChainState, Step]:
            state, steps = carry
            state, step = self._step(posterior, state, jax.random.fold_in(key, first + number), stages[number])
            return state, jax.tree.map(lambda all_of, own: all_of.at[number].set(own), steps, step)

        return lax.fori_loop(0, count, body, (state, empty))

    def _step(self, posterior: SquaredLoss, state: ChainState, key: Array, stage: Array) -> tuple[ChainState, Step]:
        blackjax = require_blackjax()
        kernel = blackjax.nuts.build_kernel(integrator=self._leapfrog)
        with _loose():
            moved, info = kernel(
                key,
                blackjax.mcmc.hmc.HMCState(state.white, state.log_density, state.gradient),
                lambda white: self.whitening.log_density(posterior, white),
                state.step_size,
                state.metric.inverse_mass_matrix,
                self.tree_depth,
            )
            adapted = self._adapted(state, stage, moved.position, info.acceptance_rate)
        state = eqx.tree_at(
            lambda own: (own.white, own.log_density, own.gradient),
            adapted,
            (moved.position, moved.logdensity, moved.logdensity_grad),
        )
        step = Step(
            self.whitening.latent(moved.position),
            -moved.logdensity,
            info.acceptance_rate,
            jnp.asarray(info.num_integration_steps, jnp.int32),
            jnp.asarray(info.num_trajectory_expansions, jnp.int32),
            info.is_divergent,
            info.energy,
        )
        return state, step

    def _leapfrog(self, log_density: Callable[..., Array], kinetic_energy: Callable[..., Array]) -> Callable[..., Any]:
        """The integrator as blackjax wants it."""
        integrators = require_blackjax().mcmc.integrators
        slope, rounded = jax.value_and_grad(log_density), self.whitening.rounded

        def step(state: Any, size: Array) -> Any:
            momentum = state.momentum + rounded(0.5 * size * state.logdensity_grad)
            velocity = jax.grad(kinetic_energy)(momentum)
            position = state.position + rounded(size * velocity)
            density, gradient = slope(position)
            momentum = momentum + rounded(0.5 * size * gradient)
            return integrators.IntegratorState(position, momentum, density, gradient)

        return step

    def _adaptations(self) -> tuple[tuple[Callable[..., Any], ...], tuple[Callable[..., Any], ...]]:
        """Of step sizes and of inverse mass matrices: each how it begins, goes on, and ends a window."""
        require_blackjax()
        from blackjax.adaptation.mass_matrix import mass_matrix_adaptation  # noqa: PLC0415 (an optional package)
        from blackjax.adaptation.step_size import dual_averaging_adaptation  # noqa: PLC0415

        step_sizes = dual_averaging_adaptation(self.target)  # pyright: ignore[reportArgumentType] (it takes arrays)
        return step_sizes, mass_matrix_adaptation(not self.dense, _PREVIOUS)

    def _adapted(self, state: ChainState, stage: Array, white: White, acceptance: Array) -> ChainState:
        """Stan's warm-up: in all windows step sizes are adapted, in slow ones covariances gathered."""
        (start_size, next_size, last_size), (_, next_metric, last_metric) = self._adaptations()

        def fast(state: ChainState) -> ChainState:
            averages = next_size(state.adaptation, acceptance)
            return _with_size(state, averages, jnp.exp(averages.log_step_size))

        def slow(state: ChainState) -> ChainState:
            return eqx.tree_at(lambda own: own.metric, fast(state), next_metric(state.metric, white))

        def window_end(state: ChainState) -> ChainState:
            gathered = slow(state)
            averages = start_size(last_size(gathered.adaptation))
            renewed = eqx.tree_at(lambda own: own.metric, gathered, last_metric(gathered.metric))
            return _with_size(renewed, averages, jnp.exp(averages.log_step_size))

        def last(state: ChainState) -> ChainState:
            ended = fast(state)
            return _with_size(ended, ended.adaptation, last_size(ended.adaptation))

        def like(function: Callable[[ChainState], ChainState]) -> Callable[[ChainState], ChainState]:
            return lambda own: jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), function(own), own)

        return lax.switch(stage, [like(own) for own in (fast, slow, window_end, last, lambda own: own)], state)


def _with_size(state: ChainState, averages: Any, size: Array) -> ChainState:
    """The step size with few binary digits."""
    mantissa, exponent = jnp.frexp(size)
    kept = jnp.ldexp(jnp.round(mantissa * 2.0**_STEP_SIZE_BITS) / 2.0**_STEP_SIZE_BITS, exponent)
    return eqx.tree_at(lambda own: (own.adaptation, own.step_size), state, (averages, kept))


@contextmanager
def _loose() -> Iterator[None]:
    """Inside, numbers of several types may meet, as in the library's code, whatever JAX is set to."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def stages_of(warmup: int, draws: int) -> Int[ndarray, " step"]:
    """What is adapted after each step of a chain: Stan's schedule of windows, then nothing.

    Of less than 100 steps Stan leaves the last 10 % to the step size, too few for it: here they are 10.
    """
    require_blackjax()
    from blackjax.adaptation.window_adaptation import build_schedule  # noqa: PLC0415 (an optional package)

    with _loose():
        schedule = np.asarray(build_schedule(warmup), np.int32)
    stages = np.where(schedule[:, 1] > 0, _WINDOW_END, np.where(schedule[:, 0] > 0, _SLOW, _FAST))
    if warmup < 10 * _FEWEST_LAST:
        stages[-_FEWEST_LAST - 1], stages[-_FEWEST_LAST:] = _WINDOW_END, _FAST
    stages[-1] = _LAST
    return np.concatenate([stages, np.full(draws, _NONE)]).astype(np.int32)


def require_blackjax() -> Any:
    """The package blackjax; ConfigError where it is not installed."""
    try:
        import blackjax  # noqa: PLC0415 (an optional package)
    except ImportError as error:
        raise ConfigError(
            "fit.sampling.method: 'nuts' needs the package blackjax, which is not installed; "
            "pip install 'rubix-like[sample]'"
        ) from error
    return blackjax
