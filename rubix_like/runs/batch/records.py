"""Records of every entry of a catalogue, one small file each beside the cubes, and the summary of all, summary.csv."""

import csv
import io
import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import total_flux
from rubix_like.errors import ConfigError
from rubix_like.runs.batch.entries import Entry
from rubix_like.runtime.files.outputs import output_bytes, replacing
from rubix_like.runtime.files.writers import RECORDS_FOLDER, SUMMARY_FILE
from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.words import format_bytes, shortened

Status = Literal["started", "done", "failed"]


@dataclass(frozen=True)
class Record:
    """How far an entry is: `files` are its files with their sizes in bytes, `measures` numbers for the summary,
    `worker` says which process tried, and when."""

    status: Status
    made_from: dict[str, Any]
    worker: str
    files: dict[str, int] = field(default_factory=dict)
    seconds: float | None = None
    measures: dict[str, float | int | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    error: str = ""
    traceback: str = ""


class Records:
    """The records of a folder, `records/NAME.json`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = folder / RECORDS_FOLDER

    def create(self) -> None:
        """Make the folders; raises OSError with the remedy where they cannot be."""
        for folder in (self.folder, self.place):
            try:
                folder.mkdir(exist_ok=True)
            except FileNotFoundError as error:
                raise FileNotFoundError(
                    f"cannot write to {folder}: the folder {folder.parent} does not exist; create it (mkdir -p "
                    f"{folder.parent}) or choose another (output=...)"
                ) from error
            except FileExistsError as error:
                raise NotADirectoryError(
                    f"cannot write to {folder}: it is a file, and a catalogue needs a folder; choose another "
                    f"(output=...)"
                ) from error

    def path(self, name: str) -> Path:
        """The file of the record of an entry."""
        return self.place / f"{name}.json"

    def read(self, name: str) -> Record | None:
        """The record of an entry; None where there is none. Raises ConfigError for a file that is none."""
        path = self.path(name)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return Record(**json.loads(content))
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"{path}: expected a record of a catalogue, but it cannot be read ({error}); remove it, and its entry "
                f"is made again"
            ) from error

    def write(self, name: str, record: Record) -> None:
        """Keep a record, whole or not at all."""
        with replacing(self.path(name)) as temporary:
            temporary.write_text(json.dumps(asdict(record), indent=1), encoding="utf-8")

    def is_complete(self, record: Record) -> bool:
        """Whether the entry is done and its files are as they were written."""
        sizes = [(self.folder / name, size) for name, size in record.files.items()]
        return record.status == "done" and all(output_bytes(path) == size for path, size in sizes)

    def is_begun_by(self, name: str, worker: str) -> bool:
        """Whether no other worker has begun the entry since.

        A worker that outlives its front process must not replace the record of the next run.
        """
        record = self.read(name)
        return record is None or record.worker == worker


def sizes_of(paths: Iterable[Path], folder: Path) -> dict[str, int]:
    """Names relative to `folder`, and sizes, of the files that there are."""
    found = ((path, output_bytes(path)) for path in paths)
    return {str(path.relative_to(folder)): size for path, size in found if size is not None}


COLUMNS: tuple[str, ...] = (
    "name",
    "galaxy",
    "view",
    "status",
    "file",
    "seconds",
    "stars",
    "stars_outside",
    "flux_erg_s_cm2",
    "median_signal_to_noise",
    "notes",
    "error",
)
_FIRST = [name.encode() for name in COLUMNS[:5]]
_LONGEST_HEAD = 1000
_LARGEST_SHARE = 0.02

_ALMOST_ALL = 0.99

_MOST_FAILED = 10
"""Entries that failed of which each is told."""

SummaryRow = dict[str, Any]
"""Values by `COLUMNS`; None where there is none."""


def measured(cube: Cube) -> dict[str, float | int | None]:
    """The numbers on a cube in the summary: stars, those outside the field, flux (all bins, erg/s/cm2), and the median
    of flux over its standard deviation in good voxels with light."""
    counters = cube.counters
    found: dict[str, float | int | None] = {
        "stars": None if counters is None else int(counters.n_particles),
        "stars_outside": None if counters is None else int(counters.n_outside),
        "flux_erg_s_cm2": total_flux(cube) * 1e-20,
        "median_signal_to_noise": None,
    }
    if cube.variance is not None:
        flux, variance = np.asarray(cube.flux), np.asarray(cube.variance)
        good = (variance > 0) & (np.asarray(cube.mask) == 0)
        if good.any():
            found["median_signal_to_noise"] = float(np.median(flux[good] / np.sqrt(variance[good])))
    return found


def outside_notes(measures: Mapping[str, Any]) -> list[str]:
    """A sentence for a cube with almost no star in its field, by the numbers of `measured`; nothing for others."""
    stars, outside = measures["stars"], measures["stars_outside"]
    if not stars or outside < _ALMOST_ALL * stars:
        return []
    return [
        Note(
            "observation.outside_field",
            f"{outside} of {stars} stars are outside the field: the cube has almost no light of this galaxy; compare "
            f"observation.offset and instrument.fov with its size",
            WARNING,
        )
    ]


def describe_folder(folder: Path) -> tuple[dict[str, str], list[str]]:
    """The words of its summary on the entries of a catalogue, how much room they take, and a line on each that failed.

    Raises ConfigError where the summary is none.
    """
    summary = folder / SUMMARY_FILE
    with summary.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if rows and not set(COLUMNS) <= set(rows[0]):
        raise ConfigError(f"{summary}: expected the summary of a catalogue, got other columns; run the catalogue again")
    states = Counter(row["status"] for row in rows)
    sizes = [output_bytes(path) for path in folder.iterdir()]
    facts = {
        "entries": f"{len(rows)}: {', '.join(f'{count} {state}' for state, count in sorted(states.items()))}",
        "disk": format_bytes(sum(size for size in sizes if size is not None)),
        "summary": str(summary),
    }
    failed = [row for row in rows if row["status"] == "failed"]
    lines = [f"Failed: {row['name']}: {shortened(row['error'])}" for row in failed[:_MOST_FAILED]]
    more = [f"... and {len(failed) - _MOST_FAILED} more, in {summary}"] if len(failed) > _MOST_FAILED else []
    return facts, [*lines, *more]


class Summary:
    """Writes summary.csv from the records of all entries, also those of other parts; one process writes it."""

    def __init__(self, entries: Sequence[Entry], records: Records) -> None:
        self.entries = entries
        self.records = records
        self.path: Path = records.folder / SUMMARY_FILE
        self._settled: dict[str, Record] = {}
        self._known: dict[str, tuple[tuple[int, int], Record]] = {}
        self._next = 0.0

    def may_be_replaced(self) -> bool:
        """Whether there is none yet, or one with the columns of a catalogue."""
        if not output_bytes(self.path):
            return not self.path.is_dir()
        with self.path.open("rb") as file:
            return file.readline(_LONGEST_HEAD).split(b",")[: len(_FIRST)] == _FIRST

    def settle(self, name: str, record: Record) -> None:
        """Take a record as the last one of its entry; its file is not read again."""
        self._settled[name] = record

    def rows(self) -> list[SummaryRow]:
        """One row per entry, in the order of the list; records that have not changed are not read again."""
        rows = []
        for entry in self.entries:
            record = self._record(entry.name)
            row: SummaryRow = {"name": entry.name, "galaxy": entry.galaxy, "view": entry.view, "status": "waiting"}
            if record is not None:
                row |= {"status": record.status, "seconds": record.seconds, **record.measures}
                row |= {"notes": "; ".join(record.notes), "error": record.error}
            if record is not None and record.status == "done":
                row["file"] = entry.path.name
            rows.append({column: row.get(column) for column in COLUMNS})
        return rows

    def update(self, *, now: bool = False) -> None:
        """Write it, unless that was done so lately that it would take more than 2 % of the time.

        With `now` it is written again until no record has changed meanwhile: several parts write it without a lock, and
        the last one leaves it complete.
        """
        start = time.monotonic()
        if not now and start < self._next:
            return
        written = self._write()
        while now and written != _as_csv(self.rows()):
            written = self._write()
        end = time.monotonic()
        self._next = end + (end - start) / _LARGEST_SHARE

    def _write(self) -> str:
        text = _as_csv(self.rows())
        with replacing(self.path) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="")
        return text

    def _record(self, name: str) -> Record | None:
        if name in self._settled:
            return self._settled[name]
        try:
            state = self.records.path(name).stat()
        except FileNotFoundError:
            return None
        stamp = (state.st_mtime_ns, state.st_ino)
        known = self._known.get(name)
        if known is None or known[0] != stamp:
            record = self.records.read(name)
            if record is None:
                return None
            known = self._known[name] = (stamp, record)
        return known[1]


def _as_csv(rows: Sequence[SummaryRow]) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: f"{value:.6g}" if isinstance(value, float) else value for name, value in row.items()})
    return stream.getvalue()
