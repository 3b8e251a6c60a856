"""Poisson numbers: the exact quantiles, and the moments of what is drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from rubix_like.physics import poisson

SIZE = 200_000

poisson_quantile = jax.jit(poisson.poisson_quantile)


def quantiles(normal, expected, dtype="float64"):
    found = poisson_quantile(jnp.asarray(normal, dtype), jnp.broadcast_to(jnp.asarray(expected, dtype), normal.shape))
    return np.asarray(found, np.float64)


def exact(normal, expected):
    return stats.poisson.ppf(stats.norm.cdf(normal), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_few_are_the_exact_quantiles(dtype):
    """The smallest number whose cumulative probability reaches that of the normal number, up to single ones at which
    float32 rounds to the other side; none where none is expected."""
    normal = np.random.default_rng(2).normal(size=SIZE).astype(dtype)
    expected = np.repeat([0.0, 1e-6, 1e-2, 0.7, 4.0, 9.99], SIZE // 6 + 1)[:SIZE]
    probability, found = stats.norm.cdf(normal.astype(np.float64)), quantiles(normal, expected, dtype)
    for number in np.unique(expected):
        some = expected == number
        up_to = stats.poisson.cdf(np.arange(60), number)
        off = np.abs(found[some] - np.searchsorted(up_to, probability[some]))
        assert np.count_nonzero(off) <= (20 / 6 if dtype == "float32" else 0)
        assert off.max() <= 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rare_numbers_stay_near(dtype):
    """The farthest normal numbers that are ever drawn give no outlier: 5.4 sigma in float32, 8 in float64; few and many
    beside each other."""
    limit = 5.4 if dtype == "float32" else 8.0
    normal = np.repeat([-limit, limit], 5)
    expected = np.tile([0.0, 1e-4, 1.0, poisson.FEW, 1e3], 2)
    np.testing.assert_allclose(quantiles(normal, expected, dtype), exact(normal, expected), atol=1)


def test_many_have_the_exact_distribution_nearly():
    """The normal number at which the quantile passes n + 1, found by bisection, has the probability of <= n."""
    for expected in (poisson.FEW, 20.0, 300.0):
        n = max(0, int(expected - 6 * np.sqrt(expected))) + np.arange(208)
        low, high = np.full(n.shape, -9.0), np.full(n.shape, 9.0)
        for _ in range(60):
            middle = (low + high) / 2
            passed = quantiles(middle, expected) > n
            low, high = np.where(passed, low, middle), np.where(passed, middle, high)
        error = np.abs(stats.norm.cdf(high) - stats.poisson.cdf(n, expected))
        assert error.max() < 5e-5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_mean_variance_and_skewness(dtype):
    """Each within five standard errors of the Poisson distribution's."""
    normal = jax.random.normal(jax.random.key(1), SIZE, dtype)
    for expected in (0.05, 3.0, 12.0, 400.0, 2.5e6):
        drawn = quantiles(normal, expected, dtype)
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
    normal, expected, step = np.array([-2.0, -0.7, 0.4, 1.5, 3.0, 1.0]), 1e8, 1e7
    slope = jax.jit(jax.vmap(jax.grad(poisson.poisson_noise, argnums=1)))
    high, low = (exact(normal, expected + change) for change in (step, -step))
    found = np.asarray(slope(jnp.asarray(normal), jnp.asarray([expected] * 5 + [0.0])))
    np.testing.assert_allclose(found[:5], ((high - low) / (2 * step) - 1)[:5], rtol=1e-2)
    assert found[5] == 0
    drawn = np.asarray(slope(jax.random.normal(jax.random.key(1), (SIZE,)), jnp.full(SIZE, 0.7)))
    assert abs(drawn.mean()) < 5 * drawn.std() / np.sqrt(SIZE)
