"""Velocity dispersions of a component along any axis, over the radius in its plane."""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.constants import GRAVITY

Scalar = Float[Array | ndarray, ""]
Places = Float[Array | ndarray, " point"]


class AbstractDispersion(eqx.Module):
    """A dispersion that is the same along all axes."""

    @abstractmethod
    def sigma(self, radius: Places, column: Places, height: Scalar) -> Places:
        """km/s at these radii (kpc), >= 0; `column`: surface density of the component there (Msun / kpc^2), `height`:
        its scale height (kpc)."""


class ExponentialDispersion(AbstractDispersion):
    """sqrt((s_0^2 - s_f^2) exp(-2 R / R_s) + s_f^2): s_0 at the centre, falling to the floor s_f."""

    central: Scalar
    scale_length: Scalar
    floor: Scalar

    def sigma(self, radius: Places, column: Places, height: Scalar) -> Places:  # noqa: ARG002
        """The exponential over its floor, added in squares."""
        fall = jnp.exp(-2 * radius / self.scale_length)
        return jnp.sqrt(self.central**2 * fall + self.floor**2 * (1 - fall) + 1e-12)


class FromHeight(AbstractDispersion):
    """sqrt(pi G f Sigma h): what holds an isothermal sheet sech^2(z / h) up (van der Kruit & Searle 1981, A&A 95, 105),
    Sigma being the component's own mass and f all mass over it."""

    mass_factor: Scalar

    def sigma(self, radius: Places, column: Places, height: Scalar) -> Places:  # noqa: ARG002
        """Of the column and the height."""
        return jnp.sqrt(jnp.pi * GRAVITY * self.mass_factor * column * height + 1e-12)
