"""The posterior along one latent, by Laplace's approximation in the others.

    ln p(t) = -loss(t, x(t)) - 1/2 ln det A(t) + constant,

t the latent, the others x(t) where the loss is lowest for this t, and A(t) = J^T J + 1 of them there (Tierney & Kadane
1986, J. Am. Stat. Assoc. 81, 82).
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.interpolate import CubicHermiteSpline, PchipInterpolator

from rubix_like.inference.posterior.posterior import SquaredLoss
from rubix_like.inference.search.held_latent import LONGEST, Node, node_at

NODES: int = 201
"""At which a posterior is kept."""

_DEEP = 8.0
"""Below the highest ln p the posterior is followed no further."""

_ROUGH = 10 * NODES
"""Places by which it is found how far that is."""

_FURTHEST = 6.0
"""|latent| beyond which there is nothing of a prior."""

_MOST_NODES = 14
"""Largest number of nodes on each side of the best fit."""

_PART = 0.7
"""Distance of two nodes, in standard deviations."""

Row = tuple[Float[ndarray, " node"], Float[ndarray, " node"], float, float]
"""Latents, density, by how much the loss is lower elsewhere, and where."""


def normalised(at: Float[ndarray, " node"], log_density: Float[ndarray, " node"]) -> Float[ndarray, " node"]:
    """The density whose logarithm is known up to a constant."""
    density = np.exp(log_density - log_density.max())
    return density / np.trapezoid(density, at)


def follow(posterior: SquaredLoss, best: Float[ndarray, " latent"], index: int) -> Row:
    """The posterior along one latent, from the best fit to both sides, where there is something of it."""
    begin = node_at(posterior, best, index, float(best[index]))
    sides = [list(_walk(posterior, begin, index, way)) for way in (-1.0, 1.0)]
    nodes = sorted([begin, *sides[0], *sides[1]], key=lambda node: node.at)
    places, loss, slope, determinant = (
        np.array([getattr(node, name) for node in nodes]) for name in ("at", "loss", "slope", "log_determinant")
    )
    losses_between, determinants_between = (
        CubicHermiteSpline(places, loss, slope),
        PchipInterpolator(places, determinant),
    )

    def log_density(at: Float[ndarray, " node"]) -> Float[ndarray, " node"]:
        """Between the nodes the loss follows its slopes."""
        return -losses_between(at) - 0.5 * determinants_between(at)

    rough = np.linspace(places[0], places[-1], _ROUGH)
    known = log_density(rough)
    there = rough[known > known.max() - _DEEP]
    at = np.linspace(there[0], there[-1], NODES)
    lowest = min(nodes, key=lambda node: node.loss)
    return at, normalised(at, log_density(at)), begin.loss - lowest.loss, lowest.at


def _walk(posterior: SquaredLoss, begin: Node, index: int, way: float) -> Iterator[Node]:
    """Node by node in one direction, until there is nothing left of the posterior.

    A step is a part of the standard deviation there; uphill, half the way to where the loss is lowest, if that is more.
    """
    node, highest = begin, begin.log_density
    for _ in range(_MOST_NODES):
        uphill = max(-way * node.slope, 0.0) * node.sigma**2
        step = min(max(_PART * node.sigma, 0.5 * uphill), LONGEST)
        at = float(np.clip(node.at + way * step, -_FURTHEST, _FURTHEST))
        if at == node.at:
            return
        node = node_at(posterior, node.followed_to(at), index, at)
        if not np.isfinite(node.log_density):
            return
        yield node
        highest = max(highest, node.log_density)
        if highest - node.log_density > _DEEP:
            return
