"""Particles in pieces, those that add something first: pieces of others are passed over."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from rubix_like.runtime.mesh.mesh import where_wanted

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
