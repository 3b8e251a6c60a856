"""A share of what particles shine, spread over the sky around them before it is seen."""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.cube.meta import SourceCounters
from rubix_like.engine.painter import AbstractInnerPainter, AbstractPainter, Look, View
from rubix_like.engine.spaxels import Images, SpaxelGrid
from rubix_like.instrument.blur import blur
from rubix_like.physics.templates import TemplateAxes
from rubix_like.runtime.mesh.device_layout import DeviceLayout


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
