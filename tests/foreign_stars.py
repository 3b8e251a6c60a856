"""Spectra of single stars that this package has no part in: numpy, scipy and h5py, from the formula.

A star of mass M at birth, log age a, metallicity Z and line-of-sight velocity v, in bins of vacuum wavelength, without
line spread:

    F(lambda) = M S(lambda / D; a, Z) / (4 pi D_L^2 D),   D = (1 + z) exp(v / c)

S is linear in log age and log Z between the library's nodes, and piecewise linear in wavelength, so that its integrals
over bins are exact.
"""

from typing import NamedTuple

import h5py
import numpy as np
from astropy import constants, units
from astropy.cosmology import Planck18
from foreign_cube import integral, vacuum

_C = constants.c.to_value("km/s")
_ROOM = 60.0
"""Angstrom beyond the bins, at rest, that are kept of the library: 4000 km/s at 4500 Angstrom."""


class Library(NamedTuple):
    """Vacuum wavelengths (rest), log ages, log10 Z, and L_lambda in Lsun/Angstrom/Msun: (metal, age, rest)."""

    wavelength: np.ndarray
    log_age: np.ndarray
    log_metallicity: np.ndarray
    spectra: np.ndarray


def read_library(path, low, high):
    """A library between two vacuum wavelengths at rest, with some room."""
    with h5py.File(path) as file:
        wavelength = file["rest_wavelength"][()]
        kept = (wavelength > low - _ROOM) & (wavelength < high + _ROOM)
        wavelength, spectra = wavelength[kept], file["spectra"][()][:, :, kept].astype(float)
        log_age, log_metallicity = file["log_age"][()], np.log10(file["metallicity"][()])
        in_air = file.attrs["medium"] == "air"
    if in_air:
        slope = vacuum(wavelength + 0.5) - vacuum(wavelength - 0.5)
        wavelength, spectra = vacuum(wavelength), spectra / slope
    return Library(wavelength, log_age, log_metallicity, spectra)


def between(nodes, place):
    """(index of the lower node, weight of the upper one) of linear interpolation."""
    lower = np.clip(np.searchsorted(nodes, place, side="right") - 1, 0, len(nodes) - 2)
    return lower, (place - nodes[lower]) / (nodes[lower + 1] - nodes[lower])


def interpolated(library, table, log_age, log_metallicity):
    """A table (metal, age, ...) at ages and metallicities of any shape, linear in both."""
    metal, above = between(library.log_metallicity, log_metallicity)
    age, older = between(library.log_age, log_age)
    extra = (...,) + (None,) * (table.ndim - 2)
    above, older = above[extra], older[extra]
    low = (1 - older) * table[metal, age] + older * table[metal, age + 1]
    return (1 - above) * low + above * ((1 - older) * table[metal + 1, age] + older * table[metal + 1, age + 1])


def star_spectra(library, edges, redshift, velocity, mass, log_age, log_metallicity):
    """Flux (star, wave) in 1e-20 erg/s/cm2 per Angstrom of vacuum, in bins with these edges."""
    spectra = interpolated(library, library.spectra, log_age, log_metallicity)
    rest = edges / ((1 + redshift) * np.exp(velocity / _C))[:, None]
    energy = np.stack([np.diff(integral(library.wavelength, *own)) for own in zip(spectra, rest, strict=True)])
    distance = Planck18.luminosity_distance(redshift)
    solar = (constants.L_sun / (4 * np.pi * distance**2)).to_value(1e-20 * units.erg / units.s / units.cm**2)
    return solar * mass[:, None] * energy / np.diff(edges)


def light_table(library, low, high):
    """Luminosity in Lsun/Msun between two vacuum wavelengths at rest: (metal, age)."""
    ends = np.array([low, high])
    flat = library.spectra.reshape(-1, len(library.wavelength))
    return np.array([np.diff(integral(library.wavelength, own, ends))[0] for own in flat]).reshape(
        library.spectra.shape[:2]
    )
