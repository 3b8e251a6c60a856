"""Two painters of the same particles, such as those of a nebula's lines and of its continuum."""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.cube.meta import SourceCounters
from rubix_like.engine.painter import AbstractPainter, Look, Sum
from rubix_like.engine.spaxels import Images, SpaxelGrid
from rubix_like.physics.templates import TemplateAxes
from rubix_like.runtime.mesh.device_layout import DeviceLayout


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
