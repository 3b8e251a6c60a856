"""The map from a painted image to the light of every fibre through a PSF that is an image, or of adaptive optics."""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy import ndarray
from numpy.lib.stride_tricks import sliding_window_view

from rubix_like.config import PSFSettings
from rubix_like.cube.fibres.fibre_spectra import FibrePlaces
from rubix_like.cube.footprint import Footprint
from rubix_like.errors import ConfigError
from rubix_like.instrument.fibres.disc_overlap import disc_overlap
from rubix_like.instrument.field_psf import FieldPSF
from rubix_like.instrument.optics.adaptive import effective_area, lights_in_discs
from rubix_like.instrument.optics.psf_image import load_psf_image, sharpening
from rubix_like.instrument.painting import Painting
from rubix_like.instrument.psf import PSF, PSFParameters
from rubix_like.instrument.psf_profile import TAPS, WavelengthNodes, sharpened
from rubix_like.runtime.arrays_on_disk import key_of, remembered
from rubix_like.runtime.words import format_bytes

_SAME = 9
"""Decimals of a pixel to which displacements are the same."""

_LARGEST_BYTES = 4_000_000_000


class Displacements(NamedTuple):
    """Distances (arcsec) of fibres from the columns and rows of cells: to the West, and to the North."""

    west: Float[ndarray, "fibre x"]
    north: Float[ndarray, "fibre y"]

    @staticmethod
    def of(places: FibrePlaces, cells: Footprint, moved: Float[ndarray, "fibre 2"] | None) -> "Displacements":
        """Of cells whose light lands `moved` (East, North) beside its place."""
        x, y = cells.centres(np)
        east, north = (0.0, 0.0) if moved is None else moved.T
        return Displacements(x[None, :] - (places.x - east)[:, None], (places.y - north)[:, None] - y[None, :])

    def chosen(self, fibres: ndarray) -> "Displacements":
        """Those of some fibres."""
        return Displacements(self.west[fibres], self.north[fibres])


class FixedFibreMap(eqx.Module):
    """`FibreMap` of a PSF without widths: exact integrals over the fibres' discs that no parameter changes.

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

        Sharpened by what the deposit spreads stars. A PSF that varies over the field is that of each place times its
        weights in the cells. Raises ConfigError where there are too many numbers.
        """
        one, field = (psf.psf, psf) if isinstance(psf, FieldPSF) else (psf, None)
        wavelength = np.array([middle]) if one.nodes is None else np.asarray(one.nodes.wavelength)
        _check_size(len(wavelength), len(places), painted)
        spreads = one.painting.deposit != "nearest"
        cells = painted.painted(TAPS if spreads else 0)
        total = np.zeros((len(wavelength), len(places), *painted.shape))
        for place, weight in zip(settings.every_place, _weights(field, painted), strict=True):
            wide = _at_each(place, wavelength, places, cells, shift)
            total += weight * (_sharp(wide, places, one.painting) if spreads else wide)
        total *= places.transparency[:, None, None]
        exposure = (places.exposure - 1).astype(np.int32)
        return cls(total.reshape(*total.shape[:2], -1), exposure, shift, places.radius)

    def matrices(self, psf: PSF, parameters: PSFParameters) -> Float[Array, "node fibre cell"]:  # noqa: ARG002
        """The shares."""
        return jnp.asarray(self.shares)

    def matrices_over_field(self, field: FieldPSF, parameters: PSFParameters) -> Float[Array, "node fibre cell"]:  # noqa: ARG002
        """The same: they are those over the field."""
        return jnp.asarray(self.shares)


def _check_size(n_wavelength: int, n_fibre: int, painted: Footprint) -> None:
    """Raise ConfigError where there are too many numbers."""
    n_byte = 8 * n_wavelength * n_fibre * painted.n_element
    if n_byte > _LARGEST_BYTES:
        raise ConfigError(
            f"instrument.psf: expected at most {format_bytes(_LARGEST_BYTES)} for what {n_fibre} fibres see of "
            f"{painted.n_element} cells at {n_wavelength} wavelengths, got {format_bytes(n_byte)}; take a smaller fov "
            f"or psf.enclosed, engine.oversampling: 1, or no refraction"
        )


def image_width(settings: PSFSettings, ends: Float[ndarray, " end"]) -> float:
    """FWHM (arcsec) of the Gaussian with the height of an image's highest pixel, or with the resolution element of what
    adaptive optics leave at the `ends` of the range (Angstrom): the narrowest among them, the planes and places."""
    widths = []
    for own in settings.every_place:
        if own.optics is not None:
            area = min(effective_area(own.optics, float(end)) for end in ends)
            widths.append(np.sqrt(2 * np.log(2) * area / np.pi))
            continue
        planes, scale, _ = load_psf_image(own)
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
            inside = _in_disc(phase_y, phase_x, half, radius).reshape(-1)
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
    for own in np.unique(phase[touches]):
        chosen = np.flatnonzero(touches & (phase == own))
        groups.append((float(own), chosen, pixel[chosen].astype(int) + half + 1))
    return groups


def _in_disc(y: float, x: float, half: int, radius: float) -> Float[ndarray, "row column"]:
    """Parts of the area of pixels of side 1 in a disc whose middle lies at (x, y) within the one in the middle."""
    left = np.arange(-half, half + 1)[None, :] - x
    bottom = np.arange(-half, half + 1)[:, None] - y
    left, bottom = np.broadcast_arrays(left, bottom)
    return disc_overlap(left, left + 1, bottom, bottom + 1, radius)


def _at_each(
    settings: PSFSettings,
    wavelength: Float[ndarray, " node"],
    places: FibrePlaces,
    cells: Footprint,
    shift: Float[ndarray, "node fibre 2"] | None,
) -> Float[ndarray, "node fibre y x"]:
    """The shares at each wavelength."""
    moved = [None] * len(wavelength) if shift is None else list(shift)
    every = [Displacements.of(places, cells, own) for own in moved]
    optics, radius = settings.optics, places.radius
    if optics is not None:
        key = key_of(optics.model_dump(), wavelength, radius, *(part for away in every for part in away))
        return np.asarray(
            remembered(
                "fibres",
                key,
                ("light",),
                lambda: {"light": lights_in_discs(optics, wavelength, radius, every)},
            )["light"]
        )
    planes, scale, table = load_psf_image(settings)
    images = _at_wavelengths(planes, table, wavelength)
    found = np.zeros((len(wavelength), len(places), *cells.shape))
    for seeing in np.unique(places.seeing):
        those = np.flatnonzero(places.seeing == seeing)
        if shift is None:
            found[:, those] = shares_of_image(images, scale * seeing, places.radius, every[0].chosen(those))
            continue
        for node, away in enumerate(every):
            one = images[node : node + 1]
            found[node, those] = shares_of_image(one, scale * seeing, places.radius, away.chosen(those))[0]
    return found


def _at_wavelengths(
    planes: Float[ndarray, "plane row column"],
    table: Float[ndarray, " plane"] | None,
    wavelength: Float[ndarray, " node"],
) -> Float[ndarray, "node row column"]:
    """The images at these wavelengths, of light 1: linear between the planes."""
    light = planes / planes.sum(axis=(1, 2), keepdims=True)
    if table is None:
        return np.broadcast_to(light, (len(wavelength), *light.shape[1:]))
    nodes = WavelengthNodes(table, degree=1)
    return np.einsum("np,pyx->nyx", nodes.shares(wavelength, np), light)


def _sharp(
    wide: Float[ndarray, "node fibre y x"], places: FibrePlaces, painting: Painting
) -> Float[ndarray, "node fibre inner_y inner_x"]:
    """Shares sharpened by as much of the deposit's variance as those of the fibre in the middle can be."""
    middle = int(np.argmin(np.hypot(places.x, places.y)))
    variance = np.asarray(sharpening(wide[:, middle], painting))
    return sharpened(sharpened(wide, 2, variance, np), 3, variance, np)


def _weights(field: FieldPSF | None, painted: Footprint) -> Iterator[Float[ndarray, "y x"]]:
    """The weight of each place of the PSF in the painted cells."""
    if field is None:
        return iter([np.ones(painted.shape)])
    rows, columns = (np.asarray(axis, np.float64) for axis in field.weights(painted))
    return (row[:, None] * column[None, :] for row, column in zip(rows, columns, strict=True))
