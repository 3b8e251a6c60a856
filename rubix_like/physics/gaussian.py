"""A Gaussian that spreads light from cell to cell: flux, sign and variance are kept at every width, wide or narrow."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

ENCLOSED_SIGMAS: float = 3.72
"""Radius in sigmas that encloses 99.9 % of a circular Gaussian: sqrt(-2 ln 0.001)."""

_LEAST_VARIANCE = 0.25
"""Variance (cells^2) from which on light in a cell has an equivalent Gaussian."""

_STEPS = 8
_ALIASES = (1, 2, 3)


def split_variance(variance: Any, namespace: Any) -> tuple[Any, Any]:
    """Share p of the light that is spread, and the width s (cells) of the Gaussian it is spread with.

    Light in the middle of a cell, spread by a Gaussian of width s and collected in cells again, has on them a variance
    of s^2 + 1/12 less what the cells do not resolve, by Poisson's sum
    sum_j (-1)^j q^(j^2) (1/j^2 + 4 pi^2 s^2) / pi^2, q = exp(-2 pi^2 s^2), j = 1, 2 ...
    Wanted is `variance` (cells^2): this is solved for s^2 from 1/4 on, where a third of the light or less is still in
    its cell or the next. Below, almost all that is spread goes to the next cell, whatever the profile: a share
    p = 4 variance is spread with the variance 1/4 and the rest stays, the identity in the limit.
    """
    wanted = namespace.maximum(variance, _LEAST_VARIANCE)
    share = namespace.minimum(variance / _LEAST_VARIANCE, 1.0)
    square = wanted - 0.07
    for _ in range(_STEPS):
        found, slope = _variance_on_cells(square, namespace)
        square = square - (found - wanted) / slope
    return share, namespace.sqrt(square)


def _variance_on_cells(square: Any, namespace: Any) -> tuple[Any, Any]:
    """Variance on cells of a Gaussian (of the variance `square`) about the middle of one, and its derivative."""
    found, slope = square + 1.0 / 12.0, namespace.ones_like(square)
    for order in _ALIASES:
        alias = (-1) ** order * namespace.exp(-2.0 * (np.pi * order) ** 2 * square)
        found = found + alias * (1.0 / (np.pi * order) ** 2 + 4.0 * square)
        slope = slope + alias * (2.0 - 8.0 * (np.pi * order) ** 2 * square)
    return found, slope


def gaussian_weights(sigma: Float[Array, ""], reach: int) -> Float[Array, " offset"]:
    """Weights of the cells at offsets -reach ... reach (2 reach + 1): sum 1, variance sigma^2 (sigma in cells).

    Differentiable in sigma. Light beyond the reach is given back to the cells within.
    """
    return weights_of_variance(sigma**2, reach)


def weights_of_variance(variance: Float[Array, ""], reach: int) -> Float[Array, " offset"]:
    """Weights as of `gaussian_weights`, by the variance (cells^2), in which they are differentiable at 0, too."""
    share, width = split_variance(variance, jnp)
    edges = (jnp.arange(2 * reach + 2, dtype=variance.dtype) - (reach + 0.5)) / width
    spread = jnp.diff(ndtr(edges))
    centre = (jnp.arange(2 * reach + 1) == reach).astype(variance.dtype)
    weights = share * spread + (1 - share) * centre
    return weights / weights.sum()


def reach_of(sigma: float) -> int:
    """Cells on each side that hold 99.9 % of a Gaussian of width `sigma` (cells); 0 for none."""
    return 0 if sigma == 0 else max(2, int(np.ceil(ENCLOSED_SIGMAS * max(sigma, 1.0))))
