"""Particles that all lie in one place, painted as one."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.cube.meta import SourceCounters
from rubix_like.engine.counters import no_counts
from rubix_like.engine.painter import AbstractInnerPainter, AbstractPainter, Look, View
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.physics.templates import TemplateAxes
from rubix_like.runtime.mesh.accumulate import accumulate
from rubix_like.runtime.mesh.mesh import varying


class PointPainter(AbstractInnerPainter):
    """The light of another painter, of particles that have all but their amounts in common.

    It paints one of them, which is no padding, with the amounts of all, so that a million particles cost no more than
    one; the counters are those of all.
    """

    axes: TemplateAxes
    velocity_limit: Float[Array | ndarray, ""]
    inner: AbstractPainter

    @classmethod
    def of(cls, inner: AbstractPainter) -> "PointPainter":
        """That of a painter."""
        return cls(inner.axes, inner.velocity_limit, inner)

    def paint(self, look: Look, particles: Any, grid: SpaxelGrid, chunk: int) -> tuple[Any, SourceCounters]:
        """The other painter's partial of one particle, and the counters of all."""

        def contribute(own: Any) -> tuple[Float[Array, ""], SourceCounters]:
            view, counters = look(own)
            return jnp.sum(view.amount), counters

        def add(sums: Any, more: Any) -> Any:
            return jax.tree.map(jnp.add, sums, more)

        dtype = jnp.result_type(grid.footprint.pixel_scale)
        empty = varying((jnp.zeros((), dtype), no_counts(self.axes, dtype)), particles)
        amount, counters = accumulate(contribute, add, empty, particles, chunk)

        def whole(own: Any, *on: SpaxelGrid) -> tuple[View, SourceCounters]:
            view, counted = look(own, *on)
            return dataclasses.replace(view, amount=jnp.full_like(view.amount, amount)), counted

        place = jnp.argmax(particles.weight)
        one = jax.tree.map(lambda leaf: leaf[place][None], particles)
        return self.inner.paint(whole, one, grid, 1)[0], counters
