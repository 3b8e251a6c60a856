"""The galaxy's own frame: centre and bulk velocity, taken off in float64 before anything is rounded."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.centering import (
    completing_half,
    half_mass_radius,
    shell_edges,
    shell_masses,
    shrinking_sphere,
    squared_distance,
    unwrap,
)
from rubix_like.readers.columns import Table, Vector, Vectors
from rubix_like.readers.first_pass import AbstractStars, HeldStars

SAMPLE_STARS: int = 1 << 20
"""Galaxies of more stars are centred by a sample of at most so many."""

_PLACES = ("position", "mass")
_MOTIONS = ("position", "velocity", "mass")


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
    stars: AbstractStars, given: Vector | None, box_size: float | None, origin: str = "galaxy.center"
) -> tuple[Frame, tuple[str, ...]]:
    """The frame of these stars, with notes: the given centre (kpc), whose `origin` is said, or the shrinking sphere's.

    The bulk velocity is the mass-weighted mean of the stars within the half-mass radius. Up to 2^20 stars are gathered
    in every process. Of more, every k-th, counted from the first, is: the centre is that of this sample, the same
    whatever the slabs and the processes; two further passes over all of them find the bulk velocity, slab by slab.
    """
    step = -(-stars.n_stars // SAMPLE_STARS)
    if step == 1:
        stars = HeldStars(stars.every(step, _MOTIONS))
    sample = stars.every(step, _PLACES)
    center = _densest_place(sample["position"], sample["mass"], box_size)
    notes = ()
    if given is not None:
        apart = float(np.linalg.norm(unwrap((center - given)[None], np.zeros(3), box_size)))
        if apart > half_mass_radius(unwrap(sample["position"], center, box_size), sample["mass"]):
            text = f"{origin} is {apart:.3g} kpc from the densest place of the stars"
            notes = (f"{text}, beyond their half-mass radius (bare numbers are in the file's own unit)",)
        center = given
    edges = shell_edges(squared_distance(unwrap(sample["position"], center, box_size)))
    return Frame(center, _InnerHalf(stars, center, box_size, edges).mean_velocity(), box_size), notes


def _densest_place(position: Vectors, mass: Float[ndarray, " particle"], box_size: float | None) -> Vector:
    first = position[0]
    return first + shrinking_sphere(unwrap(position, first, box_size), mass)


@dataclass(frozen=True)
class _InnerHalf:
    """The stars within the half-mass radius about a centre: mass in shells first, then star by star in the shell that
    completes the half; `edges` are the squared radii between shells (kpc^2)."""

    stars: AbstractStars
    center: Vector
    box_size: float | None
    edges: Float[ndarray, " edge"]

    def mean_velocity(self) -> Vector:
        """Their mass-weighted mean velocity."""
        enclosed = np.cumsum(self.stars.team.total(self._shell_masses))
        shell = completing_half(enclosed, enclosed[-1])
        ends = np.concatenate([[-np.inf], self.edges, [np.inf]])[shell : shell + 2]
        found = self.stars.team.exchange(lambda: self._inside_and_between(*ends))
        inside = np.sum([sums for sums, _ in found], axis=0)
        squared, mass, *velocity = np.concatenate([between for _, between in found]).T
        order = np.argsort(squared)
        within = np.cumsum(mass[order]) + (enclosed[shell - 1] if shell else 0.0)
        last = squared[order][completing_half(within, enclosed[-1])]
        inner = squared <= last * (1 + 1e-12)
        total = inside + _sums(mass[inner], np.stack(velocity, axis=1)[inner])
        return total[1:] / total[0]

    def _squared(self, table: Table) -> Float[ndarray, " particle"]:
        return squared_distance(unwrap(table["position"], self.center, self.box_size))

    def _shell_masses(self) -> Float[ndarray, " shell"]:
        total = np.zeros(len(self.edges) + 1)
        for table in self.stars.slabs(_PLACES, "shells of stars read"):
            total += shell_masses(self.edges, self._squared(table), table["mass"])
        return total

    def _inside_and_between(
        self, first: float, last: float
    ) -> tuple[Float[ndarray, "4"], Float[ndarray, "particle 5"]]:
        """Of this process's stars: the sums over those below the squared radius `first`, and squared radius, mass and
        velocity of those up to `last` and little beyond."""
        inside, between = np.zeros(4), [np.zeros((0, 5))]
        for table in self.stars.slabs(_MOTIONS, "velocities of stars read"):
            squared, mass, velocity = self._squared(table), table["mass"], table["velocity"]
            below = squared < first
            inside += _sums(mass[below], velocity[below])
            near = ~below & (squared <= last * (1 + 1e-9))
            between.append(np.column_stack([squared[near], mass[near], velocity[near]]))
        return inside, np.concatenate(between)


def _sums(mass: Float[ndarray, " particle"], velocity: Vectors) -> Float[ndarray, "4"]:
    """Mass and mass times velocity."""
    return np.append(mass.sum(), mass @ velocity)
