"""Derive masses at birth from current masses with the SSP library's surviving fraction."""

import dataclasses

import jax
import numpy as np
from jaxtyping import Bool, Float

from rubix_like.galaxy.particles import Galaxy, GalaxyInfo
from rubix_like.ssp.library import SSPLibrary

Lacking = Bool[np.ndarray, " particle"]


def without_birth_mass(galaxy: Galaxy) -> tuple[Galaxy, Lacking]:
    """The galaxy with current masses where birth masses are unknown (NaN), and which stars those are."""
    stars = galaxy.stars
    lacking = np.isnan(np.asarray(stars.initial_mass))
    if stars.mass is None or not lacking.any():
        return galaxy, np.zeros_like(lacking)
    mass = np.where(lacking, np.asarray(stars.mass), np.asarray(stars.initial_mass))
    return _with_birth_mass(galaxy, mass), lacking


def fill_initial_mass(
    galaxy: Galaxy, info: GalaxyInfo, lacking: Lacking, library: SSPLibrary
) -> tuple[Galaxy, GalaxyInfo]:
    """Birth masses (Msun) of the stars `lacking` them, whose `initial_mass` is the current mass m: m / f(age, Z).

    f is the surviving fraction, bilinear in (log10 age, log10 Z) and clamped to the library's grid; without one, both
    masses are equal.
    """
    info = with_birth_mass_origin(info, library, share_of(int(np.count_nonzero(lacking)), lacking.size))
    if library.surviving_fraction is None:
        return galaxy, info
    stars = galaxy.stars
    log_age, metallicity = np.asarray(stars.log_age)[lacking], np.asarray(stars.metallicity)[lacking]
    birth = np.array(stars.initial_mass, dtype=np.float64)
    birth[lacking] /= surviving_fraction(library, log_age, metallicity)
    return _with_birth_mass(galaxy, birth), info


MISSING: str = "missing"
"""What `GalaxyInfo.initial_mass` is where birth masses are to be filled in, followed by `share_of` the stars."""


def birth_mass_origin(library: SSPLibrary) -> str:
    """Where birth masses come from that a file has not, in a few words."""
    if library.surviving_fraction is None:
        return f"taken equal to the current mass ({library.name} has no surviving fractions)"
    return f"current mass over the surviving fraction of {library.name}"


def _with_birth_mass(galaxy: Galaxy, mass: Float[np.ndarray, " particle"]) -> Galaxy:
    leaf = jax.device_put(np.array(mass, jax.dtypes.canonicalize_dtype(float)))
    return Galaxy(stars=dataclasses.replace(galaxy.stars, initial_mass=leaf), gas=galaxy.gas)


def share_of(n_lacking: int, n_stars: int) -> str:
    """How many stars lack birth masses, in words that follow others; none where all of them do."""
    return "" if n_lacking == n_stars else f"; {n_lacking} of {n_stars} stars"


def with_birth_mass_origin(info: GalaxyInfo, library: SSPLibrary, share: str) -> GalaxyInfo:
    """Return the info with the origin of birth masses, also as a note; `share` says how many stars lack them."""
    text = birth_mass_origin(library)
    note = f"the file has no birth masses{' of some stars' if share else ''}: {text}{share}"
    return dataclasses.replace(info, initial_mass=text + share, notes=(*info.notes, note))


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
