"""A Gaussian on a grid that keeps flux, sign and variance at every width, narrow or wide against a cell."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float

ENCLOSED_SIGMAS: float = 3.72
"""Radius in sigmas that encloses 99.9 % of a circular Gaussian: sqrt(-2 ln 0.001)."""


def split_variance(variance: Any, namespace: Any) -> tuple[Any, Any]:
    """Share p of the light that is spread, and the width s (cells) of the Gaussian it is spread with.

    Light in one cell, spread by a Gaussian of width s and collected in cells again, gains a variance of
    s^2 + 1/12 (to 1e-8 for s^2 >= 11/12). Wanted is `variance` (cells^2): s^2 = variance - 1/12 from one cell up;
    below, a share p = variance is spread with the variance of one cell and the rest stays: the identity in the limit.
    """
    share = namespace.minimum(variance, 1.0)
    return share, namespace.sqrt(namespace.maximum(variance, 1.0) - 1.0 / 12.0)


def gaussian_weights(sigma: Float[Array, ""], reach: int) -> Float[Array, " offset"]:
    """Weights of the cells at offsets -reach ... reach (2 reach + 1): sum 1, variance sigma^2 (sigma in cells).

    Differentiable in sigma. Light beyond the reach is given back to the cells within.
    """
    share, width = split_variance(sigma**2, jnp)
    edges = (jnp.arange(2 * reach + 2, dtype=sigma.dtype) - (reach + 0.5)) / width
    spread = jnp.diff(ndtr(edges))
    centre = (jnp.arange(2 * reach + 1) == reach).astype(sigma.dtype)
    weights = share * spread + (1 - share) * centre
    return weights / weights.sum()


def reach_of(sigma: float) -> int:
    """Cells on each side that hold 99.9 % of a Gaussian of width `sigma` (cells); 0 for none."""
    return 0 if sigma == 0 else max(2, int(np.ceil(ENCLOSED_SIGMAS * max(sigma, 1.0))))
