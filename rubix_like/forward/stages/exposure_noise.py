"""The noise of physical exposures: photons of source and sky, dark current, read-out."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy import ndarray

from rubix_like.config import DetectorSettings, ExposureSettings, InstrumentSettings
from rubix_like.constants import ANGSTROM_PER_MICRON, PHOTONS_AT_1_ANGSTROM
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.fibres.fibre_places import FibrePlaces
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.stages.base import PaintedCube
from rubix_like.forward.stages.noise_models import AbstractNoise, Row, Spectra, by_rows, normal_row
from rubix_like.instrument.sky import Sky, bin_means, load_sky
from rubix_like.physics.poisson import poisson_noise
from rubix_like.runtime.mesh.bin_split import per_bin

_SECONDS_PER_HOUR = 3600.0


class ExposureNoise(AbstractNoise):
    """Poisson noise of all electrons and Gaussian read noise of a sum of exposures, sky and dark subtracted exactly.

    | field | shape | unit |
    |---|---|---|
    | gain | (wave,) | electrons of the source per 1e-20 erg/s/cm2/Angstrom in a voxel, all exposures together |
    | background | (wave,) | electrons of sky and dark current in a voxel |
    | read_variance | scalar | electrons squared in a voxel: count x pixels_per_voxel x read_noise^2 |
    | time | scalar | s of one exposure, for which gain and background hold; both grow with `noise.exposure.time` |
    | exposure | (element,) | number from 0 of each fibre's exposure, where each has a time of its own; else None |

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
        one = float(np.mean(exposure.time))
        time = one * exposure.count
        photons_to_electrons = detector.collecting_area * time * _throughput(detector, bins.edges)
        light = PHOTONS_AT_1_ANGSTROM * bins.to_vacuum(bins.wavelength) * np.diff(bins.edges)
        sky_photons = emission * np.diff(vacuum_edges) / ANGSTROM_PER_MICRON * instrument.element_area
        dark = detector.dark_current / _SECONDS_PER_HOUR * time * detector.pixels_per_voxel
        return cls(
            gain=light * transmission * photons_to_electrons,
            background=sky_photons * photons_to_electrons + dark,
            read_variance=np.asarray(exposure.count * detector.pixels_per_voxel * detector.read_noise**2),
            time=np.asarray(one),
            exposure=_exposure_numbers(exposure, fibres),
        )

    def longer(self, parameters: Parameters) -> Float[Array, "..."]:
        """By what gain and background are multiplied: one number, or one for each fibre."""
        ratio = parameters.noise.exposure.time / self.time
        return ratio if self.exposure is None else ratio[jnp.asarray(self.exposure)]

    def draw(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray) -> tuple[Spectra, Spectra]:
        """Noise of every voxel; light below 0, which only rounding makes, counts as none."""

        longer = jnp.broadcast_to(self.longer(parameters), (cube.footprint.n_y,))

        def draw_row(row: Row, row_key: PRNGKeyArray, times: Float[Array, ""]) -> tuple[Row, Row]:
            gain, background = (times * jnp.asarray(own)[None, :] for own in (self.gain, self.background))
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


def _throughput(detector: DetectorSettings, edges: ndarray) -> ndarray:
    """Mean throughput of every bin, without the atmosphere."""
    if detector.wavelength is None:
        return np.full(len(edges) - 1, detector.throughput[0])
    return bin_means(np.asarray(detector.wavelength), np.asarray(detector.throughput), edges)
