"""Dimming by dust, each particle by its own A(V): exactly, and by a few functions of A(V) that stand for all."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax import lax
from jaxtyping import Array, Float
from numpy import ndarray

_N_A_V = 81
_N_EXPONENT = 60
_MOST = 16
_PER_MAG = float(0.4 * np.log(10.0))


def transmission(
    a_v: Float[Array, " particle"], relative: Float[Array | ndarray, " wave"], largest: Float[Array | ndarray, ""]
) -> Float[Array, "particle wave"]:
    """10^(-0.4 A(V) A(lambda) / A(V)); beyond A(V) = `largest` (mag) all wavelengths are dimmed as V is."""
    colour = jnp.minimum(a_v, largest)
    magnitudes = colour[:, None] * jnp.asarray(relative)[None, :] + (a_v - colour)[:, None]
    return jnp.exp(-_PER_MAG * magnitudes)


class DustFactors(eqx.Module):
    """A few functions of A(V), f_r = sum_s 10^(-0.4 A(V) exponent_s) mix_sr: a star's light behind dust is
    sum_r f_r(A(V)) g_r(lambda) times its template, with the g_r of a `FactoredDust`.

    `largest` as for `transmission`.
    """

    exponent: Float[Array | ndarray, " factor"]
    mix: Float[Array | ndarray, "factor factor"]
    largest: Float[Array | ndarray, ""]

    def __call__(self, a_v: Float[Array, " particle"]) -> Float[Array, "particle factor"]:
        """The functions at each particle's A(V) (mag)."""
        powers = transmission(a_v, self.exponent, self.largest)
        return jnp.matmul(powers, jnp.asarray(self.mix), precision=lax.Precision.HIGHEST)


class FactoredDust(NamedTuple):
    """10^(-0.4 A(V) relative) = sum_r f_r(A(V)) g_r, with an rms `error` relative to the mean over wavelengths."""

    factors: DustFactors
    parts: Float[ndarray, "factor wave"]
    error: float

    def at(self, a_v: Float[ndarray, " a_v"]) -> Float[ndarray, "a_v factor"]:
        """The functions f_r, in 64 bits on the host."""
        powers = 10.0 ** (-0.4 * a_v[:, None] * np.asarray(self.factors.exponent))
        return powers @ np.asarray(self.factors.mix)


def factored_dust(relative: Float[ndarray, " wave"], largest: float, tolerance: float) -> FactoredDust:
    """The fewest functions of A(V), from 0 to `largest`, that stand for the dimming within the tolerance.

    The dimming depends on the wavelength by `relative` alone, so that a few of its own values at chosen `relative`, the
    exponents (by a pivoted QR decomposition), give all others by linear combinations. The functions are rotated so that
    each adds less than the one before.
    """
    a_v = np.linspace(0.0, largest, _N_A_V)
    dimmed = 10.0 ** (-0.4 * a_v[:, None] * relative)
    level = dimmed.mean(axis=1, keepdims=True)
    exponents = np.linspace(relative.min(), relative.max(), _N_EXPONENT)
    powers = 10.0 ** (-0.4 * a_v[:, None] * exponents) / level
    order = np.asarray(scipy.linalg.qr(powers, mode="economic", pivoting=True)[-1])
    number, error = 0, np.inf
    chosen, found = np.zeros(0, int), np.zeros((0, len(relative)))
    while number < _MOST and error > tolerance:
        number += 1
        chosen = np.sort(order[:number])
        found = np.linalg.lstsq(powers[:, chosen], dimmed / level, rcond=None)[0]
        left = powers[:, chosen] @ found - dimmed / level
        error = float(np.sqrt((left**2).mean(axis=1)).max())
    parts = np.linalg.svd(powers[:, chosen] @ found, full_matrices=False)[2][:number]
    factors = DustFactors(exponents[chosen], found @ parts.T, np.asarray(largest))
    return FactoredDust(factors, parts, error)


def factored_lines(relative: Float[ndarray, " line"], largest: float, tolerance: float) -> FactoredDust:
    """As `factored_dust`, with the largest error of any line relative to that line behind the dust.

    A few lines are exact, by a function for each; of more, a function for each of some places between the least and the
    largest `relative` (Chebyshev nodes), by polynomials in it.
    """
    different, which = np.unique(relative, return_inverse=True)
    a_v, low, high = np.linspace(0.0, largest, _N_A_V), different[0], different[-1]
    for number in range(1, len(different)):
        node = 0.5 * (low + high) - 0.5 * (high - low) * np.cos(np.pi * (np.arange(number) + 0.5) / number)
        parts = _lagrange(node, relative)
        found = 10.0 ** (-0.4 * a_v[:, None] * node) @ parts
        error = float(np.abs(found * 10.0 ** (0.4 * a_v[:, None] * relative) - 1.0).max())
        if error <= tolerance:
            return FactoredDust(DustFactors(node, np.eye(number), np.asarray(largest)), parts, error)
    exact = np.eye(len(different))
    return FactoredDust(DustFactors(different, exact, np.asarray(largest)), exact[:, which], 0.0)


def _lagrange(node: Float[ndarray, " node"], place: Float[ndarray, " place"]) -> Float[ndarray, "node place"]:
    """The polynomial of each node, 1 there and 0 at the others, at some places."""
    others = [np.delete(node, number) for number in range(len(node))]
    return np.stack(
        [np.prod((place[:, None] - own) / (node[number] - own), axis=1) for number, own in enumerate(others)]
    )
