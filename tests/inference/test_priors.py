"""Priors as maps from standard normal latents, against scipy's distributions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from rubix_like import ConfigError
from rubix_like.inference.posterior.free import read_prior, read_values
from rubix_like.inference.posterior.priors import LogNormal, LogUniform, Normal, TruncatedNormal, Uniform

CASES = {
    "uniform": (Uniform(-3.0, 5.0), scipy.stats.uniform(-3.0, 8.0)),
    "log_uniform": (LogUniform(0.5, 20.0), scipy.stats.loguniform(0.5, 20.0)),
    "normal": (Normal(40.0, 7.0), scipy.stats.norm(40.0, 7.0)),
    "log_normal": (LogNormal(1e10, 0.3), scipy.stats.lognorm(0.3 * np.log(10.0), scale=1e10)),
    "truncated_normal": (TruncatedNormal(40.0, 7.0, 30.0, 60.0), scipy.stats.truncnorm(-10 / 7, 20 / 7, 40.0, 7.0)),
}


@pytest.mark.parametrize("kind", CASES)
def test_a_latent_is_the_quantile_of_its_value(kind):
    prior, distribution = CASES[kind]
    latent = np.linspace(-3.5, 3.5, 29)
    value = np.asarray(prior.value(jnp.asarray(latent)))
    np.testing.assert_allclose(value, distribution.ppf(scipy.stats.norm.cdf(latent)), rtol=1e-10)
    np.testing.assert_allclose(prior.latent(jnp.asarray(value)), latent, atol=1e-8)


@pytest.mark.parametrize("kind", CASES)
def test_its_slope_is_finite_and_never_zero(kind):
    prior, _ = CASES[kind]
    slope = jax.vmap(jax.grad(prior.value))(jnp.linspace(-6.0, 6.0, 25))
    assert np.all(np.isfinite(slope))
    assert np.all(np.asarray(slope) > 0)


@pytest.mark.parametrize("kind", ["uniform", "log_uniform"])
def test_beyond_its_bounds_there_is_no_latent(kind):
    prior, _ = CASES[kind]
    assert not np.isfinite(prior.latent(jnp.asarray(21.0)))


def test_numbers_that_are_arrays_without_axes_are_in_the_unit_of_the_parameter():
    for number in (jnp.asarray(50.0), np.asarray(50.0)):
        assert read_values("fit.start.observation.inclination", number, "deg") == 50


def test_numbers_of_a_configuration_have_the_unit_of_the_parameter():
    prior = read_prior("galaxy.rotation_velocity", {"uniform": ["0.1 km/s", "3e5 m/s"]}, "km/s")
    np.testing.assert_allclose([prior.low, prior.high], [0.1, 300.0])
    dex = read_prior("galaxy.stellar_mass", {"log_normal": ["1e10 Msun", 0.3]}, "Msun")
    np.testing.assert_allclose([dex.median, dex.dex], [1e10, 0.3])


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        ({"unifrom": [0, 1]}, "did you mean 'uniform'"),
        ({"uniform": [1, 0]}, "low < high"),
        ({"uniform": [1]}, "expected 2 numbers"),
        ({"log_uniform": [0, 1]}, "0 < low"),
        ({"normal": [0, 0]}, "sigma > 0"),
        ({"log_normal": [-1, 0.1]}, "median > 0"),
        ({"uniform": ["1 kpc", "2 kpc"]}, "km/s"),
    ],
)
def test_a_wrong_prior_is_refused(prior, words):
    with pytest.raises(ConfigError, match=words):
        read_prior("galaxy.rotation_velocity", prior, "km/s")
