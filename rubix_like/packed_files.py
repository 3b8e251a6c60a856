"""How much a packed file (gzip, bzip2, xz, zip) becomes when it is unpacked, found out before anyone holds it."""

import bz2
import gzip
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rubix_like.damaged_files import UNREADABLE, reason_of

ALWAYS_UNPACKED: int = 1 << 26
"""Bytes that are unpacked whatever they were packed into."""

LARGEST_RATIO: int = 100
"""Bytes that one packed byte may become beyond that; spectra with noise reach 2, images with empty borders 20."""

_PIECE = 1 << 20
_OPENERS: tuple[tuple[bytes, Callable[[Any], Any]], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\x00", lzma.open),
)


def check_packed(path: Path) -> None:
    """Raise ValueError where a packed file becomes too much, or cannot be unpacked; other files pass."""
    with path.open("rb") as file:
        head = file.read(6)
    if head.startswith(b"PK\x03\x04"):
        _check_archive(path)
        return
    opener = next((opener for begin, opener in _OPENERS if head.startswith(begin)), None)
    if opener is None:
        return
    most = _most(path.stat().st_size)
    try:
        with path.open("rb") as file, opener(file) as stream:
            count = 0
            while count <= most and (piece := stream.read(_PIECE)):
                count += len(piece)
    except UNREADABLE as error:
        raise ValueError(
            f"{path}: expected a file that can be unpacked, got a damaged one ({reason_of(error)})"
        ) from error
    if count > most:
        raise _too_much(path, path.name, f"more than {most}")


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
