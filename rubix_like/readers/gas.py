"""Derive missing gas temperatures and smoothing lengths from the other columns."""

from dataclasses import fields

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.galaxy.particles import CELL_RADII, Gas
from rubix_like.readers.fields.columns import Table
from rubix_like.readers.gas_temperature import (
    IONISED_FROM,
    PRIMORDIAL_HYDROGEN,
    assumed_temperature,
    gas_temperature,
)

_OPTIONAL = tuple(own.name for own in fields(Gas) if own.default is None and own.name != "weight")


def complete_gas(table: Table) -> tuple[Table, tuple[str, ...]]:
    """The columns of gas with temperature and smoothing length where they can be derived, and notes.

    Temperatures that the file has not come from the internal energy, with hydrogen 0.76 and `assumed_temperature` where
    fractions and electron abundance are missing; smoothing lengths from mass and density. A column that is known of
    some of the particles only is left out.
    """
    unknown = np.full(len(table["mass"]), np.nan)
    known = {name: table.get(name, unknown) for name in _OPTIONAL}
    temperature, assumed = _temperature(known)
    length = np.where(
        np.isnan(known["smoothing_length"]), cell_length(table["mass"], known["density"]), known["smoothing_length"]
    )
    found = known | {"temperature": temperature, "smoothing_length": length}
    partly = [name for name in _OPTIONAL if 0 < np.count_nonzero(np.isnan(found[name])) < unknown.size]
    kept = {name: values for name, values in found.items() if not np.isnan(values).any()}
    others = {name: values for name, values in table.items() if name not in _OPTIONAL}
    notes = [f"{name} of the gas left out: only some of it has one" for name in partly]
    if assumed.any() and "temperature" in kept:
        notes.append(
            f"gas temperatures take gas as neutral below {IONISED_FROM:g} K and ionised above: the file has no "
            f"electron abundance of {np.count_nonzero(assumed)} of {assumed.size} particles"
        )
    return others | kept, tuple(notes)


def _temperature(known: Table) -> tuple[Float[ndarray, " particle"], Bool[ndarray, " particle"]]:
    """Temperatures (K, NaN where nothing tells them) and which of them rest on the assumption on ionisation."""
    stored, energy, electrons = (known[name] for name in ("temperature", "internal_energy", "electron_abundance"))
    hydrogen = np.where(np.isnan(known["hydrogen_fraction"]), PRIMORDIAL_HYDROGEN, known["hydrogen_fraction"])
    derived = np.isnan(stored) & ~np.isnan(energy)
    assumed = derived & np.isnan(electrons)
    computed = np.where(
        assumed, assumed_temperature(energy, hydrogen), gas_temperature(energy, np.nan_to_num(electrons), hydrogen)
    )
    return np.where(derived, computed, stored), assumed


def cell_length(mass: Float[ndarray, " particle"], density: Float[ndarray, " particle"]) -> Float[ndarray, " particle"]:
    """Smoothing length in kpc, 2 (3 m / (4 pi rho))^(1/3): twice the radius of a sphere of the cell's volume.

    NaN where the density is 0 or unknown. Mass in Msun, density in Msun / kpc^3.
    """
    volume = mass / np.where(density > 0, density, np.nan)
    return CELL_RADII * np.cbrt(3 * volume / (4 * np.pi))
