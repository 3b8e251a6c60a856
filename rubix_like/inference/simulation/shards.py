"""Files of simulations: HDF5, or Zarr stores (format 3), which xarray opens; each cube is a chunk with a checksum."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array, Float, Int
from numpy import ndarray

from rubix_like.arguments import expect_fields
from rubix_like.cube.files.zarr_cube import WAVE, consolidate, import_zarr
from rubix_like.inference.described_trees import add_dataset, numbers_of
from rubix_like.runtime.files.hdf5_files import opened_hdf5, writing_hdf5
from rubix_like.runtime.files.outputs import FOLDER_SUFFIX, date_words
from rubix_like.runtime.files.writers import CREATOR, SIMULATIONS
from rubix_like.runtime.files.zarr_storage import ALL_STORED, check_store
from rubix_like.runtime.words import counted

Cubes = Float[Array | ndarray, "simulation y x wave"]


@dataclass(frozen=True, eq=False)
class Simulations:
    """Cubes of random parameters, beside the parameters; every array has the axis simulation first.

    | field | shape | |
    |---|---|---|
    | number | (simulation,) | of each in its set, from 0 |
    | parameters | name: (simulation, ...) | in the units of `units` |
    | units | name: text | empty: a number |
    | galaxy | (simulation,) | which of several galaxies each shows; 0 where there is one |
    | flux | (simulation, y, x, wave) or None | 1e-20 erg/s/cm2/Angstrom, with noise if the run has any |
    | variance | (simulation, y, x, wave) or None | of the noise, the square of that unit |
    | truth | (simulation, y, x, wave) or None | flux without noise (`noise.keep_truth`) |
    | wavelength | (wave,) | Angstrom, centres of the bins, in the instrument's medium |
    | mask | (y, x, wave) | the same for all; bits as in `Cube.mask` |

    `flux` is None where the cubes went to a sink or into files. What a sink gets are arrays on the devices. `n_kept`:
    how many of them were in the files already, before the call.
    """

    number: Int[ndarray, " simulation"]
    parameters: Mapping[str, Float[ndarray, "simulation ..."]]
    units: Mapping[str, str]
    galaxy: Int[ndarray, " simulation"]
    wavelength: Float[ndarray, " wave"]
    mask: Int[ndarray, "y x wave"]
    flux: Cubes | None = None
    variance: Cubes | None = None
    truth: Cubes | None = None
    n_kept: int = 0

    def __post_init__(self) -> None:
        expect_fields(self)

    def __len__(self) -> int:
        """How many simulations there are."""
        return len(self.number)

    def table(self) -> Float[ndarray, "simulation value"]:
        """All parameters as columns, in the order of `labels`."""
        rows = [np.asarray(values).reshape(len(self), -1) for values in self.parameters.values()]
        return np.concatenate(rows, axis=1)

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each column of `table`: that of the parameter, with an index where it has several values."""
        shapes = {name: np.shape(values)[1:] for name, values in self.parameters.items()}
        return tuple(
            f"{name}[{','.join(map(str, index))}]" if index else name
            for name, shape in shapes.items()
            for index in np.ndindex(shape)
        )

    def without_cubes(self) -> "Simulations":
        """Numbers and parameters alone."""
        return replace(self, flux=None, variance=None, truth=None)

    def __repr__(self) -> str:
        """How many there are, of what size, and what was random."""
        size = " x ".join(map(str, self.mask.shape))
        cubes = "" if self.flux is None else f" with cubes of {size} (y, x, wave)"
        return f"Simulations({counted(len(self), 'simulation')}{cubes}; random: {', '.join(self.labels)})"


def join_simulations(parts: Sequence[Simulations]) -> Simulations:
    """Parts of one set as one, on the host."""

    def together(name: str) -> ndarray | None:
        arrays = [getattr(part, name) for part in parts]
        return None if arrays[0] is None else np.concatenate([np.asarray(array) for array in arrays])

    first = parts[0]
    arrays: dict[str, Any] = {name: together(name) for name in (*NUMBERS, *CUBES)}
    values = {name: np.concatenate([part.parameters[name] for part in parts]) for name in first.parameters}
    return replace(first, parameters=values, n_kept=0, **arrays)


LAYOUT: int = 1
"""Version of what is in the files."""

_FLUX = "1e-20 erg s-1 cm-2 Angstrom-1"
CUBES: dict[str, tuple[str, str]] = {
    "flux": (_FLUX, "flux of each spaxel per Angstrom: simulation, y, x, wave"),
    "variance": ("1e-40 erg2 s-2 cm-4 Angstrom-2", "variance of the flux: simulation, y, x, wave"),
    "truth": (_FLUX, "flux without its noise: simulation, y, x, wave"),
}
SHARED: dict[str, tuple[str, str]] = {
    "wavelength": ("Angstrom", "centres of the bins"),
    "mask": ("", "bits: 0 good, 1 outside the SSP library, 2 outside the aperture, 4 end of the detector"),
}
NUMBERS: dict[str, tuple[str, str]] = {
    "number": ("", "number of each simulation in the set, from 0"),
    "galaxy": ("", "which of several galaxies each shows"),
}
"""Name of an array -> its unit and meaning: with a cube for each simulation, one for all, a number for each."""


@dataclass(frozen=True)
class SetDescription:
    """The words in all files of a set: name -> unit and meaning of each parameter; the run's YAML."""

    parameters: Mapping[str, Mapping[str, Any]]
    config: str


@dataclass(frozen=True)
class ShardFormat:
    """A format of files of simulations.

    `write(simulations, description, path)`; `read(path, rows, cubes)`: those at some places of a file, with or without
    their cubes, or anything of `UNREADABLE` for a file that is none; `numbers(path)`: the numbers of a file's
    simulations, likewise. `package`: an optional package that all of them need.
    """

    suffix: str
    write: Callable[[Simulations, SetDescription, Path], None]
    read: Callable[[Path, slice, bool], Simulations]
    numbers: Callable[[Path], ndarray]
    package: str | None = None


def stated() -> dict[str, Any]:
    """The attributes of every file."""
    return {
        "format": SIMULATIONS,
        "layout": LAYOUT,
        "creator": CREATOR,
        "date": date_words(),
        "description": "simulated cubes and their random parameters",
    }


def check_stated(known: Mapping[str, Any]) -> None:
    """Raise ValueError for files that are no simulations, or another version's."""
    if known.get("format") != SIMULATIONS:
        raise ValueError(f"its 'format' is {known.get('format')!r}, not {SIMULATIONS!r}")
    if known.get("layout") != LAYOUT:
        raise ValueError(f"its layout is {known.get('layout')!r}, that of another version, not {LAYOUT!r}")


def kept_cubes(made: Simulations) -> dict[str, ndarray]:
    """The cubes that there are, on the host."""
    found = {name: getattr(made, name) for name in CUBES}
    return {name: np.asarray(own) for name, own in found.items() if own is not None}


def checked_simulations(made: Simulations) -> Simulations:
    """Raise ValueError where the arrays are not of the same simulations, or are no numbers."""
    count = len(made.number)
    shape = (count, *made.mask.shape)
    for name, values in made.parameters.items():
        if values.shape[:1] != (count,) or values.dtype.kind != "f" or not np.isfinite(values).all():
            raise ValueError(
                f"parameters, {name}: expected {count} finite values, got {values.dtype} of {values.shape}"
            )
    for name, cube in kept_cubes(made).items():
        if cube.shape != shape or cube.dtype.kind != "f":
            raise ValueError(f"{name}: expected numbers of shape {shape}, got {cube.dtype} of {cube.shape}")
    if made.galaxy.shape != (count,) or made.wavelength.shape != made.mask.shape[2:]:
        raise ValueError("galaxy, wavelength: expected as many as there are simulations and bins, got others")
    wave = made.wavelength
    if not (np.isfinite(wave).all() and (wave > 0).all() and (np.diff(wave) > 0).all()):
        raise ValueError("wavelength: expected finite positive values in increasing order, got others")
    return made


def _write_hdf5(made: Simulations, of_set: SetDescription, path: Path) -> None:
    with writing_hdf5(path) as file:
        file.attrs.update(stated())
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


def _read_hdf5(path: Path, rows: slice, cubes: bool) -> Simulations:
    with opened_hdf5(path) as opened:
        file: Any = opened
        check_stated(file.attrs)
        arrays: dict[str, Any] = {name: numbers_of(file[name])[rows] for name in NUMBERS}
        arrays |= {name: numbers_of(file[name]) for name in SHARED}
        kept = [name for name in CUBES if cubes and name in file]
        for name in kept:
            if not file[name].fletcher32:
                raise ValueError(
                    f"{name}: has no checksum (fletcher32), with which every cube is written, so another program"
                    " replaced it; simulate again, or repack the file with checksums (h5repack -f FLET)"
                )
        arrays |= {name: np.asarray(file[name][rows]) for name in kept}
        return Simulations(
            **arrays,
            parameters={name: numbers_of(group)[rows] for name, group in file["parameters"].items()},
            units={name: str(group.attrs["unit"]) for name, group in file["parameters"].items()},
        )


def _numbers_hdf5(path: Path) -> ndarray:
    with opened_hdf5(path, whole=False) as file:
        return numbers_of(file["number"])


HDF5 = ShardFormat(".h5", _write_hdf5, _read_hdf5, _numbers_hdf5)


_PURPOSE = "simulate.files: zarr"
_AXES = ("simulation", "y", "x", WAVE)


def _write_zarr(made: Simulations, of_set: SetDescription, path: Path) -> None:
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


def _read_zarr(path: Path, rows: slice, cubes: bool) -> Simulations:
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


def _numbers_zarr(path: Path) -> ndarray:
    return np.asarray(_opened(path)["number"][...])


def _opened(path: Path) -> Any:
    """The group of a store, all of which is there."""
    check_store(path, (*CUBES, WAVE))
    return import_zarr(_PURPOSE).open_group(path, mode="r")


ZARR = ShardFormat(FOLDER_SUFFIX, _write_zarr, _read_zarr, _numbers_zarr, package="zarr")
