"""Files of simulations in HDF5: parameters in a group, a chunk with a checksum for each cube."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from rubix_like.inference.described_trees import add_dataset, numbers_of
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
from rubix_like.runtime.files.hdf5_files import opened_hdf5, writing_hdf5


def _write(made: Simulations, of_set: SetDescription, path: Path) -> None:
    with writing_hdf5(path) as file:
        file.attrs.update(stated())
        _fill(made, of_set, file)


def _fill(made: Simulations, of_set: SetDescription, file: Any) -> None:
    for name, (unit, meaning) in (NUMBERS | SHARED).items():
        add_dataset(file, name, getattr(made, name), meaning, unit)
    parameters = file.create_group("parameters", track_order=True)
    for name, values in made.parameters.items():
        own = of_set.parameters[name]
        add_dataset(parameters, name, values, own["meaning"], own["unit"])
    for name, values in kept_cubes(made).items():
        unit, meaning = CUBES[name]
        add_dataset(file, name, values, meaning, unit, chunks=(1, *values.shape[1:]), fletcher32=True)
    file["config"] = of_set.config


def _read(path: Path, rows: slice, cubes: bool) -> Simulations:
    with opened_hdf5(path) as file:
        check_stated(file.attrs)
        return _parsed(file, rows, cubes)


def _parsed(file: Any, rows: slice, cubes: bool) -> Simulations:
    parameters = file["parameters"]
    arrays: dict[str, Any] = {name: numbers_of(file[name])[rows] for name in NUMBERS}
    arrays |= {name: numbers_of(file[name]) for name in SHARED}
    arrays |= {name: np.asarray(file[name][rows]) for name in CUBES if cubes and name in file}
    return Simulations(
        **arrays,
        parameters={name: numbers_of(own)[rows] for name, own in parameters.items()},
        units={name: str(own.attrs["unit"]) for name, own in parameters.items()},
    )


def _numbers(path: Path) -> ndarray:
    with opened_hdf5(path, whole=False) as file:
        return numbers_of(file["number"])


HDF5 = ShardFormat(".h5", _write, _read, _numbers)
