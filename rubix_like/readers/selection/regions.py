"""Regions that particles are selected from: a sphere and a box about a centre, in kpc."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.config.readers.selection import AbstractSelection, Place, to_kpc
from rubix_like.physics.centering import unwrap
from rubix_like.readers.fields.columns import Vector, Vectors


def place_in_kpc(place: Place, file_unit: float) -> Vector:
    """A `Place` in kpc."""
    return np.array([to_kpc(value, file_unit) for value in place])


@dataclass(frozen=True)
class AbstractRegion(ABC):
    """A region about `center` in a box of sides `box_size` (kpc; None: not periodic); `key` names it in settings."""

    key: str
    center: Vector
    box_size: Vector | None

    @abstractmethod
    def holds(self, position: Vectors) -> Bool[ndarray, " particle"]:
        """Which positions (kpc) lie in it."""

    def distance(self, position: Vectors) -> Float[ndarray, " particle"]:
        """Distances (kpc) from its centre, of the nearest periodic images."""
        return np.linalg.norm(unwrap(position, self.center, self.box_size), axis=1)


@dataclass(frozen=True)
class Sphere(AbstractRegion):
    """All that is within `radius` (kpc) of the centre."""

    radius: float

    def holds(self, position: Vectors) -> Bool[ndarray, " particle"]:
        """Which positions lie in it."""
        return self.distance(position) <= self.radius


@dataclass(frozen=True)
class Box(AbstractRegion):
    """All that is within half of the sides (kpc) of the centre, axis by axis."""

    sides: Vector

    def holds(self, position: Vectors) -> Bool[ndarray, " particle"]:
        """Which positions lie in it."""
        inside = np.abs(unwrap(position, self.center, self.box_size)) <= self.sides / 2
        return np.all(inside, axis=1)


def find_regions(
    selection: AbstractSelection, center: Vector | None, length: float, box_size: Vector | None
) -> tuple[AbstractRegion, ...]:
    """The sphere and the box of a selection; `center` (kpc) is the galaxy's, `length` kpc per unit of the file.

    Raises ValueError where no centre is known.
    """
    regions: list[AbstractRegion] = []
    if selection.sphere is not None:
        middle = _middle("sphere", selection.sphere.center, center, length)
        regions.append(Sphere("sphere", middle, box_size, to_kpc(selection.sphere.radius, length)))
    if selection.box is not None:
        middle = _middle("box", selection.box.center, center, length)
        regions.append(Box("box", middle, box_size, place_in_kpc(selection.box.size, length)))
    return tuple(regions)


def _middle(key: str, given: Place | None, center: Vector | None, length: float) -> Vector:
    if given is not None:
        return place_in_kpc(given, length)
    if center is None:
        raise ValueError(
            f"galaxy.{key}.center: expected three coordinates, as neither galaxy.center nor a catalogue gives any"
        )
    return center
