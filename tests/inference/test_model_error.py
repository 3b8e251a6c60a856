"""Particle noise of the model in a fit: its offset, modes and covariance, and how often intervals hold the truth."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from free_numbers import parameter
from small import fit_section

from rubix_like import ConfigError, Pipeline, load_config, load_galaxy, log_posterior, make_mesh
from rubix_like.extend import draw_base
from rubix_like.inference.checks.uncertainties import laplace
from rubix_like.inference.posterior.fit_model import HeldSource
from rubix_like.inference.posterior.model_error import find_model_error, other_cubes, sandwich, with_model_error

FREE = {
    "observation.inclination": {"uniform": ["30 deg", "70 deg"]},
    "observation.velocity_offset": {"normal": [0, "50 km/s"]},
    "dust.a_v": {"uniform": [0, 1]},
    "galaxy.stellar_mass": {"log_normal": ["1e10 Msun", 0.3]},
    "galaxy.disc_scale_length": {"log_uniform": ["0.7 kpc", "1.5 kpc"]},
}
MODEL_ERROR = {"draws": 10, "seed": 50}
DRAWS = fit_section(model_error=MODEL_ERROR).model_error


@functools.cache
def problem():
    """6 x 6 spaxels, 40 bins, 300 stars."""
    config = load_config(
        "quickstart",
        overrides={
            "galaxy.n_stars": 300,
            "galaxy.draws": "sobol",
            "galaxy.bulge_dispersion": "60 km/s",
            "instrument.name": "manga",
            "instrument.fov": "3 arcsec",
            "instrument.aperture": None,
            "instrument.wavelength": {
                "sampling": "linear",
                "medium": "vacuum",
                "start": 4000,
                "stop": 4780,
                "step": 20,
            },
            "instrument.psf.fwhm": "1 arcsec",
            "engine.deposit": "tsc",
            "engine.method": "basis",
            "engine.tolerance": 1e-2,
            "engine.velocity_range": "600 km/s",
            "observation.align": "none",
            "dust": {"a_v": 0.3, "curve": "calzetti"},
            "noise": {"signal_to_noise": 30},
            "devices.data": 1,
        },
    )
    mock = Pipeline.from_config(config, mesh=make_mesh(1))(load_galaxy(config))
    found = log_posterior(config, mock, FREE).problem
    return dataclasses.replace(found, settings=fit_section(free=FREE, model_error=MODEL_ERROR))


@jax.jit
def model_of(posterior, latent):
    """Compiled as one program; op by op it would be hundreds."""
    return posterior.model(latent)


@functools.cache
def found():
    """At the median of the prior."""
    posterior = problem().posterior
    latent = jnp.zeros(posterior.free.n_latent)
    cubes = np.stack([np.asarray(cube) for cube in other_cubes(posterior, latent, DRAWS)])
    return latent, cubes, with_model_error(problem(), latent)


@pytest.mark.slow
def test_other_cubes_are_of_other_draws_and_offset_and_modes_are_the_mean_and_covariance_of_every_second_draw():
    posterior, (latent, cubes, changed) = problem().posterior, found()
    third = eqx.tree_at(lambda p: p.forward.source.draws, posterior, draw_base(300, 0, 52, "sobol"))
    expected = np.asarray(model_of(third, latent)) * np.asarray(posterior.likelihood.inverse_sigma)
    np.testing.assert_allclose(cubes[2], expected, rtol=1e-4, atol=1e-4)
    assert len(cubes) == 10
    error = changed.posterior.likelihood.model_error
    mean = cubes[::2].mean(axis=0)
    model = np.asarray(model_of(posterior, latent)) * np.asarray(posterior.likelihood.inverse_sigma)
    np.testing.assert_allclose(error.offset, mean - model, atol=1e-4 * np.abs(model).max())
    np.testing.assert_allclose(error.held_out, cubes[1::2] - mean, atol=1e-10)
    modes = np.asarray(error.modes).reshape(4, -1)
    np.testing.assert_allclose(modes @ modes.T, np.eye(4), atol=1e-8)
    covariance = 1.2 * np.cov(cubes[::2].reshape(5, -1).T)
    np.testing.assert_allclose((modes.T * np.asarray(error.strength)) @ modes, covariance, atol=1e-8)
    assert changed.start is latent
    assert changed.settings.starts == 1


@pytest.mark.slow
def test_covariance_is_the_sandwich_of_dense_matrices():
    latent, cubes, changed = found()
    posterior = changed.posterior
    weight = posterior.likelihood.inverse_sigma

    def whitened(latent):
        return (posterior.model(latent).astype(weight.dtype) * weight).reshape(-1)

    slopes = np.asarray(jax.jit(jax.jacfwd(whitened))(latent), np.float64)
    first, second = cubes[::2].reshape(5, -1), cubes[1::2].reshape(5, -1) - cubes[::2].mean(axis=0).reshape(-1)
    weights = np.linalg.inv(np.eye(first.shape[1]) + 1.2 * np.cov(first.T))
    bread = np.linalg.inv(slopes.T @ weights @ slopes + np.eye(len(latent)))
    spread = np.eye(first.shape[1]) + second.T @ second / 5
    expected = bread @ (slopes.T @ weights @ spread @ weights @ slopes + np.eye(len(latent))) @ bread
    np.testing.assert_allclose(sandwich(posterior, latent), expected, rtol=1e-3, atol=1e-9)
    np.testing.assert_allclose(laplace(posterior, latent).covariance, expected, rtol=1e-3, atol=1e-9)
    assert np.all(np.diag(expected) > np.diag(bread))


@pytest.mark.slow
def test_without_noise_of_particles_it_is_the_laplace_covariance():
    latent, _, changed = found()
    posterior = changed.posterior
    silent = jax.tree.map(jnp.zeros_like, posterior.likelihood.model_error)
    posterior = eqx.tree_at(lambda p: p.likelihood.model_error, posterior, silent)
    expected = laplace(problem().posterior, latent).covariance
    np.testing.assert_allclose(sandwich(posterior, latent), expected, rtol=1e-4, atol=1e-8)


@pytest.mark.slow
def test_noise_scale_is_as_well_known_as_without_noise_of_particles():
    latent, _, changed = found()
    free = problem().posterior.free
    scale = parameter("noise_scale", {"log_uniform": [0.5, 2]})
    free = dataclasses.replace(free, parameters=(*free.parameters, scale))
    plain = dataclasses.replace(problem().posterior, free=free)
    silent = jax.tree.map(jnp.zeros_like, changed.posterior.likelihood.model_error)
    likelihood = dataclasses.replace(plain.likelihood, smallest_scale=jnp.asarray(0.5), model_error=silent)
    with_error = dataclasses.replace(plain, likelihood=likelihood)
    latent = jnp.append(latent, 0.1)
    expected = laplace(plain, latent).covariance
    np.testing.assert_allclose(sandwich(with_error, latent), expected, rtol=1e-4, atol=1e-8)


@pytest.mark.slow
def test_what_has_no_model_error_is_as_it_was_or_refused(monkeypatch):
    plain = dataclasses.replace(problem(), settings=fit_section(free=FREE))
    assert with_model_error(plain, jnp.zeros(5)) is plain
    posterior = problem().posterior
    held = HeldSource(posterior.forward.source.galaxy({}))
    of_given = eqx.tree_at(
        lambda p: p.forward.source, posterior, held, is_leaf=lambda leaf: leaf is posterior.forward.source
    )
    with pytest.raises(ConfigError, match="expected a synthetic galaxy"):
        find_model_error(of_given, jnp.zeros(5), DRAWS)
    monkeypatch.setattr("rubix_like.inference.posterior.model_error.available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match=r"model_error\.draws lower"):
        find_model_error(posterior, jnp.zeros(5), DRAWS)
