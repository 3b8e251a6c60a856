"""Wavelengths at which the images of a PSF are computed, and the polynomials between them."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

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
        own = _lagrange(place, self.degree, namespace)
        node = namespace.arange(self.n_node, dtype=piece.dtype)[None, :] - self.degree * piece[:, None]
        weights = namespace.take_along_axis(own, namespace.clip(node, 0, self.degree), axis=1)
        return namespace.where((node >= 0) & (node <= self.degree), weights, namespace.zeros_like(weights))


def _lobatto(degree: int) -> Float[ndarray, " node"]:
    """Chebyshev-Lobatto nodes of the interval from 0 to 1."""
    return 0.5 - 0.5 * np.cos(np.pi * np.arange(degree + 1) / degree)


def _lagrange(place: Float[Any, " wave"], degree: int, namespace: Any) -> Float[Any, "wave node"]:
    """Lagrange polynomials of these nodes."""
    nodes, columns = _lobatto(degree), []
    for number, own in enumerate(nodes):
        others = np.delete(nodes, number)
        factors = place[:, None] - namespace.asarray(others, place.dtype)[None, :]
        columns.append(namespace.prod(factors, axis=1) / float(np.prod(own - others)))
    return namespace.stack(columns, axis=1)
