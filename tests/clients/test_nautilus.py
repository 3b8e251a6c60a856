"""nautilus on `log_posterior`: the draws are those of NUTS, the evidence is the sum over a grid by numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from recipes import run_recipe
from scipy.special import logsumexp
from two_numbers import check_agrees, drawn, function


@pytest.mark.long
def test_its_draws_are_those_of_nuts(client):
    client("nautilus")
    names = run_recipe("nautilus", function(), drawn().best)
    sampler, points, log_weight = (names[name] for name in ("sampler", "points", "log_weight"))
    weight = np.exp(log_weight - logsumexp(log_weight))
    mean = weight @ points
    check_agrees(mean, weight @ (points - mean) ** 2, np.full(2, 1 / np.sum(weight**2)))

    best, sigma = drawn().best, drawn().latent.reshape(-1, 2).std(axis=0)
    axes = [centre + width * np.linspace(-7, 7, 41) for centre, width in zip(best, sigma, strict=True)]
    grid = jnp.asarray(np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2))
    cell = np.prod([own[1] - own[0] for own in axes])
    evidence = logsumexp(np.asarray(jax.jit(jax.vmap(function()))(grid))) + np.log(cell)
    assert abs(sampler.log_z - evidence) < 4 / np.sqrt(sampler.n_eff)
