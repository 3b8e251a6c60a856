"""Source `nebulae`: gas that shines in lines and in a continuum, by the ionising photons that it absorbs."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy import ndarray

from rubix_like.config.sections.nebular import NEBULAE, YOUNG_STARS, DiffuseSettings, NebularSettings
from rubix_like.engine.painter import AbstractPainter
from rubix_like.engine.painter_pair import PainterPair
from rubix_like.engine.setup import Setup, SourcePlan
from rubix_like.engine.spread_painter import SpreadPainter
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.sources.ionising import RatePhotons, StarPhotons, of_constant_rate
from rubix_like.forward.sources.photon_light import PhotonLight, as_wide, check_number, table_at
from rubix_like.forward.sources.source import AbstractSource, Kind
from rubix_like.forward.sources.stars import LOWEST_METALLICITY, STAR_SOURCE
from rubix_like.forward.stages.base import refuse_options
from rubix_like.galaxy.particles import Galaxy, Gas, Stars
from rubix_like.galaxy.scene import Scene, to_scene, without_dark
from rubix_like.nebular import NebularTable, load_nebular
from rubix_like.nebular.leaking import REACH, leaked_share
from rubix_like.physics.cosmology import arcsec_per_kpc
from rubix_like.ssp.ionising_photons import check_ionising
from rubix_like.ssp.nebular_light import check_bare

HYDROGEN: float = 0.74
"""Mass fraction of hydrogen in star-forming gas where the file has none; O/H is 0.01 dex off where it is 0.72."""

OXYGEN_MASS: float = 15.999 / 1.008
"""Mass of an oxygen atom over that of hydrogen."""

_LARGE_ENOUGH = 96
"""Cells along the side of a field that leaked photons from beyond are painted on, or 1.5 times the field's, if more."""


class OxygenScale(eqx.Module):
    """12 + log10(O/H) of gas by its metallicity, as the table of lines scales one with the other."""

    solar: Float[Array | ndarray, ""]
    log_metallicity: Float[Array | ndarray, ""]

    @classmethod
    def of(cls, table: NebularTable) -> "OxygenScale":
        """The Sun's O/H, and log10 of the Sun's metal mass fraction, of a table."""
        return cls(np.asarray(table.solar_oxygen), np.asarray(np.log10(table.solar_metallicity)))

    def by_metals(self, metallicity: Float[Array | ndarray, " particle"]) -> Float[Array, " particle"]:
        """Solar O/H, scaled by the metal mass fraction."""
        metals = jnp.log10(jnp.maximum(jnp.asarray(metallicity), LOWEST_METALLICITY))
        return metals + (self.solar - self.log_metallicity)

    def by_oxygen(self, gas: Gas) -> Float[Array, " particle"]:
        """Of the gas' own oxygen and hydrogen where it has them, else by its metals."""
        if gas.oxygen_fraction is None:
            return self.by_metals(gas.required("metallicity", "O/H of gas without oxygen", "give it, or the oxygen"))
        hydrogen = HYDROGEN if gas.hydrogen_fraction is None else jnp.asarray(gas.hydrogen_fraction)
        oxygen = jnp.maximum(jnp.asarray(gas.oxygen_fraction), LOWEST_METALLICITY)
        return 12.0 + jnp.log10(oxygen / (OXYGEN_MASS * hydrogen))


class AbstractNebulae(AbstractSource):
    """Gas around its sources of ionising photons; its amount is the photons that it absorbs, in 1e49 per second.

    Particles that make no photons are left out of all counts, and stand still, so that the velocities of old stars, or
    of gas that forms none, need not be planned for: those of `movers` are, by their name in `Setup.particles`.
    """

    painter: eqx.AbstractVar[AbstractPainter]
    oxygen: eqx.AbstractVar[OxygenScale]
    movers: ClassVar[str]

    @classmethod
    def plan(cls, setup: Setup, options: Mapping[str, Any]) -> SourcePlan:
        """The lines of the section's table, or where the detector sees none of them the continuum, painted as `engine`
        says; no options.

        Raises ConfigError for an SSP library without ionising light, for one that holds nebular light already where
        the pipeline paints its stars, too, for a table of other gas and for numbers of log U beyond the table.
        """
        refuse_options(NEBULAE, options)
        check_ionising(setup.library)
        if any(source.name == STAR_SOURCE for source in setup.pipeline.paint):
            check_bare(setup.library)
        settings, table = _settings(setup), _table(setup)
        _check_log_u(settings, table)
        widths = [own.velocity_dispersion for own in (settings, settings.diffuse) if own is not None]
        light = PhotonLight(table, settings.log_pressure, _source_of(settings).movers, settings.continuum)
        return light.plan(setup, min(widths))

    @classmethod
    def build(cls, setup: Setup, plan: SourcePlan, options: Mapping[str, Any]) -> "AbstractNebulae":  # noqa: ARG003
        """The source of the section's photons, with a painter of lines, and beside it one of their continuum."""
        settings, light = _settings(setup), plan.own
        painter = light.painter(setup, plan)
        if settings.diffuse is not None:
            painter = _with_diffuse(painter, settings.diffuse, setup)
        return _source_of(settings).ionised(painter, OxygenScale.of(light.table), setup)

    @classmethod
    @abstractmethod
    def ionised(cls, painter: AbstractPainter, oxygen: OxygenScale, setup: Setup) -> "AbstractNebulae":
        """The source with the tables of its photons."""

    @abstractmethod
    def photons(self, particles: Any) -> Float[Array, " particle"]:
        """Photons of each particle, in 1e49 per second."""

    @abstractmethod
    def coordinates(self, particles: Any) -> dict[str, Float[Array, " particle"]]:
        """The place of each on the axes of the table, but for the ionisation parameter."""

    def scene(
        self,
        particles: Any,
        alignment: Float[Array | ndarray, "3 3"] | None,
        arcsec_per_kpc: Float[Array | ndarray, ""],
    ) -> Scene:
        """Particles in arcsec; amounts are all ionising photons that they make."""
        return to_scene(particles, self.photons(particles), self.coordinates(particles), alignment, arcsec_per_kpc)

    def shine(self, scene: Scene, parameters: Parameters) -> Scene:
        """The photons that gas absorbs, and the ionisation parameter of the section's law."""
        own = parameters.nebular
        absorbed = (1.0 - own.escape_fraction) * (1.0 - own.dust_fraction)
        law, abundance = own.log_u, scene.coordinates["oxygen_abundance"]
        log_u = law.at_solar + law.slope * (abundance - self.oxygen.solar)
        return replace(
            without_dark(scene), amount=scene.amount * absorbed, coordinates={**scene.coordinates, "log_u": log_u}
        )

    def painter_for(self, parameters: Parameters) -> AbstractPainter:
        """The painter of lines as wide as the section says, and of what diffuse gas absorbs."""
        own = parameters.nebular
        pair = self.painter
        if own.diffuse is None or not isinstance(pair, PainterPair):
            return as_wide(pair, own.velocity_dispersion)
        near, far = pair.first, pair.second
        if not isinstance(near, SpreadPainter) or not isinstance(far, SpreadPainter):
            raise TypeError(f"nebular.diffuse: expected two spread painters, got {type(near).__name__}")
        inner = as_wide(near.inner, own.velocity_dispersion), as_wide(far.inner, own.diffuse.velocity_dispersion)
        near = replace(near, inner=inner[0], share=1.0 - own.diffuse.fraction)
        far = replace(far, inner=inner[1], share=own.diffuse.fraction, place=own.diffuse.log_u)
        return replace(pair, first=near, second=far)


class StarNebulae(AbstractNebulae):
    """Gas around young stars, which absorbs their photons where they are, and moves with them."""

    painter: AbstractPainter
    oxygen: OxygenScale
    ionising: StarPhotons
    kind: ClassVar[Kind] = "stars"
    movers: ClassVar[str] = YOUNG_STARS

    @classmethod
    def ionised(cls, painter: AbstractPainter, oxygen: OxygenScale, setup: Setup) -> "StarNebulae":
        """With the photons of the run's SSP library."""
        settings = _settings(setup)
        return cls(painter, oxygen, StarPhotons.build(setup.library, settings.oldest, settings.resample_ages))

    def shining(self, particles: Stars) -> Bool[Array, " particle"]:
        """Stars up to the age `oldest`."""
        return self.ionising.are_young(particles)

    def photons(self, particles: Stars) -> Float[Array, " particle"]:
        """Photons of stars up to the age `oldest`."""
        return self.ionising.of(particles)

    def coordinates(self, particles: Stars) -> dict[str, Float[Array, " particle"]]:
        """O/H by the stars' metallicity, and their age."""
        return {
            "oxygen_abundance": self.oxygen.by_metals(particles.metallicity),
            "log_age": jnp.asarray(particles.log_age),
        }


class GasNebulae(AbstractNebulae):
    """Gas that forms stars, which absorbs the photons of the stars that it has made, wherever those are now."""

    painter: AbstractPainter
    oxygen: OxygenScale
    ionising: RatePhotons
    kind: ClassVar[Kind] = "gas"
    movers: ClassVar[str] = "gas"

    @classmethod
    def ionised(cls, painter: AbstractPainter, oxygen: OxygenScale, setup: Setup) -> "GasNebulae":
        """With the photons of the run's SSP library."""
        return cls(painter, oxygen, RatePhotons.build(setup.library, _settings(setup).oldest))

    def absent(self, galaxy: Galaxy) -> Gas:
        """Gas in the places of the stars that forms none."""
        stars, none = galaxy.stars, jnp.zeros_like(jnp.asarray(galaxy.stars.initial_mass))
        return Gas(
            position=stars.position,
            velocity=stars.velocity,
            mass=none,
            metallicity=stars.metallicity,
            star_formation_rate=none,
            smoothing_length=stars.smoothing_length,
            weight=none,
        )

    def shining(self, particles: Gas) -> Bool[Array, " particle"]:
        """Gas that forms stars, or whose rate is no number, which is to be counted."""
        return self.ionising.are_forming(particles)

    def photons(self, particles: Gas) -> Float[Array, " particle"]:
        """Photons by the star formation rate."""
        return self.ionising.of(particles)

    def coordinates(self, particles: Gas) -> dict[str, Float[Array, " particle"]]:
        """O/H of the gas."""
        return {"oxygen_abundance": self.oxygen.by_oxygen(particles)}


def _with_diffuse(painter: AbstractPainter, diffuse: DiffuseSettings, setup: Setup) -> PainterPair:
    """The painter for the gas around its stars, and once more for diffuse gas."""
    instrument, cells = setup.instrument, setup.painting.cells
    scale = arcsec_per_kpc(setup.luminosity_distance, setup.config.observation.redshift)
    path = diffuse.mean_free_path * scale / instrument.footprint.pixel_scale * cells
    side = max(instrument.footprint.painted(instrument.psf_reach, cells).shape)
    margin = min(int(np.ceil(REACH * path)), max(side // 4, (_LARGE_ENOUGH - side) // 2))
    common = {"axes": painter.axes, "velocity_limit": painter.velocity_limit, "inner": painter, "moved": "log_u"}
    near = SpreadPainter(**common, share=np.asarray(1.0 - diffuse.fraction), place=None, kernel=None)
    far = SpreadPainter(
        **common,
        share=np.asarray(diffuse.fraction),
        place=np.asarray(diffuse.log_u),
        kernel=leaked_share(path, side + margin),
        margin=margin,
    )
    return PainterPair.of(near, far, "diffuse")


def _settings(setup: Setup) -> NebularSettings:
    """The section `nebular`, which every run has that paints the source."""
    settings = setup.config.nebular
    if settings is None:
        raise ConfigError(f"nebular: expected a section for the source '{NEBULAE}', got null; leave it out, or give it")
    return settings


def _source_of(settings: NebularSettings) -> type[AbstractNebulae]:
    return StarNebulae if settings.source == "stars" else GasNebulae


def _check_log_u(settings: NebularSettings, table: NebularTable) -> None:
    """Raise ConfigError for a number beyond the table; of a law with a slope particles beyond it are counted."""
    numbers = {} if settings.log_u.slope else {"log_u": settings.log_u.at_solar}
    if settings.diffuse is not None:
        numbers["diffuse.log_u"] = settings.diffuse.log_u
    for name, number in numbers.items():
        check_number(table, "log_u", f"nebular.{name}", number)


def _table(setup: Setup) -> NebularTable:
    """The section's table on the axes on which particles differ."""
    settings = _settings(setup)
    table = load_nebular(settings.table)
    if "log_peak_energy" in table.axes:
        raise ConfigError(
            f"nebular.table: expected a table of gas around stars, got '{table.name}' of active nuclei (it has the "
            f"axis log_peak_energy); take mappings-hii"
        )
    table = table_at(table, "nebular", log_pressure=settings.log_pressure)
    if "log_age" in table.axes and settings.resample_ages is not None:
        raise ConfigError(
            f"nebular.resample_ages: expected null for table '{table.name}', whose light depends on the age of the "
            f"star, got {settings.resample_ages:g} Myr; take table: mappings-hii"
        )
    if "log_age" in table.axes and settings.source == "star_forming_gas":
        table = of_constant_rate(table, setup.library, settings.oldest)
    return table
