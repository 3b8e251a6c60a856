"""Ionising photons of SSP libraries against published rates, and of spectra with a known integral."""

import numpy as np
import pytest
from scipy.integrate import quad
from ssp_files.cached import cached_library

from rubix_like import ConfigError, SSPLibrary, load_ssp
from rubix_like.extend import ionising_photons
from rubix_like.physics.rebin import photons_below
from rubix_like.ssp.ionising_photons import photons_of_constant_rate

HALPHA = 1.37e-12
"""erg per ionising photon, case B at 1e4 K (Kennicutt & Evans 2012 have it in their calibration)."""

PLANCK_CONSTANT_TIMES_C = 1.98644586e-8
"""erg Angstrom"""


def star_formation_per_halpha(name, metallicity):
    """log10 of SFR / L(Ha) (Msun/yr per erg/s) of a constant rate for 100 Myr, by numpy over the library's ages."""
    library = load_ssp(name)
    rates = ionising_photons(library)[int(np.argmin(np.abs(library.metallicity - metallicity)))]
    age = np.append(0.0, np.geomspace(10 ** library.log_age[0], 1e8, 5001))
    photons = np.interp(age, 10**library.log_age, rates)
    return -np.log10(HALPHA * np.trapezoid(photons, age))


def test_the_calibration_of_the_star_formation_rate():
    """-41.27: Murphy et al. 2011, ApJ 737, 67; Kennicutt & Evans 2012, ARA&A 50, 531 (Starburst99, Kroupa, solar)."""
    assert star_formation_per_halpha("popstar", 0.02) == pytest.approx(-41.27, abs=np.log10(1.03))


@pytest.mark.slow(5)
def test_another_library_has_more_photons():
    """BC03-MILES: 1.46 times those of PopStar at solar metallicity."""
    if not cached_library("bc03-miles").is_file():
        pytest.skip("bc03-miles is not in the cache")
    assert star_formation_per_halpha("bc03-miles", 0.02) == pytest.approx(-41.435, abs=np.log10(1.03))


def test_the_integral_is_exact_between_nodes():
    wavelength = np.array([100.0, 300.0, 310.0, 800.0, 905.0, 915.0, 1200.0])
    light = np.array([1.0, 5.0, 2.0, 7.0, 3.0, 50.0, 60.0])
    below = np.append(light[:5], light[4]), np.append(wavelength[:5], 911.753)
    expected = sum(
        quad(lambda x: x * np.interp(x, below[1], below[0]), low, high)[0]
        for low, high in zip(below[1], below[1][1:], strict=False)
    )
    found = photons_below(911.753, wavelength, np.stack([light, 2 * light]))
    np.testing.assert_allclose(found * PLANCK_CONSTANT_TIMES_C, [expected, 2 * expected], rtol=1e-7)


@pytest.mark.parametrize("first", [1000.0, 500.0])
def test_a_library_without_the_light_is_refused(first):
    library = SSPLibrary(
        spectra=np.ones((2, 2, 3)),
        log_age=np.array([6.0, 7.0]),
        metallicity=np.array([0.01, 0.02]),
        rest_wavelength=np.array([first, 1100.0, 1200.0]),
        fwhm=np.ones(3),
        name="optical",
    )
    with pytest.raises(
        ConfigError, match=r"'optical' has no ionising light: .* from 300 A or less, got .*popstar \(embedded\)"
    ):
        ionising_photons(library)


def test_a_constant_rate_is_the_integral_over_ages():
    """Against a sum over 1e6 equal steps of time, with an end between two ages, and one before the first."""
    log_age, photons = np.array([5.0, 6.0, 6.5, 7.0, 8.0]), np.array([[4.0, 5.0, 2.0, 0.5, 0.01], [1.0, 1, 1, 1, 1]])
    for oldest in (5e4, 2.2e7):
        years = (np.arange(10**6) + 0.5) * oldest / 10**6
        expected = [np.interp(np.log10(years), log_age, own).mean() * oldest for own in photons]
        np.testing.assert_allclose(photons_of_constant_rate(log_age, photons, oldest), expected, rtol=1e-8)
