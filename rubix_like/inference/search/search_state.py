"""A search between two of its steps, in host arrays."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from rubix_like.inference.described_trees import described_as
from rubix_like.inference.search.optimisers import FAILED, GIVEN_UP, REASONS, State, Status

AS_LIKELY: float = 4.5
"""Loss above that of the best optimum up to which another one counts: the density is 1 % there, as at 3 sigma."""

_TRACED = 2_000_000
"""Most numbers of a trace of latents; where there would be more, none is kept."""

_IDLE = -1
"""In place of the number of a start: a slot without one."""

_STATE = "state_"

_MOVED = ("latent", "loss", "gradient_norm", "n_step", "status")
"""What a step changes of a start."""

_TRACES = ("trace_loss", "trace_gradient_norm", "trace_latent")


@dataclass(frozen=True)
class SearchState:
    """A search after a step: enough to go on bit for bit.

    `start`: latents that each start begins with. `latent`, `loss`, `gradient_norm`, `n_step`, `status`: where each is
    now, a `Status`; `trace_...`: the same after each of its steps, the first of which is at the start itself (NaN where
    there was none yet); `trace_latent` has no columns where it would be too large. `slots`: which starts are being
    computed (-1: none); `state`: the arrays of the optimiser's state for them. `reserve`: latents of the candidates
    that take the place of starts that are given up, which then stand after those that there are.
    """

    start: Float[ndarray, "start latent"] = field(metadata=described_as("latents at which each start began"))
    latent: Float[ndarray, "start latent"] = field(metadata=described_as("latents at which each start ended"))
    loss: Float[ndarray, " start"] = field(
        metadata=described_as("half of chi^2 and of the squared latents, where each start ended")
    )
    gradient_norm: Float[ndarray, " start"] = field(metadata=described_as("norm of the gradient of the loss there"))
    n_step: Int[ndarray, " start"] = field(metadata=described_as("steps of each start"))
    status: Int[ndarray, " start"] = field(
        metadata=described_as("why each start ended: 1 converged, others see reasons")
    )
    trace_loss: Float[ndarray, "start step"] = field(metadata=described_as("loss after each step; NaN after the last"))
    trace_gradient_norm: Float[ndarray, "start step"] = field(
        metadata=described_as("norm of its gradient after each step")
    )
    trace_latent: Float[ndarray, "start step column"] = field(
        metadata=described_as("latents after each step; empty where they would take too much room")
    )
    slots: Int[ndarray, " slot"]
    state: tuple[ndarray, ...]
    reserve: Float[ndarray, "spare _"] = field(default_factory=lambda: np.zeros((0, 0)))

    @classmethod
    def begin(
        cls, start: Float[ndarray, "start latent"], reserve: Float[ndarray, "spare latent"], steps: int, idle: State
    ) -> "SearchState":
        """Before the first step. `idle`: a state with no start that runs, one for each slot."""
        columns = start.shape[1] if start.size * (steps + 1) <= _TRACED else 0
        return cls(
            **_waiting(start, steps + 1, columns),
            slots=np.full(len(idle.status), _IDLE, np.int32),
            state=tuple(jax.tree.leaves(idle)),
            reserve=reserve,
        )

    @property
    def n_ended(self) -> int:
        """How many starts have ended, converged or not."""
        return int(np.count_nonzero(~np.isin(self.status, (int(Status.WAITING), int(Status.RUNNING)))))

    @property
    def finished(self) -> bool:
        """Whether all starts have ended."""
        return self.n_ended == len(self.status)

    @property
    def converged(self) -> Bool[ndarray, " start"]:
        """Which of the starts have converged."""
        return self.status == int(Status.CONVERGED)

    @property
    def failed(self) -> Bool[ndarray, " start"]:
        """Which of the starts have ended without a result."""
        return np.isin(self.status, [int(status) for status in FAILED])

    @property
    def given_up(self) -> Bool[ndarray, " start"]:
        """Which of the starts were given up for another candidate."""
        return np.isin(self.status, [int(status) for status in GIVEN_UP])

    @property
    def best(self) -> int:
        """Number (from 0) of the start with the lowest loss so far, of those that have not failed; of several with the
        same loss one that was not given up."""
        loss = np.where(self.failed | np.isnan(self.loss), np.inf, self.loss)
        return int(np.lexsort((self.given_up, loss))[0])

    def reasons(self) -> tuple[str, ...]:
        """The state of each of the starts in words."""
        return tuple(REASONS[Status(status)] for status in self.status)

    @property
    def running(self) -> Bool[ndarray, " slot"]:
        """Which of the slots have a start that has not ended."""
        return (self.slots != _IDLE) & (self.status[self.slots] == int(Status.RUNNING))

    @property
    def next_starts(self) -> Int[ndarray, " free"]:
        """The starts that wait for which there are slots."""
        return np.flatnonzero(self.status == int(Status.WAITING))[: np.count_nonzero(~self.running)]

    def with_next(self, begun: State) -> "SearchState":
        """With the next starts in the slots that are free; `begun`: their states, and after them such as do not run."""
        starts = self.next_starts
        free = np.flatnonzero(~self.running)
        pairs = zip(self.state, jax.tree.leaves(begun), strict=True)
        return dataclasses.replace(
            self,
            slots=_with_rows(self.slots, free[: len(starts)], starts),
            status=_with_rows(self.status, starts, np.int32(Status.RUNNING)),
            state=tuple(_with_rows(old, free, new[: len(free)]) for old, new in pairs),
        )

    def with_status(self, ends: Mapping[int, Status]) -> "SearchState":
        """With starts that have ended for reasons that the optimiser does not know."""
        starts, status = list(ends), [int(end) for end in ends.values()]
        return dataclasses.replace(self, status=_with_rows(self.status, starts, status)) if ends else self

    def with_starts(
        self, start: Float[ndarray, "new latent"], reserve: Float[ndarray, "spare latent"]
    ) -> "SearchState":
        """With more starts, which wait, after those that there are."""
        if not len(start):
            return self
        added = _waiting(start, *self.trace_latent.shape[1:])
        rows = {name: np.concatenate([getattr(self, name), column]) for name, column in added.items()}
        return dataclasses.replace(self, **rows, reserve=reserve)

    def continued_by(
        self, further: "SearchState", change: float, others: Iterable[tuple[Float[ndarray, " latent"], float]] = ()
    ) -> "SearchState":
        """This search, some of whose starts were continued by a further one with a better model.

        A start of the further search begins at the very latents where one of this search ended, and gets the steps of
        both; its other starts are added. Losses of the rest are moved by `change`, or are those of `others`.
        """

        def row_of(latent: Float[ndarray, " latent"]) -> int | None:
            return next(iter(np.flatnonzero(np.all(self.latent == latent, axis=1)).tolist()), None)

        rows = [row_of(begun) for begun in further.start]
        added = [number for number, row in enumerate(rows) if row is None]
        for row, number in enumerate(added, start=len(self.start)):
            rows[number] = row
        whole = self.with_starts(further.start[added], self.reserve)
        merged = {name: np.array(getattr(whole, name)) for name in (*_MOVED, *_TRACES)}
        for name in ("loss", "trace_loss"):
            merged[name] += change
        for latent, loss in others:
            merged["loss"][np.all(whole.latent == latent, axis=1)] = loss
        for number, row in enumerate(rows):
            first, n_step = int(whole.n_step[row]), int(further.n_step[number])
            count = min(n_step, whole.trace_loss.shape[1] - first)
            for name in _MOVED:
                merged[name][row] = getattr(further, name)[number]
            for name in _TRACES:
                merged[name][row, first : first + count] = getattr(further, name)[number, :count]
            merged["n_step"][row] = first + n_step
        return dataclasses.replace(whole, **merged)

    def without_waiting(self, first: int) -> "SearchState":
        """Without those of the starts from this number on that have not begun."""
        kept = (np.arange(len(self.status)) < first) | (self.status != int(Status.WAITING))
        rows = {name: getattr(self, name)[kept] for name in ("start", *_MOVED, *_TRACES)}
        return dataclasses.replace(self, **rows)

    def after(self, state: State) -> "SearchState":
        """With what has become of the starts that were running."""
        moved = np.flatnonzero(self.running)
        starts = self.slots[moved]
        steps = (starts, state.n_step[moved] - 1)
        has_trace = self.trace_latent.shape[2] > 0
        return dataclasses.replace(
            self,
            **{name: _with_rows(getattr(self, name), starts, getattr(state, name)[moved]) for name in _MOVED},
            trace_loss=_with_rows(self.trace_loss, steps, state.loss[moved]),
            trace_gradient_norm=_with_rows(self.trace_gradient_norm, steps, state.gradient_norm[moved]),
            trace_latent=_with_rows(self.trace_latent, steps, state.latent[moved]) if has_trace else self.trace_latent,
            state=tuple(jax.tree.leaves(state)),
        )

    def arrays(self) -> dict[str, ndarray]:
        """Everything by name; `from_arrays` is the inverse."""
        arrays = {part.name: getattr(self, part.name) for part in dataclasses.fields(self) if part.name != "state"}
        return arrays | {f"{_STATE}{number}": leaf for number, leaf in enumerate(self.state)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ndarray]) -> "SearchState":
        """The snapshot of what `arrays` returned; KeyError where something is missing."""
        count = sum(name.startswith(_STATE) for name in arrays)
        parts = {part.name: arrays[part.name] for part in dataclasses.fields(cls) if part.name != "state"}
        return cls(**parts, state=tuple(arrays[f"{_STATE}{number}"] for number in range(count)))


def _waiting(start: Float[ndarray, "start latent"], n_place: int, n_column: int) -> dict[str, ndarray]:
    """The columns of starts that wait, by name, with so many places for the traces."""
    endless, trace = np.full(len(start), np.inf), np.full((len(start), n_place), np.nan)
    return {
        "start": start,
        "latent": start,
        "loss": endless,
        "gradient_norm": endless,
        "n_step": np.zeros(len(start), np.int32),
        "status": np.full(len(start), int(Status.WAITING), np.int32),
        "trace_loss": trace,
        "trace_gradient_norm": trace,
        "trace_latent": np.full((*trace.shape, n_column), np.nan),
    }


def _with_rows(old: ndarray, where: Any, rows: Any) -> ndarray:
    """A copy of which some rows are others."""
    new = np.array(old)
    new[where] = rows
    return new
