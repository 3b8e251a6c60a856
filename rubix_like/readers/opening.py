"""Opening what `galaxy.path` names: which kind of file it is, by its content."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py

from rubix_like.readers.container import AbstractContainer
from rubix_like.readers.hdf5 import open_hdf5


@contextmanager
def open_container(path: Path) -> Iterator[tuple[AbstractContainer, str]]:
    """The open file and its kind ("hdf5", ...); raises FileNotFoundError, IsADirectoryError or OSError."""
    path = path.expanduser()
    if not path.exists():
        raise FileNotFoundError(f"galaxy.path: no file '{path}'; set galaxy.path to a snapshot or cut-out")
    if path.is_dir():
        raise IsADirectoryError(f"galaxy.path: '{path}' is a directory; expected a file")
    with path.open("rb"):  # PermissionError, before HDF5 hides it
        pass
    if not h5py.is_hdf5(path):
        raise OSError(f"galaxy.path: '{path}' is not an HDF5 file; expected a snapshot or cut-out as downloaded")
    with open_hdf5(path) as container:
        yield container, "hdf5"
