"""Readers of galaxies that no file holds: a model of the user's, and smooth components."""

from abc import abstractmethod
from typing import Any, NamedTuple

import jax
import numpy as np

from rubix_like.arguments import plug_in_named
from rubix_like.config import RunConfig
from rubix_like.config.readers.components import (
    AbstractKind,
    ComponentLinesSettings,
    ComponentSettings,
    ComponentsReader,
)
from rubix_like.config.sections.instrument import instrument_fwhm
from rubix_like.config.settings import AbstractSettings
from rubix_like.constants import FWHM_PER_SIGMA, SPEED_OF_LIGHT
from rubix_like.errors import ConfigError
from rubix_like.galaxy.components.light import AbstractLight, LineLight
from rubix_like.galaxy.components.quadrature import LARGEST_RADIUS, Axis
from rubix_like.galaxy.components.smooth import SmoothComponent, SmoothGalaxy, as_leaf, emitted
from rubix_like.galaxy.galaxy_model import AbstractGalaxyModel, as_arrays, galaxy_of
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo
from rubix_like.instrument.detector import least_line_width
from rubix_like.physics.cosmology import arcsec_per_kpc, observed_distance


class AbstractModelReader(AbstractSettings):
    """The keys under `galaxy:` of a model, announced as `rubix_like.readers`; its `model()` makes the module.

    Runs paint what the module samples; fits free its parameters as `galaxy.NAME`.
    """

    @abstractmethod
    def model(self) -> AbstractGalaxyModel:
        """The module with the settings' values."""

    def load(self) -> tuple[Galaxy, GalaxyInfo]:
        """The particles that the module samples."""
        model = as_arrays(self.model())
        galaxy = jax.tree.map(np.asarray, galaxy_of(model, model.draws()))
        name = type(model).__name__
        return galaxy, GalaxyInfo(name=name, reader=name, source="a model")


SPACING: float = 0.5
"""Largest distance of neighbouring points, in standard deviations of what the instrument blurs, where light is."""

FEWEST, MOST = 2**12, 2**18
"""Points of a component that are taken unasked."""

FEWEST_EFFECTIVE: int = 1500
"""Least effective number of points, (sum m)^2 / sum(m^2) of their light m: steep profiles (Sersic indices from 3 on)
put most light on few points."""

WITHOUT_RUN: int = 2**14
"""Points of a component where nothing is known of the instrument."""

_NARROW_LINES = 30.0
"""km/s: standard deviation of the narrowest features of stellar spectra."""

_AGE_STEPS = 8
"""Times as many points for ages that are spread."""


class Sharpness(NamedTuple):
    """What an instrument tells apart: standard deviations in kpc on the sky, and in km/s of stars and of gas."""

    kpc: float
    km_s: float
    km_s_of_gas: float

    @staticmethod
    def of(run: RunConfig) -> "Sharpness":
        """Of the PSF with the spaxel's box, and of the line spread with the bin's box and the lines' widths."""
        instrument, observation = run.instrument, run.observation
        distance = observed_distance(observation.cosmology, observation.redshift, observation.distance)
        scale = arcsec_per_kpc(distance, observation.redshift)
        square = instrument.pixel_scale**2 / 12
        if instrument.psf is not None and instrument.psf.is_profile:
            square += (instrument.psf.narrowest / FWHM_PER_SIGMA) ** 2
        bins = instrument.wavelength
        middle = np.array([0.5 * (bins.start + bins.stop)])
        step = float(bins.widths(middle)[0]) / middle[0] * SPEED_OF_LIGHT
        lines = step**2 / 12
        if instrument.lsf is not None:
            fwhm = float(instrument_fwhm(instrument.lsf, middle)[0]) / middle[0] * SPEED_OF_LIGHT
            lines += (fwhm / FWHM_PER_SIGMA) ** 2
        stars, gas = np.sqrt(lines + np.array([_NARROW_LINES, least_line_width(instrument)]) ** 2)
        return Sharpness(float(np.sqrt(square)) / scale, float(stars), float(gas))


def build_components(reader: ComponentsReader, run: RunConfig | None) -> SmoothGalaxy:
    """The components' parameters as array leaves; without a run lines have no intrinsic width."""
    width = 0.0 if run is None else least_line_width(run.instrument)
    return SmoothGalaxy(
        tuple(_component(settings, width) for settings in reader.components),
        tuple(settings.name for settings in reader.components),
    )


def _component(settings: ComponentSettings, width: float) -> SmoothComponent:
    dispersion = settings.dispersion
    return SmoothComponent(
        mass=None if settings.mass is None else as_leaf(settings.mass),
        light=_built(settings.light),
        height=_built(settings.height),
        rotation=None if settings.rotation is None else _built(settings.rotation),
        dispersion=_built(dispersion) if isinstance(dispersion, AbstractKind) else as_leaf(dispersion),
        population=None if settings.population is None else _built(settings.population),
        center=as_leaf(settings.center),
        inclination=as_leaf(settings.inclination),
        position_angle=as_leaf(settings.position_angle),
        warp=None if settings.warp is None else _built(settings.warp),
        asymmetry=None if settings.asymmetry is None else _built(settings.asymmetry),
        lines=None if settings.lines is None else _line_light(settings.lines, width),
    )


def _built(settings: AbstractKind) -> Any:
    """The module that the settings of a kind build; ConfigError, which names them, where those from outside fail."""
    with plug_in_named(f"{type(settings).__name__}: `build`", settings):
        made = settings.build()
    if isinstance(made, AbstractLight) and not type(made).__module__.startswith("rubix_like."):
        call = f"light profile '{getattr(settings, 'profile', '')}': `surface`"
        place = np.geomspace(1e-4, LARGEST_RADIUS)
        with plug_in_named(call, settings):
            surface = np.asarray(jax.jit(type(made).surface)(made, as_leaf(place)))
        if not np.all(surface >= 0):
            first = int(np.argmin(surface >= 0))
            raise ConfigError(
                f"{call} must return densities of 0 or more, got {surface[first]:.3g} at {place[first]:.3g} scale "
                f"lengths; see docs/how-to-extend.md"
            )
    return made


def _line_light(settings: ComponentLinesSettings, width: float) -> LineLight:
    flux, luminosity = (None if value is None else as_leaf(value) for value in (settings.flux, settings.luminosity))
    return LineLight(
        flux, luminosity, as_leaf(settings.ratios), as_leaf(width), settings.wavelengths, settings.doublets
    )


def point_numbers(reader: ComponentsReader, galaxy: SmoothGalaxy, run: RunConfig | None) -> tuple[int, ...]:
    """Quadrature points of each component: the setting, or what the run's instrument needs."""
    if reader.points is not None:
        return tuple(reader.points for _ in reader.components)
    if run is None:
        return tuple(WITHOUT_RUN for _ in reader.components)
    sharpness = Sharpness.of(run)
    return tuple(_needed(component, sharpness) for component in galaxy.components)


def _needed(component: SmoothComponent, sharpness: Sharpness) -> int:
    """How many points lie no further apart than `SPACING` in the part of the component that has its light, and
    at least `FEWEST_EFFECTIVE` in effect.

    The volume that points of density p fill is 1 / integral(p^2), in units of what is told apart, along each axis at
    least one.
    """
    (probe,) = SmoothGalaxy((component,), ("probe",)).points((WITHOUT_RUN,))
    area = 2 * np.pi * _extent(probe.radius, np.asarray(probe.radius.place)) * float(component.light.scale) ** 2
    height = _extent(probe.height) * float(component.height.scale)
    stars = emitted(SmoothGalaxy((component,), ("probe",)), (probe,)).stars
    sigma = float(np.abs(np.asarray(stars.random_velocity)).max() / np.abs(probe.speed.place).max())
    volume = max(1.0, area / sharpness.kpc**2) * max(1.0, height / sharpness.kpc)
    told_apart = sharpness.km_s if component.lines is None else sharpness.km_s_of_gas
    volume *= max(1.0, _extent(probe.speed) * sigma / told_apart)
    volume *= _AGE_STEPS if np.ptp(np.asarray(stars.log_age)) > 0 else 1
    n_axis = 4 if height > sharpness.kpc else 3
    radius = np.asarray(probe.radius.place)
    light = component.densities().surface(radius) * radius * np.asarray(probe.radius.weight)
    number = max(volume / SPACING**n_axis, FEWEST_EFFECTIVE * np.mean(light**2) / np.mean(light) ** 2)
    return int(np.clip(2 ** np.ceil(np.log2(number)), FEWEST, MOST))


def _extent(axis: Axis, jacobian: float | np.ndarray = 1.0) -> float:
    """1 / integral of the squared density of the points, for a jacobian of the axis."""
    return float(1 / np.mean(1 / (axis.weight * np.maximum(jacobian, 1e-9))))


def load_components(reader: ComponentsReader, run: RunConfig | None) -> tuple[Galaxy, GalaxyInfo]:
    """The emitters of all components; the same settings give the same."""
    galaxy = build_components(reader, run)
    numbers = point_numbers(reader, galaxy, run)
    made = emitted(galaxy, galaxy.points(numbers))
    words = ", ".join(f"{name} {number}" for name, number in zip(galaxy.names, numbers, strict=True))
    info = GalaxyInfo(
        name="components",
        reader=reader.reader,
        source=f"rubix_like.components, quadrature points: {words}",
        simulation="components",
        n_stars=sum(numbers),
        initial_mass="of components: their mass is that at birth",
        ages="components",
        metallicities="components",
        velocities="components",
    )
    return made, info
