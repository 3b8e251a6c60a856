"""Files of simulations as tables in Parquet: a row per simulation, its cubes as tensors of Arrow.

Columns: `number`, `galaxy`, each parameter under its name, `flux` and what else is kept (`arrow.fixed_shape_tensor`;
readers that do not know it see lists of y x wave numbers, the wavelength fastest). Metadata as JSON, `wavelength` among
them; `mask`, which all share, is a file of numpy in base64, compressed by zlib.
"""

import base64
import io
import json
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from rubix_like.inference.simulation.shards import (
    CUBES,
    NUMBERS,
    SetDescription,
    ShardFormat,
    check_stated,
    kept_cubes,
    stated,
)
from rubix_like.inference.simulation.simulations import Simulations
from rubix_like.runtime.files.parquet_files import PARQUET_SUFFIX, import_parquet, opened_parquet, table_metadata

_PURPOSE = "simulate.files: parquet"
_HEAD_BYTES = 1000
_GROUP_BYTES = 1 << 24
"""About as much is read at once where a few simulations are asked for."""


def _write(made: Simulations, of_set: SetDescription, path: Path) -> None:
    arrow, parquet = import_parquet(_PURPOSE)
    columns = {name: np.asarray(getattr(made, name)) for name in NUMBERS} | dict(made.parameters) | kept_cubes(made)
    described = {name: {"unit": own["unit"], "description": own["meaning"]} for name, own in of_set.parameters.items()}
    described |= {name: {"unit": unit, "description": own} for name, (unit, own) in (NUMBERS | CUBES).items()}
    arrays = [_array(arrow, values) for values in columns.values()]
    fields = [
        arrow.field(name, own.type, nullable=False, metadata=described[name])
        for name, own in zip(columns, arrays, strict=True)
    ]
    mask = io.BytesIO()
    np.save(mask, made.mask)
    known = {
        **stated(),
        "config": of_set.config,
        "parameters": list(made.parameters),
        "wavelength": made.wavelength.tolist(),
        "mask": base64.b64encode(zlib.compress(mask.getvalue())).decode(),
    }
    schema = arrow.schema(fields, metadata={name: json.dumps(own) for name, own in known.items()})
    n_bytes = sum(own.nbytes for own in kept_cubes(made).values())
    at_once = max(len(made) * _GROUP_BYTES // max(n_bytes, 1), 1)
    table = arrow.Table.from_arrays(arrays, schema=schema)
    parquet.write_table(table, path, row_group_size=at_once, compression="none", write_page_checksum=True)


def _array(arrow: Any, values: ndarray) -> Any:
    """A column: numbers, or a tensor for every row."""
    if values.ndim == 1:
        return arrow.array(values)
    return arrow.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(values))


def _read(path: Path, rows: slice, cubes: bool) -> Simulations:
    with opened_parquet(path, _PURPOSE) as file:
        known = table_metadata(file.schema_arrow)
        check_stated(known)
        schema = file.schema_arrow
        table, first = _rows_of(file, rows, [name for name in schema.names if cubes or name not in CUBES])
    start, stop, _ = rows.indices(file.metadata.num_rows)
    table = table.slice(start - first, stop - start)
    names = [str(name) for name in known["parameters"]]
    kept = [name for name in CUBES if name in table.column_names]
    arrays: dict[str, Any] = {name: _values(table[name]) for name in (*NUMBERS, *kept)}
    return Simulations(
        **arrays,
        parameters={name: _values(table[name]) for name in names},
        units={name: schema.field(name).metadata[b"unit"].decode() for name in names},
        wavelength=np.asarray(known["wavelength"], np.float64),
        mask=_read_mask(known["mask"], math.prod(schema.field("flux").type.shape)),
    )


def _read_mask(text: str, n_voxel: int) -> ndarray:
    """The mask, unpacked to no more bytes than its voxels can take."""
    content = zlib.decompressobj().decompress(base64.b64decode(text), _HEAD_BYTES + 8 * n_voxel)
    return np.load(io.BytesIO(content), allow_pickle=False)


def _rows_of(file: Any, rows: slice, columns: list[str]) -> tuple[Any, int]:
    """The groups of rows that hold some rows, and the first row of the first of them."""
    start, stop, _ = rows.indices(file.metadata.num_rows)
    sizes = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
    ends = np.cumsum([0, *sizes])
    chosen = [number for number in range(len(sizes)) if ends[number] < stop and ends[number + 1] > start]
    return file.read_row_groups(chosen, columns=columns), int(ends[chosen[0]]) if chosen else 0


def _values(column: Any) -> ndarray:
    own = column.combine_chunks()
    values = own.to_numpy_ndarray() if "fixed_shape_tensor" in str(own.type) else own.to_numpy(zero_copy_only=False)
    return np.array(values)


def _numbers(path: Path) -> ndarray:
    with opened_parquet(path, _PURPOSE) as file:
        return _values(file.read(columns=["number"])["number"])


PARQUET = ShardFormat(PARQUET_SUFFIX, _write, _read, _numbers, package="pyarrow")
