"""What files do not keep of gas but its other quantities tell."""

from astropy import constants, units
from jaxtyping import Float
from numpy import ndarray

ADIABATIC_INDEX: float = 5 / 3

PRIMORDIAL_HYDROGEN: float = 0.76
"""Hydrogen mass fraction where the file has none."""

KELVIN_PER_ENERGY: float = float((constants.m_p / constants.k_B * units.Unit("km2 / s2")).to_value(units.K))  # pyright: ignore[reportAttributeAccessIssue]
"""m_p / k_B times 1 (km/s)^2: 121.15 K."""


def gas_temperature(
    internal_energy: Float[ndarray, " particle"],
    electron_abundance: Float[ndarray, " particle"],
    hydrogen_fraction: Float[ndarray, " particle"] | float,
) -> Float[ndarray, " particle"]:
    """Temperature in K: T = (gamma - 1) u mu m_p / k_B, mu = 4 / (1 + 3 X + 4 X x_e) (TNG FAQ), u in (km/s)^2."""
    mean_weight = 4 / (1 + 3 * hydrogen_fraction + 4 * hydrogen_fraction * electron_abundance)
    return (ADIABATIC_INDEX - 1) * internal_energy * mean_weight * KELVIN_PER_ENERGY
