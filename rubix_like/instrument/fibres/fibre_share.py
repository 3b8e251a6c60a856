"""The light of a point that a fibre collects: a circular PSF integrated over the disc of the fibre's core."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from rubix_like.constants import FWHM_PER_SIGMA

_NARROWEST = 1e-3
"""FWHM (arcsec) below which a profile stays as it is, so that its gradient is finite at a width of 0."""


def share_in_fibre(
    distance: Float[Array, " r"],
    radius: float,
    fwhm: Float[Array, ""],
    beta: Float[Array, ""] | None,
    n_angle: int,
) -> Float[Array, " r"]:
    """Share of a point's light within a disc of `radius` whose centre is at `distance` (both in arcsec, as `fwhm`).

    Gaussian, or Moffat with `beta`. A circular PSF is the divergence of E(d) / (2 pi d^2) times the place d, where E(d)
    is the light within the distance d; so by Gauss's theorem its integral over the disc is one over the disc's edge,

        (1 / pi) integral from 0 to pi of E(d) / d^2 (R^2 + r R cos t) dt,   d^2 = r^2 + R^2 + 2 r R cos t.

    The integrand is smooth and periodic, so that the error of the sum over `n_angle` angles falls exponentially.
    """
    angle = (np.arange(n_angle) + 0.5) * (np.pi / n_angle)
    cosine = jnp.asarray(np.cos(angle), distance.dtype)[None, :]
    sine2 = jnp.asarray(np.sin(angle) ** 2, distance.dtype)[None, :]
    away = distance[:, None]
    square = (away + radius * cosine) ** 2 + radius**2 * sine2
    edge = radius**2 + radius * away * cosine
    return jnp.mean(_light_per_square(square, jnp.maximum(fwhm, _NARROWEST), beta) * edge, axis=1)


def angles_for(radius: float, fwhm: float) -> int:
    """Angles that `share_in_fibre` needs for errors below 1e-7: the sharper the PSF in the disc, the more."""
    return int(np.clip(np.ceil(24.0 * radius / fwhm) + 8, 16, 1024))


def _light_per_square(
    square: Float[Array, "r angle"], fwhm: Float[Array, ""], beta: Float[Array, ""] | None
) -> Float[Array, "r angle"]:
    """E(d) / d^2 of the squared distance: 1 - exp(-d^2 / (2 sigma^2)), or 1 - (1 + (d / alpha)^2)^(1 - beta)."""
    if beta is None:
        return -jnp.expm1(square * (-0.5 * (FWHM_PER_SIGMA / fwhm) ** 2)) / square
    alpha2 = fwhm**2 / (4.0 * (2.0 ** (1.0 / beta) - 1.0))
    return -jnp.expm1((1.0 - beta) * jnp.log1p(square / alpha2)) / square


def interpolated(table: Float[Array, " r"], place: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Values at `place` (>= 0, in steps) of an even function that is tabulated at 0, 1, 2, ...: by cubics through the
    four nearest. The table must go two steps beyond the largest place."""
    first = jnp.floor(place)
    number = first.astype(jnp.int32)
    t = place - first
    before, own, after, last = (table[jnp.abs(number + step)] for step in (-1, 0, 1, 2))
    return (
        before * (-t * (t - 1.0) * (t - 2.0) / 6.0)
        + own * ((t + 1.0) * (t - 1.0) * (t - 2.0) / 2.0)
        + after * (-(t + 1.0) * t * (t - 2.0) / 2.0)
        + last * ((t + 1.0) * t * (t - 1.0) / 6.0)
    )
