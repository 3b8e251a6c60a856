"""nautilus on `log_posterior`: the draws are those of NUTS, the evidence is the sum over a grid by numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp, ndtri
from two_numbers import check_agrees, drawn, function


@pytest.mark.long
def test_its_draws_are_those_of_nuts(client):
    nautilus = client("nautilus")
    likelihood = jax.jit(jax.vmap(function().log_likelihood))
    sampler = nautilus.Sampler(
        ndtri, lambda x: np.asarray(likelihood(x)), n_dim=2, n_live=300, n_networks=1, vectorized=True, seed=3
    )
    assert sampler.run(n_eff=1000)
    points, log_weight, _ = sampler.posterior()
    weight = np.exp(log_weight - logsumexp(log_weight))
    mean = weight @ points
    check_agrees(mean, weight @ (points - mean) ** 2, np.full(2, 1 / np.sum(weight**2)))

    best, sigma = drawn().best, drawn().latent.reshape(-1, 2).std(axis=0)
    axes = [centre + width * np.linspace(-7, 7, 41) for centre, width in zip(best, sigma, strict=True)]
    grid = jnp.asarray(np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2))
    cell = np.prod([own[1] - own[0] for own in axes])
    evidence = logsumexp(np.asarray(jax.jit(jax.vmap(function()))(grid))) + np.log(cell)
    assert abs(sampler.log_z - evidence) < 4 / np.sqrt(sampler.n_eff)
