"""A catalogue, from Python or a command: what is done is left alone, the rest is computed here or by an executor."""

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, as_completed
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rubix_like.arguments import named_arguments, note_renamed, returned
from rubix_like.config.loading import ConfigSource
from rubix_like.config.plug_ins import EXECUTORS
from rubix_like.config.run_config import DevicesSettings
from rubix_like.errors import ConfigError
from rubix_like.runs.batch.blocks import BlockWork, Galaxies, blocks_of, galaxies_of, observe_block, observe_galaxies
from rubix_like.runs.batch.entries import Entry, RowSource, Sources, changes, read_entries
from rubix_like.runs.batch.executors import Terms
from rubix_like.runs.batch.records import Record, Records, Summary, SummaryRow
from rubix_like.runtime.files.outputs import Named, beside, check_separate, given_files, remove_stale
from rubix_like.runtime.files.writers import PICTURE, may_be_replaced
from rubix_like.runtime.progress import Progress, Report, Stream
from rubix_like.runtime.shelf import safe_python
from rubix_like.runtime.words import counted, reason_of


@dataclass(frozen=True)
class Outcome:
    """The end of a catalogue: `rows` of the summary, and how many entries of this part it did, could not do
    (`n_failed`) and found done (`n_skipped`); `lost`: name -> why, of those whose worker ended or could not write;
    `names`: the entries of this part."""

    folder: Path
    summary: Path
    rows: tuple[SummaryRow, ...]
    n_done: int
    n_failed: int
    n_skipped: int
    lost: dict[str, str]
    names: frozenset[str]


@dataclass(frozen=True)
class How:
    """How a catalogue is computed: `executor`, the words that name one, or None (in this process), is handed blocks of
    at most `block` entries (None: a galaxy in all its views); `alone`: nothing else computes in this process."""

    executor: Executor | str | None = None
    block: int | None = None
    with_picture: bool = False
    alone: bool = False

    def __post_init__(self) -> None:
        if self.block is not None and (self.executor is None or self.block < 1):
            raise ConfigError(
                f"block: expected a number of entries from 1 on, beside an executor, got {self.block}"
                f"{' without one' if self.executor is None else ''}"
            )
        if isinstance(self.executor, str):
            EXECUTORS.find(self.executor.partition(":")[0])


HERE = How()
"""The default: in this process, galaxy by galaxy."""


@dataclass
class _Front:
    """The state of a catalogue in the front process."""

    summary: Summary
    report: Report
    n_total: int
    stream: Stream | None
    done: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)
    lost: dict[str, str] = field(default_factory=dict)
    shown: set[tuple[str, str]] = field(default_factory=set)

    def settle(self, entry: Entry, record: Record) -> None:
        """Count an entry as done or failed; in a log it gets a separate line.

        Where views of a galaxy fail alike only the first one is shown; why is said at the end.
        """
        is_good = record.status == "done"
        (self.done if is_good else self.failed).add(entry.name)
        self.summary.settle(entry.name, record)
        self.summary.update()
        if is_good:
            self._tell(entry.name, f"done in {record.seconds or 0.0:.1f} s", is_good=True)
        elif (failure := (entry.galaxy, record.error)) in self.shown:
            self.show()
        else:
            self.shown.add(failure)
            self._tell(entry.name, "failed", is_good=False)

    def lose(self, entry: Entry, reason: str) -> None:
        """Count an entry as lost."""
        self.lost[entry.name] = reason
        self._tell(entry.name, f"lost: {reason}", is_good=False)

    def _tell(self, name: str, ended: str, *, is_good: bool) -> None:
        n_settled = self.show()
        if self.stream is None or (is_good and self.stream.isatty()):
            return
        place = sys.stderr if self.stream.isatty() else self.stream
        print(f"[{n_settled}/{self.n_total}] {name}: {ended}", file=place, flush=True)

    def show(self) -> int:
        """Report how far the catalogue is."""
        n_settled = len(self.done) + len(self.failed) + len(self.skipped) + len(self.lost)
        self.report("entries", n_settled, self.n_total)
        return n_settled


def observe_all(
    entries: Sequence[Entry],
    progress: Progress,
    part: tuple[int, int] | None = None,
    *,
    overwrite: bool = False,
    how: How = HERE,
    read: Sequence[Named] = (),
) -> Outcome:
    """Compute every entry that is not done.

    `part` (k, n), from 1: only every n-th galaxy from the k-th on, while other processes may be at work on the others;
    `overwrite`: make entries again whose settings or files have changed since, which else are refused (ConfigError).
    `read`: files that must not be replaced, such as the lists, beside those that the settings name.
    """
    records = Records(entries[0].path.parent)
    records.create()
    summary = Summary(entries, records)
    groups = galaxies_of(entries)[slice(None) if part is None else slice(part[0] - 1, None, part[1])]
    mine = [entry for group in groups for entry in group]
    sources = Sources()
    made_from = {entry.name: sources.made_from(entry) for entry in mine}
    written = []
    for entry in mine:
        written += [*entry.own_files, beside(entry.path, ".png"), records.path(entry.name)]
    made_of = (("a source", Path(name)) for found in made_from.values() for name in found["sources"])
    check_separate((*written, summary.path), (*dict.fromkeys(made_of), *read), "output")
    before = {entry.name: records.read(entry.name) for entry in mine}
    done = {name: record.made_from for name, record in before.items() if record is not None and record.status == "done"}
    changed = {name: lines for name, made in done.items() if (lines := changes(made, made_from[name]))}
    if changed and not overwrite:
        name, lines = next(iter(changed.items()))
        more = f" (and {len(lines) - 3} more)" if len(lines) > 3 else ""
        raise ConfigError(
            f"{records.folder}: {len(changed)} of {len(mine)} entries are done, but were made from something else, "
            f"e.g. '{name}': {'; '.join(lines[:3])}{more}; give overwrite=True to make them again, or another "
            f"folder (output=...)"
        )
    pictures = [beside(entry.path, ".png") for entry in mine] if how.with_picture else []
    _refuse_unknown([entry for entry in mine if before[entry.name] is None], summary, pictures)
    label = f"observing {counted(len(mine), 'entry', 'entries')} of {counted(len(groups), 'galaxy', 'galaxies')}"
    with progress.step("catalogue", label) as report:
        front = _Front(summary, report, len(mine), progress.stream)
        work = BlockWork(records, made_from, how.with_picture, front.settle, how.alone)
        others_go_on = isinstance(how.executor, Executor)  # its owner's work is not ended with this run
        with _clean([*written, *([summary.path] if part is None else [])], afterwards=not others_go_on):
            try:
                _observe(front, work, _left(front, work, groups, before), how)
            finally:
                summary.update(now=True)
    counts = (len(front.done), len(front.failed), len(front.skipped))
    return Outcome(records.folder, summary.path, tuple(summary.rows()), *counts, front.lost, frozenset(made_from))


@contextmanager
def _clean(paths: Sequence[Path], *, afterwards: bool) -> Iterator[None]:
    """Remove half-written files of dead processes; `afterwards`: where this run breaks off, those of its workers."""
    remove_stale(paths)
    try:
        yield
    except BaseException:
        if afterwards:
            remove_stale(paths)
        raise


def _left(
    front: _Front, work: BlockWork, groups: Galaxies, before: dict[str, Record | None]
) -> tuple[Galaxies, Galaxies]:
    """The galaxies that are not done, and apart from them those that were being computed when a process ended.

    These come last: if one of them was the cause, all else is done first.
    """
    for entry in (entry for group in groups for entry in group):
        record = before[entry.name]
        if record is not None and work.is_done(entry.name, record):
            front.skipped.add(entry.name)
            front.summary.settle(entry.name, record)
    front.show()
    interrupted = {name for name, record in before.items() if record is not None and record.status == "started"}
    left, last = list[tuple[Entry, ...]](), list[tuple[Entry, ...]]()
    for group in groups:
        remaining = tuple(entry for entry in group if entry.name not in front.skipped)
        if remaining:
            (last if any(entry.name in interrupted for entry in remaining) else left).append(remaining)
    return left, last


def _observe(front: _Front, work: BlockWork, left: tuple[Galaxies, Galaxies], how: How) -> None:
    galaxies = [galaxy for part in left for galaxy in part]
    if how.executor is None or not galaxies:
        observe_galaxies(work, galaxies)
        return
    alike = {galaxy[0].compiling: number for number, galaxy in reversed(list(enumerate(galaxies)))}
    parts = (sorted(part, key=lambda galaxy: alike[galaxy[0].compiling]) for part in left)
    blocks = [block for part in parts for block in blocks_of(part, how.block)]
    with _opened(how.executor, galaxies[0][0].config.devices) as executor:
        _hand_out(front, work, blocks, executor)


def _hand_out(front: _Front, work: BlockWork, blocks: Galaxies, executor: Executor) -> None:
    terms = Terms.here(with_picture=work.with_picture)
    waiting: dict[Future, tuple[Entry, ...]] = {}
    try:
        for block in blocks:
            rows = [entry.row for entry in block]
            try:
                future = executor.submit(observe_block, block[0].base, rows, work.records.folder, terms)
            except BrokenExecutor as error:
                future = Future()
                future.set_exception(error)
            waiting[future] = block
        for future in as_completed(waiting):
            _take_back(front, work, waiting.pop(future), future)
    except BaseException:
        for future in waiting:
            with suppress(NotImplementedError):  # Parsl cannot
                future.cancel()
        raise


@contextmanager
def _opened(executor: Executor | str, devices: DevicesSettings) -> Iterator[Executor]:
    """An executor by its name, shut down in the end; one that was given stays as it is."""
    if isinstance(executor, Executor):
        yield executor
        return
    name, _, where = executor.partition(":")
    opened = EXECUTORS.find(name)(where, devices)
    call = f"executor '{name}'"
    with safe_python(), returned(opened, AbstractContextManager, call, "a context manager") as found:
        yield found


def _take_back(front: _Front, work: BlockWork, block: Sequence[Entry], future: Future) -> None:
    """The records of a block; of one that broke off, those that its worker left."""
    reason, found = "", dict[str, Record | None]()
    try:
        found = future.result()
    except Exception as error:
        reason = f"{type(error).__name__}: {reason_of(error)}"
        for entry in block:
            with suppress(ConfigError):  # a damaged record is none
                found[entry.name] = work.records.read(entry.name)
    for entry in block:
        record = found.get(entry.name)
        if record is not None and (not reason or work.is_done(entry.name, record)):
            front.settle(entry, record)
        else:
            front.lose(entry, reason)


def _refuse_unknown(entries: Sequence[Entry], summary: Summary, pictures: Sequence[Path]) -> None:
    """Raise ConfigError where files of entries without a record, a summary of others, or what is no picture of ours in
    the place of `pictures`, would be overwritten."""
    found = [file for entry in entries for file in entry.own_files if file.exists()]
    found += [] if summary.may_be_replaced() else [summary.path]
    found += [path for path in pictures if not may_be_replaced(path, [PICTURE])]
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise ConfigError(
            f"{found[0]}{more}: expected no file, or one that this catalogue has made, got another; move it, or "
            f"give another folder (output=...)"
        )


@named_arguments
def run_catalogue(
    config: ConfigSource,
    catalogue: RowSource,
    views: RowSource | None = None,
    output: str | Path | None = None,
    *,
    part: str | None = None,
    redo: bool = False,
    overwrite: bool = False,
    executor: Executor | str | None = None,
    block: int | None = None,
) -> Outcome:
    """Observe many galaxies: every row of `catalogue` in every one of `views`, each as `run` would.

    Both are CSV files, or lists of dicts, whose columns are dotted settings of `config` and `name`. Cubes, records and
    summary.csv go into the folder `output` (None: output.path without its ending). Entries that are done are skipped,
    failures are recorded and the rest goes on; `part`, "2/8", takes the second of eight shares of the galaxies;
    `overwrite` (`redo` until version 0.4) makes entries again that were made from other settings. Files that no record
    of the folder names are never replaced.

    `executor`: any of `concurrent.futures`, which is left open, or the words that name one, "processes:4" (None: this
    process computes everything itself); it gets `block` entries at a time (None: one galaxy in all its views). A script
    that starts processes needs `if __name__ == "__main__":` around the call. Raises ConfigError or OSError, before
    anything is computed, for lists, settings, a folder or an executor that cannot be used.
    """
    if redo:
        note_renamed("redo=True", "overwrite=True")
    how = How(executor, block)
    entries = read_entries(config, catalogue, views, folder=catalogue_folder(output))
    read = tuple(given_files({"configuration": config, "catalogue": catalogue, "views": views}))
    return observe_all(entries, Progress(), read_part(part), overwrite=overwrite or redo, how=how, read=read)


def read_part(text: str | None) -> tuple[int, int] | None:
    """(2, 8) of "2/8"; raises ConfigError for what is no share."""
    if text is None:
        return None
    number, slash, total = text.partition("/")
    if slash and number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total):
        return int(number), int(total)
    raise ConfigError(f"part: expected K/N with K from 1 to N (2/8: the second of eight shares), got '{text}'")


def catalogue_folder(output: str | Path | None) -> Path | None:
    """The folder of a catalogue's cubes (None: as the settings say); ConfigError for the name of a file."""
    if output is None:
        return None
    folder = Path(output).expanduser()
    if not str(output) or folder.name.lower().endswith((".fits", ".fits.gz", ".h5", ".hdf5")):
        raise ConfigError(f"output: expected a folder for the cubes of the catalogue, got '{output}'")
    return folder
