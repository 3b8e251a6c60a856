"""Refined tables and their look-up: accuracy between nodes, gradients, edges."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.interpolate import Akima1DInterpolator

from rubix_like import load_nebular
from rubix_like.extend import fixed, line_grid
from rubix_like.nebular.line_grid import refined

STRONG = ("Ha", "[O III] 5007", "[N II] 6583", "[S II] 6716", "[O II] 3729", "[O I] 6300", "[Ne III] 3869")


@pytest.fixture(scope="module")
def table():
    return fixed(load_nebular("mappings-hii"), log_pressure=5.8)


@pytest.fixture(scope="module")
def grid(table):
    return line_grid(table)


@pytest.fixture(scope="module")
def light(grid):
    return eqx.filter_jit(grid.light)


@pytest.fixture(scope="module")
def places():
    dice = np.random.default_rng(5)
    return jnp.asarray(dice.uniform(-4.0, -2.0, 300)), jnp.asarray(dice.uniform(7.07, 9.3, 300))


def test_nodes_are_kept_and_steps_are_equal(table):
    fine = refined(table)
    for name, nodes in fine.axes.items():
        steps = np.diff(nodes)
        assert steps.max() <= {"log_u": 0.05, "oxygen_abundance": 0.02}[name] + 1e-9
        np.testing.assert_allclose(steps, steps[0])
        assert (nodes[0], nodes[-1]) == pytest.approx((table.axes[name][0], table.axes[name][-1]))
    np.testing.assert_allclose(fine.line("Ha")[[0, -1]][:, [0, -1]], table.line("Ha")[[0, -1]][:, [0, -1]])


def test_look_up_errs_by_less_than_1_percent_but_on_steep_slopes(table, grid, light, places):
    """Against scipy's splines of the logarithm, one axis after the other, at random places."""
    found, places = np.asarray(light(places)), [np.asarray(values) for values in places]
    u, oxygen = table.axes["log_u"], table.axes["oxygen_abundance"]
    for name in STRONG:
        logarithm = np.log(np.maximum(table.line(name), 1e-6 * table.line("Hb")))
        along = Akima1DInterpolator(u, logarithm, axis=0, method="makima")(places[0])
        expected = np.diagonal(Akima1DInterpolator(oxygen, along, axis=1, method="makima")(places[1]))
        bright = np.exp(expected) > 1e-2 * 4.7e-13
        error = found[:, grid.lines.index(name)] / np.exp(expected) - 1.0
        assert np.abs(error[bright]).max() < 0.03, name
        assert np.sqrt(np.mean(error[bright] ** 2)) < 0.004, name


def test_nodes_left_out_are_found_again(table):
    """Every other log U, at twice the grid's step: the strong lines come back to 5 % (median)."""
    u = table.axes["log_u"]
    for name in STRONG:
        values = np.log(np.maximum(table.line(name), 1e-6 * table.line("Hb")))
        bright = table.line(name)[1::2] > 1e-2 * table.line("Hb")[1::2]
        found = Akima1DInterpolator(u[::2], values[::2], method="makima")(u[1::2])
        assert np.median(np.abs(found - values[1::2])[bright]) < 0.05


def test_gradients_are_finite_differences_and_zero_beyond_the_edges(light, grid, places):
    weights = 1e12 * jnp.linspace(1.0, 2.0, len(grid.lines))
    slopes = jax.jit(jax.grad(lambda at: (light(at) @ weights).sum()))
    found = slopes(places)
    for axis, width in enumerate((1e-6, 1e-6)):
        step = [width if number == axis else 0.0 for number in (0, 1)]
        ends = [light((places[0] + sign * step[0], places[1] + sign * step[1])) @ weights for sign in (1, -1)]
        np.testing.assert_allclose(found[axis], (ends[0] - ends[1]) / (2 * width), rtol=1e-5, atol=1e-5)
    beyond = slopes((places[0] + 3.0, places[1] + 3.0))
    assert not np.any(beyond[0])
    assert not np.any(beyond[1])


def test_the_edges_are_taken_and_told(light, grid, places):
    beyond = (places[0] + 3.0, places[1] - 3.0)
    corner = (jnp.full(300, -2.0), jnp.full(300, 7.061))
    np.testing.assert_allclose(light(beyond), light(corner))
    for name in ("log_u", "oxygen_abundance"):
        assert grid.axes.outside(name, beyond).all()
        assert not grid.axes.outside(name, places).any()


def test_axes_that_are_fixed_are_named(table):
    with pytest.raises(ValueError, match="log_u: expected -4 to -2, got -1"):
        fixed(table, log_u=-1.0)
    with pytest.raises(ValueError, match="has no axis 'log_age'; it has log_u, oxygen_abundance"):
        fixed(table, log_age=6.0)
