"""emcee on `log_posterior`: the draws are those of NUTS, within the errors of both."""

import jax
import numpy as np
import pytest
from two_numbers import check_agrees, drawn, function


@pytest.mark.slow(20)
def test_its_draws_are_those_of_nuts(client):
    emcee = client("emcee")
    together = jax.jit(jax.vmap(function()))
    start = drawn().best + 0.01 * function().draw(24, seed=1)
    walkers = emcee.EnsembleSampler(24, 2, lambda x: np.asarray(together(x)), vectorize=True)
    walkers.random_state = np.random.RandomState(3).get_state()
    walkers.run_mcmc(start, 1500)
    chain = walkers.get_chain(discard=300)
    independent = chain.shape[0] * chain.shape[1] / walkers.get_autocorr_time(tol=0)
    other = chain.reshape(-1, 2)
    check_agrees(other.mean(axis=0), other.var(axis=0), independent)
