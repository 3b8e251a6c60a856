"""Priors as maps from standard normal latents, against scipy's distributions."""

import json
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from scipy.optimize import brentq

from rubix_like import ConfigError, load_config
from rubix_like.extend import AbstractQuantile
from rubix_like.inference.checks.uncertainties import from_information
from rubix_like.inference.posterior.fit_model import Free, FreeParameter, read_prior, read_values, shown
from rubix_like.inference.posterior.free_parameters import read_correlated
from rubix_like.inference.posterior.priors import (
    Isotropic,
    LogNormal,
    LogUniform,
    Mixture,
    Normal,
    TruncatedNormal,
    Uniform,
    is_limited,
    section_of,
)


class Triangular(AbstractQuantile):
    """Rises from 0 at `low` to its maximum at `high`."""

    kind: ClassVar = "triangular"
    numbers: ClassVar = ("low", "high")
    low: Any
    high: Any

    def quantile(self, probability):
        return self.low + (self.high - self.low) * jnp.sqrt(probability)


class Sine(scipy.stats.rv_continuous):
    """Flat in the cosine of an angle in deg."""

    def _cdf(self, x):
        low, high = np.cos(np.deg2rad([self.a, self.b]))
        return (low - np.cos(np.deg2rad(x))) / (low - high)

    def _ppf(self, q):
        low, high = np.cos(np.deg2rad([self.a, self.b]))
        return np.rad2deg(np.arccos(low - (low - high) * q))


class Sum:
    """A weighted sum of scipy's distributions."""

    def __init__(self, *pairs):
        self.pairs = pairs

    def cdf(self, x):
        return sum(weight * part.cdf(x) for weight, part in self.pairs)

    def pdf(self, x):
        return sum(weight * part.pdf(x) for weight, part in self.pairs)

    def ppf(self, q):
        return np.array([brentq(lambda x, share=share: self.cdf(x) - share, -500, 500, xtol=1e-12) for share in q])


CASES = {
    "uniform": (Uniform(-3.0, 5.0), scipy.stats.uniform(-3.0, 8.0)),
    "log_uniform": (LogUniform(0.5, 20.0), scipy.stats.loguniform(0.5, 20.0)),
    "normal": (Normal(40.0, 7.0), scipy.stats.norm(40.0, 7.0)),
    "log_normal": (LogNormal(1e10, 0.3), scipy.stats.lognorm(0.3 * np.log(10.0), scale=1e10)),
    "truncated_normal": (TruncatedNormal(40.0, 7.0, 30.0, 60.0), scipy.stats.truncnorm(-10 / 7, 20 / 7, 40.0, 7.0)),
    "isotropic": (Isotropic(0.0, 90.0), Sine(a=0.0, b=90.0)),
    "isotropic, part": (Isotropic(20.0, 180.0), Sine(a=20.0, b=180.0)),
    "triangular": (Triangular(2.0, 10.0), scipy.stats.triang(1.0, 2.0, 8.0)),
    "mixture": (
        Mixture((3.0, 1.0), (Normal(40.0, 7.0), Normal(60.0, 2.0))),
        Sum((0.75, scipy.stats.norm(40.0, 7.0)), (0.25, scipy.stats.norm(60.0, 2.0))),
    ),
    "mixture, limited": (
        Mixture((0.5, 0.5), (Uniform(10.0, 30.0), Uniform(20.0, 80.0))),
        Sum((0.5, scipy.stats.uniform(10.0, 20.0)), (0.5, scipy.stats.uniform(20.0, 60.0))),
    ),
}


BEYOND = {"uniform": 81, "log_uniform": 81, "isotropic, part": 180.1, "triangular": 81, "mixture, limited": 81}
"""Values above the upper end of limited priors; -20 is below all of them."""


@pytest.mark.parametrize("kind", CASES)
def test_a_prior_is_the_distribution_of_scipy(kind):
    """The quantile of a latent x, and the density p(v) = phi(x) / (dv / dx); on the host as on the device, and read
    back from a file. Slopes are finite and above 0, and curvatures those of differences."""
    prior, distribution = CASES[kind]
    latent = np.linspace(-3.5, 3.5, 29)
    value = np.asarray(prior.value(jnp.asarray(latent)))
    np.testing.assert_allclose(value, distribution.ppf(scipy.stats.norm.cdf(latent)), rtol=1e-10)
    np.testing.assert_allclose(prior.latent(jnp.asarray(value)), latent, atol=1e-8)
    on_host = prior.value(latent)
    assert isinstance(on_host, np.ndarray)
    np.testing.assert_allclose(on_host, value, rtol=1e-12)
    np.testing.assert_allclose(prior.latent(on_host), latent, atol=1e-9)
    again = read_prior("observation.inclination", json.loads(json.dumps(section_of(prior))), "deg")
    np.testing.assert_allclose(again.value(latent), on_host, rtol=1e-12)
    assert kind.partition(",")[0] in shown(prior)

    slopes = jax.jit(jax.vmap(jax.grad(prior.value)))
    assert np.all(np.isfinite(slopes(np.linspace(-6.0, 6.0, 29))))
    assert np.all(np.asarray(slopes(np.linspace(-6.0, 6.0, 29))) > 0)
    latent = np.linspace(-2.9, 2.9, 29)
    slope, value = np.asarray(slopes(latent)), np.asarray(prior.value(jnp.asarray(latent)))
    step = 1e-6 * np.abs(value)
    numeric = (distribution.cdf(value + step) - distribution.cdf(value - step)) / (2 * step)
    np.testing.assert_allclose(scipy.stats.norm.pdf(latent) / slope, numeric, rtol=1e-4)
    if kind != "mixture, limited":  # whose slope jumps where a uniform part ends
        curvature = np.asarray(jax.jit(jax.vmap(jax.grad(jax.grad(prior.value))))(latent))
        ends = [np.asarray(slopes(latent + change)) for change in (-1e-5, 1e-5)]
        np.testing.assert_allclose(curvature, (ends[1] - ends[0]) / 2e-5, rtol=1e-4, atol=1e-3)
    if kind in BEYOND:
        assert not np.isfinite(prior.latent(jnp.asarray(float(BEYOND[kind]))))
        with np.errstate(invalid="ignore"):
            assert not np.isfinite(prior.latent(np.asarray(-20.0)))


def test_which_priors_have_limits():
    assert [kind for kind, (prior, _) in CASES.items() if not is_limited(prior)] == ["normal", "log_normal", "mixture"]


def joined():
    """Three parameters, two of them correlated."""
    parameters = (
        FreeParameter(Normal(1.0, 2.0), "a"),
        FreeParameter(Uniform(0.0, 1.0), "b"),
        FreeParameter(Normal(-1.0, 0.5), "c"),
    )
    settings = {"parameters": ["c", "a"], "correlation": [[1, 0.8], [0.8, 1]]}
    config = load_config("quickstart", overrides={"fit.correlated": [settings]})
    return Free(parameters, read_correlated(config.fit.correlated, parameters))


def test_correlated_normals_are_a_multivariate_normal_distribution():
    free = joined()
    latent = np.array([[0.3, 0.2, -1.1], [1.0, -0.4, 0.7]])
    values = free.flat(latent)
    truth = scipy.stats.multivariate_normal([1, -1], [[4, 0.8], [0.8, 0.25]])
    slopes = jax.jit(jax.vmap(jax.jacobian(free.flat)))(jnp.asarray(latent))
    for x, value, slope in zip(latent, values, np.asarray(slopes), strict=True):
        density = scipy.stats.norm.logpdf(x).sum() - np.linalg.slogdet(slope)[1]
        assert density == pytest.approx(truth.logpdf(value[[0, 2]]) + scipy.stats.uniform.logpdf(value[1]), rel=1e-10)
    np.testing.assert_allclose(free.latent(free.split(values[0])), latent[0], rtol=1e-10)
    np.testing.assert_allclose(free.traced_latent(free.split(values[1])), latent[1], rtol=1e-10)
    drawn = free.flat(free.draw(1, 20000))
    np.testing.assert_allclose(np.corrcoef(drawn, rowvar=False)[0, 2], 0.8, atol=0.01)


def test_laplaces_covariance_takes_correlated_priors_into_account():
    """Without data it is the prior's."""
    free = joined()
    normal = from_information(free, np.zeros(3), np.zeros((3, 3)))
    slope = scipy.stats.norm.pdf(0)
    expected = [[4, 0, 0.8], [0, slope**2, 0], [0.8, 0, 0.25]]
    np.testing.assert_allclose(normal.value_covariance(), expected, atol=1e-12)
    np.testing.assert_allclose(normal.own_sigma, 1)
    np.testing.assert_allclose(np.cov(normal.sample(1, 40000), rowvar=False)[0], expected[0], atol=0.06)


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ({"parameters": ["a", "d"], "correlation": [[1, 0.1], [0.1, 1]]}, "'d' is no free parameter"),
        ({"parameters": ["a", "b"], "correlation": [[1, 0.1], [0.1, 1]]}, "priors normal or log_normal, got b: {unif"),
        ({"parameters": ["a", "a"], "correlation": [[1, 0.1], [0.1, 1]]}, "each parameter once, got 'a' again"),
        ({"parameters": ["a", "c"], "correlation": [[1, 2], [2, 1]]}, "positive definite.*take smaller"),
        ({"parameters": ["a", "c"], "correlation": [[1, 0.1]]}, "expected 2 rows of 2 numbers"),
        ({"parameters": ["a", "c"], "correlation": [[1, 0.1], [0.2, 1]]}, "symmetric matrix with 1"),
    ],
)
def test_wrong_correlations_are_refused(group, words):
    with pytest.raises(ConfigError, match=words):
        read_correlated(
            load_config("quickstart", overrides={"fit.correlated": [group]}).fit.correlated, joined().parameters
        )


def test_numbers_of_a_configuration_have_the_unit_of_the_parameter():
    prior = read_prior("galaxy.rotation_velocity", {"uniform": ["0.1 km/s", "3e5 m/s"]}, "km/s")
    np.testing.assert_allclose([prior.low, prior.high], [0.1, 300.0])
    dex = read_prior("galaxy.stellar_mass", {"log_normal": ["1e10 Msun", 0.3]}, "Msun")
    np.testing.assert_allclose([dex.median, dex.dex], [1e10, 0.3])
    for number in (jnp.asarray(50.0), np.asarray(50.0)):
        assert read_values("fit.start.observation.inclination", number, "deg") == 50


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        ({"unifrom": [0, 1]}, "unknown prior .*did you mean 'uniform'"),
        ({"uniform": [1, 0]}, "low < high"),
        ({"uniform": [1]}, "expected 2 numbers"),
        ({"log_uniform": [0, 1]}, "0 < low"),
        ({"normal": [0, 0]}, "sigma > 0"),
        ({"log_normal": [-1, 0.1]}, "median > 0"),
        ({"uniform": ["1 kpc", "2 kpc"]}, "km/s"),
        ({"isotropic": [0, 90]}, "expected an angle with the prior 'isotropic'"),
        ({"isotropic": ["-10 deg", "90 deg"]}, "0 <= low < high <= 180 deg, got -10 and 90"),
        ({"triangular": [3, 2]}, "the quantiles of 'triangular' rise"),
        ({"triangluar": [3, 2]}, "did you mean 'triangular'"),
        ({"mixture": [[1, 2]]}, "parts with a weight and a prior each, e.g. "),
        ({"mixture": [{"weight": 1, "normal": [0, 1]}]}, "at least two parts"),
        ({"mixture": [{"weight": 1, "normal": [0, 1]}, {"weight": 0, "normal": [0, 1]}]}, "weights above 0"),
        ({"mixture": [{"weight": 1, "normal": [0, 1]}, {"weight": 1, "normal": [0, -1]}]}, "sigma > 0"),
        ({"mixture": [{"weight": 1, "uniform": [0, 1]}, {"weight": 1, "uniform": [2, 3]}]}, "overlap, got a gap"),
    ],
)
def test_a_wrong_prior_is_refused(prior, words):
    unit = "deg" if "deg" in words else "km/s"
    with pytest.raises(ConfigError, match=words):
        read_prior("galaxy.rotation_velocity", prior, unit)
