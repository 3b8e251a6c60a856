"""Light profiles: surface density in the plane of a component, face-on, not normalised."""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpy import ndarray

Scalar = Float[Array | ndarray, ""]
Places = Float[Array | ndarray, " point"]


class AbstractLight(eqx.Module):
    """A surface density over R / `scale`; only ratios matter, since the component's mass scales it.

    `scale` (kpc) is the length that the quadrature points stretch with: a smooth function of the parameters.
    """

    @property
    @abstractmethod
    def scale(self) -> Scalar:
        """kpc; 0 for a point."""

    @abstractmethod
    def surface(self, place: Places) -> Places:
        """The surface density at R / scale, >= 0."""


class Exponential(AbstractLight):
    """exp(-R / R_d) (Freeman 1970, ApJ 160, 811)."""

    scale_length: Scalar

    @property
    def scale(self) -> Scalar:
        """The scale length."""
        return self.scale_length

    def surface(self, place: Places) -> Places:
        """The exponential."""
        return jnp.exp(-place)


class Truncated(AbstractLight):
    """An exponential that is steeper beyond a radius (Erwin, Pohlen & Beckman 2008, AJ 135, 20, eq. 5).

    exp(-R / h) (1 + exp(a (R - R_b)))^((1 / h - 1 / h_out) / a), with a = 5 / h_out.
    """

    scale_length: Scalar
    truncation_radius: Scalar
    outer_scale_length: Scalar

    @property
    def scale(self) -> Scalar:
        """The inner scale length."""
        return self.scale_length

    def surface(self, place: Places) -> Places:
        """The broken exponential."""
        radius, sharpness = place * self.scale_length, 5 / self.outer_scale_length
        beyond = jnp.logaddexp(0.0, sharpness * (radius - self.truncation_radius))
        slope = (1 / self.scale_length - 1 / self.outer_scale_length) / sharpness
        return jnp.exp(-place + slope * beyond)


class Sersic(AbstractLight):
    """exp(-b ((R / R_e)^(1/n) - 1)), with b of Ciotti & Bertin (1999, A&A 352, 447, eq. 18) such that half of the light
    is within R_e."""

    effective_radius: Scalar
    index: Scalar

    @property
    def scale(self) -> Scalar:
        """The effective radius."""
        return self.effective_radius

    def surface(self, place: Places) -> Places:
        """Sersic's law."""
        return jnp.exp(-sersic_b(self.index) * (jnp.maximum(place, 1e-12) ** (1 / self.index) - 1))


class Ring(AbstractLight):
    """exp(-(R - R_0)^2 / 2 w^2)."""

    radius: Scalar
    width: Scalar

    @property
    def scale(self) -> Scalar:
        """The ring's radius."""
        return self.radius

    def surface(self, place: Places) -> Places:
        """The Gaussian about the ring's radius."""
        return jnp.exp(-0.5 * ((place - 1) * self.radius / self.width) ** 2)


class Gaussian(AbstractLight):
    """exp(-R^2 / 2 s^2)."""

    sigma: Scalar

    @property
    def scale(self) -> Scalar:
        """The standard deviation along an axis."""
        return self.sigma

    def surface(self, place: Places) -> Places:
        """The Gaussian."""
        return jnp.exp(-0.5 * place**2)


class PointOfLight(AbstractLight):
    """All light at the component's centre."""

    @property
    def scale(self) -> Scalar:
        """Nothing."""
        return jnp.zeros(())

    def surface(self, place: Places) -> Places:
        """How the points share the light, which are all at one place."""
        return jnp.exp(-place)


OF_ONE_SHAPE: tuple[type[AbstractLight], ...] = (Exponential, Gaussian, PointOfLight)
"""Profiles whose density over R / `scale` depends on no parameter: radii of their points are the same for all."""


def sersic_b(index: Scalar) -> Scalar:
    """b(n) with gamma(2 n, b) = Gamma(2 n) / 2, to 4e-4 of it at n = 0.5, 3e-5 at 1, 2e-6 from 2 on."""
    n = index
    last = 2194697 / (30690717750.0 * n**4)  # a float: JAX refuses whole numbers beyond 32 bits beside such ones
    return 2 * n - 1 / 3 + 4 / (405 * n) + 46 / (25515 * n**2) + 131 / (1148175 * n**3) - last
