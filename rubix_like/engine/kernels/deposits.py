"""Sums over all particles in 64 bits, by a deposit kernel, as many spaxels at a time as there is room for."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from rubix_like.arguments import check_returned_shapes, returned
from rubix_like.engine.kernels.kernel import AbstractDepositKernel, Factors
from rubix_like.runtime.mesh.accumulate import accumulate
from rubix_like.runtime.mesh.mesh import varying, where_wanted

_BLOCK = 64


class Pieces(eqx.Module):
    """Particles in pieces of equal size, the wanted ones first, in their own order; zeros after them.

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
        place, n_wanted = _places(wanted, n_piece * size)

        def chosen(leaf: Array) -> Array:
            return leaf.at[place].get(mode="fill", fill_value=0).reshape(n_piece, size, *leaf.shape[1:])

        first = size * jnp.arange(n_piece, dtype=jnp.int32)
        return cls(jax.tree.map(chosen, particles), first < n_wanted)

    def added(self, total: Any, add: Callable[[Any, Any], Any]) -> Any:
        """add(... add(total, piece 1) ..., last piece with a wanted particle); `add` is linear in the total."""
        if self.filled is None:
            return add(total, self.particles)

        @jax.checkpoint
        def step(total: Any, one: tuple[Any, Any]) -> tuple[Any, None]:
            own, filled = one
            return lax.cond(filled, add, lambda total, _: total, total, own), None

        return lax.scan(step, total, (self.particles, self.filled))[0]

    def each(self, terms: Callable[[Any], Any]) -> Any:
        """`terms` of each piece, along a first axis; zeros for pieces without a wanted particle."""
        if self.filled is None:
            return jax.tree.map(lambda leaf: leaf[None], terms(self.particles))

        @jax.checkpoint
        def step(_: None, one: tuple[Any, Any]) -> tuple[None, Any]:
            own, filled = one
            return None, where_wanted(filled, terms, own)

        return lax.scan(step, None, (self.particles, self.filled))[1]


def _places(wanted: Bool[Array, " particle"], size: int) -> tuple[Int[Array, " place"], Int[Array, ""]]:
    """Which particle comes at each of `size` places (one beyond the last: none), and how many are wanted."""
    number = len(wanted)
    order = _running_count(wanted)
    target = jnp.where(wanted, order - 1, size)
    nobody = jnp.full(size, number, jnp.int32)
    particle = jnp.arange(number, dtype=jnp.int32)
    return nobody.at[target].set(particle, mode="drop"), order[-1]


def _running_count(wanted: Bool[Array, " particle"]) -> Int[Array, " particle"]:
    """How many are wanted up to each particle, itself included: in blocks, by one product with a triangle."""
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
    """Particles that are looked at, and those of them that are added, at once."""

    looked: int
    added: int


def in_blocks(sums: Callable[[Spaxels], tuple[Any, Any]], n_spaxel: int, n_block: int) -> tuple[Any, Any]:
    """What `sums` gives for all spaxels, made of `n_block` blocks of them, one after the other.

    `sums` returns arrays with a row per spaxel, also for those of the last block that lie beyond the grid, and what is
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

    Beside the factors it returns a pytree of arrays like `beside`, which is summed too. All sums are kept in 64 bits
    whatever the particles' precision, and returned as `dtype`: 1e7 equal masses in one row lose nothing, and the order
    of the particles, their chunks and devices do not matter. A chunk is at most `chunk` particles. Differentiable; the
    backward pass needs the particles only.
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
    """The same sum where few of the particles may add to it: `see` makes pieces of those of a chunk, `factors_of` the
    factors of a piece."""

    def add_piece(total: Array, piece: Any) -> Array:
        return _added(kernel, total, factors_of(piece))

    def add(rows: tuple[Array, ...], pieces: Pieces) -> tuple[Array, ...]:
        return (pieces.added(rows[0], add_piece),)

    (total,), counts = _summed(see, add, particles, (shape,), beside, chunk, dtype)
    return total, counts


def _added(kernel: AbstractDepositKernel, total: Array, factors: Factors) -> Array:
    """The sums with these factors; raises ConfigError for a kernel that returns no such sums."""
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
    def add(total: tuple[Any, Any], one: tuple[Any, Any]) -> tuple[Any, Any]:
        return add_light(total[0], one[0]), jax.tree.map(lambda a, b: a + b.astype(a.dtype), total[1], one[1])

    with jax.enable_x64(True):
        empty = tuple(jnp.zeros(shape, jnp.float64) for shape in shapes)
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float64), beside)
        sums = accumulate(contribute, add, varying((empty, zeros), particles), particles, chunk, two_levels=False)
        return jax.tree.map(lambda leaf: leaf.astype(dtype), sums)
