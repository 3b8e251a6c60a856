"""Quantities of gas that are told by others: temperature, smoothing length."""

import numpy as np
import pytest
from astropy import constants, units

from rubix_like.readers.derived_columns import assumed_temperature, gas_temperature
from rubix_like.readers.snapshot import cell_length, complete_gas

N = 200
RNG = np.random.default_rng(1)
ENERGY = 10 ** RNG.uniform(0, 6, N)
ELECTRONS = RNG.uniform(0, 1.2, N)
HYDROGEN = RNG.uniform(0.7, 0.76, N)
MASS = RNG.uniform(1e5, 1e6, N)
BASE = {"mass": MASS, "internal_energy": ENERGY}


def kelvin(energy, weight):
    """T = 2/3 u mu m_p / k_B."""
    return (2 / 3 * energy * (units.km / units.s) ** 2 * weight * constants.m_p / constants.k_B).to_value(units.K)


def test_temperature_with_electrons():
    table, notes = complete_gas(BASE | {"electron_abundance": ELECTRONS, "hydrogen_fraction": HYDROGEN})
    weight = 4 / (1 + 3 * HYDROGEN + 4 * HYDROGEN * ELECTRONS)
    np.testing.assert_allclose(table["temperature"], kelvin(ENERGY, weight), rtol=1e-12)
    assert notes == ()
    np.testing.assert_array_equal(table["mass"], MASS)


def test_the_file_s_temperature_goes_before():
    table, notes = complete_gas(BASE | {"temperature": np.full(N, 5e4), "electron_abundance": ELECTRONS})
    np.testing.assert_array_equal(table["temperature"], 5e4)
    assert notes == ()


def test_temperature_without_electrons():
    """Neutral, mu = 4 / (1 + 3 X), below 1e4 K; ionised, mu = 1 / (2 X + 3/4 Y), above; never falling with energy."""
    table, notes = complete_gas(BASE)
    temperature = table["temperature"]
    cold, hot = temperature < 0.999e4, temperature > 1.001e4
    np.testing.assert_allclose(temperature[cold], kelvin(ENERGY[cold], 4 / (1 + 3 * 0.76)), rtol=1e-12)
    np.testing.assert_allclose(temperature[hot], kelvin(ENERGY[hot], 1 / (2 * 0.76 + 0.75 * 0.24)), rtol=1e-12)
    assert cold.any()
    assert hot.any()
    assert (~(cold | hot)).any()
    assert (np.diff(temperature[np.argsort(ENERGY)]) >= 0).all()
    assert "as neutral below 10000 K and ionised above" in notes[0]
    assert "200 of 200 particles" in notes[0]


def test_the_assumption_is_the_formula_at_both_ends():
    x = np.array([0.7, 0.7])
    full = 1 + 0.3 / 1.4
    found = assumed_temperature(np.array([10.0, 1e4]), x)
    np.testing.assert_allclose(found, gas_temperature(np.array([10.0, 1e4]), np.array([0, full]), x), rtol=1e-12)
    assert found[1] > 1e4 > found[0]


def test_groups_that_lack_a_column():
    half = np.arange(N) < N // 2
    electrons = np.where(half, ELECTRONS, np.nan)
    table, notes = complete_gas(BASE | {"electron_abundance": electrons, "star_formation_rate": electrons})
    whole = complete_gas(BASE | {"electron_abundance": ELECTRONS})[0]["temperature"]
    none = complete_gas(BASE)[0]["temperature"]
    np.testing.assert_allclose(table["temperature"], np.where(half, whole, none), rtol=1e-12)
    assert "electron_abundance" not in table
    assert "star_formation_rate" not in table
    assert "star_formation_rate of the gas left out: only some of it has one" in notes
    assert any("100 of 200 particles" in note for note in notes)


def test_nothing_tells_the_temperature():
    table, notes = complete_gas({"mass": MASS})
    assert set(table) == {"mass"}
    assert notes == ()


def test_smoothing_length_of_cells():
    """Twice the radius of a sphere as large as the cell; the file's own where it has one."""
    density = RNG.uniform(1e3, 1e6, N)
    volume = MASS / density
    table, _ = complete_gas({"mass": MASS, "density": density})
    np.testing.assert_allclose(4 / 3 * np.pi * (table["smoothing_length"] / 2) ** 3, volume, rtol=1e-12)
    np.testing.assert_array_equal(
        complete_gas({"mass": MASS, "density": density, "smoothing_length": volume})[0]["smoothing_length"], volume
    )
    assert np.isnan(cell_length(MASS[:1], np.zeros(1))).all()
    density[0] = 0
    table, notes = complete_gas({"mass": MASS, "density": density})
    assert "smoothing_length" not in table
    assert notes == ("smoothing_length of the gas left out: only some of it has one",)


def test_hot_gas_of_known_energy():
    """1e6 K of ionised gas, mu = 0.588, has u = 3/2 k T / (mu m_p) = 2.1e4 (km/s)^2."""
    assert assumed_temperature(np.array([2.1e4]), np.array([0.76]))[0] == pytest.approx(1e6, rel=0.01)
