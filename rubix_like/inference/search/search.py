"""Search from all starts, step by step; resumable after every step.

A start is given up for the next candidate far above a better one, or at the limits of priors. A prior with limits is
flat where latents are large: a search that gets there finds no slope that leads back, however wrong the place is.
"""

import dataclasses
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.config.sections.fit import FitSettings
from rubix_like.inference.posterior.fit_model import STARS
from rubix_like.inference.posterior.free import Free, Latent
from rubix_like.inference.posterior.linearise import on_mesh
from rubix_like.inference.posterior.posterior import Latents, Posterior, SquaredLoss
from rubix_like.inference.posterior.priors import is_limited
from rubix_like.inference.posterior.problem import Problem
from rubix_like.inference.search.candidates import choose_starts, with_other_side
from rubix_like.inference.search.library_cells import CellsSeen, lower_elsewhere
from rubix_like.inference.search.optimisers import (
    FAILED,
    GIVEN_UP,
    REASONS,
    AbstractOptimiser,
    State,
    Status,
    make_optimiser,
)
from rubix_like.inference.search.search_state import SearchState
from rubix_like.runtime.mesh.mesh import SAMPLE_AXIS

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


_MOST_ADDED = 4
"""Starts beyond twice those that were asked for, up to which more are added."""

_VALUES_SHOWN = 12
"""Most values of a start that failed that are shown."""


def search(
    problem: Problem,
    resume: SearchState | None = None,
    starts: Float[ndarray, "start latent"] | None = None,
    cells: CellsSeen | None = None,
) -> Iterator[SearchState]:
    """Yields a snapshot before the first step and after every step; in the last one all starts have ended. `starts`:
    latents to begin at; None: they are chosen; `cells`: keeps the cells of the SSP library about the best place.

    As many starts are computed at once as the mesh of the problem's pipeline has devices along "sample"; where one
    ends, the next begins. A search resumed from any of its snapshots goes on as if it had not stopped. Raises
    ValueError, after the last snapshot, where every start has failed, with the reasons.
    """
    posterior, settings = problem.posterior, problem.settings
    n_residual = posterior.likelihood.flux.size
    flux, inverse_sigma = (
        np.asarray(array) for array in (posterior.likelihood.flux, posterior.likelihood.inverse_sigma)
    )
    ratio = float(np.sqrt(np.mean((flux * inverse_sigma) ** 2)))
    optimiser = make_optimiser(
        settings.optimiser,
        posterior.free.n_latent,
        n_residual,
        (ratio * float(jnp.finfo(posterior.forward.main.plan.dtype).eps)),
    )
    mesh = problem.pipeline.mesh
    return search_with(
        optimiser, posterior, posterior.free, settings, mesh, resume, problem.start, problem, starts, cells
    )


def search_with(
    optimiser: AbstractOptimiser,
    posterior: SquaredLoss,
    free: Free,
    settings: FitSettings,
    mesh: Mesh,
    resume: SearchState | None = None,
    start: Latent | None = None,
    problem: Problem | None = None,
    starts: Float[ndarray, "start latent"] | None = None,
    cells: CellsSeen | None = None,
) -> Iterator[SearchState]:
    """The same for anything that has residuals, on a mesh with the axis "sample"; `problem`: its cube is looked at."""
    placed = on_mesh(posterior, mesh)
    n_slot, sharding = mesh.shape[SAMPLE_AXIS], NamedSharding(mesh, PartitionSpec(SAMPLE_AXIS))
    idle = _begun(optimiser, np.zeros((0, free.n_latent)), n_slot)
    snapshot = resume
    if snapshot is None:
        chosen = choose_starts(placed, free, settings, mesh, start, problem) if starts is None else (starts, starts[:0])
        snapshot = SearchState.begin(*chosen, settings.optimiser.steps, idle)
    expected = (settings.optimiser.steps, *[leaf.shape for leaf in jax.tree.leaves(idle)])
    steps, found = snapshot.trace_loss.shape[1] - 1, [leaf.shape for leaf in snapshot.state]
    if expected != (steps, *found) or len(snapshot.start) < settings.starts:
        raise ValueError(
            f"fit: expected to go on with a search of {settings.starts} starts, at most {settings.optimiser.steps} "
            f"steps each and {len(idle.status)} at once, got one of {len(snapshot.start)} starts, {steps} steps and "
            f"{len(snapshot.slots)} at once, or with another optimiser; use the settings and devices it was begun with"
        )
    yield snapshot
    looked_at, cells = placed if starts is None else None, cells or CellsSeen()
    while not (snapshot := _going_on(snapshot, free, problem, looked_at, cells)).finished:
        if not snapshot.running.all():
            snapshot = snapshot.with_next(_begun(optimiser, snapshot.start[snapshot.next_starts], n_slot))
        state = jax.device_put(jax.tree.unflatten(jax.tree.structure(idle), snapshot.state), sharding)
        snapshot = reviewed(snapshot, snapshot.after(jax.tree.map(np.asarray, optimiser.step(placed, state))), free)
        yield snapshot
    check_any_left(snapshot, free)


def _going_on(
    snapshot: SearchState, free: Free, problem: Problem | None, posterior: SquaredLoss | None, cells: CellsSeen
) -> SearchState:
    """A search that has ended, with another start: on the other side of the galaxy, or where the loss is lower between
    other ages or metallicities of the SSP library (without a posterior, that was seen to before); as it is where there
    is none."""
    snapshot = with_other_side(snapshot, free, problem)
    if not snapshot.finished or problem is None or not isinstance(posterior, Posterior) or snapshot.failed.all():
        return snapshot
    if len(snapshot.start) > 2 * problem.settings.starts + _MOST_ADDED:
        return snapshot
    best = np.asarray(snapshot.latent[snapshot.best], np.float64)
    other = lower_elsewhere(*cells.near(posterior, best), float(snapshot.loss[snapshot.best]))
    if other is None or bool(np.any(np.all(np.isclose(snapshot.start, other, rtol=0, atol=1e-6), axis=1))):
        return snapshot
    return snapshot.with_starts(other[None].astype(snapshot.start.dtype), snapshot.reserve)


def check_any_left(snapshot: SearchState, free: Free) -> None:
    """Raise ValueError where all starts have failed."""
    if not all(Status(status) in FAILED for status in snapshot.status):
        return
    reasons = "\n".join(
        f"  start {number + 1}: {REASONS[Status(status)]} ({_described(free, latent)})"
        for number, (status, latent) in enumerate(zip(snapshot.status, snapshot.latent, strict=True))
    )
    raise ValueError(
        f"fit: expected at least one of {len(snapshot.status)} starts to get to a best fit, got failures only:\n"
        f"{reasons}\nnarrow the priors of fit.free to where the model is defined, or check the data"
    )


def _described(free: Free, latent: ndarray) -> str:
    """The values of some latents."""
    values = np.asarray(free.flat(np.asarray(latent)))
    shown = [f"{label} = {value:.6g}" for label, value in zip(free.labels, values, strict=True)]
    return ", ".join(shown[:_VALUES_SHOWN] + (["..."] if len(shown) > _VALUES_SHOWN else []))


@jax.jit
def _init(optimiser: AbstractOptimiser, latent: Latents, count: Array) -> State:
    """Of which the first `count` run."""
    state = optimiser.init(latent)
    status = jnp.where(jnp.arange(latent.shape[0]) < count, state.status, jnp.int32(int(Status.WAITING)))
    return dataclasses.replace(state, status=status)


def _begun(optimiser: AbstractOptimiser, latent: Float[ndarray, "start latent"], n_slot: int) -> State:
    """States of some starts, as many as there are slots: those that are missing do not run."""
    filling = latent[-1:] if len(latent) else np.zeros((1, latent.shape[1]))
    slots = np.concatenate([latent, np.repeat(filling, n_slot - len(latent), axis=0)])
    state = _init(optimiser, slots, np.asarray(len(latent)))
    return jax.tree.map(np.asarray, state)
