"""The deposit kernel: adds what a chunk of particles gives to rows of sums, and sees nothing else of a run.

In the coefficients of method `basis` the rows are (spaxel, velocity node) and the columns basis spectra; in the maps of
`products` the rows are spaxels and the columns their sums. A device that adds in another way needs one kernel for all.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from rubix_like.config.plug_ins import KERNELS
from rubix_like.engine.cost import rates_here


class Factors(eqx.Module):
    """What a chunk of particles adds, not multiplied out.

    Particle p adds share[p, c] window[p, j] own[p, k] to column k of row[p, c] + j, for all c, j and k.

    | field | shape | |
    |---|---|---|
    | row | (particle, corner) | first of the adjacent rows that a share goes to; all of them exist |
    | share | (particle, corner) | how much of the particle goes there; 0 where that is nowhere |
    | window | (particle, adjacent) | weights of the adjacent rows |
    | own | (particle, column) | what the particle has in each column |
    """

    row: Int[Array, "particle corner"]
    share: Float[Array, "particle corner"]
    window: Float[Array, "particle adjacent"]
    own: Float[Array, "particle column"]


class AbstractDepositKernel(eqx.Module):
    """One way to add `Factors` to rows of sums, built without arguments; `engine.kernel` names it.

    A complete one, which adds one particle after the other:

    ```python
    import jax
    import jax.numpy as jnp

    from rubix_like.extend import AbstractDepositKernel


    class OneByOneKernel(AbstractDepositKernel):
        def add(self, total, factors):
            def add_one(total, one):
                row = one.row[:, None] + jnp.arange(one.window.size, dtype=one.row.dtype)[None, :]
                amount = one.share[:, None, None] * one.window[None, :, None] * one.own[None, None, :]
                return total.at[row].add(amount.astype(total.dtype)), None

            return jax.lax.scan(add_one, total, factors)[0]
    ```
    """

    @abstractmethod
    def add(self, total: Float[Array, "row column"], factors: Factors) -> Float[Array, "row column"]:
        """`total` with the products of the factors added.

        It is called in a `lax.scan` over chunks of particles, inside jit and `jax.shard_map`. `total` has 64 bits; the
        factors have 64 or those of the run and are multiplied in that precision; there may be no particle. JAX must be
        able to differentiate it with respect to the factors, also where 64-bit numbers are off outside of it; and it is
        linear in `total`.
        """


def build_kernel(name: str) -> AbstractDepositKernel:
    """The kernel of that name; auto: the fastest on this platform (`engine/cost.py`)."""
    return KERNELS.find(rates_here().kernel if name == "auto" else name)()


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
