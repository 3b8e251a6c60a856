"""Where links and sources of virtual datasets of an HDF5 file lead: only to files beside it, never in a circle."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import h5py
from h5py import h5o  # pyright: ignore[reportAttributeAccessIssue]

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
    """The sources of a virtual dataset in the file at `path`; StorageError for one outside of `folders` (its own)."""
    folders = folders_of(path) if folders is None else folders
    for mapping in dataset.virtual_sources():
        words = f"{mapping.dset_name} in '{mapping.file_name}'"
        blocks = _BLOCK in mapping.file_name + mapping.dset_name
        for number in itertools.count() if blocks else (0,):
            file_name, name = (_of_block(text, number) for text in (mapping.file_name, mapping.dset_name))
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


def _of_block(name: str, number: int) -> str:
    return name.replace(_BLOCK, str(number)).replace("%%", "%")
