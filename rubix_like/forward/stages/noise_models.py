"""Models of the noise: what is added to the flux of a voxel, and the variance of it."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.config import NoiseSettings
from rubix_like.config.quantities import as_tuple
from rubix_like.cube.footprint import Footprint
from rubix_like.engine.setup import Setup
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters, displaced
from rubix_like.forward.stages.base import PaintedCube
from rubix_like.galaxy.scene import rotate
from rubix_like.instrument.pointing import pointings_of
from rubix_like.physics.numbered_random import numbered_normal
from rubix_like.physics.rotations import field_rotation
from rubix_like.runtime.mesh.bin_split import BinSplit, per_bin
from rubix_like.runtime.mesh.placement import as_dtype

Spectra = Float[Array, "element wave"]
Row = Float[Array, "x wave"]
Spectrum = Float[Array, " wave"]


class AbstractNoise(eqx.Module):
    """One model of the noise of a cube."""

    @abstractmethod
    def draw(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray) -> tuple[Spectra, Spectra]:
        """Noise to be added to the flux of a noiseless cube, and its true variance (unit of the flux, squared).

        The cube and the model's own tables hold the bins of this device (`cube.split`). What is drawn for a voxel must
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
            _check_spaxels(setup)
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
        """The own bins of the spectrum that the reference is taken of."""
        if self.radius is None:
            return cube.flux[jnp.argmax(cube.split.add_up(cube.split.without_padding(cube.flux).sum(axis=1)))]
        ring = ring_weights(jnp.asarray(self.inside), cube.footprint, galaxy_center(parameters), self.radius)
        return jnp.einsum("s,sw->w", cube.footprint.elements(ring), cube.flux, precision=lax.Precision.HIGHEST)


def by_rows(
    draw: Callable[..., tuple[Row, Row]], cube: PaintedCube, key: PRNGKeyArray, *others: Float[Array, " y"]
) -> tuple[Spectra, Spectra]:
    """Noise and variance row after row of spaxels, each with its own key: no more memory than the two results.

    `draw` gets the flux of a row, its key, and its value in each of `others`.
    """
    footprint = cube.footprint
    keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(footprint.n_y))
    noise, variance = lax.map(lambda one: draw(*one), (footprint.images(cube.flux), keys, *others))
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


def _check_spaxels(setup: Setup) -> None:
    """Raise ConfigError for a ring of spaxels where noise is that of fibres."""
    if setup.instrument.fibres is not None:
        raise ConfigError(
            "noise.radius: expected null for an instrument with fibres (the signal to noise is that of the brightest "
            "fibre), got one; leave it out, or state noise.exposure"
        )


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
    """The covered bins that the reference is taken over."""
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
    """What the header says of the noise, by NOISE_KEYS; `element`: what it is drawn for, spaxel or fibre; `sky_errors`:
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
    """What `noise.signal_to_noise` means, in words."""
    place = f"of the brightest {element}"
    if settings.radius is not None:
        place = f"per voxel on the ring {settings.radius:g} arcsec from the centre of the galaxy"
    flux = "median flux over wavelength"
    if settings.wavelength is not None:
        flux = f"mean flux within {settings.width / 2:g} of {settings.wavelength:g} Angstrom"
    return f"{flux} {place} / sigma per voxel; the same sigma in all voxels"
