"""Source `agn`: gas that shines in narrow lines and in a continuum, by the photons of an active nucleus."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy import ndarray

from rubix_like.config.sections.nebular import AGN, NUCLEUS
from rubix_like.engine.motion import FastParticles
from rubix_like.engine.painter import AbstractPainter
from rubix_like.engine.setup import Setup, SourcePlan
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.sources.nebulae import OxygenScale
from rubix_like.forward.sources.photon_light import PhotonLight, PointPainter, as_wide, check_number, table_at
from rubix_like.forward.sources.source import AbstractSource, DustInFront, Kind, ReaderWords, agn_settings, covered
from rubix_like.forward.stages.base import refuse_options
from rubix_like.galaxy.particles import Gas, Stars
from rubix_like.galaxy.scene import Scene, to_scene, without_dark
from rubix_like.nebular import NebularTable, load_nebular
from rubix_like.nebular.ionising_light import photons_per_erg
from rubix_like.nebular.line_grid import PHOTONS

_PEAK = "log_peak_energy"


class AbstractNarrowLines(AbstractSource):
    """Gas that an active nucleus ionises; its amount is the photons that it absorbs, in 1e49 per second.

    The covering fraction of the nucleus' photons is shared among particles by the field `nucleus`.
    """

    painter: eqx.AbstractVar[AbstractPainter]
    oxygen: eqx.AbstractVar[OxygenScale]
    per_erg: eqx.AbstractVar[Float[Array | ndarray, ""]]
    dust: eqx.AbstractVar[DustInFront | None]

    @property
    def reads(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The nucleus, and the columns of dust where the run has dust of kind particles."""
        return (NUCLEUS, *(() if self.dust is None else self.dust.reads))

    @classmethod
    def plan(cls, setup: Setup, options: Mapping[str, Any]) -> SourcePlan:
        """The lines of the section's table, painted as `engine` says; no options.

        Raises ConfigError for a run without `nebular.agn`, and for a table of other gas.
        """
        refuse_options(AGN, options)
        settings, table = agn_settings(setup), _table(setup)
        check_number(table, "log_u", "nebular.agn.log_u", settings.log_u)
        if settings.oxygen_abundance is not None:
            check_number(table, "oxygen_abundance", "nebular.agn.oxygen_abundance", settings.oxygen_abundance)
        has_continuum = setup.config.nebular is not None and setup.config.nebular.continuum
        light = PhotonLight(table, settings.log_pressure, "gas" if settings.radius else AGN, has_continuum)
        return light.plan(_with_point(setup), settings.velocity_dispersion)

    @classmethod
    def build(cls, setup: Setup, plan: SourcePlan, options: Mapping[str, Any]) -> "AbstractNarrowLines":  # noqa: ARG003
        """The source of the section's gas, with a painter of lines, and beside it one of their continuum."""
        light, radius = plan.own, agn_settings(setup).radius
        painter = light.painter(_with_point(setup), plan)
        oxygen, per_erg = OxygenScale.of(light.table), np.asarray(np.log10(photons_per_erg() / PHOTONS))
        common = {"oxygen": oxygen, "per_erg": per_erg, "dust": DustInFront.of(setup)}
        if not radius:
            return NarrowLinesOfPoint(painter=PointPainter.of(painter), **common)
        reads_oxygen = agn_settings(setup).oxygen_abundance is None
        return NarrowLinesOfGas(painter=painter, radius=np.asarray(radius), reads_oxygen=reads_oxygen, **common)

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
        shining = replace(without_dark(scene), amount=scene.amount * share, coordinates=place)
        return shining if self.dust is None else self.dust.dim(shining, parameters)

    def painter_for(self, parameters: Parameters) -> AbstractPainter:
        """The painter of lines as wide as the section says."""
        dispersion, painter = parameters.nebular.agn.velocity_dispersion, self.painter
        if isinstance(painter, PointPainter):
            return replace(painter, inner=as_wide(painter.inner, dispersion))
        return as_wide(painter, dispersion)


class NarrowLinesOfGas(AbstractNarrowLines):
    """The gas within a `radius` (kpc) of the centre, with its own velocity, and its own O/H where `reads_oxygen`."""

    painter: AbstractPainter
    oxygen: OxygenScale
    per_erg: Float[Array | ndarray, ""]
    radius: Float[Array | ndarray, ""]
    dust: DustInFront | None
    reads_oxygen: bool = eqx.field(static=True)
    kind: ClassVar[Kind] = "gas"
    words: ClassVar[ReaderWords] = ReaderWords("source 'agn'", "set nebular.agn.radius: 0, a point")

    def shining(self, particles: Gas) -> Bool[Array, " particle"]:
        """Gas within the radius, or whose place or mass is no number, which is to be counted."""
        return ~(covered(particles, jnp.asarray(self.radius)) <= 0)

    def seen(self, particles: Gas) -> tuple[Gas, Float[Array, " particle"]]:
        """By what each covers of the nucleus' sky (`covered`)."""
        return particles, covered(particles, jnp.asarray(self.radius))

    def coordinates(self, particles: Gas) -> dict[str, Float[Array, " particle"]]:
        """O/H of the gas, unless the section gives one: such gas needs no metallicity."""
        return {"oxygen_abundance": self.oxygen.by_oxygen(particles)} if self.reads_oxygen else {}


class NarrowLinesOfPoint(AbstractNarrowLines):
    """A point in the centre, at rest in the galaxy; every star paints an equal part of it."""

    painter: AbstractPainter
    oxygen: OxygenScale
    per_erg: Float[Array | ndarray, ""]
    dust: DustInFront | None
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


def _with_point(setup: Setup) -> Setup:
    """The setup in which a point is known to be at rest in the galaxy."""
    offset = abs(setup.config.observation.velocity_offset)
    at_rest = FastParticles.at_rest()._replace(speed=np.full(1, offset))
    return replace(setup, particles={**setup.particles, AGN: at_rest})


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
    return table_at(table, "nebular.agn", log_pressure=settings.log_pressure, log_peak_energy=settings.log_peak_energy)
