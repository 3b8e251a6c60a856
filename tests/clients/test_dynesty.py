"""Nested sampling by dynesty: the evidence and the draws of a posterior that numpy knows."""

import numpy as np
import pytest
from linear_masses import CONFIG, data, galaxy, posterior_by_numpy

import rubix_like as rl


@pytest.mark.slow(40)
def test_the_evidence_and_the_draws_are_those_of_numpy(client, tmp_path):
    client("dynesty")
    sampling = {"method": "nested", "nested": {"live": 50, "tolerance": 0.3, "draws": 300}, "predictive": 32}
    drawn = rl.sample(CONFIG, data(), galaxy=galaxy(), sampling=sampling, output=tmp_path / "nested.h5")
    masses, covariance, evidence = posterior_by_numpy(data())
    assert drawn.evidence.method == "Nested sampling"
    assert 0.05 < drawn.evidence.error < 0.8
    assert abs(drawn.evidence.log_evidence - evidence) < 4 * drawn.evidence.error
    sigma = np.sqrt(np.diag(covariance))
    own = drawn.samples()["stars.initial_mass"]
    assert (np.abs(own.mean(axis=0) - masses) < 5 * sigma / np.sqrt(50)).all()
    np.testing.assert_allclose(own.std(axis=0), sigma, rtol=0.35)
    again = rl.SampleResult.read(tmp_path / "nested.h5")
    assert again.evidence.log_evidence == drawn.evidence.log_evidence
    assert "ln evidence" in again.summary()
    assert "approximation" not in again.summary()
