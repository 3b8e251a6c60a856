"""Tables of particles in text: ECSV, CSV and other separators, SKIRT's columns, and VOTable; a table is held whole."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from rubix_like.config.yaml_files import check_ecsv
from rubix_like.readers.containers.table_files import (
    ONLY_TABLE,
    ArrayColumns,
    TableContainer,
    opening,
    plain_column,
)
from rubix_like.runtime.places import found_at

HEAD_LINES = 100

_SKIRT = re.compile(r"#\s*column\s+\d+\s*:\s*([^()]+?)\s*(?:\(([^)]*)\))?\s*$", re.IGNORECASE)
"""A line that names a column of a text file of SKIRT (skirt.ugent.be, "Importing text column data")."""

_ENTRY = re.compile(r"[^\s\[(]+(?:\s*[\[(][^\])]*[\])])?")
"""A name between spaces, with the unit in brackets behind it."""

_QUOTES = frozenset("\"'")

_SEPARATORS = (",", ";", "\t", "|")


class TextLayout(NamedTuple):
    """The names of a table's columns, their units where a row has them, the separator, and the first row of numbers
    among the lines that are not comments."""

    names: tuple[str, ...]
    units: dict[str, str]
    separator: str | None
    first: int


def text_layout(head: bytes, whole: bool) -> TextLayout | None:
    """The layout of a table by the first bytes of a file, None where they are none of a table with named columns.

    The names are in SKIRT's comments, in the last comment before the numbers, or in the first other line; a row of
    units may follow.
    """
    try:
        lines = head.decode("utf-8", "strict" if whole else "ignore").splitlines()
    except UnicodeDecodeError:
        return None
    lines = [line.strip() for line in (lines if whole else lines[:-1])[:HEAD_LINES] if line.strip()]
    if b"\0" in head or head.startswith(b"# %ECSV"):
        return None
    comments = [line for line in lines if line.startswith("#")]
    others = [line for line in lines if not line.startswith("#")]
    columns = [found.groups() for line in comments if (found := _SKIRT.match(line))]
    if columns and others and len(others[0].split()) == len(columns):
        names = tuple(re.sub(r"[\s-]+", "_", name) for name, _ in columns)
        return TextLayout(names, {name: unit for name, (_, unit) in zip(names, columns, strict=True) if unit}, None, 0)
    candidates = [(line, others, 0) for line in others[:1]]
    if comments and others:
        candidates.append((comments[-1].lstrip("# "), ["", *others], -1))
    layouts = (_named(title, rows, shift) for title, rows, shift in candidates)
    return next((layout for layout in layouts if layout is not None), None)


def _named(title: str, lines: list[str], shift: int) -> TextLayout | None:
    """The layout with names in `title`, the first of `lines`; None where no row of as many numbers follows."""
    separator = next((mark for mark in _SEPARATORS if mark in title), None)
    names = tuple(name.strip().strip("\"'").strip() for name in _entries(title, separator))
    if len(names) < 2 or len(set(names)) < len(names) or any(_is_number(name) for name in names):
        return None
    units: dict[str, str] = {}
    for number, line in enumerate(lines[1:3], start=1):
        entries = _entries(line, separator)
        if len(entries) != len(names):
            return None
        if any(map(_is_number, entries)):
            return TextLayout(names, units, separator, number + shift)
        units = {name: entry.strip().strip("[]()") for name, entry in zip(names, entries, strict=True) if entry.strip()}
    return None


def _entries(line: str, separator: str | None) -> list[str]:
    return line.split(separator) if separator else _ENTRY.findall(line)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@contextmanager
def open_ecsv(path: Path) -> Iterator[TableContainer]:
    """Read an ECSV file; raises OSError where it cannot be read."""
    with opening(path, "an ECSV table"):
        check_ecsv(path)
        table = found_at("astropy.table:Table").read(path, format="ascii.ecsv", guess=False)
    yield _container(path, table, {})


@contextmanager
def open_votable(path: Path) -> Iterator[TableContainer]:
    """Read the first table of a VOTable; raises OSError where it cannot be read."""
    with opening(path, "a VOTable"):
        table = found_at("astropy.table:Table").read(path, format="votable", use_names_over_ids=True, table_id=0)
    yield _container(path, table, {})


@contextmanager
def open_text_table(path: Path, layout: TextLayout) -> Iterator[TableContainer]:
    """Read a table in text; raises OSError where it cannot be read, ValueError with the row of an entry that is no
    number."""
    options: dict[str, Any] = {"delimiter": layout.separator or r"\s"}
    with opening(path, "a table in text"):
        try:
            table = found_at("astropy.table:Table").read(
                path,
                format="ascii.no_header",
                guess=False,
                comment=r"\s*#",
                names=layout.names,
                data_start=layout.first,
                **options,
            )
        except ValueError:
            _check_even(path, layout)
            raise
    for name in table.colnames:
        _check_numbers(f"{path}: {name}", np.asarray(table[name]))
    yield _container(path, table, layout.units)


def _check_even(path: Path, layout: TextLayout) -> None:
    """Raise ValueError with the row that has more or fewer entries than there are names."""
    with path.open(encoding="utf-8") as file:
        lines = (line for line in file if line.strip() and not line.lstrip().startswith("#"))
        for number, line in enumerate(lines, start=1 - layout.first):
            n_entries = len(line.rstrip("\n").split(layout.separator))
            if number > 0 and n_entries != len(layout.names) and not _QUOTES & set(line):
                raise ValueError(
                    f"expected {len(layout.names)} entries ({', '.join(layout.names)}), got {n_entries} in row "
                    f"{number}; correct or leave out that row"
                )


def _check_numbers(place: str, column: ndarray) -> None:
    """Raise ValueError with the row of the first entry that is no number where the column begins with one."""
    if column.dtype.kind != "U" or not _is_number(str(column[0])):
        return
    row = next((number for number, entry in enumerate(column) if not _is_number(str(entry))), None)
    if row is not None:
        raise ValueError(
            f"{place}: expected numbers, got '{column[row]}' in row {row + 1}; correct or leave out that row"
        )


def _container(path: Path, table: Any, units: dict[str, str]) -> TableContainer:
    arrays = {name: plain_column(table[name]) for name in table.colnames}
    stated = {name: str(table[name].unit) for name in table.colnames if table[name].unit is not None}
    return TableContainer(str(path), {ONLY_TABLE: ArrayColumns(arrays, units | stated)}, dict(table.meta))
