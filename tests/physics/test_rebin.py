"""Integrals over bins against numpy: bins and nodes merged, trapezoids in float64 (exact for piecewise linear)."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rubix_like.physics.rebin import Rebinner

LIGHT = 299792.458
GENERATOR = np.random.default_rng(5)


def integrals(nodes, values, edges):
    """Integral of the piecewise linear function over every bin; nothing outside the nodes."""
    edges = np.clip(edges, nodes[0], nodes[-1])
    result = []
    for low, high in pairwise(edges):
        x = np.concatenate([[low], nodes[(nodes > low) & (nodes < high)], [high]])
        result.append(np.trapezoid(np.interp(x, nodes, values), x))
    return np.array(result)


def spaced(low, high, smallest, largest):
    """Irregular nodes."""
    steps = GENERATOR.uniform(smallest, largest, int((high - low) / smallest))
    nodes = low + np.concatenate([[0.0], np.cumsum(steps)])
    return nodes[nodes < high]


GRIDS = {
    "bins narrower than nodes": (np.arange(4500.0, 5600.0, 20.0), np.arange(4750.0, 5300.0, 1.25)),
    "bins wider than nodes": (np.arange(4500.0, 5600.0, 1.0), np.arange(4750.0, 5300.0, 12.3)),
    "bins as wide as nodes": (np.arange(4500.0, 5600.0, 1.25), np.arange(4750.0, 5300.0, 1.25)),
    "irregular nodes": (spaced(4500.0, 5600.0, 0.5, 30.0), np.arange(4750.0, 5300.0, 2.5)),
    "logarithmic bins": (spaced(4500.0, 5600.0, 0.9, 1.1), 4750.0 * 10 ** (1e-4 * np.arange(400))),
    "beyond both ends": (np.arange(4800.0, 5200.0, 7.0), np.arange(4750.0, 5300.0, 1.25)),
    "two nodes": (np.array([4900.0, 5100.0]), np.arange(4750.0, 5300.0, 2.5)),
}


def of_floats(leaf, dtype):
    return jnp.asarray(leaf, dtype if jnp.issubdtype(jnp.result_type(leaf), jnp.floating) else None)


def light(nodes, edges, values, velocity, dtype):
    rebinner = jax.tree.map(lambda leaf: of_floats(leaf, dtype), Rebinner.build(nodes, edges))
    shift = jnp.asarray(np.atleast_1d(velocity) / LIGHT, dtype)
    spectra = jnp.broadcast_to(jnp.asarray(values, dtype), (len(shift), len(nodes)))
    return np.asarray(jax.jit(Rebinner.light)(rebinner, spectra, shift), dtype=np.float64)


VELOCITIES = np.array([0.0, 0.01, 137.0, -333.0, 1000.0, -1000.0])


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 2e-5)])
def test_light_is_the_exact_integral(grid, dtype, tolerance):
    nodes, edges = GRIDS[grid]
    values = 1.0 + GENERATOR.random(len(nodes))
    found = light(nodes, edges, values, VELOCITIES, dtype)
    for velocity, row in zip(VELOCITIES, found, strict=True):
        expected = integrals(nodes, values, edges * np.exp(-velocity / LIGHT))
        assert np.abs(row - expected).max() < tolerance * expected.mean(), velocity
    outside = (edges[1:] < nodes[0]) | (edges[:-1] > nodes[-1])
    assert outside.any() == (grid in ("beyond both ends", "two nodes"))
    np.testing.assert_array_equal(found[0, outside], 0.0)


def test_large_shifts_and_redshift():
    """ln D may also hold the redshift."""
    nodes, edges = spaced(2000.0, 9000.0, 0.5, 30.0), np.arange(4750.0, 5300.0, 2.5)
    values = GENERATOR.random(len(nodes))
    velocity = LIGHT * np.log([1.05, 1.5, 2.0])
    for log_doppler, row in zip(velocity / LIGHT, light(nodes, edges, values, velocity, "float64"), strict=True):
        expected = integrals(nodes, values, edges * np.exp(-log_doppler))
        np.testing.assert_allclose(row, expected, atol=1e-10 * expected.mean(), rtol=0)


def test_nodes_close_together():
    """Several nodes in one cell of the look-up table, edges among them and after them."""
    nodes = np.sort(np.concatenate([np.arange(4500.0, 5600.0, 20.0), 5000.0 + 1e-4 * np.arange(1, 7)]))
    values = GENERATOR.random(len(nodes))
    edges = np.sort(np.concatenate([np.arange(4750.0, 5300.0, 1.25), [5000.00025, 5000.00055, 5000.003]]))
    assert Rebinner.build(nodes, edges).n_steps > 3
    found = light(nodes, edges, values, 0.0, "float64")[0]
    np.testing.assert_allclose(found, integrals(nodes, values, edges), atol=1e-10, rtol=0)


@pytest.mark.slow
def test_gradients_of_velocity_and_spectrum():
    """Light moves across an edge at S dedge/dv; each node's light is the integral of its hat function."""
    nodes, edges = GRIDS["irregular nodes"]
    values = 1.0 + GENERATOR.random(len(nodes))
    rebinner = Rebinner.build(nodes, edges)
    weight = GENERATOR.normal(size=len(edges) - 1)
    shift = 210.0 / LIGHT

    def weighted(spectrum, log_doppler):
        return (rebinner.light(spectrum[None, :], log_doppler[None])[0] * weight).sum()

    by_node, by_shift = jax.jit(jax.grad(weighted, argnums=(0, 1)))(jnp.asarray(values), jnp.asarray(shift))
    moved = edges * np.exp(-shift)
    expected = (weight * np.diff(-moved * np.interp(moved, nodes, values))).sum()
    np.testing.assert_allclose(float(by_shift), expected, rtol=1e-9)
    chosen = range(0, len(nodes), 7)
    hats = [(integrals(nodes, np.eye(len(nodes))[node], moved) * weight).sum() for node in chosen]
    np.testing.assert_allclose(np.asarray(by_node)[list(chosen)], hats, atol=1e-9)


def test_gradient_is_finite_outside():
    nodes, edges = GRIDS["beyond both ends"]
    rebinner = Rebinner.build(nodes, edges)
    spectra = jnp.ones((3, len(nodes)))
    gradient = jax.jit(jax.grad(lambda shift: rebinner.light(spectra, shift).sum()))(jnp.asarray([0.0, 0.5, -0.5]))
    assert np.isfinite(np.asarray(gradient)).all()
    np.testing.assert_array_equal(np.asarray(gradient)[1:], 0.0)
