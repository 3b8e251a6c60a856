"""The selected rows of a dataset: runs of neighbouring rows, read in pieces of bounded size."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup
from rubix_like.runtime.progress import Report

SLAB_ROWS: int = 1 << 18
"""RowRanges read at once: what is held at most is the selected particles and one slab."""

GAP_ROWS: int = 1 << 12
"""RowRanges between two runs that are read along rather than skipped: many short reads take longer."""

Test = Callable[[int, int], Bool[ndarray, " row"]]
"""Which of the rows from a first to a last (exclusive) one are selected."""


@dataclass(frozen=True)
class RowRanges:
    """RowRanges in ascending order as runs: the first row of each, and the one after its last.

    A run takes 16 bytes, and 8 more where parts of the rows are asked for.
    """

    starts: Int[ndarray, " run"]
    stops: Int[ndarray, " run"]

    @property
    def count(self) -> int:
        """Number of rows."""
        return int(self._before[-1])

    @cached_property
    def _before(self) -> Int[ndarray, " run_and_end"]:
        """Number of rows before each run, and of all."""
        return np.concatenate([[0], np.cumsum(self.stops - self.starts)])

    def part(self, start: int, stop: int) -> "RowRanges":
        """The `start`-th to the `stop`-th (exclusive) of the rows."""
        near = slice(
            max(int(np.searchsorted(self._before, start, side="right")) - 1, 0),
            int(np.searchsorted(self._before[:-1], max(start, stop))),
        )
        starts, stops, before = self.starts[near], self.stops[near], self._before[:-1][near]
        return _without_empty(
            np.maximum(starts, starts + (start - before)), np.minimum(stops, starts + (stop - before))
        )

    def within(self, start: int, stop: int) -> "RowRanges":
        """The rows that lie from `start` to `stop` (exclusive)."""
        near = slice(*np.searchsorted(self.stops, [start], "right"), *np.searchsorted(self.starts, [stop]))
        return _without_empty(np.maximum(self.starts[near], start), np.minimum(self.stops[near], stop))

    def pieces(self) -> Iterator[tuple[int, int, "RowRanges"]]:
        """(start, stop, rows within) of stretches of at most SLAB_ROWS that hold all rows; gaps above GAP_ROWS do not
        count to them."""
        breaks = np.flatnonzero(self.starts[1:] - self.stops[:-1] > GAP_ROWS) + 1
        for runs in np.split(np.arange(self.starts.size), breaks):
            if not runs.size:
                continue
            first, last = int(self.starts[runs[0]]), int(self.stops[runs[-1]])
            group = RowRanges(self.starts[runs], self.stops[runs])
            for start in range(first, last, SLAB_ROWS):
                inside = group.within(start, min(start + SLAB_ROWS, last))
                if inside.count:
                    yield int(inside.starts[0]), int(inside.stops[-1]), inside

    def mask(self, start: int, stop: int) -> Bool[ndarray, " row"]:
        """Which of the rows from `start` to `stop` are selected; all of them must lie there."""
        change = np.zeros(stop - start + 1, dtype=np.int64)
        np.add.at(change, self.starts - start, 1)
        np.add.at(change, self.stops - start, -1)
        return np.cumsum(change)[:-1] > 0


def row_range(start: int, stop: int) -> RowRanges:
    """The rows from `start` to `stop` (exclusive)."""
    return _without_empty(np.array([start], dtype=np.int64), np.array([stop], dtype=np.int64))


def where(mask: Bool[ndarray, " row"], start: int) -> RowRanges:
    """The rows that are True in a mask whose first element is the row `start`."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return RowRanges(edges[0::2] + start, edges[1::2] + start)


def chained(parts: Sequence[RowRanges]) -> RowRanges:
    """All the rows of parts that follow each other; runs that touch become one."""
    if not parts:
        return row_range(0, 0)
    starts = np.concatenate([part.starts for part in parts])
    stops = np.concatenate([part.stops for part in parts])
    apart = starts[1:] > stops[:-1]
    first, last = np.ones(starts.size, dtype=bool), np.ones(stops.size, dtype=bool)
    first[1:], last[:-1] = apart, apart
    return RowRanges(starts[first], stops[last])


def filtered(rows: RowRanges, test: Test, what: str, report: Report, team: AbstractProcessGroup = SINGLE) -> RowRanges:
    """The rows that pass a test, slab by slab; each process tests its share, and all know which ones pass."""

    def passed_of_share() -> RowRanges:
        share, found, done = rows.part(*team.share(rows.count)), [], 0
        for first, last, inside in share.pieces():
            found.append(where(inside.mask(first, last) & test(first, last), first))
            done += inside.count
            report(what, done, share.count)
        return chained(found)

    return chained(team.exchange(passed_of_share))


def _without_empty(starts: Int[ndarray, " run"], stops: Int[ndarray, " run"]) -> RowRanges:
    kept = stops > starts
    return RowRanges(starts[kept], stops[kept])
