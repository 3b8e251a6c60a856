"""Profiles of PSFs, integrated over spaxels and sharpened to compensate for the spread of the deposit.

A star in cell c is seen in spaxel j with the light of the profile in the box of a spaxel, at the distance from the
cell's middle to the spaxel's. Spaxels have `cells` cells along a side; an image holds the cells of 2 reach + 1 spaxels
about the one in question, along each axis.
"""

import functools
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.constants import FWHM_PER_SIGMA
from rubix_like.instrument.painting import ON_SPAXELS, Painting
from rubix_like.physics.gauss_legendre import leggauss

_DEGREES: tuple[tuple[float, int], ...] = ((0.05, 3), (0.15, 4), (0.3, 5), (0.45, 7), (0.7, 10))
"""Largest change of ln(width), or of ln(beta), in a piece, and the degree that it needs; `_STEEPEST` beyond."""

_STEEPEST = 14


class WavelengthNodes(eqx.Module):
    """Pieces of the detector's range, each with `degree` + 1 Chebyshev-Lobatto nodes, the ends of a piece among them.

    A function of wavelength that is smooth within each piece is interpolated by one polynomial per piece, and is
    constant beyond the ends. `ends` (end,) in Angstrom; where there is one end only, the function is constant.
    """

    ends: Float[Array | ndarray, " end"]
    degree: int = eqx.field(static=True)

    @classmethod
    def of_table(
        cls,
        table: Float[ndarray, " table"],
        widths: Float[ndarray, "quantity table"],
        range_: tuple[float, float],
        change: float,
    ) -> "WavelengthNodes":
        """For widths that are linear between the wavelengths of a table (pieces end there), within a detector's range.

        The degree follows from the widths' change within a piece, or from `change` (relative) where that is larger.
        """
        first, last = max(range_[0], table[0]), min(range_[1], table[-1])
        ends = np.unique(np.concatenate([[min(first, table[-1])], table[(table > first) & (table < last)], [last]]))
        at_ends = np.array([np.interp(ends, table, row) for row in widths])
        steepest = max(float(np.abs(np.diff(np.log(at_ends), axis=1)).max(initial=0.0)), change)
        return cls(ends, next((degree for largest, degree in _DEGREES if steepest <= largest), _STEEPEST))

    @property
    def n_node(self) -> int:
        """Number of nodes."""
        return self.degree * (len(self.ends) - 1) + 1

    @property
    def wavelength(self) -> Float[Any, " node"]:
        """The nodes in Angstrom, increasing."""
        if len(self.ends) == 1:
            return self.ends
        namespace = np if isinstance(self.ends, np.ndarray) else jnp
        within = namespace.asarray(_lobatto(self.degree)[None, :-1], self.ends.dtype)
        inner = self.ends[:-1, None] + (self.ends[1:] - self.ends[:-1])[:, None] * within
        return namespace.concatenate([inner.reshape(-1), self.ends[-1:]])

    def shares(self, wavelength: Float[Any, " wave"], namespace: Any = jnp) -> Float[Any, "wave node"]:
        """Weights of the nodes' values at each wavelength, with `jax.numpy` or `numpy`; they sum to 1."""
        ends, n_piece = namespace.asarray(self.ends), len(self.ends) - 1
        if n_piece == 0:
            return namespace.ones((len(wavelength), 1), ends.dtype)
        piece = namespace.clip(namespace.searchsorted(ends, wavelength, side="right") - 1, 0, n_piece - 1)
        place = namespace.clip((wavelength - ends[piece]) / (ends[piece + 1] - ends[piece]), 0.0, 1.0)
        polynomials = _lagrange(place, self.degree, namespace)
        node = namespace.arange(self.n_node, dtype=piece.dtype)[None, :] - self.degree * piece[:, None]
        weights = namespace.take_along_axis(polynomials, namespace.clip(node, 0, self.degree), axis=1)
        return namespace.where((node >= 0) & (node <= self.degree), weights, namespace.zeros_like(weights))


def _lobatto(degree: int) -> Float[ndarray, " node"]:
    """Chebyshev-Lobatto nodes of the interval from 0 to 1."""
    return 0.5 - 0.5 * np.cos(np.pi * np.arange(degree + 1) / degree)


def _lagrange(place: Float[Any, " wave"], degree: int, namespace: Any) -> Float[Any, "wave node"]:
    nodes, columns = _lobatto(degree), []
    for number, node in enumerate(nodes):
        others = np.delete(nodes, number)
        factors = place[:, None] - namespace.asarray(others, place.dtype)[None, :]
        columns.append(namespace.prod(factors, axis=1) / float(np.prod(node - others)))
    return namespace.stack(columns, axis=1)


TAPS: int = 10
"""Cells beyond an image that sharpening needs on each side: what lies further away counts less than 0.172^10."""

_NARROWEST = 1e-3
"""FWHM (spaxels) below which a profile stays as it is, so that its gradient is finite at a width of 0."""

_CORE = 3


def cell_offsets(reach: int, cells: int, beyond: int = 0) -> Float[np.ndarray, " cell"]:
    """Places (spaxels) of the cells of an image, and of some `beyond` it on each side, from the spaxel's middle."""
    n_cell = cells * (2 * reach + 1) + 2 * beyond
    return (np.arange(n_cell) - (n_cell - 1) / 2) / cells


def gaussian_weights_in_spaxel(fwhm: Float[Array, ""], reach: int, painting: Painting) -> Float[Array, " cell"]:
    """Share of the light of a star in each cell that a spaxel sees along one axis, by a Gaussian PSF (FWHM in spaxels).

    ndtr((u + 1/2) / sigma) - ndtr((u - 1/2) / sigma) for a star at the distance u, sharpened by the deposit's variance.
    """
    sigma = jnp.maximum(fwhm, _NARROWEST) / FWHM_PER_SIGMA
    away = jnp.asarray(np.abs(cell_offsets(reach, painting.cells, TAPS)), sigma.dtype)
    light = ndtr((0.5 - away) / sigma) - ndtr((-0.5 - away) / sigma)
    return shared_out(sharpened(light, 0, painting.taken_off(fwhm)), painting.cells)


def moffat_image(
    fwhm: Float[Array, ""], beta: Float[Array, ""], reach: int, painting: Painting = ON_SPAXELS
) -> Float[Array, "side side"]:
    """A Moffat profile integrated over spaxels, (1 + (r / alpha)^2)^-beta with fwhm = 2 alpha sqrt(2^(1/beta) - 1).

    Moffat (1969, A&A 3, 455). `fwhm` in spaxels; the light beyond the reach is given back to within.
    """
    cells = painting.cells
    alpha = jnp.maximum(fwhm, _NARROWEST) * cells / jnp.sqrt(4.0 * (2.0 ** (1.0 / beta) - 1.0))
    n_side = cells * (2 * reach + 2) - 1 + 2 * TAPS
    offset = np.arange(n_side) - (n_side - 1) / 2
    nodes, weights = leggauss(3)
    light = _in_cells(alpha, beta, offset, nodes / 2, weights / 2)
    core = slice(n_side // 2 - _CORE, n_side // 2 + _CORE + 1)
    light = light.at[core, core].set(_in_cells(alpha, beta, offset[core], *_towards_the_middle()))
    image = _boxes(_boxes(light, 0, cells), 1, cells)
    variance = painting.taken_off(fwhm)
    return shared_out(sharpened(sharpened(image, 0, variance), 1, variance), cells)


def _in_cells(
    alpha: Float[Array, ""],
    beta: Float[Array, ""],
    offset: Float[np.ndarray, " side"],
    nodes: Float[np.ndarray, " node"],
    weights: Float[np.ndarray, " node"],
) -> Float[Array, "side side"]:
    """Integrals of the profile (alpha in cells) over cells, by a rule for the cell from -1/2 to 1/2."""
    square = jnp.asarray((offset[:, None] + nodes) ** 2, alpha.dtype) / alpha**2
    weight = jnp.asarray(weights, alpha.dtype)
    rows: list[Array] = [
        jnp.einsum("ijb,b->ij", (1.0 + square[:, a, None, None] + square[None]) ** -beta, weight) * weight[a]
        for a in range(len(nodes))
    ]
    return functools.reduce(jnp.add, rows)


def _towards_the_middle() -> tuple[Float[np.ndarray, " node"], Float[np.ndarray, " node"]]:
    """A Gauss-Legendre rule in t, x = t^3 / 2 on both sides of 0: dense where a narrow profile has its light."""
    nodes, weights = leggauss(10)
    at = (nodes + 1) / 2
    half, share = at**3 / 2, weights / 2 * 1.5 * at**2
    return np.concatenate([-half[::-1], half]), np.concatenate([share[::-1], share])


def _boxes(values: Array, axis: int, cells: int) -> Array:
    length = values.shape[axis] - cells + 1
    return functools.reduce(jnp.add, [_part(values, axis, start, length) for start in range(cells)])


def sharpened(values: Any, axis: int, variance: Any, namespace: Any = jnp) -> Any:
    """The values from which a spread (w/2, 1 - w, w/2) of a variance w (cells^2, at most 1/4) makes `values`; `TAPS`
    fewer cells on each side.

    The inverse filter is z^|k| / sqrt(1 - 2 w), z = -w / (1 - w + sqrt(1 - 2 w)). For w = 1/4 it is the one that makes
    quadratic B-splines (the deposit tsc) interpolate (Unser, Aldroubi & Eden 1993, IEEE Trans. Signal Processing 41,
    821).
    """
    root = namespace.sqrt(1.0 - 2.0 * variance)
    pole = -variance / (1.0 - variance + root)
    length = values.shape[axis] - 2 * TAPS
    total, power = _part(values, axis, TAPS, length), namespace.ones_like(pole)
    for tap in range(1, TAPS + 1):
        power = power * pole
        both = _part(values, axis, TAPS - tap, length) + _part(values, axis, TAPS + tap, length)
        total = total + power * both
    return total / root


def shared_out(weights: Any, cells: int) -> Any:
    """Weights along every axis such that all spaxels together see the light of each cell once."""
    shape = [part for side in weights.shape for part in (side // cells, cells)]
    split = weights.reshape(shape)
    seen = split.sum(axis=tuple(range(0, len(shape), 2)), keepdims=True)
    return (split / seen).reshape(weights.shape)


def _part(values: Any, axis: int, start: int, length: int) -> Any:
    return values[(slice(None),) * axis + (slice(start, start + length),)]
