"""The galaxy's frame: centre and bulk velocity, subtracted in float64 before anything is rounded."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, fields
from functools import reduce
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.galaxy.particles import Gas, Stars
from rubix_like.physics.centering import (
    completing_half,
    densest_place,
    half_mass_radius,
    shell_edges,
    shell_masses,
    squared_distance,
    unwrap,
)
from rubix_like.physics.clipping import SIGMAS, Clip, clip_velocities
from rubix_like.readers.fields.field_map import Table, Vector, Vectors, row_count, stacked
from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup
from rubix_like.runtime.progress import Report, silent

SAMPLE_STARS: int = 1 << 20
"""Galaxies of more stars are centred by a sample of at most so many."""

_PLACES = ("position", "mass")
_MOTIONS = ("position", "velocity", "mass")

SLAB_STARS: int = 1 << 18
"""Stars whose columns are held at once."""

ReadStars = Callable[[int, int, Collection[str]], Table]
"""Columns of the stars from a first to a last (exclusive) one."""


@dataclass(frozen=True)
class StoredStars:
    """The `n_stars` selected stars of a file, of which nothing is read but what is gone through.

    Every process of the `team` goes through its share of them.
    """

    n_stars: int
    read: ReadStars
    team: AbstractProcessGroup = SINGLE
    report: Report = silent

    def slabs(self, names: Collection[str], what: str) -> Iterator[tuple[int, Table]]:
        """First row and columns of this process's stars, one slab after the other; `what` is done, for the progress."""
        first, last = self.team.share(self.n_stars)
        for start in range(first, last, SLAB_STARS):
            stop = min(start + SLAB_STARS, last)
            yield start, self.read(start, stop, names)
            self.report(what, stop - first, last - first)

    def every(self, step: int, names: Collection[str]) -> Table:
        """These columns of every `step`-th star of all, from the first, gathered in every process."""

        def share() -> Table:
            parts = [
                {name: table[name][-start % step :: step].copy() for name in names}
                for start, table in self.slabs(names, "stars for the centre read")
            ]
            return stacked(parts or [self.read(0, 0, names)])

        return stacked(self.team.exchange(share))


def held_stars(table: Table) -> StoredStars:
    """Stars that every process holds: there is nothing to share."""
    return StoredStars(row_count(table), lambda start, stop, names: {name: table[name][start:stop] for name in names})


@dataclass(frozen=True)
class GalaxyFrame:
    """The origin of a galaxy, its bulk velocity (kpc, km/s in the simulation's box) and the periodic box's sides."""

    center: Vector
    velocity: Vector
    box_size: Vector | None

    def stars(self, table: Table) -> Stars:
        """Stars from the columns position, velocity, mass, log_age, metallicity and, where there are, the others.

        Where there is no `initial_mass` it is NaN, to be filled in by the SSP library's surviving fraction.
        """
        return Stars(**self._columns(Stars, {"initial_mass": np.full_like(table["mass"], np.nan)} | table))

    def gas(self, table: Table) -> Gas:
        """Gas from the columns position, velocity, mass and, where there are, the others."""
        return Gas(**self._columns(Gas, table))

    def _columns(self, kind: type[Stars | Gas], table: Table) -> dict[str, Array]:
        """The columns that a kind of particles has, positions (nearest periodic images) and velocities relative to
        the galaxy. numpy changes their type: JAX would compile a program for every shape."""
        table = table | {"position": self.offset(table["position"]), "velocity": table["velocity"] - self.velocity}
        dtype = jax.dtypes.canonicalize_dtype(float)
        names = [field.name for field in fields(kind) if field.name in table]
        return {name: jax.device_put(np.array(table[name], dtype)) for name in names}

    def offset(self, position: Vectors) -> Vectors:
        """Nearest periodic images relative to the galaxy's centre, in kpc."""
        return unwrap(position, self.center, self.box_size)

    @property
    def wrapped_center(self) -> Vector:
        """The centre within the box."""
        return self.center if self.box_size is None else self.center % self.box_size


def find_frame(
    stars: StoredStars, given: Vector | None, box_size: Vector | None, origin: str = "galaxy.center"
) -> tuple[GalaxyFrame, tuple[str, ...]]:
    """The frame of these stars, with notes: the given centre (kpc; notes name its `origin`) or the shrinking sphere's.

    The bulk velocity is the mass-weighted mean of the stars within the half-mass radius, without those that are farther
    than five standard deviations from it (`clip_velocities`), which are noted. Up to 2^20 stars are gathered in every
    process. Of more, every k-th, counted from the first, is: the centre and the limits of velocity are those of this
    sample, the same whatever the slabs and the processes; two further passes over all of them find the bulk velocity,
    slab by slab.
    """
    step = -(-stars.n_stars // SAMPLE_STARS)
    sample = stars.every(step, _MOTIONS)
    if step == 1:
        stars = held_stars(sample)
    center = densest_place(sample["position"], sample["mass"], box_size)
    notes = ()
    if given is not None:
        apart = float(np.linalg.norm(unwrap((center - given)[None], np.zeros(3), box_size)))
        if apart > half_mass_radius(unwrap(sample["position"], center, box_size), sample["mass"]):
            text = f"{origin} is {apart:.3g} kpc from the densest place of the stars"
            notes = (
                Note(
                    "selection.off_centre",
                    f"{text}, beyond their half-mass radius (bare numbers are in the file's own unit)",
                    WARNING,
                ),
            )
        center = given
    offset = unwrap(sample["position"], center, box_size)
    squared = squared_distance(offset)
    inner = squared <= half_mass_radius(offset, sample["mass"]) ** 2 * (1 + 1e-12)
    clip = clip_velocities(sample["velocity"][inner], sample["mass"][inner])
    motion = _InnerHalf(stars, center, box_size, shell_edges(squared), clip).motion()
    if motion.n_clipped:
        note = Note(
            "galaxy.wild_velocities",
            f"{motion.n_clipped} of {motion.n_stars} stars within the half-mass radius are left out of the bulk "
            f"velocity: more than {clip.limit:.4g} km/s ({SIGMAS:g} sigma) from it, up to {motion.fastest:.4g} km/s",
        )
        notes = (*notes, note)
    return GalaxyFrame(center, motion.mean, box_size), notes


class _Motion(NamedTuple):
    """Sums over stars: `mass` and `momentum` of those whose velocities count; `n_clipped` are the others among
    `n_stars`, the `fastest` of them so far from the mean (km/s)."""

    mass: float
    momentum: Vector
    n_stars: int
    n_clipped: int
    fastest: float

    @staticmethod
    def of(mass: Float[ndarray, " particle"], velocity: Vectors, clip: Clip) -> "_Motion":
        """The sums over these stars, without the clipped ones."""
        distance = clip.distance(velocity)
        kept = distance <= clip.limit
        fastest = float(distance[~kept].max(initial=0.0))
        return _Motion(float(mass[kept].sum()), mass[kept] @ velocity[kept], len(mass), int(np.sum(~kept)), fastest)

    def joined(self, other: "_Motion") -> "_Motion":
        """Those over the stars of both."""
        return _Motion(
            self.mass + other.mass,
            self.momentum + other.momentum,
            self.n_stars + other.n_stars,
            self.n_clipped + other.n_clipped,
            max(self.fastest, other.fastest),
        )

    @property
    def mean(self) -> Vector:
        """The mass-weighted mean velocity."""
        return self.momentum / self.mass


@dataclass(frozen=True)
class _InnerHalf:
    """The stars within the half-mass radius about a centre: mass in shells first, then star by star in the shell that
    completes the half; `edges` are the squared radii between shells (kpc^2), `clip` says which velocities count."""

    stars: StoredStars
    center: Vector
    box_size: Vector | None
    edges: Float[ndarray, " edge"]
    clip: Clip

    def motion(self) -> _Motion:
        """Their mean velocity and how many do not count."""
        enclosed = np.cumsum(self.stars.team.total(self._shell_masses))
        shell = completing_half(enclosed, enclosed[-1])
        ends = np.concatenate([[-np.inf], self.edges, [np.inf]])[shell : shell + 2]
        found = self.stars.team.exchange(lambda: self._inside_and_between(*ends))
        inside = reduce(_Motion.joined, (motion for motion, _ in found))
        squared, mass, *velocity = np.concatenate([between for _, between in found]).T
        order = np.argsort(squared)
        within = np.cumsum(mass[order]) + (enclosed[shell - 1] if shell else 0.0)
        last = squared[order][completing_half(within, enclosed[-1])]
        inner = squared <= last * (1 + 1e-12)
        return inside.joined(_Motion.of(mass[inner], np.stack(velocity, axis=1)[inner], self.clip))

    def _squared(self, table: Table) -> Float[ndarray, " particle"]:
        return squared_distance(unwrap(table["position"], self.center, self.box_size))

    def _shell_masses(self) -> Float[ndarray, " shell"]:
        total = np.zeros(len(self.edges) + 1)
        for _, table in self.stars.slabs(_PLACES, "shells of stars read"):
            total += shell_masses(self.edges, self._squared(table), table["mass"])
        return total

    def _inside_and_between(self, first: float, last: float) -> tuple[_Motion, Float[ndarray, "particle 5"]]:
        """Sums over this process's stars within the squared radius `first`, and squared radius, mass and velocity of
        each from there to just beyond `last`."""
        inside, between = _Motion(0.0, np.zeros(3), 0, 0, 0.0), [np.zeros((0, 5))]
        for _, table in self.stars.slabs(_MOTIONS, "velocities of stars read"):
            squared, mass, velocity = self._squared(table), table["mass"], table["velocity"]
            below = squared < first
            inside = inside.joined(_Motion.of(mass[below], velocity[below], self.clip))
            near = ~below & (squared <= last * (1 + 1e-9))
            between.append(np.column_stack([squared[near], mass[near], velocity[near]]))
        return inside, np.concatenate(between)
