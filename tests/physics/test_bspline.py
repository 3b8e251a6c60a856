"""B-spline weights and prefilter against scipy's splines."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.interpolate import BSpline, CubicSpline, make_interp_spline

from rubix_like.physics import bspline

SIZES = (4, 5, 9, 40)
DEPOSIT = jax.jit(bspline.deposit, static_argnums=1)


def weights_on_nodes(coordinate, n_node):
    """The weight of every node at every position, (position, node)."""
    padded = np.pad(coordinate, (0, -len(coordinate) % 1000), mode="edge")  # one shape, compiled once
    first, weight = (np.asarray(x)[: len(coordinate)] for x in DEPOSIT(jnp.asarray(padded), n_node))
    assert first.min() >= 0
    assert first.max() + bspline.SUPPORT <= n_node
    full = np.zeros((len(first), n_node))
    np.put_along_axis(full, first[:, None] + np.arange(bspline.SUPPORT), weight, axis=1)
    return full


def inside(n_node):
    """1000 positions within the support, both ends and all nodes among them."""
    nodes = np.arange(1.0, n_node - 1)
    spread = np.random.default_rng(n_node).uniform(1, n_node - 2, 1000 - len(nodes))
    return np.sort(np.concatenate([spread, nodes]))


@pytest.mark.parametrize("n_node", SIZES)
def test_weights_are_those_of_the_cubic_b_spline(n_node):
    """Shares, that is, which keep the position."""
    coordinate = inside(n_node)
    element = BSpline.basis_element(np.arange(-2.0, 3.0), extrapolate=False)
    expected = np.nan_to_num(element(coordinate[:, None] - np.arange(n_node)))
    weight = weights_on_nodes(coordinate, n_node)
    np.testing.assert_allclose(weight, expected, atol=1e-14)
    np.testing.assert_allclose(weight.sum(axis=1), 1.0, rtol=1e-14)
    np.testing.assert_allclose(weight @ np.arange(n_node), coordinate, rtol=1e-13)


def test_positions_beyond_the_support_are_limited_to_it():
    n_node = 9
    far = np.array([-1e9, -3.0, 0.0, 0.999, 7.001, 8.0, 12.0, 1e9, -np.inf, np.inf])
    edge = np.where(far < 4, 1.0, 7.0)
    np.testing.assert_array_equal(weights_on_nodes(far, n_node), weights_on_nodes(edge, n_node))


def test_a_position_that_is_not_finite_still_has_nodes():
    """What is deposited there must not be written beyond the grid."""
    first, weight = DEPOSIT(jnp.full(1000, jnp.nan), 9)
    assert 0 <= np.asarray(first).min() <= np.asarray(first).max() <= 9 - bspline.SUPPORT
    assert np.isnan(np.asarray(weight)).all()


def test_float32_weights_sum_to_one():
    first, weight = DEPOSIT(jnp.asarray(inside(60), jnp.float32), 60)
    assert weight.dtype == jnp.float32
    assert first.dtype == jnp.int32
    assert np.asarray(weight).min() >= 0
    np.testing.assert_allclose(np.asarray(weight, np.float64).sum(axis=1), 1.0, atol=2e-7)


def test_gradient_of_the_weights_is_the_derivative_of_the_b_spline():
    coordinate = np.random.default_rng(3).uniform(1, 7, 200)
    slopes = jax.jit(jax.vmap(jax.jacfwd(lambda x: bspline.deposit(x[None], 9)[1][0])))
    found = np.asarray(slopes(jnp.asarray(coordinate)))
    element = BSpline.basis_element(np.arange(-2.0, 3.0)).derivative()
    first = np.clip(np.floor(coordinate), 1, 6) - 1
    expected = element(coordinate[:, None] - first[:, None] - np.arange(4))
    np.testing.assert_allclose(found, expected, atol=1e-13)
    np.testing.assert_allclose(found.sum(axis=1), 0.0, atol=1e-13)


@pytest.mark.parametrize("n_node", SIZES)
def test_prefilter_is_the_not_a_knot_spline(n_node):
    nodes, values = np.arange(float(n_node)), np.random.default_rng(n_node).normal(size=(n_node, 4))
    coordinate = inside(n_node)
    found = weights_on_nodes(coordinate, n_node) @ (bspline.prefilter(n_node) @ values)
    for spline in (CubicSpline(nodes, values, bc_type="not-a-knot"), make_interp_spline(nodes, values, k=3)):
        np.testing.assert_allclose(found, spline(coordinate), atol=1e-12)


@pytest.mark.parametrize("n_node", [0, 1, 3])
def test_too_few_nodes_are_refused(n_node):
    with pytest.raises(ValueError, match=f"n_node: expected at least 4, got {n_node}"):
        bspline.prefilter(n_node)


@pytest.mark.parametrize("n_side", [1, 3, 6, 14])
def test_halfway_is_the_spline_through_a_long_row_of_nodes(n_side):
    """What lies beyond the 2 n_side nodes falls by 2 - sqrt(3) per node."""
    nodes = np.arange(-60, 60) + 0.5
    expected = make_interp_spline(nodes, np.eye(len(nodes)), k=3)(0.0)
    around = np.abs(nodes) < n_side
    weights = bspline.halfway(n_side)
    assert weights.shape == (2 * n_side,)
    np.testing.assert_allclose(weights.sum(), 1.0, rtol=1e-14)
    np.testing.assert_allclose(weights, weights[::-1], rtol=1e-12)
    np.testing.assert_allclose(weights, expected[around], atol=(2 - np.sqrt(3)) ** n_side)
