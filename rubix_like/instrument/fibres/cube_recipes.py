"""How surveys make a cube of the spectra of fibres, as one sparse linear map.

Both are weighted means of surface brightness, so that a uniform source keeps its value; a spaxel's flux is the mean
flux of the fibres near it times the spaxel's area over the fibre's.

shepard: w = exp(-r^2 / (2 sigma^2)) for r < limit, the modified method of Shepard (MaNGA: Law et al. 2016, AJ 152, 83,
section 9; CALIFA: Garcia-Benito et al. 2015, A&A 576, A135, section 5). drizzle: w is the area that the fibre's disc,
made smaller by `drop`, has in common with the spaxel (SAMI: Sharp et al. 2015, MNRAS 446, 1551; Fruchter & Hook 2002,
PASP 114, 144). w times flux summed over spaxels then is the light that the fibres collect.
"""

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.config.fibre_settings import FibreCubeSettings
from rubix_like.cube.fibres.fibre_spectra import CubeWeights, FibrePlaces
from rubix_like.cube.footprint import Footprint
from rubix_like.errors import ConfigError
from rubix_like.runtime.places import found_at

_ROUNDING = 1e-12
"""Area (in squared radii) below which a rectangle that touches the disc, or none at all, is outside."""


def disc_overlap(
    left: Float[ndarray, "*n"],
    right: Float[ndarray, "*n"],
    bottom: Float[ndarray, "*n"],
    top: Float[ndarray, "*n"],
    radius: float,
) -> Float[ndarray, "*n"]:
    """Area of rectangles within a disc about the origin.

    By corners: F(right, top) - F(left, top) - F(right, bottom) + F(left, bottom), where F(x, y) is the area of the disc
    to the left of x and below y.
    """
    area = (
        _below_left(right, top, radius)
        - _below_left(left, top, radius)
        - _below_left(right, bottom, radius)
        + _below_left(left, bottom, radius)
    )
    return np.where(area > _ROUNDING * radius**2, area, 0.0)


def _below_left(x: ndarray, y: ndarray, radius: float) -> ndarray:
    """Area of the unit disc (scaled by the radius) with abscissa below x and ordinate below y.

    Odd and even parts about the axes: a quarter of the disc, what lies between the axes and x or y, and the corner.
    """
    x, y = np.clip(x / radius, -1.0, 1.0), np.clip(y / radius, -1.0, 1.0)
    corner = np.sign(x) * np.sign(y) * _corner(np.abs(x), np.abs(y))
    return radius**2 * (np.pi / 4 + _strip(x) + _strip(y) + corner)


def _strip(x: ndarray) -> ndarray:
    """Area of a half of the unit disc, cut along the abscissa, between 0 and x."""
    return 0.5 * (x * np.sqrt(1.0 - x**2) + np.arcsin(x))


def _corner(x: ndarray, y: ndarray) -> ndarray:
    """Area of the unit disc in the rectangle from the origin to (x, y), both from 0 to 1."""
    inside = x**2 + y**2 <= 1.0
    start = np.sqrt(1.0 - y**2)  # where the circle passes the height y
    beyond = start * y + _strip(x) - _strip(np.minimum(start, x))
    return np.where(inside, x * y, np.where(start < x, beyond, x * y))


def cube_weights(settings: FibreCubeSettings, places: FibrePlaces, footprint: Footprint) -> CubeWeights:
    """The map from fibres to spaxels; raises ConfigError where no spaxel is near any fibre."""
    raw = (_shepard if settings.method == "shepard" else _drizzle)(settings, places, footprint)
    total = np.asarray(raw.sum(axis=1)).ravel()
    seen = total > 0
    if not seen.any():
        raise ConfigError(
            f"instrument.fibres: expected fibres near the field of {footprint.sides[0]:g} x {footprint.sides[1]:g} "
            f"arcsec, got none within reach of any spaxel; change instrument.fov or the fibres' positions"
        )
    if settings.coverage is not None:
        seen &= total >= settings.coverage * np.median(total[seen])
    share = np.where(seen, footprint.pixel_scale**2 / places.area / np.where(seen, total, 1.0), 0.0)
    matrix = found_at("scipy.sparse:csr_array")(raw.multiply(share[:, None]))
    matrix.eliminate_zeros()
    return CubeWeights.of_matrix(matrix, footprint.shape, np.where(seen, total, 0.0).reshape(footprint.shape))


def _shepard(settings: FibreCubeSettings, places: FibrePlaces, footprint: Footprint) -> Any:
    sigma, limit = settings.sigma, settings.limit
    assert sigma is not None
    assert limit is not None
    spaxel, fibre, east, north = _pairs(places, footprint, limit)
    square = east**2 + north**2
    near = square < limit**2
    weight = np.exp(-0.5 * square[near] / sigma**2)
    return _sparse(weight, spaxel[near], fibre[near], footprint, places)


def _drizzle(settings: FibreCubeSettings, places: FibrePlaces, footprint: Footprint) -> Any:
    assert settings.drop is not None
    radius, half = places.radius * settings.drop, footprint.pixel_scale / 2
    spaxel, fibre, east, north = _pairs(places, footprint, radius + half * np.sqrt(2))
    area = disc_overlap(east - half, east + half, north - half, north + half, radius)
    return _sparse(area, spaxel, fibre, footprint, places)


def _pairs(
    places: FibrePlaces, footprint: Footprint, reach: float
) -> tuple[ndarray, ndarray, Float[ndarray, " pair"], Float[ndarray, " pair"]]:
    """Spaxels and fibres whose centres are at most `reach` (arcsec) apart along both axes, and from the fibre's to the
    spaxel's in arcsec (East, North)."""
    x, y = footprint.centres()
    spaxels, fibres, east, north = [], [], [], []
    for fibre in range(len(places)):
        column = np.flatnonzero(np.abs(x - places.x[fibre]) <= reach)
        row = np.flatnonzero(np.abs(y - places.y[fibre]) <= reach)
        rows, columns = np.meshgrid(row, column, indexing="ij")
        spaxels.append((rows * footprint.n_x + columns).ravel())
        fibres.append(np.full(rows.size, fibre))
        east.append(x[columns].ravel() - places.x[fibre])
        north.append(y[rows].ravel() - places.y[fibre])
    return np.concatenate(spaxels), np.concatenate(fibres), np.concatenate(east), np.concatenate(north)


def _sparse(weight: ndarray, spaxel: ndarray, fibre: ndarray, footprint: Footprint, places: FibrePlaces) -> Any:
    shape = (footprint.n_element, len(places))
    return found_at("scipy.sparse:csr_array")((weight, (spaxel, fibre)), shape=shape)
