"""Blocks of a catalogue: entries that compile alike, observed in one process; what is done is left alone."""

import traceback
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from time import perf_counter
from typing import Any

from jax.sharding import Mesh

from rubix_like.cube.cube_parts import put_together
from rubix_like.plots.figure import save_quicklook
from rubix_like.runs.batch.ending import BlockWork, EntryEnding
from rubix_like.runs.batch.entries import Entry, Sources, entry_of
from rubix_like.runs.batch.galaxies import LoadedGalaxy, device_groups, load_for, prepare_view
from rubix_like.runs.batch.records import Record, Records, sizes_of, this_worker
from rubix_like.runs.batch.rows import Row
from rubix_like.runs.batch.table import measured, outside_notes
from rubix_like.runs.batch.workers import Terms
from rubix_like.runs.run import Prepared, begin, write_results
from rubix_like.runs.run_files import check_output
from rubix_like.runtime.compiled_programs import HELD
from rubix_like.runtime.exit_codes import explained_exhaustion
from rubix_like.runtime.files.outputs import beside
from rubix_like.runtime.progress import Progress

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


def _serving(loaded: LoadedGalaxy | None, entry: Entry, mesh: Mesh) -> LoadedGalaxy:
    """The galaxy at hand, or read again if there is none or it does not suit this view."""
    if loaded is not None and loaded.serves(entry.config):
        return loaded
    other = load_for(entry, mesh)  # where it fails, the one at hand is still open for the next view
    if loaded is not None:
        loaded.files.close()
    return other


def _observe_entry(
    work: BlockWork, mesh: Mesh, entry: Entry, loaded: LoadedGalaxy | None, ends: EntryEnding
) -> Generator[None, None, LoadedGalaxy | None]:
    """One cube, left to `ends` to be written, or why there is none; returns the galaxy for the next view."""
    picture = beside(entry.path, ".png") if work.with_picture else None
    check_output(entry.config, entry.path, overwrite=True)
    record = Record("started", work.made_from[entry.name], this_worker())
    work.records.write(entry.name, record)
    start = perf_counter()
    try:
        with explained_exhaustion():
            loaded = _serving(loaded, entry, mesh)
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
    """How an entry ended."""
    try:
        with explained_exhaustion():
            return _finished(record, entry, prepared, picture)
    except Exception as error:
        return _failure(record, error)


def _finished(record: Record, entry: Entry, prepared: Prepared, picture: Path | None) -> Record:
    """Wait for the cube, write it and, where asked for, its picture."""
    cube = put_together(write_results(prepared, entry.path, Progress()).cube)
    if picture is not None:
        save_quicklook(cube, picture)
    files = sizes_of([*entry.own_files, *([] if picture is None else [picture])], entry.path.parent)
    measures = measured(cube)
    notes = [*cube.meta.notes, *outside_notes(measures)]
    return replace(record, status="done", files=files, measures=measures, notes=notes)


def _failure(record: Record, error: Exception) -> Record:
    """The record of what went wrong: its message, and for what nobody expects where it was."""
    if isinstance(error, _EXPECTED):
        return replace(record, status="failed", error=str(error))
    where = "".join(traceback.format_exception(error))
    return replace(record, status="failed", error=f"{type(error).__name__}: {error}", traceback=where)
