"""A training set on the disk: a folder of files of equal numbers of simulations, and what they were made from.

The files are HDF5 (and netCDF-4) or Zarr stores (format 3), with named dimensions and coordinates for xarray. Each cube
is a chunk with a checksum.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array, Float, Int
from numpy import ndarray

from rubix_like.arguments import expect_fields, named_arguments
from rubix_like.cube.files.zarr_cube import WAVE, consolidate, import_zarr
from rubix_like.errors import ConfigError, expect_path
from rubix_like.inference.described_trees import add_dataset, name_axes, numbers_of
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.hdf5_files import opened_hdf5, writing_hdf5
from rubix_like.runtime.files.outputs import (
    FOLDER_SUFFIX,
    check_writable,
    date_words,
    files_of_others,
    output_bytes,
    remove_output,
    remove_stale,
    replacing,
)
from rubix_like.runtime.files.writers import CREATOR, SET_FILE, SIMULATIONS, sets_in
from rubix_like.runtime.files.zarr_storage import ALL_STORED, check_store
from rubix_like.runtime.optional_packages import import_optional
from rubix_like.runtime.words import counted, format_bytes, reason_of

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
    | x, y | (x,), (y,) or None | arcsec, centres of the spaxels; None: from a file of version 0.4 or older |

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
    x: Float[ndarray, " x"] | None = None
    y: Float[ndarray, " y"] | None = None

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
    arrays: dict[str, Any] = {name: together(name) for name in (*_NUMBERS, *CUBES)}
    values = {name: np.concatenate([part.parameters[name] for part in parts]) for name in first.parameters}
    return replace(first, parameters=values, n_kept=0, **arrays)


_LAYOUT = 1
"""Version of what is in the files."""

_AXES = ("simulation", "y", "x", WAVE)
_FLUX = "1e-20 erg s-1 cm-2 Angstrom-1"
_BITS = "bits: 0 good, 1 outside the SSP library, 2 outside the aperture, 4 end of the detector"
CUBES: dict[str, tuple[str, str]] = {
    "flux": (_FLUX, "flux of each spaxel per Angstrom: simulation, y, x, wave"),
    "variance": ("1e-40 erg2 s-2 cm-4 Angstrom-2", "variance of the flux: simulation, y, x, wave"),
    "truth": (_FLUX, "flux without its noise: simulation, y, x, wave"),
}
"""Name of an array with a cube for each simulation -> its unit and meaning."""

_NUMBERS: dict[str, str] = {
    "number": "number of each simulation in the set, from 0",
    "galaxy": "which of several galaxies each shows",
}
_COORDINATES: dict[str, tuple[str, str, str]] = {
    "simulation": ("number", "", _NUMBERS["number"]),
    "y": ("y", "arcsec", "offset of the rows to the North of the field's centre"),
    "x": ("x", "arcsec", "offset of the columns to the East of the field's centre"),
    WAVE: ("wavelength", "Angstrom", "centres of the bins"),
}
"""Name of an axis -> the attribute of `Simulations` with its values, their unit and meaning."""


@dataclass(frozen=True)
class ShardFormat:
    """A format of files of simulations.

    `write(simulations, manifest, path)`; `read(path, rows, cubes)`: those at some places of a file, with or without
    their cubes, or anything of `UNREADABLE` for a file that is none. `package`: an optional package that all need.
    """

    suffix: str
    write: Callable[[Simulations, "Manifest", Path], None]
    read: Callable[[Path, slice, bool], Simulations]
    package: str | None = None


def _attributes() -> dict[str, Any]:
    return {
        "format": SIMULATIONS,
        "layout": _LAYOUT,
        "creator": CREATOR,
        "date": date_words(),
        "description": "simulated cubes and their random parameters",
    }


def _check_attributes(known: Mapping[str, Any]) -> None:
    if known.get("format") != SIMULATIONS:
        raise ValueError(f"its 'format' is {known.get('format')!r}, not {SIMULATIONS!r}")
    if known.get("layout") != _LAYOUT:
        raise ValueError(f"its layout is {known.get('layout')!r}, that of another version, not {_LAYOUT!r}")


def _cubes_of(simulations: Simulations) -> dict[str, ndarray]:
    """The cubes that there are, on the host."""
    cubes = {name: getattr(simulations, name) for name in CUBES}
    return {name: np.asarray(cube) for name, cube in cubes.items() if cube is not None}


Described = tuple[str, ndarray, tuple[str, ...], str, str]
"""Name, numbers, names of the axes, unit and meaning of an array."""


def _arrays(simulations: Simulations, manifest: "Manifest") -> Iterator[Described]:
    """All arrays of a file but the coordinates."""
    for name, meaning in _NUMBERS.items():
        yield name, np.asarray(getattr(simulations, name)), _AXES[:1], "", meaning
    for name, values in simulations.parameters.items():
        known = manifest.parameters[name]
        axes = (_AXES[0], *(f"{name}_{axis}" for axis in range(1, values.ndim)))
        yield name, values, axes, known["unit"], known["meaning"]
    yield "mask", simulations.mask, _AXES[1:], "", _BITS
    for name, cube in _cubes_of(simulations).items():
        yield name, cube, _AXES, *CUBES[name]


def _coordinates(simulations: Simulations) -> Iterator[Described]:
    """The values along the axes: those that are known."""
    for axis, (attribute, unit, meaning) in _COORDINATES.items():
        values = getattr(simulations, attribute)
        if values is not None:
            yield axis, values, (axis,), unit, meaning


def _write_hdf5(simulations: Simulations, manifest: "Manifest", path: Path) -> None:
    with writing_hdf5(path) as file:
        file.attrs.update(_attributes())
        parameters = file.create_group("parameters", track_order=True)
        for axis, values, _, unit, meaning in _coordinates(simulations):
            add_dataset(file, axis, values, meaning, unit)
            scale: Any = file[axis]
            scale.make_scale(axis)
        wavelength = _COORDINATES[WAVE]
        add_dataset(file, wavelength[0], simulations.wavelength, wavelength[2], wavelength[1], (WAVE,))
        for name, values, axes, unit, meaning in _arrays(simulations, manifest):
            options = {"chunks": (1, *values.shape[1:]), "fletcher32": True} if name in CUBES else {}
            group = parameters if name in simulations.parameters else file
            add_dataset(group, name, values, meaning, unit, axes, **options)
        file["config"] = manifest.config
        name_axes(file)


def _read_hdf5(path: Path, rows: slice, cubes: bool) -> Simulations:
    with opened_hdf5(path) as opened:
        file: Any = opened
        _check_attributes(file.attrs)
        arrays: dict[str, Any] = {name: numbers_of(file[name])[rows] for name in _NUMBERS}
        arrays |= {name: numbers_of(file[name]) for name in ("wavelength", "mask")}
        arrays |= {name: numbers_of(file[name]) for name in ("x", "y") if name in file}
        for name in CUBES:
            if not (cubes and name in file):
                continue
            if not file[name].fletcher32:
                raise ValueError(
                    f"{name}: has no checksum (fletcher32), with which every cube is written, so another program"
                    " replaced it; simulate again, or repack the file with checksums (h5repack -f FLET)"
                )
            arrays[name] = np.asarray(file[name][rows])
        return Simulations(
            **arrays,
            parameters={name: numbers_of(values)[rows] for name, values in file["parameters"].items()},
            units={name: str(values.attrs["unit"]) for name, values in file["parameters"].items()},
        )


def _write_zarr(simulations: Simulations, manifest: "Manifest", path: Path) -> None:
    zarr = import_zarr(_ZARR_PURPOSE)
    path.unlink(missing_ok=True)  # an empty file that keeps the name
    known = {"config": manifest.config, "parameters": list(simulations.parameters), ALL_STORED: True}
    group = zarr.create_group(path, zarr_format=3, attributes=_attributes() | known)
    for name, values, axes, unit, meaning in (*_coordinates(simulations), *_arrays(simulations, manifest)):
        chunks = (1, *values.shape[1:]) if name in CUBES else values.shape
        array = group.create_array(
            name,
            shape=values.shape,
            dtype=values.dtype,
            dimension_names=axes,
            attributes={"units": unit, "long_name": meaning},
            compressors=(zarr.codecs.Crc32cCodec(),),
            fill_value=0,
            config={"write_empty_chunks": True},  # a chunk that is missing is lost
            chunks=chunks,
            shards=values.shape if name in CUBES else None,
        )
        array[...] = values
    consolidate(group)


def _read_zarr(path: Path, rows: slice, cubes: bool) -> Simulations:
    check_store(path, (*CUBES, WAVE))
    group = import_zarr(_ZARR_PURPOSE).open_group(path, mode="r")
    _check_attributes(group.attrs)
    names = [str(name) for name in group.attrs["parameters"]]
    kept = [name for name in CUBES if cubes and name in group]
    arrays: dict[str, Any] = {name: np.asarray(group[name][rows]) for name in (*_NUMBERS, *kept)}
    arrays |= {name: np.asarray(group[name][...]) for name in ("mask", "x", "y") if name in group}
    return Simulations(
        **arrays,
        parameters={name: np.asarray(group[name][rows]) for name in names},
        units={name: str(group[name].attrs["units"]) for name in names},
        wavelength=np.asarray(group[WAVE][...]),
    )


_ZARR_PURPOSE = "simulate.files: zarr"

FORMATS: Mapping[str, ShardFormat] = {
    "hdf5": ShardFormat(".h5", _write_hdf5, _read_hdf5),
    "zarr": ShardFormat(FOLDER_SUFFIX, _write_zarr, _read_zarr, package="zarr"),
}
"""Formats that `simulate.files` can name."""

_LARGEST_MANIFEST, _MOST_FILES = 10**7, 10**7


@dataclass(frozen=True)
class Manifest:
    """The content of a folder of simulations: `n` of them, `shard` in a file, made from what has this `fingerprint`.

    `parameters`: name -> unit, meaning and prior (None: given draws) of each; `config`: the run's YAML; `files`: the
    format of its files.
    """

    n: int
    shard: int
    fingerprint: Mapping[str, str]
    parameters: Mapping[str, Mapping[str, Any]]
    config: str
    files: str = "hdf5"

    @property
    def n_file(self) -> int:
        """How many files there are when all is done."""
        return -(-self.n // self.shard)

    def ranges(self, number: int) -> tuple[int, int]:
        """First simulation of a file, and the one after the last."""
        return number * self.shard, min((number + 1) * self.shard, self.n)

    def files_in(self, folder: Path) -> list[Path]:
        """The files in a folder that have the names of this set's."""
        name = re.compile(rf"simulations_(\d{{5,}}){re.escape(FORMATS[self.files].suffix)}")
        found = ((path, name.fullmatch(path.name)) for path in sorted(folder.iterdir()))
        return [path for path, match in found if match and int(match[1]) < self.n_file]

    def write(self, folder: Path) -> None:
        """Write it into its folder, whole or not at all."""
        known = {name: word for name, word in _attributes().items() if name != "description"}
        with replacing(folder / SET_FILE) as temporary:
            temporary.write_text(json.dumps(known | vars(self), indent=1), encoding="utf-8")

    @staticmethod
    def read(folder: Path) -> "Manifest":
        """The manifest of a folder; FileNotFoundError where there is none, ValueError for one that cannot be read."""
        path = folder / SET_FILE
        if not path.is_file():
            sets = ", ".join(map(str, sets_in(folder)))
            remedy = f"give one of the sets in it ({sets})" if sets else "check the path (simulate.output)"
            raise FileNotFoundError(f"no simulations in {folder}: it has no {SET_FILE}; {remedy}")
        try:
            if path.stat().st_size > _LARGEST_MANIFEST:
                raise ValueError("it is larger than any that is written")
            found = json.loads(path.read_text(encoding="utf-8"))
            _check_attributes(found)
            named = {name: found[name] for name in Manifest.__annotations__ if name != "files" or name in found}
            manifest = Manifest(**named)
            if manifest.files not in FORMATS:
                raise ValueError(f"its files are {manifest.files!r}, a format of another version: 0.2.0 reads parquet")
            if not (type(manifest.n) is type(manifest.shard) is int and manifest.n > 0 < manifest.shard):
                raise ValueError("n and shard are no numbers above 0")
            if manifest.n_file > _MOST_FILES:
                raise ValueError(f"it states {manifest.n_file} files, more than {_MOST_FILES}")
            units = [parameter["unit"] for parameter in manifest.parameters.values()]
            if not all(isinstance(text, str) for text in (*units, *manifest.fingerprint.values())):
                raise ValueError("units or fingerprints are no text")
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            raise ValueError(
                f"{path} does not describe simulations ({reason_of(error)}); expected a file written by "
                f"rubix_like.simulate or `rubix-like simulate`"
            ) from error
        return manifest


def shard_path(folder: Path, number: int, files: str = "hdf5") -> Path:
    """The file of a number."""
    return folder / f"simulations_{number:05d}{FORMATS[files].suffix}"


def make_folder_of_sets(folder: Path) -> None:
    """Make the folder that several sets go into; raises ConfigError for a file, and for a folder that is a set."""
    if (folder / SET_FILE).exists():
        raise ConfigError(
            f"simulate.output: expected a folder for the sets of several observations, got '{folder}', which is a set; "
            f"choose another (output=...)"
        )
    _make_folder(folder)


def _make_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"simulate.output: expected a folder, got the file '{folder}'; choose another (output=...)")
    if not folder.is_dir():
        check_writable(folder, 0)
        folder.mkdir()


def open_folder(
    folder: Path, manifest: Manifest, n_bytes: int, *, restart: bool = False, overwrite: bool = False
) -> list[int]:
    """Make the folder ready; the numbers of the files that are still to be made.

    What is there is kept if it was made from the same, of the same seed; more simulations may be asked for. With
    `restart` it is made again, with `overwrite` only where it was made from something else. Raises ConfigError for a
    folder of others, OSError where `n_bytes` for each simulation cannot be written.
    """
    package = FORMATS[manifest.files].package
    if package is not None:
        import_optional(package, f"simulate.files: {manifest.files}")
    _make_folder(folder)
    shards = [shard_path(folder, number, manifest.files) for number in range(manifest.n_file)]
    remove_stale([folder / SET_FILE, *shards])
    found = Manifest.read(folder) if (folder / SET_FILE).exists() else None
    if found is None and any(not path.name.startswith(".") for path in folder.iterdir()):
        raise ConfigError(
            f"simulate.output: expected an empty folder, or one of simulations, got '{folder}' with other files; "
            f"choose another (output=...)"
        )
    before = [] if found is None else found.files_in(folder)
    problem = None if found is None or restart else _difference(folder, found, manifest)
    if problem is not None and not overwrite:
        raise ConfigError(f"{problem}. Write to another place (output=...), or replace it with overwrite=True")
    resume = not restart and problem is None
    others = [path for path in manifest.files_in(folder) if path not in before]
    others += [file for path in before for file in files_of_others(path)]
    if others:
        raise ConfigError(
            f"simulate.output: expected no file '{others[0]}', which would be replaced and is not one of those that "
            f"'{folder / SET_FILE}' describes; move it, or choose another folder (output=...)"
        )
    open_numbers = [number for number in range(manifest.n_file) if not (resume and _is_done(folder, manifest, number))]
    if open_numbers:
        left = sum(stop - start for start, stop in map(manifest.ranges, open_numbers))
        freed = 0 if resume else sum(output_bytes(path) or 0 for path in before)
        check_writable(shards[0], max(left * n_bytes - freed, 0))
    if not resume:
        for path in before:
            remove_output(path)
    if found is None or not resume or found.n != manifest.n:
        manifest.write(folder)
    return open_numbers


def _difference(folder: Path, found: Manifest, manifest: Manifest) -> str | None:
    """Why what is there does not go with the new, or None."""
    old, new = found.fingerprint, manifest.fingerprint
    other = [what for what in {**old, **new} if old.get(what) != new.get(what)]
    if found.files != manifest.files:
        other.append(f"format of the files (simulate.files: {found.files})")
    if found.shard != manifest.shard:
        other.append(f"simulations in a file (simulate.shard: {found.shard})")
    if other:
        return (
            f"{folder}: expected simulations of this configuration, got those of one that differs in: "
            f"{'; '.join(other)}"
        )
    if found.n > manifest.n:
        return f"{folder}: expected at most {manifest.n} simulations (simulate.n), got {found.n}"
    return None


def _is_done(folder: Path, manifest: Manifest, number: int) -> bool:
    """Whether a file is there with all its simulations; one that is damaged is made again."""
    try:
        kept = read_shard(shard_path(folder, number, manifest.files), cubes=False)
    except (FileNotFoundError, ValueError):
        return False
    return np.array_equal(kept.number, np.arange(*manifest.ranges(number)))


def write_shard(simulations: Simulations, manifest: Manifest, folder: Path, number: int) -> None:
    """Write the simulations of a file, whole or not at all; OSError with the remedy where they cannot be written."""
    with replacing(shard_path(folder, number, manifest.files)) as temporary:
        FORMATS[manifest.files].write(simulations, manifest, temporary)


def read_shard(path: Path, start: int = 0, stop: int | None = None, *, cubes: bool = True) -> Simulations:
    """Some of the simulations of a file, by their places in it, or (`cubes` False) their parameters alone.

    Raises ValueError for a file that is none of simulations.
    """
    if not path.exists():
        raise FileNotFoundError(f"no such simulations: {path}; check the path (simulate.output)")
    kind = "zarr" if path.name.endswith(FORMATS["zarr"].suffix) else "hdf5"
    try:
        return _checked(FORMATS[kind].read(path, slice(start, stop), cubes))
    except UNREADABLE as error:
        raise ValueError(
            f"{path} is not a complete file of simulations ({reason_of(error)}); expected one written by "
            f"rubix_like.simulate or `rubix-like simulate`, which makes it again once it is removed"
        ) from error


def _checked(simulations: Simulations) -> Simulations:
    """Raise ValueError where the arrays are not of the same simulations, or are no numbers."""
    count = len(simulations.number)
    shape = (count, *simulations.mask.shape)
    for name, values in simulations.parameters.items():
        if values.shape[:1] != (count,) or values.dtype.kind != "f" or not np.isfinite(values).all():
            raise ValueError(
                f"parameters, {name}: expected {count} finite values, got {values.dtype} of {values.shape}"
            )
    for name, cube in _cubes_of(simulations).items():
        if cube.shape != shape or cube.dtype.kind != "f":
            raise ValueError(f"{name}: expected numbers of shape {shape}, got {cube.dtype} of {cube.shape}")
    wave = simulations.wavelength
    if simulations.galaxy.shape != (count,) or wave.shape != shape[3:]:
        raise ValueError("galaxy, wavelength: expected as many as there are simulations and bins, got others")
    if not (np.isfinite(wave).all() and (wave > 0).all() and (np.diff(wave) > 0).all()):
        raise ValueError("wavelength: expected finite positive values in increasing order, got others")
    return simulations


def _missing(folder: Path, manifest: Manifest) -> list[int]:
    """The numbers of the files of a set that are not there; of those that are, nothing is read."""
    return [number for number in range(manifest.n_file) if not shard_path(folder, number, manifest.files).exists()]


@named_arguments
def load_simulations(folder: str | Path, start: int = 0, stop: int | None = None, *, cubes: bool = True) -> Simulations:
    """The simulations `start` to `stop` (exclusive; None: to the last) of a folder, as arrays on the host.

    `cubes`: False for the parameters alone. Raises FileNotFoundError where there are none, ValueError for a folder
    that is not complete or damaged, and for numbers that it does not have.
    """
    folder = Path(expect_path(folder, "folder", "the folder of a training set")).expanduser()
    manifest = Manifest.read(folder)
    last = manifest.n if stop is None else stop
    if not 0 <= start < last <= manifest.n:
        raise ValueError(f"{folder}: expected 0 <= start < stop <= {manifest.n}, got {start} and {last}")
    first_file, last_file = start // manifest.shard, (last - 1) // manifest.shard
    missing = [number for number in _missing(folder, manifest) if first_file <= number <= last_file]
    if missing:
        raise ValueError(
            f"{folder}: expected all of {counted(manifest.n_file, 'file')}, got none for number {missing[0]} and "
            f"{len(missing) - 1} others; call `rubix-like simulate` again, which goes on where it was stopped"
        )
    parts = []
    for number in range(first_file, last_file + 1):
        begin_at, end_at = manifest.ranges(number)
        path = shard_path(folder, number, manifest.files)
        parts.append(read_shard(path, max(start - begin_at, 0), min(last, end_at) - begin_at, cubes=cubes))
    found = join_simulations(parts)
    if not np.array_equal(found.number, np.arange(start, last)):
        raise ValueError(f"{folder}: expected simulations {start} to {last - 1}, got others; make them again")
    return replace(found, parameters={name: found.parameters[name] for name in manifest.parameters})


def describe_set(folder: Path) -> dict[str, str]:
    """The contents of a folder, by name and in words: how many simulations, of what shape, their parameters with ranges
    and priors, its files. Raises ValueError for a damaged one."""
    manifest = Manifest.read(folder)
    missing = set(_missing(folder, manifest))
    complete = [number for number in range(manifest.n_file) if number not in missing]
    paths = [shard_path(folder, number, manifest.files) for number in complete]
    count = sum(stop - start for start, stop in map(manifest.ranges, complete))
    left = f" of {manifest.n}; the same command makes the others" if missing else ""
    size = format_bytes(sum(output_bytes(path) or 0 for path in paths))
    found = {"simulations": f"{count}{left}", "seed": manifest.fingerprint.get("seed", "")}
    if paths:
        first = read_shard(paths[0], 0, 1)
        shape = " x ".join(map(str, first.mask.shape))
        found["cubes"] = f"{shape} (y, x, wavelength): {', '.join(_cubes_of(first))}"
        found["wavelengths"] = f"{first.wavelength[0]:.6g} to {first.wavelength[-1]:.6g} Angstrom"
    drawn = join_simulations([read_shard(path, cubes=False) for path in paths]) if paths else None
    for name, parameter in manifest.parameters.items():
        prior = "given draws"
        if parameter["prior"] is not None:
            prior = " ".join(f"{kind} {ends}" for kind, ends in parameter["prior"].items())
        unit = f" {parameter['unit']}" if parameter["unit"] else ""
        ends = "" if drawn is None else f"{np.min(drawn.parameters[name]):.4g} to {np.max(drawn.parameters[name]):.4g}"
        found[name] = f"{ends}{unit} ({prior})"
    if drawn is not None and drawn.galaxy.any():
        found["galaxies"] = f"{drawn.galaxy.max() + 1}, in turn"
    found["files"] = f"{len(paths)} ({manifest.files}), {size}, {manifest.shard} simulations in each"
    found["configuration"] = f"in {folder / SET_FILE}, as config"
    return found
