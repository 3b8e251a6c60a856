"""The Gaussian on a grid: flux, sign and variance at every width."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

from rubix_like.physics.gaussian import ENCLOSED_SIGMAS, gaussian_weights, reach_of, split_variance

REACH = 56
OFFSET = np.arange(-REACH, REACH + 1)
WEIGHTS = jax.jit(jax.vmap(lambda sigma: gaussian_weights(sigma, REACH)))


def collected(width):
    """The Gaussians of these widths about the middle of a cell, integrated over cells by scipy."""
    width = np.asarray(width)[:, None]
    return norm.cdf((OFFSET + 0.5) / width) - norm.cdf((OFFSET - 0.5) / width)


def test_sum_sign_mean_and_variance():
    """Wide ones are integrals over cells, narrow ones tend to the identity."""
    sigma = np.array([1e-4, 0.01, 0.1, 0.3, 0.7, 0.999, 1.001, 1.5, 3.0, 8.0])
    weights = np.asarray(WEIGHTS(jnp.asarray(sigma)))
    assert weights.min() >= 0
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-14)
    np.testing.assert_allclose(weights @ OFFSET, 0.0, atol=1e-13)
    np.testing.assert_allclose(weights @ OFFSET**2, sigma**2, rtol=1e-7)
    np.testing.assert_allclose(weights[-3:], collected(np.sqrt(sigma[-3:] ** 2 - 1 / 12)), atol=1e-12)
    np.testing.assert_allclose(weights[0], OFFSET == 0, atol=2e-8)


def test_variance_on_cells_is_the_one_wanted():
    """The Gaussian that a width stands for has the variance that was asked for."""
    variance = np.array([0.0, 0.1, 0.25, 0.3, 0.6, 1.0, 4.0])
    share, width = split_variance(variance, np)
    np.testing.assert_allclose(share, [0.0, 0.4, 1.0, 1.0, 1.0, 1.0, 1.0])
    np.testing.assert_allclose(share * (collected(width) @ OFFSET**2), variance, rtol=1e-9)


def test_shape_is_as_close_to_a_gaussian_as_cells_allow():
    """The fourth cumulant: 0 for a Gaussian; v - 3 v^2, the least there is, for light that goes to the next cells."""
    variance = np.array([0.1, 0.2, 0.25, 0.4, 0.7, 1.0, 2.0])
    cumulant = np.asarray(WEIGHTS(jnp.sqrt(variance))) @ OFFSET**4 - 3 * variance**2
    assert np.abs(cumulant - np.maximum(variance - 3 * variance**2, 0.0)).max() < 0.025


def test_truncated_light_is_given_back():
    np.testing.assert_allclose(np.asarray(gaussian_weights(jnp.asarray(3.0), 2)).sum(), 1.0)


def test_gradient_is_that_of_the_variance():
    """d variance / d sigma = 2 sigma; every slope is finite at no width, in reverse mode."""
    sigma = jnp.asarray([0.0, 0.2, 0.8, 1.4, 3.0])
    slopes = np.asarray(jax.jit(jax.vmap(jax.jacrev(lambda s: gaussian_weights(s, 30))))(sigma))
    assert np.isfinite(slopes).all()
    np.testing.assert_allclose(slopes[1:] @ np.arange(-30, 31) ** 2, 2 * sigma[1:], rtol=1e-5)


def test_reach_encloses_the_light():
    """A circle of 3.72 sigma holds 1 - exp(-r^2/2) = 99.9 % of a circular Gaussian."""
    np.testing.assert_allclose(1 - np.exp(-(ENCLOSED_SIGMAS**2) / 2), 0.999, atol=2e-5)
    assert reach_of(0.0) == 0
    assert reach_of(0.1) >= 2
    for sigma in (1.0, 1.7, 4.0):
        assert ENCLOSED_SIGMAS * sigma <= reach_of(sigma) < ENCLOSED_SIGMAS * sigma + 1
