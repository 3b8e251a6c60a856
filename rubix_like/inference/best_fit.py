"""Description of a best fit: its cubes, chi^2, the Laplace approximation, the verdict, values at edges of priors."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy import ndarray

from rubix_like.cube.cube import Cube
from rubix_like.cube.fibres.fibre_spectra import FibreSpectra
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.meta import NOT_FITTED, OUTSIDE_APERTURE, SourceCounters, with_fitted
from rubix_like.forward.cube_header import FibreFrame
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.sources.stars import STAR_SOURCE, star_counters
from rubix_like.galaxy.particles import Galaxy
from rubix_like.inference.checks.misfit import (
    halves_of,
    measure_misfit,
    measure_misfit_roughly,
    regions_of_cube,
    regions_of_sets,
    splits_of_sets,
    sums_of_sets,
)
from rubix_like.inference.checks.regions import DataPlaces, data_places
from rubix_like.inference.checks.uncertainties import (
    Evidence,
    Laplace,
    laplace,
    laplace_evidence,
    laplace_from,
)
from rubix_like.inference.checks.verdict import Quality, Verdict, verdict_on
from rubix_like.inference.likelihoods.voxel_errors import AbstractErrorDistribution, normal_scores
from rubix_like.inference.posterior.fit_model import NOISE_SCALE, Free, Latent
from rubix_like.inference.posterior.posterior import (
    Group,
    Posterior,
    group_of,
    is_dense,
    models,
    nuisance_places,
    over_starts,
    scores,
)
from rubix_like.inference.posterior.problem import FittedSet, Problem, variance_of
from rubix_like.inference.search.guesses import places
from rubix_like.inference.search.library_cells import CellsSeen, notes_on_spreads, spreads, with_spreads
from rubix_like.inference.solved_populations import followed_by_weights


class Evaluated(NamedTuple):
    """The posterior at one place: the model's parameters and particles (None where nothing of them is free), its flux
    with the continuum, the noise scale, the counters, the squared sum of the voxels' residuals, -ln(posterior), the
    errors' distribution if not normal."""

    parameters: Parameters
    galaxy: Galaxy | None
    flux: Float[ndarray, "y x wave"]
    noise_scale: Float[ndarray, ""]
    counters: dict[str, SourceCounters]
    chi_square: Float[ndarray | np.floating, ""]
    loss: Float[ndarray | np.floating, ""]
    errors: AbstractErrorDistribution | None = None


def evaluate(posterior: Posterior, latent: Latent) -> Evaluated:
    """The posterior at one place, from one model; host arrays. Not to be traced."""
    group = group_of(posterior, latent)
    found = models(posterior.forward, posterior.free, group)
    score = scores(posterior, group, found.flux, roughness=found.roughness)
    galaxy, parameters = posterior.of_host(np.asarray(latent))
    flux = found.flux if posterior.likelihood.polynomial is None else _with_continua(posterior, group, found.flux)
    flux, counters, score = jax.tree.map(lambda rows: np.asarray(rows)[0], (flux, found.counters, score))
    scale = posterior.free.value(NOISE_SCALE, np.asarray(latent))
    scale = np.asarray(1.0 if scale is None else scale)
    errors = posterior.likelihood_at(jnp.asarray(latent)).errors
    errors = errors if isinstance(errors, AbstractErrorDistribution) else None
    return Evaluated(parameters, galaxy, flux, scale, counters, score.chi_square, score.loss, errors)


@jax.jit
def _with_continua(
    posterior: Posterior, latent: Group, flux: Float[Array, "start y x wave"]
) -> Float[Array, "start y x wave"]:
    def seen(posterior: Posterior, at: Latent, flux: Array) -> Array:
        return flux * posterior.likelihood.continuum(flux, posterior.noise_scale(at))

    return over_starts(seen, posterior, latent, flux)


def quality_of(problem: Problem, found: Evaluated, n_solved: float = 0.0) -> Quality:
    """chi^2 and what goes with it; `n_solved`: the effective number of weights that were solved for."""
    likelihood = problem.posterior.likelihood
    used = np.asarray(likelihood.inverse_sigma) > 0
    n_free = problem.posterior.free.n_latent
    if found.errors is not None:
        inverse_sigma = np.asarray(likelihood.inverse_sigma) / float(found.noise_scale)
        residual = (np.asarray(likelihood.flux) - np.asarray(found.flux)) * inverse_sigma
        square = float(np.sum(normal_scores(found.errors, residual[used]) ** 2))
        return Quality(square, int(used.sum()), n_free, float(found.loss), n_solved)
    if likelihood.polynomial is not None:
        n_free += likelihood.polynomial.basis.shape[1] * int(used.any(axis=2).sum())
    return Quality(float(found.chi_square), int(used.sum()), n_free, float(found.loss), n_solved)


def cubes_of(problem: Problem, found: Evaluated) -> tuple[Cube, Cube]:
    """The model and the residuals (data less model), on the data's grid."""
    flux = np.asarray(found.flux)
    counters: dict[str, SourceCounters] = jax.tree.map(np.asarray, found.counters)
    variance = noise_variance(problem) * float(found.noise_scale) ** 2
    residual = on_grid(problem, "residual", problem.observed.flux - flux, variance, of_data=True)
    return on_grid(problem, "model", flux, None, counters=counters), residual


def with_values(cube: Cube, free: Free, values: Float[ndarray, " latent"], sigma: Float[ndarray, " latent"]) -> Cube:
    """The cube whose header holds the fitted values (`with_fitted`)."""
    units = [parameter.unit for parameter in free.parameters for _ in range(parameter.size)]
    return dataclasses.replace(cube, meta=with_fitted(cube.meta, free.labels, values, sigma, units))


def on_grid(
    problem: Problem,
    content: str,
    flux: Float[ndarray, "y x wave"],
    variance: Float[ndarray, "y x wave"] | None,
    *,
    of_data: bool = False,
    counters: Mapping[str, SourceCounters] | None = None,
) -> Cube:
    """A cube on the data's grid, in its meta named by its content; `of_data`: masked where they were not fitted."""
    observed, frame = problem.observed, problem.pipeline.frame
    place = {"ra": observed.ra, "dec": observed.dec, "field_angle": observed.field_angle}
    meta = frame.meta if observed.ra is None else frame.meta.replace(**place)
    if "instrument.psf.fwhm" in problem.settings.free:  # the pipeline is planned for the widest of the prior
        widths = ("psf_fwhm", "psf_fwhm_effective", "psf_fwhm_smallest", "psf_fwhm_largest")
        meta = meta.replace(**{name: None for name in widths if name in meta})
    mask = frame.mask()
    if of_data:
        left_out = np.asarray(problem.posterior.likelihood.inverse_sigma_of_data) == 0
        mask = np.where(left_out, mask | NOT_FITTED, mask)
    voxels: dict[str, Any] = {"flux": flux, "mask": mask.astype(np.int32), "variance": variance}
    axes: dict[str, Any] = {"footprint": frame.footprint}
    if frame.fibres is not None and flux.shape[:2] == (len(frame.fibres.places), 1):
        voxels, axes = _cube_of_fibres(frame.fibres, frame.footprint.pixel_scale, **voxels)
    return Cube(
        **voxels,
        **axes,
        bins=frame.bins,
        lsf_fwhm=frame.lsf_fwhm,
        counters=star_counters(counters or {}),
        source_counters={name: counter for name, counter in (counters or {}).items() if name != STAR_SOURCE},
        meta=meta.replace(fit_image=content),
    )


def _cube_of_fibres(
    fibres: FibreFrame,
    pixel_scale: Any,
    flux: Float[ndarray, "fibre 1 wave"],
    mask: Int[ndarray, "fibre 1 wave"],
    variance: Float[ndarray, "fibre 1 wave"] | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    matrix, grid = fibres.weights.matrix(), Footprint.of(fibres.weights.shape, pixel_scale)
    near = (matrix != 0).astype(np.int32)
    bits = np.where(np.asarray(near.sum(axis=1))[:, None] > 0, 0, OUTSIDE_APERTURE)
    for bit in (1 << number for number in range(int(mask.max(initial=0)).bit_length())):
        bits = bits | np.where(near @ ((mask[:, 0] & bit) // bit) > 0, bit, 0)
    of_spectra = None if variance is None else variance[:, 0]
    spectra = FibreSpectra(
        flux[:, 0], of_spectra, None, fibres.places, fibres.weights, np.zeros(flux.shape[2], np.int32), "none"
    )
    return {
        "flux": grid.images(matrix @ flux[:, 0]),
        "variance": None if variance is None else grid.images(matrix.power(2) @ variance[:, 0]),
        "mask": grid.images(np.broadcast_to(bits, (grid.n_element, flux.shape[2])).astype(np.int32)),
    }, {"footprint": grid, "fibres": spectra}


def noise_variance(problem: Problem) -> Float[ndarray, "y x wave"]:
    """Variance of the data, 0 where they are not used."""
    variance = variance_of(problem.observed, problem.settings)
    return np.where(np.isfinite(variance) & (variance > 0), variance, 0.0)


def set_alone(problem: Problem, data_set: FittedSet) -> Problem:
    """The problem of one set alone, whose voxels are (y, x, wave)."""
    likelihood, error = problem.posterior.likelihood, problem.posterior.likelihood.model_error
    if error is not None:
        parts = {name: data_set.unpacked(getattr(error, name)) for name in ("offset", "modes", "held_out")}
        error = dataclasses.replace(error, **parts)
    alone = dataclasses.replace(
        likelihood,
        flux=data_set.unpacked(likelihood.flux),
        inverse_sigma=data_set.unpacked(likelihood.inverse_sigma),
        errors=None,
        dependent=None if likelihood.dependent is None else data_set.unpacked(likelihood.dependent),
        model_error=error,
    )
    return dataclasses.replace(
        problem,
        posterior=dataclasses.replace(problem.posterior, likelihood=alone),
        data=(data_set.alone,),
        settings=data_set.settings,
        first=0,
    )


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
    """The description of a maximum, from one linearisation.

    `trouble`: why the latents are no maximum, if so; `cells`: those of the SSP library that the search saw.
    """
    posterior, latent = problem.posterior, np.asarray(latent)
    evaluated = evaluate(posterior, latent)
    followed = followed_by_weights(posterior, latent)
    quality = quality_of(problem, evaluated, float(np.sum(followed**2)))
    every = _places(problem, np.asarray(evaluated.flux))
    place = every if problem.sets else every[""]
    likelihood, sets = posterior.likelihood, problem.sets
    light = np.asarray(evaluated.flux) * np.asarray(likelihood.inverse_sigma)
    tests = functools.partial(sums_of_sets, sets) if sets else None
    if not is_dense(posterior.free.n_latent, _COPIES * likelihood.flux.size):
        adjusted = np.asarray(quality.n_voxel - quality.degrees_of_freedom, light.dtype)
        residue = measure_misfit_roughly(posterior, latent, light, adjusted, tests)
    elif sets:
        locate = functools.partial(regions_of_sets, sets, light=light, places=every)
        residue = measure_misfit(posterior, latent, light, splits_of_sets(sets, light), tests, locate=locate)
    else:
        locate = functools.partial(regions_of_cube, light=light, field=every[""])
        residue = measure_misfit(posterior, latent, light, halves_of(light), followed=followed, locate=locate)
    known = residue.information
    approximation = laplace(posterior, latent) if known is None else laplace_from(posterior, latent, known)
    approximation, notes = over_cells(posterior, approximation, cells)
    normal = None if isinstance(approximation, str) else approximation
    sigma = None if normal is None else normal.sigma
    scale = nuisance_places(posterior.free) or None
    verdict = verdict_on(residue, quality, latent.astype(np.float64), sigma, scale, trouble, place)
    moved = np.array(verdict.moved)
    for group in posterior.free.correlated:
        members = [posterior.free.places[name].start for name in group.names]
        moved[members] = np.max(moved[members])
    verdict = dataclasses.replace(verdict, moved=moved)
    return BestFit(evaluated, quality, approximation, verdict, laplace_evidence(posterior, normal, quality.loss), notes)


def over_cells(
    posterior: Posterior, found: Laplace | str, cells: CellsSeen | None = None
) -> tuple[Laplace | str, tuple[str, ...]]:
    """The approximation with sigma of ages and metallicities over all cells of the SSP library, and notes on them."""
    if isinstance(found, str):
        return found, ()
    wider = spreads(*(cells or CellsSeen()).near(posterior, np.asarray(found.latent, np.float64)), found.sigma)
    if not wider:
        return found, ()
    found = dataclasses.replace(found, covariance=with_spreads(found.covariance, wider))
    return found, tuple(notes_on_spreads(posterior.free, wider))


def _places(problem: Problem, flux: Float[ndarray, "y x wave"]) -> dict[str, DataPlaces]:
    """Places of the voxels on the sky and in the spectrum, by the name of the set (empty: the one cube)."""
    found = {}
    for data_set in problem.data:
        frame, angle = data_set.frame, data_set.pipeline.parameters.observation.field_angle
        known = data_set.places
        if known is None:
            known = places(frame.footprint, 0.0 if angle is None else float(angle))
        place, wavelength = known.reshape(*frame.footprint.shape, 2), np.asarray(frame.bins.wavelength)
        found[data_set.name] = data_places(data_set.unpacked(flux), place, wavelength)
    return found
