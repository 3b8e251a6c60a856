"""Checksums of FITS files: DATASUM and CHECKSUM of every HDU, from pieces in any order (FITS standard 4.0, appendix J).

Both are sums of 32-bit big-endian words in ones' complement, so that the sums of a file's pieces add up, whoever
writes them. CHECKSUM makes the sum of a whole HDU, header and data, that of nothing but ones.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from astropy.io import fits

_ONES = 0xFFFFFFFF
_CARD_BYTES = 80
_READ_BYTES = 1 << 24
_COMMENT = "FITS standard 4.0, appendix J"
_EMPTY = {"CHECKSUM": "0" * 16, "DATASUM": "0"}
_PUNCTUATION = (*range(0x3A, 0x41), *range(0x5B, 0x61))


def sum_of_words(content: Any, offset: int = 0) -> int:
    """The sum of the bytes of a buffer, which is filled up with zeros to whole words; `offset`: bytes of the data
    before it."""
    values = np.frombuffer(content, np.uint8)
    before = offset % 4
    after = -(before + len(values)) % 4
    values = np.pad(values, (before, after)) if before or after else values
    return added([values.view(">u4").sum(dtype=np.uint64).item()])


def added(sums: Iterable[int]) -> int:
    """Sums of words, or of pieces, added in ones' complement."""
    total = sum(sums)
    while total > _ONES:
        total = (total & _ONES) + (total >> 32)
    return total


def reserve_sums(header: fits.Header) -> None:
    """Put both cards into a header, without their values; they never need more room."""
    for keyword, value in _EMPTY.items():
        header[keyword] = (value, _COMMENT)


def with_sums(header: bytes, data_sum: int) -> bytes:
    """A header in which both cards were reserved, as it stands in a file, with the sums of it and of its data."""
    known = header.replace(_card("DATASUM", _EMPTY["DATASUM"]), _card("DATASUM", str(data_sum)))
    total = added([sum_of_words(known), data_sum])
    return known.replace(_card("CHECKSUM", _EMPTY["CHECKSUM"]), _card("CHECKSUM", encoded_sum(_ONES - total)))


def encoded_sum(value: int) -> str:
    """A sum as 16 letters and digits whose own sum it is, where they stand in a card."""
    letters = [0] * 16
    for number, byte in enumerate(value.to_bytes(4, "big")):
        four = [byte // 4 + ord("0")] * 4
        four[0] += byte % 4
        letters[number::4] = (*_without_punctuation(*four[:2]), *_without_punctuation(*four[2:]))
    return bytes([letters[-1], *letters[:-1]]).decode("ascii")


def _without_punctuation(one: int, other: int) -> tuple[int, int]:
    """Two characters of the same sum that are letters or digits."""
    while one in _PUNCTUATION or other in _PUNCTUATION:
        one, other = one + 1, other - 1
    return one, other


def broken_sums(hdus: Any) -> tuple[str, ...]:
    """What the checksums of an opened file say of its HDUs, a sentence for each that was changed or damaged.

    An HDU without a card says nothing of itself.
    """
    found = ((number, _what_is_broken(hdu)) for number, hdu in enumerate(hdus))
    return tuple(f"HDU {number} ({hdus[number].name or 'without a name'}): {what}" for number, what in found if what)


def _what_is_broken(hdu: Any) -> str:
    place = hdu.fileinfo()
    if place is None:
        return ""
    stream = place["file"]
    stream.seek(place["hdrLoc"])
    header = stream.read(place["datLoc"] - place["hdrLoc"])
    checksum, stated = (_stated(header, keyword) for keyword in ("CHECKSUM", "DATASUM"))
    if not (checksum or stated):
        return ""
    data_sum = _sum_of_stream(stream, place["datSpan"])
    if stated.isdecimal() and int(stated) % _ONES != data_sum % _ONES:
        return f"its data were changed or damaged since they were written (DATASUM {stated}, now {data_sum})"
    if checksum and added([sum_of_words(header), data_sum]) % _ONES:
        what = "its header was" if stated.isdecimal() else "it was"
        return f"{what} changed or damaged since it was written (CHECKSUM)"
    return ""


def _sum_of_stream(stream: Any, n_bytes: int) -> int:
    """The sum of the next bytes of a stream, read piece by piece; what is missing at its end counts as zeros."""
    total = 0
    while n_bytes > 0 and (content := stream.read(min(n_bytes, _READ_BYTES))):
        total, n_bytes = added([total, sum_of_words(content)]), n_bytes - len(content)
    return total


def _stated(header: bytes, keyword: str) -> str:
    """The value of a card of text in a header as it stands in a file; empty where there is none."""
    start = keyword.ljust(8).encode() + b"= '"
    for place in range(0, len(header), _CARD_BYTES):
        if header.startswith(start, place):
            return header[place + len(start) : place + _CARD_BYTES].split(b"'")[0].decode("ascii", "replace").strip()
    return ""


def _card(keyword: str, value: str) -> bytes:
    return fits.Card(keyword, value, _COMMENT).image.encode("ascii")
