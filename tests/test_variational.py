"""Variational inference: known posteriors, NIFTy's own samples, the same ones on any mesh and after any interruption."""

import functools
import logging
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from curved import N_LATENT, curved, starts
from jax.sharding import AxisType
from scipy.special import logsumexp

from rubix_like import ConfigError, Galaxy, ObservedCube, Stars, load_config
from rubix_like.config.sampling import SamplingSettings
from rubix_like.inference.engines import MOST_DENSE
from rubix_like.inference.geometry import MOST_EVALUATIONS, check_nifty, data_residuals
from rubix_like.inference.posterior import half_square
from rubix_like.inference.problem import pose
from rubix_like.inference.roots import find_root
from rubix_like.inference.variational import run_variational
from rubix_like.inference.variational_state import VariationalState

METHODS = ("mgvi", "geovi")


def mesh_of(n_sample, n_data):
    axes, types = ("sample", "data"), (AxisType.Auto,) * 2
    return jax.make_mesh((n_sample, n_data), axes, axis_types=types, devices=jax.devices()[: n_sample * n_data])


def settings_of(method="geovi", seed=1, **chosen):
    return SamplingSettings(method=method, seed=seed, variational=chosen)


def last_of(posterior, best, mesh=None, resume=None, **settings):
    *_, last = run_variational(posterior, mesh or mesh_of(4, 2), settings_of(**settings), best, resume)
    return last


class Linear(eqx.Module):
    """Data that are linear in the latents."""

    design: jax.Array
    data: jax.Array

    def residuals(self, latent):
        return {"data": self.data - self.design @ latent, "prior": latent}

    def loss(self, latent):
        return half_square(self.residuals(latent))

    def posterior(self):
        """Its mean and covariance."""
        design = np.asarray(self.design)
        covariance = np.linalg.inv(design.T @ design + np.eye(design.shape[1]))
        return covariance @ design.T @ np.asarray(self.data), covariance


@functools.cache
def linear(n_latent=6, n_data=40):
    """Neighbouring latents are correlated, the last one is unknown to the data."""
    rng = np.random.default_rng(8)
    design = np.cumsum(rng.standard_normal((n_data, n_latent)), axis=1) * np.geomspace(3, 0.3, n_latent)
    design[:, -1] = 0
    return Linear(
        jnp.asarray(design), jnp.asarray(rng.standard_normal(n_data) + design @ rng.standard_normal(n_latent))
    )


@pytest.mark.parametrize("method", METHODS)
def test_normal_posterior(method):
    """Mirrored samples have its mean exactly; one of each pair has it, and the covariance, within Monte Carlo error."""
    mean, covariance = linear().posterior()
    assert np.abs(covariance / np.sqrt(np.outer(np.diag(covariance), np.diag(covariance))) - np.eye(6)).max() > 0.5
    found = last_of(linear(), mean + 0.5, method=method, samples=8, draws=1200)
    assert found.converged
    assert found.notes == ()
    assert found.kl.shape == found.shift.shape == (found.n_iteration,)
    np.testing.assert_allclose(found.mean, mean, atol=1e-9)
    np.testing.assert_allclose(found.latent.mean(axis=0), mean, atol=1e-9)
    way = found.latent[::2] - mean
    np.testing.assert_allclose(found.latent[1::2], mean - way, atol=1e-9)
    count = len(way)
    chi_square = count * way.mean(axis=0) @ np.linalg.solve(covariance, way.mean(axis=0))
    assert 0.001 < scipy.stats.chi2(6).cdf(chi_square) < 0.999
    sampling = np.sqrt((covariance**2 + np.outer(np.diag(covariance), np.diag(covariance))) / count)
    assert np.abs((way.T @ way / count - covariance) / sampling).max() < 4
    losses = [linear().loss(jnp.asarray(latent)) for latent in found.latent[:3]]
    np.testing.assert_allclose(found.loss[:3], losses, rtol=1e-12)


def test_first_iteration_comes_to_rest_and_the_second_says_so():
    mean, _ = linear().posterior()
    found = last_of(linear(), mean + 0.5, method="mgvi", samples=8, draws=2)
    assert found.n_iteration == 2
    assert found.shift[0] > 0.5
    assert found.shift[1] < 1e-6
    np.testing.assert_array_equal(found.means[0], mean + 0.5)


@functools.cache
def nifty_samples(method, number):
    """NIFTy's own pair of samples about a point of a curved problem: its Gaussian likelihood, its minimisers."""
    import nifty.re as jft

    problem, centre = curved(), jnp.asarray(0.2 * starts(1)[0])
    key = jax.random.split(jax.random.PRNGKey(5), 20)[number]
    identity = dict.fromkeys(("noise_cov_inv", "noise_std_inv"), lambda residual: residual)
    gaussian = jft.Gaussian(jnp.zeros(len(problem.data)), **identity)
    likelihood = gaussian.amend(lambda latent: data_residuals(problem, latent), domain=centre)
    options = {"cg_kwargs": {"resnorm": 1e-10, "miniter": 0}, "cg": jft.cg}
    way, _ = jft.draw_linear_residual(likelihood, centre, key, **options)
    if method == "mgvi":
        return np.stack([way, -way])
    newton = {"xtol": 1e-9, "cg_kwargs": {"resnorm": 1e-12, "maxiter": 200}}
    update = functools.partial(jft.nonlinearly_update_residual, likelihood, centre, minimize_kwargs=newton)
    return np.stack([update(sign * way, key, sign)[0] for sign in (1.0, -1.0)])


@pytest.mark.parametrize("method", METHODS)
def test_samples_are_niftys(method):
    import nifty.re as jft

    from rubix_like.inference import variational

    problem, centre = curved(), 0.2 * starts(1)[0]
    jft.logger.disabled = True
    expected = np.concatenate([nifty_samples(method, number) for number in (0, 3)])
    jft.logger.disabled = False
    keys = np.asarray(jax.random.split(jax.random.PRNGKey(5), 20))[[0, 3]]
    mesh, settings = mesh_of(1, 1), settings_of(method=method, samples=4)
    expansion = variational._expanded(problem, mesh, centre)
    found = variational._sampled(problem, mesh, settings, expansion, keys)
    sigma = np.sqrt(np.diag(np.linalg.inv(expansion.slopes.factor @ expansion.slopes.factor.T)))
    np.testing.assert_allclose((found.latent - centre) / sigma, expected / sigma, atol=1e-5)
    assert np.abs(expected).min() > 1e-4
