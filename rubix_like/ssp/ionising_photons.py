"""The photons of stellar populations that ionise hydrogen: Q_H of every spectrum of an SSP library."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.constants import LYMAN_LIMIT, SOLAR_LUMINOSITY
from rubix_like.errors import ConfigError
from rubix_like.physics.rebin import photons_below
from rubix_like.ssp.library import SSPLibrary

FIRST_WAVELENGTH = 300.0
"""Angstrom at which, or before which, a library must begin: a tenth of the photons of young stars is below 400 A."""

SHORT_LIVED: float = 6.7
"""log10(age / yr) up to which all populations make at least 1e45 ionising photons per second and Msun."""

FEWEST_PHOTONS: float = 1e44
"""Per second and Msun at birth that the youngest population must have, if it is as young as that."""


def check_ionising(library: SSPLibrary) -> None:
    """Raise ConfigError, with the libraries to take instead, for a library without light below 912 A.

    So it does for one whose youngest populations, up to 5 Myr, have next to none: gas has absorbed it.
    """
    remedy = "popstar (embedded), bc03-miles or bc03-lr (rubix-like ssp get bc03-miles)"
    wavelength, spectra = np.asarray(library.rest_wavelength), np.asarray(library.spectra)
    inside = wavelength < LYMAN_LIMIT
    if wavelength[0] > FIRST_WAVELENGTH or not np.any(spectra[..., inside] > 0.0):
        raise ConfigError(
            f"ssp.library: '{library.name}' has no ionising light: expected spectra from {FIRST_WAVELENGTH:g} A or "
            f"less, got {wavelength[0]:.5g}-{wavelength[-1]:.5g} A. Nebulae of its stars need a library that has it: "
            f"{remedy}"
        )
    photons = float(_photons(wavelength, spectra[:, 0]).max())
    if library.log_age[0] <= SHORT_LIVED and photons < FEWEST_PHOTONS:
        raise ConfigError(
            f"ssp.library: '{library.name}' has no ionising light of young stars: expected {FEWEST_PHOTONS:g} photons "
            f"per second and Msun or more at 10^{float(library.log_age[0]):.2f} yr, got {photons:.2g}. Gas has "
            f"absorbed them, as in spectra with nebular emission, which hold its light already; take bare stars: "
            f"{remedy}"
        )


@named_arguments
def ionising_photons(library: SSPLibrary) -> Float[ndarray, "metal age"]:
    """Photons below 912 A per second and per Msun at birth, of every age and metallicity of a library.

    Raises ConfigError as `check_ionising`.
    """
    check_ionising(library)
    return _photons(np.asarray(library.rest_wavelength), np.asarray(library.spectra))


def _photons(wavelength: Float[ndarray, " rest"], spectra: Float[ndarray, "*node rest"]) -> Float[ndarray, "*node"]:
    return photons_below(LYMAN_LIMIT, wavelength, spectra) * SOLAR_LUMINOSITY


def photons_of_constant_rate(
    log_age: Float[ndarray, " age"], photons: Float[ndarray, "metal age"], oldest: float
) -> Float[ndarray, " metal"]:
    """Photons per second of the stars up to the age `oldest` (yr) that a rate of 1 Msun/yr has made, constant so long.

    `photons`: of `ionising_photons`, at these log10 ages (yr); between them they are straight in the logarithm of the
    age, as in the look-up of stars, and level before the first one and after the last.
    """
    ages = 10.0**log_age
    nodes = np.append(ages[ages < oldest], oldest)
    values = np.stack([np.interp(np.log(nodes), np.log(ages), rates) for rates in photons])
    step = np.diff(nodes)
    last_weight = nodes[1:] - step / np.diff(np.log(nodes))
    between = values[:, :-1] * (step - last_weight) + values[:, 1:] * last_weight
    return nodes[0] * values[:, 0] + between.sum(axis=1)


LARGEST_WIDTH: float = 30.0
"""Angstrom of Ha in emission that young bare stars may have: those of PopStar and BC03 have -5 to 1."""

LARGEST_JUMP: float = 1.1
"""Light at 3595 A over that extrapolated from 4040-4460 A that young bare stars may have: PopStar and BC03 have 0.9 or
less; with the continuum of their gas populations of 1 Myr have 1.3 (Z = 0.05) to 2.8."""

_JUMP_SEEN = 6.3
"""log10(age / yr) up to which gas turns the Balmer jump into emission at every metallicity up to the Sun's."""

_H_ALPHA = 6564.6
_CORE, _SIDE = 25.0, 100.0
"""Angstrom around Ha of the line, and of the continuum."""

_BLUE, _MIDDLE, _RED = (3560.0, 3630.0), (4000.0, 4080.0), (4420.0, 4500.0)
"""Angstrom below the Balmer jump, and of two windows beyond it."""


def check_bare(library: SSPLibrary) -> None:
    """Raise ConfigError, with the libraries to take instead, for one whose young populations hold nebular light.

    Lines of Ha are looked for up to 5 Myr, the continuum's Balmer jump up to 2 Myr, where it is sure to be seen.
    """
    wavelength, spectra = (
        np.asarray(library.rest_wavelength),
        np.asarray(np.asarray(library.spectra)[:, 0], dtype=np.float64),
    )
    youngest, signs = float(library.log_age[0]), []
    is_young = youngest <= SHORT_LIVED
    if is_young and wavelength[0] < _H_ALPHA - _SIDE and wavelength[-1] > _H_ALPHA + _SIDE:
        width = max(_width_of_h_alpha(wavelength, spectrum) for spectrum in spectra)
        signs += [f"an equivalent width of Ha of {width:.0f} A"] if width > LARGEST_WIDTH else []
    if youngest <= _JUMP_SEEN and wavelength[0] < _BLUE[0] and _RED[1] < wavelength[-1]:
        jump = max(_balmer_jump(wavelength, spectrum) for spectrum in spectra)
        signs += [f"a Balmer jump in emission, by a factor of {jump:.2g}"] if jump > LARGEST_JUMP else []
    if signs:
        raise ConfigError(
            f"ssp.library: expected bare stars for a pipeline that paints stars and nebulae, got '{library.name}', "
            f"whose young populations hold nebular light ({' and '.join(signs)}): it would be counted twice; take the "
            f"pipeline stellar, or one of popstar (embedded), bc03-miles (rubix-like ssp get bc03-miles) and fsps "
            f"(rubix-like ssp get fsps)"
        )


def _width_of_h_alpha(wavelength: Float[ndarray, " rest"], spectrum: Float[ndarray, " rest"]) -> float:
    """Equivalent width (Angstrom), positive in emission."""
    near = np.linspace(_H_ALPHA - _CORE, _H_ALPHA + _CORE, 2001)
    sides = [(_H_ALPHA + sign * 0.75 * _SIDE - _CORE, _H_ALPHA + sign * 0.75 * _SIDE + _CORE) for sign in (-1, 1)]
    level = 0.5 * sum(_mean(wavelength, spectrum, *side) for side in sides)
    return float(np.trapezoid(np.interp(near, wavelength, spectrum) / level - 1.0, near)) if level > 0 else 0.0


def _balmer_jump(wavelength: Float[ndarray, " rest"], spectrum: Float[ndarray, " rest"]) -> float:
    """Light below the jump over that of the power law through the two windows beyond it."""
    blue, middle, red = (_mean(wavelength, spectrum, *window) for window in (_BLUE, _MIDDLE, _RED))
    places = [0.5 * sum(window) for window in (_BLUE, _MIDDLE, _RED)]
    if min(blue, middle, red) <= 0:
        return 0.0
    slope = np.log(middle / red) / np.log(places[1] / places[2])
    return float(blue / (middle * (places[0] / places[1]) ** slope))


def _mean(wavelength: Float[ndarray, " rest"], spectrum: Float[ndarray, " rest"], first: float, last: float) -> float:
    return float(np.interp(np.linspace(first, last, 201), wavelength, spectrum).mean())
