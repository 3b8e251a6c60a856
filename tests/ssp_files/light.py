"""Light of plausible stellar populations for small files in the layouts of others: PopStar with Balmer lines."""

import functools

import numpy as np

from rubix_like import load_ssp
from rubix_like.physics import air

AGES = np.array([1e8, 5.0118723e8, 1e9, 3.1622777e9, 1e10])
METALLICITIES = np.array([0.004, 0.008, 0.02])

LINES = air.to_vacuum(np.array([4101.734, 4340.472, 4861.333, 6562.79]))
"""H-delta, H-gamma, H-beta, H-alpha (vacuum Angstrom)."""


@functools.cache
def popstar():
    return load_ssp("popstar")


def wavelengths(first, last, step=1.2):
    """Angstrom: `step` at 4000-6700, 300 nodes outside."""
    fine = np.arange(4000.0, 6700.0, step)
    blue, red = np.geomspace(first, 4000.0, 151)[:-1], np.geomspace(fine[-1] + step, last, 150)
    return np.concatenate([blue, fine, red])


def spectra(wavelength, medium="vacuum", ages=AGES, metallicities=METALLICITIES):
    """Lsun per Angstrom (of `medium`) per Msun at birth, (metal, age, rest), at wavelengths in `medium`.

    The Balmer lines, 3 A wide and half as deep as the light, stand where they stand in nature.
    """
    vacuum = air.to_vacuum(wavelength) if medium == "air" else wavelength
    library = popstar()
    light = np.array(
        [
            [
                np.interp(
                    vacuum,
                    library.rest_wavelength,
                    library.spectra[
                        np.argmin(np.abs(library.metallicity - metallicity)),
                        np.argmin(np.abs(library.log_age - np.log10(age))),
                    ],
                )
                for age in ages
            ]
            for metallicity in metallicities
        ]
    )
    for line in LINES:
        light = light * (1.0 - 0.5 * np.exp(-0.5 * ((vacuum - line) / 3.0) ** 2))
    return light * air.vacuum_per_air(vacuum) if medium == "air" else light


def surviving(ages=AGES, metallicities=METALLICITIES):
    """Mass in stars and remnants per mass at birth, (metal, age), Salpeter's IMF: 0.88 at 0.1 Gyr, 0.72 at 10 Gyr."""
    return np.tile(1.04 - 0.08 * (np.log10(ages) - 6.0), (len(metallicities), 1))
