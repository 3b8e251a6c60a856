"""Source `agn`: gas that shines in narrow lines and in a continuum, by the photons of an active nucleus."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.config.sections.nebular import AGN, NUCLEUS
from rubix_like.engine.lines.line_plan import with_dispersion
from rubix_like.engine.lines.line_planning import narrowest_for, plan_lines
from rubix_like.engine.methods import build_line_painter, build_painter
from rubix_like.engine.motion import FastParticles
from rubix_like.engine.painter import AbstractPainter
from rubix_like.engine.painter_pair import PainterPair
from rubix_like.engine.setup import Setup, SourcePlan
from rubix_like.engine.source_planning import plan_source
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.sources.illumination import agn_settings, covered
from rubix_like.forward.sources.nebulae import OxygenScale
from rubix_like.forward.sources.point_painter import PointPainter
from rubix_like.forward.sources.source import AbstractSource, Kind, ReaderWords
from rubix_like.forward.stages.base import refuse_options
from rubix_like.galaxy.particles import Gas, Stars
from rubix_like.galaxy.scene import Scene, to_scene, without_dark
from rubix_like.nebular import NebularTable, load_nebular
from rubix_like.nebular.active_nuclei import photons_per_erg
from rubix_like.nebular.line_grid import fixed
from rubix_like.nebular.photon_templates import PHOTONS, photon_continuum, photon_lines

_PEAK = "log_peak_energy"


class AbstractNarrowLines(AbstractSource):
    """Gas that an active nucleus ionises; its amount is the photons that it absorbs, in 1e49 per second.

    The covering fraction of the nucleus' photons is shared among particles by the field `nucleus`.
    """

    painter: eqx.AbstractVar[AbstractPainter]
    oxygen: eqx.AbstractVar[OxygenScale]
    per_erg: eqx.AbstractVar[Float[Array | ndarray, ""]]
    reads: ClassVar[tuple[str, ...]] = (NUCLEUS,)

    @classmethod
    def plan(cls, setup: Setup, options: Mapping[str, Any]) -> SourcePlan:
        """The lines of the section's table, painted as `engine` says; no options.

        Raises ConfigError for a run without `nebular.agn`, and for a table of other gas.
        """
        refuse_options(AGN, options)
        settings = agn_settings(setup)
        templates = photon_lines(_table(setup))
        narrowest = narrowest_for(setup, templates, settings.velocity_dispersion)
        return plan_lines(_with_point(setup), templates, _kind(setup), narrowest=narrowest)

    @classmethod
    def build(cls, setup: Setup, plan: SourcePlan, options: Mapping[str, Any]) -> "AbstractNarrowLines":  # noqa: ARG003
        """The source of the section's gas, with a painter of lines, and beside it one of their continuum."""
        settings, table = agn_settings(setup), _table(setup)
        painter = build_line_painter(plan, setup)
        nebular = setup.config.nebular
        if nebular is not None and nebular.continuum:
            painter = PainterPair.of(painter, build_painter(_plan_continuum(setup, table, plan), setup), "continuum")
        oxygen, per_erg = OxygenScale.of(table), np.asarray(np.log10(photons_per_erg() / PHOTONS))
        if not settings.radius:
            return NarrowLinesOfPoint(PointPainter.of(painter), oxygen, per_erg)
        return NarrowLinesOfGas(painter, oxygen, per_erg, np.asarray(settings.radius))

    @abstractmethod
    def seen(self, particles: Any) -> tuple[Any, Float[Array, " particle"]]:
        """The particles where they shine, and the part of the photons of each."""

    @abstractmethod
    def coordinates(self, particles: Any) -> dict[str, Float[Array, " particle"]]:
        """The O/H of each, where it has one of its own."""

    def scene(
        self,
        particles: Any,
        alignment: Float[Array | ndarray, "3 3"] | None,
        arcsec_per_kpc: Float[Array | ndarray, ""],
    ) -> Scene:
        """Particles in arcsec; amounts are their parts of the photons, in the unit of the field `nucleus`."""
        placed, part = self.seen(particles)
        return to_scene(placed, part, self.coordinates(particles), alignment, arcsec_per_kpc)

    def shine(self, scene: Scene, parameters: Parameters) -> Scene:
        """The photons that gas absorbs, all of them together Q x covering_fraction, and their place in the table."""
        own, whole = parameters.nebular.agn, jnp.asarray(scene.fields[NUCLEUS])
        photons = own.covering_fraction * 10.0 ** (own.log_luminosity + self.per_erg)
        share = jnp.where(whole > 0, photons / jnp.where(whole > 0, whole, jnp.ones_like(whole)), jnp.zeros_like(whole))
        same = {"oxygen_abundance": self.oxygen.solar} | dict(scene.coordinates) | {"log_u": own.log_u}
        if own.oxygen_abundance is not None:
            same["oxygen_abundance"] = own.oxygen_abundance
        place = {name: jnp.broadcast_to(value, scene.amount.shape) for name, value in same.items()}
        return replace(without_dark(scene), amount=scene.amount * share, coordinates=place)

    def painter_for(self, parameters: Parameters) -> AbstractPainter:
        """The painter of lines as wide as the section says."""
        return _as_wide(self.painter, parameters.nebular.agn.velocity_dispersion)


class NarrowLinesOfGas(AbstractNarrowLines):
    """The gas within a `radius` (kpc) of the centre, with its own velocity and O/H."""

    painter: AbstractPainter
    oxygen: OxygenScale
    per_erg: Float[Array | ndarray, ""]
    radius: Float[Array | ndarray, ""]
    kind: ClassVar[Kind] = "gas"
    words: ClassVar[ReaderWords] = ReaderWords("source 'agn'", "set nebular.agn.radius: 0, a point")

    def seen(self, particles: Gas) -> tuple[Gas, Float[Array, " particle"]]:
        """By what each covers of the nucleus' sky (`covered`)."""
        return particles, covered(particles, jnp.asarray(self.radius))

    def coordinates(self, particles: Gas) -> dict[str, Float[Array, " particle"]]:
        """O/H of the gas."""
        return {"oxygen_abundance": self.oxygen.by_oxygen(particles)}


class NarrowLinesOfPoint(AbstractNarrowLines):
    """A point in the centre, at rest in the galaxy; every star paints an equal part of it."""

    painter: AbstractPainter
    oxygen: OxygenScale
    per_erg: Float[Array | ndarray, ""]
    kind: ClassVar[Kind] = "stars"

    def seen(self, particles: Stars) -> tuple[Stars, Float[Array, " particle"]]:
        """All in one place."""
        position, velocity, length = (
            None if own is None else jnp.zeros_like(jnp.asarray(own))
            for own in (particles.position, particles.velocity, particles.smoothing_length)
        )
        centred = replace(particles, position=position, velocity=velocity, smoothing_length=length)
        return centred, jnp.ones_like(jnp.asarray(particles.position)[:, 0])

    def coordinates(self, particles: Stars) -> dict[str, Float[Array, " particle"]]:  # noqa: ARG002
        """None: the gas of a point is not the stars'."""
        return {}


def _as_wide(painter: AbstractPainter, dispersion: Float[Array, ""]) -> AbstractPainter:
    """A painter with another velocity_dispersion (km/s) of its lines."""
    if isinstance(painter, PointPainter):
        return replace(painter, inner=_as_wide(painter.inner, dispersion))
    if isinstance(painter, PainterPair):
        return replace(painter, first=with_dispersion(painter.first, dispersion))
    return with_dispersion(painter, dispersion)


def _kind(setup: Setup) -> str:
    return "gas" if agn_settings(setup).radius else AGN


def _with_point(setup: Setup) -> Setup:
    """The setup in which a point is known to be at rest in the galaxy."""
    offset = abs(setup.config.observation.velocity_offset)
    at_rest = FastParticles(np.full(1, offset), np.ones(1), 1, 1.0, 0.0)
    return replace(setup, particles={**setup.particles, AGN: at_rest})


def _plan_continuum(setup: Setup, table: NebularTable, lines: SourcePlan) -> SourcePlan:
    """The continuum by the method of the lines; its velocity nodes are few, and so reach the fastest particles."""
    edges = setup.instrument.bins.to_vacuum(setup.instrument.bins.edges[[0, -1]])
    first, last = edges / (1.0 + setup.config.observation.redshift) * [1.0 / 1.2, 1.2]
    templates = photon_continuum(table, agn_settings(setup).log_pressure, first, last)
    limit = lines.velocity_limit
    return plan_source(_with_point(setup), templates, _kind(setup), method=lines.method, velocity_range=limit)


def _table(setup: Setup) -> NebularTable:
    """The section's table on the axes on which particles differ."""
    settings = agn_settings(setup)
    try:
        table = load_nebular(settings.table)
    except ConfigError as error:
        raise ConfigError(f"nebular.agn.table: {error}") from error
    if _PEAK not in table.axes:
        raise ConfigError(
            f"nebular.agn.table: expected a table of active nuclei (with the axis {_PEAK}), got '{table.name}' of gas "
            f"around stars; take nlr (rubix-like nebular get nlr)"
        )
    for name, value in (("log_pressure", settings.log_pressure), (_PEAK, settings.log_peak_energy)):
        if name in table.axes:
            try:
                table = fixed(table, **{name: value})
            except ValueError as error:
                raise ConfigError(f"nebular.agn.{name}: {error}") from error
    return table
