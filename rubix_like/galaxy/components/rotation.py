"""Rotation curves: the mean velocity about the component's axis, over the radius in its plane."""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray
from scipy.interpolate import CubicSpline

from rubix_like.galaxy.components.mass_models import HALOS, bulge_square, disc_square

Scalar = Float[Array | ndarray, ""]
Places = Float[Array | ndarray, " point"]

_FLOOR = 1.0
"""km/s."""


class AbstractRotation(eqx.Module):
    """A curve of rotation; below 0 it turns the other way."""

    @abstractmethod
    def speed(self, radius: Places, drift: Places) -> Places:
        """Mean speed (km/s) at these radii (kpc); 0 at the centre.

        `drift`, sigma^2 d ln(Sigma sigma^2) / d ln R in (km/s)^2, is what pressure adds to the square of the circular
        speed (below 0); curves that are the mean speed itself leave it.
        """


class Arctan(AbstractRotation):
    """V (2 / pi) arctan(R / R_t) (Courteau 1997, AJ 114, 2402)."""

    velocity: Scalar
    turnover_radius: Scalar

    def speed(self, radius: Places, drift: Places) -> Places:  # noqa: ARG002
        """The arctangent."""
        return self.velocity * (2 / jnp.pi) * jnp.arctan(radius / self.turnover_radius)


class Tanh(AbstractRotation):
    """V tanh(R / R_t) (Andersen & Bershady 2013, ApJ 768, 41)."""

    velocity: Scalar
    turnover_radius: Scalar

    def speed(self, radius: Places, drift: Places) -> Places:  # noqa: ARG002
        """The hyperbolic tangent."""
        return self.velocity * jnp.tanh(radius / self.turnover_radius)


class MultiParameter(AbstractRotation):
    """V (1 + x)^beta / (1 + x^gamma)^(1 / gamma), x = R_t / R (Courteau 1997, eq. 2): beta turns the outer curve up or
    down, gamma is the sharpness of the turnover."""

    velocity: Scalar
    turnover_radius: Scalar
    beta: Scalar
    gamma: Scalar

    def speed(self, radius: Places, drift: Places) -> Places:  # noqa: ARG002
        """(x + 1)^beta x^(1 - beta) / (x^gamma + 1)^(1 / gamma) of x = R / R_t, finite at the centre."""
        x = jnp.maximum(radius / self.turnover_radius, 1e-9)
        inner = jnp.logaddexp(jnp.zeros_like(x), self.gamma * jnp.log(x)) / self.gamma  # x^gamma may overflow
        return self.velocity * (1 + x) ** self.beta * x ** (1 - self.beta) * jnp.exp(-inner)


class Spline(AbstractRotation):
    """A natural cubic spline through 0 at the centre and `speeds` at `radii` (kpc), beyond the last one constant."""

    speeds: Float[Array, " knot"]
    radii: tuple[float, ...] = eqx.field(static=True)

    def speed(self, radius: Places, drift: Places) -> Places:  # noqa: ARG002
        """The spline."""
        knots = np.array([0.0, *self.radii])
        pieces = CubicSpline(knots, np.eye(len(knots))[:, 1:], bc_type="natural").c
        dtype = radius.dtype
        inside = jnp.minimum(radius, self.radii[-1])
        interval = jnp.clip(jnp.searchsorted(jnp.asarray(knots, dtype), inside) - 1, 0, len(self.radii) - 1)
        coefficients = jnp.einsum("pik,k->pi", jnp.asarray(pieces, dtype), self.speeds)[:, interval]
        offset = inside - jnp.asarray(knots, dtype)[interval]
        return ((coefficients[0] * offset + coefficients[1]) * offset + coefficients[2]) * offset + coefficients[3]


class MassModel(AbstractRotation):
    """Disc, bulge and halo, v^2 = v_disc^2 + v_bulge^2 + v_halo^2 (`mass_models`), less the asymmetric drift.

    v_phi^2 = v^2 + sigma^2 d ln(Sigma sigma^2) / d ln R for an isotropic dispersion and a height that does not depend
    on the radius (Binney & Tremaine 2008, eq. 4.227); where it would be below 0 it is 0, within 1 km/s.
    """

    disc_mass: Scalar
    disc_scale_length: Scalar
    bulge_mass: Scalar
    bulge_effective_radius: Scalar
    halo_density: Scalar
    halo_radius: Scalar
    halo: str = eqx.field(static=True)

    def circular_square(self, radius: Places) -> Places:
        """The square of the circular speed, (km/s)^2."""
        return (
            disc_square(radius, self.disc_mass, self.disc_scale_length)
            + bulge_square(radius, self.bulge_mass, self.bulge_effective_radius)
            + HALOS[self.halo](radius, self.halo_density, self.halo_radius)
        )

    def speed(self, radius: Places, drift: Places) -> Places:
        """The speed that is left of the circular one."""
        square = self.circular_square(radius) + drift
        root, above = jnp.sqrt(square**2 + _FLOOR**4), square > 0
        below = _FLOOR**4 / (root - jnp.where(above, -root, square))  # root + square without cancellation
        return jnp.sqrt(0.5 * jnp.where(above, square + root, below))
