"""Shapes of fields on the sky."""

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray


def inside_aperture(
    shape: str, x: Float[ndarray, "y x"], y: Float[ndarray, "y x"], width: float, height: float
) -> Bool[ndarray, "y x"]:
    """Whether points (arcsec from the field's centre) lie in a shape of the given full width and height.

    rectangle; circle (an ellipse where width and height differ); hexagon: regular, `width` from corner to corner, two
    corners East and West.
    """
    x, y = np.abs(x), np.abs(y)
    slack = 1e-9 * max(width, height)
    if shape == "rectangle":
        return (x <= width / 2 + slack) & (y <= height / 2 + slack)
    if shape == "circle":
        return (2 * x / width) ** 2 + (2 * y / height) ** 2 <= 1 + 1e-9
    side = width / 2
    return (y <= side * np.sqrt(3) / 2 + slack) & (np.sqrt(3) * x + y <= np.sqrt(3) * side + slack)
