"""Tables of particles in FITS, Parquet and npy: a table of the file is a group, its columns the datasets.

Of Parquet, npy and uncompressed FITS only the rows that are asked for are held.
"""

import gzip
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from astropy.io import fits
from numpy import ndarray

from rubix_like.config.yaml_files import check_ecsv, count_nodes
from rubix_like.readers.containers.container import ColumnContainer, Columns
from rubix_like.runtime.files.damaged_files import DAMAGED
from rubix_like.runtime.files.fits_opening import check_fits
from rubix_like.runtime.optional_packages import import_optional
from rubix_like.runtime.places import found_at

ASTROPY_META = ".__table_column_meta__"
"""Ending of the dataset beside a table in HDF5 in which astropy keeps the columns' units."""


def yaml_units(lines: list[str]) -> tuple[dict[str, str], dict[str, Any]]:
    """Units and meta data in the YAML that astropy adds to tables in Parquet and HDF5."""
    count_nodes("\n".join(lines), "the table's meta data", tags=True)
    header = found_at("astropy.table.meta:get_header_from_yaml")(lines)
    columns = {column["name"]: str(column["unit"]) for column in header["datatype"] if column.get("unit") is not None}
    return columns, dict(header.get("meta", {}))


GZIP = b"\x1f\x8b"
"""First bytes of a file compressed by gzip."""

ONLY_TABLE = "table"
"""Name of the table in files that hold one."""


def _table_container(
    path: Path, tables: Mapping[str, Columns], units: Mapping[str, str], meta: Mapping[str, Any]
) -> ColumnContainer:
    """The tables of a file: the unit that it states for a `table/column` is that column's attribute `unit`."""
    guarded = {group: _guarded(columns, f"{path}: {group}") for group, columns in tables.items()}
    return ColumnContainer(str(path), guarded, {"": meta} | {place: {"unit": unit} for place, unit in units.items()})


def _guarded(columns: Columns, place: str) -> Columns:
    def guard(read: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(name: str, *rows: int) -> Any:
            try:
                with _truncation_is_an_error():
                    return read(name, *rows)
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
                raise ValueError(f"{place}/{name} cannot be read ({text}); {DAMAGED}") from error

        return guarded

    return Columns(columns.names, guard(columns.shape), guard(columns.read))


def _array_columns(arrays: Mapping[str, ndarray]) -> Columns:
    return Columns(tuple(arrays), lambda name: arrays[name].shape, lambda name, start, stop: arrays[name][start:stop])


def _fits_columns(hdu: Any) -> Columns:
    """A binary or ASCII table, whose numbers are scaled by TSCAL and TZERO."""
    return Columns(
        tuple(str(column.name) for column in hdu.columns),
        lambda name: (int(hdu.header["NAXIS2"]), *hdu.data.dtype[name].shape),
        lambda name, start, stop: np.array(hdu.data[start:stop][name]),
    )


def _parquet_columns(file: Any) -> Columns:
    """A Parquet file, of which only the requested row groups are read; lists of one length count as columns."""

    def shape(name: str) -> tuple[int, ...]:
        rows = file.metadata.num_rows
        is_list = file.schema_arrow.field(name).type.num_fields > 0
        return (rows, *(read(name, 0, 1).shape[1:] if rows and is_list else ()))

    def read(name: str, start: int, stop: int) -> ndarray:
        parts, first = [], 0
        for index in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(index).num_rows
            begin, end = max(start - first, 0), min(stop - first, rows)
            if begin < end:
                column = file.read_row_group(index, columns=[name]).column(0).slice(begin, end - begin)
                values = column.to_numpy()
                parts.append(np.stack(values.tolist()) if values.dtype == object else values)
            first += rows
        return np.concatenate(parts) if parts else np.empty(0)

    return Columns(tuple(file.schema_arrow.names), shape, read)


@contextmanager
def open_fits_tables(path: Path) -> Iterator[ColumnContainer]:
    """Open the tables of a FITS file; raises OSError where it is damaged, ValueError where it has none."""
    with opening(path, "a FITS file"):
        check_fits(path)
    with path.open("rb") as raw, ExitStack() as stack:
        packed = raw.read(2) == GZIP
        raw.seek(0)
        with opening(path, "a FITS file"):
            stream = stack.enter_context(gzip.open(raw)) if packed else raw
            file = stack.enter_context(fits.open(cast(Any, stream), memmap=not packed))
            hdus = [hdu for hdu in file if isinstance(hdu, fits.BinTableHDU | fits.TableHDU)]
            header = {key: value for hdu in (cast(Any, file[0]), *hdus) for key, value in hdu.header.items()}
            named: dict[str, Any] = {hdu.name or f"HDU{file.index_of(hdu)}": hdu for hdu in hdus}
            tables = {name: _fits_columns(hdu) for name, hdu in named.items()}
            units = {
                f"{name}/{column.name}": column.unit
                for name, hdu in named.items()
                for column in hdu.columns
                if column.unit
            }
        if not tables:
            raise ValueError(f"{path}: expected tables of particles, got a FITS file without any table")
        yield _table_container(path, tables, units, header)


@contextmanager
def open_parquet(path: Path) -> Iterator[ColumnContainer]:
    """Open a Parquet file; raises ConfigError without pyarrow, OSError where the file is damaged."""
    parquet = import_optional("pyarrow.parquet", f"galaxy.path: '{path}', a Parquet file,")
    with opening(path, "a Parquet file"):
        file = parquet.ParquetFile(path)
    with file:
        text = (file.schema_arrow.metadata or {}).get(b"table_meta_yaml")
        units, entries = yaml_units(text.decode("utf-8", "replace").split("\n")) if text else ({}, {})
        fields = {name: file.schema_arrow.field(name).metadata or {} for name in file.schema_arrow.names}
        units |= {name: found[b"unit"].decode() for name, found in fields.items() if b"unit" in found}
        yield _table_container(path, {ONLY_TABLE: _parquet_columns(file)}, _of_only_table(units), entries)


@contextmanager
def open_npy_table(path: Path) -> Iterator[ColumnContainer]:
    """Open a structured array of numpy, whose fields are the columns; raises OSError where it is none."""
    with opening(path, "a structured array of numpy"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not array.dtype.names or array.ndim != 1:
            raise ValueError(f"expected one row of named fields a particle, got {array.dtype} of shape {array.shape}")
    columns = {name: array[name] for name in array.dtype.names}
    yield _table_container(path, {ONLY_TABLE: _array_columns(columns)}, {}, {})


def _of_only_table(units: Mapping[str, str]) -> dict[str, str]:
    return {f"{ONLY_TABLE}/{name}": unit for name, unit in units.items()}


@contextmanager
def opening(path: Path, kind: str) -> Iterator[None]:
    """Turn every fault of a file into an OSError that names it as of this kind."""
    try:
        with _truncation_is_an_error():
            yield
    except Exception as error:
        text = str(error) or type(error).__name__
        raise OSError(f"galaxy.path: '{path}' cannot be read as {kind} ({text}); is the download complete?") from error


@contextmanager
def _truncation_is_an_error() -> Iterator[None]:
    """astropy warns of truncated files; its other warnings concern units and keywords, which are checked where used."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message=".*truncated")
        yield


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
def open_ecsv(path: Path) -> Iterator[ColumnContainer]:
    """Read an ECSV file; raises OSError where it cannot be read."""
    with opening(path, "an ECSV table"):
        check_ecsv(path)
        table = found_at("astropy.table:Table").read(path, format="ascii.ecsv", guess=False)
    yield _container(path, table, {})


@contextmanager
def open_votable(path: Path) -> Iterator[ColumnContainer]:
    """Read the first table of a VOTable; raises OSError where it cannot be read."""
    with opening(path, "a VOTable"):
        table = found_at("astropy.table:Table").read(path, format="votable", use_names_over_ids=True, table_id=0)
    yield _container(path, table, {})


@contextmanager
def open_text_table(path: Path, layout: TextLayout) -> Iterator[ColumnContainer]:
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


def _container(path: Path, table: Any, units: dict[str, str]) -> ColumnContainer:
    """A table of astropy, masked numbers as NaN."""
    arrays = {}
    for name in table.colnames:
        column = table[name]
        is_masked = isinstance(column, found_at("astropy.table:MaskedColumn")) and column.dtype.kind in "fiu"
        arrays[name] = np.ma.filled(np.ma.asarray(column, np.float64), np.nan) if is_masked else np.asarray(column)
    stated = {name: str(table[name].unit) for name in table.colnames if table[name].unit is not None}
    return _table_container(path, {ONLY_TABLE: _array_columns(arrays)}, _of_only_table(units | stated), table.meta)
