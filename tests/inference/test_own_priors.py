"""Priors of one's own and mixtures, posed and fitted: against scipy's distributions; what they compile."""

import functools
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from free_numbers import free_of
from scipy.special import ndtr
from small import few_stars, mock_data, muse
from test_compilations import compiled

import rubix_like as rl
from rubix_like import ConfigError

NAME = "dust.a_v"
CONFIG = {
    "observation": {"redshift": 0.05, "inclination": 0, "position_angle": 0},
    "instrument": muse(stop=5100, fov="0.6 arcsec"),
    "dust": {"a_v": 0.1, "curve": "calzetti"},
    "engine": {"method": "direct", "precision": "float64", "velocity_range": 600},
    "devices": {"data": 1},
}
LATENT = np.linspace(-2.5, 2.5, 6)


@functools.cache
def of_docs():
    """The class of the documentation, word for word."""
    text = (Path(__file__).parents[2] / "docs" / "fitting.md").read_text(encoding="utf-8")
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", text, re.S) if "(AbstractQuantile)" in block)
    names = {"rl": rl}
    exec(code, names)
    return names["Triangular"]


PRIORS = {
    "of a configuration": lambda: {of_docs().kind: [0.5, 2.5]},
    "an instance": lambda: of_docs()(0.5, 2.5),
    "of whole numbers": lambda: of_docs()(low=0, high=3),
}


@functools.cache
def data():
    """A model with A_V = 1.8 mag; errors are those of bright stars."""
    blank, free = mock_data((3, 3, 11), flux=np.ones((3, 3, 11))), {NAME: {"uniform": [0.8, 2.8]}}
    flux = rl.log_posterior(CONFIG, blank, free, galaxy=few_stars(30, 0.1)).flux(np.zeros(1))
    sigma = np.full_like(flux, 0.02 * flux.mean())
    return mock_data(flux.shape, flux=flux, variance=sigma**2)


@pytest.mark.parametrize("case", PRIORS)
def test_a_posterior_takes_a_prior_of_ones_own(case):
    """Its value is scipy's quantile, the density of the latent p(v) |dv / dx|."""
    prior = PRIORS[case]()
    low, high = (0.0, 3.0) if case == "of whole numbers" else (0.5, 2.5)
    truth = scipy.stats.triang(1.0, low, high - low)
    posed = rl.log_posterior(CONFIG, data(), {NAME: prior}, galaxy=few_stars(30, 0.1))
    for x in LATENT:
        value, step = truth.ppf(ndtr(x)), 1e-5
        assert posed.to_physical(np.array([x]))[NAME] == pytest.approx(value, rel=1e-12)
        assert posed.to_unconstrained({NAME: value}) == pytest.approx([x], abs=1e-8)
        slope = (truth.ppf(ndtr(x + step)) - truth.ppf(ndtr(x - step))) / (2 * step)
        assert posed.log_prior(np.array([x])) == pytest.approx(truth.logpdf(value) + np.log(slope), rel=1e-7)
    assert np.isfinite(posed(np.zeros(1)))


@pytest.mark.parametrize("kind", ["normal", "mixture"])
def test_a_prior_of_ones_own_has_a_name_of_its_own(kind, monkeypatch):
    monkeypatch.setattr(of_docs(), "kind", kind)
    with pytest.raises(ConfigError, match=rf"the prior '{kind}' is one of rubix_like's and also .*Triangular"):
        rl.log_posterior(CONFIG, data(), {NAME: {kind: [0.5, 2.5]}}, galaxy=few_stars(30, 0.1))


def test_the_numbers_of_a_prior_of_ones_own_are_its_fields(monkeypatch):
    made = of_docs()(0.5, 2.5)
    monkeypatch.setattr(of_docs(), "kind", "rising")
    monkeypatch.setattr(of_docs(), "numbers", ("low", "width"))
    for prior in ({"rising": [0.5, 2.5]}, made):
        with pytest.raises(
            ConfigError, match=r"Triangular\.numbers: expected its fields.*'high'\), got \('low', 'width"
        ):
            rl.log_posterior(CONFIG, data(), {NAME: prior}, galaxy=few_stars(30, 0.1))


@pytest.mark.slow(8)
@pytest.mark.parametrize("case", ["of a configuration", "an instance"])
def test_a_fit_takes_a_prior_of_ones_own(case):
    result = rl.fit(CONFIG, data(), {NAME: PRIORS[case]()}, galaxy=few_stars(30, 0.1), starts=1, candidates=2)
    assert float(result.values[NAME]) == pytest.approx(1.8, abs=0.05)
    assert 0 < float(result.sigma[NAME]) < 0.05


MIXTURE = {"mixture": [{"weight": 0.7, "normal": [40, 5]}, {"weight": 0.3, "isotropic": [0, 90]}]}
OTHER = {"mixture": [{"weight": 0.2, "normal": [50, 8]}, {"weight": 0.8, "isotropic": [10, 80]}]}


@pytest.mark.parametrize("pair", [(MIXTURE, OTHER), ({"triangular": [2, 10]}, {"triangular": [3, 20]})])
def test_draws_and_other_numbers_compile_nothing_more(pair):
    """The halving of intervals is compiled for the first of them, with the numbers of the prior as arguments."""
    of_docs()
    free, other = (free_of(("an.angle", prior, (), "deg")) for prior in pair)

    def there_and_back(priors):
        for latent in priors.draw(0, 5):
            np.testing.assert_allclose(priors.latent(priors.values(latent)), latent, atol=1e-7)

    there_and_back(free)
    with compiled() as names:
        there_and_back(free)
        there_and_back(other)
    assert not names
