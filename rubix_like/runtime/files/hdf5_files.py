"""The one way in which HDF5 files are opened for reading, whoever wrote them, and the one for writing."""

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
from h5py import h5o  # pyright: ignore[reportAttributeAccessIssue]

from rubix_like.runtime.files.damaged_files import DAMAGED, UNREADABLE
from rubix_like.runtime.files.hdf5_heaps import GuardedFile
from rubix_like.runtime.files.hdf5_links import StorageError, folders_of, located, walk_sources
from rubix_like.runtime.files.hdf5_storage import Extents, check_stored, share_bytes
from rubix_like.runtime.words import reason_of

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
    pending, seen = [path], set[Path]()
    while pending:
        own = pending.pop(0)
        if own.resolve() not in seen:
            seen.add(own.resolve())
            pending[:0] = filter(Path.is_file, _Visit(own, whole, folders_of(path)).linked_files())
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


class _Disk(io.RawIOBase):
    """A new file for h5py's driver of Python objects, whose errors HDF5 does not see: `check` raises the first.

    HDF5 2.0 ends the process (SIGSEGV) when it frees datasets that it could not write.
    """

    def __init__(self, path: Path) -> None:
        self._error: OSError | None = None
        self._file = path.open("w+b", buffering=0)

    def check(self) -> None:
        """Raise the first error of writing, if there was any."""
        if self._error is not None:
            raise self._error

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move to a byte, as a file does."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """The present byte, as of a file."""
        return self._file.tell()

    def readinto(self, buffer: Any, /) -> int:
        """The next bytes, as of a file."""
        return self._file.readinto(buffer)

    def write(self, data: Any, /) -> int:
        """Write all of the bytes, unless an error came before."""
        left = memoryview(data)
        with self._kept_error():
            while left and self._error is None:
                left = left[self._file.write(left) :]
        return len(data)

    def truncate(self, size: int | None = None, /) -> int:
        """Give the file this size."""
        with self._kept_error():
            self._file.truncate(size)
        return self._file.tell() if size is None else size

    def close(self) -> None:
        """Close the file, where errors of delayed writing may come; may come twice."""
        with self._kept_error():
            self._file.close()

    @contextmanager
    def _kept_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._error = self._error or error


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
                found.attrs[name]
        if isinstance(found, h5py.Dataset):
            self._visit_dataset(found)
        if not isinstance(found, h5py.Group):
            return []
        names: Iterable[Any] = found
        return [own for name in names for own in self._member(found, name, f"{place}/{name}")]

    def _member(self, group: h5py.Group, name: Any, place: str) -> list[tuple[str, Any]]:
        """What has a name in a group by a link of its own; the file behind an external one goes to `linked`."""
        with self._naming(place):
            link = group.get(name, getlink=True)
            if isinstance(link, h5py.HardLink):
                return [(place, group[name])]
            if isinstance(link, h5py.ExternalLink):
                self.linked.append(located(link.filename, self.path, self.folders))
        return []

    def _visit_dataset(self, dataset: h5py.Dataset) -> None:
        """Where its data lie, where it must be whole; texts are read, as that is how their heaps are met."""
        if dataset.is_virtual:
            (check_stored if self.whole else walk_sources)(dataset, self.path)
            return
        extents = [check_stored(dataset, self.path)] if self.whole or dataset.dtype.hasobject else []
        if dataset.dtype.hasobject:
            dataset[()]
        self.taken += extents if self.whole else []

    @contextmanager
    def _naming(self, place: str) -> Iterator[None]:
        """Errors of our own name the file and the place; others are passed over where the file need not be whole.

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
