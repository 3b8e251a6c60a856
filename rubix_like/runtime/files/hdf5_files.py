"""The one way in which HDF5 files are opened for reading, whoever wrote them, and the one for writing."""

import importlib
import io
import itertools
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from h5py import h5d, h5o, h5t, h5z  # pyright: ignore[reportAttributeAccessIssue]
from jaxtyping import Int
from numpy import ndarray

from rubix_like.runtime.files.damaged_files import DAMAGED, UNREADABLE
from rubix_like.runtime.words import reason_of

_SIGNATURE = b"GCOL"
_HEAD = struct.Struct("<4sB3xQ")
_OBJECT = struct.Struct("<HH4xQ")


class GuardedFile(io.BufferedReader):
    """The bytes of a file for h5py's driver of Python objects; `fault`: why a read was refused, empty before.

    A global heap (HDF5 File Format Specification, III.E) is a chain of objects, each with its length. The
    library follows it while it is inside, so an object of length 0, or one whose length overflows, never ends.
    """

    def __init__(self, path: Path) -> None:
        io.BufferedReader.__init__(self, io.FileIO(path))
        self.fault = ""

    def readinto(self, buffer: Any, /) -> int:
        """The next bytes; raises OSError where a heap among them never ends."""
        start = self.tell()
        count = io.BufferedReader.readinto(self, buffer)
        content = bytes(buffer[:count])
        place = content.find(_SIGNATURE)
        while place >= 0:
            self._check_heap(start + place)
            place = content.find(_SIGNATURE, place + 1)
        self.seek(start + count)
        return count

    def _check_heap(self, start: int) -> None:
        head = self._bytes(start, _HEAD.size)
        if len(head) < _HEAD.size:
            return
        _, version, size = _HEAD.unpack(head)
        place = _HEAD.size
        while version == 1 and place + _OBJECT.size <= size:
            number = self._bytes(start + place, _OBJECT.size)
            if len(number) < _OBJECT.size:
                return  # beyond the end of the file, which the library sees
            index, _, length = _OBJECT.unpack(number)
            taken = length if index == 0 else _OBJECT.size + -(-length // 8) * 8
            if not 0 < taken <= size:
                self.fault = f"its heap of texts at byte {start} has an object of impossible length {length}; {DAMAGED}"
                raise OSError(self.fault)
            place += taken

    def _bytes(self, start: int, count: int) -> bytes:
        self.seek(start)
        return self.read(count)


_BLOCK = "%b"
"""HDF5 replaces it in the name of a source by 0, 1, 2 ..., as long as there is such a file."""

_LONGEST_CHAIN = 30


class StorageError(ValueError):
    """Why a dataset cannot be read, as the end of a sentence."""


class Source(NamedTuple):
    """A dataset `name` in the file at `path` that a virtual one takes its numbers from; `words` for it in messages."""

    path: Path
    name: str
    words: str


def folders_of(path: Path) -> tuple[Path, ...]:
    """The folder of a file, as it is named and as it is without symbolic links."""
    return path.absolute().parent, path.resolve().parent


def located(name: str, path: Path, folders: tuple[Path, ...]) -> Path:
    """The file `name` as the file at `path` means it; raises StorageError where it is in none of `folders`."""
    places = [Path(os.path.normpath(folder / name)) for folder in folders_of(path)]
    inside = [place for place in places if any(place.is_relative_to(folder) for folder in folders)]
    if not inside:
        raise StorageError(
            f"it leads to '{name}', outside of the folder '{path.absolute().parent}', which is not followed; keep all "
            f"files of a snapshot in one folder"
        )
    return next((place for place in inside if place.exists()), inside[0])


def sources_of(dataset: h5py.Dataset, path: Path, folders: tuple[Path, ...] | None = None) -> Iterator[Source]:
    """The sources of a virtual dataset in the file at `path`; StorageError for one outside of `folders`, the file's."""
    folders = folders_of(path) if folders is None else folders
    for mapping in dataset.virtual_sources():
        words = f"{mapping.dset_name} in '{mapping.file_name}'"
        blocks = _BLOCK in mapping.file_name + mapping.dset_name
        for number in itertools.count() if blocks else (0,):
            file_name, name = (
                text.replace(_BLOCK, str(number)).replace("%%", "%") for text in (mapping.file_name, mapping.dset_name)
            )
            source = Source(path if file_name == "." else located(file_name, path, folders), name, words)
            if blocks and not _is_there(source):
                break
            yield source


def walk_sources(dataset: h5py.Dataset, path: Path) -> None:
    """Raise StorageError where a virtual dataset is, by way of others, its own source, or leads out of its folder.

    HDF5 itself follows such a circle until it crashes. Absent sources are passed over.
    """
    _walk(dataset, path, folders_of(path), (), set())


def _walk(
    dataset: h5py.Dataset,
    path: Path,
    folders: tuple[Path, ...],
    chain: tuple[tuple[Path, int, int], ...],
    done: set[tuple[Path, int, int]],
) -> None:
    info = h5o.get_info(dataset.id)
    node = (path.resolve(), info.addr, info.fileno)
    if node in chain or len(chain) >= _LONGEST_CHAIN:
        raise StorageError(f"it is virtual and {dataset.name} in '{path.name}' is, by its sources, its own source")
    if node in done:
        return
    for source in set(sources_of(dataset, path, folders)):
        if not _is_there(source):
            continue
        with h5py.File(source.path, "r") as file:
            found = file[source.name]
            if isinstance(found, h5py.Dataset) and found.is_virtual:
                _walk(found, source.path, folders, (*chain, node), done)
    done.add(node)


def _is_there(source: Source) -> bool:
    if not source.path.is_file() or not h5py.is_hdf5(source.path):
        return False
    with h5py.File(source.path, "r") as file:
        return source.name in file


LARGEST_EXPANSION: int = 1100
"""Bytes that one compressed byte can stand for: deflate reaches 1032."""

SMALL_CHUNK: int = 1 << 26
"""Bytes of a chunk that are held without asking how they were packed."""

_BEYOND = 1 << 62

_OWN_FORMAT = {h5z.FILTER_NBIT, h5z.FILTER_SCALEOFFSET}

_SMALL_FLOATS = (h5t.IEEE_F16LE, h5t.IEEE_F16BE, h5t.IEEE_F32LE, h5t.IEEE_F32BE, h5t.IEEE_F64LE, h5t.IEEE_F64BE)
_FLOATS = (*_SMALL_FLOATS, h5t.LDOUBLE_LE, h5t.LDOUBLE_BE, h5t.NATIVE_LDOUBLE)

_NEVER_LEFT_OUT = (h5z.FILTER_SHUFFLE, h5z.FILTER_FLETCHER32)

Extents = Int[ndarray, "_ 2"]
"""First byte in the file and number of bytes of each stretch of a dataset's data."""

_NO_EXTENTS: Extents = np.empty((0, 2), dtype=np.int64)


def check_stored(dataset: h5py.Dataset, path: Path) -> Extents:
    """The extents of the data of `dataset`, checked to be complete and within the file at `path`.

    HDF5 gives fill values for chunks that its index does not have, for contiguous data that were never written and
    for absent sources of a virtual dataset, and sizes beyond the file only fail when memory has been taken. Raises
    StorageError for any of them, and for a compression that this HDF5 cannot undo.
    """
    filters = _check_filters(dataset)
    check_type(dataset.id.get_type(), filters)
    if dataset.size in (0, None):
        return _NO_EXTENTS
    if dataset.is_virtual:
        _check_sources(dataset, path)
        return _NO_EXTENTS
    extents = _contiguous(dataset) if dataset.chunks is None else _chunked(dataset, filters)
    size = path.stat().st_size
    ends = extents.sum(axis=1)
    if extents.size and (ends.max() > size or extents.min() < 0):
        raise StorageError(f"it claims bytes {ends.max()} of a file of {size}; {DAMAGED}")
    return extents


def check_type(stored: h5t.TypeID, filters: tuple[int, ...] = ()) -> None:
    """Raise StorageError for a number of an unusual format, which only the N-bit and similar filters make on purpose.

    HDF5 converts any layout of sign, exponent and mantissa, so one damaged byte of the type changes every number.
    """
    if isinstance(stored, h5t.TypeCompoundID):
        for i in range(stored.get_nmembers()):
            check_type(stored.get_member_type(i), filters)
    elif isinstance(stored, h5t.TypeArrayID):
        check_type(stored.get_super(), filters)
    if not isinstance(stored, h5t.TypeFloatID | h5t.TypeIntegerID) or _OWN_FORMAT & set(filters):
        return
    text = f"({stored.get_precision()} bits in {stored.get_size()} bytes)"
    if isinstance(stored, h5t.TypeFloatID):
        if not any(stored.equal(known) for known in _FLOATS):
            raise StorageError(f"its numbers are in no format of IEEE 754 {text}; {DAMAGED}")
    elif stored.get_precision() != 8 * stored.get_size() or stored.get_offset() != 0:
        raise StorageError(f"its integers do not fill their bytes {text}; {DAMAGED}")


def share_bytes(parts: Iterable[Extents]) -> bool:
    """Whether any byte of the file belongs to two stretches."""
    every = np.concatenate([_NO_EXTENTS, *parts])
    every = every[np.argsort(every[:, 0], kind="stable")]
    return bool((every[1:, 0] < every.sum(axis=1)[:-1]).any())


def _contiguous(dataset: h5py.Dataset) -> Extents:
    layout = dataset.id.get_create_plist()
    if layout.get_external_count():
        raise StorageError(
            f"its numbers are not in it but in '{text_of(layout.get_external(0)[0])}' (external raw storage), which is "
            f"not followed; repack it (h5repack old.hdf5 new.hdf5)"
        )
    if layout.get_layout() == h5d.COMPACT:
        return _NO_EXTENTS
    expected = dataset.size * dataset.id.get_type().get_size()
    stored = dataset.id.get_storage_size()
    enough = stored >= expected if dataset.dtype.hasobject else stored == expected
    if not enough:
        raise StorageError(f"its shape {dataset.shape} takes {expected} bytes, but {stored} are stored; {DAMAGED}")
    return np.array([[dataset.id.get_offset(), stored]], dtype=np.int64)


def text_of(name: str | bytes | None) -> str:
    """A name as text; h5py gives bytes for one that is not UTF-8."""
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name)


def _chunked(dataset: h5py.Dataset, filters: tuple[int, ...]) -> Extents:
    """The chunks as HDF5 finds them when it reads: by their place in the array."""
    chunks, shape = tuple(dataset.chunks or ()), tuple(dataset.shape or ())
    unpacked = prod(chunks) * dataset.id.get_type().get_size()
    n_chunks, n_stored = prod(-(-shape[i] // chunks[i]) for i in range(len(chunks))), dataset.id.get_num_chunks()
    if n_chunks > n_stored:
        raise StorageError(f"its shape {shape} takes {n_chunks} chunks, but {n_stored} are stored; {DAMAGED}")
    found: list[h5d.StoreInfo] = []
    dataset.id.chunk_iter(found.append)
    for stored in found:
        if not _is_sane(stored, filters, unpacked):
            start = tuple(stored.chunk_offset)
            raise StorageError(f"its chunk at {start} cannot be of {stored.size} bytes for {unpacked}; {DAMAGED}")
    places = {tuple(stored.chunk_offset) for stored in found}
    inside = [
        place for place in places if all(place[i] % chunks[i] == 0 and place[i] < shape[i] for i in range(len(shape)))
    ]
    if len(inside) != n_chunks:
        raise StorageError(f"the index of its chunks does not cover its shape {shape}; {DAMAGED}")
    return np.array([(min(stored.byte_offset, _BEYOND), stored.size) for stored in found], dtype=np.int64)


def check_written(dataset: h5py.Dataset, values: ndarray, start: int, field: str) -> None:
    """Raise what h5py raises where a chunk of nothing but the fill value, read from row `start` on, is not stored.

    `field` is what was read of a compound type. HDF5 may list a chunk that it then does not find by its place. Only
    such chunks are looked up here, as that reads their bytes once more.
    """
    if dataset.chunks is None or values.dtype.kind not in "fiu" or not values.size:
        return
    fill: Any = 0
    if dataset.id.get_create_plist().fill_value_defined() != h5d.FILL_VALUE_UNDEFINED:
        fill = dataset.fillvalue[field] if field in (dataset.dtype.names or ()) else dataset.fillvalue
    chunks, stop = tuple(dataset.chunks), start + len(values)
    spans = [range(start - start % chunks[0], stop, chunks[0])]
    spans += [range(0, values.shape[i], chunks[i]) for i in range(1, len(chunks))]
    for corner in itertools.product(*spans):
        ends = [corner[i] + chunks[i] for i in range(len(corner))]
        rows = slice(max(corner[0] - start, 0), ends[0] - start)
        part = values[(rows, *(slice(corner[i], ends[i]) for i in range(1, len(corner))))]
        if (part == fill).all():
            dataset.id.read_direct_chunk(corner)


def _is_sane(stored: h5d.StoreInfo, filters: tuple[int, ...], unpacked: int) -> bool:
    """Whether a chunk's bytes can stand for `unpacked` ones by these filters, of which its mask leaves some out.

    HDF5 leaves out a compression that does not pay; it never leaves out the shuffling or the check sum.
    """
    left_out = [i for i in range(32) if stored.filter_mask >> i & 1]
    if any(i >= len(filters) or filters[i] in _NEVER_LEFT_OUT for i in left_out):
        return False
    if left_out or not filters:
        return stored.size >= unpacked
    return unpacked <= SMALL_CHUNK or stored.size * LARGEST_EXPANSION >= unpacked


def _check_filters(dataset: h5py.Dataset) -> tuple[int, ...]:
    """The numbers of the filters; raises StorageError for one that neither HDF5 nor an installed hdf5plugin has."""
    layout = dataset.id.get_create_plist()
    filters = [layout.get_filter(i) for i in range(layout.get_nfilters())]
    codes = tuple(code for code, *_ in filters)
    remedy = "hdf5plugin does not have it either: set HDF5_PLUGIN_PATH to the filter's folder"
    if not all(map(h5z.filter_avail, codes)):
        try:
            importlib.import_module("hdf5plugin")  # registers its filters
        except ImportError:
            remedy = "install hdf5plugin (pip install hdf5plugin)"
    for code, _, _, name in filters:
        if not h5z.filter_avail(code):
            raise StorageError(
                f"it is compressed by filter {code} ({name.decode('utf-8', 'replace') or 'no name'}), which HDF5 does "
                f"not have here; {remedy}, or repack the file where it is known (h5repack -f GZIP=1 old.hdf5 new.hdf5)"
            )
    return codes


def _check_sources(dataset: h5py.Dataset, path: Path) -> None:
    """Raise StorageError where a virtual dataset has rows without a source, or a source is absent or not whole."""
    walk_sources(dataset, path)
    for source in sources_of(dataset, path):
        if not source.path.is_file() or (h5py.is_hdf5(source.path) and not _is_there(source)):
            raise StorageError(
                f"it is virtual and its source {source.words} is not there; keep all files of the snapshot in one "
                f"folder"
            )
        with h5py.File(source.path, "r") as file:
            found = file[source.name]
            if isinstance(found, h5py.Dataset):
                check_stored(found, source.path)
    mapped = sum(source.vspace.get_select_npoints() for source in dataset.virtual_sources())
    if mapped < (dataset.size or 0):
        raise StorageError(f"it is virtual and has {dataset.size} numbers, but sources for {mapped}; {DAMAGED}")


MOST_OBJECTS: int = 200_000
"""Groups and datasets of a file: far more than any snapshot has."""


@contextmanager
def opened_hdf5(path: Path, *, whole: bool = True) -> Iterator[h5py.File]:
    """Open an HDF5 file for reading, after going through its structure once.

    Refused before any number is read: heaps of texts that the library would never leave, virtual datasets that are
    their own source, links and sources outside of the file's folder. With `whole` every dataset must be there
    completely (`check_stored`), else this is left to whoever reads them. Raises ValueError that names the place, and
    what h5py raises (`UNREADABLE`).
    """
    pending, visited = [path], set[Path]()
    while pending:
        linked = pending.pop(0)
        if linked.resolve() not in visited:
            visited.add(linked.resolve())
            pending[:0] = filter(Path.is_file, _Visit(linked, whole, folders_of(path)).linked_files())
    with h5py.File(path, "r") as file:
        yield file


@contextmanager
def writing_hdf5(path: Path) -> Iterator[h5py.File]:
    """A new HDF5 file at `path`, to be filled; raises the OSError of the first write that failed (disk full)."""
    disk = _Disk(path)
    try:
        with disk, h5py.File(disk, "w", rdcc_nbytes=0) as file:
            yield file
    finally:
        disk.check()


class _Disk(io.FileIO):
    """A new file for h5py's driver of Python objects, whose errors HDF5 does not see: `check` raises the first.

    HDF5 2.0 ends the process (SIGSEGV) when it frees datasets that it could not write.
    """

    def __init__(self, path: Path) -> None:
        io.FileIO.__init__(self, path, "w+b")
        self._error: OSError | None = None

    def check(self) -> None:
        """Raise the first error of writing, if there was any."""
        if self._error is not None:
            raise self._error

    def write(self, data: Any, /) -> int:
        """Write all of the bytes, unless an error came before."""
        left = memoryview(data)
        with self._kept_error():
            while left and self._error is None:
                left = left[io.FileIO.write(self, left) :]
        return len(data)

    def truncate(self, size: int | None = None, /) -> int:
        """Give the file this size."""
        with self._kept_error():
            io.FileIO.truncate(self, size)
        return self.tell() if size is None else size

    def close(self) -> None:
        """Close the file, where errors of delayed writing may come; may come twice."""
        with self._kept_error():
            io.FileIO.close(self)

    @contextmanager
    def _kept_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._error = self._error or error


def _check_type(stored: h5t.TypeID) -> None:
    """Raise StorageError for a type of variable length that is neither a sequence (0) nor a text: HDF5 2.0 ends the
    process (SIGSEGV) when it reads one. The fourth byte of an encoded type holds this number (HDF5 File Format
    Specification, IV.A.2.d)."""
    if isinstance(stored, h5t.TypeVlenID) and stored.encode()[3] & 0x0F != 0:
        raise StorageError(f"its type of variable length is unknown; {DAMAGED}")


@dataclass
class _Visit:
    """A walk through one file, all of whose datasets must be there if it has to be `whole`.

    `visited`: addresses of the groups and datasets that were met; `taken`: where data lie; `linked`: files behind
    external links, which must be in the `folders`.
    """

    path: Path
    whole: bool
    folders: tuple[Path, ...]
    visited: set[int] = field(default_factory=set)
    taken: list[Extents] = field(default_factory=list)
    linked: list[Path] = field(default_factory=list)

    def linked_files(self) -> list[Path]:
        """Go through the file; the files that it links to."""
        guarded = GuardedFile(self.path)
        try:
            with guarded, h5py.File(guarded, "r") as file:
                self._visit_all(file)
        except UNREADABLE as error:
            if guarded.fault:
                raise StorageError(f"{self.path}: {guarded.fault}") from error
            if self.whole or isinstance(error, StorageError):
                raise
        if guarded.fault:
            raise StorageError(f"{self.path}: {guarded.fault}")
        return self.linked

    def _visit_all(self, file: h5py.File) -> None:
        pending: list[tuple[str, Any]] = [("", file["/"])]
        while pending:
            place, found = pending.pop()
            with self._naming(place):
                pending += self._visit(found, place)
        if self.whole and share_bytes(self.taken):
            raise StorageError(f"{self.path}: two datasets claim the same bytes; {DAMAGED}")

    def _visit(self, found: Any, place: str) -> list[tuple[str, Any]]:
        """Look at a group or dataset that was not visited, and at its attributes; what is in it."""
        address = h5o.get_info(found.id).addr
        if address in self.visited:
            return []
        self.visited.add(address)
        if len(self.visited) > MOST_OBJECTS:
            raise StorageError(f"the file has more than {MOST_OBJECTS} groups and datasets; {DAMAGED}")
        for name in found.attrs:
            with self._naming(f"{place}@{name}"):
                _check_type(found.attrs.get_id(name).get_type())
                found.attrs[name]
        if isinstance(found, h5py.Dataset):
            self._visit_dataset(found)
        if not isinstance(found, h5py.Group):
            return []
        members: list[tuple[str, Any]] = []
        names: Iterable[Any] = found
        for name in names:
            inner = f"{place}/{name}"
            with self._naming(inner):
                link = found.get(name, getlink=True)
                members += [(inner, found[name])] if isinstance(link, h5py.HardLink) else []
                if isinstance(link, h5py.ExternalLink):
                    self.linked.append(located(link.filename, self.path, self.folders))
        return members

    def _visit_dataset(self, dataset: h5py.Dataset) -> None:
        """Note where its data lie if it must be whole, and read texts, which is how their heaps are met."""
        _check_type(dataset.id.get_type())
        if dataset.is_virtual:
            (check_stored if self.whole else walk_sources)(dataset, self.path)
            return
        extents = [check_stored(dataset, self.path)] if self.whole or dataset.dtype.hasobject else []
        if dataset.dtype.hasobject:
            dataset[()]
        self.taken += extents if self.whole else []

    @contextmanager
    def _naming(self, place: str) -> Iterator[None]:
        """Errors of this package name the file and the place; others are passed over where the file need not be whole.

        What is damaged there is then found by whoever reads it.
        """
        where = f"{self.path}: {place.lstrip('/') or 'the file'} cannot be read"
        try:
            yield
        except StorageError as error:
            if str(error).startswith(str(self.path)):
                raise
            raise StorageError(f"{where}: {error}") from error
        except UNREADABLE as error:
            if str(error).startswith(f"{self.path}: "):
                raise
            if self.whole:
                raise ValueError(f"{where} ({reason_of(error)}); {DAMAGED}") from error
