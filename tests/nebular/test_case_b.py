"""Case B against the tables of Storey & Hummer 1995."""

import numpy as np
import pytest
from astropy import units

from rubix_like.extend import energy_per_photon, ratio_to_h_beta
from rubix_like.nebular import LINES, recombination_coefficient
from rubix_like.nebular.case_b import hydrogen_lines, temperature_of_ratio

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
