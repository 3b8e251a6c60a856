"""The one way in which FITS files are opened for reading, packed or not, whoever wrote them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from astropy.io import fits

from rubix_like.damaged_files import DAMAGED
from rubix_like.packed_files import unpacked

BLOCK: int = 2880
"""Bytes of a block; headers and data fill whole ones."""

MOST_BLOCKS: int = 300
"""Of a header: 10,800 cards."""

_SIZE = re.compile(rb"(BITPIX|NAXIS\d*|PCOUNT|GCOUNT) *= *([-+]?\d+)")


@contextmanager
def opened_fits(path: Path) -> Iterator[Any]:
    """The HDUs of a FITS file, none of it mapped into memory.

    Raises ValueError for a packed one that would become too much, for headers without an end or with sizes below 0, and
    what astropy raises (`UNREADABLE`).
    """
    check_fits(path)
    with path.open("rb") as file, fits.open(file, memmap=False) as hdus:
        yield hdus


def check_fits(path: Path) -> None:
    """Raise ValueError where astropy would not come to the end of a file: by its packing, or by its headers' sizes."""
    with unpacked(path) as stream:
        place = 0
        while (sizes := _sizes(path, stream, place)) is not None:
            header_bytes, cards = sizes
            wrong = [name for name in cards if cards[name] < 0 and name != "BITPIX"]
            if wrong:
                came = f"got {cards[wrong[0]]}; {DAMAGED}"
                raise ValueError(f"{path}: header at byte {place}: {wrong[0]}: expected a size >= 0, {came}")
            place += header_bytes + _data_bytes(cards)


def _sizes(path: Path, stream: BinaryIO, place: int) -> tuple[int, dict[str, int]] | None:
    """Bytes of the header that begins at `place`, and its cards that tell sizes; None behind the last."""
    stream.seek(place)
    cards: dict[str, int] = {}
    for number in range(MOST_BLOCKS):
        block = stream.read(BLOCK)
        if len(block) < BLOCK:
            return None
        for card in (block[start : start + 80] for start in range(0, BLOCK, 80)):
            match = _SIZE.match(card)
            if match:
                cards.setdefault(match[1].decode(), int(match[2]))
            elif card.rstrip() == b"END":
                return (number + 1) * BLOCK, cards
    raise ValueError(f"{path}: header at byte {place}: expected END within {MOST_BLOCKS} blocks, got none; {DAMAGED}")


def _data_bytes(cards: dict[str, int]) -> int:
    """Bytes of the data behind a header, filled up: |BITPIX| / 8 x GCOUNT x (PCOUNT + NAXIS1 x NAXIS2 ...)."""
    axes = [cards.get(f"NAXIS{axis}", 0) for axis in range(1, min(cards.get("NAXIS", 0), 999) + 1)]
    values = prod(axes[1:] if axes[:1] == [0] else axes) if axes else 0
    count = abs(cards.get("BITPIX", 8)) // 8 * cards.get("GCOUNT", 1) * (cards.get("PCOUNT", 0) + values)
    return -(-count // BLOCK) * BLOCK
