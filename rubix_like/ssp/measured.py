"""What the spectra of a library tell themselves: the medium of their wavelengths, and whether the unit can be right.

For layouts that do not state these; both are measured on one spectrum, of the metallicity nearest to 0.02.
"""

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.constants import SPEED_OF_LIGHT
from rubix_like.physics import air

BALMER_AIR = (4101.734, 4340.472, 4861.333, 6562.79)
"""H-delta, H-gamma, H-beta, H-alpha in air (Angstrom; NIST Atomic Spectra Database, averages of the fine structure)."""

CORE = 1.5
"""Angstrom on each side of the deepest node to which a parabola is fitted."""

SEARCH = 5.0
"""Angstrom on each side of the line in which its deepest node is looked for."""

COARSEST = 3.0
"""Sampling (Angstrom) beyond which the lines are not resolved well enough to tell air from vacuum."""

NEAREST = 40.0
"""km/s: how near the lines must stand to those of a medium; air and vacuum differ by 83 km/s in the optical."""

SOLAR = 0.02

LIGHT_AT_1_GYR = 1.4e-4
"""Mean Lsun/Angstrom/Msun at 5400-5600 A of a solar population of 1 Gyr, between Salpeter's IMF (E-MILES: 1.2e-4) and
Kroupa's (BC03: 1.7e-4); it fades as age^-0.85 (both libraries, 0.1-10 Gyr)."""

LIGHT_FACTOR = 100.0
"""How far from that a library may be: IMFs differ by up to 30, wrong units by more than 1000."""


def measured_medium(
    name: str,
    wavelength: Float[ndarray, " rest"],
    log_age: Float[ndarray, " age"],
    metallicity: Float[ndarray, " metal"],
    spectra: Float[ndarray, "metal age rest"],
) -> tuple[str, float]:
    """("air" or "vacuum", km/s): the medium in which the Balmer absorption stands nearest to rest, and how near.

    The offset is the median over four lines of the velocity of a parabola's minimum in the spectrum nearest to
    0.5 Gyr, where the lines are strong and no gas shines. Raises ValueError when the sampling is too coarse or the
    lines stand at neither medium's wavelengths.
    """
    spectrum = spectra[np.argmin(np.abs(metallicity - SOLAR)), np.argmin(np.abs(log_age - np.log10(5e8)))]
    in_air, usable = np.array(BALMER_AIR), shows_lines(wavelength)
    if not usable.any():
        raise ValueError(
            f"{name}: cannot tell air from vacuum: expected Balmer lines sampled by {COARSEST:g} A or finer, got "
            f"{_steps(wavelength).min():.3g} A over {wavelength[0]:.5g}-{wavelength[-1]:.5g} A"
        )
    offsets = {}
    for medium, lines in (("air", in_air), ("vacuum", air.to_vacuum(in_air))):
        found = [_deepest(wavelength, spectrum, line) / line - 1.0 for line in lines[usable]]
        offsets[medium] = float(np.median(found) * SPEED_OF_LIGHT)
    medium = min(offsets, key=lambda name: abs(offsets[name]))
    if not abs(offsets[medium]) < NEAREST:
        raise ValueError(
            f"{name}: expected the Balmer lines within {NEAREST:g} km/s of rest in air or in vacuum, got "
            f"{offsets['air']:.0f} and {offsets['vacuum']:.0f} km/s: the wavelengths are redshifted or not in Angstrom"
        )
    return medium, offsets[medium]


def shows_lines(wavelength: Float[ndarray, " rest"]) -> Bool[ndarray, " line"]:
    """Which of the four Balmer lines are covered, and sampled finely enough to be measured."""
    in_air = np.array(BALMER_AIR)
    covered = (wavelength[0] + SEARCH < in_air) & (in_air < wavelength[-1] - SEARCH)
    return covered & (_steps(wavelength) <= COARSEST)


def check_light_unit(
    name: str,
    wavelength: Float[ndarray, " rest"],
    log_age: Float[ndarray, " age"],
    metallicity: Float[ndarray, " metal"],
    spectra: Float[ndarray, "metal age rest"],
) -> None:
    """Raise ValueError unless the light at 5500 A near 1 Gyr can be Lsun per Angstrom per Msun at birth.

    A factor of 100 is allowed for (see `LIGHT_FACTOR`): this finds spectra per Hz, in erg/s, or divided by their mean.
    """
    if not wavelength[0] < 5500.0 < wavelength[-1]:
        return
    metal, age = np.argmin(np.abs(metallicity - SOLAR)), np.argmin(np.abs(log_age - 9.0))
    light = float(np.interp(np.linspace(5400.0, 5600.0, 201), wavelength, spectra[metal, age]).mean())
    expected = LIGHT_AT_1_GYR * 10.0 ** (-0.85 * (log_age[age] - 9.0))
    if not expected / LIGHT_FACTOR < light < expected * LIGHT_FACTOR:
        raise ValueError(
            f"{name}: expected about {expected:.1e} Lsun/Angstrom/Msun at 5500 A and 10^{log_age[age]:.2f} yr, got "
            f"{light:.1e}: the spectra are in another unit or were normalised"
        )


def _steps(wavelength: Float[ndarray, " rest"]) -> Float[ndarray, " line"]:
    """Distance of the nodes at each Balmer line (Angstrom)."""
    return np.interp(np.array(BALMER_AIR), wavelength[:-1], np.diff(wavelength))


def _deepest(wavelength: Float[ndarray, " rest"], spectrum: Float[ndarray, " rest"], line: float) -> float:
    """Wavelength of the minimum of a parabola fitted around the deepest node near `line`."""
    near = np.flatnonzero(np.abs(wavelength - line) < SEARCH)
    lowest = near[np.argmin(spectrum[near])]
    reach = np.abs(wavelength - wavelength[lowest]) <= CORE
    reach[lowest - 1 : lowest + 2] = True
    curvature, slope, _ = np.polyfit(wavelength[reach] - wavelength[lowest], spectrum[reach], 2)
    return float(wavelength[lowest] - slope / (2.0 * curvature)) if curvature > 0 else float("nan")
