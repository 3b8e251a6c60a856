"""The sparse linear map that makes spaxels of fibres."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray

from rubix_like.runtime.places import found_at


class CubeWeights(eqx.Module):
    """flux of a spaxel = sum over fibres of weight times the fibre's flux; row after row of spaxels.

    Only fibres near a row of spaxels count there: `near` has their numbers, filled up with fibres of weight 0.

    | field | shape | |
    |---|---|---|
    | near | (y, near) | which fibres |
    | weights | (y, x, near) | of each of them in every spaxel of the row; 0 in spaxels that no fibre is near |
    | coverage | (y, x) | sum of the recipe's weights before they are normalised: 0 where no fibre is near |
    | n_fibre | static | number of fibres, of all exposures |
    """

    near: Int[Array | ndarray, "y near"]
    weights: Float[Array | ndarray, "y x near"]
    coverage: Float[Array | ndarray, "y x"]
    n_fibre: int = eqx.field(static=True)

    @classmethod
    def of_matrix(cls, matrix: Any, shape: tuple[int, int], coverage: Float[ndarray, "y x"]) -> "CubeWeights":
        """The map of a sparse matrix (spaxel, fibre) onto a grid of this shape (y, x)."""
        n_y, n_x = shape
        rows = [matrix[row * n_x : (row + 1) * n_x] for row in range(n_y)]
        used = [np.unique(own.indices) for own in rows]
        n_near = max(1, *(len(own) for own in used))
        near = np.zeros((n_y, n_near), dtype=np.int32)
        weights = np.zeros((n_y, n_x, n_near))
        for row, (own, chosen) in enumerate(zip(rows, used, strict=True)):
            near[row, : len(chosen)] = chosen
            weights[row, :, : len(chosen)] = own[:, chosen].toarray()
        return cls(near, weights, np.asarray(coverage), matrix.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of spaxels."""
        return self.weights.shape[0], self.weights.shape[1]

    def part(self, rows: slice, columns: slice) -> "CubeWeights":
        """The map onto some of the spaxels."""
        return CubeWeights(self.near[rows], self.weights[rows, columns], self.coverage[rows, columns], self.n_fibre)

    def matrix(self) -> Any:
        """The map as a scipy CSR array (spaxel, fibre) in 64 bits; spaxels row after row (on the host)."""
        weights, near = np.asarray(self.weights, dtype=np.float64), np.asarray(self.near)
        row, column, place = np.nonzero(weights)
        entries = weights[row, column, place], (row * self.shape[1] + column, near[row, place])
        n_spaxel = self.shape[0] * self.shape[1]
        return found_at("scipy.sparse:csr_array")(entries, shape=(n_spaxel, self.n_fibre))

    def images(self, values: Float[Array, "fibre k"]) -> Float[Array, "y x k"]:
        """The spaxels' values of those of the fibres."""
        return _through(jnp.asarray(self.weights, values.dtype), jnp.asarray(self.near), values)

    def variances(self, values: Float[Array, "fibre k"]) -> Float[Array, "y x k"]:
        """The spaxels' variances of those of the fibres, whose noise is independent."""
        return _through(jnp.asarray(self.weights, values.dtype) ** 2, jnp.asarray(self.near), values)

    def regained(self, good: Float[Array, "fibre k"]) -> Float[Array, "y x k"]:
        """By how much the weights of good fibres (1, of others 0) must grow in each spaxel, so that they have the sum
        of all; 0 where there is no good one."""
        before, after = self.images(jnp.ones_like(good[:, :1])), self.images(good)
        some = after > 0
        return jnp.where(some, before / jnp.where(some, after, jnp.ones_like(after)), jnp.zeros_like(after))


@jax.jit
def _through(
    weights: Float[Array, "y x near"], near: Int[Array, "y near"], values: Float[Array, "fibre k"]
) -> Float[Array, "y x k"]:
    """Row after row, so that no more memory is taken than the result; compiled once for as many fibres and bins."""

    def one(own: tuple[Array, Array]) -> Array:
        weight, chosen = own
        return jnp.einsum("xn,nk->xk", weight, values[chosen], precision=lax.Precision.HIGHEST)

    return lax.map(one, (weights, near))


def without_flagged(weights: Any, good: Bool[ndarray, " fibre"]) -> Any:
    """The map without fibres that are flagged, the others' weights in each spaxel with the same sum as before."""
    if good.all():
        return weights
    kept = weights.multiply(good.astype(np.float64)[None, :]).tocsr()
    kept.eliminate_zeros()
    before, after = (np.asarray(own.sum(axis=1)).ravel() for own in (weights, kept))
    return kept.multiply(np.where(after > 0, before / np.where(after > 0, after, 1.0), 0.0)[:, None]).tocsr()
