"""The built-in deposit kernel: XLA's scatter."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from rubix_like.engine.cost import rates_here
from rubix_like.engine.kernels.kernel import AbstractDepositKernel, Factors


class ScatterKernel(AbstractDepositKernel):
    """Multiplies a few particles out at a time, and adds the windows of each to its rows, in the particles' order.

    The backward pass gathers what was scattered, and costs about the same.
    """

    def add(self, total: Float[Array, "row column"], factors: Factors) -> Float[Array, "row column"]:
        """`total` with the products added."""
        n_value = factors.row.shape[1] * factors.window.shape[1] * total.shape[1]
        pieces = _pieces(factors, max(1, rates_here().products_at_once // n_value))
        return lax.scan(lambda sums, piece: (_add_piece(sums, piece), None), total, pieces)[0]


def _add_piece(total: Float[Array, "row column"], piece: Factors) -> Float[Array, "row column"]:
    n_share, n_adjacent = piece.row.size, piece.window.shape[1]
    share = (piece.share[:, :, None] * piece.window[:, None, :]).reshape(len(piece.row), -1)
    amount = share[:, :, None] * piece.own[:, None, :]
    return lax.scatter_add(
        total,
        piece.row.reshape(n_share, 1),
        amount.reshape(n_share, n_adjacent, total.shape[1]).astype(total.dtype),
        lax.ScatterDimensionNumbers((1, 2), (), (0,)),
        mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    )


def _pieces(factors: Factors, size: int) -> Factors:
    """The particles in pieces of `size`, or fewer, the last one filled up with nothing.

    Not by `jnp.pad`, whose transpose is made where 64-bit numbers may be off and fails there.
    """
    number = len(factors.row)
    size = max(1, min(size, number))
    n_piece = -(-number // size)

    def cut(leaf: Array) -> Array:
        nothing = jnp.zeros((n_piece * size - number, *leaf.shape[1:]), leaf.dtype)
        return jnp.concatenate([leaf, nothing]).reshape(n_piece, size, *leaf.shape[1:])

    return jax.tree.map(cut, factors)
