"""Cubes as Zarr stores (format 3), which xarray opens: a folder with a chunk of an array in each file.

Arrays as in `Cube` (names, shapes, dtypes; `hdf5_cube.ARRAYS`), their dimensions named, with `units` and `long_name`;
coordinates `wave` (Angstrom), `x` and `y` (arcsec from the field's centre). Attributes of the group: those of an HDF5
file, `config` (the YAML of the run), `header` (FITS cards of the world coordinates) and `rows` (all of `cube.meta` and
the counters, as in the CONFIG table of a FITS file). Every chunk has a checksum (CRC32C).
"""

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from rubix_like.config.file_layouts import UNPACKED, Packing
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import ShardedCube, check_complete
from rubix_like.cube.files.default import read_run_rows
from rubix_like.cube.files.hdf5_cube import ARRAYS, chunks_of, cube_of, flat_attributes, voxel_dtypes
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.writers import CUBE
from rubix_like.runtime.files.zarr_storage import ALL_STORED, check_store
from rubix_like.runtime.optional_packages import import_optional
from rubix_like.runtime.words import reason_of

WAVE: str = "wave"
"""The coordinate along wavelength, which xarray knows by the name of its dimension."""

_CHUNK_VALUES = 1 << 20
_GZIP_LEVEL = 5
_OFFSETS = {"x": "offset of the columns to the East", "y": "offset of the rows to the North"}


def write_zarr(cube: ShardedCube, path: Path, packing: Packing = UNPACKED) -> None:
    """Write `cube` to a new store at `path`; raises OSError where it cannot be written."""
    zarr = import_zarr()
    check_complete(cube.ranges, cube.shape[2])
    path.unlink(missing_ok=True)  # an empty file that keeps the name
    group = zarr.create_group(path, zarr_format=3, attributes={**flat_attributes(cube), ALL_STORED: True})
    packed = () if packing.is_none else (zarr.codecs.GzipCodec(level=_GZIP_LEVEL),)
    n_y, n_x, n_wave = cube.shape
    sizes = {"y": n_y, "x": n_x, "wave": n_wave, "edge": n_wave + 1}
    arrays: dict[str, Any] = {}  # to write to: those that the group gives would leave out chunks of zeros
    known = {WAVE if name == "wavelength" else name: description for name, description in ARRAYS.items()}
    known |= {name: ((name,), "arcsec", meaning) for name, meaning in _OFFSETS.items()}
    x, y = cube.footprint.centres()
    given = {WAVE: cube.bins.wavelength, "wave_edges": cube.bins.edges, "x": x, "y": y}
    given |= {"lsf_fwhm": cube.lsf_fwhm, "mean_v_los": cube.mean_v_los}
    vectors = {name: np.asarray(values) for name, values in given.items() if values is not None}
    voxels = voxel_dtypes(cube)
    for name, dtype in ({name: values.dtype for name, values in vectors.items()} | voxels).items():
        axes, unit, meaning = known[name]
        shape = tuple(sizes[axis] for axis in axes)
        arrays[name] = group.create_array(
            name,
            shape=shape,
            dtype=dtype,
            chunks=chunks_of(shape, _CHUNK_VALUES),
            dimension_names=axes,
            attributes={"units": unit, "long_name": meaning},
            compressors=(*packed, zarr.codecs.Crc32cCodec()),
            fill_value=0,
            config={"write_empty_chunks": True},  # a chunk that is missing is lost, and 0 may be -0
        )
    for name, values in vectors.items():
        arrays[name][...] = values
    for block in cube.blocks(whole_rows=True):
        for name in voxels:
            arrays[name][block.rows, :, block.bins] = getattr(block, name)
    consolidate(group)


def import_zarr(purpose: str = "a cube in Zarr") -> Any:
    """The package; raises ConfigError, with the remedy, where it is not installed."""
    return import_optional("zarr", purpose)


def consolidate(group: Any) -> None:
    """Put the description of all arrays at the store's head, where xarray looks for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this is an addition to format 3
        import_zarr().consolidate_metadata(group.store)


def read_zarr(path: Path) -> Cube:
    """The cube of a store made by `write_zarr`, every array in the dtype in which it was written
    (float64 needs 64-bit numbers switched on in JAX, else float32).

    Raises ValueError if the store is not a complete cube of this package, ConfigError without the package zarr.
    """
    zarr = import_zarr()
    try:
        group = zarr.open_group(path, mode="r")
        if group.attrs.get("format") != CUBE:
            raise ValueError(f"its attribute 'format' is {group.attrs.get('format')!r}, not {CUBE!r}")
        check_store(path, (WAVE, "wave_edges"))
        values = {name: np.asarray(group[name][...]) for name in group.array_keys()}
        run = read_run_rows([(str(key), str(line)) for key, line in group.attrs["rows"]])
        return cube_of(values | {"wavelength": values[WAVE]}, group.attrs, run)
    except UNREADABLE as error:
        raise ValueError(
            f"{path} is not a complete cube of rubix_like ({reason_of(error)}); expected a Zarr store written by "
            f"Cube.write; open others with xarray or zarr"
        ) from error
