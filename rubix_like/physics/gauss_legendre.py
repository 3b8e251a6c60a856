"""Gauss-Legendre quadrature."""

import functools

import numpy as np
from jaxtyping import Float
from numpy import ndarray


@functools.cache
def leggauss(count: int) -> tuple[Float[ndarray, " node"], Float[ndarray, " node"]]:
    """Nodes in (-1, 1) and weights, read-only: kept, because 400 take 40 ms."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    nodes.flags.writeable = weights.flags.writeable = False
    return nodes, weights
