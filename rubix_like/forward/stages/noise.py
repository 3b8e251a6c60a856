"""Stage `noise`: what the run's noise section asks for, and its variance."""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.config import ExposureSettings, InstrumentSettings, NoiseSettings
from rubix_like.config.quantities import as_tuple
from rubix_like.constants import ANGSTROM_PER_MICRON, PHOTONS_AT_1_ANGSTROM
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.fibres.fibre_spectra import FibrePlaces
from rubix_like.cube.footprint import Footprint
from rubix_like.engine.setup import Setup
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters, displaced
from rubix_like.forward.stages.base import AbstractSpectraStage, PaintedCube, refuse_options
from rubix_like.galaxy.scene import rotate
from rubix_like.instrument.pointing import pointings_of
from rubix_like.instrument.sky import Sky, bin_means, load_sky
from rubix_like.physics.numbered_random import numbered_normal
from rubix_like.physics.poisson import poisson_noise
from rubix_like.physics.rotations import field_rotation
from rubix_like.runtime.mesh.bin_split import BinSplit, per_bin
from rubix_like.runtime.mesh.mesh import as_dtype

Spectra = Float[Array, "element wave"]
Row = Float[Array, "x wave"]
Spectrum = Float[Array, " wave"]


class AbstractNoise(eqx.Module):
    """One model of the noise of a cube."""

    @abstractmethod
    def draw(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray) -> tuple[Spectra, Spectra]:
        """Noise to be added to the flux of a noiseless cube, and its true variance (unit of the flux, squared).

        The cube and the model's tables hold the bins of this device (`cube.split`). What is drawn for a voxel must
        not depend on which device holds it: `normal_row` draws so.
        """


class TargetNoise(AbstractNoise):
    """White noise as of a background-limited exposure: sigma = reference flux / signal_to_noise in all voxels.

    `parameters.noise.signal_to_noise` is the ratio.

    The reference is that of one spectrum: of the spaxel with the most light where `radius` is None, else the mean over
    the spaxels of a ring (`ring_weights`). Over wavelength it is the mean of the bins in the window, or the median of
    the covered bins where there is no window (`average` False). No light, no noise.
    """

    radius: Float[Array | ndarray, ""] | None
    inside: Bool[Array | ndarray, "y x"]
    window: Bool[Array | ndarray, " wave"] = eqx.field(metadata=per_bin(pad="zero"))
    average: bool = eqx.field(static=True)

    @classmethod
    def build(cls, setup: Setup, settings: NoiseSettings) -> "TargetNoise":
        """Raises ConfigError where no bin lies in the window, or no spaxel on the ring."""
        instrument = setup.instrument
        radius = None if settings.radius is None else np.asarray(settings.radius)
        if radius is not None:
            if setup.instrument.fibres is not None:
                raise ConfigError(
                    "noise.radius: expected null for an instrument with fibres (the signal to noise is that of the "
                    "brightest fibre), got one; leave it out, or state noise.exposure"
                )
            _check_ring(setup, settings.radius)
        return cls(
            radius=radius,
            inside=instrument.inside,
            window=_window(setup, settings),
            average=settings.wavelength is not None,
        )

    def draw(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray) -> tuple[Spectra, Spectra]:
        """Normal noise of one sigma."""
        sigma = self.reference(cube, parameters) / parameters.noise.signal_to_noise

        def draw_row(row: Row, row_key: PRNGKeyArray) -> tuple[Row, Row]:
            return sigma * normal_row(row_key, row, cube.split), jnp.full_like(row, 1.0) * sigma**2

        return by_rows(draw_row, cube, key)

    def reference(self, cube: PaintedCube, parameters: Parameters) -> Float[Array, ""]:
        """The flux per voxel that signal_to_noise refers to."""
        spectrum, window, split = self._spectrum(cube, parameters), jnp.asarray(self.window), cube.split
        if self.average:
            chosen = jnp.where(window, spectrum, jnp.zeros_like(spectrum))
            light, number = split.add_up(jnp.stack([chosen.sum(), window.sum(dtype=spectrum.dtype)]))
            return light / number
        return jnp.nanmedian(split.gather(jnp.where(window, spectrum, jnp.full_like(spectrum, jnp.nan))))

    def _spectrum(self, cube: PaintedCube, parameters: Parameters) -> Spectrum:
        """The device's bins of the spectrum that the reference is taken of."""
        if self.radius is None:
            return cube.flux[jnp.argmax(cube.split.add_up(cube.split.without_padding(cube.flux).sum(axis=1)))]
        ring = ring_weights(jnp.asarray(self.inside), cube.footprint, galaxy_center(parameters), self.radius)
        return jnp.einsum("s,sw->w", cube.footprint.elements(ring), cube.flux, precision=lax.Precision.HIGHEST)


def by_rows(
    draw: Callable[..., tuple[Row, Row]], cube: PaintedCube, key: PRNGKeyArray, *others: Float[Array, " y"]
) -> tuple[Spectra, Spectra]:
    """Noise and variance row after row of spaxels, each with a separate key: no more memory than the two results.

    `draw` gets the flux of a row, its key, and its value in each of `others`.
    """
    footprint = cube.footprint
    keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(footprint.n_y))
    noise, variance = lax.map(lambda row: draw(*row), (footprint.rows(cube.flux), keys, *others))
    return footprint.elements(noise), footprint.elements(variance)


@named_arguments
def normal_row(key: PRNGKeyArray, like: Row, split: BinSplit) -> Row:
    """Standard normal numbers for a row of spaxels: those of a bin are the same whichever device holds it."""
    n_x, n_wave = like.shape
    bins = split.first() + jnp.arange(n_wave, dtype=jnp.int32)
    number = bins[None, :] * n_x + jnp.arange(n_x, dtype=jnp.int32)[:, None]
    return numbered_normal(key, number, like.dtype)


def galaxy_center(parameters: Parameters) -> Float[Array, "2"]:
    """The galaxy's centre on the field's axes (x, y), arcsec from the field's centre."""
    observation = parameters.observation
    center = jnp.concatenate([observation.offset, jnp.zeros(1, observation.offset.dtype)])[None, :]
    if observation.field_angle is not None:
        center = rotate(center, field_rotation(observation.field_angle))
    return center[0, :2]


def ring_weights(inside: Any, footprint: Footprint, center: Any, radius: Any) -> Float[Array, "y x"]:
    """Equal weights (sum 1) of the spaxels of a ring about the point `center` (x, y; arcsec) on the field's axes.

    The ring's spaxels are those in the aperture (`inside`) whose centre is at most half a spaxel's diagonal nearer to
    or farther from the point than `radius` (arcsec), so at least all that the circle runs through. All 0 if there are
    none.
    """
    x, y = footprint.centres(jnp)
    distance = jnp.hypot(x[None, :] - center[0], y[:, None] - center[1])
    near = jnp.abs(distance - radius) <= footprint.pixel_scale * np.sqrt(0.5).item()
    weights = (near & inside).astype(distance.dtype)
    return weights / jnp.maximum(jnp.sum(weights), jnp.ones((), distance.dtype))


def _check_ring(setup: Setup, radius: float | None) -> None:
    """Raise ConfigError unless every field of the run, each pointing's or the only one, holds a spaxel of the ring."""
    instrument, config = setup.instrument, setup.config
    whole = Parameters.build(config, config.engine.precision)
    fields = [displaced(whole, pointing) for pointing in pointings_of(config.observation)] or [whole]
    footprint, distance = as_dtype((instrument.footprint, radius), config.engine.precision)
    for center in (galaxy_center(field) for field in fields):
        if not np.any(ring_weights(instrument.inside, footprint, center, distance)):
            side_x, side_y = instrument.footprint.sides
            raise ConfigError(
                f"noise.radius: expected a circle about the galaxy's centre ({center[0]:g}, {center[1]:g} arcsec from "
                f"the field's) that runs through the aperture in the field of {side_x:g} x {side_y:g} arcsec, got "
                f"{radius:g} arcsec"
            )


def _window(setup: Setup, settings: NoiseSettings) -> Bool[ndarray, " wave"]:
    if settings.wavelength is None:
        return setup.covered
    wavelength = setup.instrument.bins.wavelength
    window = setup.covered & (np.abs(wavelength - settings.wavelength) <= settings.width / 2)
    if not window.any():
        first, last = wavelength[setup.covered][[0, -1]]
        raise ConfigError(
            f"noise.wavelength: expected a window that holds the centre of a bin that the templates cover "
            f"({first:.6g}-{last:.6g} Angstrom), got {settings.wavelength:g} +- {settings.width / 2:g} Angstrom"
        )
    return window


def describe_noise(
    settings: NoiseSettings | None, element: str = "spaxel", *, sky_errors: bool = False
) -> dict[str, str | int | float | None]:
    """Header entries on the noise, by NOISE_KEYS; `element`: what it is drawn for, spaxel or fibre; `sky_errors`:
    whether a systematic error says how the sky is subtracted."""
    if settings is None:
        return {}
    exposure = settings.exposure
    seed = {"noise_seed": settings.seed}
    if exposure is None:
        definition = signal_to_noise_definition(settings, element)
        return {"signal_to_noise": settings.signal_to_noise, "signal_to_noise_definition": definition, **seed}
    times = np.atleast_1d(exposure.time)
    each = {"exposure_times": ", ".join(f"{time:.10g}" for time in times)} if isinstance(exposure.time, tuple) else {}
    return {
        "exposure_time": float(times.mean()),
        **each,
        "exposure_count": exposure.count,
        "sky": ", ".join(as_tuple(exposure.sky)),
        "noise_model": "Poisson (source, sky, dark) and Gaussian (read-out), per voxel"
        + ("" if sky_errors else "; sky subtracted without error"),
        **seed,
    }


def signal_to_noise_definition(settings: NoiseSettings, element: str = "spaxel") -> str:
    """The meaning of `noise.signal_to_noise` in words."""
    place = f"of the brightest {element}"
    if settings.radius is not None:
        place = f"per voxel on the ring {settings.radius:g} arcsec from the centre of the galaxy"
    flux = "median flux over wavelength"
    if settings.wavelength is not None:
        flux = f"mean flux within {settings.width / 2:g} of {settings.wavelength:g} Angstrom"
    return f"{flux} {place} / sigma per voxel; the same sigma in all voxels"


_SECONDS_PER_HOUR = 3600.0


class ExposureNoise(AbstractNoise):
    """Poisson noise of all electrons and Gaussian read noise of a sum of exposures, sky and dark subtracted exactly.

    | field | shape | unit |
    |---|---|---|
    | gain | (wave,) | electrons of the source per 1e-20 erg/s/cm2/Angstrom in a voxel, all exposures together |
    | background | (wave,) | electrons of sky and dark current in a voxel |
    | read_variance | scalar | electrons squared in a voxel: count x pixels_per_voxel x read_noise^2 |
    | time | scalar | s of one exposure, for which gain and background hold; both grow with `noise.exposure.time` |
    | exposure | (element,) | number from 0 of each fibre's exposure, where each has a separate time; else None |

    gain = dlambda lambda / (h c) x area x time x throughput x transmission of the atmosphere. The variance is the true
    one, of the expected electrons, not of the realised ones.
    """

    gain: Float[Array | ndarray, " wave"] = eqx.field(metadata=per_bin())
    background: Float[Array | ndarray, " wave"] = eqx.field(metadata=per_bin())
    read_variance: Float[Array | ndarray, ""]
    time: Float[Array | ndarray, ""]
    exposure: Int[Array | ndarray, " element"] | None = None

    @classmethod
    def build(
        cls,
        exposure: ExposureSettings,
        instrument: InstrumentSettings,
        bins: WavelengthBins,
        fibres: FibrePlaces | None = None,
    ) -> "ExposureNoise":
        """Noise in the detector's bins; raises ConfigError without `instrument.detector`, where the sky does not cover
        them, or where a list of times has not one for each exposure of the fibres."""
        detector = instrument.detector
        if detector is None:
            raise ConfigError(
                f"instrument.detector: expected collecting_area, throughput, read_noise and dark_current of "
                f"'{instrument.name}' for noise.exposure, got null; give them (docs/noise.md says how), or use "
                f"noise.signal_to_noise"
            )
        vacuum_edges = bins.to_vacuum(bins.edges)
        sky = load_sky(exposure.sky)
        emission, transmission = _seen(sky, vacuum_edges)
        each = float(np.mean(exposure.time))
        time = each * exposure.count
        throughput = np.asarray(detector.throughput)  # without the atmosphere
        if detector.wavelength is None:
            throughput = np.full(bins.n_wave, throughput[0])
        else:
            throughput = bin_means(np.asarray(detector.wavelength), throughput, bins.edges)
        photons_to_electrons = detector.collecting_area * time * throughput
        light = PHOTONS_AT_1_ANGSTROM * bins.to_vacuum(bins.wavelength) * np.diff(bins.edges)
        sky_photons = emission * np.diff(vacuum_edges) / ANGSTROM_PER_MICRON * instrument.element_area
        dark = detector.dark_current / _SECONDS_PER_HOUR * time * detector.pixels_per_voxel
        return cls(
            gain=light * transmission * photons_to_electrons,
            background=sky_photons * photons_to_electrons + dark,
            read_variance=np.asarray(exposure.count * detector.pixels_per_voxel * detector.read_noise**2),
            time=np.asarray(each),
            exposure=_exposure_numbers(exposure, fibres),
        )

    def longer(self, parameters: Parameters) -> Float[Array, "..."]:
        """Factors on gain and background: one number, or one for each fibre."""
        ratio = parameters.noise.exposure.time / self.time
        return ratio if self.exposure is None else ratio[jnp.asarray(self.exposure)]

    def draw(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray) -> tuple[Spectra, Spectra]:
        """Noise of every voxel; light below 0, which only rounding makes, counts as none."""

        longer = jnp.broadcast_to(self.longer(parameters), (cube.footprint.n_y,))

        def draw_row(row: Row, row_key: PRNGKeyArray, times: Float[Array, ""]) -> tuple[Row, Row]:
            gain, background = (times * jnp.asarray(curve)[None, :] for curve in (self.gain, self.background))
            expected = jnp.where(row < 0, jnp.zeros_like(row), row) * gain + background
            photon_key, read_key = jax.random.split(row_key)
            read = jnp.sqrt(jnp.asarray(self.read_variance)) * normal_row(read_key, row, cube.split)
            error = poisson_noise(normal_row(photon_key, row, cube.split), expected) + read
            return error / gain, (expected + self.read_variance) / gain**2

        return by_rows(draw_row, cube, key, longer)


def _exposure_numbers(exposure: ExposureSettings, fibres: FibrePlaces | None) -> Int[ndarray, " element"] | None:
    """The number from 0 of every fibre's exposure for a list of times; None for one time."""
    if not isinstance(exposure.time, tuple):
        return None
    number = len(exposure.time)
    if fibres is None:
        raise ConfigError(
            f"noise.exposure.time: expected one time for an instrument without fibres, got a list of {number}; "
            f"give e.g. time: {exposure.time[0]:g} s, and count (noise.exposure.count) for several exposures"
        )
    if number != fibres.n_exposure:
        raise ConfigError(
            f"noise.exposure.time: expected one time, or one for each of the {fibres.n_exposure} exposures of the "
            f"fibres (instrument.fibres.dithers), got {number}"
        )
    return (fibres.exposure - 1).astype(np.int32)


def _seen(sky: Sky | None, vacuum_edges: ndarray) -> tuple[ndarray, ndarray]:
    """Emission and transmission in every bin: none and 1 without a sky."""
    if sky is None:
        return np.zeros(len(vacuum_edges) - 1), np.ones(len(vacuum_edges) - 1)
    emission, transmission = sky.on_bins(vacuum_edges)
    if np.any(transmission <= 0):
        opaque = vacuum_edges[:-1][transmission <= 0]
        raise ConfigError(
            f"noise.exposure.sky: expected an atmosphere that lets light through in all bins of the detector, got a "
            f"transmission of 0 in '{sky.name}' in {len(opaque)} bins from {opaque[0]:.1f} Angstrom; change "
            f"instrument.wavelength"
        )
    return emission, transmission


class Noise(AbstractSpectraStage):
    """Adds noise of a target signal to noise or of an exposure; identity, without a variance, for `noise: null`.

    With one key, flux = f(p) + sigma(p) e. Derivatives in galaxy and parameters p hold the standard normal e of every
    voxel: those of a target's and of read-out noise are the limits of finite differences. Photon numbers N jump
    by electrons as p changes: held is (N - n(p)) / sqrt(n(p)) instead, with the expected number n (`poisson_noise`).
    The variance has its derivatives, too. `jax.lax.stop_gradient` of both keeps noise constant.
    """

    model: AbstractNoise | None
    keep_truth: bool = eqx.field(static=True)

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "Noise":
        """The model of the run's noise section; no options."""
        refuse_options("noise", options)
        settings = setup.config.noise
        if settings is None:
            return cls(model=None, keep_truth=False)
        keep_truth = setup.config.keeps_truth
        if settings.exposure is None:
            return cls(model=TargetNoise.build(setup, settings), keep_truth=keep_truth)
        instrument = setup.instrument
        model = ExposureNoise.build(settings.exposure, setup.config.instrument, instrument.bins, instrument.fibres)
        return cls(model=model, keep_truth=keep_truth)

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:
        """The cube with noise and variance, and its noiseless flux where that is kept."""
        if self.model is None:
            return cube
        if key is None:
            raise ConfigError("noise: expected a random key, got none; set noise.seed or pass key=jax.random.key(...)")
        noise, variance = self.model.draw(cube, parameters, key)
        truth = cube.flux if self.keep_truth and cube.truth is None else cube.truth
        return dataclasses.replace(cube, flux=cube.flux + noise, variance=variance, truth=truth)
