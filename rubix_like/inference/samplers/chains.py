"""Chains over devices, step by step, resumable after every group of steps: all but the step itself.

A sampler of chains is an `AbstractChainSampler` with its `AbstractKernel`; the first one's docstring holds a complete
sampler. Chains move in coordinates in which the posterior is nearly a standard normal distribution (`Whitening`).
"""

import dataclasses
import functools
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, UInt32
from numpy import ndarray

from rubix_like.inference.checks.uncertainties import Laplace
from rubix_like.inference.posterior.fit_model import Latent
from rubix_like.inference.posterior.posterior import Posterior, SquaredLoss, group_of, linear_of, tangents_at
from rubix_like.inference.posterior.problem import Placed, everywhere, fetched, over_samples, placed
from rubix_like.inference.samplers.samplers import AbstractSampler, Sampled, describe_statistics
from rubix_like.runtime.words import counted

White = Float[Array, " latent"]
"""Coordinates z with latents = centre + half z: about N(0, 1), uncorrelated, where Laplace's approximation holds."""

_SPACING = 2.0**-16
"""Spacing of the lattice on which chains move, in standard deviations of the posterior."""

_FINE = 2.0**-24
"""Spacing without Laplace's approximation, in standard deviations of the prior."""


class Whitening(eqx.Module):
    """Latents = centre + half z; `half` half^T is the covariance of Laplace's approximation, or None for the prior's.

    `spacing`: of the lattice in z.
    """

    centre: Latent
    half: Float[Array, "latent latent"] | None
    spacing: Float[Array, ""]

    @classmethod
    def of(cls, centre: Float[ndarray, " latent"], half: Float[ndarray, "latent latent"] | None) -> "Whitening":
        """The coordinates from arrays on the host."""
        if half is None:
            return cls(jnp.asarray(centre), None, jnp.asarray(_FINE))
        return cls(jnp.asarray(centre), jnp.asarray(half), jnp.asarray(_SPACING))

    def latent(self, white: White) -> Latent:
        """The latents of coordinates."""
        return self.centre + (white if self.half is None else self.half @ white)


class KnownLoss(eqx.Module):
    """The loss and its gradient at the only place where they are asked for, or at several places, stacked."""

    value: Float[Array | ndarray, "*place"]
    gradient: Float[Array | ndarray, "*place latent"]

    def residuals(self, latent: Latent) -> Any:
        """Not known: raises TypeError."""
        raise TypeError(f"expected a posterior with residuals, got its loss at one place ({latent.shape} latents)")

    def loss(self, latent: Latent) -> Float[Array, ""]:
        """The value; differentiated, the gradient."""
        return jnp.asarray(self.value) + jnp.sum(self.gradient * (latent - lax.stop_gradient(latent)))


MOST_STEPS: int = 64
"""Most steps of a chain in one call of the compiled program."""

_SECONDS = 1.0
"""Seconds that a group of steps should take."""

_SPREAD = 2.0
"""Spread of the chains' starts about the best fit, in standard deviations: wider than the posterior."""

_TRIES = 40
"""How often the start of a chain is moved half of the way to the best fit, at most."""

_HIGHER = 4
"""Times what is expected of a normal posterior (and 10 more) a start may be above the best fit's loss."""

_FEW = 16
"""Most latents for whose slopes a chain's start takes no longer than a program for its gradient takes to compile."""

_STATE, _STEP = "state_", "kept_"


class LogDensity(eqx.Module):
    """ln(posterior density) up to a constant, as a function of coordinates in which it is nearly standard normal.

    Called inside JAX's traces. `rounded` takes coordinates to the nearest point of a fine lattice: a kernel that keeps
    to it gives the same draws on any number of devices, whose sums are rounded differently.
    """

    posterior: SquaredLoss
    whitening: Whitening

    def __call__(self, white: White) -> Float[Array, ""]:
        """The density at these coordinates."""
        return -self.posterior.loss(self.whitening.latent(white))

    def rounded(self, white: White) -> White:
        """The nearest point of the lattice."""
        return jnp.round(white / self.whitening.spacing) * self.whitening.spacing


class ChainState(eqx.Module):
    """A chain between two of its steps: all there is to know.

    `white`: where it is; `log_density` there; `step_size`: of its next step, in standard deviations of the posterior;
    `own`: arrays that the kernel needs beside them.
    """

    white: White
    log_density: Float[Array, ""]
    step_size: Float[Array, ""]
    own: Any = None


class AbstractKernel(eqx.Module):
    """How a chain makes one step. Its numbers are arrays; both methods are traced by JAX, and keep shapes and types.

    `begins_on_lattice`: `begin` asks for the density, or its gradient, at the nearest point of the lattice alone. For
    few latents no program of the whole model is then compiled to begin with.
    """

    begins_on_lattice: ClassVar[bool] = False

    @abstractmethod
    def begin(self, density: LogDensity, white: White) -> ChainState:
        """A chain that stands at these coordinates."""

    @abstractmethod
    def step(
        self, density: LogDensity, state: ChainState, key: Array, number: Int[Array, ""]
    ) -> tuple[ChainState, dict[str, Array]]:
        """The chain after one more step, and a number for each of the sampler's `statistics`.

        `key`: of this step alone; `number` of the steps before it, those of the warm-up among them.
        """


@dataclass(frozen=True)
class Chains:
    """Chains after some of their steps: enough to go on bit for bit.

    `keys`: one for each chain; `centre`, `half`: of the `Whitening`; `n_done`: steps made, those of the warm-up among
    them; `steps`: what is kept of all steps by name, (chain, step, ...), where there was none yet zeros;
    `step_size`: of their leapfrog steps now; `state`: the arrays of the chains' states.
    """

    keys: UInt32[ndarray, "chain 2"]
    centre: Float[ndarray, " latent"]
    half: Float[ndarray, "latent latent"] | None
    warmup: int
    n_done: int
    steps: Mapping[str, ndarray]
    step_size: Float[ndarray, " chain"]
    state: tuple[ndarray, ...]

    @property
    def best(self) -> Float[ndarray, " latent"]:
        """The best fit, about which they move."""
        return self.centre

    @property
    def whitening(self) -> Whitening:
        """The coordinates in which the chains move."""
        return Whitening.of(self.centre, self.half)

    @property
    def n_step(self) -> int:
        """Steps of each chain in all."""
        return self.steps["loss"].shape[1]

    @property
    def finished(self) -> bool:
        """Whether all draws are made."""
        return self.n_done == self.n_step

    @property
    def n_ended(self) -> int:
        """Stages that are over: the warm-up, the draws."""
        return int(self.n_done >= self.warmup) + int(self.finished)

    @property
    def draws(self) -> dict[str, ndarray]:
        """The draws that are kept after the warm-up, by name: (chain, draw, ...)."""
        return {name: steps[:, self.warmup : self.n_done] for name, steps in self.steps.items()}

    def after(self, state: ChainState, new: Mapping[str, ndarray], count: int) -> "Chains":
        """The chains after `count` new steps."""
        steps = {name: np.array(kept) for name, kept in self.steps.items()}
        for name, kept in steps.items():
            kept[:, self.n_done : self.n_done + count] = new[name][:, :count]
        return dataclasses.replace(
            self,
            n_done=self.n_done + count,
            steps=steps,
            step_size=np.asarray(state.step_size),
            state=tuple(map(np.asarray, jax.tree.leaves(state))),
        )

    def arrays(self) -> dict[str, ndarray]:
        """Everything by name; `from_arrays` is the inverse."""
        found = {name: np.asarray(getattr(self, name)) for name in ("keys", "centre", "warmup", "n_done", "step_size")}
        if self.half is not None:
            found["half"] = self.half
        found |= {f"{_STEP}{name}": leaf for name, leaf in self.steps.items()}
        return found | {f"{_STATE}{number}": leaf for number, leaf in enumerate(self.state)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ndarray]) -> "Chains":
        """The chains of what `arrays` returned; KeyError where something is missing."""
        count = sum(name.startswith(_STATE) for name in arrays)
        return cls(
            keys=arrays["keys"],
            centre=arrays["centre"],
            half=arrays.get("half"),
            warmup=int(arrays["warmup"]),
            n_done=int(arrays["n_done"]),
            steps={name.removeprefix(_STEP): array for name, array in arrays.items() if name.startswith(_STEP)},
            step_size=arrays["step_size"],
            state=tuple(arrays[f"{_STATE}{number}"] for number in range(count)),
        )


class AbstractChainSampler(AbstractSampler):
    """A sampler of chains: its settings, its kernel, and what it says of its draws.

    A complete one, random-walk Metropolis (Metropolis et al. 1953, J. Chem. Phys. 21, 1087):

    ```python
    from typing import Annotated, ClassVar

    import jax
    import jax.numpy as jnp
    import numpy as np
    from jaxtyping import Array, Float
    from pydantic import Field

    from rubix_like.extend import AbstractChainSampler, AbstractChainSettings, AbstractKernel
    from rubix_like.extend import ChainState, Number, Statistic


    class Metropolis(AbstractKernel):
        jump: Float[Array | np.ndarray, ""]

        def begin(self, density, white):
            return ChainState(white, density(white), jnp.asarray(self.jump))

        def step(self, density, state, key, number):
            jump_key, accept_key = jax.random.split(key)
            there = self.begin(density, state.white + self.jump * jax.random.normal(jump_key, state.white.shape))
            moves = jnp.log(jax.random.uniform(accept_key)) < there.log_density - state.log_density
            return jax.tree.map(lambda new, old: jnp.where(moves, new, old), there, state), {"moved": moves}


    class MetropolisSettings(AbstractChainSettings):
        jump: Annotated[Number, Field(gt=0)] = 0.8


    class MetropolisSampler(AbstractChainSampler):
        title: ClassVar = "Metropolis"
        section_type: ClassVar = MetropolisSettings
        statistics: ClassVar = {
            "moved": Statistic(
                "whether the jump was made", bool, lambda moved: f"{100 * moved.mean():.0f} % of jumps made"
            )
        }

        def kernel(self, n_latent):
            return Metropolis(np.asarray(self.settings.section.jump))

        def notes(self, sampled):
            return []
    ```
    """

    is_chain: ClassVar[bool] = True

    @abstractmethod
    def kernel(self, n_latent: int) -> AbstractKernel:
        """How its chains step in a space of so many latents."""

    @property
    def n_sample(self) -> int:
        """The chains."""
        return self.settings.section.chains

    def read(self, arrays: Mapping[str, ndarray]) -> Chains:
        """Chains from the arrays of a checkpoint."""
        return Chains.from_arrays(arrays)

    def run(
        self,
        posterior: SquaredLoss,
        mesh: Mesh,
        best: Float[ndarray, " latent"],
        laplace: Laplace | None,
        begun: Chains | None,
    ) -> Iterator[Chains]:
        """Run the chains in coordinates that are white in Laplace's approximation."""
        if begun is not None:
            return run_chains(posterior, mesh, self, begun.whitening, begun)
        half = None if laplace is None else np.linalg.cholesky(laplace.covariance)
        return run_chains(posterior, mesh, self, Whitening.of(best, half))

    def progress(self, state: Chains) -> tuple[str, int, int]:
        """Warm-up or draws, with the statistics of the steps of that stage."""
        stage = "warming up" if state.n_done < state.warmup else "drawing"
        first = state.warmup if state.n_done > state.warmup else 0
        words = [f"{counted(len(state.keys), 'chain')} {stage}"]
        if state.n_done:
            steps = {name: kept[:, first : state.n_done] for name, kept in state.steps.items() if name != "latent"}
            words += describe_statistics(self.settings.method, steps)
        return f"{', '.join(words)}, step", state.n_done, state.n_step

    def sampled(self, state: Chains) -> Sampled:
        """The draws after the warm-up."""
        statistics = state.draws
        return Sampled(self.settings.method, statistics.pop("latent"), statistics, state.keys, state.step_size)


def run_chains(
    posterior: SquaredLoss,
    mesh: Mesh,
    sampler: AbstractChainSampler,
    whitening: Whitening,
    resume: Chains | None = None,
) -> Iterator[Chains]:
    """Yields the chains before their first step and after every group of steps, which takes about a second.

    On a mesh with the axis "sample", along which the chains are spread; the same keys give the same draws on any mesh.
    Raises ValueError where a chain cannot begin.
    """
    kernel = everywhere(sampler.kernel(len(whitening.centre)), mesh)
    density = everywhere(LogDensity(posterior, whitening), mesh)
    columns = tuple((name, statistic.kind) for name, statistic in sampler.statistics.items())
    section = sampler.settings.section
    if resume is None:
        keys = np.asarray(jax.random.split(jax.random.PRNGKey(sampler.settings.seed), section.chains))
        shape, dtype = whitening.centre.shape, jax.dtypes.canonicalize_dtype(float)
        draw = jax.vmap(lambda key: jax.random.normal(key, shape, dtype))
        state = _started(kernel, density, posterior, mesh, _SPREAD * np.asarray(draw(jnp.asarray(keys))))
        chains = _begun(sampler, whitening, state, keys)
    else:
        state, chains = jax.eval_shape(kernel.begin, density, whitening.centre), resume
        if [leaf.shape for leaf in jax.tree.leaves(state)] != [leaf.shape[1:] for leaf in chains.state]:
            raise ValueError(
                "fit.sampling: expected chains that this version of the sampler can go on with, got those of another; "
                "start anew with restart=True, or with the version that they were begun with"
            )
    structure = jax.tree.structure(state)
    expected = (section.chains, section.warmup, section.warmup + section.draws, whitening.centre.shape)
    found = (len(chains.keys), chains.warmup, chains.n_step, chains.centre.shape)
    if expected != found:
        raise ValueError(
            f"fit.sampling: expected to go on with (chains, warmup, steps, shape of latents) {expected}, got {found}; "
            f"use the settings the chains were begun with"
        )
    yield chains
    count = 1
    while not chains.finished:
        began = time.monotonic()
        count = min(count, MOST_STEPS, chains.n_step - chains.n_done)
        states = placed((jax.tree.unflatten(structure, chains.state), chains.keys), mesh)
        numbers, at_once = (np.int32(chains.n_done), np.int32(count)), sampler.settings.at_once
        further = _run(kernel, density, states, numbers, mesh=mesh, at_once=at_once, columns=columns)
        state, steps = fetched(further, len(chains.keys))
        chains = chains.after(state, steps, count)
        yield chains
        seconds = max(time.monotonic() - began, 1e-6)
        count = max(1, min(2 * count, round(count * _SECONDS / seconds)))


def _begun(
    sampler: AbstractChainSampler, whitening: Whitening, state: ChainState, keys: UInt32[ndarray, "chain 2"]
) -> Chains:
    """Chains at their starts."""
    section, real = sampler.settings.section, whitening.centre.dtype
    shape = (section.chains, section.warmup + section.draws)
    steps = {"latent": np.zeros((*shape, len(whitening.centre)), real), "loss": np.zeros(shape, real)}
    steps |= {name: np.zeros(shape, _dtype(statistic.kind, real)) for name, statistic in sampler.statistics.items()}
    return Chains(
        keys=keys,
        centre=np.asarray(whitening.centre),
        half=None if whitening.half is None else np.asarray(whitening.half),
        warmup=section.warmup,
        n_done=0,
        steps=steps,
        step_size=np.asarray(state.step_size),
        state=tuple(jax.tree.leaves(state)),
    )


def _dtype(kind: type, real: Any) -> Any:
    """The dtype of a statistic of this kind."""
    return {float: real, int: np.dtype(np.int32), bool: np.dtype(bool)}[kind]


def _started(
    kernel: AbstractKernel,
    density: LogDensity,
    posterior: SquaredLoss,
    mesh: Mesh,
    start: Float[ndarray, "chain latent"],
) -> ChainState:
    """Chains at their starts, or nearer to the best fit where the model is not defined, or the posterior far lower,
    there: without an approximation nothing else is known of its width. `posterior`: that of the density, where a fit
    has it."""
    n_chain, n_latent = start.shape
    best = _states(kernel, density, posterior, mesh, 0 * start[:1], n_chain)
    least = best.log_density - (_HIGHER * _SPREAD**2 * n_latent / 2 + 10)
    lost = np.ones(n_chain, bool)
    for _ in range(_TRIES):
        state = _states(kernel, density, posterior, mesh, start, n_chain)
        finite = [np.isfinite(leaf.reshape(n_chain, -1)).all(axis=1) for leaf in jax.tree.leaves(state)]
        lost = ~((state.log_density >= least) & np.all(finite, axis=0))
        if not lost.any():
            return state
        start = np.where(lost[:, None], start / 2, start)
    raise ValueError(
        f"fit.sampling: expected a posterior with derivatives about the best fit, but {np.count_nonzero(lost)} of "
        f"{n_chain} chains found no place to begin; narrow the priors of fit.free to where the model is defined"
    )


def _states(
    kernel: AbstractKernel,
    density: LogDensity,
    posterior: SquaredLoss,
    mesh: Mesh,
    start: Float[ndarray, "chain latent"],
    room: int,
) -> ChainState:
    """Chains at these places, host arrays; `room`: as many at least share one program."""
    whitening = density.whitening
    if not (kernel.begins_on_lattice and isinstance(posterior, Posterior) and start.shape[1] <= _FEW):
        return fetched(_begin(kernel, density, placed(start, mesh, room), mesh=mesh), len(start))
    spacing = np.asarray(whitening.spacing)
    white = np.round(start / spacing) * spacing
    centre, half = np.asarray(whitening.centre), whitening.half
    places = centre + (white if half is None else white @ np.asarray(half).T)
    linear = [linear_of(posterior, group_of(posterior, place), tangents_at(posterior, place)) for place in places]
    known = KnownLoss(
        np.stack([np.asarray(there.loss)[0] for there in linear]),
        np.stack([np.asarray(there.gradient)[0] for there in linear]),
    )
    return fetched(_begin_known(kernel, whitening, placed((white, known), mesh, room), mesh=mesh), len(start))


@functools.partial(jax.jit, static_argnames="mesh")
def _begin(kernel: AbstractKernel, density: LogDensity, start: Placed, *, mesh: Mesh) -> ChainState:
    def begun(posterior: SquaredLoss, white: White, kernel: AbstractKernel, whitening: Whitening) -> ChainState:
        return kernel.begin(LogDensity(posterior, whitening), white)

    return over_samples(begun, mesh, density.posterior, start, kernel, density.whitening)


@functools.partial(jax.jit, static_argnames="mesh")
def _begin_known(kernel: AbstractKernel, whitening: Whitening, start: Placed, *, mesh: Mesh) -> ChainState:
    def begun(whitening: Whitening, start: tuple[White, KnownLoss], kernel: AbstractKernel) -> ChainState:
        white, known = start
        return kernel.begin(LogDensity(known, whitening), white)

    return over_samples(begun, mesh, whitening, start, kernel)


@functools.partial(jax.jit, static_argnames=("mesh", "at_once", "columns"))
def _run(
    kernel: AbstractKernel,
    density: LogDensity,
    chains: Placed,
    numbers: tuple[Array | np.integer, Array | np.integer],
    *,
    mesh: Mesh,
    at_once: int,
    columns: tuple[tuple[str, type], ...],
) -> tuple[ChainState, dict[str, Array]]:
    """Advance every chain by some steps."""

    def further(posterior: SquaredLoss, chain: tuple[ChainState, Array], *shared: Any) -> Any:
        kernel, whitening, (first, count) = shared
        return _advanced(kernel, LogDensity(posterior, whitening), *chain, first, count, columns)

    return over_samples(further, mesh, density.posterior, chains, kernel, density.whitening, numbers, at_once=at_once)


def _advanced(
    kernel: AbstractKernel,
    density: LogDensity,
    state: ChainState,
    key: Array,
    first: Int[Array, ""],
    count: Int[Array, ""],
    columns: tuple[tuple[str, type], ...],
) -> tuple[ChainState, dict[str, Array]]:
    """The steps `first` to `first + count`, at most MOST_STEPS, each with a separate key."""
    centre = density.whitening.centre
    empty = {"latent": jnp.zeros((MOST_STEPS, *centre.shape), centre.dtype)}
    empty |= {name: jnp.zeros(MOST_STEPS, _dtype(kind, centre.dtype)) for name, kind in (("loss", float), *columns)}

    def body(number: Array, carry: tuple[ChainState, dict[str, Array]]) -> tuple[ChainState, dict[str, Array]]:
        old, steps = carry
        new, statistics = kernel.step(density, old, jax.random.fold_in(key, first + number), first + number)
        step = {"latent": density.whitening.latent(new.white), "loss": -new.log_density, **statistics}
        steps = {name: kept.at[number].set(jnp.asarray(step[name], kept.dtype)) for name, kept in steps.items()}
        return jax.tree.map(lambda after, before: jnp.asarray(after, before.dtype), new, old), steps

    return lax.fori_loop(0, count, body, (state, empty))
