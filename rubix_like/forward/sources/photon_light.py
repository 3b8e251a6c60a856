"""The light of gas per ionising photon that it absorbs: plans and painters of its lines, and of its continuum."""

import dataclasses
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.cube.meta import SourceCounters
from rubix_like.engine.lines.line_plan import dispersion_of, with_dispersion
from rubix_like.engine.lines.line_planning import narrowest_for, plan_lines, sees_line
from rubix_like.engine.painter import AbstractInnerPainter, AbstractPainter, Look, PainterPair, View, no_counts
from rubix_like.engine.setup import Setup, SourcePlan, build_line_painter, build_painter
from rubix_like.engine.source_planning import plan_source
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.errors import ConfigError
from rubix_like.forward.sources.source import seen_through_dust
from rubix_like.nebular import NebularTable
from rubix_like.nebular.line_grid import fixed, photon_continuum, photon_lines
from rubix_like.physics.templates import LineTemplates, TemplateAxes, Templates
from rubix_like.runtime.mesh.mesh import accumulate, varying


class PointPainter(AbstractInnerPainter):
    """The light of another painter, of particles that have all but their amounts in common.

    It paints one of them, which is no padding, with the amounts of all, so that a million particles cost no more than
    one; the counters are those of all.
    """

    axes: TemplateAxes
    velocity_limit: Float[Array | ndarray, ""]
    inner: AbstractPainter

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


_MARGIN = 1.2
"""The continuum reaches further than the detector by this factor, so by 5e4 km/s."""


@dataclass(frozen=True, eq=False)
class PhotonLight:
    """What gas shines for each photon: by a `table` on the axes on which particles differ, at a pressure (log10 of
    P / k, K / cm^3), with a continuum or without.

    `movers`: the particles whose velocities are planned for, by their name in `Setup.particles`.
    """

    table: NebularTable
    log_pressure: float
    movers: str
    has_continuum: bool

    def plan(self, setup: Setup, velocity_dispersion: float) -> SourcePlan:
        """The lines, or where the detector sees none of them the continuum, painted as `engine` says.

        `velocity_dispersion` (km/s) is the smallest one of the run. `own` of the plan is this.
        """
        lines = seen_through_dust(photon_lines(self.table), setup)
        if self.has_continuum and not sees_line(setup, lines, self.movers):
            return replace(self._plan_continuum(setup), own=self)
        narrowest = narrowest_for(setup, lines, velocity_dispersion)
        return replace(plan_lines(setup, lines, self.movers, narrowest=narrowest), own=self)

    def painter(self, setup: Setup, plan: SourcePlan) -> AbstractPainter:
        """The painter of the plan; a painter of lines is paired with one of the continuum."""
        if not isinstance(plan.templates, LineTemplates):
            return build_painter(plan, setup)
        painter = build_line_painter(plan, setup)
        if not self.has_continuum:
            return painter
        return PainterPair.of(painter, build_painter(self._plan_continuum(setup, plan), setup), "continuum")

    def continuum(self, setup: Setup) -> Templates:
        """The spectra of the continuum, on the detector's wavelengths at rest and a margin."""
        edges = setup.instrument.bins.to_vacuum(setup.instrument.bins.edges[[0, -1]])
        first, last = edges / (1.0 + setup.config.observation.redshift) * [1.0 / _MARGIN, _MARGIN]
        return seen_through_dust(photon_continuum(self.table, self.log_pressure, first, last), setup)

    def _plan_continuum(self, setup: Setup, lines: SourcePlan | None = None) -> SourcePlan:
        """Beside `lines` by their method; the velocity nodes are few, and so reach the fastest particles."""
        templates = self.continuum(setup)
        if lines is None:
            return plan_source(setup, templates, self.movers)
        return plan_source(setup, templates, self.movers, method=lines.method, velocity_range=lines.velocity_limit)


def as_wide(painter: AbstractPainter, dispersion: Float[Array, ""]) -> AbstractPainter:
    """A painter of lines, alone or beside their continuum, with another velocity_dispersion (km/s).

    A painter of a continuum alone is returned as it is.
    """
    if isinstance(painter, PainterPair):
        return replace(painter, first=with_dispersion(painter.first, dispersion))
    return painter if dispersion_of(painter) is None else with_dispersion(painter, dispersion)


def table_at(table: NebularTable, place: str, **values: float) -> NebularTable:
    """The table at values of axes, of those that it has; ConfigError, which names the section `place`, beyond them."""
    for name, value in values.items():
        if name in table.axes:
            try:
                table = fixed(table, **{name: value})
            except ValueError as error:
                raise ConfigError(f"{place}.{name}: {error}") from error
    return table


def check_number(table: NebularTable, axis: str, place: str, number: float) -> None:
    """Raise ConfigError, which names the key `place`, for a number of all gas that is beyond an axis of the table."""
    first, last = table.axes[axis][[0, -1]]
    if not first <= number <= last:
        raise ConfigError(
            f"{place}: expected {first:g} to {last:g}, the range of table '{table.name}', got {number:g}; its light "
            f"would be that of the table's end"
        )
