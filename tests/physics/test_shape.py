"""The iterated shape tensor against ellipsoids of known axes and against its definition, written out star by star."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from rubix_like.physics import shape as shape_module

measure_shape = shape_module.measure_shape


def cloud(n, seed=0, scale=1.0):
    """Directions at random, distances with the profile of a galaxy."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=(n, 3))
    return scale * direction / np.linalg.norm(direction, axis=1)[:, None] * rng.exponential(2.0, (n, 1))


def mirrored(position):
    """With every change of signs and every order of the coordinates: no direction is preferred."""
    orders = [(0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 2, 1), (2, 1, 0), (1, 0, 2)]
    signs = np.stack(np.meshgrid([1, -1], [1, -1], [1, -1]), axis=-1).reshape(-1, 3)
    return np.concatenate([position[:, order] * sign for order in orders for sign in signs])


def degrees_between(one, two):
    return np.rad2deg(np.arctan2(np.linalg.norm(np.cross(one, two)), abs(one @ two)))


@pytest.mark.parametrize("ratios", [(1.0, 0.5), (0.9, 0.6), (0.6, 0.3), (0.4, 0.38), (0.95, 0.05), (0.8, 0.0)])
def test_ellipsoids_of_known_axes(ratios):
    """Of a round cloud that was squeezed and turned, the tensor has the squares of the axes, whatever its profile; ten
    stars far away, which hold nearly all of sum m r^2, change nothing."""
    turn = Rotation.random(rng=3).as_matrix()
    position = mirrored(cloud(600)) * [1.0, *ratios] @ turn.T
    far = 300.0 * np.random.default_rng(1).normal(size=(10, 3))
    for own in (position, np.concatenate([position, far])):
        shape = measure_shape(own, np.ones(len(own)), 4.0)
        assert shape.converged
        np.testing.assert_allclose(shape.ratios, ratios, atol=5e-3)
        assert degrees_between(shape.short, turn[:, 2]) < 1e-6
        assert not shape.inside[len(position) :].any()
    inertia = far.T @ far
    assert np.trace(inertia) > 0.9 * np.trace(inertia + position.T @ position)


def test_the_result_is_what_the_definition_says():
    """sum m x x^T / r_ell^2 over the ellipsoid of the result has the axes and ratios of the result, and the volume that
    was asked for; a loop over the stars, with masses."""
    rng = np.random.default_rng(5)
    turn = Rotation.random(rng=6).as_matrix()
    position, mass = cloud(3000, seed=2) * [1.0, 0.8, 0.45] @ turn.T, rng.uniform(0.1, 3.0, 3000)
    shape = measure_shape(position, mass, 3.0)
    b, c = shape.ratios
    longest = 3.0 / (b * c) ** (1 / 3)
    tensor, inside = np.zeros((3, 3)), np.zeros(3000, dtype=bool)
    for number, (x, m) in enumerate(zip(position, mass, strict=True)):
        along = shape.axes.T @ x
        squared = along[0] ** 2 + (along[1] / b) ** 2 + (along[2] / c) ** 2
        if squared <= longest**2:
            inside[number] = True
            tensor += m * np.outer(x, x) / squared
    values, vectors = np.linalg.eigh(tensor)
    np.testing.assert_allclose(np.sqrt(values[::-1] / values[2]), [1.0, b, c], atol=2e-3)
    assert degrees_between(vectors[:, 0], shape.short) < 0.2
    assert (inside != shape.inside).sum() <= 3  # the last change of the ratios, less than 1e-3
    assert abs(np.linalg.det(shape.axes)) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("ratios", [(0.9, 0.4), (0.95, 0.85)])
def test_the_stated_error_is_the_scatter_of_the_axis(ratios):
    """Over clouds drawn anew; the root mean square of the angle to the true short axis."""
    shapes = [measure_shape(cloud(800, seed) * [1.0, *ratios], np.ones(800), 3.0) for seed in range(60)]
    angles = [degrees_between(shape.short, np.array([0.0, 0.0, 1.0])) for shape in shapes]
    found = np.sqrt(np.mean(np.square(angles)))
    assert np.median([shape.error for shape in shapes]) == pytest.approx(found, rel=0.4)


def test_turned_copies_have_turned_axes_and_the_order_does_not_count():
    position, mass = cloud(500) * [1.0, 0.7, 0.5], np.random.default_rng(1).uniform(1, 2, 500)
    turn, order = Rotation.random(rng=1).as_matrix(), np.random.default_rng(2).permutation(500)
    shape, other = measure_shape(position, mass, 3.0), measure_shape((position @ turn.T)[order], mass[order], 3.0)
    np.testing.assert_allclose(other.ratios, shape.ratios, rtol=1e-9)
    assert degrees_between(other.short, turn @ shape.short) < 1e-6
    np.testing.assert_array_equal(other.inside, shape.inside[order])


def test_a_round_cloud_has_no_short_axis_to_speak_of():
    exact, drawn = mirrored(cloud(20)), cloud(2000)
    assert measure_shape(exact, np.ones(len(exact)), 3.0).error == 180.0
    assert measure_shape(drawn, np.ones(2000), 3.0).error > 15.0


@pytest.mark.parametrize(
    "position",
    [np.ones((1, 3)), np.zeros((5, 3)), np.eye(3)[:2], np.outer(np.arange(6.0), [1.0, 2.0, 3.0]), 9 * np.eye(3)],
    ids=["one star", "all at the centre", "two stars", "on one line", "outside"],
)
def test_what_has_no_shape(position):
    assert measure_shape(position, np.ones(len(position)), 8.0) is None


def test_a_star_at_the_very_centre_and_a_massless_one_count_for_nothing():
    position = cloud(200) * [1.0, 0.7, 0.5]
    shape = measure_shape(position, np.ones(200), 3.0)
    more = np.concatenate([position, np.zeros((1, 3)), [[0.0, 0.0, 2.9]]])
    other = measure_shape(more, np.append(np.ones(200), [1.0, 0.0]), 3.0)
    np.testing.assert_allclose(other.ratios, shape.ratios, rtol=1e-12)


def test_an_iteration_that_does_not_end_says_how_far_it_is(monkeypatch):
    """The first step leaves a sphere, so it cannot be the last one of a flat cloud."""
    position = cloud(500) * [1.0, 0.9, 0.3]
    changes = []
    for most in (1, 2, 3, 100):
        monkeypatch.setattr(shape_module, "MOST_ITERATIONS", most)
        shape = measure_shape(position, np.ones(500), 3.0)
        assert shape.converged == (most == 100)
        changes.append(shape.change)
    assert changes == sorted(changes, reverse=True)
