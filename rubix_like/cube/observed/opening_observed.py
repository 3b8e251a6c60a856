"""Open FITS files of other programs as a whole; a broken file is refused with a message."""

import math
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits
from astropy.utils.exceptions import AstropyUserWarning, AstropyWarning
from numpy import ndarray

from rubix_like.cube.files.fits_checksum import broken_sums
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.fits_opening import IMAGES, opened_fits
from rubix_like.runtime.files.writers import ORIGIN
from rubix_like.runtime.words import reason_of


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The HDUs of a FITS file (also compressed by gzip), all of their headers read; other warnings are let be.

    Raises ValueError for a file that is not FITS, or shorter than its headers say, and for what goes wrong inside.
    """
    with warnings.catch_warnings(), ExitStack() as stack:
        warnings.simplefilter("ignore", AstropyWarning)
        warnings.filterwarnings("error", message=r"(.|\n)*(truncated|corrupted)", category=AstropyUserWarning)
        try:
            hdus = stack.enter_context(opened_fits(path))
            _names(hdus)
        except UNREADABLE as error:
            raise ValueError(
                f"{path}: expected a whole FITS file with a cube, got one that cannot be read ({reason_of(error)})"
            ) from error
        try:
            yield hdus
        except ValueError:
            raise
        except UNREADABLE as error:
            raise ValueError(
                f"{path}: expected a cube that can be read, got a damaged header ({reason_of(error)})"
            ) from error


def _names(hdus: Any) -> tuple[str, ...]:
    """The names of all HDUs, which makes astropy read all headers."""
    return tuple(hdu.name for hdu in hdus)


def notes_on_sums(path: Path, hdus: Any) -> tuple[str, ...]:
    """Sentences on HDUs that were changed or damaged since their checksums were made; ValueError for a file of ours."""
    try:
        broken = broken_sums(hdus)
    except UNREADABLE as error:
        raise ValueError(
            f"{path}: expected a whole FITS file, got one that cannot be read ({reason_of(error)})"
        ) from error
    if broken and text_card(hdus[0].header, "ORIGIN") == ORIGIN:
        raise ValueError(f"{path}: {'; '.join(broken)}; make it again")
    return broken


def is_image(hdu: Any) -> bool:
    """Whether an HDU can hold a cube: an image, also a compressed one, with data."""
    return isinstance(hdu, IMAGES) and count_axes(hdu) > 0


def count_axes(hdu: Any) -> int:
    """The number of axes (NAXIS) of an HDU."""
    return int(hdu.header["NAXIS"])


def text_card(header: Any, card: str) -> str:
    """A card as text without blanks at its ends; empty where there is none, or none that can be read."""
    try:
        value = header.get(card, "")
    except fits.VerifyError:
        return ""
    return value.strip() if isinstance(value, str) else ""


def number_card(header: Any, card: str, default: float, place: str) -> float:
    """A card as a finite number, `default` where there is none; raises ValueError for anything else."""
    try:
        number = float(header.get(card, default))
    except (TypeError, ValueError, fits.VerifyError) as error:
        raise ValueError(f"{place}: expected card {card} to be a number, got {error}") from error
    if not math.isfinite(number):
        raise ValueError(f"{place}: expected card {card} to be a finite number, got {number}")
    return number


def label(path: Path, hdu: Any) -> str:
    """The words for an HDU in a message."""
    return f"{path}, HDU {hdu.name or 'without a name'}"


def image_values(path: Path, hdu: Any) -> ndarray:
    """The numbers of an image; raises ValueError where they cannot be read."""
    try:
        data = np.asarray(hdu.data)
        del hdu.data  # astropy would keep it
    except UNREADABLE as error:
        raise ValueError(
            f"{label(path, hdu)}: expected an image, got one that cannot be read ({reason_of(error)})"
        ) from error
    if data.dtype.kind not in "biuf":
        raise ValueError(f"{label(path, hdu)}: expected an image of numbers, got type {data.dtype}")
    return data
