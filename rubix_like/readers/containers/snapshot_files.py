"""Find the files of one snapshot (or group catalogue) from a list, a pattern, a folder or one of them."""

import glob
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy import ndarray

from rubix_like.errors import ConfigError
from rubix_like.readers.containers.container import AbstractContainer, as_number
from rubix_like.readers.containers.gadget_binary import byte_order, open_gadget
from rubix_like.readers.containers.hdf5 import open_hdf5
from rubix_like.readers.containers.pynbody_snapshot import is_ramses, is_tipsy, open_pynbody
from rubix_like.readers.containers.table_files import (
    GZIP,
    open_ecsv,
    open_fits_tables,
    open_npy_table,
    open_parquet,
    open_text_table,
    open_votable,
    text_layout,
)
from rubix_like.runtime.files.writers import OPENED_BY, PARQUET_HEAD, written_by_us


@dataclass(frozen=True)
class JoinedContainer(AbstractContainer):
    """Open files whose rows are concatenated per group; what holds for all particles is that of the first file.

    `rows`: by group the number of rows of each part (0 where a part has none of it); `shapes`: of datasets that were
    asked for.
    """

    name: str
    parts: tuple[AbstractContainer, ...]
    rows: dict[str, tuple[int, ...]]
    unread: tuple[str, ...] = ()
    nests: bool = False
    shapes: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)

    @staticmethod
    def from_parts(name: str, parts: tuple[AbstractContainer, ...]) -> "JoinedContainer":
        """Join the parts; raises ValueError where a group's datasets are not the same in all that have rows of it."""
        groups = dict.fromkeys(group for part in parts for group in part.groups())
        rows = {group: tuple(row_count(part, group) for part in parts) for group in groups}
        for group, counts in rows.items():
            having = [part for part, count in zip(parts, counts, strict=True) if count]
            for part in having[1:]:
                differing = set(part.datasets(group)) ^ set(having[0].datasets(group))
                if differing:
                    raise ValueError(
                        f"{part.name}: expected the datasets that {group} has in {having[0].name}; only one of them "
                        f"has {', '.join(sorted(differing))}; are they parts of one snapshot?"
                    )
        return JoinedContainer(name, parts, rows, parts[0].unread, parts[0].nests)

    def groups(self) -> tuple[str, ...]:
        """The groups of all parts."""
        return tuple(self.rows)

    def datasets(self, group: str) -> tuple[str, ...]:
        """The datasets of the parts that have rows of the group."""
        return next((part.datasets(group) for part, _, _ in self._having(group)), ())

    def attributes(self, place: str) -> tuple[str, ...]:
        """Names of the attributes, in the first part that has rows of the group."""
        return self._first_at(place).attributes(place)

    def attribute(self, place: str, name: str) -> Any:
        """The attribute, in the first part that has rows of the group."""
        return self._first_at(place).attribute(place, name)

    def shape(self, group: str, dataset: str) -> tuple[int, ...]:
        """Shape of the dataset in all parts together."""
        if (group, dataset) not in self.shapes:
            shapes = {self._part_shape(part, group, dataset, count)[1:] for part, count, _ in self._having(group)}
            if len(shapes) > 1:
                text = " and ".join(str(("N", *shape)).replace("'", "") for shape in sorted(shapes))
                raise ValueError(f"{self.name}: {group}/{dataset}: expected one shape in all files, got {text}")
            self.shapes[group, dataset] = (sum(self.rows.get(group, ())), *next(iter(shapes), ()))
        return self.shapes[group, dataset]

    def read(self, group: str, dataset: str, start: int, stop: int) -> ndarray:
        """The rows from `start` to `stop`; each part reads only its rows."""
        pieces = []
        for part, count, first in self._having(group):
            begin, end = max(start - first, 0), min(stop - first, count)
            if begin < end:
                self._part_shape(part, group, dataset, count)
                pieces.append(part.read(group, dataset, begin, end))
        return np.concatenate(pieces) if pieces else np.zeros((0, *self.shape(group, dataset)[1:]))

    def _part_shape(self, part: AbstractContainer, group: str, dataset: str, count: int) -> tuple[int, ...]:
        shape = part.shape(group, dataset)
        if shape[:1] != (count,):
            raise ValueError(
                f"{part.name}: {group}: expected as many rows in every dataset, got {count} and {dataset} {shape}; the "
                f"file is damaged or was cut out wrongly"
            )
        return shape

    def _having(self, group: str) -> list[tuple[AbstractContainer, int, int]]:
        """(part, its number of rows, its first row) of the parts that have rows of the group."""
        counts = self.rows.get(group, ())
        firsts = np.concatenate([[0], np.cumsum(counts)]).astype(int).tolist()
        return [(part, count, first) for part, count, first in zip(self.parts, counts, firsts, strict=False) if count]

    def _first_at(self, place: str) -> AbstractContainer:
        """The part to ask for attributes: the first with rows of the group, else the first."""
        return next((part for part, _, _ in self._having(place.partition("/")[0])), self.parts[0])


def row_count(container: AbstractContainer, group: str) -> int:
    """Rows of a group by its first dataset; 0 where it has none."""
    shape = next((container.shape(group, name) for name in container.datasets(group)), ())
    return shape[0] if shape else 0


HEAD_BYTES = 4096

_KNOWN = (
    "HDF5, Gadget's binary formats, tables (FITS, ECSV, VOTable, text with names, Parquet, npy), "
    "tipsy and RAMSES (through pynbody)"
)


@contextmanager
def open_container(path: Path, by_pynbody: bool = False) -> Iterator[tuple[AbstractContainer, str]]:
    """The open file and its kind ("hdf5", "gadget-binary", "table", "pynbody"), found from its first bytes.

    `by_pynbody` leaves any file to pynbody. Raises FileNotFoundError, IsADirectoryError, OSError or ValueError.
    """
    path = path.expanduser()
    if not path.exists():
        raise FileNotFoundError(f"galaxy.path: no file '{path}'; set galaxy.path to a snapshot or cut-out")
    if not (path.is_file() or path.is_dir()):
        raise OSError(f"galaxy.path: '{path}' is a pipe or device; expected a file")
    refuse_ours(path)
    if by_pynbody or is_ramses(path):
        if path.is_file() and byte_order(_head(path)) is not None:
            raise ConfigError(
                f"galaxy.reader: '{path}' is a binary snapshot of Gadget, which is read without pynbody; leave out "
                f"galaxy.reader"
            )
        opened, kind = open_pynbody(path), "pynbody"
    elif path.is_dir():
        raise IsADirectoryError(f"galaxy.path: '{path}' is a directory; expected a file, or an output of RAMSES")
    else:
        opened, kind = _open_file(path)
    with opened as container:
        yield container, kind


def refuse_ours(path: Path) -> None:
    """Raise ConfigError for what rubix-like wrote: it holds no particles."""
    written = written_by_us(path)
    if written is not None:
        what, opener = OPENED_BY[written.kind]
        raise ConfigError(
            f"galaxy.path: '{path}' is {what} that rubix-like wrote; expected a galaxy's particles; open it with "
            f"{opener.format(path=str(path))}"
        )


def _head(path: Path) -> bytes:
    with path.open("rb") as file:  # PermissionError, before HDF5 hides it
        return file.read(HEAD_BYTES)


def _open_file(path: Path) -> tuple[AbstractContextManager[AbstractContainer], str]:
    head = _head(path)
    if h5py.is_hdf5(path):
        return open_hdf5(path), "hdf5"
    for begins, open_table in _TABLES:
        if begins(head):
            return open_table(path), "table"
    if head.startswith(b"PK\x03\x04"):
        raise ConfigError(
            f"galaxy.path: '{path}' is a table in npz, which rubix_like 0.2.0 reads; write its columns as FITS, e.g. "
            f"astropy.table.Table(dict(numpy.load({str(path)!r}))).write('galaxy.fits')"
        )
    if byte_order(head) is not None:
        return open_gadget(path), "gadget-binary"
    if is_tipsy(path, head):
        return open_pynbody(path), "pynbody"
    layout = text_layout(head, len(head) < HEAD_BYTES)
    if layout is not None:
        return open_text_table(path, layout), "table"
    raise OSError(
        f"galaxy.path: '{path}' is not an HDF5 file, nor another one that is recognised; expected a snapshot, cut-out "
        f"or table as downloaded: {_KNOWN}; other files that pynbody reads need galaxy.reader: pynbody"
    )


def _is_fits(head: bytes) -> bool:
    if head[:2] == GZIP:
        try:
            head = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(head, 80)
        except zlib.error:
            return False
    return head[:9] == b"SIMPLE  ="


_TABLES: tuple[tuple[Callable[[bytes], bool], Callable[[Path], AbstractContextManager[AbstractContainer]]], ...] = (
    (_is_fits, open_fits_tables),
    (lambda head: head.startswith(PARQUET_HEAD), open_parquet),
    (lambda head: head.startswith(b"\x93NUMPY"), open_npy_table),
    (lambda head: head.startswith(b"# %ECSV"), open_ecsv),
    (lambda head: head.lstrip().startswith(b"<") and b"<VOTABLE" in head, open_votable),
)
"""Kinds of tables by the beginning of the file."""

_NUMBERED = re.compile(r"(?P<stem>.+\.)(?P<number>\d+)(?P<suffix>\.(?:hdf5|h5|hdf))?")
_SUFFIXES = (".hdf5", ".h5", ".hdf")
_FILE_COUNTS = ("NumFilesPerSnapshot", "NumFiles")
"""Attributes of the Header that say how many files the snapshot has."""

_SHOWN = 5


@contextmanager
def open_files(
    given: Path | tuple[Path, ...], key: str = "galaxy.path", by_pynbody: bool = False
) -> Iterator[tuple[AbstractContainer, str]]:
    """The open snapshot in these files, as one, and its kind ("hdf5", ...); `key` names the setting in messages.

    One path may be a pattern (snap_099.*.hdf5), a folder, or a numbered file of a snapshot whose Header tells of
    several: then all of them are found. Paths in a list are taken as they are. Raises FileNotFoundError, OSError or
    ValueError, naming files that are missing or there twice.
    """
    alone = isinstance(given, Path)
    paths = _expanded(given.expanduser(), key) if alone else tuple(path.expanduser() for path in given)
    _check_there_once(paths, key)
    with ExitStack() as stack:
        opened, kind = stack.enter_context(open_container(paths[0], by_pynbody))
        counts = [as_number(opened.attribute("Header", name)) for name in _FILE_COUNTS]
        n_files = max(int(next((count for count in counts if count is not None), 1)), 1)
        whole = _whole(paths, n_files, key) if alone else paths
        if len(whole) == 1:
            yield opened, kind
            return
        parts = [opened if path == paths[0] else _open_alike(stack, path, kind, key, by_pynbody) for path in whole]
        yield JoinedContainer.from_parts(f"{whole[0]} and {len(whole) - 1} more", tuple(parts)), kind


def single_file_bytes(given: Path | tuple[Path, ...]) -> int | None:
    """The size of a file, where a path can only stand for the one that it names."""
    if not isinstance(given, Path):
        return None
    path = given.expanduser()
    return path.stat().st_size if path.is_file() and _split(path) is None else None


def _open_alike(stack: ExitStack, path: Path, kind: str, key: str, by_pynbody: bool) -> AbstractContainer:
    try:
        container, other_kind = stack.enter_context(open_container(path, by_pynbody))
    except OSError as error:
        if "Too many open files" not in str(error):
            raise
        raise OSError(
            f"{key}: '{path}' cannot be opened: too many open files at once; raise the limit (ulimit -n 4096)"
        ) from error
    if other_kind != kind:
        raise ValueError(f"{key}: expected files of one kind, got {kind} and {other_kind} ('{path}')")
    return container


def _expanded(path: Path, key: str) -> tuple[Path, ...]:
    """The files that a pattern or a folder stands for, in the order of their numbers; else the path itself."""
    if path.is_dir():
        refuse_ours(path)
        return _in_folder(path, key)
    if path.exists() or not glob.has_magic(str(path)):
        return (path,)
    found = [Path(name) for name in glob.glob(str(path))]
    if not found:
        raise FileNotFoundError(f"{key}: no file matches '{path}'; set it to the files of a snapshot")
    return tuple(sorted(found, key=_order))


def _in_folder(folder: Path, key: str) -> tuple[Path, ...]:
    """The snapshot in a folder; the folder itself where it has neither numbered files nor HDF5."""
    found = [path for path in folder.iterdir() if path.is_file() and (_split(path) or path.suffix in _SUFFIXES)]
    families = {(split[0], split[2]) if (split := _split(path)) else (path.name, "") for path in found}
    if len(families) > 1:
        names = ", ".join(sorted(path.name for path in found)[:_SHOWN])
        raise ValueError(
            f"{key}: expected one snapshot in '{folder}', got files of {len(families)} names ({names}, ...); name the "
            f"files by a pattern, e.g. snap_099.*.hdf5"
        )
    return tuple(sorted(found, key=_order)) or (folder,)


def _whole(paths: tuple[Path, ...], n_files: int, key: str) -> tuple[Path, ...]:
    """All files of the snapshot that these belong to; raises ValueError, FileNotFoundError for a missing one."""
    split = _split(paths[0])
    if len(paths) == 1 and (n_files == 1 or split is None):
        return paths
    if n_files == 1 or split is None:
        raise ValueError(
            f"{key}: expected the parts of one snapshot, got {len(paths)} files ({_names(paths)}), of which the first "
            f"tells of {n_files} in its Header; to join files that are no numbered parts, list them one by one"
        )
    found = _parts(paths, split, key)
    for number, twins in found.items():
        if len(twins) > 1:
            raise ValueError(f"{key}: part {number} is there twice: {_names(tuple(sorted(twins)))}; remove one")
    stem, _, suffix = split
    n_missing = n_files - sum(number < n_files for number in found)
    if n_missing:
        missing = (f"{stem}{number}{suffix}" for number in range(n_files) if number not in found)
        more = f" and {n_missing - _SHOWN} more" if n_missing > _SHOWN else ""
        raise FileNotFoundError(
            f"{key}: the snapshot has {n_files} files, of which {n_missing} are missing in '{paths[0].parent}': "
            f"{', '.join(islice(missing, _SHOWN))}{more}; download them"
        )
    beyond = next((twins[0] for number, twins in found.items() if number >= n_files), None)
    if beyond is not None:
        raise ValueError(
            f"{key}: the Header of '{paths[0].name}' tells of {n_files} files, but there is '{beyond.name}'; remove "
            f"the files of another snapshot"
        )
    return tuple(found[number][0] for number in range(n_files))


def _parts(paths: tuple[Path, ...], split: tuple[str, int, str], key: str) -> dict[int, list[Path]]:
    """The files by number: these, or where there is only one the files beside it that are named alike."""
    found: dict[int, list[Path]] = {}
    for path in sisters(paths[0]) if len(paths) == 1 else paths:
        part = _split(path)
        if part is None or (part[0], part[2]) != (split[0], split[2]):
            raise ValueError(f"{key}: '{path}' is not named like '{paths[0].name}'; expected the parts of one snapshot")
        found.setdefault(part[1], []).append(path)
    return found


def _check_there_once(paths: tuple[Path, ...], key: str) -> None:
    found: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{key}: no file '{path}'; set {key} to a file that is there")
        if path.resolve() in found:
            raise ValueError(f"{key}: '{path}' is there twice; its particles would count twice: name it once")
        found.add(path.resolve())


def _split(path: Path) -> tuple[str, int, str] | None:
    """(stem, number, suffix) of the name of a part: snap_099.12.hdf5 is ("snap_099.", 12, ".hdf5")."""
    match = _NUMBERED.fullmatch(path.name)
    return None if match is None else (match["stem"], int(match["number"]), match["suffix"] or "")


def _order(path: Path) -> tuple[str, int, str]:
    return _split(path) or (path.name, 0, "")


def _names(paths: tuple[Path, ...]) -> str:
    text = ", ".join(path.name for path in paths[:_SHOWN])
    return text if len(paths) <= _SHOWN else f"{text}, ..."


def sisters(path: Path) -> list[Path]:
    """The files beside a numbered one that are named alike, itself among them; a file without a number alone."""
    split = _split(path)
    if split is None:
        return [path]
    named = [(other, _split(other)) for other in path.parent.iterdir()]
    alike = [other for other, part in named if part and (part[0], part[2]) == (split[0], split[2])]
    return sorted(alike, key=_order)
