"""The gnomonic projection: offsets in the tangent plane, and how North turns from one place to another."""

import math
from typing import Any

from astropy.units import rad

from rubix_like.constants import ARCSEC_PER_RADIAN
from rubix_like.runtime.places import found_at

_SKY_COORD = "astropy.coordinates:SkyCoord"
_SEPARATION = "astropy.coordinates:angular_separation"
"""Imported where there are several places: most runs have one."""


def from_tangent_plane(reference: tuple[float, float], offset: tuple[float, float]) -> tuple[float, float]:
    """RA, Dec (deg) of a point `offset` (East, North; arcsec) from `reference` in the gnomonic projection there."""
    east, north = (value / ARCSEC_PER_RADIAN for value in offset)
    longitude = math.atan(east)
    latitude = math.atan(north * math.cos(longitude))
    point: Any = found_at(_SKY_COORD)(*reference, unit="deg").spherical_offsets_by(longitude * rad, latitude * rad)
    return float(point.ra.deg), float(point.dec.deg)


def to_tangent_plane(reference: tuple[float, float], point: tuple[float, float]) -> tuple[float, float]:
    """(East, North) in arcsec of `point` (RA, Dec in deg) from `reference` in the gnomonic projection there."""
    sky_coord = found_at(_SKY_COORD)
    longitude, latitude = sky_coord(*reference, unit="deg").spherical_offsets_to(sky_coord(*point, unit="deg"))
    east = math.tan(longitude.rad)
    return east * ARCSEC_PER_RADIAN, math.tan(latitude.rad) / math.cos(longitude.rad) * ARCSEC_PER_RADIAN


def separation(place: tuple[float, float], other: tuple[float, float]) -> float:
    """Angle (deg) between two places (RA, Dec in deg) on the sky."""
    return math.degrees(found_at(_SEPARATION)(*map(math.radians, (*place, *other))))


def convergence(reference: tuple[float, float], point: tuple[float, float]) -> float:
    """How far (deg) the North of `reference`, carried along the great circle to `point`, lies East of North there.

    tan(c / 2) = tan(dRA / 2) sin((Dec1 + Dec2) / 2) / cos((Dec1 - Dec2) / 2), by Napier's analogies.
    """
    (ra, dec), (other_ra, other_dec) = (tuple(map(math.radians, place)) for place in (reference, point))
    half = math.remainder(other_ra - ra, 2 * math.pi) / 2
    sine = math.sin((dec + other_dec) / 2) * math.sin(half)
    return math.degrees(2 * math.atan2(sine, math.cos((dec - other_dec) / 2) * math.cos(half)))
