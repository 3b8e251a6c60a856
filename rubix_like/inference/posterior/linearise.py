"""Losses and linearised residuals of a group of starts, one start on each share of the devices."""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.inference.posterior.free import Latent
from rubix_like.inference.posterior.posterior import Group, Posterior, SquaredLoss, half_square
from rubix_like.inference.posterior.start_groups import over_starts
from rubix_like.inference.posterior.tangent import Tangent, models, tangents

MOST_DENSE = 2000
"""Most latents whose J^T J is made."""

DENSE_BYTES = 2e9
"""Largest Jacobian that is made."""


class NormalForm(eqx.Module):
    """All that least squares need of residuals r(latent + d) = r + J d: R with R^T R = J^T J, R^T projected = J^T r.

    |r + J d|^2 = |projected + R d|^2 + constant, in as many numbers as there are latents.
    """

    factor: Float[Array, "*start latent latent"]
    projected: Float[Array, "*start latent"]

    @property
    def gradient(self) -> Float[Array, "*start latent"]:
        """J^T r, that of the loss."""
        return jnp.einsum("...ji,...j->...i", self.factor, self.projected)

    @property
    def excess(self) -> Float[Array, "*start"]:
        """The fall of the loss if the residuals were linear."""
        return 0.5 * jnp.sum(self.projected**2, axis=-1)


class Linear(NamedTuple):
    """The residuals of a group about its latents: J^T J and J^T r, the same as a form, the loss; `effect`: by how many
    standard deviations each latent changes the voxels, the length of its column of J."""

    matrix: Float[Array, "*start latent latent"]
    gradient: Float[Array, "*start latent"]
    form: NormalForm
    loss: Float[Array, "*start"]
    effect: Float[Array, "*start latent"]


class Scores(NamedTuple):
    """The squared sum of the voxels' residuals, and -ln(posterior), of every start."""

    chi_square: Float[Array, "*start"]
    loss: Float[Array, "*start"]


def is_dense(n_latent: int, n_residual: int) -> bool:
    """Whether there is room for a Jacobian."""
    return n_latent <= MOST_DENSE and 8.0 * n_latent * n_residual <= DENSE_BYTES


def losses_at(posterior: SquaredLoss, latent: Group) -> Float[Array, " start"]:
    """The loss of every start; not to be traced."""
    if not isinstance(posterior, Posterior):
        return losses(posterior, latent)
    made = models(posterior.forward, posterior.free, latent)
    return scores(posterior, latent, made.flux, roughness=made.roughness).loss


def normal_forms_at(posterior: SquaredLoss, latent: Group) -> NormalForm:
    """The residuals of every start, linearised; not to be traced."""
    if not isinstance(posterior, Posterior):
        return normal_forms(posterior, latent)
    return linear_of(posterior, latent, tangents(posterior.forward, posterior.free, latent)).form


def losses_and_forms_at(posterior: SquaredLoss, latent: Group) -> tuple[Float[Array, " start"], NormalForm]:
    """Both, of a model from one evaluation; not to be traced."""
    if not isinstance(posterior, Posterior):
        return losses(posterior, latent), normal_forms(posterior, latent)
    linear = linear_of(posterior, latent, tangents(posterior.forward, posterior.free, latent))
    return linear.loss, linear.form


def scores(
    posterior: Posterior,
    latent: Group,
    flux: Float[Array, "start y x wave"],
    factor: Float[ndarray, " start"] | None = None,
    roughness: Float[Array, "start difference"] | None = None,
) -> Scores:
    """Scores of models with this flux, times a factor, and this roughness of their populations."""
    return _scores(posterior, latent, flux, np.ones(len(latent), flux.dtype) if factor is None else factor, roughness)


@jax.jit
def _scores(posterior: Posterior, latent: Group, flux: Array, factor: Array, roughness: Array | None) -> Scores:
    def score(posterior: Posterior, at: Latent, flux: Array, factor: Array, roughness: Array | None) -> Scores:
        residuals = posterior.residuals_of(flux * factor, at, roughness)
        return Scores(jnp.sum(residuals.voxels**2), half_square(residuals))

    return over_starts(score, posterior, latent, flux, factor, roughness)


@jax.jit
def linear_of(posterior: Posterior, latent: Group, tangent: Tangent) -> Linear:
    """The residuals of every start, linearised, of models that have this tangent there."""

    def linear(posterior: Posterior, at: Latent, tangent: Tangent) -> Linear:
        residuals, columns = columns_at(posterior, at, tangent)
        matrix, gradient = products(residuals, columns)
        effect = jnp.sqrt(jnp.sum(columns.voxels**2, axis=(1, 2, 3)))
        return Linear(matrix, gradient, _form(matrix, gradient), half_square(residuals), effect)

    return over_starts(linear, posterior, latent, tangent)


@jax.jit
def losses(posterior: SquaredLoss, latent: Group) -> Float[Array, " start"]:
    """The loss of every start, of any residuals."""
    return over_starts(lambda own, at: own.loss(at), posterior, latent)


@jax.jit
def normal_forms(posterior: SquaredLoss, latent: Group) -> NormalForm:
    """Any residuals of every start, linearised, by Jacobian-vector products."""
    return over_starts(lambda own, at: _form(*normal_equations(own, at)), posterior, latent)


def _form(matrix: Float[Array, "latent latent"], gradient: Float[Array, " latent"]) -> NormalForm:
    scale = jnp.sqrt(jnp.diagonal(matrix))
    size = matrix.shape[0]
    even = matrix / (scale[:, None] * scale[None, :])
    rounding = 10 * size * jnp.finfo(matrix.dtype).eps
    lower = jnp.linalg.cholesky(even + rounding * jnp.eye(size, dtype=matrix.dtype))
    projected = jax.scipy.linalg.solve_triangular(lower, gradient / scale, lower=True)
    return NormalForm(lower.T * scale[None, :], projected)


def normal_equations(
    posterior: SquaredLoss, latent: Latent
) -> tuple[Float[Array, "latent latent"], Float[Array, " latent"]]:
    """J^T J and J^T r."""
    return products(*jacobian(posterior, latent))


def products(residuals: Any, columns: Any) -> tuple[Float[Array, "latent latent"], Float[Array, " latent"]]:
    """J^T J and J^T r of residuals, and a pytree like them with the axis `latent` first, their derivatives."""
    leaves = list(zip(jax.tree.leaves(residuals), jax.tree.leaves(columns), strict=True))
    flat = [(residual.reshape(-1), column.reshape(column.shape[0], -1)) for residual, column in leaves]
    matrix = functools.reduce(jnp.add, [column @ column.T for _, column in flat])
    gradient = functools.reduce(jnp.add, [column @ residual for residual, column in flat])
    return matrix, gradient


def columns_at(posterior: Posterior, latent: Latent, tangent: Tangent) -> tuple[Any, Any]:
    """The result of `jacobian` for a posterior whose model has this tangent at the latents."""
    residuals, along = jax.linearize(posterior.residuals_of, tangent.flux, latent, tangent.roughness)
    unit = jnp.eye(latent.shape[0], dtype=latent.dtype)
    return residuals, lax.map(lambda own: along(*own), (tangent.slopes, unit, tangent.roughness_slopes))


def jacobian(posterior: SquaredLoss, latent: Latent) -> tuple[Any, Any]:
    """The residuals, and a pytree like them with the axis `latent` first: their derivatives.

    One after the other: all at once they take longer on CPUs, and more memory.
    """
    residuals, along = jax.linearize(posterior.residuals, latent)
    unit = jnp.eye(latent.shape[0], dtype=latent.dtype)
    return residuals, lax.map(along, unit)
