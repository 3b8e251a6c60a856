"""Spectra out of a cube: of the whole field, a spaxel, a place on the sky, a circular aperture."""

from typing import Any

import numpy as np
from astropy import units
from jaxtyping import Float
from numpy import ndarray

from rubix_like.config.quantities import parse_quantity
from rubix_like.constants import CUBE_FLUX_DENSITY
from rubix_like.cube.cube import Cube, ExtractedSpectrum
from rubix_like.cube.views.circle_overlap import circle_overlap
from rubix_like.cube.views.sky_places import Offset, Place, position_of


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
    own, good = weights[box][:, :, None], np.asarray(cube.mask[box]) == 0
    counted = good & (own > 0)
    lit = counted.any(axis=(0, 1))

    def summed(values: Any, share: Float[ndarray, "y x one"]) -> Float[ndarray, " wave"]:
        found = np.sum(np.where(counted, np.asarray(values[box], np.float64), 0.0) * share, axis=(0, 1))
        return np.where(lit, found, np.nan)

    error = None if cube.variance is None else np.sqrt(summed(cube.variance, own**2)) * CUBE_FLUX_DENSITY
    return ExtractedSpectrum(cube.wavelength * units.AA, summed(cube.flux, own) * CUBE_FLUX_DENSITY, error)


def _weights(
    cube: Cube, x: int | None, y: int | None, at: Place | None, offset: Offset | None, radius: Any
) -> Float[ndarray, "y x"]:
    """How much of each spaxel counts."""
    if (x is None) != (y is None):
        raise ValueError(f"spectrum: expected both x and y of a spaxel, got x={x}, y={y}")
    placed = at is not None or offset is not None
    if x is not None and placed:
        raise ValueError("spectrum: expected a spaxel (x, y) or a place (at, offset), got both; leave one out")
    if x is None and not placed and radius is None:
        return np.ones(cube.footprint.shape)
    column, row = (float(x), float(y)) if x is not None and y is not None else position_of(cube, at, offset)
    if radius is None:
        return _one_spaxel(cube, column, row)
    reach = parse_quantity(radius, "arcsec", "radius") / cube.pixel_scale
    if reach <= 0:
        raise ValueError(f"radius: expected more than 0 arcsec, got {radius!r}")
    weights = circle_overlap(np.arange(cube.n_x) - column, np.arange(cube.n_y) - row, reach)
    if not (weights > 0).any():
        raise ValueError(_beside(cube, column, row))
    return weights


def _one_spaxel(cube: Cube, column: float, row: float) -> Float[ndarray, "y x"]:
    """The spaxel that a position lies in."""
    x, y = int(np.floor(column + 0.5)), int(np.floor(row + 0.5))
    if not (0 <= x < cube.n_x and 0 <= y < cube.n_y):
        raise ValueError(_beside(cube, column, row))
    weights = np.zeros(cube.footprint.shape)
    weights[y, x] = 1.0
    return weights


def _beside(cube: Cube, column: float, row: float) -> str:
    return (
        f"spectrum: expected a place in the field, x from 0 to {cube.n_x - 1} and y from 0 to {cube.n_y - 1}, got "
        f"x = {column:.6g}, y = {row:.6g}"
    )
