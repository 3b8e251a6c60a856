"""A training set on the disk: a folder of files of equal numbers of simulations, and what they were made from."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rubix_like.arguments import named_arguments
from rubix_like.errors import ConfigError, expect_path
from rubix_like.inference.simulation.shards import (
    HDF5,
    LAYOUT,
    ZARR,
    SetDescription,
    ShardFormat,
    Simulations,
    checked_simulations,
    join_simulations,
    kept_cubes,
)
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.outputs import (
    check_writable,
    date_words,
    files_of_others,
    output_bytes,
    remove_output,
    remove_stale,
    replacing,
)
from rubix_like.runtime.files.writers import CREATOR, SET_FILE, SIMULATIONS, sets_in
from rubix_like.runtime.optional_packages import import_optional
from rubix_like.runtime.words import counted, format_bytes, reason_of

_LARGEST_MANIFEST = 10**7
_MOST_FILES = 10**7

FORMATS: Mapping[str, ShardFormat] = {"hdf5": HDF5, "zarr": ZARR}
"""What `simulate.files` can be."""


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
        known = {"format": SIMULATIONS, "layout": LAYOUT, "creator": CREATOR, "date": date_words()}
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
            if found["format"] != SIMULATIONS or found["layout"] != LAYOUT:
                raise ValueError(f"its layout is {found['layout']!r} of {found['format']!r}, that of another version")
            named = {name: found[name] for name in Manifest.__annotations__ if name != "files" or name in found}
            manifest = Manifest(**named)
            if manifest.files not in FORMATS:
                raise ValueError(f"its files are {manifest.files!r}, a format of another version: 0.2.0 reads parquet")
            if not (type(manifest.n) is type(manifest.shard) is int and manifest.n > 0 < manifest.shard):
                raise ValueError("n and shard are no numbers above 0")
            if manifest.n_file > _MOST_FILES:
                raise ValueError(f"it states {manifest.n_file} files, more than {_MOST_FILES}")
            units = [parameter["unit"] for parameter in manifest.parameters.values()]
            if not all(isinstance(own, str) for own in (*units, *manifest.fingerprint.values())):
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
    path, (start, stop) = shard_path(folder, number, manifest.files), manifest.ranges(number)
    if not path.exists():
        return False
    try:
        return np.array_equal(FORMATS[manifest.files].numbers(path), np.arange(start, stop))
    except UNREADABLE:
        return False


def write_shard(made: Simulations, manifest: Manifest, folder: Path, number: int) -> None:
    """Write the simulations of a file, whole or not at all; OSError with the remedy where they cannot be written."""
    of_set = SetDescription(manifest.parameters, manifest.config)
    with replacing(shard_path(folder, number, manifest.files)) as temporary:
        FORMATS[manifest.files].write(made, of_set, temporary)


def read_shard(path: Path, start: int = 0, stop: int | None = None, *, cubes: bool = True) -> Simulations:
    """Some of the simulations of a file, by their places in it, or (`cubes` False) their parameters alone.

    Raises ValueError for a file that is none of simulations.
    """
    if not path.exists():
        raise FileNotFoundError(f"no such simulations: {path}; check the path (simulate.output)")
    chosen = ZARR if path.name.endswith(ZARR.suffix) else HDF5
    try:
        return checked_simulations(chosen.read(path, slice(start, stop), cubes))
    except UNREADABLE as error:
        raise ValueError(
            f"{path} is not a complete file of simulations ({reason_of(error)}); expected one written by "
            f"rubix_like.simulate or `rubix-like simulate`, which makes it again once it is removed"
        ) from error


def missing_files(folder: Path, manifest: Manifest) -> list[int]:
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
    missing = [number for number in missing_files(folder, manifest) if first_file <= number <= last_file]
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
    made = join_simulations(parts)
    if not np.array_equal(made.number, np.arange(start, last)):
        raise ValueError(f"{folder}: expected simulations {start} to {last - 1}, got others; make them again")
    return replace(made, parameters={name: made.parameters[name] for name in manifest.parameters})


def describe_set(folder: Path) -> dict[str, str]:
    """The contents of a folder, by name and in words: how many simulations, of what shape, their parameters with ranges
    and priors, its files. Raises ValueError for a damaged one."""
    manifest = Manifest.read(folder)
    missing = set(missing_files(folder, manifest))
    made = [number for number in range(manifest.n_file) if number not in missing]
    paths = [shard_path(folder, number, manifest.files) for number in made]
    n_made = sum(stop - start for start, stop in map(manifest.ranges, made))
    left = f" of {manifest.n}; the same command makes the others" if missing else ""
    size = format_bytes(sum(output_bytes(path) or 0 for path in paths))
    found = {"simulations": f"{n_made}{left}", "seed": manifest.fingerprint.get("seed", "")}
    if made:
        first = read_shard(paths[0], 0, 1)
        shape = " x ".join(map(str, first.mask.shape))
        found["cubes"] = f"{shape} (y, x, wavelength): {', '.join(kept_cubes(first))}"
        found["wavelengths"] = f"{first.wavelength[0]:.6g} to {first.wavelength[-1]:.6g} Angstrom"
    drawn = join_simulations([read_shard(path, cubes=False) for path in paths]) if made else None
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
