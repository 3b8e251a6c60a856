"""When a start is given up for the next candidate: at the limits of priors, or far above a better one.

A prior with limits is flat where latents are large. A search that gets there finds no slope that leads back, however
wrong the place is, and goes on for many steps of which none gains anything.
"""

import numpy as np
from numpy import ndarray

from rubix_like.inference.posterior.fit_model import STARS
from rubix_like.inference.posterior.free import Free
from rubix_like.inference.posterior.priors import is_limited
from rubix_like.inference.search.optimisers import FAILED, GIVEN_UP, Status
from rubix_like.inference.search.search_state import SearchState

SATURATED: float = 3.5
"""|latent| from which on a uniform prior has less than 0.3 % of its slope in the middle."""

_FLAT = 0.05
"""Slope of a prior, in units of that in its middle, below which it is flat."""

_BETTER = 1.0
"""Least difference of the losses of two starts for one to count as better."""

_WATCHED, _GAIN = 5, 0.01
"""A saturated start is given up that has gained less than this part of its loss (of its distance to a better one:
ten times) in so many steps."""

_CREPT, _LITTLE = 8, 0.01
"""Any start is given up that has gained less than this part of its distance to a better one in so many steps."""

_FRUITLESS: frozenset[Status] = FAILED | GIVEN_UP | {Status.STALLED}
"""Ends for which the next candidate begins."""


def reviewed(before: SearchState, after: SearchState, free: Free) -> SearchState:
    """A search after a step, without the starts that are given up, and with candidates in their place.

    Where all have ended and the best was given up, that one is taken up again, and goes on to its end.
    """
    verdicts = {int(start): _verdict(after, int(start), free) for start in after.slots[after.running]}
    after = after.with_status({start: status for start, status in verdicts.items() if status is not Status.RUNNING})
    went_on = before.status == int(Status.RUNNING)
    ended = after.status[: len(went_on)]
    lost = np.count_nonzero(went_on & np.isin(ended, [int(status) for status in _FRUITLESS]))
    after = after.with_starts(after.reserve[:lost], after.reserve[lost:])
    best = after.best
    if after.finished and Status(int(after.status[best])) in GIVEN_UP and not _taken_up(after, after.latent[best]):
        after = after.with_starts(after.latent[best : best + 1], after.reserve)
    return after


def _verdict(found: SearchState, start: int, free: Free) -> Status:
    """The verdict on a start that is running."""
    loss = found.loss[start]
    others = np.where(found.failed | (np.arange(len(found.loss)) == start), np.inf, found.loss)
    behind = loss - np.min(others)
    if behind > _BETTER and _gain(found, start, _CREPT) < _LITTLE * behind:
        return Status.CREEPING
    needed = 10 * _GAIN * behind if behind > _BETTER else _GAIN * loss
    if _gain(found, start, _WATCHED) >= needed or not is_saturated(free, found.latent[start]):
        return Status.RUNNING
    alternatives = len(found.reserve) + np.count_nonzero(found.status == int(Status.WAITING))
    again = _taken_up(found, found.start[start], start)
    return Status.SATURATED if behind > _BETTER or (alternatives and not again) else Status.RUNNING


def _gain(found: SearchState, start: int, steps: int) -> float:
    """The fall of a start's loss in its last steps; infinite where it has not made as many."""
    last = int(found.n_step[start]) - 1
    if last < steps:
        return np.inf
    return float(found.trace_loss[start, last - steps] - found.trace_loss[start, last])


def _taken_up(found: SearchState, latent: ndarray, itself: int | None = None) -> bool:
    """Whether a start that was given up goes on, or went on, from these latents."""
    if itself is not None:
        ends = [own for own in np.flatnonzero(found.given_up) if own != itself]
        return any(np.array_equal(found.latent[own], latent) for own in ends)
    return bool(np.any(np.all(found.start == latent, axis=1)))


def is_saturated(free: Free, latent: ndarray) -> bool:
    """Whether the prior of any latent is flat there: of those with limits; those of single stars do not count."""
    limited = [np.full(own.size, is_limited(own.prior) and not own.name.startswith(STARS)) for own in free.parameters]
    far = np.concatenate(limited) & (np.abs(latent) > SATURATED)
    if not far.any():
        return False
    return bool(np.any(far & (free.slopes(latent) < _FLAT * free.slopes(np.zeros_like(latent)))))
