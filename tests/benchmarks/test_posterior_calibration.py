"""The calibration of posteriors, smaller: NUTS, variational inference and Laplace agree; the truth is among draws."""

import functools

import numpy as np
import posterior_agreement
import posterior_calibration
import pytest
import scipy.stats

TINY = {"fov": "2 arcsec", "psf": {"fwhm": "1 arcsec"}, "wavelength": {"start": 4100, "step": 8, "stop": 4332}}
FREE = {
    "observation.velocity_offset": {"normal": [0, "30 km/s"]},
    "galaxy.stellar_mass": {"log_normal": ["1e10 Msun", 0.3]},
    "galaxy.disc_scale_length": {"log_uniform": ["0.5 kpc", "1.5 kpc"]},
}


@functools.cache
def problem():
    return posterior_calibration.make(150, FREE, TINY, starts=1)


@functools.cache
def compared():
    _, found = posterior_agreement.compare(
        problem(), nuts={"chains": 4, "warmup": 60, "draws": 100}, variational={"samples": 8, "draws": 400}
    )
    return found


@pytest.mark.long
@pytest.mark.parametrize("method", ["geovi", "laplace"])
def test_means_and_standard_deviations_are_those_of_chains(method):
    """Within 4 Monte Carlo errors each (p > 6e-5 of each of 6 numbers)."""
    nuts, other = compared()["nuts"], compared()[method]
    assert nuts.more["divergences"] == 0
    assert nuts.more["r_hat"] < 1.05
    assert nuts.independent > 100
    of_mean = (other.mean - nuts.mean) / np.hypot(other.mean_error, nuts.mean_error)
    of_sigma = (other.sigma - nuts.sigma) / np.hypot(other.sigma_error, nuts.sigma_error)
    assert np.abs(of_mean).max() < 4, of_mean
    assert np.abs(of_sigma).max() < 4, of_sigma
    assert np.all(nuts.mean_error < 0.15 * nuts.sigma)


@pytest.mark.long
def test_ranks_of_the_truth_among_variational_samples():
    """p > 1e-3 for uniform ranks of all latents of a dozen mocks, in coordinates in which they are independent."""
    mocks = [posterior_calibration.sample_mock(problem(), number, ("geovi",)) for number in range(12)]
    for method in ("geovi", "laplace"):
        lines = posterior_calibration.summary(problem().posterior.free.labels, mocks, method)
        found = {line["parameter"]: line["p_ks"] for line in lines}
        assert found["all, whitened"] > 1e-3
        assert found["posterior density"] > 1e-3


def test_ranks_of_draws_that_are_too_narrow_or_off_are_not_uniform():
    """Those of right ones are."""
    rng = np.random.default_rng(3)

    def p_value(width, shift):
        draws, truth = width * rng.standard_normal((99, 1000)) + shift, rng.standard_normal(1000)
        ranks = posterior_calibration.ranks(draws, truth, rng.random(1000))
        return scipy.stats.kstest(ranks, "uniform").pvalue

    assert p_value(1.0, 0.0) > 0.01
    assert p_value(0.7, 0.0) < 0.01
    assert p_value(1.0, 0.3) < 0.01
