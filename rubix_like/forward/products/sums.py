"""Sums over particles that maps, velocity distributions and images are made of."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int
from numpy import ndarray

from rubix_like.config import LOSVDSettings
from rubix_like.config.sections.dust import ParticleDustSettings
from rubix_like.constants import SOLAR_LUMINOSITY_AT_1_MPC
from rubix_like.cube.footprint import Footprint
from rubix_like.engine.cost import rates_here
from rubix_like.engine.kernels.kernel import (
    AbstractDepositKernel,
    Factors,
    Spaxels,
    build_kernel,
    in_blocks,
    sum_deposits,
)
from rubix_like.engine.setup import Setup
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.engine.spectra.attenuation import DustFactors, factored_dust
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters, screen_a_v
from rubix_like.forward.products.bands import Band, BandTables, BandWeight, check_covered, load_band
from rubix_like.forward.sources.source import DustInFront, Kind, ReaderWords
from rubix_like.forward.stages.scene import relative_attenuation, screen_transmission
from rubix_like.galaxy.particles import Galaxy, Gas, Stars
from rubix_like.galaxy.scene import Scene
from rubix_like.physics.dust_curves import find_curve
from rubix_like.physics.templates import TemplateAxes, Templates, layers_of, weighted_rows
from rubix_like.ssp import SSPLibrary


class MassNow(eqx.Module):
    """Mass now, also of stars that do not state it; `surviving`: mass left per mass at birth, None if not known."""

    axes: TemplateAxes
    surviving: Float[Array | ndarray, "template 1"] | None

    @classmethod
    def build(cls, library: SSPLibrary) -> "MassNow":
        """Build it with the surviving fractions of a library."""
        surviving = library.surviving_fraction
        return cls(library.templates().axes, None if surviving is None else np.asarray(surviving).reshape(-1, 1))

    def of(
        self, stars: Stars, born: Float[Array, " particle"], coordinates: Mapping[str, Float[Array, " particle"]]
    ) -> Float[Array, " particle"]:
        """Msun; where stars do not state it, from their mass at birth `born` and their coordinates on the axes."""
        if stars.mass is not None:
            return jnp.asarray(stars.mass)
        if self.surviving is None:
            return born
        corners = self.axes.corners(tuple(coordinates[name] for name in self.axes.names))
        return born * weighted_rows(jnp.asarray(self.surviving), corners)[:, 0]


SUMS: tuple[str, ...] = (
    "number",
    "birth_mass",
    "mass",
    "mass_velocity",
    "mass_velocity2",
    "mass_log_age",
    "mass_age",
    "mass_metallicity",
    "light",
    "light_velocity",
    "light_velocity2",
    "light_log_age",
    "light_age",
    "light_metallicity",
)
"""The columns that every run with products sums: Msun, 1e-20 erg/s/cm2, km/s from the reference, Gyr, mass fraction."""

DUST_SUMS: tuple[str, ...] = ("intrinsic_light", "intrinsic_light_a_v", "mass_a_v")
"""The columns that `products.dust` adds: light before all dust, that times A(V) (mag), mass now times A(V)."""

_ROOM = 1 << 28
"""Bytes for sums in 64 bits."""

_COLUMN_VALUES = 2
"""Numbers in the columns of a chunk over `Rates.values_at_once`: 1 MB in float32 on a processor, beside as many that
are multiplied out."""

_MOST_BINS = 20_000

Placed = tuple[Int[Array, "particle corner"], Float[Array, "particle corner"]]
"""Spaxels of particles (flat; n_spaxel = outside), and the shares of them that lie there."""


def particles_at_once(grid: SpaxelGrid, n_column: int, limit: int) -> int:
    """Particles whose `n_column` columns are computed at once: at most `limit`, fewer for many columns."""
    return max(1, min(limit, _COLUMN_VALUES * rates_here().values_at_once // (grid.n_corner * n_column)))


def blocks_needed(grid: SpaxelGrid, n_column: int) -> int:
    """Number of blocks of spaxels, each small enough that its sums have room."""
    return -(-8 * grid.n_spaxel * n_column // _ROOM)


def sum_columns(
    contribute: Callable[[Any], tuple[Placed, Float[Array, "particle column"]]],
    particles: Any,
    grid: SpaxelGrid,
    kernel: AbstractDepositKernel,
    n_column: int,
    chunk: int,
    dtype: Any,
) -> Float[Array, "spaxel column"]:
    """Sums of the particles' own columns, kept in 64 bits, as many spaxels at a time as there is room for.

    `contribute` makes of a chunk its spaxels with their shares, and the columns.
    """

    def sums(spaxels: Spaxels) -> tuple[Float[Array, "own column"], None]:
        first, n_spaxel = spaxels

        def deposits(own: Any) -> tuple[tuple[Factors], tuple[()]]:
            (spaxel, share), columns = contribute(own)
            inside = (spaxel >= first) & (spaxel < first + n_spaxel)
            row = jnp.where(inside, spaxel - first, n_spaxel)
            return (Factors(row, share, jnp.ones((len(row), 1), columns.dtype), columns),), ()

        at_once = particles_at_once(grid, n_column, chunk)
        (summed,), _ = sum_deposits(deposits, particles, kernel, ((n_spaxel + 1, n_column),), (), at_once, dtype)
        return summed[:n_spaxel], None

    return in_blocks(sums, grid.n_spaxel, blocks_needed(grid, n_column))[0]


class Sighting(eqx.Module):
    """A chunk of stars, and how the observer sees it: the scene, where between the templates, and on which spaxels."""

    stars: Stars
    scene: Scene
    coordinates: tuple[Float[Array, " particle"], ...]
    spaxel: Int[Array, "particle corner"]
    share: Float[Array, "particle corner"]


class ProductImages(eqx.Module):
    """Images of the sums, as `ProductTables.paint` orders them: as painted, and after the PSF.

    The columns are those of the stars, then those of the gas (named in `gas`), those of lines, then the fields.
    Velocities in the sums (not the bins of the distribution) are relative to `reference` (km/s). `transmission`: the
    share of each line that the dust screen lets through (None: there is none). `starlight`: of all stars, before all
    dust and behind it (None without `products.dust`).
    """

    before: Float[Array, "y x column"]
    after: Float[Array, "y x column"]
    reference: Float[Array, ""]
    transmission: Float[Array, " line"] | None = None
    gas: tuple[str, ...] = eqx.field(static=True, default=())
    starlight: Float[Array, "2 wave"] | None = None


class VelocityBins(eqx.Module):
    """Bins of a velocity distribution, at whole multiples of `step` (km/s), symmetric about 0; `n_bin` is odd."""

    step: Float[Array | ndarray, ""]
    n_bin: int = eqx.field(static=True)

    @classmethod
    def build(cls, settings: LOSVDSettings, fastest: float) -> "VelocityBins":
        """Bins up to the settings' limit, or up to `fastest` (km/s); raises ConfigError for more than can be meant."""
        limit = fastest if settings.limit is None else settings.limit
        n_bin = 2 * max(1, int(np.ceil(limit / settings.step - 1e-9))) + 1
        if n_bin > _MOST_BINS:
            raise ConfigError(
                f"products.losvd.step: expected at most {_MOST_BINS} bins, got {n_bin} of {settings.step:g} km/s up to "
                f"{limit:g} km/s; make the step larger or products.losvd.limit smaller"
            )
        return cls(np.asarray(settings.step), n_bin)

    @property
    def velocity(self) -> Float[ndarray, " velocity"]:
        """Centres of the bins in km/s (on the host)."""
        return float(self.step) * (np.arange(self.n_bin) - self.n_bin // 2).astype(np.float64)

    def deposit(
        self, velocity: Float[Array, " particle"]
    ) -> tuple[Int[Array, " particle"], Float[Array, "particle 2"]]:
        """The lower of the two bins around each velocity, and the shares of both by linear weights.

        Velocities beyond the bins are in the last one.
        """
        place = jnp.clip(velocity / self.step + self.n_bin // 2, 0, self.n_bin - 1)
        lower = jnp.clip(jnp.floor(place).astype(jnp.int32), 0, self.n_bin - 2)
        share = place - lower.astype(place.dtype)
        return lower, jnp.stack([1 - share, share], axis=1)


class ProductTables(eqx.Module):
    """What the sums over stars need: their flux through bands, their mass now, velocity bins.

    Columns are `SUMS`, then one per filter (nJy), then with `has_dust` `DUST_SUMS` and one more per filter before all
    dust, then one per velocity bin (1e-20 erg/s/cm2). The light of a star is
    that of its template at the galaxy's redshift: the shift of single stars, v/c, moves bands by less than 0.2 % of
    their wavelength, and is left out. `axes` are those of the SSP library; `reader` is the place of the stars among
    `Tables.painted`; `screen` is A(lambda) / A(V) of the run's screen at the bands' parts; stars that are seen through
    dust of their own shine sum_r f_r(A(V)) `dimmed`[r] of their light there, with the functions f_r of `dust`.
    """

    axes: TemplateAxes
    bands: BandTables
    mass_now: MassNow
    flux_factor: Float[Array | ndarray, ""]
    losvd: VelocityBins | None
    kernel: AbstractDepositKernel
    filters: tuple[str, ...] = eqx.field(static=True)
    reader: int = eqx.field(static=True)
    kind: ClassVar[Kind] = "stars"
    words: ClassVar[ReaderWords] = ReaderWords("maps", "set products: null")
    screen: Float[Array | ndarray, " part"] | None = None
    in_front: DustInFront | None = None
    dust: DustFactors | None = None
    dimmed: Float[Array | ndarray, "factor part"] | None = None
    has_dust: bool = eqx.field(static=True, default=False)

    @classmethod
    def build(cls, setup: Setup, reader: int, fastest: float) -> "ProductTables":
        """Tables for the bands and the velocities (up to `fastest`, km/s) of a run; raises ConfigError."""
        products, library = setup.config.products, setup.library
        assert products is not None
        redshift = setup.config.observation.redshift
        light = _detector_band(setup) if products.band is None else load_band(products.band)
        images = [load_band(name) for name in products.filters]
        for band in images if products.band is None else (light, *images):
            check_covered(band, library, redshift)
        return cls(
            axes=library.templates().axes,
            bands=BandTables.build(library, redshift, [BandWeight(light), *map(BandWeight.nanojansky, images)]),
            mass_now=MassNow.build(library),
            flux_factor=np.asarray(SOLAR_LUMINOSITY_AT_1_MPC / setup.luminosity_distance**2),
            losvd=None if products.losvd is None else VelocityBins.build(products.losvd, fastest),
            kernel=build_kernel(setup.config.engine.kernel),
            filters=tuple(band.name for band in images),
            reader=reader,
        )

    def absent(self, galaxy: Galaxy) -> None:  # noqa: ARG002
        """A galaxy without stars is refused."""
        return

    @property
    def n_column(self) -> int:
        """Sums per spaxel, without the velocity distribution."""
        return len(SUMS) + len(self.filters) + (len(DUST_SUMS) + len(self.filters)) * self.has_dust

    def seen(self, scene: Scene, parameters: Parameters) -> Scene:
        """The stars behind their own dust, where there is any."""
        dust = self.in_front
        return scene if dust is None else dust.dim(scene, parameters, dust.young(scene.coordinates["age"]))

    def paint(
        self,
        look: Callable[[Any], Sighting],
        particles: Any,
        grid: SpaxelGrid,
        chunk: int,
        parameters: Parameters,
    ) -> Float[Array, "spaxel column"]:
        """The sums of all particles at hand, kept in 64 bits, as many spaxels at a time as there is room for, and
        returned in the tables' precision."""
        table = self._table(parameters)
        own_chunk = particles_at_once(grid, self.n_column, chunk)

        def sums(spaxels: Spaxels) -> tuple[Float[Array, "own column"], None]:
            return self._block(look, particles, spaxels, own_chunk, table, parameters), None

        return in_blocks(sums, grid.n_spaxel, blocks_needed(grid, self.n_column + self._n_bin))[0]

    @property
    def _n_bin(self) -> int:
        return 0 if self.losvd is None else self.losvd.n_bin

    def _block(
        self,
        look: Callable[[Any], Sighting],
        particles: Any,
        spaxels: Spaxels,
        chunk: int,
        table: Float[Array, "template band"],
        parameters: Parameters,
    ) -> Float[Array, "own column"]:
        """The sums on some of the spaxels; one row more takes what others get."""
        first, n_spaxel = spaxels

        def contribute(own: Any) -> tuple[tuple[Factors, ...], tuple]:
            seen = look(own)
            columns = self.columns(seen, table, parameters)
            inside = (seen.spaxel >= first) & (seen.spaxel < first + n_spaxel)
            row = jnp.where(inside, seen.spaxel - first, n_spaxel)
            one = jnp.ones((len(row), 1), columns.dtype)
            maps = Factors(row, seen.share, one, columns)
            if self.losvd is None:
                return (maps,), ()
            lower, near = self.losvd.deposit(seen.scene.v_los)
            light = columns[:, SUMS.index("light"), None]
            return (maps, Factors(row * self._n_bin + lower[:, None], seen.share * light, near, one)), ()

        shapes = (n_spaxel + 1, self.n_column), ((n_spaxel + 1) * self._n_bin, 1)
        shapes = shapes[: 1 if self.losvd is None else 2]
        sums, _ = sum_deposits(contribute, particles, self.kernel, shapes, (), chunk, table.dtype)
        return jnp.concatenate([own.reshape(n_spaxel + 1, -1)[:n_spaxel] for own in sums], axis=1)

    def _table(self, parameters: Parameters) -> Float[Array, "template band"]:
        """Flux of each template in each band; behind stars' own dust, that of each of its functions' parts in turn.

        With `has_dust` that before all dust comes last.
        """
        screen = screen_transmission(self.screen, parameters)
        bare = [self.bands.through()] if self.has_dust else []
        if self.dimmed is None:
            return jnp.concatenate([self.bands.through(screen), *bare], axis=1) * self.flux_factor
        parts = jnp.asarray(self.dimmed) if screen is None else jnp.asarray(self.dimmed) * screen[None, :]
        return jnp.concatenate([*(self.bands.through(part) for part in parts), *bare], axis=1) * self.flux_factor

    def columns(
        self, seen: Sighting, table: Float[Array, "template band"], parameters: Parameters
    ) -> Float[Array, "particle column"]:
        """The columns that each star adds to `SUMS`, the filters and with `has_dust` the sums that go with it."""
        stars, scene, corners = seen.stars, seen.scene, self.axes.corners(seen.coordinates)
        reference = parameters.observation.velocity_offset
        flux = weighted_rows(table, corners) * scene.amount[:, None]
        last = flux.shape[1] - self.bands.n_band * self.has_dust
        flux, bare = flux[:, :last], flux[:, last:]
        layers = self.axes.a_v(seen.coordinates)
        if self.dust is not None and layers is not None:
            shares = self.dust(layers)
            flux = (flux.reshape(len(flux), shares.shape[1], -1) * shares[:, :, None]).sum(axis=1)
        log_age, metallicity = jnp.asarray(stars.log_age), jnp.asarray(stars.metallicity)
        mass = self.mass_now.of(stars, scene.amount, scene.coordinates) * scene.weight
        velocity = scene.v_los - reference
        age = jnp.power(10.0, log_age - 9.0).astype(log_age.dtype)
        factors = (velocity, velocity**2, log_age, age, metallicity)
        light = flux[:, 0]
        sums = (
            scene.weight,
            scene.amount,
            mass,
            *(mass * x for x in factors),
            light,
            *(light * x for x in factors),
        )
        columns = [jnp.stack(sums, axis=1), flux[:, 1:]]
        if self.has_dust:
            layered = jnp.zeros_like(scene.amount) if layers is None else layers.sum(axis=1)
            screen = None if self.screen is None else screen_a_v(parameters)
            a_v = layered if screen is None else layered + screen
            columns += [jnp.stack([bare[:, 0], bare[:, 0] * a_v, mass * a_v], axis=1), bare[:, 1:]]
        return jnp.concatenate(columns, axis=1)


def _detector_band(setup: Setup) -> Band:
    """The detector's whole range, all light counted."""
    bins = setup.instrument.bins
    return Band("detector", bins.to_vacuum(bins.edges[[0, -1]]), np.ones(2))


MEANS: tuple[str, ...] = ("velocity", "velocity2", "metallicity")
"""Quantities summed with the mass of gas as weight: km/s from the reference, its square, mass fraction; the last one
where the gas has it."""


class GasSums(eqx.Module):
    """Sums over gas per spaxel, one column for each of `names`: amounts (`amounts_of`), then `MEANS`."""

    values: Float[Array, "spaxel column"]
    names: tuple[str, ...] = eqx.field(static=True)


class GasTables(eqx.Module):
    """Tables for the sums over gas; the sums are of the gas itself, not of its light."""

    kernel: AbstractDepositKernel
    kind: ClassVar[Kind] = "gas"
    words: ClassVar[ReaderWords] = ReaderWords("the maps of products.gas", "set products.gas: false")

    def paint(
        self,
        look: Callable[[Gas], Scene],
        particles: Gas,
        grid: SpaxelGrid,
        chunk: int,
        reference: Float[Array, ""],
    ) -> GasSums:
        """The sums of all gas at hand, kept in 64 bits, as many spaxels at a time as there is room for.

        Velocities are relative to `reference` (km/s). Raises ValueError for gas that is to be smoothed and has no
        smoothing length.
        """
        means = MEANS if particles.metallicity is not None else MEANS[:-1]
        names = (*amounts_of(particles), *means)

        def contribute(own: Gas) -> tuple[Placed, Float[Array, "particle column"]]:
            scene = look(own)
            return grid.weights(scene.position, scene.smoothing_length, self.kind), gas_columns(own, scene, reference)

        dtype = jnp.result_type(grid.footprint.pixel_scale)
        return GasSums(sum_columns(contribute, particles, grid, self.kernel, len(names), chunk, dtype), names)


def amounts_of(gas: Gas) -> dict[str, Float[Array, " particle"]]:
    """The quantities that maps add up, by the map's name: mass (Msun) and, where the gas has them, star formation rate
    (Msun/yr) and masses of neutral and molecular hydrogen (Msun)."""
    mass, rate = jnp.asarray(gas.mass), gas.star_formation_rate
    fractions = {"hi_mass": gas.hi_fraction, "h2_mass": gas.h2_fraction}
    found = {"gas_mass": mass} | ({} if rate is None else {"star_formation_rate": jnp.asarray(rate)})
    return found | {name: mass * jnp.asarray(own) for name, own in fractions.items() if own is not None}


def gas_columns(gas: Gas, scene: Scene, reference: Float[Array, ""]) -> Float[Array, "particle column"]:
    """The columns of each particle: its amounts, then its mass times each of `MEANS`."""
    amounts = {name: own * scene.amount for name, own in amounts_of(gas).items()}
    mass, velocity = amounts["gas_mass"], scene.v_los - reference
    metals = [] if gas.metallicity is None else [jnp.asarray(gas.metallicity)]
    weighted = (mass * own for own in (velocity, velocity**2, *metals))
    return jnp.stack([*amounts.values(), *weighted], axis=1)


_ERROR = 1e-6
"""Largest rms error of the dimming over the wavelengths, relative to its mean."""

_LEAST = 1e-3
"""Share of the light that must come through, in units of its mean, for it to be known: to about 0.01 mag."""

_STEP = 0.01
"""Step of ln lambda with which curves are looked at for where they hold."""


class AttenuationTables(eqx.Module):
    """Tables for the light of all stars in the field, before dust and behind it, in parts of 1 % of the wavelength.

    | field | shape | |
    |---|---|---|
    | axes | | of the templates |
    | wavelength | (part,) | vacuum Angstrom at rest |
    | spectra | (template, part) | flux density per amount, 1e-20 erg/s/cm2/Angstrom |
    | dust, parts | (factor, part) | the stars' own dust as in `FactoredDust`; None without any |
    | screen | (part,) | A(lambda) / A(V) of the run's screen; None without one |
    """

    axes: TemplateAxes
    wavelength: Float[Array | ndarray, " part"]
    spectra: Float[Array | ndarray, "template part"]
    dust: DustFactors | None
    parts: Float[Array | ndarray, "factor part"] | None
    screen: Float[Array | ndarray, " part"] | None
    kernel: AbstractDepositKernel

    @classmethod
    def build(cls, setup: Setup, templates: Templates, *, has_screen: bool) -> "AttenuationTables":
        """Those of the SSP library's `templates` as stars are seen, wherever the library and all curves hold."""
        stretch = 1.0 + setup.config.observation.redshift
        ends = _ends(setup, templates, has_screen) * stretch
        bands = BandTables.build(setup.library, stretch - 1.0, [BandWeight(Band("all", ends, np.ones(2)))])
        observed = np.asarray(bands.wavelength)
        widths = np.diff(np.geomspace(ends[0], ends[1], len(observed) + 1))
        factor = SOLAR_LUMINOSITY_AT_1_MPC / setup.luminosity_distance**2
        layers, largest = layers_of(templates), templates.axes.largest_a_v
        own = None
        if layers is not None and largest is not None:
            own = factored_dust(layers(observed / stretch), float(np.asarray(largest)), _ERROR)
        return cls(
            axes=templates.axes,
            wavelength=observed / stretch,
            spectra=factor * np.asarray(bands.flux) / widths,
            dust=None if own is None else own.factors,
            parts=None if own is None else own.parts,
            screen=relative_attenuation(setup, observed) if has_screen else None,
            kernel=build_kernel(setup.config.engine.kernel),
        )

    def paint(
        self, look: Callable[[Any], Sighting], particles: Any, field: Footprint, chunk: int
    ) -> Float[Array, "template own"]:
        """Amounts of the templates that the stars in the field shine as, and these times each function of their A(V).

        Stars are in the field by their position.
        """
        n_column = 1 if self.parts is None else 1 + len(self.parts)

        def contribute(own: Any) -> tuple[tuple[Factors], tuple[()]]:
            seen = look(own)
            corners = self.axes.corners(seen.coordinates)
            beyond = [jnp.abs(seen.scene.position[:, axis]) > 0.5 * side for axis, side in enumerate(field.sides)]
            amount = jnp.where(beyond[0] | beyond[1], jnp.zeros_like(seen.scene.amount), seen.scene.amount)[:, None]
            one = jnp.ones_like(amount)
            a_v = self.axes.a_v(seen.coordinates)
            behind = [] if self.dust is None or a_v is None else [self.dust(a_v)]
            columns = jnp.concatenate([one, *behind], axis=1)
            return (Factors(corners.index, corners.weight, one, amount * columns),), ()

        shape, dtype = (self.axes.n_template, n_column), self.spectra.dtype
        (sums,), _ = sum_deposits(contribute, particles, self.kernel, (shape,), (), chunk, dtype)
        return sums

    def light(self, sums: Float[Array, "template own"], parameters: Parameters) -> Float[Array, "2 part"]:
        """Flux densities of all stars together (1e-20 erg/s/cm2/Angstrom): before all dust, and behind it; NaN where so
        little comes through that the functions of A(V) do not tell how much."""
        own = jnp.matmul(sums.T, jnp.asarray(self.spectra), precision=lax.Precision.HIGHEST)
        dimmed = own[0]
        if self.parts is not None:
            dimmed = jnp.sum(own[1:] * jnp.asarray(self.parts), axis=0)
            mean = jnp.mean(dimmed / jnp.where(own[0] > 0, own[0], jnp.ones_like(own[0])))
            dimmed = jnp.where(dimmed < _LEAST * mean * own[0], jnp.nan, dimmed)
        share = screen_transmission(self.screen, parameters)
        return jnp.stack([own[0], dimmed if share is None else dimmed * share])


def _ends(setup: Setup, templates: Templates, has_screen: bool) -> Float[ndarray, " 2"]:
    """The first and last vacuum wavelength at rest (Angstrom) at which the library and the run's curves hold.

    Half a step is left out at the end, so that rounding does not change the number of parts.
    """
    config, nodes = setup.config, templates.rest_wavelength
    wavelength = np.exp(np.arange(np.log(nodes[0]), np.log(nodes[-1]), _STEP))
    found = np.ones(len(wavelength), bool)
    shift = 1.0 + config.observation.redshift
    screen = config.screen if has_screen else None
    own = config.dust if templates.attenuation is not None else None
    for dust, stretch in ((own, 1.0), (screen, shift if screen is not None and screen.place == "foreground" else 1.0)):
        if dust is not None:
            found &= find_curve(dust.curve).holds(wavelength * stretch, dust.resolved_r_v, dust.slope)
    if isinstance(own, ParticleDustSettings) and own.has_birth_clouds:
        birth = find_curve(own.resolved_birth_curve)
        found &= birth.holds(wavelength, own.resolved_birth_r_v, own.birth_slope)
    return wavelength[found][[0, -1]] * np.exp([0.0, -0.5 * _STEP])
