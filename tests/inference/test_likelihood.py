"""The likelihood of a cube against Gaussian densities with dense covariances."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from curved import half_square

from rubix_like.inference.posterior.posterior import Likelihood, ModelError, Polynomial, Residuals

SHAPE = (2, 3, 12)


@pytest.fixture(scope="module")
def cubes():
    generator = np.random.default_rng(5)
    model = generator.uniform(1.0, 3.0, SHAPE)
    sigma = generator.uniform(0.1, 0.4, SHAPE)
    flux = model + sigma * generator.standard_normal(SHAPE)
    used = generator.random(SHAPE) > 0.2
    return flux, model, sigma, used


def likelihood(cubes, **options):
    flux, _, sigma, used = cubes
    return Likelihood(jnp.asarray(np.where(used, flux, 0)), jnp.asarray(np.where(used, 1 / sigma, 0)), **options)


@jax.jit
def residuals_of(likelihood, model, scale=None):
    return likelihood.residuals(model, scale)


def loss_of(likelihood, model, scale=None):
    """-ln L + constant."""
    return float(half_square(residuals_of(likelihood, model, scale)))


def test_chi_squared_of_what_is_used(cubes):
    """Of a model of 32 bits in 64, so that no digits of the sum are lost."""
    flux, model, sigma, used = cubes
    expected = 0.5 * np.sum(((flux - model) / sigma)[used] ** 2)
    np.testing.assert_allclose(loss_of(likelihood(cubes), model), expected, rtol=1e-12)
    assert residuals_of(likelihood(cubes), jnp.asarray(model, jnp.float32)).voxels.dtype == jnp.float64


def test_noise_scale_has_the_gaussian_normalisation(cubes):
    flux, model, sigma, used = cubes
    scaled = likelihood(cubes, smallest_scale=0.2)
    log_density = [
        scipy.stats.norm(model[used], scale * sigma[used]).logpdf(flux[used]).sum() for scale in (0.25, 0.9, 3.0)
    ]
    loss = [loss_of(scaled, model, scale) for scale in (0.25, 0.9, 3.0)]
    np.testing.assert_allclose(np.diff(loss), -np.diff(log_density), rtol=1e-10)


def test_polynomial_is_the_best_one_of_every_spaxel(cubes):
    flux, model, sigma, used = cubes
    basis = np.polynomial.legendre.legvander(np.linspace(-1, 1, SHAPE[2]), 2)[:, 1:]
    fitted = likelihood(cubes, polynomial=Polynomial(jnp.asarray(basis), jnp.asarray(0.15)))
    total = 0.0
    for y, x in np.ndindex(SHAPE[:2]):
        good = used[y, x]

        def residual(coefficients, y=y, x=x, good=good):
            continuum = 1 + basis @ (0.15 * coefficients)
            deviation = (flux[y, x] - model[y, x] * continuum)[good] / sigma[y, x, good]
            return np.concatenate([deviation, coefficients])

        total += scipy.optimize.least_squares(residual, np.zeros(2), xtol=1e-15, ftol=1e-15, gtol=1e-15).cost
    np.testing.assert_allclose(loss_of(fitted, model), total, rtol=1e-10)
    chi = residuals_of(fitted, model * fitted.continuum(jnp.asarray(model), None)).voxels
    assert float(jnp.sum(chi**2)) < 2 * total + 1e-9


def test_polynomial_knows_the_noise_scale(cubes):
    flux, model, sigma, used = cubes
    basis = jnp.asarray(np.linspace(-1, 1, SHAPE[2])[:, None])
    scaled = likelihood((flux, model, 3.0 * sigma, used), polynomial=Polynomial(basis, jnp.asarray(0.1)))
    free = likelihood(cubes, polynomial=Polynomial(basis, jnp.asarray(0.1)))
    first, second = residuals_of(scaled, model), residuals_of(free, model, 3.0)
    np.testing.assert_allclose(second.voxels, first.voxels, atol=1e-12)
    np.testing.assert_allclose(second.coefficients, first.coefficients, atol=1e-12)


def test_model_error_is_a_correlated_covariance(cubes):
    flux, model, sigma, used = cubes
    generator = np.random.default_rng(8)
    white = np.where(used, generator.standard_normal((2, *SHAPE)), 0).reshape(2, -1)
    modes = np.linalg.qr(white.T)[0].T
    strength = np.array([30.0, 4.0])
    offset = np.where(used, 0.3 * np.cos(np.arange(flux.size)).reshape(SHAPE), 0)
    error = ModelError(
        jnp.asarray(offset),
        jnp.asarray(modes.reshape(2, *SHAPE)),
        jnp.asarray(strength),
        jnp.zeros((1, *SHAPE)),
    )
    noisy = likelihood(cubes, model_error=error, smallest_scale=0.2)
    good = used.reshape(-1)
    root = np.diag(sigma[used])
    difference = (flux - model - offset * sigma)[used]

    def covariance(scale):
        spread = modes[:, good].T @ np.diag(strength) @ modes[:, good]
        return root @ (scale**2 * np.eye(good.sum()) + spread) @ root

    found = loss_of(noisy, model)
    expected = 0.5 * difference @ np.linalg.solve(covariance(1.0), difference)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    scales = (0.25, 0.9, 3.0)
    loss = [loss_of(noisy, model, scale) for scale in scales]
    log_density = [
        scipy.stats.multivariate_normal(np.zeros(good.sum()), covariance(s)).logpdf(difference) for s in scales
    ]
    np.testing.assert_allclose(np.diff(loss), -np.diff(log_density), rtol=1e-10)


def test_gradient_leaves_out_what_is_not_used(cubes):
    flux, model, _, used = cubes
    blank = likelihood((np.where(used, flux, np.nan), model, *cubes[2:]))
    gradient = jax.grad(lambda model: half_square(residuals_of(blank, model)))(jnp.asarray(model))
    assert np.all(np.isfinite(gradient))
    np.testing.assert_array_equal(np.asarray(gradient)[~used], 0)


def test_half_square_takes_every_kind_of_residual():
    residuals = Residuals(jnp.ones((1, 1, 3)), jnp.ones((1, 1, 2)), jnp.asarray(2.0), jnp.ones(4))
    assert float(half_square(residuals)) == 0.5 * (3 + 2 + 4 + 4)
