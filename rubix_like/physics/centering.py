"""Centre and half-mass radius of a set of particles (numpy, float64, any unit of length)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

Vectors = Float[ndarray, "particle 3"]
Scalars = Float[ndarray, " particle"]
Vector = Float[ndarray, "3"]

SHRINK_FACTOR: float = 0.975
"""Power et al. 2003: the sphere shrinks by 2.5 % at each step."""

_CANDIDATE_MARGIN = 1.5
_SHELLS = 1 << 16

_SAME_PLACE = 1e-12
"""Distance, in first radii, below which particles are at one place, as in an overwritten file."""


def unwrap(position: Vectors, reference: Vector, box_size: Vector | None) -> Vectors:
    """Offsets from `reference` of the nearest periodic images in a box of sides `box_size` (None: not periodic)."""
    offset = np.asarray(position, dtype=np.float64) - np.asarray(reference, dtype=np.float64)
    if box_size is None:
        return offset
    return offset - box_size * np.round(offset / box_size)


def center_of_mass(position: Vectors, mass: Scalars) -> Vector:
    """Mass-weighted mean position; raises ValueError unless the mass is positive."""
    total = mass.sum(dtype=np.float64)
    if not total > 0:
        raise ValueError(f"centre: expected particles with a positive total mass, got {mass.size} of mass {total}")
    return mass @ position / total


def shrinking_sphere(position: Vectors, mass: Scalars) -> Vector:
    """Centre of the densest part, by the shrinking sphere of Power et al. 2003 (MNRAS 338, 14, section 2.5).

    Starting from the sphere around the centre of mass that holds everything, each step takes the centre of mass of
    the particles within the sphere and shrinks the radius by 2.5 %, until fewer than 1000 particles or 1 % of them (but
    at least 10) would be left, or those left are at one place. Same unit as `position`; raises ValueError unless the
    mass is positive.
    """
    position = np.asarray(position, dtype=np.float64)
    mass = np.asarray(mass, dtype=np.float64)
    fewest = max(min(1000, position.shape[0] // 100), 10)
    center = center_of_mass(position, mass)
    radius = float(np.sqrt(squared_distance(position, center).max()))
    near, near_mass, near_center, near_radius = position, mass, center, np.inf
    smallest = _SAME_PLACE * radius
    while radius > smallest:
        radius *= SHRINK_FACTOR
        if np.linalg.norm(center - near_center) + radius > near_radius or near_radius > 4 * radius:
            near_center, near_radius = center, _CANDIDATE_MARGIN * radius
            kept = squared_distance(position, center) <= near_radius**2
            near, near_mass = position[kept], mass[kept]
        inside = squared_distance(near, center) <= radius**2
        if np.count_nonzero(inside) < fewest or not near_mass[inside].sum() > 0:
            break
        center = center_of_mass(near, near_mass * inside)
    return center


def densest_place(position: Vectors, mass: Scalars, box_size: Vector | None) -> Vector:
    """Centre of the densest part of particles in a box of sides `box_size` (None: not periodic)."""
    first = position[0]
    return first + shrinking_sphere(unwrap(position, first, box_size), mass)


def half_mass_radius(position: Vectors, mass: Scalars) -> float:
    """Radius about the origin of the sphere that holds half of the mass (of the particle that completes the half)."""
    squared = squared_distance(position)
    order = np.argsort(squared)
    enclosed = np.cumsum(mass[order], dtype=np.float64)
    return float(np.sqrt(squared[order][completing_half(enclosed, enclosed[-1])]))


def completing_half(enclosed: Scalars, total: float) -> int:
    """Which particle, or shell, completes half of the `total` mass; `enclosed`: the mass up to each, inside out.

    Sums of equal masses may differ in their last digits: what falls short of the half by 1e-12 completes it.
    """
    place = int(np.searchsorted(enclosed, 0.5 * (1 - 1e-12) * total))
    return min(place, len(enclosed) - 1)


def shell_edges(squared: Scalars) -> Float[ndarray, " edge"]:
    """Squared radii between at most 65537 shells that hold about as many of these particles each."""
    return np.unique(np.sort(squared)[:: -(-len(squared) // _SHELLS)])


def shell_masses(edges: Float[ndarray, " edge"], squared: Scalars, mass: Scalars) -> Float[ndarray, " shell"]:
    """Mass of particles in each shell: up to the first edge (exclusive), between edges, from the last one on."""
    return np.bincount(np.searchsorted(edges, squared, side="right"), weights=mass, minlength=len(edges) + 1)


def squared_distance(position: Vectors, center: Vector | None = None) -> Scalars:
    """Squared distance of each particle from a centre (None: the origin)."""
    offset = position if center is None else position - center
    return np.einsum("ij,ij->i", offset, offset)


@dataclass(frozen=True)
class Radius:
    """A radius within a galaxy: `number` half-mass radii of its stars or, with `in_kpc`, kpc."""

    number: float
    in_kpc: bool = False

    def kpc(self, half_mass_radius: float) -> float:
        """The radius in kpc, for stars of this half-mass radius (kpc)."""
        return self.number if self.in_kpc else self.number * half_mass_radius

    def written(self) -> float | str:
        """The radius as in a YAML: a bare number is in half-mass radii."""
        return f"{self.number!r} kpc" if self.in_kpc else self.number
