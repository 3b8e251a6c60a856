"""The lowest loss with one latent held, and its slopes along that latent: what profiles of a posterior are made of."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.inference.posterior.linearise import losses_at, normal_forms_at
from rubix_like.inference.posterior.posterior import SquaredLoss
from rubix_like.inference.posterior.start_groups import group_of

LONGEST: float = 0.7
"""Change of a latent in a step, in units of the prior's standard deviation."""

_SMALL_GAIN = 0.02
"""Gain of the loss below which no step in the other latents is made."""

_MOST_STEPS = 6


class Node(NamedTuple):
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


class _Slopes(NamedTuple):
    """At a place: the best step of the other latents, and by how much it would lower the loss; slope and second
    derivative of the loss along the latent once that step is made; ln det A of the others."""

    step: Float[ndarray, " other"]
    gain: float
    slope: float
    information: float
    log_determinant: float


def node_at(posterior: SquaredLoss, latent: Float[ndarray, " latent"], index: int, at: float) -> Node:
    """The lowest loss with one latent held, by Gauss-Newton steps in the others, halved where they lead up."""
    others = np.delete(np.arange(len(latent)), index)
    own = np.array(latent, np.float64)
    own[index] = at
    loss, slopes = _loss(posterior, own), _slopes(posterior, own, index, others)
    for _ in range(_MOST_STEPS):
        if slopes.gain < _SMALL_GAIN:
            break
        step = slopes.step * min(1.0, LONGEST / float(np.max(np.abs(slopes.step))))
        trial, lower = _lowered(posterior, own, others, step, loss)
        if not lower < loss:
            break
        own, loss = trial, lower
        slopes = _slopes(posterior, own, index, others)
    sigma = 1 / np.sqrt(max(slopes.information, 1.0))
    return Node(at, own, loss - slopes.gain, slopes.slope, sigma, slopes.log_determinant)


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
