"""Cubes to files and back."""

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np
from astropy.io import fits

from rubix_like.arguments import named_arguments
from rubix_like.config.file_layouts import (
    UNPACKED,
    Packing,
    check_layout,
    check_packing,
    check_several,
    find_format,
)
from rubix_like.cube.cube import Cube, n_unusable
from rubix_like.cube.cube_parts import BLOCK_BYTES, ShardedCube, in_parts
from rubix_like.cube.files.default import read_fits
from rubix_like.cube.files.hdf5_cube import read_hdf5
from rubix_like.cube.files.maps_file import maps_path
from rubix_like.cube.files.zarr_cube import import_zarr, read_zarr
from rubix_like.cube.maps import Maps
from rubix_like.errors import expect_path
from rubix_like.runtime.files.fits_opening import opened_fits
from rubix_like.runtime.files.hdf5_files import opened_hdf5
from rubix_like.runtime.files.outputs import is_store
from rubix_like.runtime.files.writers import CUBE, FOREIGN, MAPS, check_outputs, refuse_removed, written_by_us
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup, replacing_together

_BLOCKS_AT_ONCE = 8
"""Blocks of values, and of what they are turned into, that are in memory while a cube is written."""


@named_arguments
def write_cube(
    cube: Cube | ShardedCube,
    path: str | Path,
    layout: str = "default",
    team: AbstractProcessGroup | None = None,
    packing: Packing = UNPACKED,
    *,
    overwrite: bool = False,
) -> Path:
    """Write `cube` to `path` and return the path; an older file is replaced only on success.

    An earlier cube of rubix_like is replaced; any other file only with `overwrite` (ConfigError).

    A cube in parts is never assembled: a few blocks of it are in memory at a time, of FITS with `packing` one whole
    image. With a `team`, each of its processes calls this with its parts, and all write into one file; they
    succeed, or fail, together.
    Raises ConfigError for an unknown layout or ending, for a cube that the layout cannot hold and a file that cannot be
    compressed so, OSError (disk full, no permission, no such folder) with the remedy, ValueError where the parts are
    not the whole cube.
    """
    path = Path(expect_path(path, "path")).expanduser()
    if isinstance(cube, Cube):
        for name, values in {"flux": cube.flux, "truth": cube.truth, "variance": cube.variance}.items():
            count = n_unusable(values, cube.mask) if isinstance(values, np.ndarray) else 0
            if count:
                raise ValueError(
                    f"Cube.{name}: expected finite numbers of 32 bits where the mask is 0, got {count} others; set "
                    f"these voxels in mask"
                )
    team, parts, chosen = team or SINGLE, in_parts(cube), find_format(path, layout, "path")
    noise, bins, fibres = parts.has_variance, parts.bins, parts.fibres is not None
    check_layout(chosen, layout, noise=noise, medium=bins.medium, sampling=bins.sampling, fibres=fibres)
    check_packing(chosen, path, packing)
    check_several(path, team.size, packing)
    team.in_first(lambda: check_outputs([path], [CUBE, FOREIGN], overwrite=overwrite))
    with replacing_together(path, team) as (temporary, writing):
        chosen.write(parts, temporary, writing, *(() if packing.is_none else (packing,)))
    return path


@named_arguments
def load_cube(path: str | Path) -> Cube:
    """Read a cube written by `write_cube` in the layout 'default', as FITS, HDF5 or Zarr, 'manga' or 'sami'.

    FITS gives float32 flux and variance, int32 mask, no `mean_v_los`; the others every array as it was. `maps` are
    those of a file of the same run beside it (cube_maps.fits), where there is one. Raises FileNotFoundError, or
    ValueError if the file is not a complete cube of this package in such a layout.
    """
    path = Path(expect_path(path, "path", "the file of a cube")).expanduser()
    if is_store(path):
        cube = read_zarr(path)
    elif not path.is_file():
        raise FileNotFoundError(f"no such cube: {path}; check the path (a run writes to its output.path)")
    else:
        refuse_removed(path)
        cube = read_hdf5(path) if h5py.is_hdf5(path) else read_fits(path)
    beside, config = maps_path(path, None), cube.meta.get("config")
    written = written_by_us(beside)
    if cube.maps is not None or config is None or written is None or written.kind != MAPS:
        return cube
    try:
        maps = Maps.read(beside)
    except ValueError as error:
        logging.getLogger("rubix_like").warning("the cube is given without the maps beside it: %s", error)
        return cube
    return dataclasses.replace(cube, maps=maps) if config == maps.meta.get("config") else cube


def writing_bytes(n_bytes: int, packing: Packing = UNPACKED) -> int:
    """Most memory that writing a file of `n_bytes` (uncompressed) takes, beside the cube.

    A compressed image is in memory whole, and once more as it is packed.
    """
    return min(n_bytes, _BLOCKS_AT_ONCE * BLOCK_BYTES) if packing.is_none else 2 * n_bytes


_MEANINGS: Mapping[str, str] = {
    "DATA": "flux",
    "STAT": "variance",
    "DQ": "mask",
    "VAR": "the variance again",
    "truth": "flux without noise",
}
"""Names of planes in FITS files, HDF5 files and Zarr stores -> what they are, where they do not say it."""


def plane_facts(path: Path) -> dict[str, str]:
    """In words, for people: which planes a cube's file has, which it has not, and how they are compressed. Raises what
    the file's library raises for one that is damaged."""
    planes, packed = [], dict[str, list[str]]()
    for name, kind, compression in _stored_planes(path):
        planes.append(f"{name} ({_MEANINGS[name]}, {kind})" if name in _MEANINGS else f"{name} ({kind})")
        packed.setdefault(compression or "none", []).append(name)
    there = {_MEANINGS.get(name, name) for names in packed.values() for name in names}
    missing = {"variance": "no variance: no noise model", "mask": "no mask: no voxel is flagged"}
    planes += [words for name, words in missing.items() if name not in there]
    compressions = [f"{kind} of {', '.join(names)}" for kind, names in packed.items()]
    if path.name.lower().endswith(".gz"):
        compressions = ["gzip of the whole file"]
    elif len(packed) < 2:
        compressions = list(packed) or ["none"]
    return {"planes": ", ".join(planes), "compression": ", ".join(compressions)}


def _stored_planes(path: Path) -> list[tuple[str, str, str]]:
    """Name, type of numbers and compression ("" for none) of each plane (y, x, wave)."""
    if is_store(path):
        group = import_zarr().open_group(path, mode="r")
        planes = []
        for name in group.array_keys():
            codecs = [type(codec).__name__.removesuffix("Codec").lower() for codec in group[name].compressors]
            packing = ", ".join(codec for codec in codecs if codec != "crc32c")  # a checksum
            planes += [(name, group[name].dtype.name, packing)] if group[name].ndim == 3 else []
        return planes
    if h5py.is_hdf5(path):
        with opened_hdf5(path) as file:
            arrays = {name: array for name, array in file.items() if isinstance(array, h5py.Dataset)}
            planes = {name: array for name, array in arrays.items() if array.ndim == 3}
            return [(name, array.dtype.name, array.compression or "") for name, array in planes.items()]
    with opened_fits(path, quiet=True) as hdus:
        return [
            (
                hdu.name,
                np.dtype(fits.BITPIX2DTYPE[hdu.header["BITPIX"]]).name,
                hdu.compression_type.lower() if isinstance(hdu, fits.CompImageHDU) else "",
            )
            for hdu in hdus
            if hdu.header.get("NAXIS") == 3
        ]
