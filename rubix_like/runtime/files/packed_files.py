"""How much a packed file (gzip, bzip2, xz, zip) becomes when it is unpacked, found out before anyone holds it."""

import bz2
import gzip
import lzma
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.words import reason_of

ALWAYS_UNPACKED: int = 1 << 26
"""Bytes that are unpacked whatever they were packed into."""

LARGEST_RATIO: int = 100
"""Bytes that one packed byte may become beyond that; spectra with noise reach 2, images with empty borders 20."""

_PIECE = 1 << 20
_OPENERS: tuple[tuple[bytes, Callable[[Path], Any]], ...] = (
    (b"PK\x03\x04", zipfile.ZipFile),
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\x00", lzma.open),
)


def check_packed(path: Path) -> None:
    """Raise ValueError where a packed file becomes too much, or cannot be unpacked; other files pass."""
    opener = _opener(path)
    if opener is None:
        return
    if opener is zipfile.ZipFile:
        _check_archive(path)
        return
    most = _most(path.stat().st_size)
    try:
        with opener(path) as stream:
            count = 0
            while count <= most and (piece := stream.read(_PIECE)):
                count += len(piece)
    except UNREADABLE as error:
        raise ValueError(
            f"{path}: expected a file that can be unpacked, got a damaged one ({reason_of(error)})"
        ) from error
    if count > most:
        raise _too_much(path, path.name, f"more than {most}")


@contextmanager
def unpacked(path: Path) -> Iterator[BufferedIOBase]:
    """The bytes of a file, unpacked by gzip, bzip2 or xz where it is so packed, or the first one of a zip archive."""
    check_packed(path)
    opener = _opener(path)
    with ExitStack() as stack:
        if opener is zipfile.ZipFile:
            archive = stack.enter_context(zipfile.ZipFile(path))
            member: Any = archive.open(archive.namelist()[0])
            yield stack.enter_context(member)
        else:
            yield stack.enter_context((opener or _plain)(path))


def _plain(path: Path) -> BufferedIOBase:
    return path.open("rb")


def _opener(path: Path) -> Callable[[Path], Any] | None:
    with path.open("rb") as file:
        head = file.read(6)
    return next((opener for begin, opener in _OPENERS if head.startswith(begin)), None)


def _check_archive(path: Path) -> None:
    """The members of a zip archive are never read beyond the sizes that it states."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except UNREADABLE as error:
        raise ValueError(f"{path}: expected a zip archive, got a damaged one ({reason_of(error)})") from error
    stated = sum(member.file_size for member in members)
    if stated > _most(path.stat().st_size):
        raise _too_much(path, "its members", f"{stated}")


def _most(packed: int) -> int:
    return max(ALWAYS_UNPACKED, packed * LARGEST_RATIO)


def _too_much(path: Path, what: str, came: str) -> ValueError:
    return ValueError(
        f"{path}: {what} would become {came} bytes, expected at most {LARGEST_RATIO} for each of the "
        f"{path.stat().st_size} packed ones; if you trust the file, unpack it yourself and give the unpacked one"
    )
