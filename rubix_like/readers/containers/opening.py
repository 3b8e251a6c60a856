"""Open the file that `galaxy.path` names; its kind is found from its content."""

import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import h5py

from rubix_like.errors import ConfigError
from rubix_like.readers.containers.container import AbstractContainer
from rubix_like.readers.containers.gadget_binary import byte_order, open_gadget
from rubix_like.readers.containers.hdf5 import open_hdf5
from rubix_like.readers.containers.pynbody_snapshot import is_ramses, is_tipsy, open_pynbody
from rubix_like.readers.containers.table_files import (
    GZIP,
    open_fits_tables,
    open_npy_table,
    open_parquet,
)
from rubix_like.readers.containers.text_tables import open_ecsv, open_text_table, open_votable, text_layout
from rubix_like.runtime.files.writers import OPENED_BY, PARQUET_HEAD, written_by_us

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
        _refuse_gadget(path)
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


def _refuse_gadget(path: Path) -> None:
    """pynbody takes a unit of length of its own for Gadget's binary files, which state none."""
    if path.is_file() and byte_order(_head(path)) is not None:
        raise ConfigError(
            f"galaxy.reader: '{path}' is a binary snapshot of Gadget, which is read without pynbody; leave out "
            f"galaxy.reader"
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
    """A FITS file, maybe compressed by gzip."""
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
