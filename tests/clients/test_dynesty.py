"""dynesty on `log_posterior`: the evidence and the draws of a posterior that numpy knows."""

import numpy as np
import pytest
from linear_masses import CONFIG, data, galaxy, posterior_by_numpy
from recipes import run_recipe

import rubix_like as rl


@pytest.mark.slow(40)
def test_the_evidence_and_the_draws_are_those_of_numpy(client):
    client("dynesty")
    function = rl.log_posterior(CONFIG, data(), galaxy=galaxy())
    names = run_recipe("dynesty", function, np.zeros(function.size))
    results, weights = names["sampler"].results, names["weights"]
    masses, covariance, evidence = posterior_by_numpy(data())
    error = results.logzerr[-1]
    assert 0.02 < error < 0.8
    assert abs(results.logz[-1] - evidence) < 4 * error
    sigma = np.sqrt(np.diag(covariance))
    drawn = names["values"]["stars.initial_mass"]
    mean = weights @ drawn
    assert (np.abs(mean - masses) < 5 * sigma * np.sqrt(np.sum(weights**2))).all()
    np.testing.assert_allclose(np.sqrt(weights @ (drawn - mean) ** 2), sigma, rtol=0.2)
