"""Velocity nodes: the spline midway between them against scipy's, and the error of every template against its own."""

import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from rubix_like.engine.spectra.velocity_nodes import (
    BETWEEN,
    Between,
    midway_weights,
    node_velocity,
    plan_nodes,
    template_errors,
)


@pytest.mark.parametrize("n_node", [5, 7, 31])
def test_midway_weights_are_those_of_the_not_a_knot_spline(n_node):
    values = np.random.default_rng(n_node).normal(size=(n_node, 3))
    expected = CubicSpline(np.arange(n_node), values, bc_type="not-a-knot")(np.arange(1, n_node - 2) + 0.5)
    np.testing.assert_allclose(midway_weights(n_node) @ values, expected, atol=1e-12)


def test_nodes_hold_the_limit():
    nodes = plan_nodes(400.0, 60.0)
    velocity = node_velocity(nodes)
    assert nodes.n_node == 17
    assert velocity[1] <= -400.0
    assert velocity[-2] >= 400.0
    assert float(nodes.step) <= 60.0


def test_errors_of_all_templates_are_those_of_each():
    """Sums of basis spectra, one of them without light."""
    rng = np.random.default_rng(4)
    splined, true = rng.normal(1.0, 0.1, (2, 5, 6, 40))
    coefficients = rng.uniform(0.1, 1.0, (9, 6))
    coefficients[3] = 0.0
    errors = template_errors(coefficients, Between(splined, true))
    spectra, found = (np.einsum("kr,irl->ikl", coefficients, part) for part in (true, splined))
    level = np.where(spectra.mean(axis=2) > 0, spectra.mean(axis=2), np.inf)
    expected = (np.sqrt(((found - spectra) ** 2).mean(axis=2)) / level).max(axis=0)
    np.testing.assert_allclose(errors, expected, rtol=1e-10)
    assert errors[3] == 0.0


@pytest.mark.parametrize("n_bin", [1, 3, 60])
def test_the_middle_of_an_interval_is_where_splines_err_most(n_bin):
    """To the margin: gaussian lines of random place and width in bins, at 24 places in every interval."""
    rng = np.random.default_rng(n_bin)
    n_node, phase = 31, np.arange(1, 24) / 24
    centre, width = rng.uniform(0, n_node + 0.3 * n_bin, (60, 1, 1, 1)), rng.uniform(0.8, 2.0, (60, 1, 1, 1))
    place = (np.arange(1, n_node - 2)[:, None] + phase)[:, :, None]

    def lines(position):
        return 1 - 0.7 * np.exp(-0.5 * ((position + 0.3 * np.arange(n_bin) - centre) / width) ** 2)

    nodes = np.moveaxis(lines(np.arange(float(n_node))[:, None, None]), 1, 0)[:, :, 0]
    spline = CubicSpline(np.arange(n_node), nodes, bc_type="not-a-knot")(place[:, :, 0])
    error = np.sqrt(((np.moveaxis(spline, 2, 0) - lines(place)) ** 2).mean(axis=3))
    assert error.max() <= BETWEEN * error[:, :, 11].max()
