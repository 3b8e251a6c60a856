"""Fits of single stars: velocities, masses, ages and metallicities of a given galaxy, one star in each spaxel."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest
from astropy.cosmology import Planck18

from rubix_like import Galaxy, Pipeline, Stars, fit, load_config, log_posterior, make_mesh
from rubix_like.inference.posterior.fit_model import line_of_sight
from rubix_like.inference.search.search import Trials, evolve

V_LOS = "stars.v_los"

N_SIDE = 4
"""Spaxels along a side."""

N_STAR = N_SIDE**2

NOMINAL = 1000.0
"""Signal-to-noise ratio that the errors of the noiseless data stand for."""

REDSHIFT = 0.02

FREE = {
    V_LOS: {"normal": [0, 150]},
    "stars.initial_mass": {"log_normal": [1e6, 0.5]},
    "stars.log_age": {"uniform": [8.5, 10.1]},
    "stars.metallicity": {"log_uniform": [1.1e-4, 0.049]},
}
"""All that the library has."""

CENTRED = {
    V_LOS: {"normal": ["galaxy", "25 km/s"]},
    "stars.initial_mass": {"log_normal": ["galaxy", 0.1]},
    "stars.metallicity": {"log_normal": ["galaxy", 0.05]},
}


@functools.cache
def config(**overrides):
    wavelength = {"sampling": "linear", "medium": "vacuum", "start": 3800, "stop": 3800 + 99 * 14, "step": 14}
    return load_config(
        {
            "observation": {"redshift": REDSHIFT, "align": "none"},
            "instrument": {
                "name": "manga",
                "fov": f"{N_SIDE / 2} arcsec",
                "aperture": None,
                "psf": None,
                "wavelength": wavelength,
            },
            "engine": {"method": "direct", "precision": "float64", "velocity_range": "1000 km/s"},
            "devices": {"data": 1},
            **overrides,
        }
    )


@functools.cache
def galaxies():
    """The galaxy that is observed, and one of which only the positions are true."""
    generator = np.random.default_rng(0)
    kpc = 0.5 / Planck18.arcsec_per_kpc_proper(REDSHIFT).value  # a spaxel's side
    side = (np.arange(N_SIDE) - (N_SIDE - 1) / 2) * kpc
    x, y = (values.ravel() for values in np.meshgrid(side, side))
    position = np.stack([x, y, np.zeros(N_STAR)], axis=1)
    log_age, log_metallicity = generator.uniform(8.5, 10.1, N_STAR), generator.uniform(-3.9, -1.35, N_STAR)
    velocity, log_mass = generator.normal(0, 150, (N_STAR, 3)), generator.normal(6, 0.3, N_STAR)
    true = Stars(position, velocity, 10**log_mass, log_age, 10**log_metallicity)
    alike = np.ones(N_STAR)
    thought = Stars(position, 0 * velocity, 1e6 * alike, 9.3 * alike, 0.01 * alike)
    return Galaxy(stars=true), Galaxy(stars=thought)


@functools.cache
def data():
    """Of the true galaxy, without noise."""
    cube = Pipeline.from_config(config(), mesh=make_mesh(1))(galaxies()[0])
    variance = (np.asarray(cube.flux).mean(axis=2, keepdims=True) / NOMINAL) ** 2
    return dataclasses.replace(cube, variance=np.broadcast_to(variance, cube.flux.shape))


@functools.cache
def fitted():
    return fit(
        config(),
        data(),
        FREE,
        galaxy=galaxies()[1],
        starts=1,
        candidates=32,
        generations=200,
        optimiser={"name": "levenberg_marquardt", "steps": 50},
    )


def truth():
    stars = galaxies()[0].stars
    names = ("initial_mass", "log_age", "metallicity")
    return {V_LOS: stars.velocity[:, 2], **{f"stars.{name}": getattr(stars, name) for name in names}}


@pytest.mark.slow(20)
def test_every_property_is_recovered_from_a_noiseless_cube():
    """Ages and metallicities as far as the spectra determine them: near the edge of a prior, where there is no standard
    deviation, half of the interval of 68 % stands for it."""
    result = fitted()
    assert result.converged
    assert np.all(np.abs(result.values[V_LOS] - truth()[V_LOS]) < 0.5)
    assert np.all(np.abs(result.values["stars.initial_mass"] / truth()["stars.initial_mass"] - 1) < 0.01)
    np.testing.assert_allclose(result.galaxy.stars.velocity[:N_STAR, 2], truth()[V_LOS], atol=0.5)
    low, high = result.interval()
    for name, most in {"stars.log_age": 0.01, "stars.metallicity": 1e-3}.items():
        sigma = (high[name] - low[name]) / 2
        assert np.all(np.abs(result.values[name] - truth()[name]) < 3 * sigma), name
        assert np.median(sigma) < most, name


def test_velocities_along_the_line_of_sight_are_those_of_the_galaxy_in_any_orientation():
    """Priors are centred on them, and values change nothing across the line of sight."""
    turned = load_config(config(), overrides={"observation.inclination": 50, "observation.position_angle": 20})
    galaxy = galaxies()[0]
    posterior = log_posterior(turned, data(), CENTRED, galaxy=galaxy).problem.posterior
    forward, free = posterior.forward, posterior.free
    sight = np.asarray(line_of_sight(forward.tables, forward.parameters))
    wanted = np.linspace(-100, 100, N_STAR)
    changed, _ = forward.at({V_LOS: jnp.asarray(wanted)})
    difference = np.asarray(changed.stars.velocity) - galaxy.stars.velocity
    np.testing.assert_allclose(np.linalg.norm(sight), 1, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(changed.stars.velocity) @ sight, wanted, atol=1e-9)
    np.testing.assert_allclose(difference, (difference @ sight)[:, None] * sight, atol=1e-9)
    values = free.values(jnp.zeros(free.n_latent))
    np.testing.assert_allclose(values[V_LOS], galaxy.stars.velocity @ sight, atol=1e-9)
    np.testing.assert_allclose(values["stars.initial_mass"], galaxy.stars.initial_mass, rtol=1e-12)
    np.testing.assert_allclose(values["stars.metallicity"], galaxy.stars.metallicity, rtol=1e-12)


def test_padding_is_not_fitted_and_a_start_leaves_the_others_at_their_medians():
    stars, n_real = galaxies()[0].stars, N_STAR - 3
    padded = Galaxy(stars=dataclasses.replace(stars, weight=np.where(np.arange(N_STAR) < n_real, 1.0, 0.0)))
    mass = {"stars.initial_mass": {"log_normal": ["1e6 Msun", 1]}}
    free = {**CENTRED, **mass, "stars.log_age": {"uniform": [8, 10]}}
    start = {"stars.initial_mass": np.full(n_real, 2e6), "stars.log_age": "galaxy"}
    problem = log_posterior(config(), data(), free, galaxy=padded, start=start).problem
    assert problem.posterior.free.n_latent == 4 * n_real
    begun = problem.posterior.free.values(problem.start)["stars.log_age"]
    np.testing.assert_allclose(begun, stars.log_age[:n_real], rtol=1e-9)
    v_los, masses, metallicities, _ = np.asarray(problem.start).reshape(4, n_real)
    np.testing.assert_allclose(masses, np.log10(2), rtol=1e-9)
    np.testing.assert_allclose([v_los, metallicities], 0, atol=1e-12)


def test_every_patch_finds_the_lowest_of_its_minima():
    """cos and a parabola, one minimum of many the lowest, at a place of its own in each of three patches."""
    owner, lowest = np.array([0, 1, 2, -1, 0, 1, 2]), np.array([-1.3, 0.4, 1.1, 0, 0.7, -0.2, -1.6])

    def evaluate(latent):
        away = latent - lowest
        each = away**2 + 1 - np.cos(8 * away)
        return Trials(latent, np.stack([each[:, owner == patch].sum(axis=1) for patch in range(3)], axis=1))

    drawn = np.random.default_rng(1).standard_normal((24, 7))
    found = evolve(evaluate, owner, 3, drawn, 150, np.random.default_rng(2))
    of_star = owner >= 0
    np.testing.assert_allclose(found[of_star], lowest[of_star], atol=1e-3)
    assert found[~of_star] in drawn[:, ~of_star]
