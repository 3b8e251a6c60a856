"""Temperatures of gas from its internal energy, with the electron abundance or an assumption on it."""

import numpy as np
from astropy import constants, units
from jaxtyping import Float
from numpy import ndarray

ADIABATIC_INDEX: float = 5 / 3

PRIMORDIAL_HYDROGEN: float = 0.76
"""Hydrogen mass fraction where the file has none."""

KELVIN_PER_ENERGY: float = float((constants.m_p / constants.k_B * units.Unit("km2 / s2")).to_value(units.K))  # pyright: ignore[reportAttributeAccessIssue]
"""m_p / k_B times 1 (km/s)^2: 121.15 K."""

IONISED_FROM: float = 1e4
"""K: the temperature at which hydrogen and helium are taken to be ionised where the file has no electron abundance."""


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


def gas_temperature(
    internal_energy: Float[ndarray, " particle"],
    electron_abundance: Float[ndarray, " particle"],
    hydrogen_fraction: Float[ndarray, " particle"] | float,
) -> Float[ndarray, " particle"]:
    """Temperature in K: T = (gamma - 1) u mu m_p / k_B, mu = 4 / (1 + 3 X + 4 X x_e) (TNG FAQ), u in (km/s)^2."""
    mean_weight = 4 / (1 + 3 * hydrogen_fraction + 4 * hydrogen_fraction * electron_abundance)
    return (ADIABATIC_INDEX - 1) * internal_energy * mean_weight * KELVIN_PER_ENERGY
