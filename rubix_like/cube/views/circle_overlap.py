"""The share of every spaxel that lies in a circle: weights of a circular aperture."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray


def circle_overlap(x: Float[ndarray, " x"], y: Float[ndarray, " y"], radius: float) -> Float[ndarray, "y x"]:
    """Area that unit squares centred on the grid of `x` and `y` share with a circle of `radius` about the origin.

    Exact: by the area of the circle over 0 < u < x, 0 < v < y, which is x y where that corner lies inside, else
    a y + the integral of sqrt(r^2 - u^2) from a = sqrt(r^2 - y^2) to x. A whole square counts 1.
    """
    right, upper = x[None, :] + 0.5, y[:, None] + 0.5
    corners = [_corner_area(u, v, radius) for u, v in ((right, upper), (right - 1, upper), (right, upper - 1))]
    return np.clip(corners[0] - corners[1] - corners[2] + _corner_area(right - 1, upper - 1, radius), 0.0, 1.0)


def _corner_area(x: Float[ndarray, "*x"], y: Float[ndarray, "*y"], radius: float) -> Float[ndarray, "y x"]:
    """The area of the circle between the axes and (x, y), negative in the second and fourth quadrant."""
    sign = np.sign(x) * np.sign(y)
    x, y = np.minimum(np.abs(x), radius), np.minimum(np.abs(y), radius)
    edge = np.sqrt(radius**2 - y**2)
    beyond = np.maximum(x, edge)
    curved = edge * y + _segment(beyond, radius) - _segment(edge, radius)
    return sign * np.where(x <= edge, x * y, curved)


def _segment(x: Float[ndarray, "*x"], radius: float) -> Float[ndarray, "*x"]:
    """The integral of sqrt(r^2 - u^2) from 0 to x."""
    return 0.5 * (x * np.sqrt(np.maximum(radius**2 - x**2, 0.0)) + radius**2 * np.arcsin(np.minimum(x / radius, 1.0)))
