"""A team of threads that stands for the processes of a run, in tests."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from rubix_like.runtime.processes.jax_processes import decode, encode
from rubix_like.runtime.processes.process_group import AbstractProcessGroup, Value

Outcome = TypeVar("Outcome")

_PATIENCE_S = 120.0
"""A member that does not come to the exchange for so long breaks it for all."""


class ThreadTeam(AbstractProcessGroup):
    """One of several threads; `work` of one exchange runs in all of them at the same time."""

    def __init__(self, number: int, size: int, board: list[Any], barrier: threading.Barrier) -> None:
        self.number = number
        self.size = size
        self.n_exchanges = 0
        self._board = board
        self._barrier = barrier

    def exchange(self, work: Callable[[], Value]) -> list[Value]:
        """What `work` gave in every thread; an error of one is raised in all, as its own or as a RuntimeError."""
        self.n_exchanges += 1
        value, own = encode(None), None
        try:
            value = encode(work())
        except Exception as error:
            own = error
        self._board[self.number] = (value, own)
        self._barrier.wait(_PATIENCE_S)
        found = list(self._board)
        self._barrier.wait(_PATIENCE_S)
        if own is not None:
            raise own
        for number, (_, error) in enumerate(found):
            if error is not None:
                raise RuntimeError(f"process {number} failed: {error}")
        return [decode(sent.data, value.classes) for sent, _ in found]


def run_team(size: int, work: Callable[[AbstractProcessGroup], Outcome]) -> list[Outcome | Exception]:
    """What `work(team)` gave, or the exception that it raised, in each of `size` threads, by their numbers."""
    board, barrier = [None] * size, threading.Barrier(size)

    def member(number: int) -> Outcome | Exception:
        try:
            return work(ThreadTeam(number, size, board, barrier))
        except Exception as error:
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(member, range(size)))


def values_of(outcomes: list[Outcome | Exception]) -> list[Outcome]:
    """The outcomes of a team of which none failed; the first failure is raised."""
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, Exception)]
