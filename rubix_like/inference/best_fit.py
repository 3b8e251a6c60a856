"""Description of a best fit: its cube, chi^2, the Laplace approximation, the verdict, values at edges of priors."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.forward.pipeline import Pipeline
from rubix_like.inference.checks.edges import Edges, edges_of
from rubix_like.inference.checks.evidence import Evidence, laplace_evidence
from rubix_like.inference.checks.laplace import Laplace, laplace, laplace_from
from rubix_like.inference.checks.misfit import (
    Residue,
    halves_of,
    measure_misfit,
    measure_misfit_roughly,
    splits_of_sets,
    sums_of_sets,
)
from rubix_like.inference.checks.verdict import DataPlaces, Verdict, data_places, verdict_on
from rubix_like.inference.fit_cubes import Evaluated, evaluate, quality_of
from rubix_like.inference.posterior.free import Free
from rubix_like.inference.posterior.likelihood import nuisance_places
from rubix_like.inference.posterior.linearise import is_dense
from rubix_like.inference.posterior.posterior import Posterior
from rubix_like.inference.posterior.problem import Problem
from rubix_like.inference.posterior.quality import Quality
from rubix_like.inference.search.library_cells import CellsSeen, notes_on_spreads, spreads, with_spreads
from rubix_like.inference.search.sketch import places
from rubix_like.inference.solved_populations import followed_by_weights

_COPIES = 4
"""Times the derivatives are in memory at the most, while sums are made of them."""


class BestFit(NamedTuple):
    """Everything about a maximum of the posterior; `approximation`: why there is none, where it is a sentence;
    `evidence`: by it; `notes`: on what was enlarged."""

    evaluated: Evaluated
    quality: Quality
    approximation: Laplace | str
    verdict: Verdict
    evidence: Evidence | None = None
    notes: tuple[str, ...] = ()

    @property
    def laplace(self) -> Laplace | None:
        """The approximation, where there is one."""
        return None if isinstance(self.approximation, str) else self.approximation


def describe_best(
    problem: Problem, latent: Float[ndarray, " latent"], trouble: str = "", cells: CellsSeen | None = None
) -> BestFit:
    """All of it, from one linearisation; `trouble`: why the latents are no maximum, if so; `cells`: of the SSP library,
    those that were seen in the search."""
    posterior, at = problem.posterior, np.asarray(latent)
    evaluated = evaluate(posterior, at)
    followed = followed_by_weights(posterior, at)
    quality = quality_of(problem, evaluated, float(np.sum(followed**2)))
    residue = _residue(problem, at, evaluated, quality, followed)
    known = residue.information
    approximation = laplace(posterior, at) if known is None else laplace_from(posterior, at, known)
    approximation, said = over_cells(posterior, approximation, cells)
    sigma = None if isinstance(approximation, str) else approximation.sigma
    scale = nuisance_places(posterior.free) or None
    place = _places(problem, evaluated)
    verdict = verdict_on(residue, quality, np.asarray(latent, np.float64), sigma, scale, trouble, place)
    verdict = dataclasses.replace(verdict, moved=_shared(posterior.free, verdict.moved))
    normal = None if isinstance(approximation, str) else approximation
    evidence = laplace_evidence(posterior, normal, quality.loss)
    return BestFit(evaluated, quality, approximation, verdict, evidence, said)


def over_cells(
    posterior: Posterior, found: Laplace | str, cells: CellsSeen | None = None
) -> tuple[Laplace | str, tuple[str, ...]]:
    """The approximation with the standard deviations of ages and metallicities over all cells of the SSP library, and
    notes on them."""
    if isinstance(found, str):
        return found, ()
    near = (cells or CellsSeen()).near(posterior, np.asarray(found.latent, np.float64))
    wider = spreads(*near, found.sigma)
    if not wider:
        return found, ()
    notes = notes_on_spreads(posterior.free, wider)
    return dataclasses.replace(found, covariance=with_spreads(found.covariance, wider)), tuple(notes)


def _places(problem: Problem, found: Evaluated) -> DataPlaces | dict[str, DataPlaces]:
    """Places of the voxels on the sky and in the spectrum, by the names of several sets of data."""
    flux = np.asarray(found.flux)
    if not problem.sets:
        return _places_in(problem.pipeline, flux)
    return {
        data_set.name: _places_in(data_set.seen, data_set.unpacked(flux), data_set.places) for data_set in problem.sets
    }


def _places_in(
    pipeline: Pipeline, flux: Float[ndarray, "y x wave"], fibres: Float[ndarray, "fibre 2"] | None = None
) -> DataPlaces:
    """Places of the voxels of one cube, or of fibres at these places."""
    frame, angle = pipeline.frame, pipeline.parameters.observation.field_angle
    footprint = frame.footprint
    known = places(footprint, 0.0 if angle is None else float(angle)) if fibres is None else fibres
    place = known.reshape(*footprint.shape, 2)
    return data_places(flux, place, np.asarray(frame.bins.wavelength))


def _shared(free: Free, moved: Float[ndarray, " latent"]) -> Float[ndarray, " latent"]:
    """Of parameters with correlated priors, whose latents are sums of several, the longest movement for each."""
    moved = np.array(moved)
    for group in free.correlated:
        places = [free.places[name].start for name in group.names]
        moved[places] = np.max(moved[places])
    return moved


def edges_at(problem: Problem, latent: Float[ndarray, " latent"], laplace: Laplace | None) -> Edges:
    """The posterior of every value at the edge of its prior."""
    return edges_of(problem.posterior, problem.posterior.free, latent, laplace)


def _residue(
    problem: Problem,
    latent: Float[ndarray, " latent"],
    found: Evaluated,
    quality: Quality,
    followed: Float[ndarray, "vector y x wave"],
) -> Residue:
    """The sums of the residuals, with derivatives where there is room for them; `followed`: of weights that are solved
    for."""
    posterior, sets = problem.posterior, problem.sets
    likelihood = posterior.likelihood
    light = np.asarray(found.flux) * np.asarray(likelihood.inverse_sigma)
    dtype = light.dtype
    tests = functools.partial(sums_of_sets, sets) if sets else None
    if not is_dense(posterior.free.n_latent, _COPIES * likelihood.flux.size):
        adjusted = np.asarray(quality.n_voxel - quality.degrees_of_freedom, dtype)
        return measure_misfit_roughly(posterior, latent, light, adjusted, tests)
    if sets:
        return measure_misfit(posterior, latent, light, splits_of_sets(sets, light), tests)
    halves = jax.tree.map(lambda own: np.asarray(own, dtype), halves_of(light))
    return measure_misfit(posterior, latent, light, halves, followed=followed)
