"""Nested sampling by dynesty: draws from the posterior, and the evidence with its error.

The prior volume X within which the likelihood is above L shrinks by a factor of about exp(-1 / n) with each of n live
points that is replaced by one with a higher likelihood; Z = integral of L dX (Skilling 2006, Bayesian Analysis 1, 833;
Speagle 2020, MNRAS 493, 3132). Latents, whose priors are N(0, 1), are the normal quantiles of a unit cube.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.special import ndtri

from rubix_like.config.sections.fit import NestedSettings
from rubix_like.inference.checks.laplace import Laplace
from rubix_like.inference.posterior.linearise import losses_at
from rubix_like.inference.posterior.posterior import SquaredLoss
from rubix_like.inference.posterior.start_groups import group_of
from rubix_like.inference.samplers.samplers import AbstractSampler, Sampled
from rubix_like.runtime.optional_packages import import_optional

_LOWEST = -1e300
"""ln(likelihood) where the model is not defined: dynesty takes no infinite ones."""

_SECONDS = 1.0
"""Seconds between two states."""

_PACKAGE = "dynesty"


@dataclass(frozen=True)
class NestedState:
    """Points of a run so far, or all of it where it is `finished`: only that can be resumed; others begin anew, and end
    with the same draws.

    `latent`: the points in the order in which they were replaced, `log_likelihood` of them up to a constant,
    `log_weight`: of their posterior; `log_evidence`, `error`: so far; `remaining`: ln of the evidence with what the
    live points may add over that without.
    """

    best: Float[ndarray, " latent"]
    latent: Float[ndarray, "point latent"]
    log_likelihood: Float[ndarray, " point"]
    log_weight: Float[ndarray, " point"]
    log_evidence: Float[ndarray, ""]
    error: Float[ndarray, ""]
    remaining: Float[ndarray, ""]
    n_step: Int[ndarray, ""]
    n_call: Int[ndarray, ""]
    complete: Bool[ndarray, ""]

    @classmethod
    def begin(cls, best: Float[ndarray, " latent"]) -> "NestedState":
        """Before the first step."""
        best, none, zero = np.asarray(best, np.float64), np.zeros(0), np.array(0.0)
        count = np.array(0)
        return cls(best, np.zeros((0, len(best))), none, none, zero, zero, zero, count, count, np.array(False))

    @property
    def finished(self) -> bool:
        """Whether the run is over."""
        return bool(self.complete)

    @property
    def n_ended(self) -> int:
        """Stages that are over."""
        return int(self.finished)

    def arrays(self) -> dict[str, ndarray]:
        """Everything by name."""
        return {own.name: np.asarray(getattr(self, own.name)) for own in dataclasses.fields(self)}


class NestedSampler(AbstractSampler):
    """Nested sampling: live points that are replaced by ever better ones."""

    title: ClassVar[str] = "Nested sampling"
    section_type: ClassVar[type[NestedSettings]] = NestedSettings
    is_chain: ClassVar[bool] = False
    is_approximate: ClassVar[bool] = False
    packages: ClassVar[tuple[str, ...]] = (_PACKAGE,)

    @property
    def n_sample(self) -> int:
        """One point at a time, on all devices."""
        return 1

    def read(self, arrays: Mapping[str, ndarray]) -> NestedState:
        """A state from the arrays of a checkpoint."""
        return NestedState(**{own.name: arrays[own.name] for own in dataclasses.fields(NestedState)})

    def run(
        self,
        posterior: SquaredLoss,
        mesh: Mesh,  # noqa: ARG002 (the posterior lies on it)
        best: Float[ndarray, " latent"],
        laplace: Laplace | None,  # noqa: ARG002 (points are drawn from the prior)
        begun: NestedState | None,
    ) -> Iterator[NestedState]:
        """From draws of the prior to where the rest of the evidence is below the tolerance."""
        if begun is not None and begun.finished:
            yield begun
            return
        start = NestedState.begin(best if begun is None else begun.best)
        yield start
        chosen = self.settings.section
        dynesty = import_optional(_PACKAGE, f"fit.sampling.method: '{self.settings.method}'")
        engine = dynesty.NestedSampler(
            _log_likelihood(posterior),
            _latents,
            len(start.best),
            nlive=chosen.live,
            sample="rwalk",
            rstate=np.random.default_rng(self.settings.seed),
        )
        told = time.monotonic()
        for number, point in enumerate(engine.sample(dlogz=chosen.tolerance), start=1):
            if time.monotonic() - told > _SECONDS:
                yield _so_far(start, number, engine.ncall, point)
                told = time.monotonic()
        for _ in engine.add_live_points():
            pass
        yield _ended(start, engine.results)

    def progress(self, state: NestedState) -> tuple[str, int, int]:
        """Steps, and how many there may be: the rest of the evidence falls by about e with each as many as there are
        live points."""
        chosen, done = self.settings.section, int(state.n_step)
        left = 0 if state.finished else round(chosen.live * max(float(state.remaining) - chosen.tolerance, 0.0))
        words = f"{int(state.n_call)} models, ln evidence {float(state.log_evidence):.6g}, step"
        return words, done, max(done + left, 1)

    def sampled(self, state: NestedState) -> Sampled:
        """Draws of equal weight, by systematic resampling of all points."""
        weight = np.exp(state.log_weight - state.log_weight.max())
        count, total = self.settings.section.draws, np.cumsum(weight)
        generator = np.random.default_rng([self.settings.seed, 1])
        chosen = np.searchsorted(total / total[-1], (np.arange(count) + generator.random()) / count)
        chosen = generator.permutation(np.minimum(chosen, len(weight) - 1))
        latent = state.latent[chosen]
        loss = 0.5 * np.sum(latent**2, axis=1) - state.log_likelihood[chosen]
        effective = weight.sum() ** 2 / np.sum(weight**2)
        note = (
            f"the draws are {count} of {len(weight)} points of {int(state.n_call)} models, worth {effective:.0f} "
            f"independent ones"
        )
        return Sampled(
            self.settings.method,
            latent[None],
            {"loss": loss[None]},
            np.asarray(jax.random.PRNGKey(self.settings.seed))[None],
            notes=(note,),
            log_evidence=(float(state.log_evidence), float(state.error)),
        )

    def notes(self, sampled: Sampled) -> list[str]:  # noqa: ARG002 (they are those of any run)
        """What every user of such draws should know."""
        return [
            f"there is no R-hat, which compares chains; whether {self.settings.section.live} live points are enough "
            f"shows another fit.sampling.seed: the evidence should agree within its error"
        ]


def _log_likelihood(posterior: SquaredLoss) -> Callable[[ndarray], float]:
    """ln(likelihood) of latents up to a constant: the loss without the prior's part."""

    def of(latent: ndarray) -> float:
        loss = float(np.asarray(losses_at(posterior, group_of(posterior, latent)))[0])
        found = 0.5 * float(latent @ latent) - loss
        return found if np.isfinite(found) else _LOWEST

    return of


def _latents(cube: ndarray) -> ndarray:
    """The normal quantiles of a point of the unit cube."""
    return ndtri(np.clip(cube, np.finfo(float).tiny, 1 - np.finfo(float).epsneg))


def _so_far(start: NestedState, number: int, n_call: int, point: Any) -> NestedState:
    """What is told of a run that goes on."""
    return dataclasses.replace(
        start,
        log_evidence=np.array(float(point.logz)),
        error=np.array(np.sqrt(max(float(point.logzvar), 0.0))),
        remaining=np.array(float(point.delta_logz)),
        n_step=np.array(number),
        n_call=np.array(int(n_call)),
    )


def _ended(start: NestedState, results: Any) -> NestedState:
    """All points of a run that is over."""
    return dataclasses.replace(
        start,
        latent=np.asarray(results["samples"], np.float64),
        log_likelihood=np.asarray(results["logl"], np.float64),
        log_weight=np.asarray(results["logwt"], np.float64) - float(results["logz"][-1]),
        log_evidence=np.array(float(results["logz"][-1])),
        error=np.array(float(results["logzerr"][-1])),
        n_step=np.array(int(results["niter"])),
        n_call=np.array(int(np.sum(results["ncall"]))),
        complete=np.array(True),
    )
