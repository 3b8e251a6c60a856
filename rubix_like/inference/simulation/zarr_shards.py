"""Files of simulations as Zarr stores (format 3), which xarray opens: arrays with named axes, parameters among them.

Every cube is a chunk with a checksum (CRC32C), and those of an array lie in one file.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from rubix_like.cube.files.zarr_cube import WAVE, consolidate, import_zarr
from rubix_like.inference.simulation.shards import (
    CUBES,
    NUMBERS,
    SHARED,
    SetDescription,
    ShardFormat,
    check_stated,
    kept_cubes,
    stated,
)
from rubix_like.inference.simulation.simulations import Simulations
from rubix_like.runtime.files.outputs import FOLDER_SUFFIX
from rubix_like.runtime.files.zarr_storage import ALL_STORED, check_store

_PURPOSE = "simulate.files: zarr"
_AXES = ("simulation", "y", "x", WAVE)


def _write(made: Simulations, of_set: SetDescription, path: Path) -> None:
    zarr = import_zarr(_PURPOSE)
    path.unlink(missing_ok=True)  # an empty file that keeps the name
    known = {**stated(), "config": of_set.config, "parameters": list(made.parameters), ALL_STORED: True}
    group = zarr.create_group(path, zarr_format=3, attributes=known)

    def add(name: str, values: ndarray, axes: tuple[str, ...], unit: str, meaning: str, **options: Any) -> None:
        array = group.create_array(
            name,
            shape=values.shape,
            dtype=values.dtype,
            dimension_names=axes,
            attributes={"units": unit, "long_name": meaning},
            compressors=(zarr.codecs.Crc32cCodec(),),
            fill_value=0,
            config={"write_empty_chunks": True},  # a chunk that is missing is lost
            **({"chunks": values.shape} | options),
        )
        array[...] = values

    for name, described in NUMBERS.items():
        add(name, np.asarray(getattr(made, name)), _AXES[:1], *described)
    for name, values in made.parameters.items():
        own = of_set.parameters[name]
        axes = (_AXES[0], *(f"{name}_{axis}" for axis in range(1, values.ndim)))
        add(name, values, axes, own["unit"], own["meaning"])
    add(WAVE, made.wavelength, (WAVE,), *SHARED["wavelength"])
    add("mask", made.mask, _AXES[1:], *SHARED["mask"])
    for name, values in kept_cubes(made).items():
        add(name, values, _AXES, *CUBES[name], chunks=(1, *values.shape[1:]), shards=values.shape)
    consolidate(group)


def _read(path: Path, rows: slice, cubes: bool) -> Simulations:
    group = _opened(path)
    check_stated(group.attrs)
    names = [str(name) for name in group.attrs["parameters"]]
    kept = [name for name in CUBES if cubes and name in group]
    arrays: dict[str, Any] = {name: np.asarray(group[name][rows]) for name in (*NUMBERS, *kept)}
    return Simulations(
        **arrays,
        parameters={name: np.asarray(group[name][rows]) for name in names},
        units={name: str(group[name].attrs["units"]) for name in names},
        wavelength=np.asarray(group[WAVE][...]),
        mask=np.asarray(group["mask"][...]),
    )


def _numbers(path: Path) -> ndarray:
    return np.asarray(_opened(path)["number"][...])


def _opened(path: Path) -> Any:
    """The group of a store, all of which is there."""
    check_store(path, (*CUBES, WAVE))
    return import_zarr(_PURPOSE).open_group(path, mode="r")


ZARR = ShardFormat(FOLDER_SUFFIX, _write, _read, _numbers, package="zarr")
