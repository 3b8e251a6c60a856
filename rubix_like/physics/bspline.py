"""Cubic B-splines on a uniform grid: weights for depositing, and the prefilter that makes them interpolate.

Schoenberg 1946; Unser, Aldroubi & Eden 1993 (IEEE Trans. Signal Processing 41, 821).
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy import ndarray

SUPPORT: int = 4
"""Nodes that one position touches."""

_NOT_A_KNOT = (1.0, -4.0, 6.0, -4.0, 1.0)


def deposit(
    coordinate: Float[Array, " particle"], n_node: int
) -> tuple[Int[Array, " particle"], Float[Array, "particle 4"]]:
    """First of the four nodes, and their weights (>= 0, sum 1), for positions in units of the grid's step.

    The weights keep the first moment: sum_j j w_j = coordinate. Positions are limited to 1 ... n_node - 2; the nodes
    exist whatever the position is, so also where it is not finite (its weights are not, either).
    """
    first, weights = shares(coordinate, n_node)
    return first, jnp.stack(weights, axis=1)


def shares(
    coordinate: Float[Array, " particle"], n_node: int
) -> tuple[Int[Array, " particle"], tuple[Float[Array, " particle"], ...]]:
    """First of the four nodes, and the weights of each node as a separate array, as `deposit` gives them."""
    limited = jnp.clip(coordinate, 1.0, n_node - 2.0)
    first = jnp.clip(jnp.floor(limited).astype(jnp.int32), 1, n_node - 3)
    t = limited - first.astype(limited.dtype)
    s = 1 - t
    return first - 1, (s**3 / 6, (3 * t**3 - 6 * t**2 + 4) / 6, (3 * s**3 - 6 * s**2 + 4) / 6, t**3 / 6)


def prefilter(n_node: int) -> Float[ndarray, "node node"]:
    """Coefficients of the spline through values at the nodes: c = prefilter @ values (not-a-knot at both ends).

    Needs `n_node` >= 4. Two coefficients beyond the ends are solved for, too, and left out: no position needs them.
    """
    if n_node < SUPPORT:
        raise ValueError(f"n_node: expected at least {SUPPORT}, got {n_node}")
    collocation = np.zeros((n_node + 2, n_node + 2))
    for node in range(n_node):
        collocation[node, node : node + 3] = 1 / 6, 4 / 6, 1 / 6
    collocation[n_node, :5] = collocation[n_node + 1, -5:] = _NOT_A_KNOT
    values = np.eye(n_node + 2, n_node)
    return np.linalg.solve(collocation, values)[1:-1]


def halfway(n_side: int) -> Float[ndarray, " node"]:
    """Weights of the 2 n_side nodes around a point midway between two, for a spline through all nodes to infinity.

    That is where its error is largest. The cardinal spline falls by 2 - sqrt(3) per node.
    """
    pole = np.sqrt(3) - 2
    offset = np.arange(-n_side - 1, n_side + 1)
    spread = np.sqrt(3) * pole ** np.abs(offset[:, None] - np.arange(-n_side, n_side)[None, :])
    at_half = np.select([(offset == -2) | (offset == 1), (offset == -1) | (offset == 0)], [1 / 48, 23 / 48], 0.0)
    weights = at_half @ spread
    return weights / weights.sum()
