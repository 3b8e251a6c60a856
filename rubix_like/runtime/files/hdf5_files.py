"""The one way in which HDF5 files are opened for reading, whoever wrote them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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
    _look_through(path, whole, folders_of(path), set())
    with h5py.File(path, "r") as file:
        yield file


def _look_through(path: Path, whole: bool, folders: tuple[Path, ...], seen: set[Path]) -> None:
    """Go through a file and those that it links to."""
    if path.resolve() in seen:
        return
    seen.add(path.resolve())
    guarded = GuardedFile(path)
    linked: list[Path] = []
    try:
        with guarded, h5py.File(guarded, "r") as file:
            _visit_all(file, path, whole, folders, linked)
    except UNREADABLE as error:
        if guarded.fault:
            raise StorageError(f"{path}: {guarded.fault}") from error
        if whole or isinstance(error, StorageError):
            raise
    if guarded.fault:
        raise StorageError(f"{path}: {guarded.fault}")
    for other in linked:
        if other.is_file():
            _look_through(other, whole, folders, seen)


def _visit_all(file: h5py.File, path: Path, whole: bool, folders: tuple[Path, ...], linked: list[Path]) -> None:
    pending: list[tuple[str, Any]] = [("", file["/"])]
    visited: set[int] = set()
    taken: list[Extents] = []
    while pending:
        place, found = pending.pop()
        with _naming(path, place, whole):
            pending += _visit(found, place, path, whole, folders, linked, visited, taken)
    if whole and share_bytes(taken):
        raise StorageError(f"{path}: two datasets claim the same bytes; {DAMAGED}")


def _visit(
    found: Any,
    place: str,
    path: Path,
    whole: bool,
    folders: tuple[Path, ...],
    linked: list[Path],
    visited: set[int],
    taken: list[Extents],
) -> list[tuple[str, Any]]:
    """Look at a group or dataset that was not `visited`, and at its attributes; what is in it."""
    address = h5o.get_info(found.id).addr
    if address in visited:
        return []
    visited.add(address)
    if len(visited) > MOST_OBJECTS:
        raise StorageError(f"the file has more than {MOST_OBJECTS} groups and datasets; {DAMAGED}")
    for name in found.attrs:
        with _naming(path, f"{place}@{name}", whole):
            found.attrs[name]
    if isinstance(found, h5py.Dataset):
        taken += _visit_dataset(found, path, whole)
    if not isinstance(found, h5py.Group):
        return []
    names: Iterable[Any] = found
    return [own for name in names for own in _member(found, name, place, path, whole, folders, linked)]


def _member(
    group: h5py.Group, name: Any, place: str, path: Path, whole: bool, folders: tuple[Path, ...], linked: list[Path]
) -> list[tuple[str, Any]]:
    """What has a name in a group by a link of its own; the file behind an external one goes to `linked`."""
    own = f"{place}/{name}"
    with _naming(path, own, whole):
        link = group.get(name, getlink=True)
        if isinstance(link, h5py.HardLink):
            return [(own, group[name])]
        if isinstance(link, h5py.ExternalLink):
            linked.append(located(link.filename, path, folders))
    return []


def _visit_dataset(dataset: h5py.Dataset, path: Path, whole: bool) -> list[Extents]:
    """Where its data lie, where it must be whole; texts are read, as that is how their heaps are met."""
    if dataset.is_virtual:
        walk_sources(dataset, path)
        return []
    extents = [check_stored(dataset, path)] if whole or dataset.dtype.hasobject else []
    if dataset.dtype.hasobject:
        dataset[()]
    return extents if whole else []


@contextmanager
def _naming(path: Path, place: str, whole: bool) -> Iterator[None]:
    """Errors of our own name the file and the place; others are passed over where the file need not be whole.

    What is damaged there is then found by whoever reads it.
    """
    try:
        yield
    except StorageError as error:
        if str(error).startswith(str(path)):
            raise
        raise StorageError(f"{path}: {place.lstrip('/') or 'the file'} cannot be read: {error}") from error
    except UNREADABLE as error:
        if str(error).startswith(f"{path}: "):
            raise
        if whole:
            raise ValueError(
                f"{path}: {place.lstrip('/') or 'the file'} cannot be read ({reason_of(error)}); {DAMAGED}"
            ) from error
