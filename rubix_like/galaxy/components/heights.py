"""Vertical profiles of a component: density over the height above its plane, not normalised."""

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpy import ndarray

Scalar = Float[Array | ndarray, ""]
Places = Float[Array | ndarray, " point"]


class AbstractHeight(eqx.Module):
    """A density over z / `scale` (kpc), the same at all radii; only ratios matter. `highest`: |z| / scale of the
    outermost points."""

    highest: ClassVar[float] = 6.0

    @property
    @abstractmethod
    def scale(self) -> Scalar:
        """kpc; 0 for a thin component."""

    @abstractmethod
    def density(self, place: Places) -> Places:
        """The density at z / scale, >= 0."""


class Thin(AbstractHeight):
    """All light in the plane."""

    @property
    def scale(self) -> Scalar:
        """Nothing."""
        return jnp.zeros(())

    def density(self, place: Places) -> Places:
        """The same for all points, which are in the plane."""
        return jnp.ones_like(place)


class SechSquared(AbstractHeight):
    """sech^2(z / h), an isothermal sheet (van der Kruit & Searle 1981, A&A 95, 105)."""

    scale_height: Scalar

    @property
    def scale(self) -> Scalar:
        """The scale height."""
        return self.scale_height

    def density(self, place: Places) -> Places:
        """sech^2."""
        return 1 / jnp.cosh(place) ** 2


class ExponentialHeight(AbstractHeight):
    """exp(-|z| / h)."""

    scale_height: Scalar
    highest: ClassVar[float] = 11.0

    @property
    def scale(self) -> Scalar:
        """The scale height."""
        return self.scale_height

    def density(self, place: Places) -> Places:
        """The exponential."""
        return jnp.exp(-jnp.abs(place))
