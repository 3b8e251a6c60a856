"""Areas of rectangles within a disc."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

_ROUNDING = 1e-12
"""Area (in squared radii) below which a rectangle that touches the disc is outside."""

_SMALL = 1e-6
"""Share of a rectangle below which it is outside of any disc."""


def disc_overlap(
    left: Float[ndarray, "*#n"],
    right: Float[ndarray, "*#n"],
    bottom: Float[ndarray, "*#n"],
    top: Float[ndarray, "*#n"],
    radius: float,
) -> Float[ndarray, "*#n"]:
    """Area of rectangles within a disc about the origin.

    By corners: F(right, top) - F(left, top) - F(right, bottom) + F(left, bottom), where F(x, y) is the area of the disc
    to the left of x and below y.
    """
    area = (
        _below_left(right, top, radius)
        - _below_left(left, top, radius)
        - _below_left(right, bottom, radius)
        + _below_left(left, bottom, radius)
    )
    whole = (right - left) * (top - bottom)
    farthest = np.maximum(np.abs(left), np.abs(right)) ** 2 + np.maximum(np.abs(bottom), np.abs(top)) ** 2
    area = np.where(farthest <= radius**2, whole, np.minimum(area, whole))
    return np.where(area > np.minimum(_ROUNDING * radius**2, _SMALL * whole), area, 0.0)


def _below_left(x: ndarray, y: ndarray, radius: float) -> ndarray:
    """Area of the unit disc (scaled by the radius) with abscissa below x and ordinate below y.

    Odd and even parts about the axes: a quarter of the disc, what lies between the axes and x or y, and the corner.
    """
    x, y = np.clip(x / radius, -1.0, 1.0), np.clip(y / radius, -1.0, 1.0)
    corner = np.sign(x) * np.sign(y) * _corner(np.abs(x), np.abs(y))
    return radius**2 * (np.pi / 4 + _strip(x) + _strip(y) + corner)


def _strip(x: ndarray) -> ndarray:
    return 0.5 * (x * np.sqrt(1.0 - x**2) + np.arcsin(x))


def _corner(x: ndarray, y: ndarray) -> ndarray:
    """Area of the unit disc in the rectangle from the origin to (x, y), both from 0 to 1."""
    inside = x**2 + y**2 <= 1.0
    start = np.sqrt(1.0 - y**2)  # where the circle passes the height y
    beyond = start * y + _strip(x) - _strip(np.minimum(start, x))
    return np.where(inside, x * y, np.where(start < x, beyond, x * y))
