"""Maps of stars: masses, light, motions, ages, velocity distributions, images through filters, dust in front."""

from collections.abc import Mapping
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
from rubix_like.cube.maps import AttenuationCurve
from rubix_like.engine.kernels.kernel import Factors, sum_deposits
from rubix_like.engine.setup import Setup
from rubix_like.engine.spectra.attenuation import DustFactors, FactoredDust, factored_dust
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters, screen_a_v
from rubix_like.forward.products.bands import Band, BandTables, BandWeight, check_covered, load_band
from rubix_like.forward.products.product import (
    AbstractProduct,
    Histogram,
    NamedColumns,
    Placed,
    Summed,
    Viewer,
    root,
    sum_columns,
)
from rubix_like.forward.sources.source import DustInFront, Kind, seen_through_dust
from rubix_like.forward.stages.scene import relative_attenuation, screen_transmission
from rubix_like.galaxy.particles import Stars
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


_MOST_BINS = 20_000

_DUST_ERROR = 1e-4
"""Largest rms error of the stars' dust over the bands, relative to its mean."""


class Sighting(eqx.Module):
    """A chunk of stars, and how the observer sees it: the scene, where between the templates, and on which spaxels."""

    stars: Stars
    scene: Scene
    coordinates: tuple[Float[Array, " particle"], ...]
    spaxel: Int[Array, "particle corner"]
    share: Float[Array, "particle corner"]

    @classmethod
    def of(cls, viewer: Viewer, stars: Stars, axes: TemplateAxes, dust: DustInFront | None) -> "Sighting":
        """A chunk of stars as the viewer shows them, behind the dust in front of them if any."""
        scene = viewer.stars(stars)
        if dust is not None:
            scene = dust.dim(scene, viewer.parameters, dust.young(scene.coordinates["age"]))
        coordinates = tuple(scene.coordinates[name] for name in axes.coordinate_names)
        return cls(stars, scene, coordinates, *viewer.grid.weights(scene.position, scene.smoothing_length, "stars"))


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


class StarMaps(AbstractProduct):
    """Maps of stars: masses, light, motions, ages, metallicities, images, dust, velocity distributions.

    All `columns`, and one per velocity bin (1e-20 erg/s/cm2), share a pass, so that stars are seen once. The light of
    a star is that of its template at the galaxy's redshift: the shift of single stars, v/c, moves bands by less than
    0.2 % of their wavelength, and is left out. `axes` are those of the SSP library; `screen` is A(lambda) / A(V) of the
    run's screen at the bands' parts; stars that each have a separate A(V) shine sum_r f_r(A(V)) `dimmed`[r] of
    their light there, with the functions f_r of `dust`.
    """

    axes: TemplateAxes
    bands: BandTables
    mass_now: MassNow
    flux_factor: Float[Array | ndarray, ""]
    losvd: VelocityBins | None
    filters: tuple[str, ...] = eqx.field(static=True)
    kind: ClassVar[Kind | None] = "stars"
    screen: Float[Array | ndarray, " part"] | None = None
    in_front: DustInFront | None = None
    dust: DustFactors | None = None
    dimmed: Float[Array | ndarray, "factor part"] | None = None
    has_dust: bool = eqx.field(static=True, default=False)

    @classmethod
    def build(cls, setup: Setup, fastest: float, *, has_screen: bool) -> "StarMaps":
        """Tables for the bands and the velocities (up to `fastest`, km/s) of a run; raises ConfigError for bands that
        are not known or not covered by the library."""
        products, library = setup.config.products, setup.library
        assert products is not None
        redshift = setup.config.observation.redshift
        bins = setup.instrument.bins
        whole = Band("detector", bins.to_vacuum(bins.edges[[0, -1]]), np.ones(2))  # all light counted
        light = whole if products.band is None else load_band(products.band)
        images = [load_band(name) for name in products.filters]
        for band in images if products.band is None else (light, *images):
            check_covered(band, library, redshift)
        bands = BandTables.build(library, redshift, [BandWeight(light), *map(BandWeight.nanojansky, images)])
        observed, templates = np.asarray(bands.wavelength), seen_through_dust(library.templates(), setup)
        dust = _own_dust(templates, observed / (1.0 + redshift), _DUST_ERROR)
        return cls(
            axes=library.templates().axes if dust is None else templates.axes,
            bands=bands,
            mass_now=MassNow.build(library),
            flux_factor=np.asarray(SOLAR_LUMINOSITY_AT_1_MPC / setup.luminosity_distance**2),
            losvd=None if products.losvd is None else VelocityBins.build(products.losvd, fastest),
            filters=tuple(band.name for band in images),
            screen=relative_attenuation(setup, observed) if has_screen else None,
            in_front=None if dust is None else DustInFront.of(setup),
            dust=None if dust is None else dust.factors,
            dimmed=None if dust is None else dust.parts,
            has_dust=products.dust,
        )

    def paint(self, viewer: Viewer, particles: Stars) -> NamedColumns:
        """The sums of all particles at hand."""
        table = self._table(viewer.parameters)

        def contribute(stars: Stars) -> tuple[Placed, dict[str, Float[Array, "particle *_"]], Histogram | None]:
            seen = Sighting.of(viewer, stars, self.axes, self.in_front)
            columns = self.columns(seen, table, viewer.parameters)
            added = None if self.losvd is None else (*self.losvd.deposit(seen.scene.v_los), columns["light"])
            return (seen.spaxel, seen.share), columns, added

        histogram = ("", 0) if self.losvd is None else ("losvd", self.losvd.n_bin)
        return sum_columns(contribute, viewer, viewer.grid, particles, histogram)

    def make(self, summed: Summed) -> dict[str, Any]:
        """Masses and light as they are, moments of velocities, means weighted by light and mass, images, dust."""
        images, axes = summed.images, summed.axes
        means = {
            f"{quantity}_{weight}": summed.mean(images[f"{weight}_{quantity}"], images[weight])
            for weight in ("light", "mass")
            for quantity in ("velocity", "velocity2", "log_age", "age", "metallicity")
        }
        moments: dict[str, Any] = {}
        for weight in ("light", "mass"):
            velocity, square = means.pop(f"velocity_{weight}"), means.pop(f"velocity2_{weight}")
            moments[f"v_{weight}"] = velocity + summed.reference
            moments[f"sigma_{weight}"] = root(square - velocity**2)
        kept = {name: images[name] for name in ("number", "birth_mass", "mass", "light", "flux")}
        distribution = None if axes.velocity is None else images["losvd"] / axes.velocity_step
        found = {**kept, **moments, **means, "losvd": distribution}
        if self.has_dust:
            found |= {name: images[name] for name in ("intrinsic_light", "intrinsic_flux")}
            found["a_v_light"] = summed.mean(images["intrinsic_light_a_v"], images["intrinsic_light"])
            found["a_v_mass"] = summed.mean(images["mass_a_v"], images["mass"])
        return found

    def _table(self, parameters: Parameters) -> Float[Array, "template band"]:
        """Flux of each template in each band; behind the stars' dust, that of each of its functions' parts in turn.

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
    ) -> dict[str, Float[Array, "particle *_"]]:
        """The columns that each star adds to: its number, Msun at birth and now, and light (1e-20 erg/s/cm2), mass and
        light times velocity (km/s from the reference), its square, age (log10 yr, and Gyr) and metallicity; flux
        through the filters (nJy); with `has_dust` light and flux before all dust, that light and mass times A(V)
        (mag)."""
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
        factors = {"velocity": velocity, "velocity2": velocity**2}
        factors |= {"log_age": log_age, "age": age, "metallicity": metallicity}
        columns = {"number": scene.weight, "birth_mass": scene.amount}
        for weight, amount in (("mass", mass), ("light", flux[:, 0])):
            columns |= {weight: amount, **{f"{weight}_{name}": amount * value for name, value in factors.items()}}
        columns["flux"] = flux[:, 1:]
        if self.has_dust:
            layered = jnp.zeros_like(scene.amount) if layers is None else layers.sum(axis=1)
            screen = None if self.screen is None else screen_a_v(parameters)
            a_v = layered if screen is None else layered + screen
            columns |= {"intrinsic_light": bare[:, 0], "intrinsic_light_a_v": bare[:, 0] * a_v}
            columns |= {"mass_a_v": mass * a_v, "intrinsic_flux": bare[:, 1:]}
        return columns


def _own_dust(templates: Templates, wavelength: Float[ndarray, " part"], error: float) -> FactoredDust | None:
    """The stars' dust at vacuum wavelengths at rest, up to an rms error relative to its mean; None without any."""
    layers, largest = layers_of(templates), templates.axes.largest_a_v
    if layers is None or largest is None:
        return None
    return factored_dust(layers(wavelength), float(np.asarray(largest)), error)


_ERROR = 1e-6
"""Largest rms error of the dimming over the wavelengths, relative to its mean."""

_LEAST = 1e-3
"""Share of the light that must come through, in units of its mean, for it to be known: to about 0.01 mag."""

_STEP = 0.01
"""Step of ln lambda with which curves are looked at for where they hold."""


class StarAttenuation(AbstractProduct):
    """How dust dims all stars in the field together: their light before dust and behind it, in parts of 1 % of the
    wavelength.

    | field | shape | |
    |---|---|---|
    | axes | | of the templates |
    | wavelength | (part,) | vacuum Angstrom at rest |
    | spectra | (template, part) | flux density per amount, 1e-20 erg/s/cm2/Angstrom |
    | dust, parts | (factor, part) | the stars' dust as in `FactoredDust`; None without any |
    | screen | (part,) | A(lambda) / A(V) of the run's screen; None without one |
    | in_front | | the dust in front of each star; None without any |
    """

    axes: TemplateAxes
    wavelength: Float[Array | ndarray, " part"]
    spectra: Float[Array | ndarray, "template part"]
    dust: DustFactors | None
    parts: Float[Array | ndarray, "factor part"] | None
    screen: Float[Array | ndarray, " part"] | None
    in_front: DustInFront | None
    kind: ClassVar[Kind | None] = "stars"

    @classmethod
    def build(cls, setup: Setup, *, has_screen: bool) -> "StarAttenuation":
        """Build it with the SSP library's templates as stars are seen, wherever the library and all curves hold."""
        templates = seen_through_dust(setup.library.templates(), setup)
        stretch = 1.0 + setup.config.observation.redshift
        ends = _ends(setup, templates, has_screen) * stretch
        bands = BandTables.build(setup.library, stretch - 1.0, [BandWeight(Band("all", ends, np.ones(2)))])
        observed = np.asarray(bands.wavelength)
        widths = np.diff(np.geomspace(ends[0], ends[1], len(observed) + 1))
        factor = SOLAR_LUMINOSITY_AT_1_MPC / setup.luminosity_distance**2
        dust = _own_dust(templates, observed / stretch, _ERROR)
        return cls(
            axes=templates.axes,
            wavelength=observed / stretch,
            spectra=factor * np.asarray(bands.flux) / widths,
            dust=None if dust is None else dust.factors,
            parts=None if dust is None else dust.parts,
            screen=relative_attenuation(setup, observed) if has_screen else None,
            in_front=DustInFront.of(setup),
        )

    def paint(self, viewer: Viewer, particles: Stars) -> Float[Array, "template column"]:
        """Amounts of the templates that the stars in the field shine as, and these times each function of their A(V).

        Stars are in the field by their position.
        """
        n_column = 1 if self.parts is None else 1 + len(self.parts)

        def contribute(stars: Stars) -> tuple[tuple[Factors], tuple[()]]:
            seen, sides = Sighting.of(viewer, stars, self.axes, self.in_front), viewer.footprint.sides
            corners = self.axes.corners(seen.coordinates)
            beyond = [jnp.abs(seen.scene.position[:, axis]) > 0.5 * side for axis, side in enumerate(sides)]
            amount = jnp.where(beyond[0] | beyond[1], jnp.zeros_like(seen.scene.amount), seen.scene.amount)[:, None]
            one = jnp.ones_like(amount)
            a_v = self.axes.a_v(seen.coordinates)
            behind = [] if self.dust is None or a_v is None else [self.dust(a_v)]
            columns = jnp.concatenate([one, *behind], axis=1)
            return (Factors(corners.index, corners.weight, one, amount * columns),), ()

        shape, dtype = (self.axes.n_template, n_column), self.spectra.dtype
        (sums,), _ = sum_deposits(contribute, particles, viewer.kernel, (shape,), (), viewer.chunk, dtype)
        return sums

    def images(self, sums: Float[Array, "template column"], viewer: Viewer) -> None:  # noqa: ARG002
        """A curve is no image."""
        return

    def make(self, summed: Summed) -> dict[str, Any]:
        """The curve."""
        assert summed.axes.dust is not None
        return {"attenuation": AttenuationCurve(summed.axes.dust.wavelength, *summed.other)}

    def other(self, sums: Float[Array, "template column"], parameters: Parameters) -> Float[Array, "2 part"]:
        """Flux densities of all stars together (1e-20 erg/s/cm2/Angstrom): before all dust, and behind it; NaN where so
        little comes through that the functions of A(V) do not tell how much."""
        spectra = jnp.matmul(sums.T, jnp.asarray(self.spectra), precision=lax.Precision.HIGHEST)
        bare = dimmed = spectra[0]
        if self.parts is not None:
            dimmed = jnp.sum(spectra[1:] * jnp.asarray(self.parts), axis=0)
            mean = jnp.mean(dimmed / jnp.where(bare > 0, bare, jnp.ones_like(bare)))
            dimmed = jnp.where(dimmed < _LEAST * mean * bare, jnp.nan, dimmed)
        share = screen_transmission(self.screen, parameters)
        return jnp.stack([bare, dimmed if share is None else dimmed * share])


def _ends(setup: Setup, templates: Templates, has_screen: bool) -> Float[ndarray, " 2"]:
    """The first and last vacuum wavelength at rest (Angstrom) at which the library and the run's curves hold.

    Half a step is left out at the end, so that rounding does not change the number of parts.
    """
    config, nodes = setup.config, templates.rest_wavelength
    wavelength = np.exp(np.arange(np.log(nodes[0]), np.log(nodes[-1]), _STEP))
    found = np.ones(len(wavelength), bool)
    shift = 1.0 + config.observation.redshift
    screen = config.screen if has_screen else None
    in_front = config.dust if templates.attenuation is not None else None
    of_screen = shift if screen is not None and screen.place == "foreground" else 1.0
    for dust, stretch in ((in_front, 1.0), (screen, of_screen)):
        if dust is not None:
            found &= find_curve(dust.curve).holds(wavelength * stretch, dust.resolved_r_v, dust.slope)
    if isinstance(in_front, ParticleDustSettings) and in_front.has_birth_clouds:
        birth = find_curve(in_front.resolved_birth_curve)
        found &= birth.holds(wavelength, in_front.resolved_birth_r_v, in_front.birth_slope)
    return wavelength[found][[0, -1]] * np.exp([0.0, -0.5 * _STEP])
