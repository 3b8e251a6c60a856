"""The Gaussian on a grid: flux, sign and variance at every width."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from rubix_like.physics.gaussian import ENCLOSED_SIGMAS, gaussian_weights, reach_of, split_variance

weights_by_reach = jax.jit(gaussian_weights, static_argnums=1)

WIDTHS = [0.01, 0.1, 0.3, 0.7, 0.999, 1.001, 1.5, 3.0, 8.0]


def weights_of(sigma, reach=None):
    reach = int(np.ceil(7 * max(sigma, 1.0))) if reach is None else reach
    return np.asarray(weights_by_reach(jnp.asarray(sigma), reach)), np.arange(-reach, reach + 1)


@pytest.mark.parametrize("sigma", WIDTHS)
def test_sum_sign_mean_and_variance(sigma):
    weights, offset = weights_of(sigma)
    assert weights.min() >= 0
    np.testing.assert_allclose(weights.sum(), 1.0, rtol=1e-14)
    np.testing.assert_allclose(weights @ offset, 0.0, atol=1e-13)
    np.testing.assert_allclose(weights @ offset**2, sigma**2, rtol=1e-7)


@pytest.mark.parametrize("sigma", [1.5, 3.0, 8.0])
def test_wide_ones_are_integrals_over_cells(sigma):
    weights, offset = weights_of(sigma)
    width = np.sqrt(sigma**2 - 1 / 12)
    np.testing.assert_allclose(weights, norm.cdf((offset + 0.5) / width) - norm.cdf((offset - 0.5) / width), atol=1e-12)


def test_narrow_ones_tend_to_the_identity():
    weights, offset = weights_of(1e-4)
    np.testing.assert_allclose(weights, offset == 0, atol=2e-8)


def test_variance_on_cells_is_the_one_wanted():
    """The Gaussian that a width stands for, integrated over cells by scipy, has the variance that was asked for."""
    variance = np.array([0.0, 0.1, 0.25, 0.3, 0.6, 1.0, 4.0])
    share, width = split_variance(variance, np)
    np.testing.assert_allclose(share, [0.0, 0.4, 1.0, 1.0, 1.0, 1.0, 1.0])
    offset = np.arange(-30, 31)[:, None]
    collected = norm.cdf((offset + 0.5) / width) - norm.cdf((offset - 0.5) / width)
    np.testing.assert_allclose(share * (collected * offset**2).sum(axis=0), variance, rtol=1e-9)


@pytest.mark.parametrize("variance", [0.1, 0.2, 0.25, 0.4, 0.7, 1.0, 2.0])
def test_shape_is_as_close_to_a_gaussian_as_cells_allow(variance):
    """The fourth cumulant: 0 for a Gaussian; v - 3 v^2, the least there is, for light that goes to the next cells."""
    weights, offset = weights_of(np.sqrt(variance))
    cumulant = weights @ offset**4 - 3 * variance**2
    assert abs(cumulant - max(variance - 3 * variance**2, 0.0)) < 0.025


def test_truncated_light_is_given_back():
    weights, _ = weights_of(3.0, reach=2)
    np.testing.assert_allclose(weights.sum(), 1.0)


@pytest.mark.parametrize("sigma", [0.2, 0.8, 1.4, 3.0])
def test_gradient_is_that_of_the_variance(sigma):
    """d variance / d sigma = 2 sigma."""
    offset = np.arange(-30, 31)
    slope = jax.grad(lambda s: (weights_by_reach(s, 30) * offset**2.0).sum())(jnp.asarray(sigma))
    np.testing.assert_allclose(float(slope), 2 * sigma, rtol=1e-5)


def test_gradient_is_finite_at_no_width():
    gradient = jax.jacobian(lambda s: weights_by_reach(s, 3))(jnp.asarray(0.0))
    assert np.isfinite(np.asarray(gradient)).all()


def test_reach_encloses_the_light():
    """A circle of 3.72 sigma holds 1 - exp(-r^2/2) = 99.9 % of a circular Gaussian."""
    np.testing.assert_allclose(1 - np.exp(-(ENCLOSED_SIGMAS**2) / 2), 0.999, atol=2e-5)
    assert reach_of(0.0) == 0
    assert reach_of(0.1) >= 2
    for sigma in (1.0, 1.7, 4.0):
        assert reach_of(sigma) >= ENCLOSED_SIGMAS * sigma
        assert reach_of(sigma) < ENCLOSED_SIGMAS * sigma + 1
