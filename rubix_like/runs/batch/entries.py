"""Every galaxy of a list in every view, from tables whose columns are settings: the configuration of its run."""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rubix_like.config import InstrumentSettings, RunConfig
from rubix_like.config.loading import (
    ConfigSource,
    check_sections,
    naming_observation,
    observation_overrides,
    read_sections,
    with_overrides,
)
from rubix_like.config.quantities import WITH_UNITS
from rubix_like.config.readers.components import ComponentsReader
from rubix_like.config.readers.snapshot import SnapshotReader
from rubix_like.errors import ConfigError, expect, suggest
from rubix_like.forward.resolved import check_early
from rubix_like.readers.snapshot import check_snapshot
from rubix_like.runs.run_files import files_at, named_paths, output_files, with_asked_maps
from rubix_like.runtime.files.outputs import split_name
from rubix_like.ssp.formats import SHELF
from rubix_like.version import NUMBERS

RowSource = str | Path | Sequence[Mapping[str, Any]]
"""A CSV file, or its rows as mappings from columns to values."""

NAME = "name"
"""The column that is no setting."""

_NOT_PER_ROW = {
    "output": "files are called after the rows",
    "devices": "all rows are computed on the same devices",
    "engine.precision": "it holds for the whole process",
}
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_LONGEST_NAME = 100
_LONGEST_LINE = 1 << 20


@dataclass(frozen=True)
class Row:
    """One row: where it stands ("list.csv, line 3"), its name, and its settings by dotted key."""

    place: str
    name: str
    settings: Mapping[str, Any]


def read_rows(source: RowSource, what: str) -> tuple[Row, ...]:
    """The rows of a list, at least one, each with a different name; `what`: the list's name in messages.

    An empty cell sets nothing. A row without a name is called after its values: `subhalo12`, a file by its stem. Raises
    ConfigError with file and line for what cannot be used, FileNotFoundError for a missing file.
    """
    rows: list[Row] = []
    expect(source, (str, Path, Sequence), what, "a CSV file or a list of dicts")
    is_file = isinstance(source, str | Path)
    for place, cells in _read_file(Path(source).expanduser()) if is_file else _listed(source, what):
        settings = {key: value for key, value in cells.items() if key != NAME}
        name = str(cells[NAME]) if cells.get(NAME) is not None else _made_of(settings)
        if not _SAFE_NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
            hint = "" if cells.get(NAME) is not None else ", made of its values; add a column 'name'"
            raise ConfigError(
                f"{place}: expected a name of at most {_LONGEST_NAME} letters, digits, '.', '_', '+' and '-', the "
                f"first a letter or digit (a file is called after it), got '{name}'{hint}"
            )
        rows.append(Row(place, name, settings))
    if not rows:
        raise ConfigError(f"{source if is_file else what}: expected at least one row, got none")
    owners: dict[str, Row] = {}
    for row in rows:
        other = owners.setdefault(row.name.lower(), row)
        if other is not row:
            raise ConfigError(
                f"{row.place}: expected a name of its own, got '{row.name}' as in {other.place}; give rows other names "
                f"in the column 'name'"
            )
    return tuple(rows)


def _listed(rows: Sequence[Mapping[str, Any]], what: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, row in enumerate(rows, start=1):
        place = f"{what}, row {number}"
        for column in expect(row, Mapping, place, "a dict"):
            _check_column(place, column)
        yield place, dict(row)


def _read_file(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Place and cells of every row of a CSV file; lines that begin with '#' and empty ones are skipped."""
    columns: list[str] | None = None
    used: set[str] = set()
    for line, cells in _lines(path):
        place = f"{path}, line {line}"
        if columns is None:
            columns = _header(place, cells)
            continue
        if len(cells) != len(columns):
            raise ConfigError(f"{place}: expected {len(columns)} values, one per column, got {len(cells)}")
        row = {column: cell.strip() for column, cell in zip(columns, cells, strict=True) if cell.strip()}
        used |= set(row)
        yield place, row
    unused = [column for column in columns or () if column not in used]
    if used and unused:
        raise ConfigError(f"{path}: expected a value in the column '{unused[0]}' in some row, got none; leave it out")


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    if not path.is_file():
        raise FileNotFoundError(f"no file '{path}'; expected a list in CSV, one row per galaxy or view")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            # by pieces, so that a file without line breaks is refused for its cell, before it is all in memory
            reader = csv.reader(iter(lambda: file.readline(_LONGEST_LINE), ""), strict=True)
            yield from (
                (reader.line_num, cells)
                for cells in reader
                if not (not any(cell.strip() for cell in cells) or cells[0].lstrip().startswith("#"))
            )
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: expected CSV (values separated by commas, UTF-8), but {error}") from error


def _header(place: str, cells: list[str]) -> list[str]:
    columns = [cell.strip() for cell in cells]
    if len(columns) == 1 and re.search(r"[;\t]", columns[0]):
        raise ConfigError(f"{place}: expected columns separated by commas, got '{columns[0]}'")
    for column in columns:
        _check_column(place, column)
        if columns.count(column) > 1:
            raise ConfigError(f"{place}: the column '{column}' is there twice")
    return columns


def _check_column(place: str, column: object) -> None:
    """Refuse what is no setting, or none of a row; what is below a section is checked with the values."""
    if column == NAME:
        return
    first = str(column).split(".", maxsplit=1)[0]
    sections = (*RunConfig.model_fields, *RunConfig.sections(first))
    if not isinstance(column, str) or first not in sections:
        hint = suggest(first, (NAME, *sections))
        raise ConfigError(
            f"{place}: expected columns that are settings with dots (galaxy.path, observation.inclination) or 'name', "
            f"got '{column}'{hint}"
        )
    for key, reason in _NOT_PER_ROW.items():
        if column == key or column.startswith(f"{key}."):
            raise ConfigError(
                f"{place}: '{column}' cannot differ from row to row ({reason}); set it in the configuration"
            )


def _made_of(settings: Mapping[str, Any]) -> str:
    """A name of a row's values: files by their stems, other values after the last part of their key."""
    parts = []
    for key, value in settings.items():
        last = key.rpartition(".")[2]
        parts.append(Path(str(value)).stem if last == "path" else f"{last}{value}")
    return re.sub(r"[^A-Za-z0-9._+-]+", "", "_".join(parts)).lstrip("._+-")


_MOST_PROBLEMS = 10
_NO_VIEW = Row("", "", {})

_COMPILED = {"ssp", "instrument", "pipeline", "engine", "products", "systematics"}
"""Sections that a compiled program depends on."""


@dataclass(frozen=True)
class Entry:
    """One galaxy in one view: `row` has its name and all that it changes in the sections `base`, `path` is its cube."""

    base: Mapping[str, Any]
    row: Row
    config: RunConfig
    path: Path
    galaxy: str = ""
    view: str = ""

    @property
    def name(self) -> str:
        """The name of its files."""
        return self.row.name

    @property
    def place(self) -> str:
        """The place of its row, for messages."""
        return self.row.place

    @property
    def own_files(self) -> tuple[Path, ...]:
        """Its cubes, and what a run writes beside them."""
        files = output_files(self.config, self.path)
        return tuple(path for file in files for path in (file.path, *(other for _, other in file.others)))

    @property
    def loading(self) -> str:
        """The key of a galaxy: entries that agree in it share one. Smooth components are made for an instrument."""
        of_instrument = ("instrument", "observation") if isinstance(self.config.galaxy, ComponentsReader) else ()
        sections = {name: getattr(self.config, name) for name in ("galaxy", "ssp", "engine", *of_instrument)}
        return json.dumps({name: section.model_dump(mode="json") for name, section in sections.items()}, sort_keys=True)

    @property
    def compiling(self) -> str:
        """The key of a program: entries that agree in it share one, if their galaxies are of about one size."""
        config, dust = self.config, self.config.dust
        dust = "none" if dust is None else dust.compiled
        return f"{config.model_dump_json(include=_COMPILED)} {dust} {config.noise is None}"


def read_entries(
    source: ConfigSource,
    catalogue: RowSource,
    views: RowSource | None = None,
    overrides: Mapping[str, Any] | None = None,
    folder: Path | None = None,
) -> tuple[Entry, ...]:
    """The entries of a catalogue, those of one galaxy one after the other.

    `source`: the configuration that the rows change; `views`: settings that every galaxy is seen with; `overrides`
    hold for all; `folder`: where the files go (None: named like output.path without its ending). Raises ConfigError
    with the places of all rows that cannot be used.
    """
    sections, place = read_sections(source)
    sections = with_overrides(sections, overrides or {})
    rows = read_rows(catalogue, "catalogue")
    seen = (_NO_VIEW,) if views is None else read_rows(views, "views")
    twice = sorted({key for row in rows for key in row.settings} & {key for row in seen for key in row.settings})
    if twice:
        raise ConfigError(f"'{twice[0]}' is in both lists, that of galaxies and that of views; leave one out")
    known: dict[tuple[str, str], Any] = {}
    entries, problems = [], []
    for row in rows:
        for view in seen:
            place_of_both = f"{row.place} ({row.name})" + (f" with {view.place} ({view.name})" if view.place else "")
            name = f"{row.name}_{view.name}" if view.name else row.name
            both = Row(place_of_both, name, {**row.settings, **view.settings})
            try:
                entries += [
                    replace(entry_of(sections, observation, folder, known), galaxy=row.name, view=view.name)
                    for observation in _of_observations(sections, both)
                ]
            except (ConfigError, OSError) as error:
                problems.append(f"{both.place}: {error}")
    if problems:
        more = len(problems) - _MOST_PROBLEMS
        shown = [*problems[:_MOST_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]
        raise ConfigError("\n  ".join([f"{place} with the lists: {len(problems)} entries cannot be used:", *shown]))
    _check_files(entries)
    first: dict[str, int] = {}
    for number, entry in enumerate(entries):
        first.setdefault(entry.loading, number)
    return tuple(sorted(entries, key=lambda entry: first[entry.loading]))


def _of_observations(base: Mapping[str, Any], row: Row) -> list[Row]:
    """A separate row for each observation of the row, and each arm of its instrument; raises ConfigError where arms
    are to be joined."""
    sections = with_overrides(base, row.settings)
    if sections.get("observations") is None:
        try:
            settings = InstrumentSettings.model_validate(sections.get("instrument"))
        except (ValidationError, ConfigError):  # said of the whole entry
            return [row]
        if settings.arms is None:
            return [row]
        if settings.join:
            raise ConfigError(
                "instrument.join: expected false in a catalogue, got true; its arms are cubes of their own"
            )
    several = observation_overrides(check_sections(sections, "configuration"))
    rows: list[Row] = []
    for name, overrides in several.items():
        observation = Row(row.place, f"{row.name}_{name}", {**row.settings, **overrides})
        with naming_observation("" if sections.get("observations") is None else name):
            rows += _of_observations(base, observation)
    return rows


def entry_of(base: Mapping[str, Any], row: Row, folder: Path | None, known: dict[tuple[str, str], Any]) -> Entry:
    """An entry whose settings are checked; sections that came before are taken from `known`, which takes in these.

    Raises ConfigError or OSError for what cannot be used.
    """
    sections = with_overrides(base, row.settings)
    keys = {name: (str(name), repr(value)) for name, value in sections.items()}
    config = check_sections({name: known.get(key, sections[name]) for name, key in keys.items()}, "configuration")
    known |= {key: getattr(config, name) for name, key in keys.items()}
    config = with_asked_maps(config)
    if config.galaxy is None:
        raise ConfigError("galaxy: expected a section with a reader, got none; add e.g. a column 'galaxy.path'")
    check_early(config)
    SHELF.locate(config.ssp.library)
    path = getattr(config.galaxy, "path", None)
    for file in path if isinstance(path, tuple) else (path,):
        if isinstance(file, Path) and not any(mark in str(file) for mark in "*?[") and not file.expanduser().exists():
            raise FileNotFoundError(f"galaxy.path: no file '{file}'")
    stem, ending = split_name(config.output.path)
    place = config.output.path.parent / stem if folder is None else folder
    return Entry(base, row, config, place.expanduser() / f"{row.name}{ending}")


def check_every_file(entries: Iterable[Entry]) -> dict[str, str]:
    """Open the simulation file of every galaxy (`check_snapshot`): by the name of each that is opened why it cannot be
    observed, or nothing.

    No particle is read.
    """
    found: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for entry in entries:
        reader = entry.config.galaxy
        if not isinstance(reader, SnapshotReader):
            continue
        settings = reader.model_dump_json()
        if settings not in reasons:
            reasons[settings] = ""
            try:
                check_snapshot(reader)
            except (ValueError, OSError) as error:
                reasons[settings] = str(error)
        found[entry.galaxy] = found.get(entry.galaxy) or reasons[settings]
    return found


def _check_files(entries: Iterable[Entry]) -> None:
    """Refuse entries that would write the same file."""
    owners: dict[str, Entry] = {}
    for entry in entries:
        for path in entry.own_files:
            other = owners.setdefault(str(path).lower(), entry)
            if other is not entry:
                raise ConfigError(
                    f"{entry.place}: expected files of its own, but '{path.name}' would also be one of "
                    f"{other.place}; give them other names"
                )


def described(config: RunConfig) -> dict[str, Any]:
    """The settings that a cube depends on, by dotted key, quantities with their units: not where it goes, nor the
    devices."""
    sections = config.model_dump(mode="json", context={WITH_UNITS: True}, exclude={"devices"})
    output, packing = config.output, config.output.packing
    sections["output"] = {"layout": output.layout, "ending": split_name(output.path)[1]}
    sections["output"] |= {} if packing.is_none else {"compression": packing.kind, "quantize": packing.quantize}
    return _flat(sections, "")


def _flat(value: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        return {key: value}
    return {
        inner: leaf
        for name, part in value.items()
        for inner, leaf in _flat(part, f"{key}.{name}" if key else str(name)).items()
    }


FileState = list[int]
"""Size in bytes, and the time of the last change in ns: a list, as JSON has it."""


class Sources:
    """Looks at the files that configurations name, at each of them once."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, FileState]] = {}

    def made_from(self, entry: Entry) -> dict[str, Any]:
        """Plain data, equal for two entries only where their cubes are, but for chance and bugs."""
        files = {name: state for _, path in named_paths(entry.config) for name, state in self._states(path).items()}
        return {"numbers": NUMBERS, "settings": described(entry.config), "sources": dict(sorted(files.items()))}

    def _states(self, path: Path) -> dict[str, FileState]:
        if str(path) not in self._known:
            states = {str(file): file.stat() for file in files_at(path)}
            self._known[str(path)] = {name: [state.st_size, state.st_mtime_ns] for name, state in states.items()}
        return self._known[str(path)]


_VALUES_BEFORE_THE_KEY = {"ssp.library": "popstar", "engine.kernel": "scatter"}
"""The values that were used before the key existed, for records that lack it."""


def changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """The differences between two descriptions, in words."""
    lines = []
    if (before := old.get("numbers", 0)) != (now := new.get("numbers", 0)):
        lines.append(f"this rubix-like computes other numbers (their version is {now} instead of {before})")
    before, now = (_VALUES_BEFORE_THE_KEY | made["settings"] for made in (old, new))
    for key in sorted(before.keys() | now.keys()):
        if before.get(key) != now.get(key):
            lines.append(f"{key}: {now.get(key)} instead of {before.get(key)}")
    for name in sorted(old["sources"].keys() | new["sources"].keys()):
        if old["sources"].get(name) != new["sources"].get(name):
            lines.append(f"the file {name} is another, or was changed")
    return lines
