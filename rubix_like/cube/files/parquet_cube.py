"""Cubes as tables in Parquet, a row per spaxel, for pandas, polars, DuckDB, Spark and catalogues of the sky (HATS).

Columns: `x`, `y` (column and row of the spaxel, from 0), `ra`, `dec` (deg, of its centre), `flux`, `mask`, and where
the cube has them `variance`, `truth` (lists of as many numbers as there are bins), `mean_v_los`; units and meanings are
the columns' metadata. Metadata of the table, as JSON: those of a Zarr store (`flat_attributes`) and the vectors
`wavelength`, `wave_edges` and `lsf_fwhm`. Pages are compressed (zstd) and have checksums.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from rubix_like.config.file_layouts import UNPACKED, Packing
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import BLOCK_BYTES, Block, ShardedCube, check_complete
from rubix_like.cube.files.hdf5_cube import ARRAYS, OF_VOXELS, cube_of, flat_attributes, voxel_dtypes
from rubix_like.cube.wcs import world_coordinates
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.parquet_files import PARQUET_SUFFIX, import_parquet, opened_parquet, table_metadata
from rubix_like.runtime.files.writers import CUBE
from rubix_like.runtime.processes.process_group import AbstractProcessGroup
from rubix_like.runtime.words import reason_of

_VECTORS = ("wavelength", "wave_edges", "lsf_fwhm")
_PLACES = {
    "x": ("", "column of the spaxel, from 0"),
    "y": ("", "row of the spaxel, from 0"),
    "ra": ("deg", "right ascension of the spaxel's centre (ICRS)"),
    "dec": ("deg", "declination of the spaxel's centre (ICRS)"),
}


def write_parquet(cube: ShardedCube, path: Path, team: AbstractProcessGroup, packing: Packing = UNPACKED) -> None:
    """Write `cube` to a new table at `path`, for a single process; raises OSError where it cannot be written."""
    team.exchange(lambda: _write(cube, path, packing))


def _write(cube: ShardedCube, path: Path, packing: Packing) -> None:
    arrow, parquet = import_parquet("a cube in Parquet")
    check_complete(cube.ranges, cube.shape[2])
    schema = _schema(arrow, cube)
    compression = "zstd" if packing.is_none else packing.kind
    with parquet.ParquetWriter(path, schema, compression=compression, write_page_checksum=True) as writer:
        for rows in _row_groups(cube):
            columns = _columns(cube, rows)
            arrays = [_arrow_array(arrow, columns[field.name], field.type) for field in schema]
            writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))


def _schema(arrow: Any, cube: ShardedCube) -> Any:
    """The columns with their types, units and meanings, and what is known of the whole cube."""
    number = arrow.from_numpy_dtype
    types = {"x": arrow.int32(), "y": arrow.int32(), "ra": arrow.float64(), "dec": arrow.float64()}
    types |= {name: arrow.list_(number(dtype), cube.shape[2]) for name, dtype in voxel_dtypes(cube).items()}
    if cube.mean_v_los is not None:
        types["mean_v_los"] = number(np.asarray(cube.mean_v_los).dtype)
    described = _PLACES | {name: (unit, meaning) for name, (_, unit, meaning) in ARRAYS.items()}
    fields = [
        arrow.field(
            name, own, nullable=False, metadata=dict(zip(("unit", "description"), described[name], strict=True))
        )
        for name, own in types.items()
    ]
    vectors = {"wavelength": cube.bins.wavelength, "wave_edges": cube.bins.edges, "lsf_fwhm": cube.lsf_fwhm}
    vectors = {name: np.asarray(own, np.float64).tolist() for name, own in vectors.items() if own is not None}
    known = {**flat_attributes(cube), **vectors, "shape": list(cube.shape)}
    return arrow.schema(fields, metadata={name: json.dumps(own) for name, own in known.items()})


def _row_groups(cube: ShardedCube) -> Iterator[slice]:
    """Rows of the field whose spectra are written at once."""
    n_y, n_x, n_wave = cube.shape
    step = max(BLOCK_BYTES // (8 * n_x * n_wave), 1)
    return (slice(first, min(first + step, n_y)) for first in range(0, n_y, step))


def _columns(cube: ShardedCube, rows: slice) -> dict[str, ndarray]:
    """The values of some rows of the field, a row of each array for every spaxel."""
    parts = sorted(cube.parts, key=lambda part: part.first)
    n_x, n_wave = cube.shape[1:]
    ends = [min(part.first + part.flux.shape[2], n_wave) for part in parts]
    blocks = [
        Block(rows, slice(part.first, end), part, cube.mask_bits)
        for part, end in zip(parts, ends, strict=True)
        if end > part.first
    ]
    y, x = (own.ravel() for own in np.mgrid[rows, :n_x])
    ra, dec = world_coordinates(cube.wcs_cards, cube.bins).celestial.wcs_pix2world(x, y, 0)
    found = {"x": x, "y": y, "ra": ra, "dec": dec}
    for name in voxel_dtypes(cube):
        whole = np.concatenate([getattr(block, name) for block in blocks], axis=2)
        found[name] = whole.reshape(-1, n_wave)
    if cube.mean_v_los is not None:
        found["mean_v_los"] = np.asarray(cube.mean_v_los)[rows].ravel()
    return found


def _arrow_array(arrow: Any, values: ndarray, kind: Any) -> Any:
    """A column, of lists where every row has several numbers."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if values.ndim == 1:
        return arrow.array(flat, kind)
    return arrow.FixedSizeListArray.from_arrays(arrow.array(flat, kind.value_type), type=kind)


def read_parquet(path: Path) -> Cube:
    """The cube of a table made by `write_parquet`, every array in the dtype in which it was written
    (float64 needs 64-bit numbers switched on in JAX, else float32); its rows may be in any order.

    Raises ValueError if the table is not a complete cube of this package, ConfigError without pyarrow.
    """
    try:
        with opened_parquet(path, "a cube in Parquet") as file:
            known = table_metadata(file.schema_arrow)
            if known.get("format") != CUBE:
                raise ValueError(f"its metadata 'format' is {known.get('format')!r}, not {CUBE!r}")
            return cube_of(_arrays(file.read(), known), known)
    except UNREADABLE as error:
        raise ValueError(
            f"{path} is not a complete cube of rubix_like ({reason_of(error)}); expected a table written by Cube.write "
            f"with a name in {PARQUET_SUFFIX}; open others with pandas or pyarrow"
        ) from error


def _arrays(table: Any, known: dict[str, Any]) -> dict[str, ndarray]:
    """All arrays of a cube, its spaxels in their places."""
    n_y, n_x, n_wave = known["shape"]
    place = np.asarray(table["y"]) * n_x + np.asarray(table["x"])
    if len(place) != n_y * n_x or not np.array_equal(np.sort(place), np.arange(n_y * n_x)):
        raise ValueError(f"expected a row for each of {n_y} x {n_x} spaxels, got {len(place)} rows")
    order = np.argsort(place)
    found = {name: np.asarray(known[name], np.float64) for name in _VECTORS if name in known}
    for name in (*OF_VOXELS, "mean_v_los"):
        if name in table.column_names:
            column = table[name].combine_chunks()
            width = (n_wave,) if name in OF_VOXELS else ()
            values = column.flatten() if width else column
            found[name] = values.to_numpy(zero_copy_only=False).reshape(-1, *width)[order].reshape(n_y, n_x, *width)
    return found
