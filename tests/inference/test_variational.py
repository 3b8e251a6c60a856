"""Variational inference: known posteriors, NIFTy's own samples, the same ones on any mesh and after an interruption."""

import dataclasses
import functools
import logging
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import nifty.re
import numpy as np
import pytest
import scipy.stats
from curved import curved, half_square, starts
from jax import lax
from jax.sharding import AxisType
from problems import posed as problem_of
from small import fit_section, muse

from rubix_like import ConfigError, Pipeline, load_config, load_galaxy
from rubix_like.inference.checks.uncertainties import information
from rubix_like.inference.posterior.posterior import MOST_DENSE
from rubix_like.inference.samplers import variational
from rubix_like.inference.samplers.nifty_geometry import data_residuals, find_root
from rubix_like.inference.samplers.samplers import make_sampler

LONG = functools.partial(pytest.param, marks=pytest.mark.long)


def mesh_of(n_sample, n_data):
    axes, types = ("sample", "data"), (AxisType.Auto,) * 2
    return jax.make_mesh((n_sample, n_data), axes, axis_types=types, devices=jax.devices()[: n_sample * n_data])


def settings_of(seed=1, **chosen):
    return fit_section(sampling={"method": "geovi", "seed": seed, "variational": chosen}).sampling


def last_of(posterior, best, mesh=None, resume=None, **settings):
    *_, last = variational.run_variational(posterior, mesh or mesh_of(4, 2), settings_of(**settings), best, resume)
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
    data = rng.standard_normal(n_data) + design @ rng.standard_normal(n_latent)
    return Linear(jnp.asarray(design), jnp.asarray(data))


def test_normal_posterior():
    """Mirrored samples have its mean exactly; one of each pair has it, and the covariance, within Monte Carlo error."""
    mean, covariance = linear().posterior()
    assert np.abs(covariance / np.sqrt(np.outer(np.diag(covariance), np.diag(covariance))) - np.eye(6)).max() > 0.5
    found = last_of(linear(), mean + 0.5, samples=8, draws=1200)
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
    losses = jax.jit(jax.vmap(linear().loss))(jnp.asarray(found.latent[:3]))
    np.testing.assert_allclose(found.loss[:3], losses, rtol=1e-12)


def test_first_iteration_comes_to_rest_and_the_second_says_so():
    mean, _ = linear().posterior()
    found = last_of(linear(), mean + 0.5, samples=8, draws=2)
    assert found.n_iteration == 2
    assert found.shift[0] > 0.5
    assert found.shift[1] < 1e-6
    np.testing.assert_array_equal(found.means[0], mean + 0.5)


@functools.cache
def nifty_samples(number):
    """NIFTy's own pair of samples about a point of a curved problem: its Gaussian likelihood, its minimisers."""
    jft, problem, centre = nifty.re, curved(), jnp.asarray(0.2 * starts(1)[0])
    key = jax.random.split(jax.random.PRNGKey(5), 20)[number]
    identity = dict.fromkeys(("noise_cov_inv", "noise_std_inv"), lambda residual: residual)
    gaussian = jft.Gaussian(jnp.zeros(len(problem.data)), **identity)
    likelihood = gaussian.amend(lambda latent: data_residuals(problem, latent), domain=centre)
    options = {"cg_kwargs": {"resnorm": 1e-10, "miniter": 0}, "cg": jft.cg}
    way, _ = jft.draw_linear_residual(likelihood, centre, key, **options)
    newton = {"xtol": 1e-9, "cg_kwargs": {"resnorm": 1e-12, "maxiter": 200}}
    update = functools.partial(jft.nonlinearly_update_residual, likelihood, centre, minimize_kwargs=newton)
    return np.stack([update(sign * way, key, sign)[0] for sign in (1.0, -1.0)])


def test_samples_are_niftys():
    problem, centre = curved(), 0.2 * starts(1)[0]
    nifty.re.logger.disabled = True
    expected = np.concatenate([nifty_samples(number) for number in (0, 3)])
    nifty.re.logger.disabled = False
    keys = np.asarray(jax.random.split(jax.random.PRNGKey(5), 20))[[0, 3]]
    mesh, settings = mesh_of(1, 1), settings_of(samples=4)
    expansion = variational._expanded(problem, mesh, centre)
    found = variational._sampled(problem, mesh, settings, expansion, keys)
    sigma = np.sqrt(np.diag(np.linalg.inv(expansion.slopes.factor @ expansion.slopes.factor.T)))
    np.testing.assert_allclose((found.latent - centre) / sigma, expected / sigma, atol=1e-5)
    assert np.abs(expected).min() > 1e-4


class Banana(eqx.Module):
    """Two latents of which one is known as a parabola of the other."""

    def residuals(self, latent):
        return {"data": jnp.stack([(latent[1] + latent[0] ** 2) / 0.1, (latent[0] - 0.5) / 0.5]), "prior": latent}

    def loss(self, latent):
        return half_square(self.residuals(latent))


def integrated(posterior, *axes):
    """Mean, covariance and mean loss by quadrature."""
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    loss = np.asarray(jax.jit(lambda own, at: lax.map(own.loss, at, batch_size=64))(posterior, jnp.asarray(grid)))
    weight = np.exp(loss.min() - loss) / np.exp(loss.min() - loss).sum()
    mean = weight @ grid
    return mean, (grid - mean).T @ ((grid - mean) * weight[:, None]), weight @ loss


@pytest.mark.slow
def test_geovi_follows_a_curved_posterior():
    """By how far from the parabola its samples are, and by their mean loss."""
    *_, loss = integrated(Banana(), np.linspace(-4, 4, 401), np.linspace(-6, 2, 801))
    found = last_of(Banana(), np.array([0.3, -0.1]), samples=40, draws=1000)
    scatter = np.sqrt(np.mean((found.latent[:, 1] + found.latent[:, 0] ** 2) ** 2)) / 0.1
    assert scatter == pytest.approx(1.0, abs=0.1)
    assert abs(found.loss.mean() - loss) < 0.25
    assert np.count_nonzero(found.error > 1e-3) <= 5


def test_root_is_found_where_the_first_step_leads_away():
    turn = jnp.asarray([[0.0, 1.0], [-1.0, 0.0]])

    def function(at):
        return at + 4 * turn @ at**3 - jnp.asarray([1.0, -0.5])

    root = find_root(function, function(jnp.zeros(2)), 1e-10, 100)
    np.testing.assert_allclose(function(root.position), 0, atol=1e-10)
    assert root.n_evaluation < 60
    few = find_root(function, function(jnp.zeros(2)), 1e-10, 3)
    assert few.n_evaluation == 3
    assert few.error > 1e-3


@pytest.mark.slow
def test_more_latents_than_a_matrix_is_made_for():
    """By conjugate gradients, on a normal posterior: a mirrored pair has the mean, and the covariance of the data."""
    problem = linear(n_latent=MOST_DENSE + 1, n_data=5)
    design = np.asarray(problem.design)
    small = np.linalg.inv(np.eye(5) + design @ design.T)
    mean = design.T @ small @ np.asarray(problem.data)
    found = last_of(problem, mean + 0.1, mesh_of(2, 1), samples=2, draws=40, iterations=2)
    assert variational._expanded(problem, mesh_of(2, 1), mean).slopes is None
    way = found.latent[::2] - found.mean
    assert np.sum(way**2) / len(way) == pytest.approx(design.shape[1] - 5 + np.trace(small), rel=0.02)
    assert np.sqrt(np.mean((way @ design.T @ np.linalg.cholesky(np.linalg.inv(small @ design @ design.T))) ** 2)) < 2
    np.testing.assert_allclose(found.mean, mean, atol=1e-3)


CONFIG = {
    "galaxy": {"reader": "synthetic", "n_stars": 60, "draws": "sobol"},
    "observation": {"redshift": 0.05, "inclination": 40, "position_angle": 0, "align": "none"},
    "instrument": muse(),
    "dust": {"a_v": 0.4, "curve": "calzetti"},
    "engine": {"method": "direct", "precision": "float64", "deposit": "tsc"},
    "noise": {"signal_to_noise": 20, "seed": 3},
    "fit": {"free": {"dust.a_v": {"uniform": [0, 1]}}, "noise_scale": {"log_uniform": [0.5, 2]}},
}


@functools.cache
def posed(n_device, n_row):
    """Posterior and mesh of a mock, and the latents of its truth; of few voxels, so that the scale is uncertain."""
    config = load_config(CONFIG, overrides={"devices.data": n_device})
    problem = problem_of(n_row, config, data())
    few = np.arange(data().flux.size).reshape(data().flux.shape) % 13 == 0
    inverse_sigma = jnp.where(few, problem.posterior.likelihood.inverse_sigma, 0)
    posterior = eqx.tree_at(lambda own: own.likelihood.inverse_sigma, problem.posterior, inverse_sigma)
    return posterior, problem.pipeline.mesh, np.asarray(posterior.free.latent({"dust.a_v": 0.4, "noise_scale": 1.0}))


@functools.cache
def data():
    config = load_config(CONFIG, overrides={"devices.data": 1})
    galaxy = load_galaxy(config)
    return Pipeline.from_config(config, galaxy=galaxy)(galaxy)


@pytest.mark.slow
def test_free_noise_scale_against_quadrature():
    posterior, mesh, truth = posed(1, 1)
    mean, covariance, _ = integrated(posterior, np.linspace(-0.5, -0.05, 31), np.linspace(-0.9, 0.7, 31))
    sigma = np.sqrt(np.diag(covariance))
    found = last_of(posterior, truth, mesh, samples=16, draws=400)
    np.testing.assert_allclose((found.latent.mean(axis=0) - mean) / sigma, 0, atol=0.15)
    np.testing.assert_allclose(found.latent.std(axis=0) / sigma, 1, atol=0.15)


@pytest.mark.slow
def test_metric_has_fishers_information_of_the_noise_scale():
    posterior, mesh, truth = posed(1, 1)
    factor = np.asarray(variational._expanded(posterior, mesh, truth).slopes.factor)
    of_data = information(
        posterior, posterior.free, jnp.asarray(truth), jnp.sum(posterior.likelihood.inverse_sigma > 0)
    )
    np.testing.assert_allclose(factor @ factor.T, of_data + np.eye(2), rtol=1e-9, atol=1e-9)


@functools.cache
def states(n_device, n_row):
    posterior, mesh, truth = posed(n_device, n_row)
    return tuple(variational.run_variational(posterior, mesh, settings_of(samples=16, draws=26, iterations=2), truth))


@pytest.mark.parametrize(("n_device", "n_row"), [LONG(8, 4), LONG(8, 1), LONG(8, 2), LONG(8, 8), LONG(2, 2)])
def test_samples_are_the_same_on_any_mesh(n_device, n_row):
    """8 and 13 keys, for 1, 2, 4 and 8 rows that share a model or not."""
    assert_same(states(1, 1)[-1], states(n_device, n_row)[-1])


def assert_same(one, other):
    assert one.finished
    assert other.finished
    np.testing.assert_array_equal(one.keys, other.keys)
    np.testing.assert_allclose(one.means, other.means, rtol=0, atol=1e-9)
    np.testing.assert_allclose(one.latent, other.latent, rtol=0, atol=1e-9)
    np.testing.assert_allclose(one.loss, other.loss, rtol=1e-9)


@pytest.mark.parametrize(
    ("n_key", "n_row"), [(3, 4), *(LONG(n_key, n_row) for n_key in (3, 8, 5) for n_row in (2, 4, 8))]
)
def test_any_number_of_keys_on_any_number_of_rows(n_key, n_row):
    """Of a problem that is computed whole on each device; the draws are in groups of other sizes."""
    assert_same(on_rows(n_key, 1), on_rows(n_key, n_row))


@functools.cache
def on_rows(n_key, n_row):
    chosen = {"samples": 2 * n_key, "draws": 26, "iterations": 2}
    return last_of(Banana(), np.array([0.3, 0.5]), mesh_of(n_row, 8 // n_row), **chosen)


def test_run_goes_on_bit_for_bit_from_each_of_its_states():
    """In the middle of the search for the mean, or of the draws."""
    settings, mesh, start = settings_of(samples=6, draws=26, iterations=2), mesh_of(4, 2), np.array([0.3, 0.5])
    all_states = tuple(variational.run_variational(Banana(), mesh, settings, start))
    assert [state.n_done for state in all_states] == [0, 0, 0, 6, 12, 18, 24, 26]
    for state in all_states:
        kept = type(state).from_arrays(state.arrays())
        *_, last = (kept, *variational.run_variational(Banana(), mesh, settings, start, kept))
        for name, own in all_states[-1].arrays().items():
            np.testing.assert_array_equal(last.arrays()[name], own, err_msg=name)


def test_state_of_another_run_is_refused():
    mean, _ = linear().posterior()
    *_, last = variational.run_variational(linear(), mesh_of(4, 2), settings_of(samples=8, draws=2), mean)
    np.testing.assert_array_equal(last.draw_keys, last.keys[[4, 4]])
    again = variational.run_variational(linear(), mesh_of(4, 2), settings_of(samples=8, draws=2), mean, last)
    assert [state.finished for state in again] == [True]
    with pytest.raises(ValueError, match="the seed 2, got a state of a run that differs"):
        next(variational.run_variational(linear(), mesh_of(4, 2), settings_of(2, samples=8, draws=2), mean, last))


def test_mean_that_does_not_rest_is_told():
    found = last_of(Banana(), np.array([0.3, 0.5]), samples=6, draws=2, iterations=1)
    assert not found.converged
    assert "the mean has not converged after 1 iterations" in found.notes[0]
    assert found.trouble == "the mean of the draws has not converged"


def test_samples_that_miss_their_equation_are_told():
    """One of twenty may."""
    found = last_of(Banana(), np.array([0.3, 0.5]), samples=6, draws=40)
    assert found.converged
    assert found.trouble == ""
    few = dataclasses.replace(found, error=np.where(np.arange(40) < 2, 0.2, 0.0))
    assert few.trouble == ""
    many = dataclasses.replace(found, error=np.where(np.arange(40) < 4, 0.2, 0.0))
    assert "10 % of them miss their equation" in many.trouble


class Undefined(eqx.Module):
    """Residuals that are a number on one side only."""

    def residuals(self, latent):
        return {"data": jnp.sqrt(latent), "prior": latent}

    def loss(self, latent):
        return half_square(self.residuals(latent))


class Infinite(eqx.Module):
    """A loss that is a number on one side only."""

    def residuals(self, latent):
        return {"data": latent, "prior": latent}

    def loss(self, latent):
        return jnp.where(jnp.all(latent > 0), half_square(self.residuals(latent)), jnp.nan)


def test_posterior_without_numbers_is_told():
    settings = settings_of(samples=4, draws=2)
    with pytest.raises(ValueError, match="expected a finite loss of every sample, got none of"):
        tuple(variational.run_variational(Infinite(), mesh_of(1, 1), settings, np.full(2, 0.1)))
    with pytest.raises(ValueError, match="expected residuals and derivatives that are finite"):
        tuple(variational.run_variational(Undefined(), mesh_of(1, 1), settings, np.full(2, -0.1)))


def test_settings_ask_for_whole_pairs():
    with pytest.raises(ValueError, match="multiple of 2"):
        settings_of(samples=3)


def test_missing_nifty_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "nifty", None)
    with pytest.raises(ConfigError, match=r"'geovi' needs the package nifty: pip install 'rubix-like\[sample\]'"):
        make_sampler(settings_of())


def test_nifty_is_silent_and_its_logger_left_as_it_was():
    seen, handler = [], logging.Handler()
    handler.emit = seen.append
    nifty.re.logger.addHandler(handler)
    try:
        last_of(Banana(), np.array([0.3, -0.1]), samples=6, draws=2, iterations=1)
        assert seen == []
        nifty.re.logger.error("heard")
        assert len(seen) == 1
    finally:
        nifty.re.logger.removeHandler(handler)
