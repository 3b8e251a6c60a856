"""Tests of structure in residuals, on noise and models that numpy made: how often they are wrong, what they find."""

import functools
import re

import numpy as np
import pytest
import scipy.stats

from rubix_like.inference.checks import misfit, verdict
from rubix_like.inference.checks.regions import ResidualCube, data_places, regions_of, worst_place

SHAPE = (9, 10, 60)
SCALE = 0.5
WAVELENGTH = np.linspace(5000, 5295, SHAPE[2])
SPEED = 2.99792458e5
NOTHING = np.zeros((0, *SHAPE))
N_MOCK = 100


def place():
    """East and North (arcsec): columns run to the West, rows to the North."""
    y, x = np.indices(SHAPE[:2])
    return np.stack([-(x - (SHAPE[1] - 1) / 2) * SCALE, (y - (SHAPE[0] - 1) / 2) * SCALE], axis=-1)


def cube(velocity, width=8.0, light=1.0):
    """A disc of stars with three absorption lines, receding with `velocity` (y, x), in units of its sigma (S/N 60)."""
    image = light * np.exp(-distance() / 1.2)
    rest = WAVELENGTH / (1 + np.asarray(velocity)[..., None] / SPEED)
    lines = sum(0.4 * np.exp(-0.5 * ((rest - centre) / width) ** 2) for centre in (5050, 5170, 5240))
    return 60 * image[..., None] * (1 + (rest - 5150) / 2000) * (1 - lines)


def distance(east=0.0, north=0.0):
    """From a place (arcsec)."""
    return np.hypot(place()[..., 0] - east, place()[..., 1] - north)


def rotation(speed=120.0):
    """East recedes."""
    return speed * np.tanh(place()[..., 0] / 1.5)


@functools.cache
def setup():
    """The model and L^-1 J of four numbers: light, speed, systemic velocity, width of lines; two spaxels and some bins
    without data."""
    inverse_sigma = np.ones(SHAPE)
    inverse_sigma[0, 0] = inverse_sigma[4, 5] = inverse_sigma[:, :, 30:33] = 0
    model = cube(rotation()) * inverse_sigma
    others = (cube(rotation(), light=1.01), cube(rotation(121.0)), cube(rotation() + 1), cube(rotation(), 8.05))
    slopes = np.stack([(own * inverse_sigma - model).ravel() for own in others])
    fitted = np.linalg.qr(slopes.T)[0].T.reshape(-1, *SHAPE)
    return inverse_sigma, model, fitted


def judged(data):
    """All sums, and the probabilities of data fitted by the linear model."""
    inverse_sigma, model, fitted = setup()
    left = (data - model) * inverse_sigma
    left = left - np.tensordot(np.tensordot(fitted, left, 3), fitted, 1)
    residue = misfit.sums_of_tests(left, inverse_sigma, model, fitted, NOTHING, None)
    return residue, verdict.probabilities(residue, np.zeros(4))


@functools.cache
def of_noise():
    """p of every test, one row for each mock with noise of numpy's."""
    _, model, _ = setup()
    noise = (np.random.default_rng([7, number]).standard_normal(SHAPE) for number in range(N_MOCK))
    found = [judged(model + own) for own in noise]
    names = list(found[0][1])
    excess = np.array([verdict.excess_of(residue.chi_square) for residue, _ in found])
    return names, np.array([[tests[name] for name in names] for _, tests in found]), excess


def test_every_test_is_wrong_as_often_as_it_says():
    """The numbers of mocks with p below 5 % and 1 % are binomial, and p uniform."""
    names, found, excess = of_noise()
    assert {"map of the velocities", "line widths of the spaxels", "spectrum of the light", "runs along x"} <= set(
        names
    )
    for name, own in zip(names, found.T, strict=True):
        cautious = "a range of bins" in name  # its p is that of one range times their number, which is too large
        for level in (0.05, 0.01):
            low, high = scipy.stats.binom.ppf([1e-4, 1 - 1e-4], N_MOCK, level)
            assert low * (not cautious) <= np.sum(own < level) <= high, (name, level, np.sum(own < level))
        side = "greater" if cautious else "two-sided"
        assert scipy.stats.kstest(own, "uniform", alternative=side).pvalue > 1e-4, name
    assert abs(excess.mean()) < 4 / np.sqrt(N_MOCK)
    assert excess.std() == pytest.approx(1, abs=4 / np.sqrt(2 * N_MOCK))


def test_all_tests_together_are_wrong_once_in_a_thousand():
    names, found, _ = of_noise()
    p = [verdict.together(dict(zip(names, own, strict=True))) for own in found]
    assert np.sum(np.less(p, 1e-3)) <= scipy.stats.binom.ppf(0.999, N_MOCK, 1e-3)
    assert 0.01 < np.mean(np.less(p, 0.05)) < 0.09, "they are correlated, but not by much"


def test_line_shapes_are_shifts_and_widths():
    """The first is a shift less its light, by finite differences; both are orthogonal to the light and each other."""
    inverse_sigma, model, _ = setup()
    velocities, widths = misfit.line_shapes(model, inverse_sigma)
    shifted = (cube(rotation() + 5) - cube(rotation() - 5)) * inverse_sigma
    along = np.sum(shifted * model, axis=2) / np.maximum(np.sum(model**2, axis=2), 1e-300)
    expected = shifted - along[..., None] * model
    cosine = np.sum(velocities * expected) / np.linalg.norm(velocities) / np.linalg.norm(expected)
    assert cosine < -0.98  # towards longer wavelengths the spectrum of a star that recedes lags behind
    wider = (cube(rotation() + 50) + cube(rotation() - 50) - 2 * cube(rotation())) * inverse_sigma
    for before in (model, velocities):
        along = np.sum(wider * before, axis=2) / np.maximum(np.sum(before**2, axis=2), 1e-300)
        wider = wider - along[..., None] * before
    assert np.sum(widths * wider) > 0.95 * np.linalg.norm(widths) * np.linalg.norm(wider)
    for one, other in ((velocities, model), (widths, model), (widths, velocities)):
        assert np.abs(np.sum(one * other, axis=2)).max() < 1e-9 * np.linalg.norm(model) ** 2
    assert not velocities[inverse_sigma == 0].any()


def two_discs(share):
    """Two discs that rotate against each other."""
    return (1 - share) * cube(rotation(400)) + share * cube(-rotation(400))


WRONG = {
    "a bump of velocity": (lambda: cube(rotation() + 160 * (distance(1, 1) < 0.8)), 0.9),
    "wider lines in the outer parts": (lambda: cube(rotation(), 8 + 2 * (distance() > 1.5)[..., None]), 0.9),
    "a third of the light against the rotation": (lambda: two_discs(1 / 3), 0.95),
    "lines that widen to one side": (lambda: cube(rotation(), 8 + 0.8 * place()[..., :1]), 0.9),
    "a few bins a little too bright": (lambda: setup()[1] + 0.32 * (np.abs(np.arange(SHAPE[2]) - 12) < 4), 0.9),
    "a little more light on one side": (lambda: setup()[1] * (1 + 0.006 * place()[..., :1]), 0.9),
    "a pedestal that follows the wavelength": (lambda: setup()[1] + 0.2 * np.linspace(-1, 1, SHAPE[2]), 0.9),
    "a faint line": (lambda: setup()[1] + 1.0 * np.exp(-0.5 * ((WAVELENGTH - 5120) / 4) ** 2), 0.9),
}
"""Data that the model cannot fit, and how often at least the tests together must find that (p < 1e-3)."""


@pytest.mark.parametrize("case", WRONG)
def test_wrong_models_are_found_with_power(case):
    make, power = WRONG[case]
    mocks = [make() + np.random.default_rng([8, number]).standard_normal(SHAPE) for number in range(15)]
    found = [verdict.together(judged(own)[1]) < 1e-3 for own in mocks]
    assert np.mean(found) >= power, np.mean(found)


def worst(data, seed=5):
    """The place where residuals are largest."""
    residue, tests = judged(data + np.random.default_rng(seed).standard_normal(SHAPE))
    return worst_place(residue.left, data_places(setup()[1], place(), WAVELENGTH)), tests


def test_the_worst_spaxel_is_that_of_a_clump():
    """At 1.25 arcsec East and 1 North of the centre."""
    clump = 0.3 * cube(rotation()) * (distance(1.25, 1.0) < 0.3)[..., None]
    words, _ = worst(cube(rotation()) + clump)
    assert words.startswith("in the spaxel 1.6 arcsec North-East of the centre")


def test_the_worst_wavelength_is_that_of_a_line():
    words, tests = worst(setup()[1] + 2.5 * np.exp(-0.5 * ((WAVELENGTH - 5120) / 4) ** 2))
    assert tests["light of the bins"] < 1e-6
    assert float(words.partition("at ")[2].removesuffix(" Angstrom")) == pytest.approx(5120, abs=8)


def test_no_place_is_named_for_mere_noise():
    assert [worst(cube(rotation()), seed)[0] for seed in range(12)].count("") >= 11


def test_the_largest_sum_of_a_range_is_that_of_dense_matrices():
    """Over all ranges of those lengths, by the sum's variance 1 - F F^T of all voxels in it."""
    inverse_sigma, model, fitted = setup()
    residue, tests = judged(model + np.random.default_rng(6).standard_normal(SHAPE))
    used, found = np.flatnonzero(inverse_sigma.any(axis=(0, 1))), []
    for length in (1, 2, 3, 4, 5, 6, 8, 9, 11, 13, 16, 19, 22, 26):
        for first in range(len(used) - length + 1):
            mask = np.zeros(SHAPE)
            mask[..., used[first : first + length]] = 1
            mask *= inverse_sigma
            variance = mask.sum() - np.sum(np.tensordot(fitted, mask, 3) ** 2)
            found.append(np.sum(mask * residue.left.voxels) ** 2 / variance)
    name = "sum of a range of bins"
    assert residue.ranges[name].value == pytest.approx(max(found), rel=1e-9)
    assert residue.ranges[name].size == len(found)
    assert tests[name] == pytest.approx(min(1, len(found) * scipy.stats.chi2.sf(max(found), 1)), rel=1e-6)


@pytest.mark.parametrize("first", [5, 35])
def test_the_region_to_leave_out_is_where_residuals_stand_out(first):
    """Twelve bins that are too bright by half of their errors, and 5 % more light in eight spaxels."""
    _, model, _ = setup()
    field = data_places(model, place(), WAVELENGTH)
    data = model + 0.5 * ((np.arange(60) >= first) & (np.arange(60) < first + 12))
    clump = distance(1.0, -1.0) < 0.8
    data = data + 0.05 * model * clump[..., None]
    residue, _ = judged(data + np.random.default_rng(3).standard_normal(SHAPE))
    bins, spaxels = regions_of(residue.left, model, field)
    (chosen,) = np.where(bins.voxels[0, 0] == 1)
    assert abs(chosen[0] - first) <= 2
    assert abs(chosen[-1] - first - 11) <= 2
    assert bins.name == f"{WAVELENGTH[chosen[0]]:.5g} to {WAVELENGTH[chosen[-1]]:.5g} Angstrom"
    found = spaxels.voxels[..., 0] == 1
    assert clump[found].all()
    assert found.sum() >= 0.5 * clump.sum()
    assert re.fullmatch(r"\d+ spaxels about 1\.\d arcsec South-East of the centre", spaxels.name)
    assert (
        regions_of(residue.left._replace(variance=np.zeros(SHAPE)), model, data_places(model, place(), WAVELENGTH))
        == []
    )


def test_chi_square_of_a_spaxel_is_compared_with_its_own_distribution():
    """The threshold for 1000 wavelengths, by scipy: 5 sigma are a probability of about 3e-7."""
    voxels, field = np.ones((1, 2, 1000)), data_places(np.ones((1, 2, 1000)), place()[:1, :2], np.arange(1.0, 1001))
    for probability, named in ((1e-6, False), (1e-8, True)):
        voxels[0, 0] = np.sqrt(scipy.stats.chi2.isf(probability, 1000) / 1000)
        assert worst_place(ResidualCube(voxels, np.ones_like(voxels)), field).startswith("in the spaxel") == named


def test_the_name_of_a_place_follows_a_turned_field():
    """Rows to the South, columns to the East: the clump of the first rows and columns lies in the North-West."""
    inverse_sigma, model, fitted = setup()
    turned = place()[::-1, ::-1]
    data = model.copy()
    data[1:3, 1:3] *= 1.6
    left = (data - model + np.random.default_rng(2).standard_normal(SHAPE)) * inverse_sigma
    residue = misfit.sums_of_tests(left, inverse_sigma, model, fitted, NOTHING, None)
    upright, upside_down = (worst_place(residue.left, data_places(model, own, WAVELENGTH)) for own in (place(), turned))
    assert "South-East of the centre" in upright
    assert "North-West of the centre" in upside_down
