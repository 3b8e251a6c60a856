import numpy as np
import pytest

from rubix_like.physics.centering import center_of_mass, half_mass_radius, shrinking_sphere, unwrap


def plain_shrinking_sphere(position, mass):
    """The recipe as published, over all particles at every step."""
    fewest = max(min(1000, len(mass) // 100), 10)
    center = np.average(position, axis=0, weights=mass)
    radius = np.linalg.norm(position - center, axis=1).max()
    while True:
        radius *= 0.975
        inside = np.linalg.norm(position - center, axis=1) <= radius
        if inside.sum() < fewest:
            return center
        center = np.average(position[inside], axis=0, weights=mass[inside])


def clumpy(seed=2, n=4000):
    """A concentrated clump at (3, -2, 1), a looser, heavier companion 40 away and a wide background."""
    rng = np.random.default_rng(seed)
    main = np.array([3.0, -2.0, 1.0]) + rng.normal(size=(n, 3)) * rng.random((n, 1)) ** 2
    companion = np.array([40.0, 5.0, 0.0]) + 8 * rng.normal(size=(n // 2, 3))
    background = rng.uniform(-100, 100, (n // 10, 3))
    position = np.concatenate([main, companion, background])
    return position, rng.uniform(0.5, 2.0, len(position))


def test_unwrap_takes_the_nearest_image():
    reference = np.array([99.0, 1.0, 50.0])
    position = np.array([[1.0, 99.0, 51.0], [99.0, 1.0, 2.0]])
    np.testing.assert_allclose(unwrap(position, reference, np.full(3, 100.0)), [[2, -2, 1], [0, 0, -48]])
    np.testing.assert_allclose(unwrap(position, reference, None), position - reference)


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_shrinking_sphere_equals_the_plain_recipe(seed):
    """Which finds the clump, not the centre of mass, and moves with the particles."""
    position, mass = clumpy(seed, 1500)
    center = shrinking_sphere(position, mass)
    np.testing.assert_allclose(center, plain_shrinking_sphere(position, mass), atol=1e-11)
    np.testing.assert_allclose(center, [3, -2, 1], atol=0.05)
    assert np.linalg.norm(center_of_mass(position, mass) - center) > 5
    shift = np.array([2e4, -6e4, 5e4])
    np.testing.assert_allclose(shrinking_sphere(position + shift, mass) - shift, center, atol=1e-9)


def test_few_particles_have_their_center_of_mass():
    """And those at one place: the sphere can shrink for ever and keep a block of a file that was overwritten."""
    position = np.array([[0.0, 0, 0], [3, 0, 0]])
    np.testing.assert_allclose(shrinking_sphere(position, np.array([2.0, 1.0])), [1, 0, 0])
    np.testing.assert_allclose(shrinking_sphere(position[1:], np.array([1.0])), [3, 0, 0])
    np.testing.assert_allclose(shrinking_sphere(np.full((50, 3), 7.0), np.ones(50)), [7, 7, 7])
    block = np.concatenate([np.zeros((300, 3)), np.random.default_rng(3).normal(size=(100, 3))])
    np.testing.assert_allclose(shrinking_sphere(block + 5.0, np.ones(400)), [5.0, 5.0, 5.0], atol=1e-9)
    with pytest.raises(ValueError, match="positive total mass"):
        shrinking_sphere(np.zeros((3, 3)), np.zeros(3))


def test_half_mass_radius():
    position = np.arange(1.0, 6.0)[:, None] * np.array([[0.0, 0.6, 0.8]])
    assert half_mass_radius(position, np.ones(5)) == pytest.approx(3.0)
    assert half_mass_radius(position, np.array([10.0, 1, 1, 1, 1])) == pytest.approx(1.0)
