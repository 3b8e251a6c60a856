"""The posterior along one latent, by Laplace's approximation in the others.

    ln p(t) = -loss(t, x(t)) - 1/2 ln det A(t) + constant,

t the latent, the others x(t) where the loss is lowest for this t, and A(t) = J^T J + 1 of them there (Tierney & Kadane
1986, J. Am. Stat. Assoc. 81, 82).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.interpolate import CubicHermiteSpline, PchipInterpolator

from rubix_like.inference.posterior.linearise import losses_at, normal_forms_at
from rubix_like.inference.posterior.posterior import SquaredLoss
from rubix_like.inference.posterior.start_groups import group_of

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

_SMALL_GAIN = 0.02
"""Gain of the loss below which no step in the other latents is made."""

_MOST_STEPS = 6

_LONGEST = 0.7
"""Change of a latent in a step, in units of the prior's standard deviation."""

_PART = 0.7
"""Distance of two nodes, in standard deviations."""

Row = tuple[Float[ndarray, " node"], Float[ndarray, " node"], float, float]
"""Latents, density, by how much the loss is lower elsewhere, and where."""


def normalised(at: Float[ndarray, " node"], log_density: Float[ndarray, " node"]) -> Float[ndarray, " node"]:
    """The density whose logarithm is known up to a constant."""
    density = np.exp(log_density - log_density.max())
    return density / np.trapezoid(density, at)


class _Node(NamedTuple):
    """A node of the posterior along a latent: where, the other latents with it, the loss with its slope along the
    latent and the standard deviation there, and ln det A of the others."""

    at: float
    latent: Float[ndarray, " latent"]
    loss: float
    slope: float
    sigma: float
    log_determinant: float

    @property
    def log_density(self) -> float:
        """ln p(t)."""
        return -self.loss - 0.5 * self.log_determinant


def follow(posterior: SquaredLoss, best: Float[ndarray, " latent"], index: int) -> Row:
    """The posterior along one latent, from the best fit to both sides, where there is something of it."""
    begin = _node(posterior, best, index, float(best[index]))
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


def _walk(posterior: SquaredLoss, begin: _Node, index: int, way: float) -> Iterator[_Node]:
    """Node by node in one direction, until there is nothing left of the posterior.

    A step is a part of the standard deviation there; uphill, half the way to where the loss is lowest, if that is more.
    """
    node, highest = begin, begin.log_density
    for _ in range(_MOST_NODES):
        uphill = max(-way * node.slope, 0.0) * node.sigma**2
        step = min(max(_PART * node.sigma, 0.5 * uphill), _LONGEST)
        at = float(np.clip(node.at + way * step, -_FURTHEST, _FURTHEST))
        if at == node.at:
            return
        node = _node(posterior, node.latent, index, at)
        if not np.isfinite(node.log_density):
            return
        yield node
        highest = max(highest, node.log_density)
        if highest - node.log_density > _DEEP:
            return


class _Slopes(NamedTuple):
    """At a place: the best step of the other latents, and by how much it would lower the loss; slope and second
    derivative of the loss along the latent once that step is made; ln det A of the others."""

    step: Float[ndarray, " other"]
    gain: float
    slope: float
    information: float
    log_determinant: float


def _node(posterior: SquaredLoss, latent: Float[ndarray, " latent"], index: int, at: float) -> _Node:
    """The lowest loss with one latent held, by Gauss-Newton steps in the others, halved where they lead up."""
    others = np.delete(np.arange(len(latent)), index)
    own = np.array(latent, np.float64)
    own[index] = at
    loss, slopes = _loss(posterior, own), _slopes(posterior, own, index, others)
    for _ in range(_MOST_STEPS):
        if slopes.gain < _SMALL_GAIN:
            break
        step = slopes.step * min(1.0, _LONGEST / float(np.max(np.abs(slopes.step))))
        trial, lower = _lowered(posterior, own, others, step, loss)
        if not lower < loss:
            break
        own, loss = trial, lower
        slopes = _slopes(posterior, own, index, others)
    sigma = 1 / np.sqrt(max(slopes.information, 1.0))
    return _Node(at, own, loss - slopes.gain, slopes.slope, sigma, slopes.log_determinant)


def _slopes(posterior: SquaredLoss, latent: Float[ndarray, " latent"], index: int, others: ndarray) -> _Slopes:
    """The slopes, by the normal equations."""
    form = normal_forms_at(posterior, group_of(posterior, latent))
    factor, projected = (np.asarray(own, np.float64)[0] for own in (form.factor, form.projected))
    matrix, gradient = factor.T @ factor, factor.T @ projected
    inner, cross = matrix[np.ix_(others, others)], matrix[others, index]
    step = -np.linalg.solve(inner, gradient[others])
    return _Slopes(
        step=step,
        gain=-0.5 * float(step @ gradient[others]),
        slope=float(gradient[index] + cross @ step),
        information=float(matrix[index, index] - cross @ np.linalg.solve(inner, cross)),
        log_determinant=float(np.linalg.slogdet(inner)[1]),
    )


def _lowered(
    posterior: SquaredLoss, latent: ndarray, others: ndarray, step: ndarray, loss: float
) -> tuple[Float[ndarray, " latent"], float]:
    """The first of a step and its halves that lowers the loss; without any, where it was."""
    for half in range(4):
        trial = np.array(latent)
        trial[others] += step * 0.5**half
        found = _loss(posterior, trial)
        if found < loss:
            return trial, found
    return latent, loss


def _loss(posterior: SquaredLoss, latent: Float[ndarray, " latent"]) -> float:
    return float(np.asarray(losses_at(posterior, group_of(posterior, latent)))[0])
