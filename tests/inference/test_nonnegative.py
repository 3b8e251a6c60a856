"""Weights, their prior and their draws against scipy and numbers that numpy integrates."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from rubix_like.extend import Populations
from rubix_like.inference.populations.mixtures import nonnegative_least_squares, response
from rubix_like.inference.populations.populations import notes_on_masses
from rubix_like.inference.populations.weight_draws import (
    PROPER,
    Neighbours,
    Reduced,
    draw_by_ratios,
    draw_weights,
    neighbours_of,
    neighbours_together,
    smoothness_rows,
    without_pairs,
)

SOLVE = jax.jit(nonnegative_least_squares)


def problems():
    """Designs of 60 rows and 40 columns: random ones, smooth ones that are nearly degenerate, of very unlike scales."""
    random, place = np.random.default_rng(1), np.linspace(0, 1, 60)[:, None]
    smooth = np.exp(-0.5 * ((place - np.linspace(0, 1, 40)) / 0.07) ** 2)
    designs = [random.normal(size=(60, 40)), np.abs(random.normal(size=(60, 40))), smooth]
    designs.append(smooth * 10 ** random.uniform(-3, 3, 40))
    for design in designs:
        sparse = np.where(random.uniform(size=40) < 0.2, 1 / np.linalg.norm(design, axis=0), 0)
        yield design, design @ sparse + 0.02 * random.normal(size=60)


def test_weights_are_those_of_scipy():
    """`nnls` and `lsq_linear` on the same matrix; also begun at wrong weights."""
    for design, target in problems():
        found = SOLVE(design, target)
        expected, norm = scipy.optimize.nnls(design, target)
        assert found.converged
        np.testing.assert_allclose(found.weights, expected, rtol=1e-6, atol=1e-6 * expected.max())
        assert np.linalg.norm(design @ found.weights - target) == pytest.approx(norm, rel=1e-9)
        other = scipy.optimize.lsq_linear(design, target, (0, np.inf), method="bvls")
        assert 0.5 * norm**2 == pytest.approx(other.cost, rel=1e-6)
        length = np.linalg.norm(design, axis=0)
        again = SOLVE(design, target, 0.3 / length)
        np.testing.assert_allclose(again.weights, expected, rtol=1e-6, atol=1e-6 * expected.max())


def test_a_column_without_light_has_no_weight():
    design, target = next(problems())
    assert SOLVE(np.where(np.arange(40) == 7, 0.0, design), target).weights[7] == 0


def test_slopes_of_the_variable_projection_are_those_of_differences():
    """The gradient of the least sum of squares over a parameter of the design, against scipy's at both sides."""
    place, nodes = np.linspace(0, 1, 50)[:, None], np.linspace(0, 1, 8)
    target = np.exp(-0.5 * ((place[:, 0] - 0.37) / 0.11) ** 2) + 0.3 * place[:, 0]

    def design(width, space=jnp):
        return space.exp(-0.5 * ((place - nodes) / width) ** 2)

    def objective(width):
        own = design(width)
        held = jax.lax.stop_gradient(own)
        found = nonnegative_least_squares(held, jnp.asarray(target))
        model = own @ jax.lax.stop_gradient(found.weights)
        model = model - held @ response(held, found.free, model - jax.lax.stop_gradient(model))
        return 0.5 * jnp.sum((target - model) ** 2)

    value, slope = jax.jit(jax.value_and_grad(objective))(0.15)
    costs = [0.5 * scipy.optimize.nnls(design(width, np), target)[1] ** 2 for width in (0.15 - 1e-5, 0.15 + 1e-5)]
    assert value == pytest.approx(np.mean(costs), rel=1e-6)
    assert slope == pytest.approx((costs[1] - costs[0]) / 2e-5, rel=1e-5)


def test_differences_are_of_light_per_dex():
    age, metal, light = np.array([8.0, 9.0, 9.5, 10.0]), np.array([-2.0, -1.5]), np.arange(1.0, 9.0)
    weights = np.random.default_rng(2).uniform(size=(2, 4))
    width = np.array([1.0, 0.75, 0.5, 0.5])
    density = weights * light.reshape(2, 4) / light.mean() / (width / width.mean())
    expected = [
        np.diff(density, n=2, axis=1).ravel(),
        np.diff(density, axis=0).ravel(),
        np.sqrt(PROPER) * density.ravel(),
    ]
    found = smoothness_rows(metal, age, light) @ weights.ravel()
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-12)


def test_draws_are_those_of_the_density_on_a_grid():
    """Two correlated weights cut at 0, and the strength of the prior: moments by sums over a grid."""
    design, target = np.array([[10.0, 5.0], [0.0, 10.0]]), np.array([15.0, -0.5])
    smoothness = np.array([[1.0, -0.7], [0.0, 0.3]])
    problem = Reduced(*map(jnp.asarray, (design, target, smoothness)))
    groups = jnp.zeros(2, jnp.int32)
    draw = jax.jit(lambda key: draw_weights(problem, jnp.ones(2), jnp.ones(1), groups, key, 100, 10000))
    found = draw(jax.random.key(1))

    first, second, log_strength = np.linspace(0.8, 2, 121), np.linspace(0, 0.6, 121), np.linspace(-18.4, 18.4, 400)
    weights = np.stack([own.ravel() for own in np.meshgrid(first, second, indexing="ij")])
    square = ((design @ weights - target[:, None]) ** 2).sum(axis=0)
    rough = ((smoothness @ weights) ** 2).sum(axis=0)
    density = np.exp(-0.5 * square + log_strength[:, None] - 0.5 * np.exp(log_strength)[:, None] * rough)
    density *= np.where(weights[1] == 0, 0.5, 1.0) / density.max()
    share = density.sum(axis=0) / density.sum()
    mean = weights @ share
    scatter = ((weights - mean[:, None]) * share) @ (weights - mean[:, None]).T
    np.testing.assert_allclose(found.weights.mean(axis=0), mean, atol=0.005)
    np.testing.assert_allclose(np.cov(found.weights.T), scatter, atol=0.0008)
    median = np.interp(0.5, np.cumsum(density.sum(axis=1)) / density.sum(), log_strength)
    assert np.log(np.median(found.strength)) == pytest.approx(median, abs=0.1)


def test_neighbours_are_those_of_the_grid():
    """2 metallicities and 3 ages: 7 pairs; nodes with three neighbours have the power 1/2, others 0."""
    age, metal, light = np.array([8.0, 9.0, 9.5]), np.array([-2.0, -1.5]), np.arange(1.0, 7.0)
    found = neighbours_of(metal, age, light)
    pairs = {tuple(sorted(map(int, own))) for own in found.pairs}
    assert pairs == {(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)}
    np.testing.assert_array_equal(found.power, [0, 0.5, 0, 0, 0.5, 0])
    np.testing.assert_allclose(found.density[1] / found.density[0], 2 / 0.75)
    both = neighbours_together([without_pairs(2), found])
    np.testing.assert_array_equal(both.pairs, found.pairs + 2)
    np.testing.assert_array_equal(both.power, [0, 0, *found.power])


@pytest.mark.parametrize("power", [0.0, 0.5])
def test_draws_by_ratios_are_those_of_the_density_on_a_grid(power):
    """Two correlated weights whose ratio the data hardly tell, by sums over a grid in their logarithms."""
    design, target, density = np.array([[10.0, 5.0], [0.0, 1.5]]), np.array([15.0, 0.6]), np.array([1.0, 3.0])
    problem = Reduced(jnp.asarray(design), jnp.asarray(target), jnp.zeros((0, 2)))
    neighbours = Neighbours(np.array([[0, 1]], np.int32), density, np.array([power, 0.0]))
    draw = jax.jit(lambda key: draw_by_ratios(problem, jnp.ones(2), neighbours, key, 100, 12000))
    found = np.asarray(draw(jax.random.key(2)))

    weights = np.stack([own.ravel() for own in np.meshgrid(*2 * [np.geomspace(1e-5, 10, 700)], indexing="ij")])
    light = weights * density[:, None]
    square = ((design @ weights - target[:, None]) ** 2).sum(axis=0)
    share = np.exp(-0.5 * square) * light[0] ** power / light.sum(axis=0) * weights.prod(axis=0)
    share /= share.sum()
    for number in range(2):
        order = np.argsort(weights[number], kind="stable")
        expected = np.interp([0.16, 0.5, 0.84, 0.97], np.cumsum(share[order]), weights[number][order])
        below = (found[:, number, None] < expected).mean(axis=0)
        np.testing.assert_allclose(below, [0.16, 0.5, 0.84, 0.97], atol=0.02)


def test_means_and_histories_are_of_the_draws():
    age, metal = np.array([8.0, 9.0, 10.0]), np.array([0.01, 0.02])
    draws = np.random.default_rng(3).uniform(size=(500, 2, 2, 3))
    light = np.array([[3.0, 2.0, 1.0], [2.5, 1.5, 0.5]])
    own = Populations(("a", "b"), age, metal, draws[0], draws, np.ones(2), light)
    seen = draws * light
    expected = np.percentile((seen * age).sum(axis=(2, 3)) / seen.sum(axis=(2, 3)), [50, 15.865, 84.135], axis=0)
    np.testing.assert_allclose(own.mean_log_age("light"), expected)
    expected = np.percentile((draws.sum(axis=3) * np.log10(metal)).sum(axis=2) / draws.sum(axis=(2, 3)), 50, axis=0)
    np.testing.assert_allclose(own.mean_log_metallicity().value, expected)
    expected = np.percentile(
        (seen.sum(axis=2) @ [0.1, 1.0, 10.0]) / seen.sum(axis=(2, 3)), [50, 15.865, 84.135], axis=0
    )
    np.testing.assert_allclose(own.mean_age("light"), expected)
    expected = np.percentile((draws.sum(axis=2) @ [0.1, 1.0, 10.0]) / draws.sum(axis=(2, 3)), 84.135, axis=0)
    np.testing.assert_allclose(own.mean_age().high, expected)
    np.testing.assert_allclose(
        own.history([7.0, 8.5, 11.0]).high,
        np.percentile(np.stack([draws[..., 0].sum(axis=2), draws[..., 1:].sum(axis=(2, 3))], axis=2), 84.135, axis=0),
    )
    assert own.to_table()["mass_low"].unit == "Msun"
    low, middle, high = np.percentile(draws.sum(axis=(2, 3)), [15.865, 50, 84.135], axis=0)
    assert bool(notes_on_masses({"disc": own})) == bool(np.max((high - low) / middle) < 0.3)
    (note,) = notes_on_masses({"disc": replace(own, draws=1 + 0.1 * draws)})
    assert "disc: the error of the total mass" in note
    with pytest.raises(ValueError, match="expected bins within the nodes"):
        own.history([6.1, 6.5, 11.0])
