"""emcee on `log_posterior`: the draws are those of NUTS, within the errors of both."""

import pytest
from recipes import run_recipe
from two_numbers import check_agrees, drawn, function


@pytest.mark.slow(20)
def test_its_draws_are_those_of_nuts(client):
    client("emcee")
    walkers = run_recipe("emcee", function(), drawn().best)["walkers"]
    chain = walkers.get_chain(discard=500)
    independent = chain.shape[0] * chain.shape[1] / walkers.get_autocorr_time(tol=0)
    other = chain.reshape(-1, 2)
    check_agrees(other.mean(axis=0), other.var(axis=0), independent)
