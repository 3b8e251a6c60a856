"""Poisson numbers: the exact quantiles, and the moments of what is drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from rubix_like.physics import poisson
from rubix_like.physics.poisson import FEW

SIZE = 200_000

poisson_quantile = jax.jit(poisson.poisson_quantile)


@jax.jit
def draw_poisson(key, expected):
    return poisson.poisson_quantile(jax.random.normal(key, expected.shape, expected.dtype), expected)


def numbers(expected, dtype="float64", seed=1):
    normal = jax.random.normal(jax.random.key(seed), SIZE, dtype)
    return np.asarray(poisson_quantile(normal, jnp.full(SIZE, expected, dtype)), dtype=np.float64)


@pytest.mark.parametrize("expected", [0.0, 1e-6, 1e-2, 0.7, 4.0, 9.99])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_few_are_the_exact_quantiles(expected, dtype):
    """Up to single numbers at which float32 rounds the probability to the other side."""
    normal = np.random.default_rng(2).normal(size=SIZE).astype(dtype)
    found = poisson_quantile(jnp.asarray(normal), jnp.full(SIZE, expected, dtype))
    exact = stats.poisson.ppf(stats.norm.cdf(normal.astype(np.float64)), expected)
    different = np.asarray(found) != exact
    assert different.sum() <= (20 if dtype == "float32" else 0)
    assert np.all(np.abs(np.asarray(found) - exact) <= 1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rare_numbers_stay_near(dtype):
    """The farthest normal numbers that are ever drawn give no outlier: 5.4 sigma in float32, 8 in float64."""
    limit = 5.4 if dtype == "float32" else 8.0
    normal = jnp.asarray([-limit, limit], dtype)
    for expected in (0.0, 1e-4, 1.0, FEW, 1e3):
        found = np.asarray(poisson_quantile(normal, jnp.full(2, expected, dtype)), dtype=np.float64)
        exact = stats.poisson.ppf(stats.norm.cdf([-limit, limit]), expected)
        np.testing.assert_allclose(found, exact, atol=1)


@pytest.mark.parametrize("expected", [FEW, 20.0, 300.0])
def test_many_have_the_exact_distribution_nearly(expected):
    """The normal number at which the quantile passes n + 1, found by bisection, has the probability of <= n."""
    reach = 6 * np.sqrt(expected)
    n = np.arange(max(0, int(expected - reach)), int(expected + reach))
    low, high = np.full(n.shape, -9.0), np.full(n.shape, 9.0)
    for _ in range(60):
        middle = (low + high) / 2
        passed = np.asarray(poisson_quantile(jnp.asarray(middle), jnp.full(n.shape, expected))) > n
        low, high = np.where(passed, low, middle), np.where(passed, middle, high)
    error = np.abs(stats.norm.cdf(high) - stats.poisson.cdf(n, expected))
    assert error.max() < 5e-5


@pytest.mark.parametrize("expected", [0.05, 3.0, 12.0, 400.0, 2.5e6])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_mean_variance_and_skewness(expected, dtype):
    """Each within five standard errors of the Poisson distribution's."""
    drawn = numbers(expected, dtype)
    assert np.all(drawn == np.round(drawn))
    assert np.all(drawn >= 0)
    deviation = drawn - expected
    assert abs(deviation.mean()) < 5 * np.sqrt(expected / SIZE)
    scatter = np.sqrt((expected + 2 * expected**2) / SIZE)
    assert abs(np.mean(deviation**2) - expected) < 5 * scatter
    third = stats.poisson.stats(expected, moments="s") * expected**1.5
    scatter = np.sqrt(np.mean((deviation**3 - np.mean(deviation**3)) ** 2) / SIZE)
    assert abs(np.mean(deviation**3) - third) < 5 * scatter


def test_the_derivative_is_the_slope_over_many_electrons():
    """Of scipy's quantiles, over a tenth of 1e8; where nothing is expected it is 0, and its mean over draws is 0."""
    normal, expected, step = np.array([-2.0, -0.7, 0.4, 1.5, 3.0]), 1e8, 1e7
    slope = jax.vmap(jax.grad(poisson.poisson_noise, argnums=1))
    high, low = (stats.poisson.ppf(stats.norm.cdf(normal), expected + own) for own in (step, -step))
    found = np.asarray(slope(jnp.asarray(normal), jnp.full(5, expected)))
    np.testing.assert_allclose(found, (high - low) / (2 * step) - 1, rtol=1e-2)
    assert float(jax.grad(poisson.poisson_noise, argnums=1)(jnp.asarray(1.0), jnp.asarray(0.0))) == 0
    drawn = np.asarray(slope(jax.random.normal(jax.random.key(1), (SIZE,)), jnp.full(SIZE, 0.7)))
    assert abs(drawn.mean()) < 5 * drawn.std() / np.sqrt(SIZE)


def test_nothing_expected_nothing_drawn():
    assert np.all(numbers(0.0) == 0)


def test_few_and_many_beside_each_other():
    expected = jnp.asarray([0.0, 5.0, 1e4] * 1000)
    normal = jax.random.normal(jax.random.key(3), expected.shape)
    drawn = np.asarray(poisson_quantile(normal, expected)).reshape(1000, 3)
    np.testing.assert_allclose(drawn.mean(axis=0), [0, 5, 1e4], rtol=0.05)
    np.testing.assert_array_equal(drawn[:, 0], 0)
