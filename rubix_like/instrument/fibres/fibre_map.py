"""The linear map from a painted image to the light of every fibre, through the seeing."""

import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int
from numpy import ndarray
from numpy.lib.stride_tricks import sliding_window_view

from rubix_like.config import InstrumentSettings, PSFSettings
from rubix_like.constants import FWHM_PER_SIGMA
from rubix_like.cube.fibres.fibre_spectra import FibrePlaces
from rubix_like.cube.footprint import Footprint
from rubix_like.errors import ConfigError
from rubix_like.instrument.field_psf import FieldPSF
from rubix_like.instrument.painting import Painting
from rubix_like.instrument.psf import PSF, PSFParameters
from rubix_like.instrument.psf_images import effective_area, lights_in_discs, load_psf_image, sharpening
from rubix_like.instrument.psf_profile import TAPS, WavelengthNodes, sharpened
from rubix_like.physics.discs import disc_overlap
from rubix_like.runtime.arrays_on_disk import key_of, remembered
from rubix_like.runtime.words import format_bytes

_NARROWEST = 1e-3
"""FWHM (arcsec) below which a profile stays as it is, so that its gradient is finite at a width of 0."""


def share_in_fibre(
    distance: Float[Array, " r"],
    radius: float,
    fwhm: Float[Array, ""],
    beta: Float[Array, ""] | None,
    n_angle: int,
) -> Float[Array, " r"]:
    """Share of a point's light within a disc of `radius` whose centre is at `distance` (both in arcsec, as `fwhm`).

    Gaussian, or Moffat with `beta`. A circular PSF is the divergence of E(d) / (2 pi d^2) times the place d, where E(d)
    is the light within the distance d; so by Gauss's theorem its integral over the disc is one over the disc's edge,

        (1 / pi) integral from 0 to pi of E(d) / d^2 (R^2 + r R cos t) dt,   d^2 = r^2 + R^2 + 2 r R cos t.

    The integrand is smooth and periodic, so that the error of the sum over `n_angle` angles falls exponentially.
    """
    angle = (np.arange(n_angle) + 0.5) * (np.pi / n_angle)
    cosine = jnp.asarray(np.cos(angle), distance.dtype)[None, :]
    sine2 = jnp.asarray(np.sin(angle) ** 2, distance.dtype)[None, :]
    away = distance[:, None]
    square = (away + radius * cosine) ** 2 + radius**2 * sine2
    edge = radius**2 + radius * away * cosine
    width = jnp.maximum(fwhm, _NARROWEST)
    if beta is None:  # E(d) = 1 - exp(-d^2 / (2 sigma^2)), or 1 - (1 + (d / alpha)^2)^(1 - beta)
        light = -jnp.expm1(square * (-0.5 * (FWHM_PER_SIGMA / width) ** 2))
    else:
        alpha2 = width**2 / (4.0 * (2.0 ** (1.0 / beta) - 1.0))
        light = -jnp.expm1((1.0 - beta) * jnp.log1p(square / alpha2))
    return jnp.mean(light / square * edge, axis=1)


def angles_for(radius: float, fwhm: float) -> int:
    """Angles that `share_in_fibre` needs for errors below 1e-7: the sharper the PSF in the disc, the more."""
    return int(np.clip(np.ceil(24.0 * radius / fwhm) + 8, 16, 1024))


def interpolated(table: Float[Array, " r"], place: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Values at `place` (>= 0, in steps) of an even function that is tabulated at 0, 1, 2, ...: by cubics through the
    four nearest. The table must go two steps beyond the largest place."""
    first = jnp.floor(place)
    number = first.astype(jnp.int32)
    t = place - first
    before, here, after, last = (table[jnp.abs(number + step)] for step in (-1, 0, 1, 2))
    return (
        before * (-t * (t - 1.0) * (t - 2.0) / 6.0)
        + here * ((t + 1.0) * (t - 1.0) * (t - 2.0) / 2.0)
        + after * (-(t + 1.0) * t * (t - 2.0) / 2.0)
        + last * ((t + 1.0) * t * (t - 1.0) / 6.0)
    )


_STEPS_PER_FWHM = 40.0
"""Radii of the table per FWHM: cubics between them are right to 1e-6 of a fibre's light."""


class FibreMap(eqx.Module):
    """The light of a star in each painted cell that every fibre collects: the PSF integrated over the fibre's disc.

    It is tabulated by the distance of cell and fibre for the seeing of each exposure, and sharpened by what the deposit
    spreads stars, as the PSF of spaxels is.

    | field | shape | |
    |---|---|---|
    | x, y | (fibre,) | arcsec East and North of the field's centre |
    | exposure | (fibre,) | which of `seeing`, from 0 |
    | seeing | (exposure,) | FWHM relative to the PSF's |
    | transparency | (fibre,) | part of the light that arrives |
    | field | Footprint | the cells that are painted |
    | step | scalar | arcsec between the table's radii |
    | shift | (node, fibre, 2) or None | (x, y) in arcsec by which light lands beside its place, at the PSF's nodes |
    | n_step, n_angle, radius, painting | static | length of the table; of its sums; arcsec of the core; the deposit |
    """

    x: Float[Array | ndarray, " fibre"]
    y: Float[Array | ndarray, " fibre"]
    exposure: Int[Array | ndarray, " fibre"]
    seeing: Float[Array | ndarray, " exposure"]
    transparency: Float[Array | ndarray, " fibre"]
    field: Footprint
    step: Float[Array | ndarray, ""]
    n_step: int = eqx.field(static=True)
    n_angle: int = eqx.field(static=True)
    radius: float = eqx.field(static=True)
    painting: Painting = eqx.field(static=True)
    shift: Float[Array | ndarray, "node fibre 2"] | None = None

    @classmethod
    def build(
        cls,
        settings: InstrumentSettings,
        places: FibrePlaces,
        painted: Footprint,
        painting: Painting,
        shift: Float[ndarray, "node fibre 2"] | None = None,
    ) -> "FibreMap":
        """The map from the cells of `painted`, for the widths of the settings' PSF."""
        psf = settings.psf
        assert psf is not None
        first = np.unique(places.exposure, return_index=True)[1]
        narrowest = min(psf.narrowest * float(places.seeing.min()), places.radius)  # a fit may narrow the PSF
        cell = float(painted.pixel_scale)
        beside = 0.0 if shift is None else float(np.abs(shift).max())
        farthest = [
            max(np.max(np.abs(place)) + beside + (size / 2 + TAPS) * cell, 0.0)
            for place, size in ((places.x, painted.n_x), (places.y, painted.n_y))
        ]
        step = narrowest / _STEPS_PER_FWHM
        return cls(
            x=places.x,
            y=places.y,
            exposure=(places.exposure - 1).astype(np.int32),
            seeing=places.seeing[first],
            transparency=places.transparency,
            field=painted,
            step=np.asarray(step),
            n_step=int(np.ceil(np.hypot(*farthest) / step)) + 4,
            n_angle=angles_for(places.radius, narrowest),
            radius=places.radius,
            painting=painting,
            shift=shift,
        )

    def matrices(self, psf: PSF, parameters: PSFParameters) -> Float[Array, "node fibre cell"]:
        """The share of each cell's light in every fibre, at the wavelengths of the PSF's nodes (or the one for all);
        cells row after row."""
        fwhm, beta = psf.at_nodes(parameters)
        fraction = parameters.fraction
        share = [1.0] if fraction is None else list(jnp.asarray(fraction) / jnp.asarray(fraction).sum())
        widths = fwhm.reshape(fwhm.shape[0], -1)

        def of_node(away: Array, widths: Array, beta: Array | None) -> Float[Array, "fibre y x"]:
            parts = [part * self._of_one(away, width, beta) for part, width in zip(share, widths, strict=True)]
            return sum(parts[1:], start=parts[0])

        if self.shift is None:
            away, betas = self._distances(fwhm.dtype), [None] * len(widths) if beta is None else list(beta)
            of_nodes = jnp.stack([of_node(away, *node) for node in zip(list(widths), betas, strict=True)])
        else:
            each = jnp.asarray(self.shift, fwhm.dtype), widths, beta
            of_nodes = lax.map(lambda node: of_node(self._distances(fwhm.dtype, node[0]), *node[1:]), each)
        matrices = of_nodes * jnp.asarray(self.transparency, fwhm.dtype)[None, :, None, None]
        return matrices.reshape(*matrices.shape[:2], -1)

    def matrices_over_field(self, field: FieldPSF, parameters: PSFParameters) -> Float[Array, "node fibre cell"]:
        """The matrices for a PSF that varies over the field: the sum over places, each with its weights in cells."""
        rows, columns = field.weights(self.field)

        def of_place(place: tuple[Array, Array, Array, Array]) -> Float[Array, "node fibre cell"]:
            matrices = self.matrices(field.psf, field.at_place(parameters, *place[:2]))
            weights = (place[2][:, None] * place[3][None, :]).reshape(-1)
            return matrices * weights.astype(matrices.dtype)[None, None, :]

        places = jnp.asarray(field.width), jnp.asarray(field.beta), rows, columns
        first = of_place(jax.tree.map(lambda leaf: leaf[0], places))
        others = jax.tree.map(lambda leaf: leaf[1:], places)
        return lax.scan(lambda total, place: (total + of_place(place), None), first, others)[0]

    def _of_one(
        self, away: Float[Array, "fibre y x"], fwhm: Float[Array, ""], beta: Float[Array, ""] | None
    ) -> Float[Array, "fibre inner_y inner_x"]:
        radii = jnp.arange(self.n_step, dtype=away.dtype) * self.step
        tables = [share_in_fibre(radii, self.radius, fwhm * seeing, beta, self.n_angle) for seeing in self.seeing]
        apart = away.reshape(len(tables), -1, *away.shape[1:])
        shares = jnp.concatenate([interpolated(*exposure) for exposure in zip(tables, apart, strict=True)])
        if not self._sharpens:
            return shares
        variance = self.painting.taken_off(fwhm / (self.field.pixel_scale * self.painting.cells))
        return sharpened(sharpened(shares, 1, variance), 2, variance)

    @property
    def _sharpens(self) -> bool:
        return self.painting.deposit != "nearest"

    def _distances(self, dtype: np.dtype, moved: Float[Array, "fibre 2"] | None = None) -> Float[Array, "fibre y x"]:
        """From each fibre to where the light of all cells lands, and of those beyond them that sharpening needs, in
        steps of the table."""
        beyond = TAPS if self._sharpens else 0
        x, y = self.field.painted(beyond).centres(jnp)
        at_x, at_y = jnp.asarray(self.x, dtype), jnp.asarray(self.y, dtype)
        if moved is not None:
            at_x, at_y = at_x - moved[:, 0], at_y - moved[:, 1]
        east = (x.astype(dtype)[None, :] - at_x[:, None]) ** 2
        north = (y.astype(dtype)[None, :] - at_y[:, None]) ** 2
        return jnp.sqrt(north[:, :, None] + east[:, None, :]) / self.step


def margin_for(places: FibrePlaces, footprint: Footprint, reach: int, beside: float = 0.0) -> int:
    """Spaxels beyond the field on each side from which fibres collect light, where the PSF reaches `reach` spaxels and
    light lands up to `beside` arcsec beside its place."""
    wider = float(places.seeing.max()) * reach * footprint.pixel_scale + places.radius + beside
    beyond = [
        (np.max(np.abs(place)) + wider - side / 2) / footprint.pixel_scale
        for place, side in zip((places.x, places.y), footprint.sides, strict=True)
    ]
    return max(0, int(np.ceil(max(beyond))))


_SAME = 9
"""Decimals of a pixel to which displacements are the same."""

_LARGEST_BYTES = 4_000_000_000


class Displacements(NamedTuple):
    """Distances (arcsec) of fibres from the columns and rows of cells: to the West, and to the North."""

    west: Float[ndarray, "fibre x"]
    north: Float[ndarray, "fibre y"]

    @staticmethod
    def of(places: FibrePlaces, cells: Footprint, moved: Float[ndarray, "fibre 2"] | None) -> "Displacements":
        """The distances from cells whose light lands `moved` (East, North) beside its place."""
        x, y = cells.centres(np)
        east, north = (0.0, 0.0) if moved is None else moved.T
        return Displacements(x[None, :] - (places.x - east)[:, None], (places.y - north)[:, None] - y[None, :])

    def chosen(self, fibres: ndarray) -> "Displacements":
        """The displacements of some fibres."""
        return Displacements(self.west[fibres], self.north[fibres])


class FixedFibreMap(eqx.Module):
    """The map of a PSF without widths: exact integrals over the fibres' discs that no parameter changes.

    | field | shape | |
    |---|---|---|
    | shares | (node, fibre, cell) | of each cell's light in every fibre; cells row after row |
    | exposure | (fibre,) | which exposure, from 0 |
    | shift | (node, fibre, 2) or None | (x, y) in arcsec by which light lands beside its place, at the PSF's nodes |
    | radius | static | arcsec: of the core |
    """

    shares: Float[Array | ndarray, "node fibre cell"]
    exposure: Int[Array | ndarray, " fibre"]
    shift: Float[Array | ndarray, "node fibre 2"] | None
    radius: float = eqx.field(static=True)

    @classmethod
    def build(
        cls,
        settings: PSFSettings,
        psf: PSF | FieldPSF,
        places: FibrePlaces,
        painted: Footprint,
        shift: Float[ndarray, "node fibre 2"] | None,
        middle: float,
    ) -> "FixedFibreMap":
        """The map from the cells of `painted` at the PSF's nodes, or at `middle` (Angstrom) where there are none.

        Sharpened by the deposit's spread of stars. A PSF that varies over the field is that of each place times its
        weights in the cells. Raises ConfigError where there are too many numbers.
        """
        weights: Iterable[ndarray] = [np.ones(painted.shape)]
        if isinstance(psf, FieldPSF):
            rows, columns = (np.asarray(axis, np.float64) for axis in psf.weights(painted))
            weights = (row[:, None] * column[None, :] for row, column in zip(rows, columns, strict=True))
            psf = psf.psf
        wavelength = np.array([middle]) if psf.nodes is None else np.asarray(psf.nodes.wavelength)
        n_byte = 8 * len(wavelength) * len(places) * painted.n_element
        if n_byte > _LARGEST_BYTES:
            raise ConfigError(
                f"instrument.psf: expected at most {format_bytes(_LARGEST_BYTES)} for what {len(places)} fibres see of "
                f"{painted.n_element} cells at {len(wavelength)} wavelengths, got {format_bytes(n_byte)}; take a "
                f"smaller fov or psf.enclosed, engine.oversampling: 1, or no refraction"
            )
        spreads = psf.painting.deposit != "nearest"
        cells = painted.painted(TAPS if spreads else 0)
        total = np.zeros((len(wavelength), len(places), *painted.shape))
        for place, weight in zip(settings.every_place, weights, strict=True):
            wide = _at_each(place, wavelength, places, cells, shift)
            if spreads:  # by as much of the deposit's variance as the shares of the fibre in the middle can be
                middle_fibre = int(np.argmin(np.hypot(places.x, places.y)))
                variance = np.asarray(sharpening(wide[:, middle_fibre], psf.painting))
                wide = sharpened(sharpened(wide, 2, variance, np), 3, variance, np)
            total += weight * wide
        total *= places.transparency[:, None, None]
        exposure = (places.exposure - 1).astype(np.int32)
        return cls(total.reshape(*total.shape[:2], -1), exposure, shift, places.radius)

    def matrices(self, psf: PSF, parameters: PSFParameters) -> Float[Array, "node fibre cell"]:  # noqa: ARG002
        """The shares."""
        return jnp.asarray(self.shares)

    def matrices_over_field(self, field: FieldPSF, parameters: PSFParameters) -> Float[Array, "node fibre cell"]:  # noqa: ARG002
        """The shares, which are those over the field."""
        return jnp.asarray(self.shares)


def image_width(settings: PSFSettings, ends: Float[ndarray, " end"]) -> float:
    """FWHM (arcsec) of the Gaussian with the height of an image's highest pixel, or with the resolution element of what
    adaptive optics leave at the `ends` of the range (Angstrom): the narrowest among them, the planes and places."""
    widths = []
    for place in settings.every_place:
        if place.optics is not None:
            area = min(effective_area(place.optics, float(end)) for end in ends)
            widths.append(np.sqrt(2 * np.log(2) * area / np.pi))
        else:
            planes, scale, _ = load_psf_image(place)
            highest = (planes / planes.sum(axis=(1, 2), keepdims=True)).max() / scale**2
            widths.append(np.sqrt(4 * np.log(2) / (np.pi * highest)))
    return float(min(widths))


def shares_of_image(
    planes: Float[ndarray, "plane row column"], scale: float, radius: float, away: Displacements
) -> Float[ndarray, "plane fibre y x"]:
    """Light of images (of light 1, about the middle of the array) within discs of `radius`: the sum over pixels of
    side `scale` (both in arcsec) of their light times the part of their area in the disc, which is exact."""
    radius, half = radius / scale, int(np.ceil(radius / scale)) + 1
    margin = 2 * half + 1
    padded = np.pad(planes, ((0, 0), (margin, margin), (margin, margin)))
    windows = sliding_window_view(padded, (margin, margin), axis=(1, 2))
    n_row, n_column = planes.shape[1:]
    found = np.zeros((len(planes), *away.north.shape, away.west.shape[1]))
    for fibre, (north, west) in enumerate(zip(away.north, away.west, strict=True)):
        rows, columns = _split(north / scale, n_row, half), _split(west / scale, n_column, half)
        for (phase_y, row_of, first_row), (phase_x, column_of, first_column) in itertools.product(rows, columns):
            left = np.arange(-half, half + 1)[None, :] - phase_x
            bottom = np.arange(-half, half + 1)[:, None] - phase_y
            left, bottom = np.broadcast_arrays(left, bottom)
            inside = disc_overlap(left, left + 1, bottom, bottom + 1, radius).reshape(-1)
            for row, first in zip(row_of, first_row, strict=True):
                seen = windows[:, first, first_column].reshape(len(planes), len(column_of), -1)
                found[:, fibre, row, column_of] = seen @ inside
    return found


def _split(place: Float[ndarray, " n"], size: int, half: int) -> Sequence[tuple[float, ndarray, ndarray]]:
    """Displacements (pixels) along an axis by where in a pixel a disc's middle then lies: that, their numbers, and the
    first pixels of the padded axis that the disc can touch. Without those that touch none."""
    at = np.round(place + size / 2, _SAME)
    pixel = np.floor(at)
    phase = np.round(at - pixel, _SAME)
    touches = (pixel > -half - 1) & (pixel < size + half)
    groups = []
    for middle in np.unique(phase[touches]):
        chosen = np.flatnonzero(touches & (phase == middle))
        groups.append((float(middle), chosen, pixel[chosen].astype(int) + half + 1))
    return groups


def _at_each(
    settings: PSFSettings,
    wavelength: Float[ndarray, " node"],
    places: FibrePlaces,
    cells: Footprint,
    shift: Float[ndarray, "node fibre 2"] | None,
) -> Float[ndarray, "node fibre y x"]:
    shifts = [None] * len(wavelength) if shift is None else list(shift)
    every = [Displacements.of(places, cells, moved) for moved in shifts]
    optics, radius = settings.optics, places.radius
    if optics is not None:
        key = key_of(optics.model_dump(), wavelength, radius, *(part for away in every for part in away))
        make = functools.partial(lights_in_discs, optics, wavelength, radius, every)
        return np.asarray(remembered("fibres", key, ("light",), lambda: {"light": make()})["light"])
    planes, scale, table = load_psf_image(settings)
    images = planes / planes.sum(axis=(1, 2), keepdims=True)
    if table is None:
        images = np.broadcast_to(images, (len(wavelength), *images.shape[1:]))
    else:  # linear between the planes
        shares = WavelengthNodes(table, degree=1).shares(wavelength, np)
        images = np.einsum("np,pyx->nyx", shares, images)
    found = np.zeros((len(wavelength), len(places), *cells.shape))
    for seeing in np.unique(places.seeing):
        those = np.flatnonzero(places.seeing == seeing)
        if shift is None:
            found[:, those] = shares_of_image(images, scale * seeing, radius, every[0].chosen(those))
            continue
        for node, away in enumerate(every):
            image = images[node : node + 1]
            found[node, those] = shares_of_image(image, scale * seeing, radius, away.chosen(those))[0]
    return found
