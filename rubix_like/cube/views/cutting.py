"""Parts of a cube: a range of wavelengths, a box on the sky."""

import dataclasses
import logging
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from astropy import units
from astropy.coordinates import SkyCoord
from astropy.wcs.utils import pixel_to_skycoord, skycoord_to_pixel
from jaxtyping import Float
from numpy import ndarray

from rubix_like.config.quantities import parse_pair, parse_quantity
from rubix_like.constants import CUBE_FLUX_DENSITY
from rubix_like.cube.cube import Cube, ExtractedSpectrum
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.views.imaging import bins_within
from rubix_like.physics.discs import disc_overlap
from rubix_like.runtime.words import percent

Place = SkyCoord | Sequence[Any] | str
"""A place on the sky: a SkyCoord, text that it reads, or (RA, Dec), each with a unit or in degrees."""

Offset = Sequence[Any]
"""(East, North) of the field's centre, each with a unit or in arcsec."""

_ROUNDING = 1e-9
"""Degrees by which two angles differ that are the same."""


def sky_at(cube: Cube, x: Any, y: Any) -> Any:
    """The place (SkyCoord) of positions in spaxels."""
    return pixel_to_skycoord(x, y, cube.wcs.celestial)


def position_of(cube: Cube, at: Place | None, offset: Offset | None) -> tuple[float, float]:
    """The position (x, y) in spaxels, counted from 0 at the centre of the first, of a place; default: the field's
    centre. Raises ValueError where both are given, or one cannot be read."""
    if at is not None and offset is not None:
        raise ValueError("expected a place as 'at' or as 'offset', got both; leave one out")
    middle = (cube.n_x - 1) / 2, (cube.n_y - 1) / 2
    if offset is not None:
        east, north = parse_pair(offset, "arcsec", "offset", "(East, North)")
        angle = np.radians(float(cube.meta.get("field_angle") or 0.0))
        along_x = east * np.cos(angle) - north * np.sin(angle)  # against the columns, whose first is East
        along_y = east * np.sin(angle) + north * np.cos(angle)
        return middle[0] - float(along_x) / cube.pixel_scale, middle[1] + float(along_y) / cube.pixel_scale
    if at is None:
        return middle
    place = _as_coordinates(at)
    if cube.meta.get("ra") is None or cube.meta.get("dec") is None:
        raise ValueError("at: expected a cube with ra and dec in its meta, got one without; give offset=(East, North)")
    x, y = np.asarray(skycoord_to_pixel(place, cube.wcs.celestial), np.float64)
    if not (np.isfinite(x) and np.isfinite(y)):
        away = float(sky_at(cube, *middle).separation(place).deg)
        raise ValueError(f"at: expected a place within 90 deg of the cube's field, got {at!r}, {away:.4g} deg away")
    return float(x), float(y)


def _as_coordinates(at: Place) -> SkyCoord:
    if isinstance(at, str):
        try:
            at = SkyCoord(at)
        except ValueError as error:
            raise ValueError(f"at: expected a text such as '10h00m00s +02d00m00s', got {at!r} ({error})") from error
    if isinstance(at, SkyCoord):
        if not at.isscalar:
            raise ValueError(f"at: expected one place, got a SkyCoord of shape {at.shape}; take one of them, as at[0]")
        return at
    ra, dec = parse_pair(at, "deg", "at", "(RA, Dec)")
    if abs(dec) > 90:
        raise ValueError(f"at: expected (RA, Dec) with Dec from -90 to 90 deg, got {at!r}")
    return SkyCoord(ra, dec, unit="deg")


_MOST_OUTSIDE = 0.01
"""Share of a circle beyond the field from which on a spectrum is said to lack light."""


def extract_spectrum(
    cube: Cube,
    x: int | None = None,
    y: int | None = None,
    *,
    at: Place | None = None,
    offset: Offset | None = None,
    radius: Any = None,
) -> ExtractedSpectrum:
    """The sum of a cube's good voxels over some spaxels (`Cube.spectrum`).

    In an aperture every spaxel counts by the share w of its area inside: flux = sum(w F), error^2 = sum(w^2 variance),
    as the noise of spaxels is independent. Raises ValueError for a place outside the field or an empty aperture.
    """
    weights = _weights(cube, x, y, at, offset, radius)
    rows, columns = (np.flatnonzero(weights.any(axis=axis)) for axis in (1, 0))
    box = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
    shares, good = weights[box][:, :, None], np.asarray(cube.mask[box]) == 0
    counted = good & (shares > 0)
    lit = counted.any(axis=(0, 1))

    def summed(values: Any, share: Float[ndarray, "y x one"]) -> Float[ndarray, " wave"]:
        found = np.sum(np.where(counted, np.asarray(values[box], np.float64), 0.0) * share, axis=(0, 1))
        return np.where(lit, found, np.nan)

    error = None if cube.variance is None else np.sqrt(summed(cube.variance, shares**2)) * CUBE_FLUX_DENSITY
    return ExtractedSpectrum(cube.wavelength * units.AA, summed(cube.flux, shares) * CUBE_FLUX_DENSITY, error)


def _weights(
    cube: Cube, x: int | None, y: int | None, at: Place | None, offset: Offset | None, radius: Any
) -> Float[ndarray, "y x"]:
    if (x is None) != (y is None):
        raise ValueError(f"spectrum: expected both x and y of a spaxel, got x={x}, y={y}")
    placed = at is not None or offset is not None
    if x is not None and placed:
        raise ValueError("spectrum: expected a spaxel (x, y) or a place (at, offset), got both; leave one out")
    if x is None and not placed and radius is None:
        return np.ones(cube.footprint.shape)
    column, row = (float(x), float(y)) if x is not None and y is not None else position_of(cube, at, offset)
    beside = (
        f"spectrum: expected a place in the field, x from 0 to {cube.n_x - 1} and y from 0 to {cube.n_y - 1}, got "
        f"x = {column:.6g}, y = {row:.6g}"
    )
    if radius is None:
        x, y = int(np.floor(column + 0.5)), int(np.floor(row + 0.5))
        if not (0 <= x < cube.n_x and 0 <= y < cube.n_y):
            raise ValueError(beside)
        weights = np.zeros(cube.footprint.shape)
        weights[y, x] = 1.0
        return weights
    reach = parse_quantity(radius, "arcsec", "radius") / cube.pixel_scale
    if reach <= 0:
        raise ValueError(f"radius: expected more than 0 arcsec, got {radius!r}")
    right, upper = (np.arange(cube.n_x) - column + 0.5)[None, :], (np.arange(cube.n_y) - row + 0.5)[:, None]
    weights = disc_overlap(right - 1, right, upper - 1, upper, reach)
    if not (weights > 0).any():
        raise ValueError(beside)
    outside = 1 - float(weights.sum()) / (np.pi * reach**2)
    if outside > _MOST_OUTSIDE:
        logging.getLogger("rubix_like").warning(
            "radius: %s of the circle lies outside the field, and its light is missing", percent(outside)
        )
    return weights


def cut_cube(
    cube: Cube,
    wavelength: Sequence[Any] | None = None,
    *,
    at: Place | None = None,
    offset: Offset | None = None,
    size: Any = None,
) -> Cube:
    """The part of a cube within a range of wavelengths and a box on the sky (`Cube.cut`)."""
    if size is None and (at is not None or offset is not None):
        raise ValueError("cut: expected the size of the box beside its place, got none; e.g. size='2 arcsec'")
    if wavelength is not None:
        inside = np.flatnonzero(bins_within(cube, wavelength, "wavelength"))
        cube = _cut_bins(cube, slice(int(inside[0]), int(inside[-1]) + 1))
    return cube if size is None else _cut_spaxels(cube, *_box(cube, at, offset, size))


def _cut_bins(cube: Cube, bins: slice) -> Cube:
    return dataclasses.replace(
        cube,
        **_cut_voxels(cube, (slice(None), slice(None), bins)),
        bins=cube.bins.part(bins.start, bins.stop),
        lsf_fwhm=None if cube.lsf_fwhm is None else cube.lsf_fwhm[bins],
        fibres=None if cube.fibres is None else cube.fibres.part(bins),
        noise_sources=None if cube.noise_sources is None else cube.noise_sources.part(bins),
    )


def _cut_voxels(cube: Cube, part: tuple[slice, ...]) -> dict[str, Any]:
    values = {name: getattr(cube, name) for name in ("flux", "mask", "variance", "truth")}
    cut: dict[str, Any] = {name: value[part] for name, value in values.items() if value is not None}
    return cut | {"contributions": {name: value[part] for name, value in cube.contributions.items()}}


def _box(cube: Cube, at: Place | None, offset: Offset | None, size: Any) -> tuple[slice, slice]:
    sides = [
        parse_quantity(side, "arcsec", "size") for side in (size if isinstance(size, list | tuple) else (size, size))
    ]
    if len(sides) != 2 or min(sides) <= 0:
        raise ValueError(f"size: expected a width, or (width, height), > 0 in arcsec, got {size!r}")
    found = []
    for middle, side, number in zip(position_of(cube, at, offset), sides, (cube.n_x, cube.n_y), strict=True):
        half = 0.5 * side / cube.pixel_scale
        places = np.arange(number)
        inside = np.flatnonzero(np.abs(places - middle) <= half * (1 + 1e-9))
        if not inside.size:
            raise ValueError(
                f"cut: expected a box that holds the centre of a spaxel ({cube.pixel_scale:g} arcsec wide), got "
                f"{sides[0]:g} x {sides[1]:g} arcsec about spaxel position {middle:.6g}, outside or between"
            )
        found.append(slice(int(inside[0]), int(inside[-1]) + 1))
    columns, rows = found
    return rows, columns


def _cut_spaxels(cube: Cube, rows: slice, columns: slice) -> Cube:
    footprint = Footprint(rows.stop - rows.start, columns.stop - columns.start, cube.footprint.pixel_scale)
    x, y = (columns.start + columns.stop - 1) / 2, (rows.start + rows.stop - 1) / 2
    here, above = sky_at(cube, x, y), sky_at(cube, x, y + 1.0)
    angle, before = float(here.position_angle(above).wrap_at("180d").deg), float(cube.meta.get("field_angle") or 0.0)
    is_same = abs((angle - before + 180.0) % 360.0 - 180.0) < _ROUNDING
    meta = cube.meta.replace(ra=float(here.ra.deg), dec=float(here.dec.deg), field_angle=before if is_same else angle)
    maps = cube.maps
    if maps is not None:  # but for the attenuation curve, which is that of the whole field
        before_psf, after, mask = jax.tree.map(lambda map_: map_[rows, columns], (maps.before, maps.after, maps.mask))
        of_box: dict[str, Any] = {"before": before_psf, "after": after, "mask": mask, "attenuation": None}
        maps = dataclasses.replace(maps, **of_box, footprint=footprint, meta=meta)
    return dataclasses.replace(
        cube,
        **_cut_voxels(cube, (rows, columns)),
        mean_v_los=None if cube.mean_v_los is None else cube.mean_v_los[rows, columns],
        footprint=footprint,
        meta=meta,
        maps=maps,
        fibres=None if cube.fibres is None else cube.fibres.within(rows, columns),
        noise_sources=None if cube.noise_sources is None else cube.noise_sources.within(rows, columns),
        correlations=None if cube.correlations is None else cube.correlations.within(rows, columns),
    )
