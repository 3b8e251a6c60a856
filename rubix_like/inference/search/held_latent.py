"""The lowest loss with one latent held, and its slopes along that latent: what profiles of a posterior are made of."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.inference.posterior.linearise import group_of, losses_and_forms_at
from rubix_like.inference.posterior.posterior import SquaredLoss

LONGEST: float = 0.7
"""Change of a latent in a step, in units of the prior's standard deviation."""

_SMALL_GAIN = 0.02
"""Gain of the loss below which no step in the other latents is made."""

_MOST_STEPS = 6

_HALVES = 3
"""Times a step that leads up is halved."""


class NormalEquations(NamedTuple):
    """The loss at a place, J^T J and J^T r."""

    latent: Float[ndarray, " latent"]
    loss: float
    matrix: Float[ndarray, "latent latent"]
    gradient: Float[ndarray, " latent"]


class Node(NamedTuple):
    """A node of the posterior along a latent: where, the other latents with it, the loss with its slope along the
    latent and the standard deviation there, ln det A of the others, and how all latents follow this one."""

    at: float
    latent: Float[ndarray, " latent"]
    loss: float
    slope: float
    sigma: float
    log_determinant: float
    response: Float[ndarray, " latent"]

    @property
    def log_density(self) -> float:
        """ln p(t)."""
        return -self.loss - 0.5 * self.log_determinant

    def followed_to(self, at: float) -> Float[ndarray, " latent"]:
        """About where the lowest loss is with the latent held elsewhere."""
        return self.latent + _capped(self.response * (at - self.at))


class _Slopes(NamedTuple):
    """At a place: the best step of all latents but the one that is held, and by how much it would lower the loss; slope
    and second derivative of the loss along the latent once that step is made; ln det A of the others; d latent / d held
    latent of the lowest loss."""

    step: Float[ndarray, " latent"]
    gain: float
    slope: float
    information: float
    log_determinant: float
    response: Float[ndarray, " latent"]


def _capped(step: Float[ndarray, " latent"]) -> Float[ndarray, " latent"]:
    """No latent's step longer than `LONGEST`."""
    return step * min(1.0, LONGEST / max(float(np.max(np.abs(step))), LONGEST))


def normal_at(posterior: SquaredLoss, latent: Float[ndarray, " latent"]) -> NormalEquations:
    """What there is to know of a place, from one evaluation."""
    loss, form = losses_and_forms_at(posterior, group_of(posterior, latent))
    factor, projected = (np.asarray(own, np.float64)[0] for own in (form.factor, form.projected))
    return NormalEquations(
        np.array(latent, np.float64), float(np.asarray(loss)[0]), factor.T @ factor, factor.T @ projected
    )


def node_at(
    posterior: SquaredLoss,
    latent: Float[ndarray, " latent"],
    index: int,
    at: float,
    small: float = _SMALL_GAIN,
    known: NormalEquations | None = None,
) -> Node:
    """The lowest loss with one latent held, by Gauss-Newton steps in the others, halved where they lead up, until one
    would gain less than `small`; `known`: of the latents, where it is."""
    begin = np.array(latent, np.float64)
    begin[index] = at
    normal = known if known is not None and np.array_equal(known.latent, begin) else normal_at(posterior, begin)
    slopes = _slopes(normal, index)
    for _ in range(_MOST_STEPS):
        if slopes.gain < small:
            break
        lower = _lowered(posterior, normal, slopes.step)
        if lower is None:
            break
        normal, slopes = lower, _slopes(lower, index)
    sigma = 1 / np.sqrt(max(slopes.information, 1.0))
    loss = normal.loss - slopes.gain
    lowest = normal.latent + _capped(slopes.step)
    return Node(at, lowest, loss, slopes.slope, sigma, slopes.log_determinant, slopes.response)


def _slopes(normal: NormalEquations, index: int) -> _Slopes:
    """The slopes, by the normal equations."""
    others = np.delete(np.arange(len(normal.gradient)), index)
    inner, cross = normal.matrix[np.ix_(others, others)], normal.matrix[others, index]
    gradient = normal.gradient[others]
    both = -np.linalg.solve(inner, np.stack([gradient, cross], axis=1))
    step, response = np.zeros(len(normal.gradient)), np.zeros(len(normal.gradient))
    step[others], response[others] = both.T
    response[index] = 1.0
    return _Slopes(
        step=step,
        gain=-0.5 * float(both[:, 0] @ gradient),
        slope=float(normal.gradient[index] + cross @ both[:, 0]),
        information=float(normal.matrix[index, index] + cross @ both[:, 1]),
        log_determinant=float(np.linalg.slogdet(inner)[1]),
        response=response,
    )


def _lowered(
    posterior: SquaredLoss, normal: NormalEquations, step: Float[ndarray, " latent"]
) -> NormalEquations | None:
    """Where the first of a step and its halves that lowers the loss leads to."""
    step = _capped(step)
    for half in range(_HALVES + 1):
        trial = normal_at(posterior, normal.latent + step * 0.5**half)
        if trial.loss < normal.loss:
            return trial
    return None
