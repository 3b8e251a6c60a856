"""The run over a catalogue: galaxies loaded once, entries claimed, computed, recorded; what is done is left alone."""

import sys
import traceback
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from pathlib import Path
from time import perf_counter
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from rubix_like.catalogue.entries import Entry
from rubix_like.catalogue.records import Record, Records, remove_stale, sizes_of, this_worker
from rubix_like.catalogue.sources import Sources, changes
from rubix_like.catalogue.table import Summary, SummaryRow, measured
from rubix_like.census import Census, census_of
from rubix_like.config import RunConfig
from rubix_like.errors import ConfigError
from rubix_like.file_names import beside
from rubix_like.galaxy import Galaxy, GalaxyInfo
from rubix_like.memory import explained_exhaustion
from rubix_like.progress import Progress, Report, Stream
from rubix_like.quicklook import save_quicklook
from rubix_like.run import Prepared, begin, check_output, finish, plan_and_compile, read_galaxy
from rubix_like.sharding import make_mesh, pad_on_host
from rubix_like.ssp import load_ssp

_EXPECTED = (ValueError, OSError, MemoryError)
"""What a galaxy or settings that cannot be used raise; anything else is recorded with where it came from."""


@dataclass(frozen=True)
class Outcome:
    """What became of a catalogue: `rows` of the summary, and how many entries this process did, failed at, found done
    (`n_skipped`) and left to other processes (`n_elsewhere`)."""

    folder: Path
    summary: Path
    rows: tuple[SummaryRow, ...]
    n_done: int
    n_failed: int
    n_skipped: int
    n_elsewhere: int


@dataclass
class _Loaded:
    """A galaxy that several views share: on the host or, from its first view on, on the devices of its worker; its
    census, and what that was taken for."""

    galaxy: Galaxy
    info: GalaxyInfo
    census: Census | None = None
    counted: RunConfig | None = None


@dataclass
class _Work:
    """What the workers of one process share."""

    records: Records
    summary: Summary
    made_from: dict[str, dict[str, Any]]
    before: dict[str, Record | None]
    with_picture: bool
    report: Report
    n_total: int
    stream: Stream | None
    done: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)

    @property
    def settled(self) -> set[str]:
        """Entries that need nothing more from this process."""
        return self.done | self.failed | self.skipped


def observe_all(
    entries: Sequence[Entry],
    progress: Progress,
    part: tuple[int, int] | None = None,
    *,
    redo: bool = False,
    with_picture: bool = False,
) -> Outcome:
    """Compute every entry that is not done; several processes may do so in the same folder at once.

    `part` (k, n), from 1: only every n-th galaxy from the k-th on; `redo`: make entries again whose settings or files
    have changed since, which else are refused (ConfigError).
    """
    records = Records(entries[0].path.parent)
    records.create()
    summary = Summary(entries, records)
    groups = galaxies_of(entries)[slice(None) if part is None else slice(part[0] - 1, None, part[1])]
    mine = [entry for group in groups for entry in group]
    sources = Sources()
    made_from = {entry.name: sources.made_from(entry) for entry in mine}
    before = {entry.name: records.read(entry.name) for entry in mine}
    if not redo:
        _refuse_changed(mine, made_from, before)
    label = f"observing {len(mine)} entries of {len(groups)} galaxies"
    with progress.step("catalogue", label) as report:
        work = _Work(records, summary, made_from, before, with_picture, report, len(mine), progress.stream)
        try:
            _tell(work)
            _observe_groups(work, groups)
        finally:
            summary.update(now=True)
    n_elsewhere = len(mine) - len(work.settled)
    counts = (len(work.done), len(work.failed), len(work.skipped), n_elsewhere)
    return Outcome(records.folder, summary.path, tuple(summary.rows()), *counts)


def galaxies_of(entries: Sequence[Entry]) -> list[tuple[Entry, ...]]:
    """Entries that share a galaxy, together."""
    return [tuple(group) for _, group in groupby(entries, key=lambda entry: entry.loading)]


def _refuse_changed(
    entries: Sequence[Entry], made_from: dict[str, dict[str, Any]], before: dict[str, Record | None]
) -> None:
    """Raise ConfigError where cubes that are done would be made anew from something else."""
    changed = [
        (entry, changes(record.made_from, made_from[entry.name]))
        for entry in entries
        for record in [before[entry.name]]
        if record is not None and record.status == "done" and record.made_from != made_from[entry.name]
    ]
    if changed:
        entry, lines = changed[0]
        more = f" (and {len(lines) - 3} more)" if len(lines) > 3 else ""
        raise ConfigError(
            f"{entry.path.parent}: {len(changed)} of {len(entries)} entries are done, but were made from something "
            f"else, e.g. '{entry.name}': {'; '.join(lines[:3])}{more}; add --redo to make them again, or choose "
            f"another folder with --output"
        )


def _observe_groups(work: _Work, groups: Sequence[tuple[Entry, ...]]) -> None:
    """All galaxies, each by one worker; workers take turns, so that their devices are busy at the same time.

    Galaxies that were being computed when a process ended come last: if that was their fault, all else is done. Then
    the entries that are left of the galaxies of other processes.
    """
    order = sorted(groups, key=lambda group: any(_was_interrupted(work.before[entry.name]) for entry in group))
    rounds = chain(((group, True) for group in order), ((group, False) for group in order))
    workers = [_worker(work, mesh, rounds) for mesh in device_groups(groups)]
    while workers:
        workers = [worker for worker in workers if next(worker, "ended") != "ended"]


def _was_interrupted(record: Record | None) -> bool:
    return record is not None and record.status == "started"


def device_groups(groups: Sequence[tuple[Entry, ...]]) -> list[Mesh]:
    """The devices in groups as large as `devices` asks for, no more groups than there are galaxies."""
    devices = groups[0][0].config.devices if groups else None
    if devices is None:
        return []
    first = make_mesh(None if devices.data == "all" else devices.data, devices.wave)
    every = jax.devices()
    n_groups = min(len(every) // first.size, len(groups))
    blocks = np.array(every[: n_groups * first.size], dtype=object).reshape(n_groups, *first.devices.shape)
    return [Mesh(block, first.axis_names, axis_types=first.axis_types) for block in blocks]


def _worker(work: _Work, mesh: Mesh, rounds: Iterator[tuple[tuple[Entry, ...], bool]]) -> Iterator[None]:
    """Takes galaxies until none is left; pauses while its devices compute."""
    for group, alone in rounds:
        if all(entry.name in work.settled for entry in group):
            continue
        if not alone:
            yield from _observe_galaxy(work, mesh, group)
            continue
        with work.records.claimed("galaxy", group[0].name) as own:
            if own:
                yield from _observe_galaxy(work, mesh, group)


def _observe_galaxy(work: _Work, mesh: Mesh, group: tuple[Entry, ...]) -> Iterator[None]:
    """One galaxy in all its views, loaded once."""
    loaded: _Loaded | None = None
    for entry in group:
        if entry.name in work.settled:
            continue
        with work.records.claimed("entry", entry.name) as own:
            if own and _is_open(work, entry):
                loaded = yield from _observe_entry(work, mesh, entry, loaded)
                work.summary.update()


def _is_open(work: _Work, entry: Entry) -> bool:
    """Whether a claimed entry is still to be computed: not done, nor tried by another process since this one began."""
    record = work.records.read(entry.name)
    if record is None or record.status == "started":
        return True
    if record.status == "done":
        known = work.records.is_complete(record) and record.made_from == work.made_from[entry.name]
    else:
        known = record != work.before[entry.name]
    if known:
        work.skipped.add(entry.name)
        _tell(work)
    return not known


def _observe_entry(
    work: _Work, mesh: Mesh, entry: Entry, loaded: _Loaded | None
) -> Generator[None, None, _Loaded | None]:
    """One cube, or the record of why there is none; returns the galaxy for the next view."""
    picture = beside(entry.path, ".png") if work.with_picture else None
    remove_stale([*entry.own_files, work.records.path(entry.name), *([] if picture is None else [picture])])
    check_output(entry.config, entry.path)
    record = Record("started", work.made_from[entry.name], this_worker())
    work.records.write(entry.name, record)
    start = perf_counter()
    try:
        with explained_exhaustion():
            loaded = loaded or _load(entry, mesh)
            prepared = begin(_prepared(entry, loaded, mesh))
            yield
            record = _finished(record, entry, prepared, picture)
    except Exception as error:
        record = _failure(record, error)
    work.records.write(entry.name, replace(record, seconds=round(perf_counter() - start, 3)))
    (work.done if record.status == "done" else work.failed).add(entry.name)
    _tell(work, entry, record, perf_counter() - start)
    return loaded


def _load(entry: Entry, mesh: Mesh) -> _Loaded:
    galaxy, info = read_galaxy(entry.config, Progress())
    return _Loaded(pad_on_host(jax.tree.map(np.asarray, galaxy), mesh), info)


def _counted(config: RunConfig) -> RunConfig:
    """A configuration without what a census of its galaxy does not depend on: how far it is turned, where it lies."""
    observation = config.observation
    turned = (observation.inclination, observation.position_angle) != (None, None)
    angle = 0.0 if turned else None
    same = {"inclination": angle, "position_angle": angle, "ra": 0.0, "dec": 0.0, "offset": (0.0, 0.0)}
    same |= {"field_angle": None, "pointings": None, "mosaic": True}
    return config.model_copy(update={"observation": observation.model_copy(update=same), "noise": None})


def _prepared(entry: Entry, loaded: _Loaded, mesh: Mesh) -> Prepared:
    """The run of one view; the first one counts the galaxy and places it on the devices."""
    config = entry.config
    if loaded.counted != _counted(config):
        loaded.census = census_of(config, load_ssp(config), loaded.galaxy)
        loaded.counted = _counted(config)
    prepared = plan_and_compile(config, loaded.galaxy, loaded.info, Progress(), entry.path, mesh, loaded.census)
    loaded.galaxy = prepared.galaxy
    return prepared


def _finished(record: Record, entry: Entry, prepared: Prepared, picture: Path | None) -> Record:
    """Wait for the cube, write it and, where asked for, its picture."""
    cube = finish(prepared, entry.path, Progress()).cube
    if picture is not None:
        save_quicklook(cube, picture)
    files = sizes_of([*entry.own_files, *([] if picture is None else [picture])], entry.path.parent)
    notes = [str(value) for key, value in cube.meta.items() if key.startswith("note_")]
    return replace(record, status="done", files=files, measures=measured(cube), notes=notes)


def _failure(record: Record, error: Exception) -> Record:
    """The record of what went wrong: its message, and for what nobody expects where it was."""
    if isinstance(error, _EXPECTED):
        return replace(record, status="failed", error=str(error))
    where = "".join(traceback.format_exception(error))
    return replace(record, status="failed", error=f"{type(error).__name__}: {error}", traceback=where)


def _tell(work: _Work, entry: Entry | None = None, record: Record | None = None, seconds: float = 0.0) -> None:
    """How far the catalogue is; failures, and in a log every entry, with a line of their own."""
    n_settled, stream = len(work.settled), work.stream
    work.report("entries", n_settled, work.n_total)
    if entry is None or record is None or stream is None:
        return
    if stream.isatty() and not record.error:
        return
    ended = f"done in {seconds:.1f} s" if record.status == "done" else f"failed: {record.error}"
    print(
        f"[{n_settled}/{work.n_total}] {entry.name}: {ended}",
        file=sys.stderr if stream.isatty() else stream,
        flush=True,
    )
