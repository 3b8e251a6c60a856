"""The run over a catalogue: galaxies loaded once, entries claimed, computed, recorded; what is done is left alone."""

import sys
import traceback
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from pathlib import Path
from time import perf_counter
from typing import Any

from jax.sharding import Mesh

from rubix_like.cube.cube_parts import put_together
from rubix_like.errors import ConfigError
from rubix_like.plots.figure import save_quicklook
from rubix_like.runs.batch.entries import Entry
from rubix_like.runs.batch.galaxies import LoadedGalaxy, device_groups, load_for, prepare_view
from rubix_like.runs.batch.records import Record, Records, sizes_of, this_worker
from rubix_like.runs.batch.sources import Sources, changes
from rubix_like.runs.batch.table import Summary, SummaryRow, measured
from rubix_like.runs.run import Prepared, begin, write_results
from rubix_like.runs.run_files import check_output
from rubix_like.runtime.exit_codes import explained_exhaustion
from rubix_like.runtime.files.file_names import beside
from rubix_like.runtime.files.outputs import remove_stale
from rubix_like.runtime.files.separate_files import Named, check_separate
from rubix_like.runtime.progress import Progress, Report, Stream

_EXPECTED = (ValueError, OSError, MemoryError)
"""What a galaxy or settings that cannot be used raise; anything else is recorded with where it came from."""


@dataclass(frozen=True)
class Outcome:
    """What became of a catalogue: `rows` of the summary, and how many entries of this process's share it did, failed
    here or in another process, were found done (`n_skipped`) and are left to other processes (`n_elsewhere`)."""

    folder: Path
    summary: Path
    rows: tuple[SummaryRow, ...]
    n_done: int
    n_failed: int
    n_skipped: int
    n_elsewhere: int


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
    read: Sequence[Named] = (),
) -> Outcome:
    """Compute every entry that is not done; several processes may do so in the same folder at once.

    `part` (k, n), from 1: only every n-th galaxy from the k-th on; `redo`: make entries again whose settings or files
    have changed since, which else are refused (ConfigError). `read`: files that must not be replaced, such as the
    lists, beside those that the settings name.
    """
    records = Records(entries[0].path.parent)
    records.create()
    summary = Summary(entries, records)
    groups = galaxies_of(entries)[slice(None) if part is None else slice(part[0] - 1, None, part[1])]
    mine = [entry for group in groups for entry in group]
    sources = Sources()
    made_from = {entry.name: sources.made_from(entry) for entry in mine}
    _check_separate(mine, [summary.path, *(records.path(entry.name) for entry in mine)], made_from, read)
    before = {entry.name: records.read(entry.name) for entry in mine}
    if not redo:
        _refuse_changed(mine, made_from, before)
        _refuse_unknown([entry for entry in mine if before[entry.name] is None], records)
    label = f"observing {len(mine)} entries of {len(groups)} galaxies"
    with progress.step("catalogue", label) as report:
        work = _Work(records, summary, made_from, before, with_picture, report, len(mine), progress.stream)
        try:
            _tell(work)
            _observe_groups(work, groups)
        finally:
            summary.update(now=True)
    rows, names = tuple(summary.rows()), {entry.name for entry in mine}
    failed = names & {str(row["name"]) for row in rows if row["status"] == "failed"}
    counts = (len(work.done), len(failed), len(work.skipped), len(names - work.settled - failed))
    return Outcome(records.folder, summary.path, rows, *counts)


def galaxies_of(entries: Sequence[Entry]) -> list[tuple[Entry, ...]]:
    """Entries that share a galaxy, together."""
    return [tuple(group) for _, group in groupby(entries, key=lambda entry: entry.loading)]


def _check_separate(
    entries: Sequence[Entry], others: Sequence[Path], made_from: dict[str, dict[str, Any]], read: Sequence[Named]
) -> None:
    """Raise ConfigError where a file of the catalogue, of `others` too, is one that it, or a list, is made from."""
    written = [own for entry in entries for own in (*entry.own_files, beside(entry.path, ".png"))]
    sources = {name for found in made_from.values() for name in found["sources"]}
    check_separate((*written, *others), (*(("a source", Path(name)) for name in sources), *read), "--output")


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


def _refuse_unknown(entries: Sequence[Entry], records: Records) -> None:
    """Raise ConfigError where files of entries that had no record would be overwritten, and still no record tells of
    them."""
    found = [
        file
        for entry in entries
        for file in entry.own_files
        if file.exists() and records.read(entry.name) is None  # in this order: records come before files
    ]
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise ConfigError(
            f"{found[0]}{more}: expected no file, or one that this catalogue has made, got another; add --redo to "
            f"replace it, or choose another folder with --output"
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
    loaded: LoadedGalaxy | None = None
    for entry in (entry for entry in group if entry.name not in work.settled):
        with work.records.claimed("entry", entry.name) as own:
            if own and _is_open(work, entry):
                loaded = yield from _observe_entry(work, mesh, entry, loaded)
                work.summary.update()
    if loaded is not None:
        loaded.files.close()


def _serving(loaded: LoadedGalaxy | None, entry: Entry, mesh: Mesh) -> LoadedGalaxy:
    """The galaxy at hand, or read anew where there is none or it does not do for this view."""
    if loaded is not None and loaded.serves(entry.config):
        return loaded
    other = load_for(entry, mesh)  # where it fails, the one at hand is still open for the next view
    if loaded is not None:
        loaded.files.close()
    return other


def _is_open(work: _Work, entry: Entry) -> bool:
    """Whether a claimed entry is still to be computed: not done, nor tried by another process since this one began."""
    record = work.records.read(entry.name)
    if record is None or record.status == "started":
        return True
    if record.status == "done":
        known = work.records.is_complete(record) and record.made_from == work.made_from[entry.name]
    else:
        known = record != work.before[entry.name]
    if known and record.status == "done":
        work.skipped.add(entry.name)
        _tell(work)
    return not known


def _observe_entry(
    work: _Work, mesh: Mesh, entry: Entry, loaded: LoadedGalaxy | None
) -> Generator[None, None, LoadedGalaxy | None]:
    """One cube, or the record of why there is none; returns the galaxy for the next view."""
    picture = beside(entry.path, ".png") if work.with_picture else None
    remove_stale([*entry.own_files, work.records.path(entry.name), *([] if picture is None else [picture])])
    check_output(entry.config, entry.path)
    record = Record("started", work.made_from[entry.name], this_worker())
    work.records.write(entry.name, record)
    start = perf_counter()
    try:
        with explained_exhaustion():
            loaded = _serving(loaded, entry, mesh)
            prepared = begin(prepare_view(entry, loaded, mesh))
            yield
            record = _finished(record, entry, prepared, picture)
    except Exception as error:
        record = _failure(record, error)
    work.records.write(entry.name, replace(record, seconds=round(perf_counter() - start, 3)))
    (work.done if record.status == "done" else work.failed).add(entry.name)
    _tell(work, entry, record, perf_counter() - start)
    return loaded


def _finished(record: Record, entry: Entry, prepared: Prepared, picture: Path | None) -> Record:
    """Wait for the cube, write it and, where asked for, its picture."""
    cube = put_together(write_results(prepared, entry.path, Progress()).cube)
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
