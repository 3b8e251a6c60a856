"""Chains of a sampler over devices, step by step, and resumable after every group of steps."""

import dataclasses
import functools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, UInt32
from numpy import ndarray

from rubix_like.config.sections.fit import SamplingSettings
from rubix_like.inference.posterior.device_rows import Placed, everywhere, fetched, over_samples, placed
from rubix_like.inference.posterior.posterior import SquaredLoss
from rubix_like.inference.samplers.nuts import MOST_STEPS, ChainState, Nuts, Step, stages_of
from rubix_like.inference.samplers.whitening import Whitening, normal_starts

_STEPS_PER_LATENT = 10
"""Steps of the warm-up for each latent from which on the inverse mass matrix has elements off its diagonal."""

_SECONDS = 1.0
"""That a group of steps should take."""

_SPREAD = 2.0
"""Of the starts of the chains about the best fit, in standard deviations: wider than the posterior."""

_TRIES = 40
"""How often the start of a chain is moved half of the way to the best fit, at most."""

_HIGHER = 4
"""Times what is expected of a normal posterior (and 10 more) a start may be above the best fit's loss."""

_STATE, _STEP = "state_", "kept_"


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
        """The coordinates they move in."""
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
        """What is kept of the steps after the warm-up, by name: (chain, draw, ...)."""
        return {name: own[:, self.warmup : self.n_done] for name, own in self.steps.items()}

    def after(self, state: ChainState, steps: Step, count: int) -> "Chains":
        """With `count` steps more."""
        made = steps._asdict()
        added = {name: _with_steps(own, self.n_done, made[name][:, :count]) for name, own in self.steps.items()}
        return dataclasses.replace(
            self,
            n_done=self.n_done + count,
            steps=added,
            step_size=np.asarray(state.step_size),
            state=tuple(map(np.asarray, jax.tree.leaves(state))),
        )

    def arrays(self) -> dict[str, ndarray]:
        """Everything by name; `from_arrays` is the inverse."""
        own = {name: np.asarray(getattr(self, name)) for name in ("keys", "centre", "warmup", "n_done", "step_size")}
        if self.half is not None:
            own["half"] = self.half
        own |= {f"{_STEP}{name}": leaf for name, leaf in self.steps.items()}
        return own | {f"{_STATE}{number}": leaf for number, leaf in enumerate(self.state)}

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
            steps={name.removeprefix(_STEP): own for name, own in arrays.items() if name.startswith(_STEP)},
            step_size=arrays["step_size"],
            state=tuple(arrays[f"{_STATE}{number}"] for number in range(count)),
        )


def run_chains(
    posterior: SquaredLoss,
    mesh: Mesh,
    settings: SamplingSettings,
    whitening: Whitening,
    resume: Chains | None = None,
) -> Iterator[Chains]:
    """Yields the chains before their first step and after every group of steps, which takes about a second.

    On a mesh with the axis "sample", along which the chains are spread; the same keys give the same draws on any mesh.
    Raises ValueError where a chain cannot begin.
    """
    chosen = settings.nuts
    nuts = everywhere(_sampler(settings, whitening), mesh)
    posterior = everywhere(posterior, mesh)
    stages = stages_of(chosen.warmup, chosen.draws)
    chains = _begun(nuts, posterior, mesh, settings) if resume is None else resume
    structure = jax.tree.structure(_idle(nuts))
    _check_fits(chains, settings, nuts)
    yield chains
    count = 1
    while not chains.finished:
        began = time.monotonic()
        count = min(count, MOST_STEPS, chains.n_step - chains.n_done)
        own = placed((jax.tree.unflatten(structure, chains.state), chains.keys), mesh)
        window = np.resize(stages[chains.n_done : chains.n_done + count], MOST_STEPS)
        numbers = (window, np.int32(chains.n_done), np.int32(count))
        made = _run(nuts, posterior, own, numbers, mesh=mesh, at_once=settings.at_once)
        state, steps = fetched(made, len(chains.keys))
        chains = chains.after(state, steps, count)
        yield chains
        seconds = max(time.monotonic() - began, 1e-6)
        count = max(1, min(2 * count, round(count * _SECONDS / seconds)))


def _sampler(settings: SamplingSettings, whitening: Whitening) -> Nuts:
    chosen = settings.nuts
    target = jnp.asarray(chosen.target_acceptance, whitening.centre.dtype)
    dense = len(whitening.centre) * _STEPS_PER_LATENT <= chosen.warmup
    return Nuts(whitening, target, chosen.tree_depth, dense)


def _idle(nuts: Nuts) -> ChainState:
    """The shapes of a chain's state."""
    centre = nuts.whitening.centre
    return jax.eval_shape(nuts.state, centre, jnp.zeros((), centre.dtype), centre)


def _begun(nuts: Nuts, posterior: SquaredLoss, mesh: Mesh, settings: SamplingSettings) -> Chains:
    """Chains at their starts."""
    chosen, whitening = settings.nuts, nuts.whitening
    keys = np.asarray(jax.random.split(jax.random.PRNGKey(settings.seed), chosen.chains))
    n_latent = len(whitening.centre)
    state = _started(nuts, posterior, mesh, normal_starts(keys, n_latent, _SPREAD))
    shapes = jax.eval_shape(lambda: Step(whitening.centre, *_zeros(whitening)))
    n_step = chosen.warmup + chosen.draws
    return Chains(
        keys=keys,
        centre=np.asarray(whitening.centre),
        half=None if whitening.half is None else np.asarray(whitening.half),
        warmup=chosen.warmup,
        n_done=0,
        steps={
            name: np.zeros((chosen.chains, n_step, *own.shape), own.dtype) for name, own in shapes._asdict().items()
        },
        step_size=np.asarray(state.step_size),
        state=tuple(jax.tree.leaves(state)),
    )


def _started(nuts: Nuts, posterior: SquaredLoss, mesh: Mesh, start: Float[ndarray, "chain latent"]) -> ChainState:
    """Chains at their starts, or nearer to the best fit where the model is not defined, or the posterior far lower,
    there: without an approximation nothing else is known of its width."""
    n_chain, n_latent = start.shape
    best = fetched(_begin(nuts, posterior, placed(0 * start[:1], mesh, n_chain), mesh=mesh), 1)
    least = best.log_density - (_HIGHER * _SPREAD**2 * n_latent / 2 + 10)
    lost = np.ones(n_chain, bool)
    for _ in range(_TRIES):
        state = fetched(_begin(nuts, posterior, placed(start, mesh), mesh=mesh), n_chain)
        lost = ~((state.log_density >= least) & np.isfinite(state.gradient).all(axis=1))
        if not lost.any():
            return state
        start = np.where(lost[:, None], start / 2, start)
    raise ValueError(
        f"fit.sampling: expected a posterior with derivatives about the best fit, but {np.count_nonzero(lost)} of "
        f"{n_chain} chains found no place to begin; narrow the priors of fit.free to where the model is defined"
    )


def _zeros(whitening: Whitening) -> list[Array]:
    """Of the types of a `Step`, but for its latent."""
    real = whitening.centre.dtype
    return [jnp.zeros((), kind) for kind in (real, real, jnp.int32, jnp.int32, jnp.bool_, real)]


def _check_fits(chains: Chains, settings: SamplingSettings, nuts: Nuts) -> None:
    """Raise ValueError unless chains are those of these settings."""
    chosen = settings.nuts
    expected = (chosen.chains, chosen.warmup, chosen.warmup + chosen.draws, nuts.whitening.centre.shape)
    found = (len(chains.keys), chains.warmup, chains.n_step, chains.centre.shape)
    if expected != found:
        raise ValueError(
            f"fit.sampling: expected to go on with (chains, warmup, steps, shape of latents) {expected}, got {found}; "
            f"use the settings the chains were begun with"
        )


@functools.partial(jax.jit, static_argnames="mesh")
def _begin(nuts: Nuts, posterior: SquaredLoss, start: Placed, *, mesh: Mesh) -> ChainState:
    return over_samples(lambda own, white, nuts: nuts.begin(own, white), mesh, posterior, start, nuts)


@functools.partial(jax.jit, static_argnames=("mesh", "at_once"))
def _run(
    nuts: Nuts, posterior: SquaredLoss, chains: Placed, numbers: tuple[Array, ...], *, mesh: Mesh, at_once: int
) -> tuple[ChainState, Step]:
    """Every chain some steps further."""

    def kernel(posterior: SquaredLoss, own: tuple[ChainState, Array], nuts: Nuts, numbers: Any) -> Any:
        state, key = own
        return nuts.run(posterior, state, key, *numbers)

    return over_samples(kernel, mesh, posterior, chains, nuts, numbers, at_once=at_once)


def _with_steps(old: ndarray, first: int, new: ndarray) -> ndarray:
    """A copy with steps written in."""
    steps = np.array(old)
    steps[:, first : first + new.shape[1]] = new
    return steps
