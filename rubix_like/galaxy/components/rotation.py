"""Rotation curves: the mean velocity about the component's axis, over the radius in its plane."""

import functools
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import i0e, i1e
from jaxtyping import Array, Float
from numpy import ndarray
from scipy.interpolate import CubicSpline

from rubix_like.constants import GRAVITY
from rubix_like.galaxy.components.declared import fixed, parameter

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
    """Halo of rho_s / (x (1 + x)^2) (Navarro, Frenk & White 1996, ApJ 462, 563): m(x) = ln(1 + x) - x / (1 + x)."""
    x = jnp.maximum(radius / scale, _SMALLEST)
    return _sphere(
        jnp.where(x > 1e-2, jnp.log1p(x) - x / (1 + x), x**2 * (0.5 - x * (2 / 3 - 0.75 * x))), x, density, scale
    )


def burkert_square(radius: Places, density: Scalar, scale: Scalar) -> Places:
    """Halo of rho_0 / ((1 + x) (1 + x^2)) (Burkert 1995, ApJ 447, L25).

    4 m(x) = ln(1 + x^2) + 2 ln(1 + x) - 2 arctan x.
    """
    x = jnp.maximum(radius / scale, _SMALLEST)
    mass = 0.25 * (jnp.log1p(x**2) + 2 * jnp.log1p(x) - 2 * jnp.arctan(x))
    return _sphere(jnp.where(x > 1e-2, mass, x**3 * (1 / 3 - 0.25 * x)), x, density, scale)


def isothermal_square(radius: Places, density: Scalar, scale: Scalar) -> Places:
    """Halo of rho_0 / (1 + x^2) (Begeman, Broeils & Sanders 1991, MNRAS 249, 523): m(x) = x - arctan x."""
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

_velocity = functools.partial(
    parameter, "km/s", "V of the rotation curve; below 0 it turns the other way.", role="rotation"
)
_turnover = functools.partial(parameter, "kpc", "R_t of the rotation curve.", gt=0)
_dispersion = functools.partial(parameter, "km/s", ge=0)


class AbstractRotation(eqx.Module):
    """A curve of rotation; below 0 it turns the other way."""

    @abstractmethod
    def speed(self, radius: Places, drift: Places) -> Places:
        """Mean speed (km/s) at these radii (kpc); 0 at the centre.

        `drift`, sigma^2 d ln(Sigma sigma^2) / d ln R in (km/s)^2, is what pressure adds to the square of the circular
        speed (below 0); curves that are the mean speed itself leave it.
        """


class Arctan(AbstractRotation):
    """V (2 / pi) arctan(R / R_t).

    Courteau (1997, AJ 114, 2402).
    """

    curve: ClassVar[str] = "arctan"
    velocity: Scalar = _velocity()
    turnover_radius: Scalar = _turnover()

    def speed(self, radius: Places, drift: Places) -> Places:  # noqa: ARG002
        """The arctangent."""
        return self.velocity * (2 / jnp.pi) * jnp.arctan(radius / self.turnover_radius)


class Tanh(AbstractRotation):
    """V tanh(R / R_t).

    Andersen & Bershady (2013, ApJ 768, 41).
    """

    curve: ClassVar[str] = "tanh"
    velocity: Scalar = _velocity()
    turnover_radius: Scalar = _turnover()

    def speed(self, radius: Places, drift: Places) -> Places:  # noqa: ARG002
        """The hyperbolic tangent."""
        return self.velocity * jnp.tanh(radius / self.turnover_radius)


class MultiParameter(AbstractRotation):
    """V (1 + x)^beta / (1 + x^gamma)^(1 / gamma), x = R_t / R.

    Courteau (1997, eq. 2).
    """

    curve: ClassVar[str] = "multi_parameter"
    velocity: Scalar = _velocity()
    turnover_radius: Scalar = _turnover()
    beta: Scalar = parameter("", "Above 0 the curve falls outside, below 0 it rises.", default=0.0, ge=-1, lt=1)
    gamma: Scalar = parameter("", "How sharp the turnover is.", default=2.0, gt=0, le=50)

    def speed(self, radius: Places, drift: Places) -> Places:  # noqa: ARG002
        """(x + 1)^beta x^(1 - beta) / (x^gamma + 1)^(1 / gamma) of x = R / R_t, finite at the centre."""
        x = jnp.maximum(radius / self.turnover_radius, 1e-9)
        inner = jnp.logaddexp(jnp.zeros_like(x), self.gamma * jnp.log(x)) / self.gamma  # x^gamma may overflow
        return self.velocity * (1 + x) ** self.beta * x ** (1 - self.beta) * jnp.exp(-inner)


class Spline(AbstractRotation):
    """A natural cubic spline through the speeds at given radii, and 0 at the centre.

    Beyond the last radius it is constant.
    """

    curve: ClassVar[str] = "spline"
    radii: tuple[float, ...] = fixed("kpc", "Radii of the knots, increasing.", shortest=2, gt=0)
    speeds: Float[Array | ndarray, " knot"] = parameter("km/s", "Speed at each knot.", shortest=0, role="rotation")

    def __check_init__(self) -> None:
        if len(self.speeds) != len(self.radii) or np.any(np.diff(self.radii) <= 0):
            raise ValueError(
                f"expected increasing radii and a speed for each, got radii {list(self.radii)} and {len(self.speeds)} "
                f"speeds"
            )

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
    """Circular speed of a disc, a bulge and a halo, less the asymmetric drift of the component.

    v^2 = v_disc^2 + v_bulge^2 + v_halo^2 (`mass_models`);
    v_phi^2 = v^2 + sigma^2 d ln(Sigma sigma^2) / d ln R for an isotropic dispersion and a height that does not depend
    on the radius (Binney & Tremaine 2008, eq. 4.227); where it would be below 0 it is 0, within 1 km/s.
    """

    curve: ClassVar[str] = "mass_model"
    disc_mass: Scalar = parameter("Msun", "Mass of the thin exponential disc.", default=0.0, ge=0)
    disc_scale_length: Scalar = parameter("kpc", "Scale length of the disc's mass.", default=1.0, gt=0)
    bulge_mass: Scalar = parameter("Msun", "Mass of the Hernquist bulge.", default=0.0, ge=0)
    bulge_effective_radius: Scalar = parameter("kpc", "Projected half-mass radius of the bulge.", default=1.0, gt=0)
    halo: str = fixed("", "Profile of the halo's density.", default="nfw", choices=tuple(HALOS))
    halo_density: Scalar = parameter(
        "Msun / kpc3", "Density of the halo: rho_s (nfw), or that at the centre.", default=0.0, ge=0
    )
    halo_radius: Scalar = parameter(
        "kpc", "Scale radius of the halo: r_s (nfw), or that of the core.", default=10.0, gt=0
    )

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
    """From `central` at the centre to `floor`, its square falling as exp(-2 R / `scale_length`).

    sqrt((central^2 - floor^2) exp(-2 R / scale_length) + floor^2).
    """

    profile: ClassVar[str] = "exponential"
    central: Scalar = _dispersion("Dispersion at the centre.")
    scale_length: Scalar = parameter("kpc", "Length over which the dispersion falls by e.", gt=0)
    floor: Scalar = _dispersion("Dispersion far out.", default=0.0)

    def sigma(self, radius: Places, column: Places, height: Scalar) -> Places:  # noqa: ARG002
        """The exponential over its floor, added in squares."""
        fall = jnp.exp(-2 * radius / self.scale_length)
        return jnp.sqrt(self.central**2 * fall + self.floor**2 * (1 - fall) + 1e-12)


class FromHeight(AbstractDispersion):
    """The dispersion that holds the component's own mass up at its scale height.

    sqrt(pi G f Sigma h), for an isothermal sheet sech^2(z / h) (van der Kruit & Searle 1981, A&A 95, 105), Sigma being
    the surface density of the component's mass.
    """

    profile: ClassVar[str] = "from_height"
    mass_factor: Scalar = parameter("", "All mass over that of the component.", default=1.0, gt=0)

    def sigma(self, radius: Places, column: Places, height: Scalar) -> Places:  # noqa: ARG002
        """Hydrostatic equilibrium of the sheet."""
        return jnp.sqrt(jnp.pi * GRAVITY * self.mass_factor * column * height + 1e-12)
