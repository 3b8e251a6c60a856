"""The one way in which FITS files are opened for reading, packed or not, whoever wrote them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from astropy.io import fits

from rubix_like.packed_files import check_packed


@contextmanager
def opened_fits(path: Path) -> Iterator[Any]:
    """The HDUs of a FITS file, none of it mapped into memory.

    Raises ValueError for a packed one that would become too much, and what astropy raises (`UNREADABLE`).
    """
    check_packed(path)
    with path.open("rb") as file, fits.open(file, memmap=False) as hdus:
        yield hdus
