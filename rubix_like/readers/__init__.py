"""Galaxy readers: each turns the settings under `galaxy:` into a Galaxy and what is known of it."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from rubix_like.config import RunConfig, load_config
from rubix_like.config.models import Reader
from rubix_like.config.yaml_files import SUFFIXES
from rubix_like.errors import ConfigError, suggest
from rubix_like.galaxy import Galaxy, GalaxyInfo
from rubix_like.readers.field_map import KIND, field_map_names
from rubix_like.registry import Registry
from rubix_like.resources import resource_names
from rubix_like.ssp.library import SSPLibrary, load_ssp
from rubix_like.validation import validate

ConfigSource = str | Path | Mapping[str, Any] | RunConfig


READERS = Registry(
    "reader",
    "rubix_like.readers",
    {
        "synthetic": "rubix_like.readers.synthetic:SyntheticReader",
        "auto": "rubix_like.readers.snapshot:SnapshotReader",
    },
    needs=("model_validate", "load"),
)
"""A reader is a frozen settings model of the keys under `galaxy:`, with `load() -> (Galaxy, GalaxyInfo)`."""


def find_reader(name: str) -> Any:
    """The class behind `galaxy.reader`: a registered reader, or the one of snapshots for a simulation's field map.

    A field map is named, or given as the path of a .yaml file; the name of a packaged one cannot be taken over.
    Raises ConfigError with the nearest known name.
    """
    if name in READERS.names() and (name in READERS.builtin or name not in resource_names(KIND)):
        return READERS.find(name)
    if name in field_map_names() or Path(name).suffix in SUFFIXES:
        return READERS.find("auto")
    raise ConfigError(f"unknown reader '{name}'{suggest(name, reader_names())}")


def reader_names() -> tuple[str, ...]:
    """What `galaxy.reader` can be: the registered readers, then the simulations with a field map."""
    return tuple(dict.fromkeys((*READERS.names(), *field_map_names())))


def load(config: ConfigSource) -> tuple[Galaxy, GalaxyInfo]:
    """Read the galaxy of a run and check it (`validate`).

    `config` is a RunConfig or what `load_config` accepts. Where the file has no birth masses they are the current mass
    over the surviving fraction of the run's SSP library, or taken equal when the library has none;
    `GalaxyInfo.initial_mass` says which. Raises ConfigError for settings, FileNotFoundError, OSError or ValueError
    for data.
    """
    run = load_config(config)
    if run.galaxy is None:
        known = ", ".join(reader_names())
        raise ConfigError(f"galaxy: this configuration has none; add 'galaxy: {{reader: ...}}' (readers: {known})")
    galaxy, info = cast(Reader, run.galaxy).load()
    galaxy = validate(galaxy, info.universe_age)
    if info.initial_mass == "missing":
        galaxy, info = fill_initial_mass(galaxy, info, load_ssp(run))
    return galaxy, info


def load_galaxy(config: ConfigSource) -> Galaxy:
    """The particles of a run's galaxy (see `load`)."""
    return load(config)[0]


def load_galaxy_info(config: ConfigSource) -> GalaxyInfo:
    """What is known of a run's galaxy beside its particles (see `load`)."""
    return load(config)[1]


def fill_initial_mass(galaxy: Galaxy, info: GalaxyInfo, library: SSPLibrary) -> tuple[Galaxy, GalaxyInfo]:
    """Birth masses (Msun) from the current masses that `initial_mass` holds: m / f(age, Z), f the surviving fraction.

    f is bilinear in (log10 age, log10 Z) and clamped to the library's grid; without one, both masses are equal.
    """
    if library.surviving_fraction is None:
        text = f"taken equal to the current mass ({library.name} has no surviving fractions)"
        return galaxy, _with_origin(info, text)
    stars = galaxy.stars
    fraction = surviving_fraction(library, np.asarray(stars.log_age), np.asarray(stars.metallicity))
    birth = np.asarray(stars.initial_mass, dtype=np.float64) / fraction
    leaf = jnp.asarray(birth, dtype=jax.dtypes.canonicalize_dtype(float))
    text = f"current mass over the surviving fraction of {library.name}"
    stars = dataclasses.replace(stars, initial_mass=leaf)
    return Galaxy(stars=stars, gas=galaxy.gas), _with_origin(info, text)


def _with_origin(info: GalaxyInfo, text: str) -> GalaxyInfo:
    """The info with the origin of the birth masses, also as a note for the run's summary."""
    note = f"the file has no birth masses: {text}"
    return dataclasses.replace(info, initial_mass=text, notes=(*info.notes, note))


def surviving_fraction(
    library: SSPLibrary, log_age: Float[np.ndarray, " particle"], metallicity: Float[np.ndarray, " particle"]
) -> Float[np.ndarray, " particle"]:
    """Mass now (remnants included) over mass at birth, bilinear in (log10 age, log10 Z), clamped to the grid."""
    table = np.asarray(library.surviving_fraction, dtype=np.float64)
    log_metallicity = np.log10(np.maximum(np.asarray(metallicity, dtype=np.float64), 1e-30))
    row, z = _place(np.log10(np.asarray(library.metallicity)), log_metallicity)
    column, t = _place(np.asarray(library.log_age), np.asarray(log_age, dtype=np.float64))
    next_row, next_column = np.minimum(row + 1, table.shape[0] - 1), np.minimum(column + 1, table.shape[1] - 1)
    low = (1 - t) * table[row, column] + t * table[row, next_column]
    high = (1 - t) * table[next_row, column] + t * table[next_row, next_column]
    return (1 - z) * low + z * high


def _place(
    nodes: Float[np.ndarray, " node"], values: Float[np.ndarray, " particle"]
) -> tuple[np.ndarray, Float[np.ndarray, " particle"]]:
    """Index of the node at or below each value, clamped, and the fraction of the way to the next."""
    place = np.interp(values, nodes, np.arange(nodes.size, dtype=np.float64))
    left = np.minimum(place.astype(np.int64), max(nodes.size - 2, 0))
    return left, place - left
