"""The places of an observation's fields on the sky, and their effect on the model and the header."""

from dataclasses import dataclass

import numpy as np

from rubix_like.arguments import expect_fields
from rubix_like.config import ObservationSettings
from rubix_like.config.sections.observation import labels
from rubix_like.cube.meta import Meta
from rubix_like.errors import expect_count
from rubix_like.physics.tangent_plane import convergence, from_tangent_plane
from rubix_like.physics.units import plain_numbers

_FIELDS = (("reference", "deg", (2,)), ("offset", "arcsec", (2,)), ("field_angle", "deg", ()), ("turn", "deg", ()))
"""Numbers of a pointing, with unit and shape."""


@dataclass(frozen=True)
class Pointing:
    """One field of an observation; angles in deg.

    `offset` (East, North) in arcsec of the field's centre from `reference` (RA, Dec), in the tangent plane there, and
    `center` (RA, Dec) of the same. `field_angle` is the position angle of the field's +y axis from North at the
    reference, `turn` what it is more than `observation.field_angle`, and `field_angle_at_center` the angle from North
    at the field's centre, as in its world coordinates.
    """

    number: int
    name: str
    reference: tuple[float, float]
    offset: tuple[float, float]
    field_angle: float
    turn: float

    def __post_init__(self) -> None:
        expect_fields(self)
        expect_count(self.number, "Pointing.number")
        for name, unit, shape in _FIELDS:
            values = plain_numbers(getattr(self, name), unit, f"Pointing.{name}")
            if np.shape(values) != shape or not np.isfinite(values).all():
                wanted = "two finite numbers" if shape else "a finite number"
                raise ValueError(f"Pointing.{name}: expected {wanted}, got {values!r}")
            vars(self)[name] = tuple(values) if shape else values

    @property
    def center(self) -> tuple[float, float]:
        """RA and Dec of the field's centre in deg."""
        return from_tangent_plane(self.reference, self.offset)

    @property
    def field_angle_at_center(self) -> float:
        """`field_angle` from the North at the centre."""
        return self.field_angle + convergence(self.reference, self.center)

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
