"""Dimming by layers of dust, each particle by its A(V): exactly, and by a few functions of A(V) that stand for all.

There is one layer, or two with separate curves: the dust in front of a particle, and its birth cloud.
"""

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
    a_v: Float[Array, "particle layer"],
    relative: Float[Array | ndarray, "layer wave"],
    largest: Float[Array | ndarray, ""],
) -> Float[Array, "particle wave"]:
    """10^(-0.4 A(V) A(lambda) / A(V)) of all layers; beyond A(V) = `largest` (mag) of a layer it dims all wavelengths
    as V."""
    colour = jnp.minimum(a_v, largest)
    layers = [colour[:, layer, None] * curve[None, :] for layer, curve in enumerate(jnp.asarray(relative))]
    magnitudes = sum(layers[1:], start=layers[0]) + (a_v - colour).sum(axis=1)[:, None]
    return jnp.exp(-_PER_MAG * magnitudes)


class DustFactors(eqx.Module):
    """A few functions of the A(V) of all layers, f_r = sum_s 10^(-0.4 sum_l A(V)_l exponent_ls) mix_sr: a star's light
    behind dust is sum_r f_r(A(V)) g_r(lambda) times its template, with the g_r of a `FactoredDust`.

    `largest` as for `transmission`.
    """

    exponent: Float[Array | ndarray, "layer factor"]
    mix: Float[Array | ndarray, "factor factor"]
    largest: Float[Array | ndarray, ""]

    def __call__(self, a_v: Float[Array, "particle layer"]) -> Float[Array, "particle factor"]:
        """The functions at each particle's A(V) (mag)."""
        powers = transmission(a_v, self.exponent, self.largest)
        return jnp.matmul(powers, jnp.asarray(self.mix), precision=lax.Precision.HIGHEST)


class FactoredDust(NamedTuple):
    """10^(-0.4 sum_l A(V)_l relative_l) = sum_r f_r(A(V)) g_r, with an rms `error` relative to the mean over
    wavelengths."""

    factors: DustFactors
    parts: Float[ndarray, "factor wave"]
    error: float

    def at(self, a_v: Float[ndarray, "a_v layer"]) -> Float[ndarray, "a_v factor"]:
        """The functions f_r, in 64 bits on the host."""
        powers = 10.0 ** (-0.4 * (a_v @ np.asarray(self.factors.exponent)))
        return powers @ np.asarray(self.factors.mix)


def spread_a_v(largest: float, n_layer: int, number: int) -> Float[ndarray, "a_v layer"]:
    """At least `number` values from 0 to `largest`, evenly spaced in each layer."""
    side = int(np.ceil(number ** (1 / n_layer) - 1e-9)) + n_layer - 1
    every = np.meshgrid(*[np.linspace(0.0, largest, side)] * n_layer, indexing="ij")
    return np.stack([axis.ravel() for axis in every], axis=1)


def factored_dust(relative: Float[ndarray, "layer wave"], largest: float, tolerance: float) -> FactoredDust:
    """The fewest functions of A(V), from 0 to `largest` of each layer, that stand for the dimming within the tolerance.

    The dimming depends on the wavelength by `relative` alone, so that a few of its values at chosen `relative`, the
    exponents (by a pivoted QR decomposition), give all others by linear combinations. The functions are rotated so that
    each adds less than the one before.
    """
    a_v = spread_a_v(largest, len(relative), _N_A_V)
    dimmed = 10.0 ** (-0.4 * (a_v @ relative))
    level = dimmed.mean(axis=1, keepdims=True)
    exponents = _along(relative, np.linspace(relative[0].min(), relative[0].max(), _N_EXPONENT))
    powers = 10.0 ** (-0.4 * (a_v @ exponents)) / level
    order = np.asarray(scipy.linalg.qr(powers, mode="economic", pivoting=True)[-1])
    number, error = 0, np.inf
    chosen, found = np.zeros(0, int), np.zeros((0, relative.shape[1]))
    while number < _MOST and error > tolerance:
        number += 1
        chosen = np.sort(order[:number])
        found = np.linalg.lstsq(powers[:, chosen], dimmed / level, rcond=None)[0]
        left = powers[:, chosen] @ found - dimmed / level
        error = float(np.sqrt((left**2).mean(axis=1)).max())
    parts = np.linalg.svd(powers[:, chosen] @ found, full_matrices=False)[2][:number]
    factors = DustFactors(exponents[:, chosen], found @ parts.T, np.asarray(largest))
    return FactoredDust(factors, parts, error)


def _along(relative: Float[ndarray, "layer wave"], first: Float[ndarray, " place"]) -> Float[ndarray, "layer place"]:
    """A / A(V) of all layers where that of the first one has these values."""
    order = np.argsort(relative[0], kind="stable")
    return np.stack([first, *(np.interp(first, relative[0][order], curve[order]) for curve in relative[1:])])


def factored_lines(relative: Float[ndarray, "layer line"], largest: float, tolerance: float) -> FactoredDust:
    """The functions for lines: as by `factored_dust`, with the largest error of any line relative to that line.

    A few lines are exact, by a function for each. For more there is a function for each of some places between the
    least and the largest `relative` of the first layer (Chebyshev nodes): by polynomials in it, or where there are more
    layers by least squares, relative to each line at every A(V).
    """
    different, which = np.unique(relative, axis=1, return_inverse=True)
    a_v, n_line = spread_a_v(largest, len(relative), _N_A_V), different.shape[1]
    low, high = different[0, 0], different[0, -1]
    for number in range(1, n_line):
        place = 0.5 * (low + high) - 0.5 * (high - low) * np.cos(np.pi * (np.arange(number) + 0.5) / number)
        node = _along(different, place)
        powers = 10.0 ** (-0.4 * (a_v @ node))
        if len(relative) == 1:
            parts = _lagrange(place, relative[0])
        else:
            columns = (10.0 ** (-0.4 * (a_v @ relative))).T
            fits = [np.linalg.lstsq(powers / dim[:, None], np.ones(len(dim)), rcond=None)[0] for dim in columns]
            parts = np.stack(fits, axis=1)
        error = float(np.abs((powers @ parts) * 10.0 ** (0.4 * (a_v @ relative)) - 1.0).max())
        if error <= tolerance:
            return FactoredDust(DustFactors(node, np.eye(number), np.asarray(largest)), parts, error)
    exact = np.eye(n_line)
    return FactoredDust(DustFactors(different, exact, np.asarray(largest)), exact[:, which.ravel()], 0.0)


def _lagrange(node: Float[ndarray, " node"], place: Float[ndarray, " place"]) -> Float[ndarray, "node place"]:
    """The polynomial of each node, 1 there and 0 at the others, at some places."""
    rows = []
    for number, middle in enumerate(node):
        others = np.delete(node, number)
        rows.append(np.prod((place[:, None] - others) / (middle - others), axis=1))
    return np.stack(rows)
