"""The mean motion of stars: the plain mean of those that belong together, whatever else is among them."""

import numpy as np
import pytest
from scipy.stats import chi

from rubix_like.physics.clipping import clip_velocities


def stars(n=2000, seed=0, dispersion=100.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)) * dispersion + [300.0, -40.0, 7.0], rng.uniform(0.5, 2.0, n)


@pytest.mark.parametrize(("wild", "count"), [(1e6, 1), (1e6, 40), (1e4, 40), (2000.0, 1), (2000.0, 40)])
def test_wild_velocities_move_nothing(wild, count):
    """The mean is that of the others, to the last digits; a plain mean would be off by km/s."""
    velocity, mass = stars()
    clip = clip_velocities(velocity, mass)
    mean = np.average(velocity, axis=0, weights=mass)
    np.testing.assert_allclose(clip.mean, mean, rtol=1e-12)
    assert clip.keeps(velocity).all()
    more = np.concatenate([velocity, np.full((count, 3), wild / np.sqrt(3))])
    weights = np.append(mass, np.full(count, 2.0))
    found = clip_velocities(more, weights)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-9)
    np.testing.assert_array_equal(found.keeps(more), np.arange(len(more)) < 2000)
    assert np.linalg.norm(np.average(more, axis=0, weights=weights) - mean) > 0.5


def test_the_limit_is_five_standard_deviations():
    """Of a normal distribution: sigma of one component, beyond which 1.5e-5 of the stars lie."""
    velocity, mass = stars(100_000)
    clip = clip_velocities(velocity, mass)
    assert clip.limit == pytest.approx(500.0, rel=0.01)
    assert (~clip.keeps(velocity)).sum() <= 100_000 * chi(3).sf(5.0) + 4
    assert np.linalg.norm(clip.mean - [300.0, -40.0, 7.0]) < 2.0


def test_rotation_and_counter_rotation_are_not_clipped():
    """A disc and one that turns the other way, half as massive."""
    angle = np.linspace(0, 2 * np.pi, 3001)[:-1]
    turning = 220.0 * np.stack([-np.sin(angle), np.cos(angle), 0 * angle], axis=1)
    for velocity in (turning, np.concatenate([turning, -turning[::2]])):
        clip = clip_velocities(velocity, np.ones(len(velocity)))
        assert clip.keeps(velocity).all()
        np.testing.assert_allclose(clip.mean, 0.0, atol=1e-9)


def test_stars_at_rest_and_one_that_is_not():
    velocity = np.full((50, 3), 0.1) + 1e-9 * np.random.default_rng(0).normal(size=(50, 3))
    velocity[7] = [900.0, 0.0, 0.0]
    clip = clip_velocities(velocity, np.ones(50))
    np.testing.assert_allclose(clip.mean, 0.1, atol=1e-8)
    assert (~clip.keeps(velocity)).sum() == 1


def test_few_stars_all_count():
    velocity = np.zeros((9, 3))
    velocity[0] = [9e5, 0.0, 0.0]
    clip = clip_velocities(velocity, np.ones(9))
    np.testing.assert_allclose(clip.mean, [1e5, 0.0, 0.0], rtol=1e-12)
    assert clip.keeps(velocity).all()


def test_nothing_is_left_out_where_nothing_would_be_left():
    """Every star is wild in one of three directions."""
    velocity = np.repeat(1e4 * np.eye(3), 20, axis=0)
    clip = clip_velocities(velocity, np.ones(60))
    np.testing.assert_allclose(clip.mean, 1e4 / 3, rtol=1e-12)
    assert clip.keeps(velocity).all()
