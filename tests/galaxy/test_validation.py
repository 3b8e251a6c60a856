import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from rubix_like import Galaxy, Gas, Stars, validate


def stars(n=5, **fields):
    values = {
        "position": np.ones((n, 3)),
        "velocity": np.zeros((n, 3)),
        "initial_mass": np.ones(n),
        "log_age": np.full(n, 9.0),
        "metallicity": np.full(n, 0.02),
    }
    return Stars(**{name: jnp.asarray(value) for name, value in (values | fields).items()})


def gas(n=4, **fields):
    values = {
        "position": np.ones((n, 3)),
        "velocity": np.zeros((n, 3)),
        "mass": np.ones(n),
        "metallicity": np.full(n, 0.02),
    }
    return Gas(**{name: jnp.asarray(value) for name, value in (values | fields).items()})


def changed(values, index, value):
    values = np.array(values, dtype=float)
    values[index] = value
    return values


def test_a_good_galaxy_is_returned_unchanged():
    galaxy = Galaxy(stars=stars(mass=np.ones(5)), gas=gas(density=np.ones(4)))
    assert eqx.tree_equal(validate(galaxy, 13.8e9), galaxy)


def test_slightly_negative_fractions_become_zero_in_the_copy():
    z = np.array([0.02, -1e-16, 0.0, -1e-12, 1.0])
    galaxy = Galaxy(stars=stars(metallicity=z), gas=gas(oxygen_fraction=np.array([-1e-20, 0.1, 0.2, 0.3])))
    checked = validate(galaxy)
    np.testing.assert_array_equal(checked.stars.metallicity, [0.02, 0, 0, 0, 1])
    np.testing.assert_array_equal(checked.gas.oxygen_fraction, [0, 0.1, 0.2, 0.3])
    np.testing.assert_array_equal(galaxy.stars.metallicity, z)


def test_numpy_leaves_stay_numpy():
    fields = {name: np.asarray(value) for name, value in vars(stars()).items() if value is not None}
    checked = validate(Galaxy(stars=Stars(**fields)))
    assert isinstance(checked.stars.metallicity, np.ndarray)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("position", changed(np.ones((5, 3)), (2, 1), np.nan), r"stars.position: expected finite .*\(2, 1\) \(1 of 15"),
        ("velocity", changed(np.ones((5, 3)), (0, 0), np.inf), "stars.velocity: expected finite"),
        (
            "initial_mass",
            changed(np.ones(5), [3, 4], -1),
            r"stars.initial_mass: expected values >= 0.*index 3 \(2 of 5",
        ),
        ("initial_mass", np.zeros(5), "positive sum"),
        ("log_age", np.full(5, 1e9), r"log10\(age / yr\)"),
        ("log_age", np.full(5, 13.0), r"neither in yr nor in Gyr"),
        ("log_age", changed(np.full(5, 9), 1, -0.3), r"log10\(age / yr\)"),
        ("log_age", changed(np.full(5, 9), 1, np.nan), "stars.log_age: expected finite"),
        ("metallicity", changed(np.full(5, 0.02), 1, -1e-9), "stars.metallicity: expected mass fractions"),
        ("metallicity", changed(np.full(5, 0.02), 1, 1.2), "neither in solar units nor log10"),
        ("mass", changed(np.ones(5), 4, -1), "stars.mass: expected values >= 0"),
    ],
)
def test_bad_stars_are_named(field, value, message):
    with pytest.raises(ValueError, match=message):
        validate(Galaxy(stars=stars(**{field: value})))


BAD_GAS = [
    ("mass", -1.0),
    ("mass", np.nan),
    ("density", -1.0),
    ("density", np.nan),
    ("smoothing_length", -1.0),
    ("smoothing_length", np.nan),
    ("temperature", np.nan),
    ("hydrogen_fraction", 1.5),
    ("metallicity", -0.1),
    ("metallicity", np.nan),
    ("star_formation_rate", -1e-9),
    ("hi_fraction", 1.01),
    ("h2_fraction", -1e-3),
    ("dust_mass", -1.0),
    ("electron_abundance", 50.0),
]


def test_bad_gas_is_named():
    for field, value in BAD_GAS:
        with pytest.raises(ValueError, match=rf"gas.{field}: .*index 2 \(1 of 4"):
            validate(Galaxy(stars=stars(), gas=gas(**{field: changed(np.full(4, 0.1), 2, value)})))


def test_more_dust_than_gas_is_an_error():
    """Rounding is none."""
    dust = np.array([0.0, 0.5, 1.0, 1.0 + 1e-7])
    galaxy = Galaxy(stars=stars(), gas=gas(dust_mass=dust))
    assert validate(galaxy).gas is not None
    message = r"gas.dust_mass: expected at most the mass of the gas it is in, got 0.8 at index 2 \(1 of 4 values\)"
    with pytest.raises(ValueError, match=message):
        validate(Galaxy(stars=stars(), gas=gas(mass=np.array([1.0, 1.0, 0.7, 1.0]), dust_mass=np.full(4, 0.8))))


def test_no_star_is_an_error():
    with pytest.raises(ValueError, match="at least one star"):
        validate(Galaxy(stars=stars(0)))


def test_stars_older_than_the_universe():
    galaxy = Galaxy(stars=stars(log_age=np.full(5, 10.1)))
    assert validate(galaxy, 10**10.0995) is not None
    with pytest.raises(ValueError, match="age of the Universe"):
        validate(galaxy, 10**10.0985)


def test_fields_of_another_length_are_found():
    galaxy = eqx.tree_at(lambda g: g.stars.metallicity, Galaxy(stars=stars()), jnp.ones(4))
    with pytest.raises((ValueError, TypeError), match="metallicity"):  # TypeError: from the test session's type checks
        validate(galaxy)


def test_one_star_is_enough():
    galaxy = Galaxy(stars=dataclasses.replace(stars(1), log_age=jnp.zeros(1)))
    assert validate(galaxy).stars.log_age[0] == 0
