"""The ends of a catalogue's entries: one cube is written while the next one is planned and painted."""

import math
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from rubix_like.errors import ConfigError
from rubix_like.runs.batch.entries import Entry
from rubix_like.runs.batch.records import Record, Records
from rubix_like.runtime.memory import MemoryNeed, check_memory

Told = Callable[[Entry, Record], None]
"""Called with every entry that is done or has failed, and its record."""


@dataclass(frozen=True)
class BlockWork:
    """What the entries of a block share; `made_from`: what each is made from, by name; `alone`: nothing else computes
    in this process."""

    records: Records
    made_from: Mapping[str, dict[str, Any]]
    with_picture: bool
    tell: Told
    alone: bool

    def is_done(self, name: str, record: Record) -> bool:
        """Whether a record says that this very cube has been made, and its files are there."""
        return record.made_from == self.made_from[name] and self.records.is_complete(record)


class _Waiting(NamedTuple):
    """An entry that is being ended by a thread."""

    entry: Entry
    ending: Future


@dataclass
class EntryEnding:
    """The end of at most one entry of a group of devices at a time, left to a thread of `threads`.

    Records are written, and told of, by the thread that calls.
    """

    work: BlockWork
    threads: Executor
    _waiting: _Waiting | None = None

    def hand(self, entry: Entry, start: float, ending: Callable[[], Record]) -> None:
        """Leave the end of an entry that was begun at `start` to a thread, once that of the one before has come."""
        self.settle()
        wide = bool(jax.config.read("jax_enable_x64"))
        self._waiting = _Waiting(entry, self.threads.submit(_as_here, ending, start, wide=wide))

    def settle(self) -> None:
        """Wait for the entry that is being ended, and keep its record."""
        if self._waiting is None:
            return
        (entry, ending), self._waiting = self._waiting, None
        record = ending.result()
        if self.work.records.is_begun_by(entry.name, record.worker):
            self.work.records.write(entry.name, record)
        self.work.tell(entry, record)

    def make_room(self, need: MemoryNeed, mesh: Mesh) -> None:
        """Wait for the entry that is being ended where there is no memory for two that take so much."""
        both = MemoryNeed(2 * need.device, 2 * need.host)
        try:
            check_memory(both, mesh)
        except ConfigError:
            self.settle()
        limits = [(device.memory_stats() or {}).get("bytes_limit", math.inf) for device in mesh.local_devices]
        if any(limit < both.device for limit in limits):
            self.settle()


def _as_here(ending: Callable[[], Record], start: float, *, wide: bool) -> Record:
    """The record of `ending` with the seconds since `start`, its numbers as wide as in the thread that left it."""
    with jax.enable_x64(wide):
        record = ending()
    return replace(record, seconds=round(perf_counter() - start, 3))
