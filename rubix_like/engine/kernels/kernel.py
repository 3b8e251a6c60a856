"""The deposit kernel: adds the contributions of a chunk of particles to rows of sums, and sees nothing else of a run.

For method `basis` rows are (spaxel, velocity node) and columns basis spectra; for the maps of `products` rows are
spaxels and columns their sums. A device that adds in another way needs one kernel for all.
"""

import functools
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from rubix_like.arguments import check_returned_shapes, plug_in_named, returned
from rubix_like.config.plug_ins import KERNELS
from rubix_like.engine.cost import rates_here
from rubix_like.errors import ConfigError, expect
from rubix_like.runtime.mesh.mesh import accumulate, varying, where_wanted


class Factors(eqx.Module):
    """The contributions of a chunk of particles, not multiplied out.

    Particle p adds share[p, c] window[p, j] own[p, k] to column k of row[p, c] + j, for all c, j and k.

    | field | shape | |
    |---|---|---|
    | row | (particle, corner) | first of the adjacent rows that a share goes to; all of them exist |
    | share | (particle, corner) | share of the particle that goes there; 0 where that is nowhere |
    | window | (particle, adjacent) | weights of the adjacent rows |
    | own | (particle, column) | amount of the particle in each column |
    """

    row: Int[Array, "particle corner"]
    share: Float[Array, "particle corner"]
    window: Float[Array, "particle adjacent"]
    own: Float[Array, "particle column"]


class AbstractDepositKernel(eqx.Module):
    """One way to add `Factors` to rows of sums, built without arguments; `engine.kernel` names it.

    A complete kernel, which adds one particle after the other:

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

        Called in a `lax.scan` over chunks of particles, inside jit and `jax.shard_map`. `total` has 64 bits; the
        factors have 64 bits or the run's precision and are multiplied in it; there may be no particle. It is linear in
        `total`, and JAX must be able to differentiate it with respect to the factors, also where 64-bit numbers are
        off outside.
        """


def build_kernel(name: str) -> AbstractDepositKernel:
    """The kernel of that name; auto: the fastest on this platform (`engine/cost.py`).

    Raises ConfigError for a plug-in that is no deposit kernel, or adds wrong sums.
    """
    name = rates_here().kernel if name == "auto" else name
    kind = KERNELS.find(name)
    if name not in KERNELS.builtin:
        _try_kernel(kind, name)
    return kind()


@functools.cache
def _try_kernel(kind: type[AbstractDepositKernel], name: str) -> None:
    """Raise ConfigError, which names the kernel, unless its class adds two shares of one particle correctly."""
    place = f"deposit kernel '{name}'"
    with plug_in_named(place, kind):
        kernel = expect(kind(), AbstractDepositKernel, place, "a class derived from AbstractDepositKernel")
    with jax.enable_x64(True), plug_in_named(f"{place}: `add`", kernel):
        row = jnp.array([[0, 2]], jnp.int32)
        factors = Factors(row, jnp.array([[0.25, 0.75]]), jnp.array([[1.0, 2.0]]), jnp.array([[4.0]]))
        sums = np.asarray(_added(kernel, jnp.ones((5, 1)), factors))[:, 0]
    expected = np.array([2.0, 3.0, 4.0, 7.0, 1.0])
    if not np.allclose(sums, expected, rtol=1e-3):
        raise ConfigError(
            f"{place}: `add` must add share x window x own of each particle to its rows, expected {expected.tolist()}, "
            f"got {sums.tolist()} of one particle; see docs/how-to-extend.md"
        )


class ScatterKernel(AbstractDepositKernel):
    """Multiplies a few particles out at a time, and adds the windows of each to its rows, in the particles' order.

    The backward pass gathers instead of scattering, and costs about the same.
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
    """The particles in pieces of `size`, or fewer, the last one filled up with zeros."""
    number = len(factors.row)
    size = max(1, min(size, number))
    n_piece = -(-number // size)

    def cut(leaf: Array) -> Array:  # the transpose of `jnp.pad` fails where 64-bit numbers are off
        nothing = jnp.zeros((n_piece * size - number, *leaf.shape[1:]), leaf.dtype)
        return jnp.concatenate([leaf, nothing]).reshape(n_piece, size, *leaf.shape[1:])

    return jax.tree.map(cut, factors)


_BLOCK = 64


class Pieces(eqx.Module):
    """Particles in pieces of equal size, the wanted ones first, in the given order; zeros after them.

    `filled`: which pieces hold any; None where all particles are one piece, as they were.
    """

    particles: Any
    filled: Bool[Array, " piece"] | None

    @classmethod
    def of(cls, particles: Any, wanted: Bool[Array, " particle"], size: int) -> "Pieces":
        """The `wanted` of the particles in pieces of `size`."""
        number = len(wanted)
        if number <= size:
            return cls(particles, None)
        n_piece = -(-number // size)
        count = _running_count(wanted)
        target = jnp.where(wanted, count - 1, n_piece * size)
        nobody = jnp.full(n_piece * size, number, jnp.int32)
        place = nobody.at[target].set(jnp.arange(number, dtype=jnp.int32), mode="drop")

        def chosen(leaf: Array) -> Array:
            return leaf.at[place].get(mode="fill", fill_value=0).reshape(n_piece, size, *leaf.shape[1:])

        first = size * jnp.arange(n_piece, dtype=jnp.int32)
        return cls(jax.tree.map(chosen, particles), first < count[-1])

    def added(self, total: Any, add: Callable[[Any, Any], Any]) -> Any:
        """add(... add(total, piece 1) ..., last piece with a wanted particle); `add` is linear in the total."""
        if self.filled is None:
            return add(total, self.particles)

        @jax.checkpoint
        def step(total: Any, piece: tuple[Any, Any]) -> tuple[Any, None]:
            particles, filled = piece
            return lax.cond(filled, add, lambda total, _: total, total, particles), None

        return lax.scan(step, total, (self.particles, self.filled))[0]

    def each(self, terms: Callable[[Any], Any]) -> Any:
        """`terms` of each piece, along a first axis; zeros for pieces without a wanted particle."""
        if self.filled is None:
            return jax.tree.map(lambda leaf: leaf[None], terms(self.particles))

        @jax.checkpoint
        def step(_: None, piece: tuple[Any, Any]) -> tuple[None, Any]:
            particles, filled = piece
            return None, where_wanted(filled, terms, particles)

        return lax.scan(step, None, (self.particles, self.filled))[1]


def _running_count(wanted: Bool[Array, " particle"]) -> Int[Array, " particle"]:
    """Number of wanted particles up to each one, itself included: in blocks, by one product with a triangle."""
    n_block = -(-len(wanted) // _BLOCK)
    padded = jnp.concatenate([wanted, jnp.zeros(n_block * _BLOCK - len(wanted), bool)])
    blocks = padded.astype(jnp.float32).reshape(n_block, _BLOCK)
    triangle = jnp.triu(jnp.ones((_BLOCK, _BLOCK), jnp.float32))
    within = jnp.matmul(blocks, triangle, precision=lax.Precision.HIGHEST).astype(jnp.int32)
    before = jnp.cumsum(within[:, -1]) - within[:, -1]
    return (within + before[:, None].astype(jnp.int32)).reshape(-1)[: len(wanted)]


Spaxels = tuple[Int[Array, ""] | int, int]
"""The first of some spaxels (flat index), and their number."""


class AtOnce(NamedTuple):
    """Numbers of particles that are looked at, and of those that are added, at once."""

    looked: int
    added: int


def in_blocks(sums: Callable[[Spaxels], tuple[Any, Any]], n_spaxel: int, n_block: int) -> tuple[Any, Any]:
    """The rows of `sums` for all spaxels, from `n_block` blocks of them one after the other.

    `sums` returns arrays with a row per spaxel, also for those of the last block beyond the grid, and values that are
    the same for every block. The backward pass computes each block again.
    """
    size = -(-n_spaxel // n_block)
    if n_block == 1:
        return sums((0, size))
    starts = size * jnp.arange(n_block, dtype=jnp.int32)
    rows, beside = lax.map(jax.checkpoint(lambda first: sums((first, size))), starts)
    rows = jax.tree.map(lambda leaf: leaf.reshape(n_block * size, *leaf.shape[2:])[:n_spaxel], rows)
    return rows, jax.tree.map(lambda leaf: leaf[0], beside)


def sum_deposits(
    contribute: Callable[[Any], tuple[tuple[Factors, ...], Any]],
    particles: Any,
    kernel: AbstractDepositKernel,
    shapes: tuple[tuple[int, int], ...],
    beside: Any,
    chunk: int,
    dtype: Any,
) -> tuple[tuple[Float[Array, "row column"], ...], Any]:
    """Sums of these `shapes` (rows, columns), one for each of the factors that `contribute` makes of a chunk.

    Beside the factors `contribute` returns a pytree like `beside`, which is summed too. Sums are kept in 64 bits
    whatever the particles' precision, and returned as `dtype`: 1e7 equal masses in one row lose nothing, and the order
    of particles, chunks and devices does not matter. Differentiable; the backward pass needs the particles only.
    """

    def add(rows: tuple[Array, ...], factors: tuple[Factors, ...]) -> tuple[Array, ...]:
        return tuple(_added(kernel, *pair) for pair in zip(rows, factors, strict=True))

    return _summed(contribute, add, particles, shapes, beside, chunk, dtype)


def sum_pieces(
    see: Callable[[Any], tuple[Pieces, Any]],
    factors_of: Callable[[Any], Factors],
    particles: Any,
    kernel: AbstractDepositKernel,
    shape: tuple[int, int],
    beside: Any,
    chunk: int,
    dtype: Any,
) -> tuple[Float[Array, "row column"], Any]:
    """One sum as by `sum_deposits`, to which few of the particles may add: `see` cuts those of a chunk into pieces,
    `factors_of` makes the factors of a piece."""

    def add_piece(total: Array, piece: Any) -> Array:
        return _added(kernel, total, factors_of(piece))

    def add(rows: tuple[Array, ...], pieces: Pieces) -> tuple[Array, ...]:
        return (pieces.added(rows[0], add_piece),)

    (total,), counts = _summed(see, add, particles, (shape,), beside, chunk, dtype)
    return total, counts


def _added(kernel: AbstractDepositKernel, total: Array, factors: Factors) -> Array:
    """The sums with these factors; raises ConfigError for a kernel that returns anything else."""
    call = f"{type(kernel).__name__}: `add`"
    after = returned(kernel.add(total, factors), jax.Array, call, "an array")
    check_returned_shapes(call, {"sums": (after, total.shape)}, total.dtype)
    return after


def _summed(
    contribute: Callable[[Any], tuple[Any, Any]],
    add_light: Callable[[tuple[Array, ...], Any], tuple[Array, ...]],
    particles: Any,
    shapes: tuple[tuple[int, int], ...],
    beside: Any,
    chunk: int,
    dtype: Any,
) -> tuple[tuple[Float[Array, "row column"], ...], Any]:
    def add(total: tuple[Any, Any], part: tuple[Any, Any]) -> tuple[Any, Any]:
        return add_light(total[0], part[0]), jax.tree.map(lambda a, b: a + b.astype(a.dtype), total[1], part[1])

    with jax.enable_x64(True):
        empty = tuple(jnp.zeros(shape, jnp.float64) for shape in shapes)
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float64), beside)
        sums = accumulate(contribute, add, varying((empty, zeros), particles), particles, chunk, two_levels=False)
        return jax.tree.map(lambda leaf: leaf.astype(dtype), sums)
