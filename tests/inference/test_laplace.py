"""The Laplace approximation: against posteriors that are normal, and sigmas that are known."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from curved import FREE, N_DATA, N_LATENT, curved
from free_numbers import free_of

from rubix_like.inference.checks.uncertainties import from_information, information
from rubix_like.inference.posterior.fit_model import Correlated

LINEAR = curved(bend=0.0)


@functools.cache
def normal():
    """The posterior of a linear model: normal, with known mean and covariance."""
    design = 20 * np.asarray(LINEAR.mixing)
    covariance = np.linalg.inv(design.T @ design + np.eye(N_LATENT))
    mean = covariance @ design.T @ (20 * np.asarray(LINEAR.data))
    matrix = information(LINEAR, FREE, jnp.asarray(mean), jnp.asarray(N_DATA))
    return mean, covariance, from_information(FREE, jnp.asarray(mean), matrix)


def test_normal_posterior_is_exact():
    _, covariance, found = normal()
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-10, atol=1e-16)
    np.testing.assert_allclose(found.sigma, np.sqrt(np.diag(covariance)), rtol=1e-10)
    np.testing.assert_allclose(np.diag(found.correlation), 1, rtol=1e-12)


def test_draws_of_normal_priors_have_the_covariance():
    mean, covariance, found = normal()
    draws = found.sample(seed=3, count=20_000)
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=5 * found.sigma.max() / np.sqrt(20_000))
    np.testing.assert_allclose(np.cov(draws.T) / covariance.max(), covariance / covariance.max(), atol=0.04)
    np.testing.assert_array_equal(found.sample(3, 7), found.sample(3, 7))


def test_values_have_their_own_units():
    """A change of the latent by its sigma changes the value by the value's sigma."""
    uniform = [{"uniform": own} for own in ([10, 80], [0, 1])]
    priors = (uniform[0], {"log_uniform": [0.5, 2]}, {"normal": [5, 50]}, {"log_normal": [1e10, 0.3]}, uniform[1])
    free = free_of(*((f"p{number}", prior) for number, prior in enumerate(priors)))
    mean, covariance, _ = normal()
    found = from_information(free, jnp.asarray(mean), information(LINEAR, free, jnp.asarray(mean), jnp.asarray(N_DATA)))
    for number, own in enumerate(free.parameters):
        above, below = own.prior.value(jnp.asarray([mean[number] + 1e-6, mean[number] - 1e-6]))
        slope = (above - below) / 2e-6
        expected = slope**2 * covariance[number, number]
        np.testing.assert_allclose(found.value_covariance()[number, number], expected, rtol=1e-6)
    draws = found.sample(0, 1000)
    assert draws[:, 0].min() > 10
    assert draws[:, 0].max() < 80
    np.testing.assert_allclose(np.cov(draws.T)[1, 3], found.value_covariance()[1, 3], rtol=0.5)


ENDS = ({"uniform": [0, 1]}, {"log_uniform": [0.5, 2]}, {"normal": [0, 3]}, {"log_normal": [1, 0.3]})
PLACE, SIZES = np.array([0.05, 1.9, 1.0, 1.2]), np.array([0.08, 0.15, 1.0, 0.5])
RELATED = np.array([[1, 0.9, 0.3, 0.2], [0.9, 1, 0.2, 0.1], [0.3, 0.2, 1, 0.4], [0.2, 0.1, 0.4, 1]])


def test_draws_near_the_ends_of_priors_are_those_of_numpy():
    """Data that are normal in the values (0.9 correlated, 0.6 and 0.7 sigma from the ends of two priors): moments and
    quantiles against 200 000 of numpy's own values, kept or weighted by the priors' densities."""
    names, correlation = tuple(f"p{number}" for number in range(4)), 0.6
    half = np.linalg.cholesky([[1, correlation], [correlation, 1]])
    free = dataclasses.replace(free_of(*zip(names, ENDS, strict=True)), correlated=(Correlated(half, names[2:]),))
    covariance = RELATED * np.outer(SIZES, SIZES)
    precision = np.linalg.inv(covariance)

    def loss(latent):
        apart = np.asarray(free.flat(latent)) - PLACE
        return 0.5 * latent @ latent + 0.5 * apart @ precision @ apart

    best = scipy.optimize.minimize(loss, np.zeros(4), options={"gtol": 1e-7}).x
    slope = free.slopes(best)[:, None] * free.mixing
    own = from_information(free, best, slope.T @ precision @ slope)
    draws = own.sample(seed=1, count=1500)

    random = np.random.default_rng(2)
    values = random.multivariate_normal(PLACE, covariance, 200_000)
    inside = (values > [0, 0.5, -np.inf, 0]).all(axis=1) & (values < [1, 2, np.inf, np.inf]).all(axis=1)
    values = values[inside]
    pair = np.stack([values[:, 2] / 3, np.log10(values[:, 3]) / 0.3], axis=1)
    square = (pair[:, 0] ** 2 + pair[:, 1] ** 2 - 2 * correlation * pair[:, 0] * pair[:, 1]) / (1 - correlation**2)
    weight = np.exp(-0.5 * square) / values[:, 1] / values[:, 3]
    weight /= weight.sum()
    mean = weight @ values
    scatter = ((values - mean) * weight[:, None]).T @ (values - mean)
    size = np.sqrt(np.diag(scatter))
    np.testing.assert_allclose((draws.mean(axis=0) - mean) / size, 0, atol=0.1)
    np.testing.assert_allclose(np.cov(draws.T) / np.outer(size, size), scatter / np.outer(size, size), atol=0.15)
    for number in range(4):
        order = np.argsort(values[:, number])
        wanted = np.array([0.025, 0.5, 0.975])
        below = np.interp(np.quantile(draws[:, number], wanted), values[order, number], weight[order].cumsum())
        np.testing.assert_allclose(below, wanted, atol=0.045)
    with_latents = free.flat(best + random.multivariate_normal(np.zeros(4), own.covariance, 4000))
    assert np.cov(with_latents.T)[0, 0] > 2 * scatter[0, 0]  # what normal latents would give


def test_parameter_without_effect():
    blind = eqx.tree_at(lambda own: own.mixing, LINEAR, LINEAR.mixing.at[:, 2].set(0))
    matrix = information(blind, FREE, jnp.zeros(N_LATENT), jnp.asarray(N_DATA))
    found = from_information(FREE, jnp.zeros(N_LATENT), matrix)
    np.testing.assert_array_equal(found.without_effect(), np.array(FREE.labels) == "p2")
    np.testing.assert_allclose(found.sigma[2], 1, rtol=1e-12)
    assert not normal()[2].without_effect().any()


def test_derivatives_that_are_no_numbers_are_said():
    assert "not finite" in from_information(FREE, jnp.zeros(N_LATENT), jnp.full((N_LATENT, N_LATENT), jnp.nan))


class Scaled(eqx.Module):
    """Data about 0 whose standard deviation is scaled by the latent's value."""

    data: jax.Array
    free: eqx.Module

    def residuals(self, latent):
        scale = self.free.values(latent)["noise_scale"]
        return (self.data - latent[0]) / scale, jnp.sqrt(2 * len(self.data) * (0.5 + jnp.log(scale / 0.01))), latent

    def loss(self, latent):
        return 0.5 * sum(jnp.sum(own**2) for own in self.residuals(latent))


def test_noise_scale_has_fishers_information():
    """The standard deviation of N normal numbers is known to 1 / sqrt(2 N) of itself, their mean to 1 / sqrt(N)."""
    free = free_of(("mean", {"normal": [0, 1]}), ("noise_scale", {"log_normal": [1, 0.5]}))
    count = 5000
    problem = Scaled(jnp.asarray(np.random.default_rng(0).standard_normal(count)), free)
    found = from_information(free, jnp.zeros(2), information(problem, free, jnp.zeros(2), jnp.asarray(count)))
    sigma = np.sqrt(np.diag(found.value_covariance()))
    np.testing.assert_allclose(sigma, [1 / np.sqrt(count), 1 / np.sqrt(2 * count)], rtol=1e-3)
    assert found.correlation[0, 1] == 0
