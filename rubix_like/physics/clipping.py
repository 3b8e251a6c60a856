"""The mean velocity of stars, robust against single outliers (numpy, float64)."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

Vectors = Float[ndarray, "particle 3"]
Scalars = Float[ndarray, " particle"]

SIGMAS: float = 5.0

LEAST_DISPERSION: float = 1.0
"""km/s: no smaller dispersion is clipped by, so that stars at rest are not clipped for their last digits."""

FEWEST: int = 10
"""Fewer stars do not tell a dispersion to clip by."""

_TO_SIGMA = 1.4826
"""Standard deviation over median absolute deviation of a normal distribution."""
_MOST_ITERATIONS = 50


class Clip(NamedTuple):
    """Velocities that count: those no farther than `limit` from the `mean` of the others (km/s)."""

    mean: Float[ndarray, "3"]
    limit: float

    def distance(self, velocity: Vectors) -> Scalars:
        """|v - mean| of each velocity in km/s."""
        return np.linalg.norm(velocity - self.mean, axis=1)

    def keeps(self, velocity: Vectors) -> Bool[ndarray, " particle"]:
        """Whether each velocity counts, i.e. lies within the limit."""
        return self.distance(velocity) <= self.limit


def clip_velocities(velocity: Vectors, mass: Scalars) -> Clip:
    """Mass-weighted mean of the velocities (km/s) within five standard deviations of it, by iteration.

    It begins at the mass-weighted medians of the components, with 1.4826 times the median absolute deviations; then
    mean and one-dimensional dispersion, sigma^2 = sum m |v - mean|^2 / (3 sum m), are those of the stars with
    |v - mean| <= 5 sigma, until these stay the same (Beers, Flynn & Gebhardt 1990, AJ 100, 32, on such estimators). Of
    normal velocities 1.5e-5 lie beyond; a star in a galaxy seldom does, since it would escape. All of fewer than ten
    stars count, and all where nothing would be left.
    """
    everything = Clip(np.average(velocity, axis=0, weights=mass), np.inf)
    if len(mass) < FEWEST:
        return everything
    mean = np.array([_median(column, mass) for column in velocity.T])
    deviations = np.array([_median(column, mass) for column in np.abs(velocity - mean).T])
    sigma = _TO_SIGMA * float(np.sqrt(np.mean(deviations**2)))
    clip, kept = Clip(mean, np.inf), np.zeros(len(mass), dtype=bool)
    for _ in range(_MOST_ITERATIONS):
        clip = Clip(mean, SIGMAS * max(sigma, LEAST_DISPERSION))
        inside = clip.keeps(velocity)
        total = mass[inside].sum()
        if not total > 0:
            return everything
        if np.array_equal(inside, kept):
            break
        kept, mean = inside, mass[inside] @ velocity[inside] / total
        sigma = float(np.sqrt(mass[inside] @ np.sum((velocity[inside] - mean) ** 2, axis=1) / (3.0 * total)))
    return clip


def _median(values: Scalars, mass: Scalars) -> float:
    """The value below which half of the mass is."""
    order = np.argsort(values)
    enclosed = np.cumsum(mass[order])
    return float(values[order][min(np.searchsorted(enclosed, 0.5 * enclosed[-1]), len(order) - 1)])
