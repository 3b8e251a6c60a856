"""What each draw says of the data: discrepancies beside those of replicated data, and ln(likelihood) point by point.

Of each draw a data set is drawn from the model's own errors. A discrepancy T of the data from the model of a draw is
compared with that of the replicated data; p is the share of draws for which the latter is at least as large (Gelman,
Meng & Stern 1996, Statistica Sinica 6, 733; Bayesian Data Analysis, 3rd edition, section 6.3). p near 0: the data are
further from the model than its own data would be; near 1: nearer.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32
from numpy import ndarray

from rubix_like.inference.checks.misfit import AXES
from rubix_like.inference.described_trees import described_as
from rubix_like.inference.likelihoods.correlation import JointErrors
from rubix_like.inference.likelihoods.voxel_errors import (
    AbstractCorrelation,
    AbstractErrorDistribution,
    quadrature_nodes,
)
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

Shapes = tuple[tuple[int, int, int], ...]
"""(y, x, wave) of each of several sets of data; empty: of one cube."""


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
    posterior: Posterior,
    latent: Latent,
    key: UInt32[Array, "2"],
    model: Voxels,
    flux: Voxels,
    points: str | None,
    shapes: Shapes = (),
) -> tuple[OfDraw, ...]:
    """Checks of a draw for the one cube, or for each of several sets of data of these shapes, whose voxels lie in a
    row.

    `model`: its flux, `flux`: the same with the best continuum, `key`: a random key, `points`: "spaxels", "voxels", or
    None for none. To be called inside a trace.
    """
    scale, likelihood = posterior.noise_scale(latent), posterior.likelihood_at(latent)
    light = model * likelihood.inverse_sigma
    used = likelihood.inverse_sigma > 0
    residuals = likelihood.residuals(model, scale).voxels
    other = _replicated(likelihood, model, flux, scale, key)
    point = _log_densities(likelihood, flux, scale)
    parts = zip(*(_parts(voxels, shapes) for voxels in (residuals, other, used, light, point)), strict=True)
    with_points = has_points(likelihood, len(shapes))
    return tuple(
        OfDraw(
            discrepancies(data, used, light),
            discrepancies(replicated, used, light),
            _pointwise(point, points if given else None),
        )
        for (data, replicated, used, light, point), given in zip(parts, with_points, strict=True)
    )


def _parts(row: Any, shapes: Shapes) -> list[Any]:
    """The voxels of each set of data; without shapes the one cube as it is."""
    if not shapes:
        return [row]
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    return [
        row[0, 0, end - math.prod(shape) : end].reshape(shape) for shape, end in zip(shapes, ends.tolist(), strict=True)
    ]


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


def _pointwise(voxels: Voxels, points: str | None) -> Float[Array, "..."]:
    """ln of the density of the data of each point, from that of each voxel."""
    if points is None:
        return jnp.zeros((0,), voxels.dtype)
    return voxels if points == "voxels" else jnp.sum(voxels, axis=2, keepdims=True)


def _log_densities(likelihood: Likelihood, flux: Voxels, scale: NoiseScale) -> Voxels:
    """ln of the density of the data of each voxel, in (1e-20 erg/s/cm2/Angstrom)^-1, 0 where they are not fitted;
    independent errors."""
    weight = likelihood.inverse_sigma / factor_of(scale)
    used = weight > 0
    residual = (likelihood.flux - flux) * weight
    if isinstance(likelihood.errors, AbstractErrorDistribution):
        density = likelihood.errors.log_density(residual)
    else:
        density = -0.5 * residual**2 - _HALF_LOG_TURN
    return jnp.where(used, density + jnp.log(jnp.where(used, weight, 1)), 0)


def has_points(likelihood: Likelihood, n_set: int = 0) -> tuple[bool, ...]:
    """Whether the density of the data is a product of those of voxels: of each set of data, or of the one cube (0)."""
    errors = likelihood.errors
    of_sets = errors.sets if isinstance(errors, JointErrors) else (errors,) * max(n_set, 1)
    independent = (own is None or isinstance(own, AbstractErrorDistribution) for own in of_sets)
    return tuple(own and likelihood.model_error is None for own in independent)


def can_replicate(likelihood: Likelihood) -> bool:
    """Whether data can be drawn from the errors: not from residuals of one's own without a distribution."""
    errors = likelihood.errors
    return errors is None or isinstance(errors, AbstractErrorDistribution | AbstractCorrelation | JointErrors)


def predictive_p(
    data: Float[ndarray, "draw discrepancy"],
    replicated: Float[ndarray, "draw discrepancy"],
    shape: tuple[int, ...],
) -> dict[str, float]:
    """p of each check: the share of draws whose replicated data are at least as far from the model as the data.

    `shape`: (y, x, wave) of the data; there are no neighbours along an axis of length 1.
    """
    shares = np.mean(np.asarray(replicated) >= np.asarray(data), axis=0)
    alone = [f"correlation along {axis}" for axis, size in zip(AXES, shape, strict=True) if size == 1]
    found = dict(zip(DISCREPANCIES, map(float, shares), strict=True))
    return {name: own for name, own in found.items() if name not in alone}


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
