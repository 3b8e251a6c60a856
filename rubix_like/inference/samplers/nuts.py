"""The No-U-Turn sampler (Hoffman & Gelman 2014) by the library blackjax, on a lattice, with Stan's warm-up.

Sums over particles are rounded differently on every number of devices, and a chain amplifies such differences by about
e per draw. The leapfrog steps here therefore go from point to point of a lattice: each increment is rounded to it,
which forgets differences far below its spacing, so that the same keys give the same draws on any devices. Steps on a
lattice are reversible to the last bit and keep volumes (Levesque & Verlet 1993, J. Stat. Phys. 72, 519): the chain is a
valid one.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int
from numpy import ndarray

from rubix_like.config.sections.fit import NutsSettings
from rubix_like.inference.samplers.chains import AbstractChainSampler, AbstractKernel, ChainState, LogDensity, White
from rubix_like.inference.samplers.samplers import Sampled, Statistic
from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.optional_packages import import_optional

_PURPOSE = "fit.sampling.method: 'nuts'"
"""Begins the error of a library that is missing."""

_STEPS_PER_LATENT = 10
"""Steps of the warm-up for each latent from which on the inverse mass matrix has elements off its diagonal."""

_FIRST_STEP_SIZE = 0.5
_FAST, _SLOW, _WINDOW_END, _LAST, _NONE = range(5)

_PREVIOUS = 10.0
"""Weight, in draws, of the previous window's inverse mass matrix in the next estimate."""

_FEWEST_LAST = 10
"""Steps after the last window, at least: the step size begins anew there, with ten times the old one."""

_STEP_SIZE_BITS = 20
"""Binary digits of a step size: all that is kept, so that rounding is not handed on by it."""


class NutsSampler(AbstractChainSampler):
    """Chains of the No-U-Turn sampler."""

    title: ClassVar[str] = "NUTS"
    section_type: ClassVar[type[NutsSettings]] = NutsSettings
    packages: ClassVar[tuple[str, ...]] = ("blackjax",)
    statistics: ClassVar[Mapping[str, Statistic]] = {
        "diverging": Statistic(
            "whether the trajectory left the energy of the posterior",
            bool,
            lambda diverging: f"{np.sum(diverging)} of {np.size(diverging)} diverged",
        ),
        "acceptance_rate": Statistic(
            "mean acceptance probability along the trajectory",
            float,
            lambda rate: f"mean acceptance {np.mean(rate):.2f}",
        ),
        "n_leapfrog": Statistic("steps of the trajectory", int, lambda count: f"{np.mean(count):.3g} steps a draw"),
        "tree_depth": Statistic("how often the trajectory was doubled", int),
        "energy": Statistic("-ln(posterior) plus the kinetic energy"),
    }

    def kernel(self, n_latent: int) -> "Nuts":
        """Trajectories, with a dense inverse mass matrix where the warm-up is long enough for one."""
        section = self.settings.section
        target = np.asarray(section.target_acceptance, jax.dtypes.canonicalize_dtype(float))
        dense = n_latent * _STEPS_PER_LATENT <= section.warmup
        return Nuts(stages_of(section.warmup, 1), target, section.tree_depth, dense)

    def notes(self, sampled: Sampled) -> list[Note]:
        """Notes on divergences, and on trajectories that were cut short."""
        total, most = sampled.n_chain * sampled.n_draw, self.settings.section.tree_depth
        diverged = int(np.sum(sampled.statistics["diverging"]))
        full = int(np.sum(sampled.statistics["tree_depth"] >= most))
        notes = []
        if diverged:
            notes.append(
                Note(
                    "chains.diverged",
                    f"{diverged} of {total} draws diverged ({100 * diverged / total:.2g} %): the steps are too long "
                    f"for a part of the posterior, and draws are missing there; raise "
                    f"fit.sampling.nuts.target_acceptance (0.95), or warmup, or narrow the priors",
                    WARNING,
                )
            )
        if full:
            notes.append(
                Note(
                    "chains.tree_depth",
                    f"{full} of {total} trajectories ended at the greatest tree depth, {most}: draws follow one "
                    f"another closely; raise fit.sampling.nuts.tree_depth or warmup",
                    WARNING,
                )
            )
        return notes


class Adapted(eqx.Module):
    """The state of a chain beside its place: the gradient there, and the library's warm-up."""

    gradient: White
    adaptation: Any
    metric: Any


class Nuts(AbstractKernel):
    """One trajectory a step, with the warm-up.

    `stages`: what is adapted after each step, the last one holding for all that follow; `dense`: of the inverse mass
    matrix, which starts as the identity.
    """

    begins_on_lattice: ClassVar[bool] = True

    stages: Int[Array | ndarray, " step"]
    target: Float[Array | ndarray, ""]
    tree_depth: int = eqx.field(static=True)
    dense: bool = eqx.field(static=True)

    def begin(self, density: LogDensity, white: White) -> ChainState:
        """A chain that stands at the lattice's nearest point. No type of an array is weak: what follows is compiled
        once."""
        at = density.rounded(white)
        log_density, gradient = jax.value_and_grad(density)(at)
        size = jnp.asarray(_FIRST_STEP_SIZE, white.dtype)
        (begin_size, *_), (begin_metric, *_) = self._adaptations()
        with _loose():
            state = ChainState(at, log_density, size, Adapted(gradient, begin_size(size), begin_metric(len(white))))
        return jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(jnp.asarray(leaf).dtype), state)

    def step(
        self, density: LogDensity, state: ChainState, key: Array, number: Int[Array, ""]
    ) -> tuple[ChainState, dict[str, Array]]:
        """A trajectory, and what is adapted after it."""
        stage = jnp.asarray(self.stages)[jnp.minimum(number, len(self.stages) - 1)]
        nuts, hmc = (import_optional(f"blackjax.mcmc.{name}", _PURPOSE) for name in ("nuts", "hmc"))
        kernel = nuts.build_kernel(integrator=self._integrator(density.rounded))
        with _loose():
            moved, info = kernel(
                key,
                hmc.HMCState(state.white, state.log_density, state.own.gradient),
                density,
                state.step_size,
                state.own.metric.inverse_mass_matrix,
                self.tree_depth,
            )
            adapted = self._adapted(state, stage, moved.position, info.acceptance_rate)
        state = eqx.tree_at(
            lambda chain: (chain.white, chain.log_density, chain.own.gradient),
            adapted,
            (moved.position, moved.logdensity, moved.logdensity_grad),
        )
        return state, {
            "diverging": info.is_divergent,
            "acceptance_rate": info.acceptance_rate,
            "n_leapfrog": info.num_integration_steps,
            "tree_depth": info.num_trajectory_expansions,
            "energy": info.energy,
        }

    @staticmethod
    def _integrator(rounded: Callable[[Array], Array]) -> Callable[..., Any]:
        """Leapfrog steps from point to point of the lattice, as an integrator of blackjax."""
        state_type = import_optional("blackjax.mcmc.integrators", _PURPOSE).IntegratorState

        def build(log_density: Callable[..., Array], kinetic_energy: Callable[..., Array]) -> Callable[..., Any]:
            slope = jax.value_and_grad(log_density)

            def step(state: Any, size: Array) -> Any:
                momentum = state.momentum + rounded(0.5 * size * state.logdensity_grad)
                velocity = jax.grad(kinetic_energy)(momentum)
                position = state.position + rounded(size * velocity)
                density, gradient = slope(position)
                momentum = momentum + rounded(0.5 * size * gradient)
                return state_type(position, momentum, density, gradient)

            return step

        return build

    def _adaptations(self) -> tuple[tuple[Callable[..., Any], ...], tuple[Callable[..., Any], ...]]:
        """The adaptations of step sizes and of inverse mass matrices: how each begins, continues and ends a window."""
        sizes, matrices = (
            import_optional(f"blackjax.adaptation.{name}", _PURPOSE) for name in ("step_size", "mass_matrix")
        )
        return sizes.dual_averaging_adaptation(self.target), matrices.mass_matrix_adaptation(not self.dense, _PREVIOUS)

    def _adapted(self, state: ChainState, stage: Array, white: White, acceptance: Array) -> ChainState:
        """Stan's warm-up: in all windows step sizes are adapted, in slow ones covariances gathered."""
        (begin_size, next_size, last_size), (_, next_metric, last_metric) = self._adaptations()

        def running_size(averages: Any) -> Array:
            return jnp.exp(averages.log_step_size)

        def adapted(averages: Any, metric: Any, size_of: Callable[[Any], Array] = running_size) -> ChainState:
            mantissa, exponent = jnp.frexp(size_of(averages))
            rounded = jnp.ldexp(jnp.round(mantissa * 2.0**_STEP_SIZE_BITS) / 2.0**_STEP_SIZE_BITS, exponent)
            new = ChainState(state.white, state.log_density, rounded, Adapted(state.own.gradient, averages, metric))
            return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), new, state)

        def averages() -> Any:
            return next_size(state.own.adaptation, acceptance)

        def metric() -> Any:
            return next_metric(state.own.metric, white)

        branches: dict[int, Callable[[], ChainState]] = {
            _FAST: lambda: adapted(averages(), state.own.metric),
            _SLOW: lambda: adapted(averages(), metric()),
            _WINDOW_END: lambda: adapted(begin_size(last_size(averages())), last_metric(metric())),
            _LAST: lambda: adapted(averages(), state.own.metric, last_size),
            _NONE: lambda: state,
        }
        return lax.switch(stage, [branches[kind] for kind in sorted(branches)])


@contextmanager
def _loose() -> Iterator[None]:
    """Inside, numbers of several types may meet, as in the library's code, whatever JAX is set to."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def stages_of(warmup: int, draws: int) -> Int[ndarray, " step"]:
    """The kind of adaptation after each step of a chain: Stan's schedule of windows, then none.

    Of less than 100 steps Stan leaves the last 10 % to the step size, too few for it: here they are 10.
    """
    build_schedule = import_optional("blackjax.adaptation.window_adaptation", _PURPOSE).build_schedule
    with _loose():
        schedule = np.asarray(build_schedule(warmup), np.int32)
    stages = np.where(schedule[:, 1] > 0, _WINDOW_END, np.where(schedule[:, 0] > 0, _SLOW, _FAST))
    if warmup < 10 * _FEWEST_LAST:
        stages[-_FEWEST_LAST - 1], stages[-_FEWEST_LAST:] = _WINDOW_END, _FAST
    stages[-1] = _LAST
    return np.concatenate([stages, np.full(draws, _NONE)]).astype(np.int32)
