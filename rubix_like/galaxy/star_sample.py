"""A sample of a galaxy's stars that does not depend on the parts in which they are read."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, UInt64
from numpy import ndarray

SAMPLE_STARS: int = 1 << 18
"""Of more stars than this about so many are kept."""

_SPREAD = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


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
    def of(
        position: Float[ndarray, "particle 3"],
        velocity: Float[ndarray, "particle 3"],
        mass: Float[ndarray, " particle"],
    ) -> "StarSample":
        """That of these stars, in float64."""
        position, velocity, mass = (np.asarray(x, dtype=np.float64) for x in (position, velocity, mass))
        numbers = _numbers([*position.T, *velocity.T, mass])
        return StarSample(len(mass), numbers, position, velocity, mass).among(len(mass))

    def joined(self, other: "StarSample") -> "StarSample":
        """That of the stars of both."""
        both = (np.concatenate(pair) for pair in zip(self[1:], other[1:], strict=True))
        n_stars = self.n_stars + other.n_stars
        return StarSample(n_stars, *both).among(n_stars)

    def among(self, n_stars: int) -> "StarSample":
        """The stars of this part that belong to the sample of all `n_stars` stars."""
        if n_stars <= SAMPLE_STARS:
            return self
        return self._taken(self.number < np.uint64((SAMPLE_STARS << 64) // n_stars))

    def in_order(self) -> "StarSample":
        """By their numbers, so that sums over it have the same bits whatever the parts that it was joined from."""
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
