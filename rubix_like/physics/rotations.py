"""Proper rotations: from the array's axes to the galaxy's, from those to the sky, and from the sky to a field."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray


def smallest_rotation(start: Float[ndarray, "3"], end: Float[ndarray, "3"]) -> Float[ndarray, "3 3"]:
    """The proper rotation by the smallest angle that takes the unit vector `start` to `end` (Rodrigues' formula)."""
    cosine = float(start @ end)
    axis = np.cross(start, end)
    if cosine < -1.0 + 1e-12:  # opposite: half a turn about any perpendicular axis
        other = np.eye(3)[int(np.argmin(np.abs(start)))]
        axis = np.cross(start, other)
        axis /= np.linalg.norm(axis)
        return 2.0 * np.outer(axis, axis) - np.eye(3)
    cross = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    return np.eye(3) + cross + cross @ cross / (1.0 + cosine)


def sky_rotation(inclination: Float[Array, ""], position_angle: Float[Array, ""]) -> Float[Array, "3 3"]:
    """Rotation from body axes (X, Y, Z = angular momentum) to the sky (East, North, away), angles in degrees.

    sky = X (sin PA, cos PA, 0) + Y (-cos PA cos i, sin PA cos i, sin i) + Z (cos PA sin i, -sin PA sin i, cos i):
    X is the major axis, seen at position angle PA (North through East), on its receding side.
    """
    i, pa = jnp.deg2rad(inclination), jnp.deg2rad(position_angle)
    cos_i, sin_i, cos_pa, sin_pa = jnp.cos(i), jnp.sin(i), jnp.cos(pa), jnp.sin(pa)
    major = jnp.stack([sin_pa, cos_pa, jnp.zeros_like(cos_pa)])
    minor = jnp.stack([-cos_pa * cos_i, sin_pa * cos_i, sin_i])
    pole = jnp.stack([cos_pa * sin_i, -sin_pa * sin_i, cos_i])
    return jnp.stack([major, minor, pole], axis=1)


def field_rotation(field_angle: Float[Array, ""]) -> Float[Array, "3 3"]:
    """Rotation from the sky (East, North, away) to the axes of a field (-column, row, away), the angle in degrees.

    x = East cos a - North sin a, y = East sin a + North cos a: +y, up along the rows, lies at position angle a.
    """
    a = jnp.deg2rad(field_angle)
    cos, sin, zero, one = jnp.cos(a), jnp.sin(a), jnp.zeros_like(a), jnp.ones_like(a)
    return jnp.stack([jnp.stack([cos, -sin, zero]), jnp.stack([sin, cos, zero]), jnp.stack([zero, zero, one])])
