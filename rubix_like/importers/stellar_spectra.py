"""Facts that importers of SSP libraries share: units, resolutions, and what spectra show of their medium and unit.

Medium and unit are measured, for layouts that do not state them, on one spectrum of the metallicity nearest to 0.02.
"""

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.constants import ANGSTROM_PER_KM, SPEED_OF_LIGHT
from rubix_like.physics import air

BASEL_RESOLVING_POWER = 300.0
"""lambda / FWHM of the BaSeL stellar spectra (Bruzual & Charlot 2003, section 2.2.1)."""

BC03_SOLAR_METALLICITY = 0.02

MIST_SOLAR_METALLICITY = 0.0142
"""Choi et al. 2016, ApJ 823, 102; FSPS 3.2 uses these isochrones by default."""

FSPS_CITATION = "Conroy, Gunn & White 2009, ApJ 699, 486; Conroy & Gunn 2010, ApJ 712, 833"

BALMER_AIR = np.array([4101.734, 4340.472, 4861.333, 6562.79])
"""H-delta, H-gamma, H-beta, H-alpha in air (Angstrom; NIST Atomic Spectra Database, averages of the fine structure)."""

CORE, SEARCH = 1.5, 5.0
"""Angstrom on each side to which a parabola is fitted, and within which a line's deepest node is looked for."""

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


def per_angstrom(
    per_hertz: Float[ndarray, "*node rest"], wavelength: Float[ndarray, " rest"]
) -> Float[ndarray, "*node rest"]:
    """L_lambda = L_nu c / lambda^2: light per Angstrom from light per Hz, at wavelengths in Angstrom."""
    return per_hertz * (SPEED_OF_LIGHT * ANGSTROM_PER_KM / wavelength / wavelength)


def node_spacing(wavelength: Float[ndarray, " rest"]) -> Float[ndarray, " rest"]:
    """The larger of the two distances from each node to its neighbours (Angstrom)."""
    step = np.diff(wavelength)
    return np.maximum(np.append(step[0], step), np.append(step, step[-1]))


def basel_fwhm(wavelength: Float[ndarray, " rest"]) -> Float[ndarray, " rest"]:
    """FWHM (Angstrom) of spectra made of BaSeL stars: lambda / 300, or the sampling where that is coarser."""
    return np.maximum(node_spacing(wavelength), wavelength / BASEL_RESOLVING_POWER)


def bc03_miles_fwhm(wavelength: Float[ndarray, " rest"]) -> Float[ndarray, " rest"]:
    """FWHM (Angstrom) of the 2016 BC03 spectra with MILES at air wavelengths.

    912-3540.5 A: theoretical spectra at 0.5 A sampling; the fall of the spectra's power spectrum gives 1 A.
    3540.5-7350 A: MILES, 2.5 A (Falcon-Barroso et al. 2011: 2.51 A). To 8750 A: 3 A (STELIB, Bruzual & Charlot 2003).
    Elsewhere as BaSeL.
    """
    ranges = [wavelength < 912.0, wavelength < 3540.5, wavelength <= 7350.0, wavelength <= 8750.0]
    coarse = basel_fwhm(wavelength)
    return np.select(ranges, [coarse, 1.0, 2.5, 3.0], coarse)


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
    usable = shows_lines(wavelength)
    if not usable.any():
        raise ValueError(
            f"{name}: cannot tell air from vacuum: expected Balmer lines sampled by {COARSEST:g} A or finer, got "
            f"{_steps(wavelength).min():.3g} A over {wavelength[0]:.5g}-{wavelength[-1]:.5g} A"
        )
    offsets = {}
    for medium, lines in (("air", BALMER_AIR), ("vacuum", air.to_vacuum(BALMER_AIR))):
        shifts = [_deepest(wavelength, spectrum, line) / line - 1.0 for line in lines[usable]]
        offsets[medium] = float(np.median(shifts) * SPEED_OF_LIGHT)
    medium = min(offsets, key=lambda name: abs(offsets[name]))
    if not abs(offsets[medium]) < NEAREST:
        raise ValueError(
            f"{name}: expected the Balmer lines within {NEAREST:g} km/s of rest in air or in vacuum, got "
            f"{offsets['air']:.0f} and {offsets['vacuum']:.0f} km/s: the wavelengths are redshifted or not in Angstrom"
        )
    return medium, offsets[medium]


def shows_lines(wavelength: Float[ndarray, " rest"]) -> Bool[ndarray, " line"]:
    """Which of the four Balmer lines are covered, and sampled finely enough to be measured."""
    covered = (wavelength[0] + SEARCH < BALMER_AIR) & (wavelength[-1] - SEARCH > BALMER_AIR)
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
    return np.interp(BALMER_AIR, wavelength[:-1], np.diff(wavelength))


def _deepest(wavelength: Float[ndarray, " rest"], spectrum: Float[ndarray, " rest"], line: float) -> float:
    """Wavelength of the minimum of a parabola fitted around the deepest node near `line`."""
    near = np.flatnonzero(np.abs(wavelength - line) < SEARCH)
    lowest = near[np.argmin(spectrum[near])]
    reach = np.abs(wavelength - wavelength[lowest]) <= CORE
    reach[lowest - 1 : lowest + 2] = True
    curvature, slope, _ = np.polyfit(wavelength[reach] - wavelength[lowest], spectrum[reach], 2)
    return float(wavelength[lowest] - slope / (2.0 * curvature)) if curvature > 0 else float("nan")
