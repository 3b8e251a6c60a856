"""Blocks of a catalogue: entries that compile alike, observed in one process, a galaxy once for all its views.

One cube is written while the next one is planned and painted; what is done is left alone.
"""

import math
import os
import socket
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from time import perf_counter
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from rubix_like.config import RunConfig
from rubix_like.cube.cube_parts import put_together
from rubix_like.errors import ConfigError
from rubix_like.forward.census import take_census
from rubix_like.forward.pipeline import planned_alike
from rubix_like.forward.planning import mesh_of
from rubix_like.forward.resolved import Resolved, resolve
from rubix_like.galaxy.placing import pad_galaxy_on_host
from rubix_like.instrument.crowding import AUTO
from rubix_like.plots.figure import save_quicklook
from rubix_like.runs.batch.entries import Entry, Row, Sources, changes, entry_of
from rubix_like.runs.batch.executors import Terms
from rubix_like.runs.batch.records import Record, Records, measured, outside_notes, sizes_of
from rubix_like.runs.particles_on_disk import HeldGalaxy, Source, open_source, serves
from rubix_like.runs.run import Prepared, begin, plan_and_compile, turned, write_results
from rubix_like.runs.run_files import check_output
from rubix_like.runtime.compiled_programs import HELD
from rubix_like.runtime.exit_codes import explained_exhaustion
from rubix_like.runtime.files.outputs import beside
from rubix_like.runtime.memory import MemoryNeed, check_memory
from rubix_like.runtime.progress import Progress, silent

Told = Callable[[Entry, Record], None]
"""Called with every entry that is done or has failed, and its record."""


@dataclass(frozen=True)
class BlockWork:
    """The common work of the entries of a block; `made_from`: what each is made from, by name; `alone`: nothing else
    computes in this process."""

    records: Records
    made_from: Mapping[str, dict[str, Any]]
    with_picture: bool
    tell: Told
    alone: bool

    def is_done(self, name: str, record: Record) -> bool:
        """Whether a record says that this very cube has been made, and its files are there."""
        return not changes(record.made_from, self.made_from[name]) and self.records.is_complete(record)


@dataclass
class EntryEnding:
    """The end of at most one entry of a group of devices at a time, left to a thread of `threads`.

    Records are written, and told of, by the thread that calls.
    """

    work: BlockWork
    threads: Executor
    _waiting: tuple[Entry, Future] | None = None

    def hand(self, entry: Entry, start: float, ending: Callable[[], Record]) -> None:
        """Leave the end of an entry that was begun at `start` to a thread, once that of the one before has come."""
        self.settle()
        wide = bool(jax.config.read("jax_enable_x64"))  # as in this thread

        def end() -> Record:
            with jax.enable_x64(wide):
                record = ending()
            return replace(record, seconds=round(perf_counter() - start, 3))

        self._waiting = (entry, self.threads.submit(end))

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


@dataclass
class LoadedGalaxy:
    """A galaxy that several views share: on the host or, from its first view on, on the devices of its worker, with
    its open files, and what its census was taken for, resolved; the run of the view before."""

    source: Source
    files: ExitStack
    resolved: Resolved
    counted: RunConfig
    prepared: Prepared | None = None

    def serves(self, config: RunConfig) -> bool:
        """Whether a view can be planned with it: a galaxy in slabs is not counted again, and one that was read without
        smoothing lengths is not smoothed."""
        if self.counted == _counted(config):
            return True
        if not isinstance(self.source, HeldGalaxy):
            return False
        has_lengths = config.engine.deposit != AUTO or self.source.info.smoothing_length
        return bool(has_lengths) or serves(
            self.source, config, take_census(config, resolve(config), [self.source.galaxy])
        )


def device_groups(groups: Sequence[tuple[Entry, ...]]) -> list[Mesh]:
    """The devices in groups as large as `devices` asks for, no more groups than there are galaxies."""
    devices = groups[0][0].config.devices if groups else None
    if devices is None:
        return []
    first = mesh_of(devices)
    every = jax.devices()
    n_groups = min(len(every) // first.size, len(groups))
    blocks = np.array(every[: n_groups * first.size], dtype=object).reshape(n_groups, *first.devices.shape)
    return [Mesh(block, first.axis_names, axis_types=first.axis_types) for block in blocks]


def load_for(entry: Entry, mesh: Mesh) -> LoadedGalaxy:
    """The particles of an entry; those that are held in memory are padded, so that nothing is compiled for it."""
    resolved = resolve(entry.config)
    with ExitStack() as files:
        source = open_source(entry.config, resolved, files, silent)
        if isinstance(source, HeldGalaxy):
            source = replace(source, galaxy=pad_galaxy_on_host(jax.tree.map(np.asarray, source.galaxy), mesh))
        return LoadedGalaxy(source, files.pop_all(), resolved, _counted(entry.config))


def _counted(config: RunConfig) -> RunConfig:
    """A configuration without what a census of its galaxy does not depend on: how far it is turned, where it lies."""
    observation = config.observation
    turned = (observation.inclination, observation.position_angle) != (None, None)
    angle = 0.0 if turned else None
    same = {"inclination": angle, "position_angle": angle, "ra": 0.0, "dec": 0.0, "offset": (0.0, 0.0)}
    same |= {"field_angle": None, "pointings": None, "mosaic": True}
    return config.model_copy(
        update={"observation": observation.model_copy(update=same), "noise": None, "systematics": None}
    )


def prepare_view(entry: Entry, loaded: LoadedGalaxy, mesh: Mesh) -> Prepared:
    """The run of one view; the first one places the galaxy on the devices; where it counts otherwise, it is
    counted again. Of a view that differs from the one before in angles alone nothing is planned anew."""
    config, source = entry.config, loaded.source
    if loaded.prepared is not None and planned_alike(loaded.prepared.config, config):
        loaded.prepared = turned(loaded.prepared, config, entry.path)
        return loaded.prepared
    if isinstance(source, HeldGalaxy) and loaded.counted != _counted(config):
        resolved = resolve(config)
        source = replace(source, census=take_census(config, resolved, [source.galaxy]))
        loaded.source, loaded.resolved, loaded.counted = source, resolved, _counted(config)  # also where planning fails
    prepared = plan_and_compile(config, loaded.resolved, source, Progress(), entry.path, mesh)
    loaded.source, loaded.prepared = prepared.source or source, prepared
    return prepared


_EXPECTED = (ValueError, OSError, MemoryError)
"""What a galaxy or settings that cannot be used raise; anything else is recorded with where it came from."""

Galaxies = Sequence[tuple[Entry, ...]]
"""The entries of each galaxy."""


def observe_block(config: Mapping[str, Any], rows: Sequence[Row], output: Path, terms: Terms) -> dict[str, Record]:
    """Observe some entries of a catalogue in whichever process this is, and get their records by name.

    `config`: the sections that each of `rows` changes; cubes and records go into the folder `output`. The function and
    its arguments can be pickled. It may be called again: entries that are done are left alone. A galaxy that cannot be
    observed is recorded as failed; raises OSError where `output` cannot be written.
    """
    terms.take_over()
    known: dict[tuple[str, str], Any] = {}
    entries = [entry_of(config, row, output, known) for row in rows]
    sources, ended = Sources(), dict[str, Record]()
    made_from = {entry.name: sources.made_from(entry) for entry in entries}

    def tell(entry: Entry, record: Record) -> None:
        ended[entry.name] = record

    work = BlockWork(Records(output), made_from, terms.with_picture, tell, terms.in_worker())
    observe_galaxies(work, galaxies_of(entries))
    return ended


def galaxies_of(entries: Sequence[Entry]) -> list[tuple[Entry, ...]]:
    """Entries that share a galaxy, together."""
    return [tuple(group) for _, group in groupby(entries, key=lambda entry: entry.loading)]


def blocks_of(galaxies: Galaxies, most: int | None) -> list[tuple[Entry, ...]]:
    """Blocks of at most `most` entries that compile alike; None: a block for every galaxy.

    The views of a galaxy are in one block where they fit.
    """
    blocks: list[tuple[Entry, ...]] = []
    for _, alike in groupby(galaxies, key=lambda galaxy: {entry.compiling for entry in galaxy}):
        block: tuple[Entry, ...] = ()
        for part in (part for galaxy in alike for part in _parts(galaxy, most)):
            if block and (most is None or len(block) + len(part) > most):
                blocks.append(block)
                block = ()
            block += part
        blocks.append(block)
    return blocks


def _parts(galaxy: tuple[Entry, ...], most: int | None) -> list[tuple[Entry, ...]]:
    step = most or len(galaxy)
    return [galaxy[first : first + step] for first in range(0, len(galaxy), step)]


def observe_galaxies(work: BlockWork, galaxies: Galaxies) -> None:
    """All galaxies, each on one group of devices; groups take turns, so that they are busy at the same time."""
    waiting, meshes = iter(galaxies), device_groups(galaxies)
    with ThreadPoolExecutor(max(len(meshes), 1)) as threads:
        turns = [_observe_in_turn(work, mesh, waiting, EntryEnding(work, threads)) for mesh in meshes]
        while turns:
            turns = [turn for turn in turns if next(turn, "ended") != "ended"]


def _observe_in_turn(
    work: BlockWork, mesh: Mesh, galaxies: Iterator[tuple[Entry, ...]], ends: EntryEnding
) -> Iterator[None]:
    """Takes galaxies until none is left, each loaded once for all its views; pauses while its devices compute."""
    for galaxy in galaxies:
        loaded: LoadedGalaxy | None = None
        for entry in galaxy:
            record = work.records.read(entry.name)
            if record is not None and work.is_done(entry.name, record):
                work.tell(entry, record)
            else:
                HELD.make_room(alone=work.alone)
                loaded = yield from _observe_entry(work, mesh, entry, loaded, ends)
        if loaded is not None:
            loaded.files.close()
    ends.settle()


def _observe_entry(
    work: BlockWork, mesh: Mesh, entry: Entry, loaded: LoadedGalaxy | None, ends: EntryEnding
) -> Generator[None, None, LoadedGalaxy | None]:
    """One cube, left to `ends` to be written, or why there is none; returns the galaxy for the next view."""
    picture = beside(entry.path, ".png") if work.with_picture else None
    check_output(entry.config, entry.path, overwrite=True)
    moment = datetime.now(UTC).isoformat(timespec="microseconds")
    record = Record("started", work.made_from[entry.name], f"{socket.gethostname()}, process {os.getpid()}, {moment}")
    work.records.write(entry.name, record)
    start = perf_counter()
    try:
        with explained_exhaustion():
            before = loaded
            if loaded is None or not loaded.serves(entry.config):
                loaded = load_for(entry, mesh)  # where it fails, the one at hand is still open for the next view
            if before is not None and before is not loaded:
                before.files.close()
            planned = prepare_view(entry, loaded, mesh)
    except Exception as error:
        ends.hand(entry, start, partial(_failure, record, error))
        return loaded
    ends.make_room(planned.need, planned.pipeline.mesh)
    try:
        with explained_exhaustion():
            prepared = begin(planned)
            yield
    except Exception as error:
        ends.hand(entry, start, partial(_failure, record, error))
        return loaded
    ends.hand(entry, start, partial(_ended, record, entry, prepared, picture))
    if prepared.observer is planned.observer:  # nothing was begun: it reads the files that the next view will read
        ends.settle()
    return loaded


def _ended(record: Record, entry: Entry, prepared: Prepared, picture: Path | None) -> Record:
    try:
        with explained_exhaustion():
            cube = put_together(write_results(prepared, entry.path, Progress()).cube)
            if picture is not None:
                save_quicklook(cube, picture)
            files = sizes_of([*entry.own_files, *([] if picture is None else [picture])], entry.path.parent)
            measures = measured(cube)
            notes = [*cube.meta.notes, *outside_notes(measures)]
            return replace(record, status="done", files=files, measures=measures, notes=notes)
    except Exception as error:
        return _failure(record, error)


def _failure(record: Record, error: Exception) -> Record:
    """The record of what went wrong: its message, and for what nobody expects where it was."""
    if isinstance(error, _EXPECTED):
        return replace(record, status="failed", error=str(error))
    where = "".join(traceback.format_exception(error))
    return replace(record, status="failed", error=f"{type(error).__name__}: {error}", traceback=where)
