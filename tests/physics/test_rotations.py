"""Rotations against loops, scipy and the formulas of the sky frame."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from rubix_like.physics.rotations import sky_rotation, smallest_rotation

GENERATOR = np.random.default_rng(4)


def assert_proper(rotation):
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(np.linalg.det(rotation), 1.0, atol=1e-12)


def test_smallest_rotation_is_the_one_of_the_angle_between():
    for _ in range(20):
        start, end = (v / np.linalg.norm(v) for v in GENERATOR.normal(size=(2, 3)))
        rotation = smallest_rotation(start, end)
        assert_proper(rotation)
        np.testing.assert_allclose(rotation @ start, end, atol=1e-12)
        axis = np.cross(start, end)
        angle = np.arctan2(np.linalg.norm(axis), start @ end)
        expected = Rotation.from_rotvec(axis / np.linalg.norm(axis) * angle).as_matrix()
        np.testing.assert_allclose(rotation, expected, atol=1e-10)


@pytest.mark.parametrize("start", [*np.eye(3), *-np.eye(3), np.array([0.6, 0.0, 0.8])])
def test_opposite_and_equal_directions(start):
    np.testing.assert_allclose(smallest_rotation(start, start), np.eye(3), atol=1e-14)
    rotation = smallest_rotation(start, -start)
    assert_proper(rotation)
    np.testing.assert_allclose(rotation @ start, -start, atol=1e-12)


def test_sky_rotation_is_three_turns():
    """Incline about the major axis X, then turn on the sky: PA runs from North (y) to East (x). A star at +X of a disc
    that turns about +Z is seen at PA, and recedes at sin i."""
    turned = jax.jit(sky_rotation)
    for inclination, position_angle in itertools.product(
        [0.0, 30.0, 60.0, 90.0, 140.0, 180.0], [0.0, 30.0, 90.0, 200.0]
    ):
        found = np.asarray(turned(jnp.asarray(inclination), jnp.asarray(position_angle)))
        np.testing.assert_allclose(found @ found.T, np.eye(3), atol=1e-15)
        assert np.linalg.det(found) == pytest.approx(1.0, abs=1e-14)
        tilt = Rotation.from_euler("x", inclination, degrees=True)
        turn = Rotation.from_euler("z", 90.0 - position_angle, degrees=True)
        np.testing.assert_allclose(found, (turn * tilt).as_matrix(), atol=1e-12)
        i, pa = np.deg2rad([inclination, position_angle])
        np.testing.assert_allclose(found[:, 0], [np.sin(pa), np.cos(pa), 0], atol=1e-15)
        np.testing.assert_allclose(found[2, 1:], [np.sin(i), np.cos(i)], atol=1e-15)
