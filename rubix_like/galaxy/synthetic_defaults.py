"""The parameters of a synthetic galaxy, by name with their defaults, for its settings and its sampling."""

from typing import Any, Literal

Draws = Literal["random", "sobol"]
"""Kinds of base draws."""

BULGE_SHARE: float = 0.2
"""Fraction of the star particles that sample the bulge; its mass is `bulge_fraction`, whatever the share."""

SMALLEST_LOG_AGE: float = 5.0
"""Lower limit of the drawn ages (0.1 Myr)."""

DEFAULTS: dict[str, Any] = {
    "stellar_mass": 1e10,
    "bulge_fraction": 0.2,
    "disc_scale_length": 1.5,
    "disc_scale_height": 0.2,
    "bulge_effective_radius": 0.5,
    "rotation_velocity": 180.0,
    "turnover_radius": 0.5,
    "disc_dispersion": 30.0,
    "bulge_dispersion": 100.0,
    "disc_log_age": 9.6,
    "disc_log_age_gradient": -0.1,
    "bulge_log_age": 9.9,
    "log_age_scatter": 0.1,
    "oldest_log_age": 10.1,
    "disc_metallicity": 0.02,
    "disc_metallicity_gradient": -0.05,
    "bulge_metallicity": 0.025,
    "metallicity_scatter": 0.1,
    "gas_fraction": 0.1,
    "gas_scale_length": 2.5,
    "gas_scale_height": 0.1,
    "gas_rotation_velocity": None,
    "gas_turnover_radius": None,
    "gas_dispersion": 10.0,
    "gas_metallicity": None,
    "gas_metallicity_gradient": None,
    "gas_metallicity_scatter": None,
    "gas_temperature": 1e4,
    "star_formation_rate": 1.0,
}
"""The default of every parameter, in the unit of its setting; None: the value of the stars' disc."""

GAS_PARAMETERS: tuple[str, ...] = (*(name for name in DEFAULTS if name.startswith("gas_")), "star_formation_rate")
"""The parameters of the gas alone, on which no star depends."""
