"""Limits of what the quantities of particles can be, and checks of arrays against them (numpy alone, no JAX)."""

from typing import Any

import numpy as np

LARGEST_LOG_AGE: float = 10.3
"""20 Gyr: above it the numbers are no log10(age / yr) of any star."""

SMALLEST_METALLICITY: float = -1e-12
"""Negative mass fractions down to here are rounding of the simulation and become 0."""

LARGEST: dict[str, float] = {
    "position": 1e7,
    "velocity": 299792.458,
    "mass": 1e15,
    "initial_mass": 1e15,
    "birth_scale_factor": 1e3,
    "birth_time": 1e13,
    "lookback_time": 1e13,
    "age": 1e13,
    "log_age": 1e3,
    "metallicity": 1e3,
    "smoothing_length": 1e7,
    "density": 1.5e31,
    "temperature": 1e12,
    "internal_energy": 8.98755e10,
    "electron_abundance": 10.0,
    "star_formation_rate": 1e9,
    "hydrogen_fraction": 1e3,
    "oxygen_fraction": 1e3,
    "hi_fraction": 1e3,
    "h2_fraction": 1e3,
    "dust_mass": 1e15,
    "random_velocity": 299792.458,
    "east": 648000.0,
    "north": 648000.0,
    "tilt": 360.0,
    "twist": 360.0,
    "line_light": 1e30,
}
"""Magnitudes that no particle of any simulation reaches, in the units of the readers (kpc, km/s, Msun, yr, K):
10 Gpc, the speed of light and its square, a rich cluster of galaxies in one particle, 1 g/cm3, eight times the
electrons of ionised hydrogen and helium. Beyond them the numbers are in another unit, or damaged. Fractions and
logarithms are checked closely in `validate`."""

FRACTIONS = ("metallicity", "hydrogen_fraction", "oxygen_fraction", "hi_fraction", "h2_fraction")
NOT_NEGATIVE = (
    "initial_mass",
    "mass",
    "smoothing_length",
    "weight",
    "temperature",
    "density",
    "internal_energy",
    "electron_abundance",
    "star_formation_rate",
    "dust_mass",
    "line_light",
)


POSSIBLE: str = (
    f"finite positions, velocities, amounts and properties, amounts from 0, log10(age / yr) from 0 to "
    f"{LARGEST_LOG_AGE:g}, metal mass fractions from 0 to 1 and masses up to {LARGEST['mass']:g} Msun"
)
"""Words for what particles can be."""

MOST_VELOCITY_RANGE: float = 1e5
"""km/s: the largest line-of-sight velocity that is painted, a third of the speed of light."""


def limits_of(field: str) -> tuple[float, float]:
    """Smallest and largest value that a field of stars or gas can have."""
    if field == "log_age":
        return 0.0, LARGEST_LOG_AGE
    if field in FRACTIONS:
        return 0.0, 1.0
    return (0.0 if field in NOT_NEGATIVE else -LARGEST[field]), LARGEST[field]


def require(good: Any, values: Any, place: str, expected: str, remedy: str) -> None:
    """Raise ValueError naming `place`, how many of `values` are not `good` and the first of them, unless all are."""
    good = np.asarray(good)
    if good.all():
        return
    index = tuple(int(i) for i in np.argwhere(~good)[0])
    where = index[0] if len(index) == 1 else index
    raise ValueError(
        f"{place}: expected {expected}, got {np.asarray(values)[index]} at index {where} "
        f"({np.count_nonzero(~good)} of {good.size} values); {remedy}"
    )


def check_magnitudes(quantity: str, values: np.ndarray, place: str) -> None:
    """Raise ValueError, naming `place` and the first, where values are not finite or beyond `LARGEST`."""
    limit = LARGEST.get(quantity)
    if limit is None:
        return
    remedy = "the numbers are damaged there, or in another unit than expected"
    require(np.abs(values) <= limit, values, place, f"{quantity} of at most {limit:g} in magnitude", remedy)
    if quantity == "velocity" and np.ndim(values) == 2:
        speeds = np.linalg.norm(np.asarray(values, np.float64), axis=1)
        require(speeds <= limit, speeds, place, f"speeds of at most {limit:g} km/s", remedy)
