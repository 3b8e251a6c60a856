"""Recombination of hydrogen in case B: the luminosity of its lines for each ionising photon that is absorbed.

Fits to the tables of Storey & Hummer (1995, MNRAS 272, 41; CDS VI/64), made by data/make_case_b.py: good to 0.35 %
(0.2 % but for Paa and Bra) at 3000-30000 K and 100-1e4 electrons per cm^3. Temperatures and densities beyond are
taken at the ends of these ranges; below 100 cm^-3 nothing depends on the density.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.constants import ANGSTROM_PER_KM, BOLTZMANN_CONSTANT, PHOTON_ENERGY_AT_1_ANGSTROM, SPEED_OF_LIGHT
from rubix_like.galaxy.limits import require
from rubix_like.nebular.line_list import LINES
from rubix_like.physics.units import plain_array, plain_numbers

TEMPERATURES = (3000.0, 30000.0)
"""K, between which the fits hold."""

DENSITIES = (100.0, 1e4)
"""Electrons per cm^3, between which the fits hold."""

POSSIBLE_TEMPERATURES = (300.0, 1e8)
"""K, from below the coldest ionised gas, old shells of novae at about 500 K, to the gas of clusters of galaxies."""

COEFFICIENTS: Mapping[str, tuple[float, ...]] = {
    "emissivity of Hb": (0.20978, -0.86885, -0.05184, -0.00243, 0.00161, -0.00211, 0.00080, -0.00097),
    "recombination": (0.94918, -0.82915, -0.03429, -0.00380, 0.00109, -0.00100, 0.00058, -0.00083),
    "Ha": (1.05309, -0.07428, 0.01641, 0.00084, -0.00224, 0.00253, -0.00081, 0.00088),
    "Hg": (-0.75869, 0.02700, -0.00634, -0.00076, 0.00019, -0.00037, 0.00039, -0.00043),
    "Hd": (-1.35120, 0.03673, -0.00894, -0.00113, 0.00044, -0.00070, 0.00041, -0.00042),
    "H7": (-1.83878, 0.03931, -0.01002, -0.00116, 0.00059, -0.00053, 0.00041, -0.00066),
    "H8": (-2.25385, 0.03932, -0.01048, -0.00149, 0.00051, -0.00067, 0.00056, -0.00080),
    "H9": (-2.61584, 0.03725, -0.01039, -0.00152, 0.00033, -0.00080, 0.00085, -0.00088),
    "H10": (-2.93734, 0.03511, -0.01006, -0.00167, -0.00015, -0.00079, 0.00151, -0.00128),
    "H11": (-3.22640, 0.03190, -0.00935, -0.00159, -0.00102, -0.00002, 0.00251, -0.00201),
    "H12": (-3.48940, 0.02923, -0.00867, -0.00183, -0.00239, 0.00058, 0.00427, -0.00300),
    "Paa": (-1.08135, -0.26881, 0.01442, 0.00595, -0.00565, 0.00520, -0.00269, 0.00236),
    "Pab": (-1.81188, -0.17416, 0.00026, 0.00498, -0.00158, 0.00160, -0.00127, 0.00105),
    "Pag": (-2.40302, -0.13365, -0.00660, 0.00446, -0.00081, 0.00083, -0.00062, 0.00039),
    "Pad": (-2.89219, -0.11349, -0.01010, 0.00407, 0.00001, -0.00012, -0.00047, 0.00032),
    "Pa8": (-3.30873, -0.10320, -0.01200, 0.00393, -0.00004, 0.00009, -0.00017, -0.00010),
    "Pa9": (-3.67194, -0.09753, -0.01300, 0.00350, -0.00003, -0.00009, 0.00006, -0.00024),
    "Pa10": (-3.99426, -0.09473, -0.01337, 0.00337, -0.00008, 0.00006, 0.00033, -0.00063),
    "Pa11": (-4.28413, -0.09344, -0.01339, 0.00316, -0.00034, 0.00019, 0.00083, -0.00106),
    "Pa12": (-4.54761, -0.09311, -0.01313, 0.00302, -0.00112, 0.00082, 0.00173, -0.00196),
    "Bra": (-2.52113, -0.37287, 0.01373, 0.00736, -0.00927, 0.00801, -0.00397, 0.00316),
    "Brb": (-3.08965, -0.29207, 0.00273, 0.00757, -0.00386, 0.00326, -0.00264, 0.00217),
    "Brg": (-3.58157, -0.25091, -0.00335, 0.00709, -0.00206, 0.00181, -0.00194, 0.00150),
}
"""What -> coefficients of `powers`, which give its logarithm: 4 pi j / (n_e n_p) of Hb (1e-25 erg cm^3/s), the total
recombination coefficient to n >= 2 (1e-13 cm^3/s), and luminosities over that of Hb."""


def electrons(temperature: Any, density: Any) -> tuple[Any, Any]:
    """Temperatures in K and electrons per cm^3 as plain numbers, from quantities too.

    Raises ValueError that names the argument for numbers that no ionised gas has.
    """
    temperature, density = plain_numbers(temperature, "K", "temperature"), plain_numbers(density, "cm-3", "density")
    kelvin, number = (np.atleast_1d(np.asarray(values, float)) for values in (temperature, density))
    low, high = POSSIBLE_TEMPERATURES
    remedy = "give the temperature of the electrons, neither its logarithm nor their density"
    require((kelvin >= low) & (kelvin <= high), kelvin, "temperature", f"{low:g} to {high:g} K", remedy)
    remedy = "give electrons per cm^3, not their logarithm"
    require((number >= 0) & np.isfinite(number), number, "density", "finite values >= 0", remedy)
    return temperature, density


def powers(temperature: Float[ndarray, "*node"], density: Float[ndarray, "*node"]) -> Float[ndarray, "term *node"]:
    """1, x, x^2, x^3, y, y x, y^2, y^2 x with x = ln(T / 1e4 K) and y = log10(n_e / 100 cm^-3)."""
    temperature, density = electrons(temperature, density)
    if np.shape(temperature) != np.shape(density):
        shapes = f"{np.shape(temperature)} and {np.shape(density)}"
        raise ValueError(f"temperature, density: expected arrays of one shape, got {shapes}")
    x = np.log(np.clip(temperature, *TEMPERATURES) / 1e4)
    y = np.log10(np.clip(density, *DENSITIES) / 100.0)
    return np.stack([x**0, x, x**2, x**3, y, y * x, y**2, y**2 * x])


def hydrogen_lines() -> tuple[str, ...]:
    """Names of the lines that case B gives: Balmer and Paschen lines up to level 12, Brackett lines up to level 7."""
    return ("Hb", *(name for name in COEFFICIENTS if name in LINES))


@named_arguments
def ratio_to_h_beta(
    line: str, temperature: Float[ndarray, "*node"], density: Float[ndarray, "*node"]
) -> Float[ndarray, "*node"]:
    """Luminosity of a hydrogen line (`hydrogen_lines`) over that of Hb.

    `temperature` of the electrons in K, `density` in electrons per cm^3, of one shape, or quantities.
    """
    if line not in hydrogen_lines():
        raise ValueError(f"line: expected one of {', '.join(hydrogen_lines())}, got {line!r}")
    return np.ones_like(electrons(temperature, density)[0]) if line == "Hb" else _fitted(line, temperature, density)


def recombination_coefficient(
    temperature: Float[ndarray, "*node"], density: Float[ndarray, "*node"]
) -> Float[ndarray, "*node"]:
    """alpha_B (cm^3/s): recombinations to all levels but the first, for one electron and one proton per cm^3."""
    return 1e-13 * _fitted("recombination", temperature, density)


@named_arguments
def energy_per_photon(
    line: str, temperature: Float[ndarray, "*node"], density: Float[ndarray, "*node"]
) -> Float[ndarray, "*node"]:
    """Energy in a hydrogen line for each ionising photon that hydrogen absorbs (erg): 4 pi j / (n_e n_p alpha_B).

    In ionisation equilibrium each photon absorbed is one recombination (Draine 2011, Physics of the Interstellar and
    Intergalactic Medium, section 15.1).
    """
    emissivity = 1e-25 * _fitted("emissivity of Hb", temperature, density)
    per_photon = emissivity / recombination_coefficient(temperature, density)
    return per_photon * ratio_to_h_beta(line, temperature, density)


def temperature_of_ratio(
    line: str, ratio: Float[ndarray, "*node"], density: Float[ndarray, "*node"]
) -> Float[ndarray, "*node"]:
    """Temperature (K) at which an infrared hydrogen line has a given ratio to Hb, limited to `TEMPERATURES`.

    The ratio of a Paschen or Brackett line falls steadily with the temperature; it is solved by halving.
    """
    low, high = (np.full(np.shape(ratio), limit) for limit in np.log(TEMPERATURES))
    for _ in range(40):
        middle = 0.5 * (low + high)
        colder = ratio > ratio_to_h_beta(line, np.exp(middle), density)
        low, high = np.where(colder, low, middle), np.where(colder, middle, high)
    return np.exp(0.5 * (low + high))


def _fitted(
    what: str, temperature: Float[ndarray, "*node"], density: Float[ndarray, "*node"]
) -> Float[ndarray, "*node"]:
    return np.exp(np.tensordot(np.array(COEFFICIENTS[what]), powers(temperature, density), 1))


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
