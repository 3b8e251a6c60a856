"""Case B against tables of Storey & Hummer 1995; the continuum against coefficients of Ercolano & Storey 2006."""

import numpy as np
import pytest
from astropy import units

from rubix_like.extend import energy_per_photon, nebular_continuum, ratio_to_h_beta
from rubix_like.nebular import LINES, recombination_coefficient
from rubix_like.nebular.case_b import capture_light, hydrogen_lines, temperature_of_ratio, two_photon_light

STOREY_HUMMER = {
    ("Ha", 100.0): {5000: 3.041, 7500: 2.929, 10000: 2.863, 12500: 2.821, 15000: 2.788, 20000: 2.747},
    ("Hg", 100.0): {5000: 0.4584, 7500: 0.4645, 10000: 0.4683, 12500: 0.4711, 15000: 0.4729, 20000: 0.4755},
    ("Hd", 100.0): {5000: 0.2515, 7500: 0.2560, 10000: 0.2589, 12500: 0.2610, 15000: 0.2624, 20000: 0.2643},
    ("Pab", 100.0): {5000: 0.1840, 7500: 0.1716, 10000: 0.1632, 12500: 0.1571, 15000: 0.1522, 20000: 0.1451},
    ("Brg", 100.0): {5000: 0.0330, 7500: 0.0299, 10000: 0.0278, 12500: 0.0263, 15000: 0.0251, 20000: 0.0234},
    ("Ha", 1e4): {10000: 2.847},
    ("H12", 100.0): {10000: 0.03053},
    ("Pa9", 100.0): {10000: 0.02543},
}
"""Luminosities over that of Hb at temperatures in K (MNRAS 272, 41; CDS VI/64)."""


def at(function, line, temperature, density):
    return float(function(line, np.array([float(temperature)]), np.array([float(density)]))[0])


@pytest.mark.parametrize(("line", "density"), STOREY_HUMMER)
def test_ratios_to_h_beta(line, density):
    for temperature, ratio in STOREY_HUMMER[line, density].items():
        assert at(ratio_to_h_beta, line, temperature, density) == pytest.approx(ratio, rel=3e-3)


def test_textbook_values_at_1e4_k():
    """Osterbrock & Ferland 2006, tables 2.1, 4.2 and 4.4; Draine 2011, section 14.2."""
    assert at(ratio_to_h_beta, "Ha", 1e4, 100) == pytest.approx(2.863, rel=5e-3)
    assert at(ratio_to_h_beta, "Hg", 1e4, 100) == pytest.approx(0.468, rel=5e-3)
    assert at(energy_per_photon, "Ha", 1e4, 100) == pytest.approx(1.365e-12, rel=5e-3)
    with_units = energy_per_photon("Ha", np.array([1e4]) * units.K, np.array([1e8]) / units.m**3)
    assert with_units[0] == pytest.approx(1.365e-12, rel=5e-3)
    assert recombination_coefficient(np.array([1e4]), np.array([100.0]))[0] == pytest.approx(2.59e-13, rel=5e-3)


@pytest.mark.parametrize("temperature", [5000, 7500, 10000, 15000, 20000])
def test_h_beta_per_photon_is_that_of_draine(temperature):
    """Draine 2011, table 14.2: alpha_eff(Hb) = 3.03e-14 T4^(-0.874 - 0.058 ln T4) and eq. 14.6 in its other form."""
    t4 = temperature / 1e4
    effective = 3.03e-14 * t4 ** (-0.874 - 0.058 * np.log(t4))
    recombination = 2.59e-13 * t4 ** (-0.833 - 0.034 * np.log(t4))
    expected = effective / recombination * 6.62607015e-27 * 2.99792458e10 / 4862.7e-8
    assert at(energy_per_photon, "Hb", temperature, 100) == pytest.approx(expected, rel=6e-3)


def test_energy_of_the_photons_is_conserved():
    """All lines and more than them take less than 13.6 eV less the ground state's part: 3.4 eV a recombination."""
    temperature, density = np.full(1, 1e4), np.full(1, 100.0)
    lines = {name: energy_per_photon(name, temperature, density)[0] for name in hydrogen_lines()}
    assert set(lines) <= set(LINES)
    assert sum(lines.values()) < 3.4 * 1.602e-12


def test_a_ratio_tells_its_temperature():
    temperature, density = np.array([3500.0, 8000.0, 19000.0]), np.array([100.0, 1000.0, 5000.0])
    ratio = ratio_to_h_beta("Brg", temperature, density)
    np.testing.assert_allclose(temperature_of_ratio("Brg", ratio, density), temperature, rtol=1e-6)
    assert temperature_of_ratio("Brg", np.array([9.0]), np.array([100.0])) == pytest.approx(3000.0)


def test_beyond_the_fits_the_nearest_is_taken():
    assert at(ratio_to_h_beta, "Ha", 1000, 1) == at(ratio_to_h_beta, "Ha", 3000, 100)
    assert at(ratio_to_h_beta, "Ha", 1e5, 1e7) == at(ratio_to_h_beta, "Ha", 3e4, 1e4)


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
    frequency = np.geomspace(2e12, 2.2e16, 50001)
    photons = capture_light(frequency, 1e4, 0.0) / (6.626e-27 * frequency)
    total = np.trapezoid(photons, frequency)
    assert total == pytest.approx(2.59e-13, rel=0.05)
    assert total < 2.62e-13


def test_energy_is_less_than_that_of_the_photon():
    wavelength = np.geomspace(1216.0, 1e6, 5001)
    for temperature in (5000.0, 20000.0):
        assert 0.0 < np.trapezoid(nebular_continuum(wavelength, temperature, 100.0), wavelength) < 13.6 * 1.602e-12
