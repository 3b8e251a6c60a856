"""emcee on `log_posterior`: the draws are those of NUTS, within the errors of both."""

from dataclasses import replace

import jax
import numpy as np
import pytest
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


@pytest.mark.slow(20)
def test_its_draws_are_those_of_nuts(client):
    emcee = client("emcee")
    galaxy, blank = few_stars(30, 0.1), mock_data((3, 3, 21))
    bare = rl.log_posterior(CONFIG, blank, galaxy=galaxy)
    flux = bare.flux(bare.to_unconstrained({"observation.velocity_offset": 60.0, "dust.a_v": 0.4}))
    sigma = 0.05 * flux.mean()
    noisy = flux + sigma * np.random.default_rng(2).standard_normal(flux.shape)
    data = replace(blank, flux=noisy, variance=np.full(flux.shape, sigma**2))
    function = rl.log_posterior(CONFIG, data, galaxy=galaxy)
    nuts = {"chains": 4, "warmup": 100, "draws": 300}
    drawn = rl.sample(CONFIG, data, galaxy=galaxy, sampling={"nuts": nuts})

    together = jax.jit(jax.vmap(function))
    start = drawn.best + 0.01 * function.draw(24, seed=1)
    walkers = emcee.EnsembleSampler(24, 2, lambda x: np.asarray(together(x)), vectorize=True)
    walkers.random_state = np.random.RandomState(3).get_state()
    walkers.run_mcmc(start, 1500)
    chain = walkers.get_chain(discard=300)
    independent = chain.shape[0] * chain.shape[1] / walkers.get_autocorr_time(tol=0)
    own, other = drawn.latent.reshape(-1, 2), chain.reshape(-1, 2)
    error = np.sqrt(own.var(axis=0) / drawn.diagnostics.ess_bulk + other.var(axis=0) / independent)
    assert (np.abs(own.mean(axis=0) - other.mean(axis=0)) < 4 * error).all()
    spread = np.sqrt(0.5 / drawn.diagnostics.ess_tail + 0.5 / independent)
    assert (np.abs(np.log(own.std(axis=0) / other.std(axis=0))) < 5 * spread).all()
