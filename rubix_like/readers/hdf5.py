"""Snapshots in HDF5: every fault of the file becomes one message with place, expectation and remedy."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy import ndarray

from rubix_like.readers.container import AbstractContainer

_BROKEN = (OSError, KeyError, RuntimeError, ValueError, TypeError, UnicodeDecodeError)
"""What h5py raises on damaged structure."""


@dataclass(frozen=True)
class HDF5Container(AbstractContainer):
    """An open HDF5 file. A dataset of a compound type is a group whose datasets are the type's fields."""

    name: str
    file: h5py.File

    def groups(self) -> tuple[str, ...]:
        """Everything at the top of the file."""
        return self._guarded("", lambda: tuple(self.file))

    def datasets(self, group: str) -> tuple[str, ...]:
        """Datasets in `group`, those of its subgroups as `Subgroup/Dataset`."""
        found = self._find(group)
        if isinstance(found, h5py.Dataset):
            return tuple(found.dtype.names or ())
        if not isinstance(found, h5py.Group):
            return ()
        return self._guarded(group, lambda: tuple(_dataset_names(found)))

    def attributes(self, place: str) -> tuple[str, ...]:
        """Names of the attributes at `place`."""
        found = self._find(place)
        return () if found is None else self._guarded(place, lambda: tuple(found.attrs))

    def attribute(self, place: str, name: str) -> Any:
        """The attribute as h5py gives it, None without one."""
        found = self._find(place)
        if found is None:
            return None
        return self._guarded(f"{place}@{name}", lambda: found.attrs.get(name))

    def shape(self, group: str, dataset: str) -> tuple[int, ...]:
        """Shape of the dataset, rows first."""
        return self._guarded(f"{group}/{dataset}", lambda: tuple(self._dataset(group, dataset).shape))

    def read(self, group: str, dataset: str, start: int, stop: int) -> ndarray:
        """The rows as stored."""
        array = self._dataset(group, dataset)
        if array.dtype.names is None:
            return self._guarded(f"{group}/{dataset}", lambda: np.asarray(array[start:stop]))
        return self._guarded(f"{group}/{dataset}", lambda: np.asarray(array[start:stop, dataset]))

    def _dataset(self, group: str, dataset: str) -> h5py.Dataset:
        found = self._find(group)
        found = found if isinstance(found, h5py.Dataset) else self._find(f"{group}/{dataset}")
        if not isinstance(found, h5py.Dataset):
            raise ValueError(f"{self.name}: {group}/{dataset} is missing; {self.contents(group)}")
        return found

    def _find(self, place: str) -> Any:
        return self._guarded(place, lambda: self.file.get(place) if place else self.file)

    def _guarded(self, place: str, act: Any) -> Any:
        try:
            return act()
        except _BROKEN as error:
            raise ValueError(
                f"{self.name}: {place or 'the file'} cannot be read ({error}); the file is damaged or incomplete: "
                f"copy or download it again"
            ) from error


def _dataset_names(group: h5py.Group) -> Iterator[str]:
    for name, item in group.items():
        if isinstance(item, h5py.Dataset):
            yield name
        elif isinstance(item, h5py.Group):
            yield from (f"{name}/{inner}" for inner, dataset in item.items() if isinstance(dataset, h5py.Dataset))


@contextmanager
def open_hdf5(path: Path) -> Iterator[HDF5Container]:
    """Open `path` for reading; raises OSError where HDF5 cannot open it."""
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise OSError(f"galaxy.path: '{path}' cannot be read ({error}); is the download complete?") from error
    with file:
        yield HDF5Container(str(path), file)
