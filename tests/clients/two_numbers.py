"""A posterior of two numbers for samplers of others: the draws of NUTS, and whether those of others agree with them."""

import functools
from dataclasses import replace

import numpy as np
from small import few_stars, mock_data, muse

import rubix_like as rl

CONFIG = {
    "observation": {"redshift": 0.05, "inclination": 0, "position_angle": 0},
    "instrument": muse(5000, 5200, fov="0.6 arcsec"),
    "dust": {"a_v": 0.1, "curve": "calzetti"},
    "engine": {"method": "direct", "precision": "float64"},
    "devices": {"data": 1},
    "fit": {
        "free": {"observation.velocity_offset": {"normal": [0, 100]}, "dust.a_v": {"uniform": [0, 1]}},
        "starts": 1,
        "candidates": 1,
    },
}


@functools.cache
def galaxy():
    return few_stars(30, 0.1)


@functools.cache
def data():
    """A mock with 5 % of noise."""
    blank = mock_data((3, 3, 21))
    bare = rl.log_posterior(CONFIG, blank, galaxy=galaxy())
    flux = bare.flux(bare.to_unconstrained({"observation.velocity_offset": 60.0, "dust.a_v": 0.4}))
    sigma = 0.05 * flux.mean()
    noisy = flux + sigma * np.random.default_rng(2).standard_normal(flux.shape)
    return replace(blank, flux=noisy, variance=np.full(flux.shape, sigma**2))


@functools.cache
def function():
    return rl.log_posterior(CONFIG, data(), galaxy=galaxy())


@functools.cache
def drawn():
    """By NUTS."""
    nuts = {"chains": 4, "warmup": 100, "draws": 300}
    return rl.sample(CONFIG, data(), galaxy=galaxy(), sampling={"nuts": nuts})


def check_agrees(mean, variance, independent):
    """Means within 4 Monte Carlo errors of those of NUTS, standard deviations within 5; `independent`: draws."""
    nuts = drawn()
    own = nuts.latent.reshape(-1, 2)
    error = np.sqrt(own.var(axis=0) / nuts.diagnostics.ess_bulk + variance / independent)
    assert np.min(independent) > 100, independent
    off = (own.mean(axis=0) - mean) / error
    assert (np.abs(off) < 4).all(), off
    spread = np.sqrt(0.5 / nuts.diagnostics.ess_tail + 0.5 / independent)
    ratio = np.log(own.std(axis=0) / np.sqrt(variance)) / spread
    assert (np.abs(ratio) < 5).all(), ratio
