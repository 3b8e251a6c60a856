"""Arrays in npz files, whose rows are read as a stream: no array is held whole."""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray
from numpy.lib import format as npy

from rubix_like.readers.containers.table_columns import AbstractColumns

_SUFFIX = ".npy"


@dataclass(frozen=True)
class _Member:
    """An array of the file: its name in the archive, shape, order, the numbers' type, and the bytes before them."""

    name: str
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype
    offset: int


@dataclass(frozen=True)
class NpzColumns(AbstractColumns):
    """Columns that are arrays of their own, or the fields of one structured array."""

    file: zipfile.ZipFile
    members: dict[str, _Member]

    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.members)

    def unit(self, name: str) -> None:
        """None: the format knows no units."""
        del name

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of the column, rows first."""
        member = self.members[name]
        return member.shape + (member.dtype[name].shape if member.dtype.names else ())

    def read(self, name: str, start: int, stop: int) -> ndarray:
        """The rows; of an array in Fortran order every row has to be read."""
        member = self.members[name]
        start, stop, _ = slice(start, stop).indices(member.shape[0] if member.shape else 0)
        rows = _all_rows(self.file, member)[start:stop] if member.fortran else _rows(self.file, member, start, stop)
        return rows[name] if member.dtype.names else rows


def open_npz(path: Path, only: str) -> tuple[zipfile.ZipFile, dict[str, AbstractColumns]]:
    """The archive and its tables: `only` for plain arrays, `stars` for `stars/x` and for a structured array `stars`."""
    file = zipfile.ZipFile(path)
    try:
        return file, _tables(file, only)
    except BaseException:
        file.close()
        raise


def _tables(file: zipfile.ZipFile, only: str) -> dict[str, AbstractColumns]:
    tables: dict[str, dict[str, _Member]] = {}
    for name in file.namelist():
        member = _member(file, name)
        key = name.removesuffix(_SUFFIX)
        group, _, column = key.rpartition("/")
        if member.dtype.names:
            tables[key] = dict.fromkeys(member.dtype.names, member)
        else:
            tables.setdefault(group or only, {})[column] = member
    return {group: NpzColumns(file, members) for group, members in tables.items()}


def _member(file: zipfile.ZipFile, name: str) -> _Member:
    """What the head of an array says; raises ValueError for Python objects."""
    with file.open(name) as stream:
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(stream)
        if dtype.hasobject:
            raise ValueError(f"{name} holds Python objects instead of numbers")
        return _Member(name, shape, fortran and len(shape) > 1, dtype, stream.tell())


def _rows(file: zipfile.ZipFile, member: _Member, start: int, stop: int) -> ndarray:
    inner = member.shape[1:]
    row_bytes = member.dtype.itemsize * int(np.prod(inner, dtype=np.int64))
    with file.open(member.name) as stream:
        stream.seek(member.offset + start * row_bytes)
        return _array(stream, member.dtype, (max(stop - start, 0), *inner), row_bytes)


def _all_rows(file: zipfile.ZipFile, member: _Member) -> ndarray:
    with file.open(member.name) as stream:
        stream.seek(member.offset)
        return _array(stream, member.dtype, member.shape[::-1], 0).T


def _array(stream: Any, dtype: np.dtype, shape: tuple[int, ...], row_bytes: int) -> ndarray:
    """The next numbers of a stream; raises ValueError where it ends before."""
    wanted = shape[0] * row_bytes if row_bytes else dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    raw = stream.read(wanted)
    if len(raw) != wanted:
        raise ValueError(f"expected {wanted} bytes, got {len(raw)}")
    return np.frombuffer(raw, dtype=dtype).reshape(shape)
