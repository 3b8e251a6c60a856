"""Proper rotations: from the array's axes to the galaxy's own, from those to the sky, and from the sky to a field."""

from typing import NamedTuple

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


class Moments(NamedTuple):
    """Sums over stars, about the origin of the arrays, that tell a galaxy's own axes; those of parts add up.

    `second` is sum_i m_i r_i r_i^T (Msun kpc^2), `momentum` sum_i m_i r_i x v_i (Msun kpc km/s).
    """

    n_star: int
    second: Float[ndarray, "3 3"]
    momentum: Float[ndarray, "3"]

    @staticmethod
    def of(
        position: Float[ndarray, "particle 3"],
        velocity: Float[ndarray, "particle 3"],
        mass: Float[ndarray, " particle"],
    ) -> "Moments":
        """The sums over these stars, in float64."""
        position, velocity, mass = (np.asarray(x, dtype=np.float64) for x in (position, velocity, mass))
        return Moments(
            n_star=len(mass),
            second=position.T @ (mass[:, None] * position),
            momentum=mass @ np.cross(position, velocity),
        )

    def joined(self, other: "Moments") -> "Moments":
        """The sums over the stars of both."""
        return Moments(self.n_star + other.n_star, self.second + other.second, self.momentum + other.momentum)

    @property
    def inertia(self) -> Float[ndarray, "3 3"]:
        """I = sum_i m_i (|r_i|^2 1 - r_i r_i^T) in Msun kpc^2; its largest eigenvalue belongs to the short axis."""
        return np.trace(self.second) * np.eye(3) - self.second

    def rotation(self) -> Float[ndarray, "3 3"]:
        """Rotation to the galaxy's body axes (X, Y, Z): the short axis of the inertia tensor becomes Z.

        Z points along the angular momentum (the sign of the short axis that has a positive component of it); X and Y
        follow by the smallest rotation. Raises ValueError where a short axis does not exist (fewer than three stars, or
        all on one line).
        """
        moments, axes = np.linalg.eigh(self.inertia)
        spread = moments[2] - moments[1]
        if self.n_star < 3 or moments[2] <= 0 or spread <= 1e-10 * moments[2]:
            raise ValueError(
                f"observation.align: expected a galaxy with a short axis, got {self.n_star} star(s) whose inertia "
                f"tensor has principal moments {moments.tolist()} Msun kpc^2; use 'align: none' to keep the axes of "
                f"the input"
            )
        short = axes[:, 2]
        return smallest_rotation(-short if short @ self.momentum < 0 else short, np.array([0.0, 0.0, 1.0]))


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
