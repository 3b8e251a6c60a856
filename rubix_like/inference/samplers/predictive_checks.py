"""What each draw says of the data: discrepancies beside those of replicated data, and ln(likelihood) point by point.

Of each draw a data set is drawn from the model's own errors. A discrepancy T of the data from the model of a draw is
compared with that of the replicated data; p is the share of draws for which the latter is at least as large (Gelman,
Meng & Stern 1996, Statistica Sinica 6, 733; Bayesian Data Analysis, 3rd edition, section 6.3). p near 0: the data are
further from the model than its own data would be; near 1: nearer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32
from numpy import ndarray

from rubix_like.inference.described_trees import described_as
from rubix_like.inference.likelihoods.correlation import Correlation
from rubix_like.inference.likelihoods.voxel_errors import AbstractErrorDistribution, quadrature_nodes
from rubix_like.inference.posterior.free import Latent
from rubix_like.inference.posterior.likelihood import Likelihood, NoiseScale, factor_of
from rubix_like.inference.posterior.posterior import Posterior
from rubix_like.runtime.words import listed

DISCREPANCIES: tuple[str, ...] = (
    "chi^2",
    "correlation along y",
    "correlation along x",
    "correlation along wavelength",
    "light of the spaxels",
    "light of the bins",
    "largest residual",
)
"""What is compared: sums of squares of residuals in units of their standard deviations, of products of neighbours, of
squares of the residual light of each spaxel and of each bin, and the largest residual."""

UNLIKELY: float = 0.01
"""p, or 1 - p, below which a check is noted."""

_HALF_LOG_TURN = 0.5 * np.log(2 * np.pi)

Voxels = Float[Array, "y x wave"]


class OfDraw(NamedTuple):
    """Discrepancies of the data and of replicated data from a draw's model, and ln(likelihood) of each point."""

    data: Float[Array, " discrepancy"]
    replicated: Float[Array, " discrepancy"]
    pointwise: Float[Array, "..."]


@dataclass(frozen=True, eq=False)
class Pointwise:
    """ln(likelihood) of every spaxel (all its voxels together: one number at its end) or of every voxel, at some draws
    of each chain; 0 where the data were not fitted."""

    values: Float[ndarray, "chain draw y x point"] = field(metadata=described_as("ln(likelihood), 0: not fitted"))
    draws: Int[ndarray, " draw"] = field(metadata=described_as("numbers of these draws in their chains, from 0"))

    @property
    def of_voxels(self) -> bool:
        """Whether there is a number for each voxel."""
        return self.values.shape[-1] > 1


def of_draw(
    posterior: Posterior, latent: Latent, key: UInt32[Array, "2"], model: Voxels, flux: Voxels, points: str | None
) -> OfDraw:
    """What a draw says; `model`: its flux, `flux`: the same with the best continuum, `key`: a random key.

    `points`: "spaxels", "voxels", or None for none. To be called inside a trace.
    """
    scale, likelihood = posterior.noise_scale(latent), posterior.likelihood_at(latent)
    light = model * likelihood.inverse_sigma
    used = likelihood.inverse_sigma > 0
    own = likelihood.residuals(model, scale).voxels
    other = _replicated(likelihood, model, flux, scale, key)
    return OfDraw(
        discrepancies(own, used, light), discrepancies(other, used, light), _pointwise(likelihood, flux, scale, points)
    )


def discrepancies(residual: Voxels, used: Bool[Array, "y x wave"], light: Voxels) -> Float[Array, " discrepancy"]:
    """All of `DISCREPANCIES`, of residuals in units of their standard deviations; `light`: the model in units of sigma.

    T = sum r^2, sum of r_i r_j over neighbours along each axis, sums over spaxels and over bins of (l . r)^2 / (l . l),
    and the largest |r|.
    """
    residual, light = jnp.where(used, residual, 0), jnp.where(used, light, 0)
    pairs = [
        jnp.sum(jnp.moveaxis(residual, axis, 0)[1:] * jnp.moveaxis(residual, axis, 0)[:-1])
        for axis in range(residual.ndim)
    ]
    lights = []
    for over in ((2,), (0, 1)):
        square = jnp.sum(light**2, axis=over)
        along = jnp.sum(light * residual, axis=over) ** 2
        lights.append(jnp.sum(jnp.where(square > 0, along / jnp.where(square > 0, square, 1), 0)))
    return jnp.stack([jnp.sum(residual**2), *pairs, *lights, jnp.max(jnp.abs(residual))])


def _replicated(likelihood: Likelihood, model: Voxels, flux: Voxels, scale: NoiseScale, key: Array) -> Voxels:
    """Residuals of data drawn from the model with its errors."""
    normal = jax.random.normal(key, model.shape, model.dtype)
    if likelihood.polynomial is not None:
        used = likelihood.inverse_sigma > 0
        sigma = jnp.where(used, 1 / jnp.where(used, likelihood.inverse_sigma, 1), 0)
        data = flux + factor_of(scale) * sigma * normal
        return eqx.tree_at(lambda own: own.flux, likelihood, data).residuals(model, scale).voxels
    if not isinstance(likelihood.errors, AbstractErrorDistribution):
        return normal
    nodes, weight = quadrature_nodes()
    share = jnp.cumsum(jnp.exp(likelihood.errors.log_density(nodes)) * weight)
    below = jax.scipy.special.ndtr(normal)
    drawn = jnp.interp(below, share / share[-1], nodes)
    return likelihood.errors.residuals(drawn, likelihood.flux, model, likelihood.inverse_sigma)


def _pointwise(likelihood: Likelihood, flux: Voxels, scale: NoiseScale, points: str | None) -> Float[Array, "..."]:
    """ln of the density of the data of each point, in (1e-20 erg/s/cm2/Angstrom)^-1 for each voxel."""
    if points is None or not has_points(likelihood):
        return jnp.zeros((0,), likelihood.flux.dtype)
    weight = likelihood.inverse_sigma / factor_of(scale)
    used = weight > 0
    residual = (likelihood.flux - flux) * weight
    if isinstance(likelihood.errors, AbstractErrorDistribution):
        density = likelihood.errors.log_density(residual)
    else:
        density = -0.5 * residual**2 - _HALF_LOG_TURN
    voxels = jnp.where(used, density + jnp.log(jnp.where(used, weight, 1)), 0)
    return voxels if points == "voxels" else jnp.sum(voxels, axis=2, keepdims=True)


def has_points(likelihood: Likelihood) -> bool:
    """Whether the density of the data is a product of those of voxels."""
    independent = likelihood.errors is None or isinstance(likelihood.errors, AbstractErrorDistribution)
    return independent and likelihood.model_error is None


def can_replicate(likelihood: Likelihood) -> bool:
    """Whether data can be drawn from the errors: not from residuals of one's own without a distribution."""
    errors = likelihood.errors
    return errors is None or isinstance(errors, AbstractErrorDistribution | Correlation)


def predictive_p(
    data: Float[ndarray, "draw discrepancy"], replicated: Float[ndarray, "draw discrepancy"]
) -> dict[str, float]:
    """p of each check: the share of draws whose replicated data are at least as far from the model as the data."""
    shares = np.mean(np.asarray(replicated) >= np.asarray(data), axis=0)
    return dict(zip(DISCREPANCIES, map(float, shares), strict=True))


def notes_on_checks(checks: Mapping[str, float]) -> list[str]:
    """Sentences on checks that data like these fail."""
    far = [f"{name} (p {own:.2g})" for name, own in checks.items() if own < UNLIKELY]
    near = [f"{name} (p {own:.2g})" for name, own in checks.items() if 1 - own < UNLIKELY]
    notes = []
    if far:
        notes.append(
            f"posterior-predictive checks: the data are further from the model than its own would be by {listed(far)}"
        )
    if near:
        notes.append(
            f"posterior-predictive checks: the data are nearer to the model than its own would be by {listed(near)}; "
            f"their errors may be too large"
        )
    return notes
