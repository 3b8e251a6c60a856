"""FITS files of others, opened whole: what is broken is refused with a sentence."""

import gzip
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits
from astropy.utils.exceptions import AstropyUserWarning, AstropyWarning
from numpy import ndarray

from rubix_like.apertures import IMAGES

BROKEN = (OSError, EOFError, TypeError, ValueError, KeyError, IndexError, zlib.error, AstropyUserWarning)
"""What astropy raises for a file that is damaged."""

_MAGIC: tuple[bytes, ...] = (b"SIMPLE  =",)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The HDUs of a FITS file (also compressed by gzip), all of their headers read; other warnings are let be.

    Raises ValueError for a file that is not FITS, or shorter than its headers say.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AstropyWarning)
        warnings.filterwarnings("error", message=".*truncated", category=AstropyUserWarning)
        hdus = _open(path)
        with hdus:
            yield hdus


def _open(path: Path) -> Any:
    try:
        hdus = fits.open(path, memmap=False)
        len(hdus)
    except BROKEN as error:
        raise ValueError(
            f"{path}: expected a whole FITS file with a cube, got one that cannot be read ({error})"
        ) from error
    return hdus


def read_header(path: Path) -> dict[str, Any] | None:
    """The cards of the first HDU; None where the file is no FITS file."""
    with path.open("rb") as file:
        start = file.read(2)
    opener = gzip.open if start == b"\x1f\x8b" else open
    try:
        with opener(path, "rb") as file:
            if not file.read(9).startswith(_MAGIC):
                return None
    except (OSError, EOFError, zlib.error):
        return None
    with opened(path) as hdus:
        return dict(hdus[0].header)


def is_image(hdu: Any) -> bool:
    """Whether an HDU can hold a cube: an image, also a compressed one, with data."""
    return isinstance(hdu, IMAGES) and count_axes(hdu) > 0


def count_axes(hdu: Any) -> int:
    """NAXIS of an HDU."""
    return int(hdu.header["NAXIS"])


def label(path: Path, hdu: Any) -> str:
    """The words for an HDU in a message."""
    return f"{path}, HDU {hdu.name or 'without a name'}"


def values_of(path: Path, hdu: Any) -> ndarray:
    """The numbers of an image; raises ValueError where they cannot be read."""
    try:
        data = np.asarray(hdu.data)
    except BROKEN as error:
        raise ValueError(f"{label(path, hdu)}: expected an image, got one that cannot be read ({error})") from error
    if data.dtype.kind not in "biuf":
        raise ValueError(f"{label(path, hdu)}: expected an image of numbers, got type {data.dtype}")
    return data
