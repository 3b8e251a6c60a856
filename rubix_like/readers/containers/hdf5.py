"""Snapshots in HDF5: every fault of the file becomes one message with place, expectation and remedy."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5o  # pyright: ignore[reportAttributeAccessIssue]
from numpy import ndarray

from rubix_like.readers.containers.container import AbstractContainer
from rubix_like.runtime.files.damaged_files import DAMAGED, UNREADABLE
from rubix_like.runtime.files.hdf5_files import (
    Extents,
    StorageError,
    check_stored,
    check_type,
    check_written,
    opened_hdf5,
    share_bytes,
    text_of,
)
from rubix_like.runtime.words import reason_of

_ABSENT_LINK = "which is not there; keep the files of a snapshot together, or download it again"


@dataclass(frozen=True)
class HDF5Container(AbstractContainer):
    """An open HDF5 file. A dataset of a compound type is a group whose datasets are the type's fields."""

    name: str
    file: h5py.File
    whole: dict[str, Extents]
    """Where the bytes of the datasets lie that have been found whole; each is checked before its first read."""
    nests: bool = True

    def groups(self) -> tuple[str, ...]:
        """Everything at the top of the file."""
        return self._guarded("", lambda: tuple(text_of(name) for name in self.file))

    def datasets(self, group: str) -> tuple[str, ...]:
        """Datasets in `group`, those of its subgroups as `Subgroup/Dataset`; also those that cannot be opened."""
        found = self._find(group)
        if isinstance(found, h5py.Dataset):
            return self._guarded(group, lambda: tuple(found.dtype.names or ()))
        if not isinstance(found, h5py.Group):
            return ()
        return self._guarded(group, lambda: tuple(_dataset_names(found)))

    def attributes(self, place: str) -> tuple[str, ...]:
        """Names of the attributes at `place`."""
        found = self._find(place)
        return () if found is None else self._guarded(place, lambda: tuple(text_of(name) for name in found.attrs))

    def attribute(self, place: str, name: str) -> Any:
        """The attribute as h5py gives it, None without one; a dataset of one value counts as one of its group."""
        found = self._find(place)
        if found is None:
            return None
        return self._guarded(f"{place}@{name}", lambda: _attribute(found, name, Path(self.name)))

    def shape(self, group: str, dataset: str) -> tuple[int, ...]:
        """Shape of the dataset, rows first; the columns of a field of a compound type count, too."""
        found = self._dataset(group, dataset)

        def shape() -> tuple[int, ...]:
            inner = found.dtype[dataset].shape if dataset in (found.dtype.names or ()) else ()
            return (*(found.shape or ()), *inner)

        return self._guarded(f"{group}/{dataset}", shape)

    def read(self, group: str, dataset: str, start: int, stop: int) -> ndarray:
        """The rows as stored."""
        array = self._dataset(group, dataset)
        place = f"{group}/{dataset}"
        if array.name not in self.whole:
            self._check_whole(array, place)
        names = self._guarded(place, lambda: array.dtype.names or ())
        selection = (slice(start, stop), dataset) if dataset in names else slice(start, stop)
        values = self._guarded(place, lambda: np.asarray(array[selection]))
        self._guarded(place, lambda: check_written(array, values, start, dataset))
        return values

    def _dataset(self, group: str, dataset: str) -> h5py.Dataset:
        found = self._find(group)
        found = found if isinstance(found, h5py.Dataset) else self._find(f"{group}/{dataset}")
        if found is None:
            if dataset in self.datasets(group):
                raise ValueError(f"{self.name}: {group}/{dataset} is listed, but not found; {DAMAGED}")
            raise self.missing(group, dataset)
        if not isinstance(found, h5py.Dataset):
            raise ValueError(
                f"{self.name}: {group}/{dataset}: expected a dataset, got a {type(found).__name__.lower()}"
            )
        return found

    def _check_whole(self, array: h5py.Dataset, place: str) -> None:
        """Raise ValueError where the data are not all there, or share bytes with those of another dataset."""
        extents = self._guarded(place, lambda: check_stored(array, Path(self.name)))
        other = next((name for name, taken in self.whole.items() if share_bytes([extents, taken])), None)
        if other is not None or share_bytes([extents]):
            raise ValueError(
                f"{self.name}: {place} claims the same bytes of the file as {other or 'another part of it'}; {DAMAGED}"
            )
        self.whole[array.name or place] = extents

    def _find(self, place: str) -> Any:
        found = self.file
        for part in filter(None, place.split("/")):
            if not isinstance(found, h5py.Group):
                return None
            found = self._guarded(place, lambda group=found, name=part: _member(group, name))
        return found

    def _guarded(self, place: str, act: Any) -> Any:
        try:
            return act()
        except StorageError as error:
            raise ValueError(f"{self.name}: {place} cannot be read: {error}") from error
        except UNREADABLE as error:
            if not self.file:
                raise ValueError(f"{self.name} is closed: read it inside the `with` that opened it") from error
            where = place or "the file"
            raise ValueError(f"{self.name}: {where} cannot be read ({reason_of(error)}); {DAMAGED}") from error


def _member(group: h5py.Group, name: str) -> Any:
    """The object `name` in a group, None where there is none; raises StorageError for a link that leads nowhere."""
    if not group.id.links.exists(name.encode()):
        return None
    try:
        return group[name]
    except (KeyError, OSError):
        link = group.get(name, getlink=True)
        if isinstance(link, h5py.ExternalLink):
            raise StorageError(f"it is a link to {link.path} in '{link.filename}', {_ABSENT_LINK}") from None
        if isinstance(link, h5py.SoftLink):
            raise StorageError(f"it is a link to {link.path}, {_ABSENT_LINK}") from None
        raise


def _attribute(found: Any, name: str, path: Path) -> Any:
    if name not in found.attrs:
        dataset = _member(found, name) if isinstance(found, h5py.Group) else None
        if not isinstance(dataset, h5py.Dataset) or dataset.shape not in {(), (1,)}:
            return None
        check_stored(dataset, path)
        return dataset[()]
    check_type(found.attrs.get_id(name).get_type())
    return found.attrs[name]


def _dataset_names(group: Any) -> Iterator[str]:
    for name in group:
        kind = _kind(group, name)
        if kind == h5o.TYPE_GROUP:
            inner: Any = group[name]
            yield from (f"{name}/{text_of(item)}" for item in inner if _kind(inner, item) != h5o.TYPE_GROUP)
        else:
            yield text_of(name)


def _kind(group: Any, name: Any) -> int:
    """HDF5's number for the kind of an object of a group; one that cannot be opened counts as a dataset."""
    try:
        return h5o.get_info(group.id, name.encode() if isinstance(name, str) else name).type
    except UNREADABLE:
        return h5o.TYPE_DATASET


@contextmanager
def open_hdf5(path: Path) -> Iterator[HDF5Container]:
    """Open `path` for reading; OSError where HDF5 cannot open it, ValueError for links that lead round or elsewhere."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(opened_hdf5(path, whole=False))
        except StorageError:
            raise
        except UNREADABLE as error:
            raise OSError(
                f"galaxy.path: '{path}' cannot be read ({reason_of(error)}); is the download complete?"
            ) from error
        yield HDF5Container(str(path), file, {})
