"""Derive missing gas temperatures and smoothing lengths from the other columns."""

from dataclasses import fields

import numpy as np
from astropy import constants, units
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.galaxy.particles import CELL_RADII, Gas
from rubix_like.readers.fields.columns import Table

ADIABATIC_INDEX: float = 5 / 3

PRIMORDIAL_HYDROGEN: float = 0.76
"""Hydrogen mass fraction where the file has none."""

KELVIN_PER_ENERGY: float = float((constants.m_p / constants.k_B * units.Unit("km2 / s2")).to_value(units.K))  # pyright: ignore[reportAttributeAccessIssue]
"""m_p / k_B times 1 (km/s)^2: 121.15 K."""

IONISED_FROM: float = 1e4
"""K: the temperature at which hydrogen and helium are taken to be ionised where the file has no electron abundance."""

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


def assumed_temperature(
    internal_energy: Float[ndarray, " particle"], hydrogen_fraction: Float[ndarray, " particle"]
) -> Float[ndarray, " particle"]:
    """Temperature in K of gas that is neutral below 1e4 K and fully ionised (hydrogen and helium) above; u in (km/s)^2.

    Between the energies of neutral and of ionised gas at 1e4 K the temperature stays there, while it is ionised. Fully
    ionised: x_e = 1 + (1 - X) / (2 X), metals being counted with helium.
    """
    full = 1 + (1 - hydrogen_fraction) / (2 * np.maximum(hydrogen_fraction, 1e-3))
    neutral = gas_temperature(internal_energy, np.zeros_like(internal_energy), hydrogen_fraction)
    ionised = gas_temperature(internal_energy, full, hydrogen_fraction)
    return np.maximum(ionised, np.minimum(neutral, IONISED_FROM))


def cell_length(mass: Float[ndarray, " particle"], density: Float[ndarray, " particle"]) -> Float[ndarray, " particle"]:
    """Smoothing length in kpc, 2 (3 m / (4 pi rho))^(1/3): twice the radius of a sphere of the cell's volume.

    NaN where the density is 0 or unknown. Mass in Msun, density in Msun / kpc^3.
    """
    volume = mass / np.where(density > 0, density, np.nan)
    return CELL_RADII * np.cbrt(3 * volume / (4 * np.pi))


def gas_temperature(
    internal_energy: Float[ndarray, " particle"],
    electron_abundance: Float[ndarray, " particle"],
    hydrogen_fraction: Float[ndarray, " particle"] | float,
) -> Float[ndarray, " particle"]:
    """Temperature in K: T = (gamma - 1) u mu m_p / k_B, mu = 4 / (1 + 3 X + 4 X x_e) (TNG FAQ), u in (km/s)^2."""
    mean_weight = 4 / (1 + 3 * hydrogen_fraction + 4 * hydrogen_fraction * electron_abundance)
    return (ADIABATIC_INDEX - 1) * internal_energy * mean_weight * KELVIN_PER_ENERGY
