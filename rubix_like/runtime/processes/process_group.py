"""The processes of a run, as the host sees them: who is who, shares of work, exchange of values, memory for each."""

import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.runtime.files.outputs import explained, put_in_place, temporary_file
from rubix_like.runtime.memory import available_memory

_COMPUTER = Path("/proc/sys/kernel/random/boot_id")

Value = TypeVar("Value")


class AbstractProcessGroup(ABC):
    """The processes of one run; all of them call `exchange` in the same order."""

    number: int
    """Of this process, from 0."""
    size: int
    """How many processes there are."""

    @abstractmethod
    def exchange(self, work: Callable[[], Value]) -> list[Value]:
        """The results of `work` in every process, by their numbers.

        Where it fails in one, all raise: that process the original error, the others one with its name and words.
        """

    def share(self, n: int) -> tuple[int, int]:
        """First and last (exclusive) of `n` things in a row that are this process's."""
        return n * self.number // self.size, n * (self.number + 1) // self.size

    def total(self, work: Callable[[], Float[ndarray, "..."]]) -> Float[ndarray, "..."]:
        """The sum over all processes, in their order: the same bits everywhere."""
        return np.sum(self.exchange(work), axis=0)

    def each(self, work: Callable[[], Value]) -> Value:
        """The result of `work` here; nothing is sent, but where it fails in one process, all raise."""
        kept: list[Value] = []
        self.exchange(lambda: kept.append(work()))  # None, whatever `work` gives
        return kept[0]

    def in_first(self, work: Callable[[], object]) -> None:
        """Do `work` in process 0 alone; where it fails there, all raise."""
        self.each(lambda: work() if self.number == 0 else None)


class Alone(AbstractProcessGroup):
    """A single process."""

    number = 0
    size = 1

    def __repr__(self) -> str:
        return "SINGLE"

    def exchange(self, work: Callable[[], Value]) -> list[Value]:
        """The result of `work`."""
        return [work()]


SINGLE = Alone()
"""For runs of one process."""


class _Explaining(AbstractProcessGroup):
    """A team whose errors of writing hold the path of the file and the remedy."""

    def __init__(self, team: AbstractProcessGroup, path: Path) -> None:
        self.number = team.number
        self.size = team.size
        self._team = team
        self._path = path

    def exchange(self, work: Callable[[], Value]) -> list[Value]:
        """The results of `work` in every process."""

        def explained_work() -> Value:
            with explained(self._path):
                return work()

        return self._team.exchange(explained_work)


@contextmanager
def replacing_together(path: Path, team: AbstractProcessGroup) -> Iterator[tuple[Path, AbstractProcessGroup]]:
    """A temporary name beside `path`, the same for all processes of the team, and the team to write with.

    Whatever is written is written in `exchange` of that team. Where all succeed, process 0 renames the file to `path`;
    where one fails, all raise, the file is removed and an older one at `path` stays as it was.
    """
    writing = _Explaining(team, path)
    with ExitStack() as stack:
        name = writing.exchange(lambda: stack.enter_context(temporary_file(path)).name if team.number == 0 else "")[0]
        temporary = path.with_name(name)
        yield temporary, writing
        writing.exchange(lambda: put_in_place(temporary, path) if team.number == 0 else None)


def least_memory(team: AbstractProcessGroup) -> int | None:
    """Bytes that each process of a team can take, as many as the one that can take least: those on one computer share
    what it can give. None where nobody knows."""

    def found() -> tuple[str, int | None]:
        computer = _COMPUTER.read_text() if _COMPUTER.exists() else platform.node()  # the same in its containers
        return computer, available_memory()

    return least_share(team.exchange(found))


def least_share(found: list[tuple[str, int | None]]) -> int | None:
    """Bytes for each process, from every process's computer and what that can give."""
    computers = [computer for computer, _ in found]
    shares = (n_bytes // computers.count(computer) for computer, n_bytes in found if n_bytes is not None)
    return min(shares, default=None)
