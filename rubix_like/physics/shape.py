"""The shape of a set of stars: axis ratios and axes of the iterated, reduced shape tensor (numpy, float64)."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

CHANGE: float = 1e-3
"""The iteration ends when both axis ratios move by less than this."""

MOST_ITERATIONS: int = 100

_THINNEST = 0.01
"""Smallest axis ratio of an ellipsoid in which stars are looked for, so that flat discs have one."""
_DEGENERATE = 1e-10
"""Eigenvalues below this share of the largest one are 0."""
_AMPLIFIED = 2.0
"""Factor by which the iteration enlarges the noise of the axes, since the ellipsoid follows the stars."""


class Shape(NamedTuple):
    """The ellipsoid that best describes the stars within a given volume.

    `axes`: unit vectors in columns, the long, the middle and the short axis; `ratios`: b/a and c/a; `inside`: which
    stars are within the final ellipsoid; `error`: standard error of the short axis' direction by the number of stars,
    in deg, 180 where the middle axis is as short; `change`: by how much the ratios moved last.
    """

    axes: Float[ndarray, "3 3"]
    ratios: tuple[float, float]
    inside: Bool[ndarray, " particle"]
    error: float
    change: float

    @property
    def converged(self) -> bool:
        """Whether the last iteration moved both ratios by less than `CHANGE`."""
        return self.change < CHANGE

    @property
    def short(self) -> Float[ndarray, "3"]:
        """Unit vector along the short axis; of its two ends the one whose largest component is positive."""
        axis = self.axes[:, 2]
        return axis * np.sign(axis[np.argmax(np.abs(axis))])


def measure_shape(
    position: Float[ndarray, "particle 3"], mass: Float[ndarray, " particle"], radius: float
) -> Shape | None:
    """Shape of the stars about the origin within the volume of a sphere of `radius`; None where they have none.

    The eigenvectors of S = sum_i m_i x_i x_i^T / r_i^2 are the axes, the roots of its eigenvalues are in their ratios;
    r_i^2 = x^2 + y^2 / (b/a)^2 + z^2 / (c/a)^2 along the axes found before, and the sum is over the stars within the
    ellipsoid of these axes and ratios whose volume is that of the sphere, which is the first one (Dubinski & Carlberg
    1991, ApJ 378, 496; the weight 1 / r_ell^2 of Zemp et al. 2011, ApJS 197, 30, who compare such tensors and find the
    ratios to be means over the volume, not those at its surface; at fixed volume as in Thob et al. 2019, MNRAS 485,
    972). Ends when both ratios move by less than 1e-3, or after 100 iterations. A star counts by its mass, wherever it
    is, so the shape is that of the bulk of the mass; those outside do not count at all.
    None: fewer than three stars within the sphere, or all of them on one line through the origin; where a later
    ellipsoid has too few stars, or stars on one line only, the shape before it is returned. Lengths in any unit.
    """
    rows = np.ascontiguousarray(position.T)
    axes, ratios, shape = np.eye(3), np.ones(3), None
    for _ in range(MOST_ITERATIONS):
        along, lengths = axes.T @ rows, np.maximum(ratios, _THINNEST)
        x, y, z = along / lengths[:, None]
        squared = x * x + y * y + z * z  # of a star on the long axis its distance squared
        longest = float(radius / np.prod(lengths) ** (1 / 3))
        within = squared <= longest**2
        if within.sum() < 3:
            return shape
        inside = within & (squared > 0)  # the very centre has no direction
        weight = np.where(inside, mass, 0.0) / np.where(inside, squared, 1.0)
        values, vectors = np.linalg.eigh((weight * along) @ along.T)
        values, vectors = values[::-1], vectors[:, ::-1]
        if values[1] <= _DEGENERATE * values[0]:
            return shape
        before, ratios = ratios, np.sqrt(np.maximum(values, 0.0) / values[0])
        axes = axes @ vectors
        error = _error_of_short_axis(values, vectors.T @ along, weight)
        change = float(np.abs(ratios - before).max())
        shape = Shape(axes, (float(ratios[1]), float(ratios[2])), inside, error, change)
        if shape.converged:
            break
    return shape


def _error_of_short_axis(
    values: Float[ndarray, "3"], along: Float[ndarray, "3 particle"], weight: Float[ndarray, " particle"]
) -> float:
    """Standard error in deg, from the eigenvalues (largest first) and the stars' coordinates along their axes."""
    gaps = values[:2] - values[2]
    if gaps[1] <= _DEGENERATE * values[0]:
        return 180.0
    scatter = np.array([np.linalg.norm(weight * along[axis] * along[2]) for axis in (0, 1)])
    return min(float(_AMPLIFIED * np.rad2deg(np.linalg.norm(scatter / gaps))), 180.0)
