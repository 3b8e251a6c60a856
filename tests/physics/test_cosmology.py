import numpy as np
import pytest
from astropy import units
from astropy.cosmology import WMAP9, FlatLambdaCDM, LambdaCDM, Planck18

from rubix_like import ConfigError
from rubix_like.physics.cosmology import (
    age_table,
    find_cosmology,
    luminosity_distance,
    snapshot_cosmology,
    universe_age,
)

TNG = (0.6774, 0.3089, 0.6911)


def direct_ages(cosmology, snapshot, births):
    """Age differences integrated by astropy between the two redshifts, so that nothing cancels."""
    return (
        cosmology.lookback_time(1 / births - 1) - cosmology.lookback_time(np.full_like(births, 1 / snapshot - 1))
    ).to_value(units.yr)


@pytest.mark.parametrize(("numbers", "snapshot"), [(TNG, 1.0), (TNG, 0.77058363), (TNG, 0.25), ((0.7, 0.4, 0.75), 1.0)])
def test_ages_equal_astropy(numbers, snapshot):
    """Of a flat model and a closed one."""
    births = snapshot * np.concatenate([np.geomspace(0.02, 0.9, 40), 1 - np.geomspace(1e-1, 1e-4, 20)])
    h, omega_m, omega_l = numbers
    reference = LambdaCDM(H0=100 * h, Om0=omega_m, Ode0=omega_l, Tcmb0=0)
    ages = age_table(snapshot_cosmology(*numbers), snapshot).stellar_age(births)
    np.testing.assert_allclose(ages, direct_ages(reference, snapshot, births), rtol=1e-6)


def test_tiny_ages_follow_the_hubble_rate():
    """Age -> (1 - a / a_snap) / H where the interval is short: relative accuracy holds down to one part in 1e7 of a."""
    cosmology = snapshot_cosmology(*TNG)
    births = 1 - np.array([1e-5, 1e-6, 6e-8])
    expected = (1 - births) / (67.74 * units.km / units.s / units.Mpc).to_value(1 / units.yr)
    np.testing.assert_allclose(age_table(cosmology, 1.0).stellar_age(births), expected, rtol=2e-5)


@pytest.mark.parametrize("snapshot", [1.0, 0.77058363, 0.3333333])
def test_birth_at_the_snapshot_has_age_exactly_zero(snapshot):
    births = np.array([snapshot, snapshot + 5e-5, np.float64(np.float32(snapshot))])
    ages = age_table(snapshot_cosmology(*TNG), snapshot).stellar_age(births)
    assert ages[0] == 0
    assert ages[1] == 0
    assert 0 <= ages[2] < 1e4


def test_births_outside_the_table_are_refused():
    table = age_table(snapshot_cosmology(*TNG), 0.5)
    for birth in (0.6, 1e-4, np.nan):
        with pytest.raises(ValueError, match=r"at star 1 \(1 of 3\)"):
            table.stellar_age(np.array([0.2, birth, 0.3]))


@pytest.mark.parametrize(
    "numbers", [(0.0, 0.3, 0.7), (70.0e3, 0.3, 0.7), (0.7, 0.0, 1.0), (0.7, 0.3, 1e30), (0.7, 0.1, 5.0)]
)
def test_snapshot_cosmology_refuses_an_impossible_header(numbers):
    with pytest.raises(ValueError, match=r"HubbleParam in \[0.01, 100\]"):
        snapshot_cosmology(*numbers)


def test_luminosity_distance_equals_an_integral():
    """D_L = (1 + z) c / H0 times the integral of dz / E, in a flat model without radiation."""
    nodes = np.linspace(0, 0.5, 20001)
    inverse = 1 / np.sqrt(0.3089 * (1 + nodes) ** 3 + 0.6911)
    integral = np.sum((inverse[1:] + inverse[:-1]) / 2) * (nodes[1] - nodes[0])
    expected = 1.5 * 299792.458 / 67.74 * integral
    assert luminosity_distance(FlatLambdaCDM(H0=67.74, Om0=0.3089, Tcmb0=0), 0.5) == pytest.approx(expected, rel=1e-8)
    assert luminosity_distance(Planck18, 0.0) == 0.0
    with pytest.raises(ConfigError, match="redshift"):
        luminosity_distance(Planck18, -0.1)


def test_universe_age():
    """t0 = 2 / (3 H0 sqrt(O_L)) asinh(sqrt(O_L / O_m)) for flat matter and Lambda."""
    hubble_time = 1 / (67.74 * units.km / units.s / units.Mpc).to_value(1 / units.yr)
    expected = 2 / 3 * hubble_time / np.sqrt(0.6911) * np.arcsinh(np.sqrt(0.6911 / 0.3089))
    assert snapshot_cosmology(*TNG).age(0.0) == pytest.approx(expected, rel=1e-13)
    assert universe_age(FlatLambdaCDM(H0=67.74, Om0=0.3089, Tcmb0=0), 0.0) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("numbers", [TNG, (0.7, 0.4, 0.75), (0.5, 0.3, 0.0), (0.7, 2.0, 0.0)])
def test_the_expansion_of_a_simulation_equals_astropy(numbers):
    """Rates to the last bit; ages to 1e-8, the tolerance of astropy's quadrature where there is curvature."""
    h, omega_m, omega_l = numbers
    ours, theirs = snapshot_cosmology(*numbers), LambdaCDM(H0=100 * h, Om0=omega_m, Ode0=omega_l, Tcmb0=0)
    redshift = np.linspace(0, 900, 100)
    np.testing.assert_array_equal(ours.hubble_time(redshift), 1 / theirs.H(redshift).to_value(1 / units.yr))
    for snapshot in (0.0, 0.5, 3.0, 20.0):
        assert ours.age(snapshot) == pytest.approx(theirs.age(snapshot).to_value("yr"), rel=1e-8)


def test_cosmologies_by_name():
    assert find_cosmology("Planck18") is Planck18
    assert find_cosmology("WMAP9") is WMAP9
    with pytest.raises(ConfigError, match="did you mean 'Planck18'"):
        find_cosmology("Plank18")
    with pytest.raises(ConfigError, match="known: Planck13"):
        find_cosmology("units")
