"""The galaxy's own frame: centre and bulk velocity, taken off in float64 before anything is rounded."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.centering import bulk_velocity, half_mass_radius, shrinking_sphere, unwrap
from rubix_like.readers.columns import Table, Vector, Vectors


@dataclass(frozen=True)
class Frame:
    """What is taken off the particles, in kpc and km/s of the simulation's box, and the side of the periodic box."""

    center: Vector
    velocity: Vector
    box_size: float | None

    def apply(self, table: Table) -> tuple[Vectors, Vectors]:
        """Positions (kpc; nearest periodic images) and velocities (km/s) relative to the galaxy."""
        return self.offset(table["position"]), table["velocity"] - self.velocity

    def offset(self, position: Vectors) -> Vectors:
        """Nearest periodic images relative to the galaxy's centre, in kpc."""
        return unwrap(position, self.center, self.box_size)

    @property
    def wrapped_center(self) -> Vector:
        """The centre within the box."""
        return self.center if self.box_size is None else self.center % self.box_size


def find_frame(
    table: Table, given: Vector | None, box_size: float | None, origin: str = "galaxy.center"
) -> tuple[Frame, tuple[str, ...]]:
    """The frame of these stars, with notes: the given centre (kpc), whose `origin` is said, or the shrinking sphere's.

    The bulk velocity is the mass-weighted mean of the stars within the half-mass radius.
    """
    position, mass = table["position"], table["mass"]
    center = _densest_place(position, mass, box_size)
    notes = ()
    if given is not None:
        apart = float(np.linalg.norm(unwrap((center - given)[None], np.zeros(3), box_size)))
        if apart > half_mass_radius(unwrap(position, center, box_size), mass):
            text = f"{origin} is {apart:.3g} kpc from the densest place of the stars"
            notes = (f"{text}, beyond their half-mass radius (bare numbers are in the file's own unit)",)
        center = given
    offset = unwrap(position, center, box_size)
    return Frame(center, bulk_velocity(offset, table["velocity"], mass), box_size), notes


def _densest_place(position: Vectors, mass: Float[ndarray, " particle"], box_size: float | None) -> Vector:
    first = position[0]
    return first + shrinking_sphere(unwrap(position, first, box_size), mass)
