"""The nebular continuum against the coefficients of Ercolano & Storey 2006 and against its own physics."""

import numpy as np
import pytest

from rubix_like.extend import nebular_continuum
from rubix_like.nebular import recombination_coefficient
from rubix_like.nebular.case_b import capture_light, two_photon_light

WAVELENGTH = np.array(
    [1300.0, 1500, 2000, 2500, 3000, 3400, 3500, 3600, 3700, 4500, 5500, 7000, 8150, 8300, 10000, 16000]
)

ERCOLANO_STOREY = {
    5000.0: "1674 2021.8 1070.9 699.44 802.58 1338.5 1401.2 1603.5 "
    "170.06 108.57 92.732 108.54 122.94 27.484 26.164 10.547",
    10000.0: "1017 1239.1 737.43 585.17 601.23 673.49 649.98 668.72 "
    "132.81 98.331 81.479 69.540 61.827 27.266 22.459 8.8626",
    20000.0: "683.78 849.38 582.61 450.37 379.34 343.76 321.32 314.29 "
    "116.98 86.028 64.651 46.255 36.925 24.154 18.222 7.2646",
}
"""1e-30 erg cm^3/s/Angstrom per electron and hydrogen ion, He+/H+ = 0.09, 100 electrons per cm^3: captures of Ercolano
& Storey (2006, MNRAS 372, 1875) with free-free and two-photon light, from `Continuum.get_continuum` of PyNeb 1.1.32."""


@pytest.mark.parametrize("temperature", ERCOLANO_STOREY)
def test_within_3_percent_of_ercolano_and_storey(temperature):
    expected = 1e-30 * np.array([float(value) for value in ERCOLANO_STOREY[temperature].split()])
    per_photon = nebular_continuum(WAVELENGTH, temperature, 100.0)
    found = per_photon * recombination_coefficient(np.array([temperature]), np.array([100.0]))
    np.testing.assert_allclose(found, expected, rtol=0.03)


def test_two_photons_share_the_energy_of_lyman_alpha():
    """Each capture into 2s gives two photons of 10.2 eV together, at low density; collisions halve it."""
    frequency = np.linspace(1e12, 2.466e15, 40001)
    light = two_photon_light(frequency, 1e4, 0.0)
    captures = 0.838e-13
    assert np.trapezoid(light, frequency) == pytest.approx(captures * 10.2 * 1.602e-12, rel=5e-3)
    assert np.trapezoid(light / (6.626e-27 * frequency), frequency) == pytest.approx(2 * captures, rel=5e-3)
    np.testing.assert_allclose(two_photon_light(frequency, 1e4, 8.226 / 5.31e-4), light / 2, rtol=1e-9)


def test_captures_count_all_recombinations():
    """Photons of captures to n >= 2 of pure hydrogen: alpha_B, but for levels beyond the highest (a few per cent)."""
    frequency = np.geomspace(2e12, 2.2e16, 400001)
    photons = capture_light(frequency, 1e4, 0.0) / (6.626e-27 * frequency)
    total = np.trapezoid(photons, frequency)
    assert total == pytest.approx(2.59e-13, rel=0.05)
    assert total < 2.62e-13


def test_energy_is_less_than_that_of_the_photon():
    wavelength = np.geomspace(1216.0, 1e6, 5001)
    for temperature in (5000.0, 20000.0):
        assert 0.0 < np.trapezoid(nebular_continuum(wavelength, temperature, 100.0), wavelength) < 13.6 * 1.602e-12
