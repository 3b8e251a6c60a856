"""Rotation curves: the mean velocity about the component's axis, over the radius in its plane."""

from abc import abstractmethod
from collections.abc import Callable, Mapping

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import i0e, i1e
from jaxtyping import Array, Float
from numpy import ndarray
from scipy.interpolate import CubicSpline

from rubix_like.constants import GRAVITY

Scalar = Float[Array | ndarray, ""]
Places = Float[Array | ndarray, " point"]

HERNQUIST_RADIUS: float = 1.8152671
"""Projected half-mass radius of a Hernquist sphere, in scale radii (Hernquist 1990, ApJ 356, 359, eq. 38)."""

_SMALLEST = 1e-6


def disc_square(radius: Places, mass: Scalar, scale_length: Scalar) -> Places:
    """4 pi G Sigma_0 h y^2 (I_0 K_0 - I_1 K_1), y = R / 2 h, of a thin exponential disc (Freeman 1970, eq. 12)."""
    y = jnp.maximum(0.5 * radius / scale_length, _SMALLEST)
    bessel = i0e(y) * _k0e(y) - i1e(y) * _k1e(y)
    return 2 * GRAVITY * mass / scale_length * y**2 * bessel


def bulge_square(radius: Places, mass: Scalar, effective_radius: Scalar) -> Places:
    """G M r / (r + a)^2 of a Hernquist sphere (1990, eq. 16)."""
    return GRAVITY * mass * radius / (radius + effective_radius / HERNQUIST_RADIUS) ** 2


def nfw_square(radius: Places, density: Scalar, scale: Scalar) -> Places:
    """Of rho_s / (x (1 + x)^2) (Navarro, Frenk & White 1996, ApJ 462, 563): m(x) = ln(1 + x) - x / (1 + x)."""
    x = jnp.maximum(radius / scale, _SMALLEST)
    return _sphere(
        jnp.where(x > 1e-2, jnp.log1p(x) - x / (1 + x), x**2 * (0.5 - x * (2 / 3 - 0.75 * x))), x, density, scale
    )


def burkert_square(radius: Places, density: Scalar, scale: Scalar) -> Places:
    """Of rho_0 / ((1 + x) (1 + x^2)) (Burkert 1995, ApJ 447, L25): 4 m(x) = ln(1 + x^2) + 2 ln(1 + x) - 2 arctan x."""
    x = jnp.maximum(radius / scale, _SMALLEST)
    mass = 0.25 * (jnp.log1p(x**2) + 2 * jnp.log1p(x) - 2 * jnp.arctan(x))
    return _sphere(jnp.where(x > 1e-2, mass, x**3 * (1 / 3 - 0.25 * x)), x, density, scale)


def isothermal_square(radius: Places, density: Scalar, scale: Scalar) -> Places:
    """Of rho_0 / (1 + x^2) (Begeman, Broeils & Sanders 1991, MNRAS 249, 523): m(x) = x - arctan x."""
    x = jnp.maximum(radius / scale, _SMALLEST)
    return _sphere(jnp.where(x > 1e-2, x - jnp.arctan(x), x**3 * (1 / 3 - x**2 / 5)), x, density, scale)


HALOS: Mapping[str, Callable[[Places, Scalar, Scalar], Places]] = {
    "nfw": nfw_square,
    "burkert": burkert_square,
    "isothermal": isothermal_square,
}
"""Square of the circular speed of a halo, over the radius, its density and its scale radius."""


def _sphere(mass: Places, x: Places, density: Scalar, scale: Scalar) -> Places:
    """G M / r of a sphere with the mass 4 pi rho r_s^3 m(x) within x = r / r_s."""
    return 4 * jnp.pi * GRAVITY * density * scale**2 * mass / x


def _k0e(y: Places) -> Places:
    """e^y K_0(y) to 2e-7 (Abramowitz & Stegun 1964, 9.8.5 and 9.8.6)."""
    t, low = (0.5 * jnp.minimum(y, 2.0)) ** 2, jnp.minimum(y, 2.0)
    near = -0.57721566 + t * (
        0.42278420 + t * (0.23069756 + t * (0.03488590 + t * (0.00262698 + t * (0.00010750 + t * 0.00000740))))
    )
    near = (near - jnp.log(0.5 * low) * i0e(low) * jnp.exp(low)) * jnp.exp(low)
    return jnp.where(y <= 2.0, near, _far(y, _FAR_0))


def _k1e(y: Places) -> Places:
    """e^y K_1(y) to 3e-7 (Abramowitz & Stegun 1964, 9.8.7 and 9.8.8)."""
    t, low = (0.5 * jnp.minimum(y, 2.0)) ** 2, jnp.minimum(y, 2.0)
    near = 1.0 + t * (
        0.15443144 + t * (-0.67278579 + t * (-0.18156897 + t * (-0.01919402 + t * (-0.00110404 - t * 0.00004686))))
    )
    near = (near / low + jnp.log(0.5 * low) * i1e(low) * jnp.exp(low)) * jnp.exp(low)
    return jnp.where(y <= 2.0, near, _far(y, _FAR_1))


_FAR_0 = (1.25331414, -0.07832358, 0.02189568, -0.01062446, 0.00587872, -0.00251540, 0.00053208)
_FAR_1 = (1.25331414, 0.23498619, -0.03655620, 0.01504268, -0.00780353, 0.00325614, -0.00068245)


def _far(y: Places, coefficients: tuple[float, ...]) -> Places:
    place = jnp.maximum(y, 2.0)
    return jnp.polyval(jnp.asarray(coefficients[::-1], place.dtype), 2 / place) / jnp.sqrt(place)


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
