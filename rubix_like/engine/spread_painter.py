"""A share of what particles shine, spread over the sky around them before it is seen."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.cube.meta import SourceCounters
from rubix_like.engine.painter import AbstractPainter, Images, Look, Sum, View
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.instrument.blur import blur
from rubix_like.physics.templates import TemplateAxes
from rubix_like.runtime.mesh.device_layout import DeviceLayout


class SpreadPainter(AbstractPainter):
    """The light of another painter, of a `share` of every particle's amount.

    With a `kernel` (weights of cells around a particle, sum 1) it is convolved with it on the painted grid: light that
    would come from particles beyond the grid is missing. With a value for the axis `moved` all particles lie there.
    """

    axes: TemplateAxes
    velocity_limit: Float[Array | ndarray, ""]
    inner: AbstractPainter
    share: Float[Array | ndarray, ""]
    place: Float[Array | ndarray, ""] | None
    kernel: Float[Array | ndarray, "side side"] | None
    moved: str = eqx.field(static=True)

    def paint(self, look: Look, particles: Any, grid: SpaxelGrid, chunk: int) -> tuple[Any, SourceCounters]:
        """The other painter's partial, whose arrays are all by spaxel, convolved."""

        def own(chunk_of_particles: Any) -> tuple[View, SourceCounters]:
            view, counters = look(chunk_of_particles)
            return self.seen(view), counters

        partial, counters = self.inner.paint(own, particles, grid, chunk)
        return jax.tree.map(lambda columns: self.spread(columns, grid), partial), counters

    def seen(self, view: View) -> View:
        """Particles with the share of their amount, and in the place between the templates, that shines here."""
        amount, coordinates = view.amount * self.share, list(view.coordinates)
        if self.place is not None:
            place = self.axes.names.index(self.moved)
            coordinates[place] = jnp.full_like(coordinates[place], self.place)
        return dataclasses.replace(view, amount=amount, coordinates=tuple(coordinates))

    def spread(self, columns: Float[Array, "spaxel k"], grid: SpaxelGrid) -> Float[Array, "spaxel k"]:
        """Sums over particles, convolved with the kernel; unchanged without one."""
        if self.kernel is None:
            return columns
        return _convolved(columns, jnp.asarray(self.kernel), (grid.n_layer, *grid.footprint.shape))

    @property
    def n_coefficient(self) -> int:
        """Those of the other painter."""
        return self.inner.n_coefficient

    def laid_out(self, layout: DeviceLayout) -> "SpreadPainter":
        """With the other painter laid out."""
        return dataclasses.replace(self, inner=self.inner.laid_out(layout))

    @property
    def sums(self) -> tuple[Sum, ...]:
        """Those of the other painter."""
        return self.inner.sums

    def project(
        self, partial: Any, spatial: Images, layout: DeviceLayout
    ) -> tuple[Float[Array, "seen own"], Float[Array, "seen 2"]]:
        """As the other painter."""
        return self.inner.project(partial, spatial, layout)

    def report(self) -> dict[str, int | float]:
        """What the other painter says."""
        return dict(self.inner.report())


def _convolved(
    columns: Float[Array, "spaxel k"], kernel: Float[Array, "side side"], shape: tuple[int, int, int]
) -> Float[Array, "spaxel k"]:
    """Columns over the cells of all layers, each layer convolved with the kernel, nothing beyond its ends."""
    reach = len(kernel) // 2
    layers = jnp.pad(columns.reshape(*shape, -1), ((0, 0), (reach, reach), (reach, reach), (0, 0)))
    spread = [blur(layer, kernel.astype(columns.dtype)) for layer in layers]
    return jnp.stack(spread).reshape(columns.shape)
