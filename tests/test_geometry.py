"""Rotations against loops, scipy and the formulas of the sky frame."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from rubix_like.geometry import Moments, sky_rotation, smallest_rotation

GENERATOR = np.random.default_rng(4)
Z = np.array([0.0, 0.0, 1.0])


def rotating_disc(n=500):
    """A flat disc about z, turning counter-clockwise seen from +z, not round in x, y."""
    position = GENERATOR.normal(size=(n, 3)) * [3.0, 2.0, 0.2]
    velocity = 100 * np.stack([-position[:, 1], position[:, 0], np.zeros(n)], axis=1)
    return position, velocity, GENERATOR.uniform(1, 2, n)


def assert_proper(rotation):
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(np.linalg.det(rotation), 1.0, atol=1e-12)


def test_inertia_tensor_against_a_loop():
    position, _, mass = rotating_disc(20)
    expected = np.zeros((3, 3))
    for r, m in zip(position, mass, strict=True):
        expected += m * ((r @ r) * np.eye(3) - np.outer(r, r))
    np.testing.assert_allclose(Moments.of(position, np.zeros_like(position), mass).inertia, expected, rtol=1e-12)


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


@pytest.mark.parametrize("seed", range(6))
def test_alignment_finds_the_pole_and_its_sign(seed):
    """However the disc was turned, its pole, with the sign of its spin, comes back to +z."""
    turn = Rotation.random(rng=seed).as_matrix()
    position, velocity, mass = rotating_disc()
    short = np.linalg.eigh(Moments.of(position, np.zeros_like(position), mass).inertia)[1][:, 2]
    short = short * np.sign(short[2])
    rotation = Moments.of(position @ turn.T, velocity @ turn.T, mass).rotation()
    assert_proper(rotation)
    np.testing.assert_allclose(rotation @ turn @ short, Z, atol=1e-10)


def test_alignment_does_not_depend_on_order_or_duplicates_of_the_first():
    position, velocity, mass = rotating_disc()
    order = np.argsort(position[:, 0])
    expected = Moments.of(position, velocity, mass).rotation()
    np.testing.assert_allclose(
        Moments.of(position[order], velocity[order], mass[order]).rotation(), expected, atol=1e-12
    )


def test_alignment_of_float32_is_done_in_float64():
    position, velocity, mass = (x.astype(np.float32) for x in rotating_disc())
    rotation = Moments.of(position, velocity, mass).rotation()
    assert rotation.dtype == np.float64
    expected = Moments.of(*(x.astype(np.float64) for x in (position, velocity, mass))).rotation()
    np.testing.assert_array_equal(rotation, expected)


@pytest.mark.parametrize(
    "position",
    [np.ones((1, 3)), np.zeros((5, 3)), np.eye(3)[:2], np.outer(np.arange(6.0), [1.0, 2.0, 3.0])],
    ids=["one star", "all at the centre", "two stars", "on one line"],
)
def test_no_short_axis_is_refused(position):
    with pytest.raises(ValueError, match=r"observation.align: expected a galaxy with a short axis.*use 'align: none'"):
        Moments.of(position, np.zeros_like(position), np.ones(len(position))).rotation()


@pytest.mark.parametrize("inclination", [0.0, 30.0, 60.0, 90.0, 140.0])
@pytest.mark.parametrize("position_angle", [0.0, 30.0, 90.0, 200.0])
def test_sky_rotation_is_three_turns(inclination, position_angle):
    """Incline about the major axis X, then turn on the sky: PA runs from North (y) to East (x)."""
    found = np.asarray(sky_rotation(jnp.asarray(inclination), jnp.asarray(position_angle)))
    assert_proper(found)
    tilt = Rotation.from_euler("x", inclination, degrees=True)
    turn = Rotation.from_euler("z", 90.0 - position_angle, degrees=True)
    np.testing.assert_allclose(found, (turn * tilt).as_matrix(), atol=1e-12)


def test_receding_side_lies_at_the_position_angle():
    """A star on the major axis at +X of a disc that turns about +Z is seen at PA, and recedes at sin i."""
    pa, inclination = np.deg2rad(130.0), np.deg2rad(50.0)
    rotation = np.asarray(sky_rotation(jnp.asarray(50.0), jnp.asarray(130.0)))
    np.testing.assert_allclose(rotation @ [1, 0, 0], [np.sin(pa), np.cos(pa), 0], atol=1e-12)
    np.testing.assert_allclose((rotation @ [0, 1, 0])[2], np.sin(inclination), atol=1e-12)
    np.testing.assert_allclose((rotation @ Z)[2], np.cos(inclination), atol=1e-12)
