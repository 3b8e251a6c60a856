"""Which planes the file of a cube holds, and how each is stored, without reading their numbers."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
from astropy.io import fits

from rubix_like.cube.files.zarr_cube import import_zarr
from rubix_like.runtime.files.fits_opening import opened_fits
from rubix_like.runtime.files.hdf5_files import opened_hdf5
from rubix_like.runtime.files.outputs import is_store

_MEANINGS: Mapping[str, str] = {
    "DATA": "flux",
    "STAT": "variance",
    "DQ": "mask",
    "VAR": "the variance again",
    "flux": "flux",
    "variance": "variance",
    "mask": "mask",
    "truth": "flux without noise",
}
"""Names of planes in FITS files, HDF5 files and Zarr stores -> what they are."""


class StoredPlane(NamedTuple):
    """Name of a plane (y, x, wave), the type of its numbers in the file, how they are compressed ("": they are not)."""

    name: str
    kind: str
    compression: str

    @property
    def meaning(self) -> str:
        """What the plane is, in a word."""
        return _MEANINGS.get(self.name, self.name)


def stored_planes(path: Path) -> tuple[StoredPlane, ...]:
    """The planes in the file of a cube, in its order. Raises what the file's library raises for one that is damaged."""
    if is_store(path):
        group = import_zarr().open_group(path, mode="r")
        arrays = [(name, group[name]) for name in group.array_keys() if group[name].ndim == 3]
        return tuple(
            StoredPlane(name, array.dtype.name, ", ".join(_codecs(array.compressors))) for name, array in arrays
        )
    return _of_hdf5(path) if h5py.is_hdf5(path) else _of_fits(path)


def plane_facts(path: Path) -> dict[str, str]:
    """In words, for people: which planes there are, which are not, and how they are compressed."""
    planes = stored_planes(path)
    there = {plane.meaning for plane in planes}
    words = [f"{p.name} ({p.meaning}, {p.kind})" if p.name != p.meaning else f"{p.name} ({p.kind})" for p in planes]
    missing = {"variance": "no variance: no noise model", "mask": "no mask: no voxel is flagged"}
    words += [text for name, text in missing.items() if name not in there]
    kinds = dict.fromkeys(plane.compression for plane in planes)
    packed = [f"{kind or 'none'} of {', '.join(p.name for p in planes if p.compression == kind)}" for kind in kinds]
    whole = ["gzip of the whole file"] if path.name.lower().endswith(".gz") else []
    said = whole or (packed if len(kinds) > 1 else [next(iter(kinds), "") or "none"])
    return {"planes": ", ".join(words), "compression": ", ".join(said)}


def _of_fits(path: Path) -> tuple[StoredPlane, ...]:
    with opened_fits(path, quiet=True) as hdus:
        images = [hdu for hdu in hdus if hdu.header.get("NAXIS") == 3]
        return tuple(
            StoredPlane(
                hdu.name,
                np.dtype(fits.BITPIX2DTYPE[hdu.header["BITPIX"]]).name,
                hdu.compression_type.lower() if isinstance(hdu, fits.CompImageHDU) else "",
            )
            for hdu in images
        )


def _of_hdf5(path: Path) -> tuple[StoredPlane, ...]:
    with opened_hdf5(path) as file:
        datasets = [
            (name, array) for name, array in file.items() if isinstance(array, h5py.Dataset) and array.ndim == 3
        ]
        return tuple(StoredPlane(name, array.dtype.name, array.compression or "") for name, array in datasets)


def _codecs(compressors: Iterable[object]) -> list[str]:
    """Their names, without that of the checksum."""
    names = [type(codec).__name__.removesuffix("Codec").lower() for codec in compressors]
    return [name for name in names if name != "crc32c"]
