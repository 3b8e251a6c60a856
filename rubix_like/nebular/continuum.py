"""The continuum of ionised gas: captures to levels of hydrogen and helium, free-free, and two-photon light.

All is per ionising photon that hydrogen absorbs, so that it goes with the lines of a table at its temperature.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.constants import ANGSTROM_PER_KM, BOLTZMANN_CONSTANT, PHOTON_ENERGY_AT_1_ANGSTROM, SPEED_OF_LIGHT
from rubix_like.galaxy.limits import require
from rubix_like.nebular.case_b import electrons, recombination_coefficient
from rubix_like.physics.units import plain_array

HELIUM = 0.09
"""Singly ionised helium per ionised hydrogen, by number, of an H II region."""

POSSIBLE_WAVELENGTHS = (10.0, 1e12)
"""Angstrom, from well below the Lyman limit to radio waves of 100 m; smaller numbers are in another unit."""

PARTICLES_PER_ELECTRON = 2.1
"""Hydrogen ions, electrons and helium ions."""

RYDBERG = 109678.77
"""Ionisation energy of hydrogen over h c (1/cm)."""

HIGHEST_LEVEL = 30
"""Captures to higher levels than this are 1 % of the light at 1.6 um and less at shorter wavelengths."""

HELIUM_SECOND_LEVELS: Sequence[tuple[float, float]] = (
    (38454.7, 3 / 16),
    (32033.2, 1 / 16),
    (29223.9, 9 / 16),
    (27175.8, 3 / 16),
)
"""Ionisation energies over h c (1/cm; NIST Atomic Spectra Database) of 2s 3S, 2s 1S, 2p 3P and 2p 1P of He I, and their
shares of the level's statistical weight."""

_FREE_FREE = 6.8391e-38
"""2^5 pi e^6 / (3 m_e c^3) (2 pi / (3 k m_e))^(1/2), erg cm^3 K^(1/2) / s / Hz (Rybicki & Lightman 1979, eq. 5.14)."""

_TWO_PHOTON_RATE = 8.226
"""Decays of hydrogen's 2s level by two photons per second (Nussbaumer & Schmutz 1984)."""


@named_arguments
def nebular_continuum(
    wavelength: Float[ndarray, " wave"], temperature: float, density: float, helium: float = HELIUM
) -> Float[ndarray, " wave"]:
    """Continuum (erg per Angstrom) at vacuum wavelengths (Angstrom) for each ionising photon that is absorbed.

    `temperature` of the electrons in K, `density` in electrons per cm^3, `helium` ions (He+) per hydrogen ion. It is
    the sum of `capture_light`, `free_free_light` and `two_photon_light` times c / lambda^2 / alpha_B. At 5000-20000 K
    it is within 3 % (1.5 % at 3500-20000 A, but for helium's edge near 8200 A) of Ercolano & Storey (2006, MNRAS 372,
    1875). Quantities are converted; raises ValueError for numbers that no ionised gas has.
    """
    temperature, density = electrons(temperature, density)
    wavelength = plain_array(wavelength, "Angstrom", "wavelength")
    low, high = POSSIBLE_WAVELENGTHS
    is_possible = (wavelength >= low) & (wavelength <= high)
    require(
        is_possible, wavelength, "wavelength", f"{low:g} to {high:g} Angstrom", "give vacuum wavelengths in Angstrom"
    )
    if not (np.ndim(helium) == 0 and 0 <= helium <= 1):
        raise ValueError(f"helium: expected He+ ions per hydrogen ion, a number from 0 to 1, got {helium!r}")
    frequency = SPEED_OF_LIGHT * ANGSTROM_PER_KM / wavelength
    light = (
        capture_light(frequency, temperature, helium)
        + free_free_light(frequency, temperature, helium)
        + two_photon_light(frequency, temperature, density)
    )
    recombinations = recombination_coefficient(np.array([temperature]), np.array([density]))
    return light * frequency / wavelength / recombinations


def capture_light(
    frequency: Float[ndarray, " wave"], temperature: float, helium: float = HELIUM
) -> Float[ndarray, " wave"]:
    """Free-bound light (erg cm^3 / s / Hz, per electron and per hydrogen ion): captures to the levels n >= 2.

    Kramers' coefficient with Gaunt factors of Menzel & Pekeris (1935, MNRAS 96, 77), Brown & Mathews (1970, ApJ 160,
    939): (2 theta / n^3) g exp((chi_n - h nu) / k T), theta = Rydberg / k T. Helium is as hydrogen but for the
    energies of its second level.
    """
    unit = PHOTON_ENERGY_AT_1_ANGSTROM * 1e-8
    wavenumber = frequency / (SPEED_OF_LIGHT * 1e5)
    thermal_energy = BOLTZMANN_CONSTANT * temperature / unit
    total = np.zeros_like(frequency)
    for level in range(2, HIGHEST_LEVEL + 1):
        edges = HELIUM_SECOND_LEVELS if level == 2 else ((RYDBERG / level**2, 1.0),)
        for edge, share in ((RYDBERG / level**2, 1.0), *((edge, helium * share) for edge, share in edges)):
            above = wavenumber - edge
            free = np.maximum(above, 0.0) / RYDBERG
            strength = 2.0 * RYDBERG / thermal_energy / level**3 * _bound_free_gaunt(level, free)
            total += np.where(above > 0.0, share * strength * np.exp(-np.maximum(above, 0.0) / thermal_energy), 0.0)
    return _FREE_FREE / np.sqrt(temperature) * total


def free_free_light(
    frequency: Float[ndarray, " wave"], temperature: float, helium: float = HELIUM
) -> Float[ndarray, " wave"]:
    """Bremsstrahlung (erg cm^3 / s / Hz, per electron and hydrogen ion), Gaunt factor of Draine (2011, eq. 10.9)."""
    energy = PHOTON_ENERGY_AT_1_ANGSTROM / (ANGSTROM_PER_KM * SPEED_OF_LIGHT)
    scaled = np.log(frequency / 1e9 * (temperature / 1e4) ** -1.5)
    gaunt = np.log(np.exp(5.960 - np.sqrt(3.0) / np.pi * scaled) + np.e)
    thermal = np.exp(-energy * frequency / (BOLTZMANN_CONSTANT * temperature))
    return (1.0 + helium) * _FREE_FREE / np.sqrt(temperature) * thermal * gaunt


def two_photon_light(frequency: Float[ndarray, " wave"], temperature: float, density: float) -> Float[ndarray, " wave"]:
    """Light of hydrogen's 2s level, which decays by two photons (erg cm^3 / s / Hz, per electron and hydrogen ion).

    Shape: Nussbaumer & Schmutz (1984, A&A 138, 495). Captures that end in 2s: 0.838e-13 T4^-0.728 cm^3/s (a fit to
    Osterbrock & Ferland 2006, table 4.11); collisions take the atom to 2p at 5.31e-4 T4^-0.17 cm^3/s (table 4.10).
    """
    energy = PHOTON_ENERGY_AT_1_ANGSTROM / (ANGSTROM_PER_KM * SPEED_OF_LIGHT)
    share = np.clip(frequency / (0.75 * RYDBERG * SPEED_OF_LIGHT * 1e5), 0.0, 1.0)
    both = share * (1.0 - share)
    shape = 202.0 * (both * (1.0 - (4.0 * both) ** 0.8) + 0.88 * both**1.53 * (4.0 * both) ** 0.8)
    captures = 0.838e-13 * (temperature / 1e4) ** -0.728
    collisions = density * 5.31e-4 * (temperature / 1e4) ** -0.17
    return energy * share * shape * captures / (_TWO_PHOTON_RATE + collisions)


def _bound_free_gaunt(level: int, free: Float[ndarray, " wave"]) -> Float[ndarray, " wave"]:
    """Menzel & Pekeris 1935, for an electron of the energy `free` (Rydberg) that is caught by `level`."""
    u = level**2 * free
    first = 0.1728 * (u - 1.0) / (level * (u + 1.0)) ** (2.0 / 3.0)
    second = 0.0496 * (u**2 + 4.0 / 3.0 * u + 1.0) / (level * (u + 1.0)) ** (4.0 / 3.0)
    return 1.0 + first - second
