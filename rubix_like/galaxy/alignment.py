"""A galaxy's axes: by the shape of its stars, or by their angular momentum, within a few half-mass radii."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, UInt64
from numpy import ndarray

from rubix_like.galaxy.particles import Stars
from rubix_like.physics.centering import Radius, half_mass_radius, squared_distance
from rubix_like.physics.clipping import clip_velocities
from rubix_like.physics.rotations import smallest_rotation
from rubix_like.physics.shape import MOST_ITERATIONS, Shape, measure_shape
from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.words import counted

Vector = Float[ndarray, "3"]

LARGEST_ANGLE: float = 20.0
"""deg: a larger angle between short axis and angular momentum is noted."""

LARGEST_ERROR: float = 15.0
"""deg: short axes known less well are those of round galaxies, of which 95 % have a larger error (2000 stars)."""

SAMPLE_STARS: int = 1 << 18
"""Largest number of stars that are kept whole; of more, about this many are drawn."""

_SPREAD = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))

_NOTHING = 1e-10
_REMEDY = "use 'align: none' to keep the axes of the input"


class StarSample(NamedTuple):
    """All of some stars or, of more than 2^18, about so many of them, drawn by a hash of what they are.

    A star's number is a hash of its position, velocity and mass, even over 0 to 2^64; of n stars those with a number
    below 2^64 2^18 / n are kept. Samples of parts are therefore joined to that of the whole, and neither the order of
    stars nor their share among slabs and processes changes it. Positions in kpc, velocities in km/s, masses in Msun.
    """

    n_stars: int
    number: UInt64[ndarray, " particle"]
    position: Float[ndarray, "particle 3"]
    velocity: Float[ndarray, "particle 3"]
    mass: Float[ndarray, " particle"]

    @staticmethod
    def of(stars: Stars) -> "StarSample":
        """The sample of these stars, in float64, with their mass now, or at birth where it is not known."""
        mass = stars.initial_mass if stars.mass is None else stars.mass
        position, velocity, mass = (np.asarray(x, dtype=np.float64) for x in (stars.position, stars.velocity, mass))
        numbers = _numbers([*position.T, *velocity.T, mass])
        return StarSample(len(mass), numbers, position, velocity, mass).among(len(mass))

    def joined(self, other: "StarSample") -> "StarSample":
        """The sample of the stars of both."""
        both = (np.concatenate(pair) for pair in zip(self[1:], other[1:], strict=True))
        n_stars = self.n_stars + other.n_stars
        return StarSample(n_stars, *both).among(n_stars)

    def among(self, n_stars: int) -> "StarSample":
        """The stars of this part that belong to the sample of all `n_stars` stars."""
        if n_stars <= SAMPLE_STARS:
            return self
        return self._taken(self.number < np.uint64((SAMPLE_STARS << 64) // n_stars))

    def in_order(self) -> "StarSample":
        """The sample sorted by number, so that sums over it do not depend on the parts that it was joined from."""
        return self._taken(np.argsort(self.number, kind="stable"))

    def _taken(self, which: ndarray) -> "StarSample":
        return StarSample(self.n_stars, *(values[which] for values in self[1:]))


def _numbers(columns: list[Float[ndarray, " particle"]]) -> UInt64[ndarray, " particle"]:
    """splitmix64 (Steele, Lea & Flood 2014) through the bits of all columns."""
    step, first, second = _SPREAD
    state = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        state = (state ^ np.ascontiguousarray(column).view(np.uint64)) + step
        state = (state ^ (state >> np.uint64(30))) * first
        state = (state ^ (state >> np.uint64(27))) * second
        state ^= state >> np.uint64(31)
    return state


@dataclass(frozen=True, eq=False)
class Alignment:
    """The body axes of a galaxy, and what they were aligned to.

    `rotation`: from the axes of the arrays to the body's; `radius` in kpc; `ratios`: b/a and c/a, None where the stars
    have no shape; `angle`: in deg, between short axis and angular momentum, None where there is none of either;
    `notes`: sentences for the user.
    """

    rotation: Float[ndarray, "3 3"]
    radius: float
    ratios: tuple[float, float] | None
    angle: float | None
    notes: tuple[str, ...]

    @property
    def meta(self) -> dict[str, float | None]:
        """The values of the alignment for the cube's header."""
        b_a, c_a = (None, None) if self.ratios is None else self.ratios
        return {"align_radius": self.radius, "axis_ratio_b_a": b_a, "axis_ratio_c_a": c_a, "align_angle": self.angle}


def align(by: str, radius: Radius, sample: StarSample) -> Alignment:
    """The rotation to the body axes: Z is the short axis of the stars, or with `by` angular_momentum their spin.

    The short axis is that of the iterated shape tensor (`measure_shape`) within the volume of a sphere of `radius`
    about the origin; it points to the side of the angular momentum of the stars within the final ellipsoid,
    L = sum m x x (v - <v>), wild velocities left out (`clip_velocities`). With `by` angular_momentum L is that of the
    stars within the sphere. X and Y follow by the smallest rotation. Where the number of stars does not tell the short
    axis to 15 deg (a round galaxy), L takes its place, with a note. Raises ValueError where there is no such axis.
    """
    stars = _Stars.of(sample.in_order(), radius)
    shape = measure_shape(stars.position, stars.mass, stars.radius)
    if by == "angular_momentum":
        spin, notes = stars.spin(stars.inside_sphere), []
        if spin is None:
            raise ValueError(
                f"observation.align: expected stars that rotate for 'angular_momentum', got {stars.words} without "
                f"angular momentum; use 'align: stars', or {_REMEDY}"
            )
        pole = spin
    elif shape is None:
        raise ValueError(
            f"observation.align: expected a galaxy with a short axis, got {stars.words}, which are too few or on one "
            f"line; give a larger observation.align_radius, or {_REMEDY}"
        )
    else:
        spin = stars.spin(shape.inside)
        pole, notes = _pole(shape, spin, stars)
    angle = None
    if shape is not None and spin is not None:  # an axis has no sign
        across, along = np.linalg.norm(np.cross(shape.short, spin)), abs(shape.short @ spin)
        angle = float(np.rad2deg(np.arctan2(across, along)))
    return Alignment(
        rotation=smallest_rotation(pole, np.array([0.0, 0.0, 1.0])),
        radius=stars.radius,
        ratios=None if shape is None else shape.ratios,
        angle=angle,
        notes=(*notes, *_notes(by, shape, angle, stars)),
    )


class _Stars(NamedTuple):
    """Stars in the order of a sample, and the radius (kpc) within which they count."""

    position: Float[ndarray, "particle 3"]
    velocity: Float[ndarray, "particle 3"]
    mass: Float[ndarray, " particle"]
    radius: float
    inside_sphere: Bool[ndarray, " particle"]

    @staticmethod
    def of(sample: StarSample, radius: Radius) -> "_Stars":
        kpc = radius.kpc(half_mass_radius(sample.position, sample.mass))
        inside = squared_distance(sample.position) <= kpc**2 * (1 + 1e-12)
        return _Stars(sample.position, sample.velocity, sample.mass, kpc, inside)

    @property
    def words(self) -> str:
        """The stars in words, such as `3 stars within 2.1 kpc`."""
        return f"{counted(int(self.inside_sphere.sum()), 'star')} within {self.radius:.3g} kpc of the centre"

    def spin(self, which: Bool[ndarray, " particle"]) -> Vector | None:
        """The direction of the angular momentum of these stars; None where they have none."""
        position, velocity, mass = (values[which] for values in (self.position, self.velocity, self.mass))
        if not mass.sum() > 0:
            return None
        clip = clip_velocities(velocity, mass)
        counted = clip.keeps(velocity)
        each = mass[counted, None] * np.cross(position[counted], velocity[counted] - clip.mean)
        total, length = each.sum(axis=0), np.linalg.norm(each, axis=1).sum()
        size = float(np.linalg.norm(total))
        return None if size <= _NOTHING * length else total / size


def _pole(shape: Shape, spin: Vector | None, stars: _Stars) -> tuple[Vector, list[Note]]:
    """Z of `align: stars`, with notes: the short axis on the side of the spin, or of a round galaxy the spin."""
    short = shape.short if spin is None or shape.short @ spin >= 0 else -shape.short
    if shape.error <= LARGEST_ERROR:
        return short, []
    ratios = f"b/a {shape.ratios[0]:.2f}, c/a {shape.ratios[1]:.2f}"
    if spin is not None:
        return spin, [
            Note(
                "alignment.round",
                f"the {stars.words} are too round, or too few, to have a short axis ({ratios}; known to about "
                f"{shape.error:.0f} deg): they were aligned by their angular momentum",
                WARNING,
            )
        ]
    if shape.error >= 180.0:
        raise ValueError(
            f"observation.align: expected a galaxy with a short axis or an angular momentum, got {stars.words} with "
            f"neither ({ratios}); {_REMEDY}"
        )
    return short, [
        Note(
            "alignment.uncertain",
            f"the short axis of the {stars.words} is known to about {shape.error:.0f} deg only ({ratios})",
            WARNING,
        )
    ]


def _notes(by: str, shape: Shape | None, angle: float | None, stars: _Stars) -> list[Note]:
    """Notes on the axes for the user."""
    notes = []
    if shape is not None and not shape.converged:
        notes.append(
            Note(
                "alignment.not_converged",
                f"the shape of the {stars.words} did not converge in {MOST_ITERATIONS} iterations: the axis ratios "
                f"still move by {shape.change:.2g}",
                WARNING,
            )
        )
    if angle is not None and angle > LARGEST_ANGLE:
        other = "angular_momentum" if by == "stars" else "stars"
        notes.append(
            Note(
                "alignment.misaligned",
                f"the short axis of the {stars.words} is {angle:.0f} deg from their angular momentum: inclination and "
                f"position angle are those of the {'shape' if by == 'stars' else 'rotation'} only (observation.align: "
                f"{other} takes the other)",
                WARNING,
            )
        )
    return notes
