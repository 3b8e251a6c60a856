"""Where the fields of an observation lie on the sky, and what that changes in the model and in the header."""

import math
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from astropy.coordinates import SkyCoord
from astropy.units import rad

from rubix_like.config import ObservationSettings
from rubix_like.config.pointings import labels
from rubix_like.constants import ARCSEC_PER_RADIAN
from rubix_like.cube import Meta
from rubix_like.parameters import Parameters


@dataclass(frozen=True)
class Pointing:
    """One field of an observation; angles in deg.

    `offset` (East, North) in arcsec of the field's centre from `reference` (RA, Dec), in the tangent plane there, and
    `center` (RA, Dec) of the same. `field_angle` is the position angle of the field's +y axis from North at the
    reference, `turn` what it is more than `observation.field_angle`, and `field_angle_at_center` the angle from North
    at the field's own centre, as in its world coordinates.
    """

    number: int
    name: str
    reference: tuple[float, float]
    offset: tuple[float, float]
    field_angle: float
    turn: float

    @property
    def center(self) -> tuple[float, float]:
        """RA, Dec."""
        return from_tangent_plane(self.reference, self.offset)

    @property
    def field_angle_at_center(self) -> float:
        """`field_angle` from the North at the centre."""
        return self.field_angle + convergence(self.reference, self.center)

    def displaced(self, parameters: Parameters) -> Parameters:
        """The parameters of the whole observation as seen from this field: the offset of the galaxy, and the angle."""
        observation = parameters.observation
        offset = observation.offset - jnp.asarray(self.offset, observation.offset.dtype)
        parameters = eqx.tree_at(lambda p: p.observation.offset, parameters, offset)
        if observation.field_angle is None:
            return parameters
        angle = observation.field_angle + jnp.asarray(self.turn, observation.field_angle.dtype)
        return eqx.tree_at(lambda p: p.observation.field_angle, parameters, angle)

    def described(self, meta: Meta) -> Meta:
        """The header of the whole observation with the centre and angle of this field."""
        return meta.replace(
            ra=self.center[0],
            dec=self.center[1],
            field_angle=self.field_angle_at_center,
            pointing=self.number,
            pointing_name=self.name,
            pointing_east=self.offset[0],
            pointing_north=self.offset[1],
            reference_ra=self.reference[0],
            reference_dec=self.reference[1],
        )


def pointings_of(observation: ObservationSettings) -> tuple[Pointing, ...]:
    """The pointings of an observation, in their order; none where it states none."""
    settings = observation.pointings or ()
    base = observation.field_angle or 0.0
    angles = [base if pointing.field_angle is None else pointing.field_angle for pointing in settings]
    return tuple(
        Pointing(number, name, (observation.ra, observation.dec), pointing.offset, angle, angle - base)
        for number, (pointing, name, angle) in enumerate(zip(settings, labels(settings), angles, strict=True), start=1)
    )


def from_tangent_plane(reference: tuple[float, float], offset: tuple[float, float]) -> tuple[float, float]:
    """RA, Dec (deg) of a point `offset` (East, North; arcsec) from `reference` in the gnomonic projection there."""
    east, north = (value / ARCSEC_PER_RADIAN for value in offset)
    longitude = math.atan(east)
    latitude = math.atan(north * math.cos(longitude))
    point: Any = SkyCoord(*reference, unit="deg").spherical_offsets_by(longitude * rad, latitude * rad)
    return float(point.ra.deg), float(point.dec.deg)


def to_tangent_plane(reference: tuple[float, float], point: tuple[float, float]) -> tuple[float, float]:
    """(East, North) in arcsec of `point` (RA, Dec in deg) from `reference` in the gnomonic projection there."""
    longitude, latitude = SkyCoord(*reference, unit="deg").spherical_offsets_to(SkyCoord(*point, unit="deg"))
    east = math.tan(longitude.rad)
    return east * ARCSEC_PER_RADIAN, math.tan(latitude.rad) / math.cos(longitude.rad) * ARCSEC_PER_RADIAN


def convergence(reference: tuple[float, float], point: tuple[float, float]) -> float:
    """How far (deg) the North of `reference`, carried along the great circle to `point`, lies East of North there.

    tan(c / 2) = tan(dRA / 2) sin((Dec1 + Dec2) / 2) / cos((Dec1 - Dec2) / 2), by Napier's analogies.
    """
    (ra, dec), (other_ra, other_dec) = (tuple(map(math.radians, place)) for place in (reference, point))
    half = math.remainder(other_ra - ra, 2 * math.pi) / 2
    sine = math.sin((dec + other_dec) / 2) * math.sin(half)
    return math.degrees(2 * math.atan2(sine, math.cos((dec - other_dec) / 2) * math.cos(half)))
