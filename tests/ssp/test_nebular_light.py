"""Libraries whose young populations hold the light of their gas, or have lost their ionising light to it."""

from dataclasses import replace

import numpy as np
import pytest
from ssp_files.cached import cached_library

from rubix_like import ConfigError, load_ssp
from rubix_like.extend import ionising_photons, nebular_continuum
from rubix_like.ssp.ionising_photons import check_bare, check_ionising

SUN = 3.828e33
H_ALPHA, PER_PHOTON = 6564.61, 1.365e-12
"""Vacuum Angstrom, and erg per ionising photon at 1e4 K and 100 electrons per cm^3 (Storey & Hummer 1995)."""


@pytest.fixture(scope="module")
def bare():
    return load_ssp("popstar")


def with_gas(library, line=0.0, continuum=0.0, left=1.0, oldest=8.0):
    """The library with Ha (20 A wide, as its spectra are) and the continuum of all photons up to an age."""
    wavelength, spectra = np.asarray(library.rest_wavelength), np.array(library.spectra)
    profile = np.exp(-0.5 * ((wavelength - H_ALPHA) / 8.5) ** 2)
    light = line * PER_PHOTON * profile / np.trapezoid(profile, wavelength)
    light = (light + continuum * nebular_continuum(wavelength, 1e4, 100.0)) / SUN
    young = np.asarray(library.log_age) < oldest
    photons = np.where(young, ionising_photons(library), 0.0)
    spectra += photons[..., None] * light
    absorbed = wavelength < 912.0
    spectra[:, young] = np.where(absorbed, left * spectra[:, young], spectra[:, young])
    return replace(library, spectra=spectra, name="with gas")


def test_libraries_of_bare_stars_are_taken(bare):
    check_bare(bare)
    for name in ("bc03-miles", "bc03-lr"):
        if cached_library(name).is_file():
            check_bare(load_ssp(name))


@pytest.mark.parametrize(
    ("light", "sign"),
    [
        ({"line": 1.0}, "equivalent width of Ha"),
        ({"line": 0.1}, "equivalent width of Ha"),
        ({"continuum": 1.0}, "Balmer jump in emission"),
        ({"line": 1.0, "continuum": 1.0}, "Ha of .* and a Balmer jump"),
    ],
)
def test_the_light_of_gas_is_refused(bare, light, sign):
    """A tenth of the line suffices."""
    with pytest.raises(ConfigError, match=rf"'with gas', .*{sign}.*counted twice; take .*popstar"):
        check_bare(with_gas(bare, **light))


def test_spectra_whose_ionising_light_was_taken_are_refused(bare):
    """As FSPS with nebular emission: none is left up to 10 Myr, and that of old stars is no reason to go on."""
    absorbed = with_gas(bare, left=0.0, oldest=7.0)
    with pytest.raises(
        ConfigError, match=r"'with gas' has no ionising light of young stars: .*take bare stars: popstar"
    ):
        check_ionising(absorbed)
