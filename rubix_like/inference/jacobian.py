"""The derivatives of a model's many residuals by its few latents, one column after another."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from rubix_like.inference.free import Latent
from rubix_like.inference.optimisers import SquaredLoss


def jacobian(function: Callable[[Latent], Any], latent: Latent) -> tuple[Any, Any]:
    """The values of a function, a pytree, and their derivatives by every latent along a new first axis of each leaf.

    Forward mode, one latent after another: of the sums over particles all at once would be three times slower, for
    there a batch of cells no longer stays in the processor's cache. The values are computed once.
    """
    values, along = jax.linearize(function, latent)
    return values, lax.map(along, jnp.eye(len(latent), dtype=latent.dtype))


def normal_equations(values: Any, columns: Any) -> tuple[Float[Array, "latent latent"], Float[Array, " latent"]]:
    """(J^T J, J^T r) of what `jacobian` returned for residuals r, in 64 bits where JAX has them."""
    matrix, vector = jnp.zeros(()), jnp.zeros(())
    for value, column in zip(jax.tree.leaves(values), jax.tree.leaves(columns), strict=True):
        rows = column.reshape(len(column), -1)
        matrix = matrix + jnp.matmul(rows, rows.T, precision=lax.Precision.HIGHEST)
        vector = vector + jnp.matmul(rows, value.reshape(-1), precision=lax.Precision.HIGHEST)
    return matrix, vector


@eqx.filter_custom_jvp
def residuals(posterior: SquaredLoss, latent: Latent) -> Any:
    """`posterior.residuals(latent)`; whoever differentiates it by the latents gets the whole Jacobian, made once.

    Then each further derivative at the same point, in either direction (Jacobian times vector, or vector times
    Jacobian), is one product with it.
    """
    return posterior.residuals(latent)


@residuals.def_jvp
def _residuals_jvp(primals: tuple[SquaredLoss, Latent], tangents: tuple[Any, Latent]) -> tuple[Any, Any]:
    posterior, latent = primals
    values, columns = jacobian(posterior.residuals, latent)
    return values, jax.tree.map(
        lambda column: jnp.tensordot(tangents[1], column, 1, precision=lax.Precision.HIGHEST), columns
    )
