"""Cubes to files and back."""

import dataclasses
import logging
from pathlib import Path

import h5py
import numpy as np

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
from rubix_like.cube.files.fits_reading import read_fits
from rubix_like.cube.files.hdf5_cube import read_hdf5
from rubix_like.cube.files.maps_file import maps_path
from rubix_like.cube.files.zarr_cube import read_zarr
from rubix_like.cube.maps import Maps
from rubix_like.errors import expect_path
from rubix_like.runtime.files.outputs import is_store
from rubix_like.runtime.files.writers import CUBE, FOREIGN, MAPS, check_outputs, refuse_removed, written_by_us
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup
from rubix_like.runtime.processes.shared_outputs import replacing_together

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
    image. With a `team`, each of its processes calls this with its own parts, and all write into one file; they
    succeed, or fail, together.
    Raises ConfigError for an unknown layout or ending, for a cube that the layout cannot hold and a file that cannot be
    compressed so, OSError (disk full, no permission, no such folder) with the remedy, ValueError where the parts are
    not the whole cube.
    """
    path = Path(expect_path(path, "path")).expanduser()
    if isinstance(cube, Cube):
        _check_readable(cube)
    team, parts, chosen = team or SINGLE, in_parts(cube), find_format(path, layout, "path")
    noise, bins, fibres = parts.has_variance, parts.bins, parts.fibres is not None
    check_layout(chosen, layout, noise=noise, medium=bins.medium, sampling=bins.sampling, fibres=fibres)
    check_packing(chosen, path, packing)
    check_several(path, team.size, packing)
    team.in_first(lambda: check_outputs([path], [CUBE, FOREIGN], overwrite=overwrite))
    with replacing_together(path, team) as (temporary, writing):
        chosen.write(parts, temporary, writing, *(() if packing.is_none else (packing,)))
    return path


def _check_readable(cube: Cube) -> None:
    """Raise ValueError for arrays of the host that no cube read from a file may have."""
    for name in ("flux", "truth", "variance"):
        values = getattr(cube, name)
        count = n_unusable(values, cube.mask) if isinstance(values, np.ndarray) else 0
        if count:
            raise ValueError(
                f"Cube.{name}: expected finite numbers of 32 bits where the mask is 0, got {count} others; set these "
                f"voxels in mask"
            )


@named_arguments
def load_cube(path: str | Path) -> Cube:
    """Read a cube written by `write_cube` in the layout 'default', as FITS, HDF5 or Zarr, 'manga' or 'sami'.

    FITS gives float32 flux and variance, int32 mask, no `mean_v_los`; the others every array as it was. `maps` are
    those of a file of the same run beside it (cube_maps.fits), where there is one. Raises FileNotFoundError, or
    ValueError if the file is not a complete cube of this package in such a layout.
    """
    path = Path(expect_path(path, "path", "the file of a cube")).expanduser()
    return _with_maps(_read(path), maps_path(path, None))


def _read(path: Path) -> Cube:
    if is_store(path):
        return read_zarr(path)
    if not path.is_file():
        raise FileNotFoundError(f"no such cube: {path}; check the path (a run writes to its output.path)")
    refuse_removed(path)
    return read_hdf5(path) if h5py.is_hdf5(path) else read_fits(path)


def _with_maps(cube: Cube, path: Path) -> Cube:
    """The cube with the maps in that file, where it is one of the same configuration."""
    written = written_by_us(path)
    if cube.maps is not None or written is None or written.kind != MAPS:
        return cube
    try:
        maps = Maps.read(path)
    except ValueError as error:
        logging.getLogger("rubix_like").warning("the cube is given without the maps beside it: %s", error)
        return cube
    config = cube.meta.get("config")
    return dataclasses.replace(cube, maps=maps) if config is not None and config == maps.meta.get("config") else cube


def writing_bytes(n_bytes: int, packing: Packing = UNPACKED) -> int:
    """Most memory that writing a file of `n_bytes` (uncompressed) takes, beside the cube.

    A compressed image is in memory whole, and once more as it is packed.
    """
    return min(n_bytes, _BLOCKS_AT_ONCE * BLOCK_BYTES) if packing.is_none else 2 * n_bytes
