"""Painters around others: two as one, and one whose light is spread over more spaxels."""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.cube.meta import SourceCounters
from rubix_like.engine.painter import AbstractInnerPainter, AbstractPainter, Look, Sum, View
from rubix_like.engine.spaxels import Images, SpaxelGrid
from rubix_like.instrument.blur import blur
from rubix_like.physics.templates import TemplateAxes
from rubix_like.runtime.mesh.mesh import DeviceLayout


class PainterPair(AbstractPainter):
    """The light of both painters; a partial is a pair of theirs.

    Both look particles up on axes of the same names, in the same order, and count what lies beyond the `first` one's.
    `label` stands before what the `second` one reports.
    """

    axes: TemplateAxes
    velocity_limit: Float[Array | ndarray, ""]
    first: AbstractPainter
    second: AbstractPainter
    label: str = eqx.field(static=True)

    @classmethod
    def of(cls, first: AbstractPainter, second: AbstractPainter, label: str) -> "PainterPair":
        """The pair, for particles that both can paint; ValueError for painters of other axes."""
        if first.axes.names != second.axes.names:
            raise ValueError(
                f"two painters of one source: expected axes of the same names, got {first.axes.names} and "
                f"{second.axes.names}"
            )
        limit = np.minimum(np.asarray(first.velocity_limit), np.asarray(second.velocity_limit))
        return cls(first.axes, np.asarray(limit), first, second, label)

    def paint(self, look: Look, particles: Any, grid: SpaxelGrid, chunk: int) -> tuple[tuple[Any, Any], SourceCounters]:
        """The partials of both, and counters of the particles, with the larger of the two overflows."""
        first, counters = self.first.paint(look, particles, grid, chunk)
        second, others = self.second.paint(look, particles, grid, chunk)
        overflow = jnp.maximum(counters.n_overflow, others.n_overflow)
        return (first, second), eqx.tree_at(lambda c: c.n_overflow, counters, overflow)

    @property
    def n_coefficient(self) -> int:
        """Those of both."""
        return self.first.n_coefficient + self.second.n_coefficient

    def laid_out(self, layout: DeviceLayout) -> "PainterPair":
        """The pair of both, laid out."""
        return dataclasses.replace(self, first=self.first.laid_out(layout), second=self.second.laid_out(layout))

    @property
    def sums(self) -> tuple[Sum, ...]:
        """Those of the first, then those of the second."""
        return *self.first.sums, *self.second.sums

    def project(
        self, partial: tuple[Any, Any], spatial: Images, layout: DeviceLayout
    ) -> tuple[Float[Array, "seen own"], Float[Array, "seen 2"]]:
        """The sum of both."""
        (flux, moments), (more_flux, more_moments) = (
            painter.project(own, spatial, layout)
            for painter, own in zip((self.first, self.second), partial, strict=True)
        )
        return flux + more_flux, moments + more_moments

    def report(self) -> dict[str, int | float]:
        """What the first one says, and what the second one says of itself under the label."""
        others = {f"{self.label}_{name}": value for name, value in self.second.report().items()}
        return {**self.first.report(), **others}


class SpreadPainter(AbstractInnerPainter):
    """The light of another painter, of a `share` of every particle's amount.

    With a `kernel` (weights of cells around a particle, sum 1) it is convolved with it, once, after all sums: painted
    are `margin` more cells on each side, no more than the kernel reaches, whose particles' light is spread into the
    field. With a value for the axis `moved` all particles lie there.
    """

    axes: TemplateAxes
    velocity_limit: Float[Array | ndarray, ""]
    inner: AbstractPainter
    share: Float[Array | ndarray, ""]
    place: Float[Array | ndarray, ""] | None
    kernel: Float[Array | ndarray, "side side"] | None
    moved: str = eqx.field(static=True)
    margin: int = eqx.field(static=True, default=0)

    def paint(self, look: Look, particles: Any, grid: SpaxelGrid, chunk: int) -> tuple[Any, SourceCounters]:
        """The other painter's partial on the grid with its margin."""
        wide = self.wide(grid)

        def own(chunk_of_particles: Any) -> tuple[View, SourceCounters]:
            view, counters = look(chunk_of_particles, wide)
            return self.changed(view), counters

        return self.inner.paint(own, particles, wide, chunk)

    def wide(self, grid: SpaxelGrid) -> SpaxelGrid:
        """The grid with its margin."""
        if not self.margin:
            return grid
        return dataclasses.replace(grid, footprint=grid.footprint.painted(self.margin))

    def changed(self, view: View) -> View:
        """The particles' share of light, where `place` says between the templates."""
        amount, coordinates = view.amount * self.share, list(view.coordinates)
        if self.place is not None:
            place = self.axes.names.index(self.moved)
            coordinates[place] = jnp.full_like(coordinates[place], self.place)
        return dataclasses.replace(view, amount=amount, coordinates=tuple(coordinates))

    def project(
        self, partial: Any, spatial: Images, layout: DeviceLayout
    ) -> tuple[Float[Array, "seen own"], Float[Array, "seen 2"]]:
        """As the other painter, of images that are convolved with the kernel before they are seen."""

        return self.inner.project(partial, spatial.after(self.wide(spatial.grid), self.spread), layout)

    def spread(self, images: Float[Array, "y x k"]) -> Float[Array, "inner_y inner_x k"]:
        """Images of the wide grid convolved with the kernel, without their margin; beyond them there is no light."""
        if self.kernel is None:
            return images
        beyond = len(self.kernel) // 2 - self.margin
        padded = jnp.pad(images, ((beyond, beyond), (beyond, beyond), (0, 0)))
        return blur(padded, jnp.asarray(self.kernel).astype(images.dtype))
