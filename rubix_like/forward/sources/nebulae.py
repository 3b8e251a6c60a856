"""Sources `nebulae` and `agn`: gas that shines in lines and in a continuum, by the ionising photons that it absorbs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy import ndarray

from rubix_like.config.sections.dust import DUST_COLUMN
from rubix_like.config.sections.nebular import AGN, NEBULAE, NUCLEUS, YOUNG_STARS, DiffuseSettings, NebularSettings
from rubix_like.cube.meta import SourceCounters
from rubix_like.engine.lines.line_plan import dispersion_of, with_dispersion
from rubix_like.engine.lines.line_planning import narrowest_for, plan_lines, sees_line
from rubix_like.engine.painter import (
    AbstractInnerPainter,
    AbstractPainter,
    Look,
    PainterPair,
    SpreadPainter,
    View,
    no_counts,
)
from rubix_like.engine.setup import FastParticles, Setup, SourcePlan, build_line_painter, build_painter
from rubix_like.engine.source_planning import plan_source
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.sources.source import (
    AbstractDimmedSource,
    DustInFront,
    Kind,
    ReaderWords,
    Rotation,
    Scale,
    agn_settings,
    covered,
    seen_through_dust,
)
from rubix_like.forward.sources.stars import LOWEST_METALLICITY, STAR_SOURCE, star_coordinates
from rubix_like.forward.stages.base import refuse_options
from rubix_like.galaxy.particles import Galaxy, Gas, Stars
from rubix_like.galaxy.scene import Scene, to_scene, without_dark
from rubix_like.nebular import NebularTable, load_nebular
from rubix_like.nebular.ionising_light import REACH, leaked_share, photons_per_erg
from rubix_like.nebular.line_grid import PHOTONS, fixed, photon_continuum, photon_lines
from rubix_like.physics.templates import LineTemplates, TemplateAxes, Templates, weighted_rows
from rubix_like.runtime.mesh.mesh import accumulate, varying
from rubix_like.ssp import SSPLibrary
from rubix_like.ssp.ionising_photons import check_bare, check_ionising, ionising_photons, photons_of_constant_rate


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

        def contribute(part: Any) -> tuple[Float[Array, ""], SourceCounters]:
            view, counters = look(part)
            return jnp.sum(view.amount), counters

        def add(sums: Any, more: Any) -> Any:
            return jax.tree.map(jnp.add, sums, more)

        dtype = jnp.result_type(grid.footprint.pixel_scale)
        empty = varying((jnp.zeros((), dtype), no_counts(self.axes, dtype)), particles)
        amount, counters = accumulate(contribute, add, empty, particles, chunk)

        def whole(chunk: Any, *on: SpaxelGrid) -> tuple[View, SourceCounters]:
            view, counted = look(chunk, *on)
            return replace(view, amount=jnp.full_like(view.amount, amount)), counted

        place = jnp.argmax(particles.weight)
        particle = jax.tree.map(lambda leaf: leaf[place][None], particles)
        return self.inner.paint(whole, particle, grid, 1)[0], counters


_MARGIN = 1.2
"""The continuum reaches further than the detector by this factor, so by 5e4 km/s."""


@dataclass(frozen=True, eq=False)
class PhotonLight:
    """The light of gas for each photon: by a `table` on the axes on which particles differ, at a pressure (log10 of
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


YEARS_PER_MYR: float = 1e6

_N_AGE = 500
"""Steps of the age over which a table is averaged."""


class StarPhotons(eqx.Module):
    """Photons of young stars, from the spectra of the run's SSP library.

    They are interpolated as the spectra are: straight in log10 metallicity and log10 age. The integral over a spectrum
    is linear in it, so that the photons are those of the very spectrum that the star shines with. Stars younger than
    `mean` says, if it is not None, have the mean photons of stars up to that age.
    """

    axes: TemplateAxes
    per_mass: Float[Array | ndarray, "template 1"]
    log_oldest: Float[Array | ndarray, ""]
    mean: "MeanPhotons | None"

    @classmethod
    def build(cls, library: SSPLibrary, oldest: float, mean_up_to: float | None = None) -> "StarPhotons":
        """Tables for stars up to the age `oldest` (Myr); ConfigError for a library without ionising light."""
        photons = ionising_photons(library) / PHOTONS
        return cls(
            axes=library.templates().axes,
            per_mass=photons.reshape(-1, 1),
            log_oldest=np.asarray(np.log10(oldest * YEARS_PER_MYR)),
            mean=None if mean_up_to is None else MeanPhotons.build(library, mean_up_to),
        )

    def are_young(self, stars: Stars) -> Bool[Array, " particle"]:
        """Whether each star is young enough to have photons."""
        return jnp.asarray(stars.log_age) <= self.log_oldest

    def of(self, stars: Stars) -> Float[Array, " particle"]:
        """1e49 photons per second of each star; none of older ones."""
        place = star_coordinates(stars)
        corners = self.axes.corners(tuple(place[name] for name in self.axes.names))
        per_mass = weighted_rows(jnp.asarray(self.per_mass), corners)[:, 0]
        if self.mean is not None:
            per_mass = jnp.where(place["age"] < self.mean.log_age, self.mean.per_mass(place["metallicity"]), per_mass)
        photons = jnp.asarray(stars.initial_mass) * per_mass
        return jnp.where(self.are_young(stars), photons, jnp.zeros_like(photons))


class MeanPhotons(eqx.Module):
    """Photons of all stars up to an age (log10 yr), by metallicity, where 1 Msun/yr was formed all that time: also
    those of the stars that gas makes, of a rate that was constant as long as its stars ionise."""

    axes: TemplateAxes
    per_rate: Float[Array | ndarray, "template 1"]
    log_age: Float[Array | ndarray, ""]

    @classmethod
    def build(cls, library: SSPLibrary, oldest: float) -> "MeanPhotons":
        """Tables for stars up to the age `oldest` (Myr); ConfigError for a library without ionising light."""
        log_age, years = np.asarray(library.log_age), oldest * YEARS_PER_MYR
        photons = photons_of_constant_rate(log_age, ionising_photons(library), years) / PHOTONS
        axes = TemplateAxes((np.log10(np.asarray(library.metallicity)),), ("metallicity",))
        return cls(axes=axes, per_rate=photons.reshape(-1, 1), log_age=np.asarray(np.log10(years)))

    def of_rate(self, metallicity: Float[Array, " particle"]) -> Float[Array, " particle"]:
        """1e49 photons per second for each Msun/yr, by log10 metallicity."""
        return weighted_rows(jnp.asarray(self.per_rate), self.axes.corners((metallicity,)))[:, 0]

    def per_mass(self, metallicity: Float[Array, " particle"]) -> Float[Array, " particle"]:
        """1e49 photons per second for each Msun of stars, in the mean over the age, by log10 metallicity."""
        return self.of_rate(metallicity) * 10.0 ** (-self.log_age)

    def of(self, gas: Gas) -> Float[Array, " particle"]:
        """1e49 photons per second of each gas particle: by its star formation rate and metallicity, and nothing else.

        Temperature and ionisation of star-forming gas are those of an equation of state, and never asked for.
        """
        metallicity = jnp.log10(jnp.maximum(_of_gas(gas, "metallicity"), LOWEST_METALLICITY))
        return _of_gas(gas, "star_formation_rate") * self.of_rate(metallicity)


def _of_gas(gas: Gas, name: str) -> Float[Array, " particle"]:
    return gas.required(name, "nebular.source star_forming_gas", "take source: stars, or a galaxy whose gas has it")


def of_constant_rate(table: NebularTable, library: SSPLibrary, oldest: float) -> NebularTable:
    """A table without its axis `log_age`: the mean over the photons of stars up to `oldest` (Myr) of a constant rate.

    The stars' metallicity at each O/H is that of the table's scale.
    """
    metals = table.axes["oxygen_abundance"] - table.solar_oxygen + np.log10(table.solar_metallicity)
    nodes, library_ages = table.axes["log_age"], np.asarray(library.log_age)
    last = np.log10(oldest * YEARS_PER_MYR)
    edges = np.linspace(min(nodes[0], library_ages[0], last), last, _N_AGE + 1)
    years, ages = np.diff(10.0**edges), 0.5 * (edges[1:] + edges[:-1])
    years[0] += 10.0 ** edges[0]
    at_metals = [np.interp(metals, np.log10(library.metallicity), column) for column in ionising_photons(library).T]
    photons = np.stack([np.interp(ages, library_ages, row) for row in np.stack(at_metals, axis=1)]) * years
    share = photons @ np.stack([np.interp(ages, nodes, unit) for unit in np.eye(len(nodes))], axis=1)
    share /= share.sum(axis=1, keepdims=True)
    oxygen, age = (list(table.axes).index(name) for name in ("oxygen_abundance", "log_age"))

    def mean(values: Float[ndarray, "*axes"]) -> Float[ndarray, "*others"]:
        found = np.einsum("oa,oa...->o...", share, np.moveaxis(values, (oxygen, age), (0, 1)))
        return np.moveaxis(found, 0, oxygen - (age < oxygen))

    axes = {name: nodes for name, nodes in table.axes.items() if name != "log_age"}
    return replace(table, axes=axes, per_photon=mean(table.per_photon), temperature=mean(table.temperature))


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
        """O/H by the gas' oxygen and hydrogen where it has them, else by its metals."""
        if gas.oxygen_fraction is None:
            return self.by_metals(gas.required("metallicity", "O/H of gas without oxygen", "give it, or the oxygen"))
        hydrogen = HYDROGEN if gas.hydrogen_fraction is None else jnp.asarray(gas.hydrogen_fraction)
        oxygen = jnp.maximum(jnp.asarray(gas.oxygen_fraction), LOWEST_METALLICITY)
        return 12.0 + jnp.log10(oxygen / (OXYGEN_MASS * hydrogen))


class Nebulae(AbstractDimmedSource):
    """Gas around its sources of ionising photons; its amount is the photons that it absorbs, in 1e49 per second.

    Around young stars it absorbs their photons where they are, and moves with them; gas that forms stars absorbs the
    photons of the stars that it has made, wherever those are now. Particles that make no photons are left out of all
    counts, and stand still, so that the velocities of old stars, or of gas that forms none, need not be planned for.
    """

    painter: AbstractPainter
    oxygen: OxygenScale
    ionising: StarPhotons | MeanPhotons
    dust: DustInFront | None
    kind: Kind = eqx.field(static=True)  # pyright: ignore[reportIncompatibleVariableOverride]

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
        # of a law with a slope, particles beyond the table are counted
        numbers = {} if settings.log_u.slope else {"log_u": settings.log_u.at_solar}
        if settings.diffuse is not None:
            numbers["diffuse.log_u"] = settings.diffuse.log_u
        for name, number in numbers.items():
            check_number(table, "log_u", f"nebular.{name}", number)
        widths = [part.velocity_dispersion for part in (settings, settings.diffuse) if part is not None]
        movers = YOUNG_STARS if settings.source == "stars" else "gas"
        return PhotonLight(table, settings.log_pressure, movers, settings.continuum).plan(setup, min(widths))

    @classmethod
    def build(cls, setup: Setup, plan: SourcePlan, options: Mapping[str, Any]) -> "Nebulae":  # noqa: ARG003
        """The source with the photons of the run's SSP library, a painter of lines, and beside it one of their
        continuum."""
        settings, light = _settings(setup), plan.own
        painter = light.painter(setup, plan)
        if settings.diffuse is not None:
            painter = _with_diffuse(painter, settings.diffuse, setup)
        kind: Kind = "stars" if settings.source == "stars" else "gas"
        if kind == "stars":
            ionising = StarPhotons.build(setup.library, settings.oldest, settings.resample_ages)
        else:
            ionising = MeanPhotons.build(setup.library, settings.oldest)
        oxygen, dust = OxygenScale.of(light.table), DustInFront.of(setup)
        return cls(painter=painter, oxygen=oxygen, ionising=ionising, dust=dust, kind=kind)

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

    def shining(self, particles: Any) -> Bool[Array, " particle"]:
        """Stars up to the age `oldest`; gas that forms stars, or whose rate is no number, which is to be counted."""
        if isinstance(self.ionising, StarPhotons):
            return self.ionising.are_young(particles)
        return ~(_of_gas(particles, "star_formation_rate") <= 0)

    def scene(self, particles: Any, alignment: Rotation | None, arcsec_per_kpc: Scale) -> Scene:
        """Particles in arcsec, at their O/H, stars also at their age; amounts are all ionising photons that they
        make."""
        if isinstance(self.ionising, StarPhotons):
            abundance = self.oxygen.by_metals(particles.metallicity)
            place = {"oxygen_abundance": abundance, "log_age": jnp.asarray(particles.log_age)}
        else:
            place = {"oxygen_abundance": self.oxygen.by_oxygen(particles)}
        return to_scene(particles, self.ionising.of(particles), place, alignment, arcsec_per_kpc)

    def shine(self, scene: Scene, parameters: Parameters) -> Scene:
        """The photons that gas absorbs, and the ionisation parameter of the section's law; behind dust, all of it also
        behind that of birth clouds."""
        nebular = parameters.nebular
        absorbed = (1.0 - nebular.escape_fraction) * (1.0 - nebular.dust_fraction)
        law, abundance = nebular.log_u, scene.coordinates["oxygen_abundance"]
        log_u = law.at_solar + law.slope * (abundance - self.oxygen.solar)
        shining = replace(
            without_dark(scene), amount=scene.amount * absorbed, coordinates={**scene.coordinates, "log_u": log_u}
        )
        return self.dimmed(shining, parameters, jnp.ones_like(scene.amount))

    def painter_for(self, parameters: Parameters) -> AbstractPainter:
        """The painter of lines as wide as the section says, and of what diffuse gas absorbs."""
        dispersion, diffuse = parameters.nebular.velocity_dispersion, parameters.nebular.diffuse
        pair = self.painter
        if diffuse is None or not isinstance(pair, PainterPair):
            return as_wide(pair, dispersion)
        near, far = pair.first, pair.second
        if not isinstance(near, SpreadPainter) or not isinstance(far, SpreadPainter):
            raise TypeError(f"nebular.diffuse: expected two spread painters, got {type(near).__name__}")
        near = replace(near, inner=as_wide(near.inner, dispersion), share=1.0 - diffuse.fraction)
        inner = as_wide(far.inner, diffuse.velocity_dispersion)
        far = replace(far, inner=inner, share=diffuse.fraction, place=diffuse.log_u)
        return replace(pair, first=near, second=far)


def _with_diffuse(painter: AbstractPainter, diffuse: DiffuseSettings, setup: Setup) -> PainterPair:
    """The painter for the gas around its stars, and once more for diffuse gas."""
    instrument, cells = setup.instrument, setup.painting.cells
    path = diffuse.mean_free_path * setup.arcsec_per_kpc / instrument.footprint.pixel_scale * cells
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


def _table(setup: Setup) -> NebularTable:
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


_PEAK = "log_peak_energy"


class NarrowLines(AbstractDimmedSource):
    """Gas that an active nucleus ionises; its amount is the photons that it absorbs, in 1e49 per second.

    The covering fraction of the nucleus' photons is shared among particles by the field `nucleus`: the gas within a
    `radius` (kpc) of the centre, with its velocity, and its O/H where `reads_oxygen`; without a radius a point
    in the centre, at rest in the galaxy, of which every star paints an equal part.
    """

    painter: AbstractPainter
    oxygen: OxygenScale
    per_erg: Float[Array | ndarray, ""]
    radius: Float[Array | ndarray, ""] | None
    dust: DustInFront | None
    kind: Kind = eqx.field(static=True)  # pyright: ignore[reportIncompatibleVariableOverride]
    reads_oxygen: bool = eqx.field(static=True)
    words: ClassVar[ReaderWords] = ReaderWords("source 'agn'", "set nebular.agn.radius: 0, a point")

    @property
    def reads(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The nucleus, and the columns of dust where the run has dust of kind particles."""
        return (NUCLEUS,) if self.dust is None else (NUCLEUS, DUST_COLUMN)

    @classmethod
    def plan(cls, setup: Setup, options: Mapping[str, Any]) -> SourcePlan:
        """The lines of the section's table, painted as `engine` says; no options.

        Raises ConfigError for a run without `nebular.agn`, and for a table of other gas.
        """
        refuse_options(AGN, options)
        settings, table = agn_settings(setup), _agn_table(setup)
        check_number(table, "log_u", "nebular.agn.log_u", settings.log_u)
        if settings.oxygen_abundance is not None:
            check_number(table, "oxygen_abundance", "nebular.agn.oxygen_abundance", settings.oxygen_abundance)
        has_continuum = setup.config.nebular is not None and setup.config.nebular.continuum
        light = PhotonLight(table, settings.log_pressure, "gas" if settings.radius else AGN, has_continuum)
        return light.plan(_with_point(setup), settings.velocity_dispersion)

    @classmethod
    def build(cls, setup: Setup, plan: SourcePlan, options: Mapping[str, Any]) -> "NarrowLines":  # noqa: ARG003
        """The source of the section's gas, with a painter of lines, and beside it one of their continuum."""
        light, settings = plan.own, agn_settings(setup)
        painter = light.painter(_with_point(setup), plan)
        return cls(
            painter=painter if settings.radius else PointPainter(painter.axes, painter.velocity_limit, painter),
            oxygen=OxygenScale.of(light.table),
            per_erg=np.asarray(np.log10(photons_per_erg() / PHOTONS)),
            radius=np.asarray(settings.radius) if settings.radius else None,
            dust=DustInFront.of(setup),
            kind="gas" if settings.radius else "stars",
            reads_oxygen=bool(settings.radius) and settings.oxygen_abundance is None,
        )

    def shining(self, particles: Any) -> Bool[Array, " particle"] | None:
        """Gas within the radius, or whose place or mass is no number, which is to be counted; all stars."""
        return None if self.radius is None else ~(covered(particles, jnp.asarray(self.radius)) <= 0)

    def scene(self, particles: Any, alignment: Rotation | None, arcsec_per_kpc: Scale) -> Scene:
        """Particles in arcsec, those of a point in one place; amounts are their parts of the photons, in the unit of
        the field `nucleus`."""
        if self.radius is None:
            columns = {name: getattr(particles, name) for name in ("position", "velocity", "smoothing_length")}
            centred = {name: jnp.zeros_like(jnp.asarray(given)) for name, given in columns.items() if given is not None}
            particles, part = replace(particles, **centred), jnp.ones_like(jnp.asarray(particles.position)[:, 0])
        else:
            part = covered(particles, jnp.asarray(self.radius))
        place = {"oxygen_abundance": self.oxygen.by_oxygen(particles)} if self.reads_oxygen else {}
        return to_scene(particles, part, place, alignment, arcsec_per_kpc)

    def shine(self, scene: Scene, parameters: Parameters) -> Scene:
        """The photons that gas absorbs, all of them together Q x covering_fraction, and their place in the table."""
        nucleus, whole = parameters.nebular.agn, jnp.asarray(scene.fields[NUCLEUS])
        photons = nucleus.covering_fraction * 10.0 ** (nucleus.log_luminosity + self.per_erg)
        share = jnp.where(whole > 0, photons / jnp.where(whole > 0, whole, jnp.ones_like(whole)), jnp.zeros_like(whole))
        same = {"oxygen_abundance": self.oxygen.solar} | dict(scene.coordinates) | {"log_u": nucleus.log_u}
        if nucleus.oxygen_abundance is not None:
            same["oxygen_abundance"] = nucleus.oxygen_abundance
        place = {name: jnp.broadcast_to(value, scene.amount.shape) for name, value in same.items()}
        return self.dimmed(replace(without_dark(scene), amount=scene.amount * share, coordinates=place), parameters)

    def painter_for(self, parameters: Parameters) -> AbstractPainter:
        """The painter of lines as wide as the section says."""
        dispersion, painter = parameters.nebular.agn.velocity_dispersion, self.painter
        if isinstance(painter, PointPainter):
            return replace(painter, inner=as_wide(painter.inner, dispersion))
        return as_wide(painter, dispersion)


def _with_point(setup: Setup) -> Setup:
    """The setup in which a point is known to be at rest in the galaxy."""
    offset = abs(setup.config.observation.velocity_offset)
    at_rest = FastParticles.at_rest()._replace(speed=np.full(1, offset))
    return replace(setup, particles={**setup.particles, AGN: at_rest})


def _agn_table(setup: Setup) -> NebularTable:
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
