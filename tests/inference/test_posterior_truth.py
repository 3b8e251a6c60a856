"""Draws against posteriors that are known: a linear model of a cube by linear algebra, curved ones by quadrature."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from curved import half_square
from jax.sharding import AxisType
from problems import end_of_chains, posed
from small import fit_section

from rubix_like import Galaxy, Pipeline, Stars, load_config, make_mesh
from rubix_like.extend import import_optional
from rubix_like.inference.checks.uncertainties import laplace
from rubix_like.inference.samplers.variational import run_variational


def scores(values, expected):
    """By how many Monte Carlo errors the means of (chain, draw) values of functions miss what is expected."""
    arviz = import_optional("arviz", "tests")
    error = [np.std(own) / np.sqrt(arviz.ess(own, method="mean")) for own in values]
    return (np.mean(values, axis=(1, 2)) - expected) / np.array(error)


def check_normal(draws, mean, covariance, least=1e-3):
    """Mean and covariance of draws (chain, draw, latent) of a normal distribution: p > `least` for each of both.

    In coordinates in which it is N(0, 1), their means, and the means of their products, are uncorrelated.
    """
    white = np.linalg.solve(np.linalg.cholesky(covariance), (draws - mean).reshape(-1, len(mean)).T)
    white = white.reshape(len(mean), *draws.shape[:2])
    first, second = np.tril_indices(len(mean))
    of_mean = scores(white, np.zeros(len(mean)))
    of_covariance = scores(white[first] * white[second], (first == second).astype(float))
    for own in (of_mean, of_covariance):
        assert scipy.stats.chi2(len(own)).sf(np.sum(own**2)) > least, own


def pairs(latent):
    """One sample of each pair of mirrored ones, as a chain."""
    return latent[None, ::2]


N_STAR = 8
CUBE = {
    "observation": {"redshift": 0.02, "align": "none"},
    "instrument": {
        "name": "manga",
        "fov": "2 arcsec",
        "aperture": None,
        "psf": {"fwhm": "1 arcsec"},
        "wavelength": {"sampling": "linear", "medium": "vacuum", "start": 3900, "stop": 5850, "step": 50},
    },
    "engine": {"method": "direct", "precision": "float64", "velocity_range": "500 km/s"},
    "devices": {"data": 2},
}


@functools.cache
def cube_problem():
    """Stars whose masses are free and have normal priors; two devices, each with samples of its own."""
    rng = np.random.default_rng(4)
    stars = Stars(
        position=rng.uniform(-0.35, 0.35, (N_STAR, 3)),
        velocity=rng.normal(0, 100, (N_STAR, 3)),
        initial_mass=rng.normal(1.5e6, 3e5, N_STAR),
        log_age=rng.uniform(8.5, 10, N_STAR),
        metallicity=10 ** rng.uniform(-3, -1.5, N_STAR),
    )
    config, galaxy = load_config(CUBE), Galaxy(stars=stars)
    cube = Pipeline.from_config(config, mesh=make_mesh(1))(galaxy)
    sigma = 0.1 * float(cube.flux.max())
    noisy = np.asarray(cube.flux) + sigma * rng.standard_normal(cube.flux.shape)
    data = dataclasses.replace(cube, flux=noisy, variance=np.full(cube.flux.shape, sigma**2))
    free = {"stars.initial_mass": {"normal": ["1.5e6 Msun", "3e5 Msun"]}}
    return posed(2, config, data, free, galaxy=galaxy)


@functools.cache
def cube_posterior():
    """(mean, covariance) of the latents, by linear algebra."""
    posterior = cube_problem().posterior

    @jax.jit
    def residuals(posterior, latent):
        return jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(posterior.residuals(latent))])

    at_zero = np.asarray(residuals(posterior, jnp.zeros(N_STAR)))
    design = np.stack([np.asarray(residuals(posterior, unit)) - at_zero for unit in jnp.eye(N_STAR)], axis=1)
    other = np.random.default_rng(0).standard_normal(N_STAR)
    linear = at_zero + design @ other
    np.testing.assert_allclose(residuals(posterior, jnp.asarray(other)), linear, atol=1e-10 * np.abs(linear).max())
    covariance = np.linalg.inv(design.T @ design)
    return -covariance @ design.T @ at_zero, covariance


@functools.cache
def cube_approximation():
    mean, _ = cube_posterior()
    return laplace(cube_problem().posterior, jnp.asarray(mean))


@pytest.mark.slow
def test_cube_that_is_linear_in_its_masses_has_a_normal_posterior_that_is_known():
    """It is a test of samplers only if the data know some of the masses well, some badly, and not independently."""
    _, covariance = cube_posterior()
    sigma = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(sigma, sigma) - np.eye(N_STAR)
    assert sigma.min() < 0.3
    assert sigma.max() > 0.5
    assert np.abs(correlation).max() > 0.3
    np.testing.assert_allclose(cube_approximation().covariance, covariance, rtol=1e-8, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("whitened", [True, pytest.param(False, marks=pytest.mark.long)])
def test_chains_have_mean_and_covariance_of_a_linear_cube(whitened):
    """p > 1e-3 for the mean and for the covariance; also where the chains must find the scales themselves."""
    problem, (mean, covariance) = cube_problem(), cube_posterior()
    scale = cube_approximation().covariance if whitened else np.eye(N_STAR)
    settings = fit_section(sampling={"nuts": {"chains": 4, "warmup": 80, "draws": 150}}).sampling
    start = mean + 0.5 * np.sqrt(np.diag(covariance))
    last = end_of_chains(problem.posterior, problem.pipeline.mesh, settings, start, scale)
    check_normal(last.draws["latent"], mean, covariance)
    assert not last.draws["diverging"].any()


@pytest.mark.slow
def test_variational_samples_have_mean_and_covariance_of_a_linear_cube():
    """One sample of each mirrored pair; p > 1e-3 for the mean and for the covariance."""
    problem, (mean, covariance) = cube_problem(), cube_posterior()
    chosen = {"method": "geovi", "variational": {"samples": 4, "draws": 1000}}
    settings = fit_section(sampling=chosen).sampling
    start = mean + 0.5 * np.sqrt(np.diag(covariance))
    *_, last = run_variational(problem.posterior, problem.pipeline.mesh, settings, start)
    assert last.converged
    check_normal(pairs(last.latent), mean, covariance)
    np.testing.assert_allclose(last.mean, mean, atol=1e-6)


class Bent(eqx.Module):
    """A measurement of b + bend a^2, and one that saturates: of tanh(c) with `bend`, of c without."""

    bend: jax.Array

    def residuals(self, latent):
        a, b, c = latent
        saturating = jnp.where(self.bend > 0, jnp.tanh(c), c)
        return {"data": jnp.stack([b + self.bend * a**2 - 1.0, saturating - 0.9]) / 0.3, "prior": latent}

    def loss(self, latent):
        return half_square(self.residuals(latent))


def bent_chains(bend, spacing=None):
    """Draws by chains on a lattice of this spacing, begun in the coordinates of the linear problem."""
    covariance = np.diag([1, 1 / (1 + 1 / 0.3**2), 1 / (1 + 1 / 0.3**2)])
    mesh = jax.make_mesh((2, 1), ("sample", "data"), axis_types=(AxisType.Auto,) * 2, devices=jax.devices()[:2])
    settings = fit_section(sampling={"nuts": {"chains": 4, "warmup": 200, "draws": 1000}}).sampling
    centre = np.array([0.0, 0.9, 0.8])
    return end_of_chains(Bent(jnp.asarray(bend)), mesh, settings, centre, covariance, spacing).draws["latent"]


FUNCTIONS = (
    *(lambda a, b, c: a, lambda a, b, c: b, lambda a, b, c: c),
    *(lambda a, b, c: a**2, lambda a, b, c: b**2, lambda a, b, c: c**2),
    *(lambda a, b, c: b * a**2, lambda a, b, c: b**3, lambda a, b, c: c**3),
)
"""Whose means are compared: of mean, width, curvature and tails."""


def quadrature(bend):
    """Means of the functions over the posterior, on a grid."""
    axes = np.linspace(-4, 4, 81), np.linspace(-4, 4, 161), np.linspace(-2, 6, 121)
    a, b, c = np.meshgrid(*axes, indexing="ij", sparse=True)
    loss = a**2 + b**2 + c**2 + ((b + bend * a**2 - 1) ** 2 + (np.tanh(c) - 0.9) ** 2) / 0.3**2
    density = np.exp(-0.5 * loss)
    return np.array([np.sum(own(a, b, c) * density) for own in FUNCTIONS]) / density.sum()


def test_chains_have_mean_and_covariance_of_a_linear_model():
    """p > 1e-3 for the mean and for the covariance."""
    variance = 1 / (1 + 1 / 0.3**2)
    mean, covariance = np.array([0, 1, 0.9]) / 0.3**2 * variance, np.diag([1, variance, variance])
    check_normal(bent_chains(0.0), mean, covariance)


@pytest.mark.parametrize("spacing", [None, 2.0**-8])
def test_chains_on_a_lattice_have_the_moments_of_a_curved_posterior(spacing):
    """Within 4 Monte Carlo errors each (p > 6e-5 of each), also on a lattice of 1 / 256 standard deviations."""
    draws = bent_chains(1.0, spacing)
    assert scipy.stats.skew(draws[..., 1].reshape(-1)) < -0.5
    values = np.stack([own(*np.moveaxis(draws, 2, 0)) for own in FUNCTIONS])
    found = scores(values, quadrature(1.0))
    assert np.abs(found).max() < 4, found
