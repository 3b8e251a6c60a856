"""Light of the SSP libraries: energies, colours, lines and their agreement with each other."""

import os

import numpy as np
import pytest

from rubix_like import load_ssp
from rubix_like.extend import cache_directory

SOLAR = 0.02


def load_fetched(name):
    """A library from the user's cache; outside CI its tests are skipped where it has not been fetched."""
    path = cache_directory() / "ssp" / f"{name}.h5"
    if not path.is_file() and not os.environ.get("CI"):
        pytest.skip(f"{name} is not in the cache (rubix-like ssp get {name})")
    return load_ssp(name)


@pytest.fixture(scope="module")
def popstar():
    return load_ssp("popstar")


@pytest.fixture(scope="module")
def bc03_miles():
    return load_fetched("bc03-miles")


@pytest.fixture(scope="module")
def bc03_lr():
    return load_fetched("bc03-lr")


def spectrum(library, log_age, metallicity=SOLAR):
    """Bilinear in log age and log Z, written out here."""
    by_age = [np.stack([np.interp(log_age, library.log_age, column) for column in rows.T]) for rows in library.spectra]
    position = np.interp(np.log10(metallicity), np.log10(library.metallicity), np.arange(len(library.metallicity)))
    low = min(int(position), len(by_age) - 2)
    return by_age[low] + (position - low) * (by_age[low + 1] - by_age[low])


def v_band(library, log_age):
    """Mean over a box of 5050-5950 A, near Johnson V."""
    wavelength = np.linspace(5050, 5950, 2000)
    return np.mean(np.interp(wavelength, library.rest_wavelength, spectrum(library, log_age)))


def test_bolometric_light_per_birth_mass(popstar):
    """Lsun per Msun of a solar population: about 1000 at birth, 1-2 at 1 Gyr, 0.2-0.3 at 10 Gyr (Bruzual & Charlot)."""
    for log_age, low, high in ((6.3, 700, 1600), (9.0, 1.2, 2.2), (10.0, 0.15, 0.35)):
        assert low < np.trapezoid(spectrum(popstar, log_age), popstar.rest_wavelength) < high


def test_a_population_fades_and_reddens(popstar):
    ages = np.array([7.5, 8.5, 9.5, 10.1])
    light = np.array([spectrum(popstar, age) for age in ages])
    colour = light[:, np.searchsorted(popstar.rest_wavelength, 4000)] / light[:, 700]
    assert np.all(np.diff(np.trapezoid(light, popstar.rest_wavelength)) < 0)
    assert np.all(np.diff(colour) < 0)


def test_only_the_young_ionise(popstar):
    """Ionising photons per second and solar mass: 10^46-10^47 at 1 Myr, 10^5 times fewer at 1 Gyr."""
    photon = 1.98644586e-8 / popstar.rest_wavelength  # erg
    below = popstar.rest_wavelength < 911.76
    rates = [
        np.trapezoid((spectrum(popstar, age) * 3.828e33 / photon)[below], popstar.rest_wavelength[below])
        for age in (6.0, 9.0)
    ]
    assert 1e46 < rates[0] < 1.2e47
    assert rates[1] < 1e-4 * rates[0]


def test_popstar_and_bc03_lr_agree_in_v(popstar, bc03_lr):
    assert v_band(popstar, 9.0) == pytest.approx(v_band(bc03_lr, 9.0), rel=0.1)
    assert v_band(popstar, 10.0) == pytest.approx(v_band(bc03_lr, 10.0), rel=0.1)


def test_bc03_miles_agrees_with_popstar_for_its_imf(popstar, bc03_miles):
    """Kroupa's IMF has more mass in faint stars than Chabrier's: 5-20 % less light."""
    assert 0.8 < v_band(bc03_miles, 9.0) / v_band(popstar, 9.0) < 0.95
    assert 0.8 < v_band(bc03_miles, 10.0) / v_band(popstar, 10.0) < 1.0


def test_bc03_miles_lines_stand_at_vacuum_wavelengths(bc03_miles):
    """Core of Ca II K, H alpha, a Ca II triplet line and Mg II k at 1 Gyr, to 0.6 A (air is 0.8-2.3 off)."""
    for line, half in ((3934.775, 12), (6564.614, 15), (8544.438, 16), (2796.352, 4)):
        near = np.abs(bc03_miles.rest_wavelength - line) < half
        wavelength, light = bc03_miles.rest_wavelength[near], spectrum(bc03_miles, 9.0)[near]
        depth = np.interp(wavelength, wavelength[[0, -1]], light[[0, -1]]) - light
        depth = np.where(depth > 0.5 * depth.max(), depth, 0)
        assert np.sum(depth * wavelength) / np.sum(depth) == pytest.approx(line, abs=0.6)


def test_bc03_miles_has_all_ages_and_metallicities_and_its_resolution(bc03_miles):
    assert bc03_miles.spectra.shape == (6, 220, 13216)
    fwhm = np.interp([3000.0, 5000.0, 8000.0, 9500.0], bc03_miles.rest_wavelength, bc03_miles.fwhm)
    np.testing.assert_allclose(fwhm, [1.0, 2.5, 3.0, 9500 / 300], rtol=0.01)


def test_bc03_miles_surviving_mass_is_kroupa(bc03_miles):
    """At 37 Myr: stars below 8.5 Msun (79.4 % of Kroupa's IMF of 0.1-100 Msun), and the remnants of the others.

    Remnants: 1.4 Msun up to 40 Msun, half the birth mass beyond (Renzini & Ciotti 1993).
    """
    surviving = np.interp(7.568, bc03_miles.log_age, bc03_miles.surviving_fraction[4])
    mass = np.geomspace(0.1, 100, 200001)
    by_mass = mass * np.where(mass < 0.5, mass**-1.3, 0.5 * mass**-2.3)
    below = mass < 8.5
    kept = np.where(below, 1.0, np.where(mass < 40, 1.4 / mass, 0.5))
    assert surviving == pytest.approx(np.trapezoid(by_mass * kept, mass) / np.trapezoid(by_mass, mass), abs=0.02)
    assert np.all(np.diff(bc03_miles.surviving_fraction[4]) < 1e-2)
