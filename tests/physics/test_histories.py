"""Drawn ages and metallicities have the distributions that the recipe states."""

import numpy as np
import pytest
from scipy.stats import kstest, norm

from rubix_like.extend import AgeRecipe, draw_log_ages
from rubix_like.readers.stellar_ages import draw_metallicities

ROWS = np.arange(40000.0)
RATES = {
    "constant": lambda s, timescale: np.ones_like(s),
    "exponential": lambda s, timescale: np.exp(-s / timescale),
    "delayed": lambda s, timescale: s * np.exp(-s / timescale),
}


def integrated(history, oldest, youngest, timescale):
    """Share of the stars younger than an age, and their mean age, by summing the rate of star formation over time."""
    age = np.linspace(youngest, oldest, 200001)
    rate = RATES[history](oldest - age, timescale)
    middle = (rate[1:] + rate[:-1]) / 2
    share = np.concatenate([[0.0], np.cumsum(middle)]) / middle.sum()
    return age, share, np.average((age[1:] + age[:-1]) / 2, weights=middle)


@pytest.mark.parametrize("timescale", [0.2, 3.0, 500.0])
@pytest.mark.parametrize("history", RATES)
def test_ages_follow_the_history(history, timescale):
    """By a Kolmogorov-Smirnov test, and by the mean age weighted with masses that do not go with it."""
    oldest, youngest = 11.0, 0.5
    given = {} if history == "constant" else {"timescale": timescale}
    recipe = AgeRecipe(history=history, oldest=oldest, youngest=youngest, **given)
    age = 10 ** (draw_log_ages(recipe, ROWS) - 9)
    expected_age, share, mean = integrated(history, oldest, youngest, timescale)
    assert kstest(age, lambda x: np.interp(x, expected_age, share)).pvalue > 1e-3
    mass = np.random.default_rng(3).lognormal(size=age.size)
    error = age.std() * np.sqrt((mass**2).sum()) / mass.sum()
    assert np.average(age, weights=mass) == pytest.approx(mean, abs=4 * error)
    assert error < 0.05
    assert youngest <= age.min()
    assert age.max() <= oldest


def test_means_that_can_be_written_down():
    """(oldest + youngest) / 2; oldest - timescale + D / (exp(D / timescale) - 1) with D = oldest - youngest."""
    constant = 10 ** (draw_log_ages(AgeRecipe(oldest=12, youngest=2), ROWS) - 9)
    assert constant.mean() == pytest.approx(7, abs=4 * 10 / np.sqrt(12 * ROWS.size))
    falling = AgeRecipe(history="exponential", oldest=12, youngest=2, timescale=4)
    expected = 12 - 4 + 10 / np.expm1(2.5)
    assert (10 ** (draw_log_ages(falling, ROWS) - 9)).mean() == pytest.approx(expected, abs=4 * 3 / np.sqrt(ROWS.size))
    burst = AgeRecipe(history="burst", oldest=8)
    np.testing.assert_allclose(draw_log_ages(burst, ROWS), np.log10(8e9), rtol=1e-14)


def test_metallicities_scatter_about_a_gradient():
    radius = np.random.default_rng(4).uniform(0, 20, ROWS.size)
    recipe = AgeRecipe(metallicity=0.03, metallicity_gradient=-0.05, scatter=0.2)
    logarithm = np.log10(draw_metallicities(recipe, ROWS, radius))
    slope, start = np.polyfit(radius, logarithm, 1)
    assert slope == pytest.approx(-0.05, abs=4 * 0.2 / np.sqrt(ROWS.size) / (20 / np.sqrt(12)))
    assert start == pytest.approx(np.log10(0.03), abs=8 * 0.2 / np.sqrt(ROWS.size))
    assert kstest(logarithm - np.log10(0.03) + 0.05 * radius, norm(0, 0.2).cdf).pvalue > 1e-3


def test_metallicities_do_not_go_with_ages():
    recipe = AgeRecipe(metallicity_gradient=0)
    metals = draw_metallicities(recipe, ROWS, np.zeros_like(ROWS))
    assert abs(np.corrcoef(draw_log_ages(recipe, ROWS), np.log10(metals))[0, 1]) < 4 / np.sqrt(ROWS.size)
