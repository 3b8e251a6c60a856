"""The lists of a catalogue: tables whose columns are settings, one row per galaxy or per view."""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rubix_like.config import RunConfig
from rubix_like.errors import ConfigError, expect, suggest

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
    """The rows of a list, at least one, each with a name of its own; `what`: the list's name in messages.

    An empty cell sets nothing. A row without a name is called after its values: `subhalo12`, a file by its stem. Raises
    ConfigError with file and line for what cannot be used, FileNotFoundError for a missing file.
    """
    rows: list[Row] = []
    expect(source, (str, Path, Sequence), what, "a CSV file or a list of dicts")
    for place, cells in (
        _read_file(Path(source).expanduser()) if isinstance(source, str | Path) else _listed(source, what)
    ):
        settings = {key: value for key, value in cells.items() if key != NAME}
        given = cells.get(NAME)
        name = _made_of(settings) if given is None else str(given)
        rows.append(Row(place, _checked_name(place, name, given is None), settings))
    if not rows:
        raise ConfigError(f"{source if isinstance(source, str | Path) else what}: expected at least one row, got none")
    _check_unique(rows)
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
            yield from ((reader.line_num, cells) for cells in reader if not _is_blank(cells))
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: expected CSV (values separated by commas, UTF-8), but {error}") from error


def _is_blank(cells: list[str]) -> bool:
    """Whether a line is empty or a comment."""
    return not any(cell.strip() for cell in cells) or cells[0].lstrip().startswith("#")


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


def _checked_name(place: str, name: str, made: bool) -> str:
    if _SAFE_NAME.fullmatch(name) and len(name) <= _LONGEST_NAME:
        return name
    came = f"'{name}', made of its values; add a column 'name'" if made else f"'{name}'"
    raise ConfigError(
        f"{place}: expected a name of at most {_LONGEST_NAME} letters, digits, '.', '_', '+' and '-', the first a "
        f"letter or digit (a file is called after it), got {came}"
    )


def _check_unique(rows: Sequence[Row]) -> None:
    """Names must differ also where names ignore case."""
    seen: dict[str, Row] = {}
    for row in rows:
        other = seen.setdefault(row.name.lower(), row)
        if other is not row:
            raise ConfigError(
                f"{row.place}: expected a name of its own, got '{row.name}' as in {other.place}; give rows other names "
                f"in the column 'name'"
            )
