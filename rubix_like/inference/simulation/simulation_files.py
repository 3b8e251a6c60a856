"""A training set on the disk: a folder of HDF5 files of equal numbers of simulations, and what they were made from."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy import ndarray

from rubix_like.errors import ConfigError
from rubix_like.inference.described_trees import add_dataset, numbers_of
from rubix_like.inference.simulation.simulations import Simulations, join_simulations
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.hdf5_files import opened_hdf5
from rubix_like.runtime.files.outputs import check_writable, replacing
from rubix_like.runtime.files.writers import CREATOR, SIMULATIONS
from rubix_like.runtime.files.writing_date import date_words
from rubix_like.runtime.words import counted, reason_of

MANIFEST: str = "simulations.json"

_LAYOUT = 1
_LARGEST_MANIFEST = 10**7

_FLUX = "1e-20 erg s-1 cm-2 Angstrom-1"
_ARRAYS: Mapping[str, tuple[str, str]] = {
    "flux": (_FLUX, "flux of each spaxel per Angstrom: simulation, y, x, wave"),
    "variance": ("1e-40 erg2 s-2 cm-4 Angstrom-2", "variance of the flux: simulation, y, x, wave"),
    "truth": (_FLUX, "flux without its noise: simulation, y, x, wave"),
}
_SHARED: Mapping[str, tuple[str, str]] = {
    "wavelength": ("Angstrom", "centres of the bins"),
    "mask": ("", "bits: 0 good, 1 outside the SSP library, 2 outside the aperture, 4 end of the detector"),
}
"""Name of an array -> its unit and meaning."""


@dataclass(frozen=True)
class Manifest:
    """What a folder of simulations holds: `n` of them, `shard` in a file, made from what has this `fingerprint`.

    `parameters`: name -> unit, meaning and prior (None: given draws) of each; `config`: the run's YAML.
    """

    n: int
    shard: int
    fingerprint: Mapping[str, str]
    parameters: Mapping[str, Mapping[str, Any]]
    config: str

    @property
    def n_file(self) -> int:
        """How many files there are when all is done."""
        return -(-self.n // self.shard)

    def ranges(self, number: int) -> tuple[int, int]:
        """First simulation of a file, and the one after the last."""
        return number * self.shard, min((number + 1) * self.shard, self.n)

    def write(self, folder: Path) -> None:
        """Write it into its folder, whole or not at all."""
        known = {"format": SIMULATIONS, "layout": _LAYOUT, "creator": CREATOR, "date": date_words()}
        with replacing(folder / MANIFEST) as temporary:
            temporary.write_text(json.dumps(known | vars(self), indent=1), encoding="utf-8")

    @staticmethod
    def read(folder: Path) -> "Manifest":
        """That of a folder; FileNotFoundError where there is none, ValueError for one that cannot be read."""
        path = folder / MANIFEST
        if not path.is_file():
            raise FileNotFoundError(
                f"no simulations in {folder}: it has no {MANIFEST}; check the path (simulate.output)"
            )
        try:
            if path.stat().st_size > _LARGEST_MANIFEST:
                raise ValueError("it is larger than any that is written")
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["format"] != SIMULATIONS or found["layout"] != _LAYOUT:
                raise ValueError(f"its layout is {found['layout']!r} of {found['format']!r}, that of another version")
            manifest = Manifest(*(found[name] for name in Manifest.__annotations__))
            if not (type(manifest.n) is type(manifest.shard) is int and manifest.n > 0 < manifest.shard):
                raise ValueError("n and shard are no numbers above 0")
            units = [own["unit"] for own in manifest.parameters.values()]
            if not all(isinstance(own, str) for own in (*units, *manifest.fingerprint.values())):
                raise ValueError("units or fingerprints are no text")
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            raise ValueError(
                f"{path} does not describe simulations ({reason_of(error)}); expected a file written by "
                f"rubix_like.simulate or `rubix-like simulate`"
            ) from error
        return manifest


def shard_path(folder: Path, number: int) -> Path:
    """The file of a number."""
    return folder / f"simulations_{number:05d}.h5"


def open_folder(folder: Path, manifest: Manifest, n_bytes: int, *, resume: bool) -> list[int]:
    """Make the folder ready; the numbers of the files that are still to be made.

    What is there is kept if it was made from the same, of the same seed; more simulations may be asked for. Raises
    ConfigError for a folder of others, OSError where `n_bytes` for each simulation cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"simulate.output: expected a folder, got the file '{folder}'; choose another (--output)")
    if not folder.is_dir():
        check_writable(folder, 0)
        folder.mkdir()
    if not resume:
        _clear(folder)
    found = _made_before(folder, manifest)
    open_numbers = [number for number in range(manifest.n_file) if not _is_done(folder, manifest, number)]
    if open_numbers:
        left = sum(stop - start for start, stop in map(manifest.ranges, open_numbers))
        check_writable(shard_path(folder, 0), left * n_bytes)
    if found is None or found.n != manifest.n:
        manifest.write(folder)
    return open_numbers


def _clear(folder: Path) -> None:
    """Remove the simulations of a folder, the manifest first."""
    for path in (folder / MANIFEST, *folder.glob("simulations_*.h5")):
        path.unlink(missing_ok=True)


def _made_before(folder: Path, manifest: Manifest) -> Manifest | None:
    """The manifest that is there; None in an empty folder. ConfigError where what is there does not go with the new."""
    remedy = (
        "Write to another place (--output), or start anew with --restart (in Python resume=False), which replaces it"
    )
    if not (folder / MANIFEST).exists():
        if any(own for own in folder.iterdir() if not own.name.startswith(".")):
            raise ConfigError(
                f"simulate.output: expected an empty folder, or one of simulations, got '{folder}' with other files; "
                f"choose another (--output)"
            )
        return None
    found = Manifest.read(folder)
    old, new = found.fingerprint, manifest.fingerprint
    other = [what for what in {**old, **new} if old.get(what) != new.get(what)]
    if found.shard != manifest.shard:
        other.append(f"simulations in a file (simulate.shard: {found.shard})")
    if other:
        raise ConfigError(
            f"{folder}: expected simulations of this configuration, got those of one that differs in: "
            f"{'; '.join(other)}. {remedy}"
        )
    if found.n > manifest.n:
        raise ConfigError(f"{folder}: expected at most {manifest.n} simulations (simulate.n), got {found.n}. {remedy}")
    return found


def _is_done(folder: Path, manifest: Manifest, number: int) -> bool:
    """Whether a file is there with all its simulations; one that is damaged is made again."""
    path, (start, stop) = shard_path(folder, number), manifest.ranges(number)
    if not path.is_file():
        return False
    try:
        with opened_hdf5(path, whole=False) as file:
            return np.array_equal(numbers_of(file["number"]), np.arange(start, stop))
    except (*UNREADABLE, KeyError):
        return False


def write_shard(made: Simulations, manifest: Manifest, path: Path) -> None:
    """Write simulations, whole or not at all; OSError with the remedy where they cannot be written."""
    with replacing(path) as temporary:
        try:
            with h5py.File(temporary, "w", rdcc_nbytes=0) as file:
                known = {"format": SIMULATIONS, "layout": _LAYOUT, "creator": CREATOR, "date": date_words()}
                file.attrs.update({**known, "description": "simulated cubes and their random parameters"})
                _fill(made, manifest, file)
        except RuntimeError as error:  # from closing a file that could not be written, the OSError its context
            raise OSError(f"HDF5: {error}") from error


def _fill(made: Simulations, manifest: Manifest, file: Any) -> None:
    add_dataset(file, "number", made.number, "number of each simulation in the set, from 0")
    add_dataset(file, "galaxy", made.galaxy, "which of several galaxies each shows")
    parameters = file.create_group("parameters", track_order=True)
    for name, values in made.parameters.items():
        own = manifest.parameters[name]
        add_dataset(parameters, name, values, own["meaning"], own["unit"])
    for name, (unit, meaning) in _SHARED.items():
        add_dataset(file, name, getattr(made, name), meaning, unit)
    for name, (unit, meaning) in _ARRAYS.items():
        values = getattr(made, name)
        if values is not None:
            values = np.asarray(values)
            add_dataset(file, name, values, meaning, unit, chunks=(1, *values.shape[1:]), fletcher32=True)
    file["config"] = manifest.config


def read_shard(path: Path, start: int = 0, stop: int | None = None) -> Simulations:
    """Some of the simulations of a file, by their places in it; ValueError for a file that is none of them."""
    if not path.is_file():
        raise FileNotFoundError(f"no such simulations: {path}; check the path (simulate.output)")
    try:
        with opened_hdf5(path) as file:
            if file.attrs.get("format") != SIMULATIONS or file.attrs.get("layout") != _LAYOUT:
                raise ValueError(f"its attribute 'format' is {file.attrs.get('format')!r}, not {SIMULATIONS!r}")
            return _checked(_parsed(file, slice(start, stop)))
    except UNREADABLE as error:
        raise ValueError(
            f"{path} is not a complete file of simulations ({reason_of(error)}); expected an HDF5 file written by "
            f"rubix_like.simulate or `rubix-like simulate`, which makes it again once it is removed"
        ) from error


def _parsed(file: Any, chosen: slice) -> Simulations:
    parameters = file["parameters"]
    return Simulations(
        number=numbers_of(file["number"])[chosen],
        galaxy=numbers_of(file["galaxy"])[chosen],
        parameters={name: numbers_of(own, finite=True)[chosen] for name, own in parameters.items()},
        units={name: str(own.attrs["unit"]) for name, own in parameters.items()},
        **{name: numbers_of(file[name]) for name in _SHARED},
        **{name: _part(file[name], chosen) for name in _ARRAYS if name in file},
    )


def _part(dataset: Any, chosen: slice) -> ndarray:
    if dataset.dtype.kind != "f":
        raise ValueError(f"{dataset.name}: expected numbers, got {dataset.dtype}")
    return dataset[chosen]


def _checked(made: Simulations) -> Simulations:
    """Raise ValueError where the arrays are not of the same simulations."""
    count = len(made.number)
    shape = (count, *made.mask.shape)
    for name, own in made.parameters.items():
        if own.shape[:1] != (count,):
            raise ValueError(f"parameters/{name}: expected {count} values, got shape {own.shape}")
    for name in _ARRAYS:
        own = getattr(made, name)
        if own is not None and own.shape != shape:
            raise ValueError(f"{name}: expected shape {shape}, got {own.shape}")
    if made.galaxy.shape != (count,) or made.wavelength.shape != made.mask.shape[2:]:
        raise ValueError("galaxy, wavelength: expected as many as there are simulations and bins, got others")
    return made


def load_simulations(folder: str | Path, start: int = 0, stop: int | None = None, *, cubes: bool = True) -> Simulations:
    """The simulations `start` to `stop` (exclusive; None: to the last) of a folder, as arrays on the host.

    `cubes`: False for the parameters alone. Raises FileNotFoundError where there are none, ValueError for a folder
    that is not complete or damaged, and for numbers that it does not have.
    """
    folder = Path(folder).expanduser()
    manifest = Manifest.read(folder)
    last = manifest.n if stop is None else stop
    if not 0 <= start < last <= manifest.n:
        raise ValueError(f"{folder}: expected 0 <= start < stop <= {manifest.n}, got {start} and {last}")
    first_file, last_file = start // manifest.shard, (last - 1) // manifest.shard
    missing = [own for own in range(first_file, last_file + 1) if not shard_path(folder, own).is_file()]
    if missing:
        raise ValueError(
            f"{folder}: expected all of {counted(manifest.n_file, 'file')}, got none for number {missing[0]} and "
            f"{len(missing) - 1} others; call `rubix-like simulate` again, which goes on where it was stopped"
        )
    parts = []
    for number in range(first_file, last_file + 1):
        begin_at, end_at = manifest.ranges(number)
        part = read_shard(shard_path(folder, number), max(start - begin_at, 0), min(last, end_at) - begin_at)
        parts.append(part if cubes else part.without_cubes())
    made = join_simulations(parts)
    if not np.array_equal(made.number, np.arange(start, last)):
        raise ValueError(f"{folder}: expected simulations {start} to {last - 1}, got others; make them again")
    return replace(made, parameters={name: made.parameters[name] for name in manifest.parameters})
