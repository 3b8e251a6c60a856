"""The cubes of a fit: the best model, and what it leaves of the data."""

from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.cube.cube import Cube
from rubix_like.cube.meta import NOT_FITTED, SourceCounters
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.sources.stars import STAR_SOURCE, star_counters
from rubix_like.galaxy.particles import Galaxy
from rubix_like.inference.posterior.fit_model import GALAXY, STARS
from rubix_like.inference.posterior.free import Latent
from rubix_like.inference.posterior.likelihood import factor_of
from rubix_like.inference.posterior.posterior import Latents, Posterior, half_square
from rubix_like.inference.posterior.problem import Problem, variance_of
from rubix_like.inference.posterior.quality import Quality
from rubix_like.inference.posterior.start_groups import group_of
from rubix_like.inference.posterior.tangent import Modelled, models


class Evaluated(NamedTuple):
    """The posterior at one place: the model's parameters and particles (None where nothing of them is free), its flux
    with the continuum, the noise scale, the counters, the squared sum of the voxels' residuals, -ln(posterior)."""

    parameters: Parameters
    galaxy: Galaxy | None
    flux: Float[Array | ndarray, "y x wave"]
    noise_scale: Float[Array | ndarray, ""]
    counters: dict[str, SourceCounters]
    chi_square: Float[Array | ndarray, ""]
    loss: Float[Array | ndarray, ""]


def evaluate(posterior: Posterior, latent: Latent) -> Evaluated:
    """Everything that is said of a place, from one model; host arrays. Not to be traced."""
    group = group_of(posterior, latent)
    made = models(posterior.forward, posterior.free, group)
    found = _described(posterior, group, made)
    return jax.tree.map(np.asarray, found)


@eqx.filter_jit
def _described(posterior: Posterior, group: Latents, made: Modelled) -> Evaluated:
    """Of the first of a group of models."""
    latent, first = group[0], jax.tree.map(lambda leaf: leaf[0], made)
    scale, likelihood = posterior.noise_scale(latent), posterior.likelihood
    galaxy, parameters = posterior.at(latent)
    residuals = posterior.residuals_of(first.flux, latent)
    return Evaluated(
        parameters,
        galaxy if posterior.free.has(GALAXY, STARS) else None,
        first.flux * likelihood.continuum(first.flux, scale),
        factor_of(scale),
        first.counters,
        jnp.sum(residuals.voxels**2),
        half_square(residuals),
    )


def quality_of(problem: Problem, found: Evaluated) -> Quality:
    """chi^2 and what goes with it."""
    likelihood = problem.posterior.likelihood
    used = np.asarray(likelihood.inverse_sigma) > 0
    n_free = problem.posterior.free.n_latent
    if likelihood.polynomial is not None:
        n_free += likelihood.polynomial.basis.shape[1] * int(used.any(axis=2).sum())
    return Quality(float(found.chi_square), int(used.sum()), n_free, float(found.loss))


def cubes_of(problem: Problem, found: Evaluated) -> tuple[Cube, Cube]:
    """The model and the residuals (data less model), on the data's grid."""
    flux = np.asarray(found.flux)
    own: dict[str, SourceCounters] = jax.tree.map(np.asarray, found.counters)
    variance = noise_variance(problem) * float(found.noise_scale) ** 2
    residual = on_grid(problem, "residual", problem.observed.flux - flux, variance, of_data=True)
    return on_grid(problem, "model", flux, None, counters=own), residual


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
    if "instrument.psf.fwhm" in problem.posterior.free.names:  # the pipeline is planned for the widest of the prior
        meta = meta.replace(psf_fwhm=None, psf_fwhm_effective=None)
    mask = frame.mask()
    if of_data:
        left_out = np.asarray(problem.posterior.likelihood.inverse_sigma) == 0
        mask = np.where(left_out, mask | NOT_FITTED, mask)
    return Cube(
        flux=flux,
        mask=mask.astype(np.int32),
        variance=variance,
        bins=frame.bins,
        lsf_fwhm=frame.lsf_fwhm,
        footprint=frame.footprint,
        counters=star_counters(counters or {}),
        source_counters={name: own for name, own in (counters or {}).items() if name != STAR_SOURCE},
        meta=meta.replace(fit_image=content),
    )


def noise_variance(problem: Problem) -> Float[ndarray, "y x wave"]:
    """Variance of the data, 0 where they are not used."""
    variance = variance_of(problem.observed, problem.settings)
    return np.where(np.isfinite(variance) & (variance > 0), variance, 0.0)
