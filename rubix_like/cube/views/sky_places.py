"""Where a place on the sky is among the spaxels of a cube, and the other way round."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from astropy.coordinates import SkyCoord
from astropy.wcs import WCS
from astropy.wcs.utils import pixel_to_skycoord, skycoord_to_pixel

from rubix_like.config.quantities import parse_pair
from rubix_like.cube.cube import Cube

Place = SkyCoord | Sequence[Any] | str
"""A place on the sky: a SkyCoord, text that it reads, or (RA, Dec), each with a unit or in degrees."""

Offset = Sequence[Any]
"""(East, North) of the field's centre, each with a unit or in arcsec."""

_ROUNDING = 1e-9
"""Degrees by which two angles differ that are the same."""


def celestial_of(cube: Cube) -> WCS:
    """The sky of a cube as an astropy WCS of two axes (x, y) -> (RA, Dec) in deg."""
    return cube.wcs.celestial


def sky_at(cube: Cube, x: Any, y: Any) -> Any:
    """The place (SkyCoord) of positions in spaxels."""
    return pixel_to_skycoord(x, y, celestial_of(cube))


def position_of(cube: Cube, at: Place | None, offset: Offset | None) -> tuple[float, float]:
    """The position (x, y) in spaxels, counted from 0 at the centre of the first, of a place; default: the field's
    centre. Raises ValueError where both are given, or one cannot be read."""
    if at is not None and offset is not None:
        raise ValueError("expected a place as 'at' or as 'offset', got both; leave one out")
    middle = (cube.n_x - 1) / 2, (cube.n_y - 1) / 2
    if offset is not None:
        return _displaced(cube, middle, offset)
    if at is None:
        return middle
    place = _as_coordinates(at)
    if cube.meta.get("ra") is None or cube.meta.get("dec") is None:
        raise ValueError("at: expected a cube with ra and dec in its meta, got one without; give offset=(East, North)")
    x, y = (np.asarray(own, np.float64) for own in skycoord_to_pixel(place, celestial_of(cube)))
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


def _displaced(cube: Cube, middle: tuple[float, float], offset: Offset) -> tuple[float, float]:
    """The position a few arcsec East and North of the field's centre, on the tangent plane."""
    east, north = parse_pair(offset, "arcsec", "offset", "(East, North)")
    angle = np.radians(float(cube.meta.get("field_angle") or 0.0))
    along_x = east * np.cos(angle) - north * np.sin(angle)  # against the columns, whose first is East
    along_y = east * np.sin(angle) + north * np.cos(angle)
    return middle[0] - float(along_x) / cube.pixel_scale, middle[1] + float(along_y) / cube.pixel_scale


def field_about(cube: Cube, x: float, y: float) -> tuple[float, float, float]:
    """RA, Dec (deg) of a position, and the angle of +y there (deg, North through East), for a field centred on it."""
    here, above = sky_at(cube, x, y), sky_at(cube, x, y + 1.0)
    angle, before = float(here.position_angle(above).wrap_at("180d").deg), float(cube.meta.get("field_angle") or 0.0)
    is_same = abs((angle - before + 180.0) % 360.0 - 180.0) < _ROUNDING
    return float(here.ra.deg), float(here.dec.deg), before if is_same else angle
