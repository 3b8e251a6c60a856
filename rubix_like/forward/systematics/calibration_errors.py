"""Systematic errors of calibration: wavelength solution, line spread, sky, flat field, flux and telluric lines."""

import functools
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy import ndarray
from scipy.ndimage import median_filter

from rubix_like.config.sections.noise import (
    NO_SKY,
    FlatFieldSettings,
    FluxCalibrationSettings,
    LSFVariationSettings,
    SkySubtractionSettings,
    TelluricSettings,
    WavelengthSolutionSettings,
)
from rubix_like.constants import ANGSTROM_PER_MICRON, FWHM_PER_SIGMA, PHOTONS_AT_1_ANGSTROM, SPEED_OF_LIGHT
from rubix_like.engine.setup import Setup
from rubix_like.errors import ConfigError
from rubix_like.forward.stages.base import PaintedCube, refuse_noisy
from rubix_like.forward.systematics.systematic import (
    AbstractAddedChange,
    AbstractRelativeChange,
    ErrorRecord,
    Spectra,
    exposure_numbers,
    exposures_added,
    place_numbers,
    spectra_numbers,
)
from rubix_like.instrument.detector import instrument_fwhm
from rubix_like.instrument.sky import Sky, bin_means, load_sky
from rubix_like.physics.numbered_random import numbered_normal
from rubix_like.runtime.mesh.bin_split import per_bin

_STEPS_PER_WIDTH = 2.0
"""Nodes per width of the kernel: the variance between them differs by 1e-16 of that at them."""

_LSF_REACH = 6.0
"""Widths of the kernel that it reaches: exp(-18) of its peak is cut off."""

_LEAST_BINS = 2.0


class SmoothErrors(eqx.Module):
    """Normal errors of mean 0 and of one rms, with the correlation exp(-d^2 / (2 L^2)) over wavelength.

    White noise at nodes is convolved with a Gaussian of width L / sqrt(2): error(wave) = sum_n z_n shape_n(wave), where
    sum_n shape_n^2 = rms^2 at every wavelength. Without a length all wavelengths share one number.
    """

    shapes: Float[Array | ndarray, "node wave"] = eqx.field(metadata=per_bin())

    @classmethod
    def build(
        cls, rms: float, correlation: float | None, wavelength: Float[ndarray, " wave"], name: str
    ) -> "SmoothErrors":
        """`rms` of the errors, `correlation` L in Angstrom; raises ConfigError for one shorter than two bins."""
        if correlation is None:
            return cls(np.full((1, len(wavelength)), rms))
        widest = float(np.max(np.diff(wavelength))) if len(wavelength) > 1 else 0.0
        if correlation < _LEAST_BINS * widest:
            raise ConfigError(
                f"systematics.{name}.correlation: expected at least {_LEAST_BINS:g} bins "
                f"({_LEAST_BINS * widest:.4g} Angstrom), got {correlation:g} Angstrom"
            )
        width = correlation / np.sqrt(2)
        step = width / _STEPS_PER_WIDTH
        first, last = wavelength[0] - _LSF_REACH * width, wavelength[-1] + _LSF_REACH * width
        nodes = first + step * np.arange(int(np.ceil((last - first) / step)) + 1)
        shapes = np.exp(-0.5 * ((wavelength[None, :] - nodes[:, None]) / width) ** 2)
        return cls(rms * shapes / np.sqrt(np.sum(shapes**2, axis=0)))

    def draw(self, key: PRNGKeyArray, number: Int[Array | ndarray, " element"]) -> Float[Array, "element wave"]:
        """The errors of spectra; those of one number are the same."""
        shapes = jnp.asarray(self.shapes)
        n_node = shapes.shape[0]
        numbers = jnp.asarray(number, jnp.int32)[:, None] * n_node + jnp.arange(n_node, dtype=jnp.int32)[None, :]
        normal = numbered_normal(key, numbers, shapes.dtype)
        return jnp.einsum("en,nw->ew", normal, shapes, precision=lax.Precision.HIGHEST)


SHIFT_REACH: int = 5
WIDTH_REACH: int = 6

_SLOPE_REACH = WIDTH_REACH // 2
_HIGHEST_POWER = 6
"""Of the shift: of the polynomials of degree 2 SHIFT_REACH, the higher terms add less than 1e-4 up to a shift of 1."""


def shifted_light(
    light: Float[Array, "element longer"], shift: Float[Array, "element longer"]
) -> Float[Array, "element wave"]:
    """Light moved by `shift` bins, at most about one, towards higher bins where it is positive.

    The light below each edge, C, is interpolated by the polynomial of degree 10 through the eleven edges about it: new
    light of bin i = C(i + 1 - shift) - C(i - shift), with the shift at edges. Every bin passes on what its neighbour
    gets. Of a Gaussian line with a sigma of 0.85, 1, 1.2, 1.5 bins the largest error is 9, 5, 2, 0.5 % of the largest
    change: the light of narrower lines is not known between bins.
    """
    n_edge = light.shape[-1] - 2 * SHIFT_REACH + 1
    at_edges = 0.5 * (shift[..., 1:] + shift[..., :-1])[..., SHIFT_REACH - 1 : SHIFT_REACH - 1 + n_edge]
    passed = jnp.zeros_like(at_edges)
    for place, powers in enumerate(_edge_weights(SHIFT_REACH)[:, 1 : _HIGHEST_POWER + 1]):
        passed = passed + light[..., place : place + n_edge] * _polynomial(powers, at_edges)
    passed = passed * at_edges
    kept = light[..., SHIFT_REACH : SHIFT_REACH + n_edge - 1]
    return kept + passed[..., :-1] - passed[..., 1:]


def spread_light(
    light: Float[Array, "element longer"], variance: Float[Array, "element longer"]
) -> Float[Array, "element wave"]:
    """Light as if its line spread had a variance larger (or smaller) by `variance` bins^2, small against its variance.

    exp(D) light to second order in D = 1/2 d/dx variance d/dx, with slopes at edges from six bins. Of a Gaussian line
    with a sigma of 1, 1.2, 1.5 bins that becomes 3 % wider the largest error is 4, 2, 1 % of the largest change.
    """
    once, inner = _diffused(light, variance)
    twice, _ = _diffused(once, inner)
    n_wave = twice.shape[-1]
    kept = light[..., WIDTH_REACH : WIDTH_REACH + n_wave]
    return kept + once[..., _SLOPE_REACH : _SLOPE_REACH + n_wave] + 0.5 * twice


def _diffused(light: Array, variance: Array) -> tuple[Array, Array]:
    """D light, `_SLOPE_REACH` bins shorter on each side, and the variance there."""
    reach = _SLOPE_REACH
    n_edge = light.shape[-1] - 2 * reach + 1
    slope = jnp.zeros_like(light[..., :n_edge])
    for place, weight in enumerate(-2 * _edge_weights(reach)[:, 2]):
        slope = slope + weight * light[..., place : place + n_edge]
    at_edges = 0.5 * (variance[..., 1:] + variance[..., :-1])[..., reach - 1 : reach - 1 + n_edge]
    flow = 0.5 * at_edges * slope
    return flow[..., 1:] - flow[..., :-1], variance[..., reach : reach + n_edge - 1]


def _polynomial(powers: Float[ndarray, " power"], at: Array) -> Array:
    value = jnp.full_like(at, powers[-1])
    for power in powers[-2::-1]:
        value = value * at + power
    return value


@functools.cache
def _edge_weights(reach: int) -> Float[ndarray, "bin power"]:
    """The light C(0) - C(-shift) that passes an edge upwards, as polynomials of the shift times the light of the
    `reach` bins below the edge and of those above; C is the polynomial through the edges of all of them."""
    edges = np.arange(-reach, reach + 1)
    inverse: Any = np.linalg.inv(np.vander(edges.astype(np.float64), increasing=True))
    basis = inverse.T  # basis[k]: powers of the polynomial that is 1 at edges[k] and 0 at the others
    below = [-basis[edges <= number].sum(axis=0) for number in range(-reach, 0)]
    above = [basis[edges > number].sum(axis=0) for number in range(reach)]
    return -np.stack([*below, *above]) * (-1.0) ** np.arange(len(edges))


_MOST_BINS = 0.3
"""Rms of shifts, as that of `wavelength_solution.rms`."""

_WHY = "it moves light before that is detected"


class WavelengthSolution(AbstractAddedChange):
    """Spectra whose light is shifted along wavelength by a smooth error of each; light is conserved."""

    errors: SmoothErrors
    widths: Float[Array | ndarray, " wave"] = eqx.field(metadata=per_bin())
    number: Int[Array | ndarray, " element"]
    record: ErrorRecord = eqx.field(static=True)
    name: ClassVar[str] = "wavelength_solution"
    key_number: ClassVar[int | None] = 1002

    @classmethod
    def of(cls, setup: Setup, settings: WavelengthSolutionSettings, record: ErrorRecord) -> "WavelengthSolution":
        """The stage by its settings; raises ConfigError for a velocity of more than 0.3 bins."""
        bins = setup.instrument.bins
        widths = np.diff(bins.edges)
        errors = SmoothErrors.build(1.0, settings.correlation, bins.wavelength, cls.name)
        if settings.velocity is not None:
            rms = settings.velocity / SPEED_OF_LIGHT * bins.wavelength / widths
            if rms.max() > _MOST_BINS:
                raise ConfigError(
                    f"systematics.wavelength_solution.velocity: expected at most {_MOST_BINS} bins "
                    f"({settings.velocity * _MOST_BINS / rms.max():.3g} km/s), got {settings.velocity:g} km/s"
                )
        else:
            assert settings.rms is not None
            rms = np.full(len(widths), settings.rms)
        errors = SmoothErrors(errors.shapes * rms)
        return cls(errors=errors, widths=widths, number=spectra_numbers(setup), record=record)

    def change(self, cube: PaintedCube, key: PRNGKeyArray) -> Spectra:
        """The shifted spectra less those that were; raises ConfigError after noise."""
        refuse_noisy(self.name, cube, _WHY)
        widths = jnp.asarray(self.widths)[None, :]
        light_and_shift = cube.flux * widths, self.errors.draw(key, self.number)
        longer = (cube.split.with_neighbours(values, SHIFT_REACH) for values in light_and_shift)
        return shifted_light(*longer) / widths - cube.flux


class LSFVariation(AbstractAddedChange):
    """Spectra whose line spread is wider or narrower than the instrument's by a smooth error of each spaxel or fibre;
    light is conserved."""

    errors: SmoothErrors
    variance: Float[Array | ndarray, " wave"] = eqx.field(metadata=per_bin())
    widths: Float[Array | ndarray, " wave"] = eqx.field(metadata=per_bin())
    number: Int[Array | ndarray, " element"]
    record: ErrorRecord = eqx.field(static=True)
    name: ClassVar[str] = "lsf_variation"
    key_number: ClassVar[int | None] = 1001

    @classmethod
    def of(cls, setup: Setup, settings: LSFVariationSettings, record: ErrorRecord) -> "LSFVariation":
        """The stage by its settings; raises ConfigError for an instrument without a line spread."""
        bins, lsf = setup.instrument.bins, setup.instrument.lsf
        if lsf is None:
            raise ConfigError(
                "systematics.lsf_variation: expected an instrument with a line spread, got lsf: null; give "
                "instrument.lsf, or set the section to null"
            )
        widths = np.diff(bins.edges)
        variance = (instrument_fwhm(lsf, bins.wavelength) / FWHM_PER_SIGMA / widths) ** 2
        errors = SmoothErrors.build(settings.rms, settings.correlation, bins.wavelength, cls.name)
        return cls(errors=errors, variance=variance, widths=widths, number=place_numbers(setup), record=record)

    def change(self, cube: PaintedCube, key: PRNGKeyArray) -> Spectra:
        """The spectra of other widths less those that were; raises ConfigError after noise."""
        refuse_noisy(self.name, cube, _WHY)
        error, widths = self.errors.draw(key, self.number), jnp.asarray(self.widths)[None, :]
        added = jnp.asarray(self.variance)[None, :] * error * (2 + error)
        longer = (cube.split.with_neighbours(values, WIDTH_REACH) for values in (cube.flux * widths, added))
        return spread_light(*longer) / widths - cube.flux


_FINE = 0.25
"""Angstrom at most of the grid that the sky is spread on."""

_MEDIAN = 200.0
"""Angstrom of the running median that is called the continuum."""

_PROBE = 0.25
"""Of the line spread's sigma: width of the Gaussian that the change with the width is found by."""

_REACH = 5.0
_BEYOND = 150.0
"""Angstrom beyond the detector that are spread and filtered with it, where the table has them."""


def sky_for(setup: Setup, names: str | tuple[str, ...] | None, section: str) -> Sky:
    """The sky of a section: the named ones, else that of `noise.exposure`, else dark. Raises ConfigError where there is
    none, or where it does not cover the detector."""
    noise = setup.config.noise
    exposure = None if noise is None else noise.exposure
    sky = load_sky(names or ("dark" if exposure is None else exposure.sky))
    if sky is None:
        raise ConfigError(f"systematics.{section}.sky: expected a sky with an atmosphere, got '{NO_SKY}'; name one")
    edges = setup.instrument.bins.to_vacuum(setup.instrument.bins.edges)
    sky.check_covers(edges, f"systematics.{section}.sky")
    return sky


def sky_patterns(sky: Sky, setup: Setup) -> dict[str, Float[ndarray, " wave"]]:
    """The patterns of a sky in the detector's bins, of the light that one spectrum gets, in 1e-20 erg/s/cm2/Angstrom
    for an error of 1: `shift` by one bin towards longer wavelengths, relative changes of the width (`lsf`), of the
    emission `lines` and of the `continuum`.

    The sky is spread by the instrument's line spread as far as that is wider than that of the table. With S the flux
    density per bin, a shift by a bin is S(lower edge) - S(upper edge), and a relative change e of the width adds
    e sigma^2 d^2S/dx^2, which is found from S and S spread by sigma / 4 more.
    """
    bins = setup.instrument.bins
    edges = bins.to_vacuum(bins.edges)
    step = min(_FINE, float(np.diff(edges).min()) / 4)
    grid = np.arange(max(sky.wavelength[0], edges[0] - _BEYOND), min(sky.wavelength[-1], edges[-1] + _BEYOND), step)
    photons = sky.emission / ANGSTROM_PER_MICRON * setup.config.instrument.element_area
    clear = np.maximum(sky.transmission, np.finfo(np.float64).tiny)  # flux above the atmosphere, as calibrated
    flux = np.interp(grid, sky.wavelength, photons / (PHOTONS_AT_1_ANGSTROM * sky.wavelength * clear))
    fwhm = np.zeros_like(grid) if setup.instrument.lsf is None else instrument_fwhm(setup.instrument.lsf, grid)
    of_table = np.interp(grid, sky.wavelength, sky.fwhm)
    spectrum = _spread(flux, np.sqrt(np.maximum(fwhm**2 - of_table**2, 0)) / FWHM_PER_SIGMA / step)
    sigma = np.maximum(fwhm, of_table) / FWHM_PER_SIGMA
    wider = _spread(spectrum, np.maximum(_PROBE * sigma / step, 1e-3)) - spectrum
    continuum = median_filter(spectrum, size=2 * int(_MEDIAN / 2 / step) + 1, mode="nearest")
    at_edges = np.interp(edges, grid, spectrum)
    return {
        "shift": at_edges[:-1] - at_edges[1:],
        "lsf": bin_means(grid, wider * 2 / _PROBE**2, edges) * (1 if fwhm.any() or of_table.any() else 0),
        "lines": bin_means(grid, spectrum - continuum, edges),
        "continuum": bin_means(grid, continuum, edges),
    }


def line_absorption(sky: Sky, setup: Setup) -> Float[ndarray, " wave"]:
    """Optical depth of the air's lines in every bin, at the zenith and at the table's resolution.

    -ln of the mean transmission of the bin, less the smooth extinction, which standard stars calibrate: the lower
    convex hull over wavelength of the table's optical depth. Raises ConfigError for a table without absorption.
    """
    edges = setup.instrument.bins.to_vacuum(setup.instrument.bins.edges)
    least = np.finfo(np.float64).tiny
    depth = -np.log(np.maximum(sky.transmission, least))
    smooth = np.exp(-_lower_hull(sky.wavelength, depth))
    found = -np.log(np.maximum(bin_means(sky.wavelength, np.maximum(sky.transmission, least) / smooth, edges), least))
    if not np.any(found > 1e-6):
        raise ConfigError(
            f"systematics.telluric.sky: expected a sky whose air absorbs in the detector's range, got '{sky.name}' "
            f"without lines there; give another table, or set the section to null"
        )
    return np.maximum(found, 0.0)


def _spread(values: Float[ndarray, " fine"], sigma: Float[ndarray, " fine"]) -> Float[ndarray, " fine"]:
    """Values convolved with a Gaussian whose width (in steps) follows the place that light comes to."""
    reach = int(np.ceil(_REACH * sigma.max()))
    if reach == 0 or sigma.max() == 0:
        return values
    width = np.maximum(sigma, 1e-3)
    total, weight = np.zeros_like(values), np.zeros_like(values)
    padded = np.pad(values, reach, mode="edge")
    for away in range(-reach, reach + 1):
        kernel = np.exp(-0.5 * (away / width) ** 2)
        total += kernel * padded[reach + away : reach + away + len(values)]
        weight += kernel
    return total / weight


def _lower_hull(x: Float[ndarray, " point"], y: Float[ndarray, " point"]) -> Float[ndarray, " point"]:
    """The largest convex function that is nowhere above the points (Andrew's monotone chain)."""
    points = list(zip(x.tolist(), y.tolist(), strict=True))
    kept: list[tuple[float, float]] = []
    for point in points:
        while len(kept) > 1:
            (x0, y0), (x1, y1) = kept[-2:]
            if (y1 - y0) * (point[0] - x0) < (point[1] - y0) * (x1 - x0):
                break  # the last one lies below the line from the one before it to this one
            kept.pop()
        kept.append(point)
    return np.interp(x, *np.transpose(kept))


class SkyResidual(AbstractAddedChange):
    """In every spectrum the sum of four patterns of the sky, each times a normal error of its own: what a wrong
    wavelength, line width, strength of lines and continuum of the subtracted sky leave, to first order in them. With
    several exposures in a spectrum it is the mean of theirs.

    `patterns` are those of errors of one rms.
    """

    patterns: Float[Array | ndarray, "pattern wave"] = eqx.field(metadata=per_bin())
    number: Int[Array | ndarray, " element"]
    record: ErrorRecord = eqx.field(static=True)
    name: ClassVar[str] = "sky_residual"
    key_number: ClassVar[int | None] = 1006

    @classmethod
    def of(cls, setup: Setup, settings: SkySubtractionSettings, record: ErrorRecord) -> "SkyResidual":
        """The stage by its settings; raises ConfigError for a sky that does not cover the detector."""
        patterns = sky_patterns(sky_for(setup, settings.sky, cls.name), setup)
        rms = np.array([getattr(settings, name) for name in patterns]) / np.sqrt(exposures_added(setup))
        return cls(patterns=rms[:, None] * np.stack([*patterns.values()]), number=spectra_numbers(setup), record=record)

    def change(self, cube: PaintedCube, key: PRNGKeyArray) -> Spectra:
        """The residual."""
        patterns = jnp.asarray(self.patterns)
        each = jnp.arange(len(patterns), dtype=jnp.int32)[None, :]
        normal = numbered_normal(key, jnp.asarray(self.number)[:, None] * len(patterns) + each, cube.flux.dtype)
        return jnp.einsum("ep,pw->ew", normal, patterns, precision=lax.Precision.HIGHEST)


class FlatField(AbstractRelativeChange):
    """Each spaxel or fibre times 1 + a smooth error of its own, the same in all exposures."""

    errors: SmoothErrors
    number: Int[Array | ndarray, " element"]
    record: ErrorRecord = eqx.field(static=True)
    name: ClassVar[str] = "flat_field"
    key_number: ClassVar[int | None] = 1005

    @classmethod
    def of(cls, setup: Setup, settings: FlatFieldSettings, record: ErrorRecord) -> "FlatField":
        """The errors of every spaxel or fibre."""
        wavelength = setup.instrument.bins.wavelength
        errors = SmoothErrors.build(settings.rms, settings.correlation, wavelength, cls.name)
        return cls(errors=errors, number=place_numbers(setup), record=record)

    def error(self, key: PRNGKeyArray) -> Spectra:
        """A relative error for each spaxel or fibre."""
        return self.errors.draw(key, self.number)


class FluxCalibration(AbstractRelativeChange):
    """All spectra of an exposure times 1 + a smooth error: what of it changes with wavelength, and what does not. With
    several exposures in a spectrum the error is the mean of theirs."""

    errors: SmoothErrors
    absolute: SmoothErrors
    number: Int[Array | ndarray, " element"]
    record: ErrorRecord = eqx.field(static=True)
    name: ClassVar[str] = "flux_calibration"
    key_number: ClassVar[int | None] = 1008

    @classmethod
    def of(cls, setup: Setup, settings: FluxCalibrationSettings, record: ErrorRecord) -> "FluxCalibration":
        """The errors of every exposure."""
        wavelength, mean = setup.instrument.bins.wavelength, 1 / np.sqrt(exposures_added(setup))
        errors = SmoothErrors.build(settings.rms * mean, settings.correlation, wavelength, cls.name)
        absolute = SmoothErrors.build(settings.absolute * mean, None, wavelength, cls.name)
        return cls(errors=errors, absolute=absolute, number=exposure_numbers(setup), record=record)

    def error(self, key: PRNGKeyArray) -> Spectra:
        """A relative error for each exposure."""
        first, second = jax.random.split(key)
        return self.errors.draw(first, self.number) + self.absolute.draw(second, self.number)


class Telluric(AbstractRelativeChange):
    """All spectra of an exposure times exp(-(left + residual z) depth), where `depth` is the optical depth of the
    air's lines and z a standard normal number of the exposure."""

    depth: Float[Array | ndarray, " wave"] = eqx.field(metadata=per_bin())
    left: Float[Array | ndarray, ""]
    residual: Float[Array | ndarray, ""]
    number: Int[Array | ndarray, " element"]
    record: ErrorRecord = eqx.field(static=True)
    name: ClassVar[str] = "telluric"
    key_number: ClassVar[int | None] = 1007

    @classmethod
    def of(cls, setup: Setup, settings: TelluricSettings, record: ErrorRecord) -> "Telluric":
        """The stage by its settings; raises ConfigError for a sky that does not reach the detector's range, or that
        absorbs nothing there.
        """
        depth = line_absorption(sky_for(setup, settings.sky, cls.name), setup)
        residual = np.asarray(settings.residual / np.sqrt(exposures_added(setup)))
        left, number = np.asarray(settings.left), exposure_numbers(setup)
        return cls(depth=depth, left=left, residual=residual, number=number, record=record)

    def error(self, key: PRNGKeyArray) -> Spectra:
        """The error from the absorption that is left in each exposure."""
        depth = jnp.asarray(self.depth)
        normal = numbered_normal(key, jnp.asarray(self.number), depth.dtype)
        amount = jnp.asarray(self.left) + jnp.asarray(self.residual) * normal
        return jnp.expm1(-amount[:, None] * depth[None, :])
