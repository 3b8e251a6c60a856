"""Physical constants, taken once from astropy, in the units of the package (docs/units-and-names.md)."""

# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false, reportArgumentType=false
# (astropy makes its constants, and the units of what is computed from them, at run time)

import numpy as np
from astropy import constants, units

SPEED_OF_LIGHT: float = float(constants.c.to_value(units.km / units.s))
"""km/s"""

ARCSEC_PER_RADIAN: float = float(units.radian.to(units.arcsec))

ANGSTROM_PER_MICRON: float = 1e4
ANGSTROM_PER_KM: float = 1e13

CUBE_FLUX_UNIT = 1e-20 * units.erg / units.s / units.cm**2
"""Unit of a line flux."""

CUBE_FLUX_DENSITY = units.Unit(CUBE_FLUX_UNIT / units.Angstrom)
"""Unit of a cube's flux."""

COLUMN_UNITS: dict[str, str] = {
    "position": "kpc",
    "velocity": "km / s",
    "mass": "Msun",
    "initial_mass": "Msun",
    "dust_mass": "Msun",
    "smoothing_length": "kpc",
    "density": "Msun / kpc3",
    "temperature": "K",
    "internal_energy": "km2 / s2",
    "star_formation_rate": "Msun / yr",
    "random_velocity": "km / s",
    "east": "arcsec",
    "north": "arcsec",
    "tilt": "deg",
    "twist": "deg",
}
"""Units of the columns of particles, inside and as they are read; others are pure numbers."""

SOLAR_LUMINOSITY: float = float(constants.L_sun.to_value(units.erg / units.s))
"""erg/s (IAU 2015: 3.828e33)"""

SOLAR_LUMINOSITY_AT_1_MPC: float = float(
    (constants.L_sun / (4 * np.pi * (1 * units.Mpc) ** 2)).to_value(CUBE_FLUX_UNIT)
)
"""Flux of 1 Lsun at 1 Mpc in 1e-20 erg/s/cm2 (3199.344)."""

PHOTONS_AT_1_ANGSTROM: float = float(
    (1 * CUBE_FLUX_UNIT * units.Angstrom / (constants.h * constants.c)).to_value(1 / units.s / units.m**2)
)
"""Photons/s/m2 of 1 Angstrom in a flux of 1e-20 erg/s/cm2 (5.034e-9); the number grows with the wavelength."""

PHOTON_ENERGY_AT_1_ANGSTROM: float = float((constants.h * constants.c).to_value(units.erg * units.Angstrom))
"""erg (1.986e-8); the energy falls with the wavelength."""

LYMAN_LIMIT: float = 911.753
"""Vacuum Angstrom below which light ionises hydrogen (NIST Atomic Spectra Database: 109678.77 / cm)."""

BOLTZMANN_CONSTANT: float = float(constants.k_B.to_value(units.erg / units.K))
"""erg/K"""

ATOMIC_MASS_UNIT: float = float(constants.u.to_value(units.g))
"""g"""

FWHM_PER_SIGMA: float = float(np.sqrt(8 * np.log(2)))
"""FWHM of a Gaussian of unit standard deviation (2.3548)."""

AB_ZERO_POINT: float = 3631e9
"""nJy of a source of AB magnitude 0 (Oke & Gunn 1983, ApJ 266, 713)."""

GRAVITY: float = float(constants.G.to_value(units.kpc * units.km**2 / units.s**2 / units.Msun))
"""kpc (km/s)^2 / Msun."""
