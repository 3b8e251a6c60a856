"""Stages `wavelength_solution` and `lsf_variation`: light that lands in other bins than the instrument says."""

import functools
from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy import ndarray

from rubix_like.constants import FWHM_PER_SIGMA, SPEED_OF_LIGHT
from rubix_like.engine.setup import Setup
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.stages.base import PaintedCube, refuse_noisy, refuse_options
from rubix_like.forward.systematics.systematic import (
    AbstractSystematic,
    ErrorRecord,
    error_key,
    place_numbers,
    spectra_numbers,
    systematics_of,
    with_error,
)
from rubix_like.instrument.detector import instrument_fwhm
from rubix_like.physics.numbered_random import numbered_normal
from rubix_like.runtime.mesh.bin_split import per_bin

_STEPS_PER_WIDTH = 2.0
"""Nodes per width of the kernel: the variance between them differs by 1e-16 of that at them."""

_REACH = 6.0
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
        first, last = wavelength[0] - _REACH * width, wavelength[-1] + _REACH * width
        nodes = first + step * np.arange(int(np.ceil((last - first) / step)) + 1)
        shapes = np.exp(-0.5 * ((wavelength[None, :] - nodes[:, None]) / width) ** 2)
        return cls(rms * shapes / np.sqrt(np.sum(shapes**2, axis=0)))

    def scaled(self, factor: float | Float[ndarray, " wave"]) -> "SmoothErrors":
        """The errors times a factor, which may depend on wavelength."""
        return SmoothErrors(self.shapes * factor)

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
    """Light as if its line spread had a variance larger (or smaller) by `variance` bins^2, small against its own.

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
    """sum_k powers[k] at^k, by Horner's rule."""
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


class WavelengthSolution(AbstractSystematic):
    """Spectra whose light is shifted along wavelength by a smooth error of each; light is conserved."""

    errors: SmoothErrors
    widths: Float[Array | ndarray, " wave"] = eqx.field(metadata=per_bin())
    number: Int[Array | ndarray, " element"]
    record: ErrorRecord = eqx.field(static=True)
    margin: int = eqx.field(static=True, default=0)
    key_number: ClassVar[int | None] = 1002

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "WavelengthSolution":
        """By `systematics.wavelength_solution`; no options. Raises ConfigError for a velocity of more than 0.3 bins."""
        refuse_options("wavelength_solution", options)
        settings, bins = systematics_of(setup).wavelength_solution, setup.instrument.bins
        assert settings is not None
        widths = np.diff(bins.edges)
        errors = SmoothErrors.build(1.0, settings.correlation, bins.wavelength, "wavelength_solution")
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
        return cls(
            errors=errors.scaled(rms), widths=widths, number=spectra_numbers(setup), record=ErrorRecord.of(setup)
        )

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The cube with shifted spectra; raises ConfigError after noise."""
        refuse_noisy("wavelength_solution", cube, _WHY)
        shift = self.errors.draw(error_key(key, self.record), self.number)
        widths = jnp.asarray(self.widths)[None, :]
        longer = (cube.split.with_neighbours(own, SHIFT_REACH) for own in (cube.flux * widths, shift))
        change = shifted_light(*longer) / widths - cube.flux
        return with_error(cube, "wavelength_solution", change, self.record)


class LSFVariation(AbstractSystematic):
    """Spectra whose line spread is wider or narrower than the instrument's by a smooth error of each spaxel or fibre;
    light is conserved."""

    errors: SmoothErrors
    variance: Float[Array | ndarray, " wave"] = eqx.field(metadata=per_bin())
    widths: Float[Array | ndarray, " wave"] = eqx.field(metadata=per_bin())
    number: Int[Array | ndarray, " element"]
    record: ErrorRecord = eqx.field(static=True)
    margin: int = eqx.field(static=True, default=0)
    key_number: ClassVar[int | None] = 1001

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "LSFVariation":
        """By `systematics.lsf_variation`; no options. Raises ConfigError for an instrument without a line spread."""
        refuse_options("lsf_variation", options)
        settings, bins, lsf = systematics_of(setup).lsf_variation, setup.instrument.bins, setup.instrument.lsf
        assert settings is not None
        if lsf is None:
            raise ConfigError(
                "systematics.lsf_variation: expected an instrument with a line spread, got lsf: null; give "
                "instrument.lsf, or set the section to null"
            )
        widths = np.diff(bins.edges)
        variance = (instrument_fwhm(lsf, bins.wavelength) / FWHM_PER_SIGMA / widths) ** 2
        errors = SmoothErrors.build(settings.rms, settings.correlation, bins.wavelength, "lsf_variation")
        return cls(
            errors=errors,
            variance=variance,
            widths=widths,
            number=place_numbers(setup),
            record=ErrorRecord.of(setup),
        )

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The cube with spectra of other widths; raises ConfigError after noise."""
        refuse_noisy("lsf_variation", cube, _WHY)
        error = self.errors.draw(error_key(key, self.record), self.number)
        added = jnp.asarray(self.variance)[None, :] * error * (2 + error)
        widths = jnp.asarray(self.widths)[None, :]
        longer = (cube.split.with_neighbours(own, WIDTH_REACH) for own in (cube.flux * widths, added))
        change = spread_light(*longer) / widths - cube.flux
        return with_error(cube, "lsf_variation", change, self.record)
