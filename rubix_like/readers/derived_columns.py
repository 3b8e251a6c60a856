"""Ages of stars and temperatures of gas, from what a file has of them."""

from collections.abc import Collection

import numpy as np
from astropy import constants, units
from jaxtyping import Float
from numpy import ndarray

from rubix_like.galaxy.limits import require
from rubix_like.physics.cosmology import age_table, find_cosmology
from rubix_like.readers.fields.field_map import Table
from rubix_like.readers.fields.snapshot_particles import Snapshot

BIRTHS = ("birth_scale_factor", "birth_redshift", "birth_time")
"""Births, of which codes use negative numbers as marks of stars of the initial conditions and of winds."""

SOURCES = (*BIRTHS, "lookback_time", "age", "log_age")
"""Quantities that ages come from, the first that a table has being taken."""

LOOKBACK_SLACK: float = 1e6
"""Years by which a lookback time may be shorter than that of the snapshot: rounding in its redshift."""


def age_source(known: Collection[str]) -> str | None:
    """Which of these quantities the ages come from; None for none."""
    return next((name for name in SOURCES if name in known), None)


def log_ages(snapshot: Snapshot, table: Table) -> Float[ndarray, " particle"] | None:
    """log10(age / yr), an age below 1 yr being 0; None without any ages.

    NaN for stars whose group has no ages and where a birth is negative, which is a mark and no number. Raises
    ValueError for births after the snapshot.
    """
    source = age_source(table)
    if source is None:
        return None
    place = f"{snapshot.container.name}: {snapshot.field_name('stars', source, '/'.join(snapshot.groups('stars')))}"
    stored = table[source]
    known = np.isfinite(stored) & ((stored >= 0) | (source not in BIRTHS))
    result = np.full(stored.shape, np.nan)
    result[known] = stored[known] if source == "log_age" else np.log10(_ages(snapshot, source, stored[known], place))
    return result


def _ages(snapshot: Snapshot, source: str, stored: ndarray, place: str) -> Float[ndarray, " particle"]:
    """Ages in yr, at least 1."""
    if source in {"birth_scale_factor", "birth_redshift"}:
        cosmology = snapshot.epoch.cosmology
        assert cosmology is not None
        stored = 1.0 / (1.0 + stored) if source == "birth_redshift" else stored
        return np.maximum(age_table(cosmology, snapshot.epoch.scale_factor).stellar_age(stored, place), 1.0)
    age, slack = stored, 0.0
    if source == "lookback_time":
        since = find_cosmology("Planck15").lookback_time(snapshot.epoch.redshift)  # pyright: ignore[reportAttributeAccessIssue]
        age, slack = stored - float(since.to_value("yr")), LOOKBACK_SLACK
    elif source == "birth_time":
        age, slack = snapshot.now - stored, 1e-6 * abs(snapshot.now)
    require(age >= -slack, stored, place, "births before the snapshot", "is the Header of another snapshot?")
    return np.maximum(age, 1.0)


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
