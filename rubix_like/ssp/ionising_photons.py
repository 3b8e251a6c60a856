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
    photons = float(_photons(wavelength, young_populations(library)).max())
    if library.log_age[0] <= SHORT_LIVED and photons < FEWEST_PHOTONS:
        raise ConfigError(
            f"ssp.library: '{library.name}' has no ionising light of young stars: expected {FEWEST_PHOTONS:g} photons "
            f"per second and Msun or more at 10^{float(library.log_age[0]):.2f} yr, got {photons:.2g}. Gas has "
            f"absorbed them, as in spectra with nebular emission, which hold its light already; take bare stars: "
            f"{remedy}"
        )


def young_populations(library: SSPLibrary) -> Float[ndarray, "metal rest"]:
    """The spectra of the youngest age, at all metallicities."""
    return np.asarray(library.spectra)[:, 0]


@named_arguments
def ionising_photons(library: SSPLibrary) -> Float[ndarray, "metal age"]:
    """Photons below 912 A per second and per Msun at birth, of every age and metallicity of a library.

    Raises ConfigError as `check_ionising`.
    """
    check_ionising(library)
    wavelength, spectra = np.asarray(library.rest_wavelength), np.asarray(library.spectra)
    return _photons(wavelength, spectra)


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
    values = np.stack([np.interp(np.log(nodes), np.log(ages), own) for own in photons])
    step = np.diff(nodes)
    last_weight = nodes[1:] - step / np.diff(np.log(nodes))
    between = values[:, :-1] * (step - last_weight) + values[:, 1:] * last_weight
    return nodes[0] * values[:, 0] + between.sum(axis=1)
