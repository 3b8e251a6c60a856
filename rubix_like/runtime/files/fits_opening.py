"""The one way in which FITS files are opened for reading, packed or not, whoever wrote them."""

import bz2
import gzip
import lzma
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedIOBase
from itertools import takewhile
from math import prod
from pathlib import Path
from typing import Any

from astropy.io import fits
from astropy.io.fits.hdu.base import NonstandardExtHDU
from astropy.utils.exceptions import AstropyWarning

from rubix_like.runtime.files.damaged_files import DAMAGED, UNREADABLE
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
    most = max(ALWAYS_UNPACKED, path.stat().st_size * LARGEST_RATIO)
    count = 0
    try:
        with opener(path) as stream:
            if opener is zipfile.ZipFile:  # its members are never read beyond the sizes that it states
                count = sum(member.file_size for member in stream.infolist())
            while opener is not zipfile.ZipFile and count <= most and (piece := stream.read(_PIECE)):
                count += len(piece)
    except UNREADABLE as error:
        raise ValueError(
            f"{path}: expected a file that can be unpacked, got a damaged one ({reason_of(error)})"
        ) from error
    if count > most:
        raise ValueError(
            f"{path}: it would become more than {most} bytes, expected at most {LARGEST_RATIO} for each of the "
            f"{path.stat().st_size} packed ones; if you trust the file, unpack it yourself and give the unpacked one"
        )


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
            yield stack.enter_context(path.open("rb") if opener is None else opener(path))


def _opener(path: Path) -> Callable[[Path], Any] | None:
    with path.open("rb") as file:
        head = file.read(6)
    return next((opener for begin, opener in _OPENERS if head.startswith(begin)), None)


FITS_BLOCK: int = 2880
"""Bytes of a block; headers and data fill whole ones (FITS standard 4.0, section 3.1)."""

CARDS: int = 36
"""Cards of 80 bytes in a block."""

MOST_BLOCKS: int = 300
"""Largest number of blocks of a header: 10,800 cards."""

MOST_AXES: int = 999

LARGEST_SIZE: int = 1 << 48

_SIZE = re.compile(rb"(BITPIX|NAXIS\d*|PCOUNT|GCOUNT) *= *([-+]?\d+)")

_NO_TEXT = re.compile(rb"(TTYPE|TFORM|TUNIT|TDISP|TDIM)\d+ *= *[^ '/]")
"""A card of a table whose value must be text, and is none: astropy raises AssertionError."""

IMAGES = (fits.PrimaryHDU, fits.ImageHDU, fits.CompImageHDU)

_KINDS = (*IMAGES, fits.BinTableHDU, fits.TableHDU, fits.GroupsHDU, NonstandardExtHDU)
"""Of another kind are HDUs whose header astropy does not understand, and which have no data."""


@contextmanager
def opened_fits(path: Path, *, quiet: bool = False) -> Iterator[Any]:
    """The HDUs of a FITS file, none of it mapped into memory; `quiet`: what astropy warns of is not shown.

    Raises ValueError for a packed one that would become too much, for headers without an end or with sizes below 0, and
    what astropy raises (`UNREADABLE`).
    """
    check_fits(path)
    with warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("ignore", AstropyWarning)
        with path.open("rb") as file, fits.open(file, memmap=False) as hdus:
            if not all(isinstance(hdu, _KINDS) for hdu in hdus):
                raise ValueError(f"{path}: expected images and tables, got an HDU that is neither; {DAMAGED}")
            yield hdus


def first_header(path: Path) -> dict[str, Any]:
    """The cards of a FITS file's first header, to know its writer by; none where there is no such header, whole."""
    try:
        with unpacked(path) as stream:
            cards = list(takewhile(lambda card: card.rstrip() != b"END", _cards(stream, 0)))
        if not cards or not cards[0].startswith(b"SIMPLE") or len(cards) == MOST_BLOCKS * CARDS:
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AstropyWarning)
            return dict(fits.Header.fromstring(b"".join(cards)))
    except UNREADABLE:
        return {}


def check_fits(path: Path) -> None:
    """Raise ValueError where astropy would not come to the end of a file: by its packing, or by its headers' sizes;
    and for cards of tables that must be text."""
    with unpacked(path) as stream:
        place = 0
        while (sizes := _sizes(path, stream, place)) is not None:
            header_bytes, cards = sizes
            _check_sizes(f"{path}: header at byte {place}", cards)
            # |BITPIX| / 8 x GCOUNT x (PCOUNT + NAXIS1 x NAXIS2 ...) bytes, filled up
            axes = [cards.get(f"NAXIS{axis}", 0) for axis in range(1, cards.get("NAXIS", 0) + 1)]
            values = prod(axes[1:] if axes[:1] == [0] else axes) if axes else 0
            count = abs(cards.get("BITPIX", 8)) // 8 * cards.get("GCOUNT", 1) * (cards.get("PCOUNT", 0) + values)
            place += header_bytes + (-(-count // FITS_BLOCK) * FITS_BLOCK)


def _check_sizes(place: str, cards: dict[str, int]) -> None:
    for name in (name for name in cards if name != "BITPIX"):
        most = MOST_AXES if name == "NAXIS" else LARGEST_SIZE
        if not 0 <= cards[name] <= most:
            raise ValueError(f"{place}: {name}: expected a size of 0 to {most}, got {cards[name]}; {DAMAGED}")


def _sizes(path: Path, stream: BufferedIOBase, place: int) -> tuple[int, dict[str, int]] | None:
    """Bytes of the header that begins at `place`, and its cards that tell sizes; None behind the last."""
    found: dict[str, int] = {}
    number = -1
    for number, card in enumerate(_cards(stream, place)):
        match = _SIZE.match(card)
        if match:
            found.setdefault(match[1].decode(), int(match[2]))
        if _NO_TEXT.match(card):
            raise ValueError(
                f"{path}: expected text in the card '{card.decode('ascii', 'replace').strip()}'; {DAMAGED}"
            )
        if card.rstrip() == b"END":
            return (number // CARDS + 1) * FITS_BLOCK, found
    if number + 1 < MOST_BLOCKS * CARDS:
        return None
    raise ValueError(f"{path}: header at byte {place}: expected END within {MOST_BLOCKS} blocks, got none; {DAMAGED}")


def _cards(stream: BufferedIOBase, place: int) -> Iterator[bytes]:
    """The cards from `place` on, of whole blocks, as many as a header can have."""
    stream.seek(place)
    for _ in range(MOST_BLOCKS):
        block = stream.read(FITS_BLOCK)
        if len(block) < FITS_BLOCK:
            return
        yield from (block[start : start + FITS_BLOCK // CARDS] for start in range(0, FITS_BLOCK, FITS_BLOCK // CARDS))


def holds_cube(path: Path) -> bool:
    """Whether a file is FITS with an image of three axes or more."""
    try:
        with opened_fits(path, quiet=True) as hdus:
            return any(isinstance(hdu, IMAGES) and int(str(hdu.header["NAXIS"])) > 2 for hdu in hdus)
    except UNREADABLE:
        return False
