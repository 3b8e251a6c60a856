"""Which of our kinds a file is, as it says itself, and which version wrote it when."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import h5py

from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.fits_opening import first_header
from rubix_like.runtime.files.hdf5_files import opened_hdf5
from rubix_like.runtime.files.outputs import FOLDER_HEAD, is_store
from rubix_like.version import __version__

ORIGIN: str = "rubix_like"
"""PRIMARY's ORIGIN card, by which our FITS files are known."""

CREATOR: str = f"{ORIGIN} {__version__}"
"""Program and version, as files state them."""

CUBE: str = "rubix_like cube"
FIT: str = "rubix_like fit"
SAMPLES: str = "rubix_like samples"
SIMULATIONS: str = "rubix_like simulations"
LIBRARY: str = "rubix_like ssp"
NEBULAR: str = "rubix_like nebular"
"""The attribute `format` of HDF5 files; a cube in FITS is of the same kind."""

FOREIGN: str = "rubix_like cube for other programs"
MAPS: str = "rubix_like maps"
"""Kinds that are in FITS only: cubes in other layouts, and maps."""

LAYOUT_CARD: str = "LAYOUT"
MAPS_CARD: str = "NFILTER"
"""Cards by which those are known: the name of the layout, and the number of filters."""


class Written(NamedTuple):
    """What a file of ours says of itself: its kind, program and version, date (None where it does not say)."""

    kind: str
    creator: Any = None
    date: Any = None


def written_by_us(path: Path) -> Written | None:
    """What a file of ours says of itself, whole or not; None for any other file, and where there is none."""
    if is_store(path):
        return _written_store(path)
    if not path.is_file():
        return None
    if not h5py.is_hdf5(path):
        header = first_header(path)
        kind = MAPS if MAPS_CARD in header else FOREIGN if LAYOUT_CARD in header else CUBE
        return Written(kind, header.get("CREATOR"), header.get("DATE")) if header.get("ORIGIN") == ORIGIN else None
    try:
        with opened_hdf5(path, whole=False) as file:
            stated = Written(str(file.attrs.get("format")), file.attrs.get("creator"), file.attrs.get("date"))
    except UNREADABLE:
        return None
    return stated if stated.kind in (CUBE, FIT, SAMPLES, SIMULATIONS, LIBRARY, NEBULAR) else None


def _written_store(path: Path) -> Written | None:
    """What a Zarr store of ours says of itself."""
    try:
        attributes = json.loads((path / FOLDER_HEAD).read_bytes())["attributes"]
        stated = Written(str(attributes["format"]), attributes["creator"], attributes["date"])
    except UNREADABLE:
        return None
    return stated if stated.kind == CUBE else None
