"""Losses and linearised residuals of a group of starts, one start on each share of the devices."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from rubix_like.inference.posterior.free import Latent
from rubix_like.inference.posterior.posterior import Latents, SquaredLoss
from rubix_like.runtime.mesh.mesh import SAMPLE_AXIS


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


def over_starts(function: Callable[..., Any], posterior: SquaredLoss, *arrays: Any) -> Any:
    """`function(posterior, *arrays of one start)` for every start, each start on its share of the devices."""
    if jax.tree.leaves(arrays)[0].shape[0] == 1:
        alone = function(posterior, *jax.tree.map(lambda array: array[0], arrays))
        return jax.tree.map(lambda array: array[None], alone)
    axes = (None, *(0 for _ in arrays))
    return jax.vmap(function, in_axes=axes, spmd_axis_name=SAMPLE_AXIS)(posterior, *arrays)


@jax.jit
def losses(posterior: SquaredLoss, latent: Latents) -> Float[Array, " start"]:
    """The loss of every start."""
    return over_starts(lambda own, at: own.loss(at), posterior, latent)


@jax.jit
def normal_forms(posterior: SquaredLoss, latent: Latents) -> NormalForm:
    """The residuals of every start, linearised, by Jacobian-vector products."""
    return over_starts(_normal_form, posterior, latent)


def _normal_form(posterior: SquaredLoss, latent: Latent) -> NormalForm:
    matrix, gradient = normal_equations(posterior, latent)
    scale = jnp.sqrt(jnp.diagonal(matrix))
    size = matrix.shape[0]
    even = matrix / (scale[:, None] * scale[None, :])
    rounding = 10 * size * jnp.finfo(matrix.dtype).eps
    lower = jnp.linalg.cholesky(even + rounding * jnp.eye(size, dtype=matrix.dtype))
    projected = jax.scipy.linalg.solve_triangular(lower, gradient / scale, lower=True)
    return NormalForm(lower.T * scale[None, :], projected)


def normal_equations(posterior: SquaredLoss, latent: Latent) -> tuple[Float[Array, "latent latent"], Latent]:
    """J^T J and J^T r."""
    return products(*jacobian(posterior, latent))


def products(residuals: Any, columns: Any) -> tuple[Float[Array, "latent latent"], Latent]:
    """J^T J and J^T r of residuals, and a pytree like them with the axis `latent` first, their derivatives."""
    leaves = list(zip(jax.tree.leaves(residuals), jax.tree.leaves(columns), strict=True))
    flat = [(residual.reshape(-1), column.reshape(column.shape[0], -1)) for residual, column in leaves]
    matrix = functools.reduce(jnp.add, [column @ column.T for _, column in flat])
    gradient = functools.reduce(jnp.add, [column @ residual for residual, column in flat])
    return matrix, gradient


def jacobian(posterior: SquaredLoss, latent: Latent) -> tuple[Any, Any]:
    """The residuals, and a pytree like them with the axis `latent` first: their derivatives.

    One after the other: all at once they take longer on CPUs, and more memory.
    """
    residuals, along = jax.linearize(posterior.residuals, latent)
    unit = jnp.eye(latent.shape[0], dtype=latent.dtype)
    return residuals, lax.map(along, unit)
