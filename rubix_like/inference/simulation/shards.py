"""What a file of simulations holds, whatever its format, and the formats."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from rubix_like.inference.simulation.simulations import Simulations
from rubix_like.runtime.files.outputs import date_words
from rubix_like.runtime.files.writers import CREATOR, SIMULATIONS

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
    """What all files of a set say: name -> unit and meaning of each parameter; the run's YAML."""

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
    """What every file says of itself."""
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
    for name, own in made.parameters.items():
        if own.shape[:1] != (count,) or own.dtype.kind != "f" or not np.isfinite(own).all():
            raise ValueError(f"parameters, {name}: expected {count} finite values, got {own.dtype} of {own.shape}")
    for name, own in kept_cubes(made).items():
        if own.shape != shape or own.dtype.kind != "f":
            raise ValueError(f"{name}: expected numbers of shape {shape}, got {own.dtype} of {own.shape}")
    if made.galaxy.shape != (count,) or made.wavelength.shape != made.mask.shape[2:]:
        raise ValueError("galaxy, wavelength: expected as many as there are simulations and bins, got others")
    return made
