"""Circular speeds of mass models: exponential disc, Hernquist bulge, and NFW, Burkert or pseudo-isothermal halo.

Squares in (km/s)^2 at radii in kpc, for masses in Msun and densities in Msun / kpc^3.
"""

from collections.abc import Callable, Mapping

import jax.numpy as jnp
from jax.scipy.special import i0e, i1e
from jaxtyping import Array, Float
from numpy import ndarray

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
