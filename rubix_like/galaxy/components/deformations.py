"""What takes a component from a flat, round disc: a linear warp, and terms m = 1, 2 in light and streaming."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpy import ndarray

Scalar = Float[Array | ndarray, ""]
Places = Float[Array | ndarray, " point"]


class Warp(eqx.Module):
    """Inclination and position angle that change linearly with the radius beyond `start`."""

    start: Scalar
    tilt: Scalar
    turn: Scalar

    def angles(self, radius: Places) -> tuple[Places, Places]:
        """deg that are added to the inclination and the position angle at these radii (kpc)."""
        beyond = jnp.maximum(radius - self.start, 0.0)
        return self.tilt * beyond, self.turn * beyond


class Asymmetry(eqx.Module):
    """Harmonics over the azimuth phi in the plane, from the major axis on its receding side.

    Light: 1 + g sum_m a_m cos m (phi - phi_m). Speed: + g sum_m s_m cos m (phi - psi_m). g = R / (R + scale of the
    light) lets them vanish at the centre. Kinematic twist: the direction of the rotation is turned by k R, so that its
    line of nodes is.
    """

    light_1: Scalar
    light_angle_1: Scalar
    light_2: Scalar
    light_angle_2: Scalar
    streaming_1: Scalar
    streaming_angle_1: Scalar
    streaming_2: Scalar
    streaming_angle_2: Scalar
    kinematic_twist: Scalar

    def brightness(self, azimuth: Places, growth: Places) -> Places:
        """Factor on the light."""
        one = self.light_1 * jnp.cos(azimuth - jnp.deg2rad(self.light_angle_1))
        two = self.light_2 * jnp.cos(2 * (azimuth - jnp.deg2rad(self.light_angle_2)))
        return 1 + growth * (one + two)

    def velocity(self, speed: Places, azimuth: Places, radius: Places, growth: Places) -> tuple[Places, Places]:
        """Velocities along the azimuth and outwards (km/s)."""
        one = self.streaming_1 * jnp.cos(azimuth - jnp.deg2rad(self.streaming_angle_1))
        two = self.streaming_2 * jnp.cos(2 * (azimuth - jnp.deg2rad(self.streaming_angle_2)))
        turned = jnp.deg2rad(self.kinematic_twist) * radius
        return speed * jnp.cos(turned) + growth * (one + two), speed * jnp.sin(turned)
