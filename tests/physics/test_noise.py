"""Noise: what is realised has the variance that is stated, follows its key, and needs no light in a spaxel."""

import equinox as eqx
import jax
import numpy as np
import pytest
from observing import configuration, galaxy_of, observe

from rubix_like import Pipeline, make_mesh

INSTRUMENT = {"fov": 10.0, "wavelength": {"start": 5000.0, "stop": 5250.0, "step": 1.25}}
GALAXY = galaxy_of([(0.0, 0.0, 0.0), (0.4, 0.3, 0.0)])


@pytest.fixture(scope="module")
def clean():
    return observe(configuration(instrument=INSTRUMENT), GALAXY)


@pytest.fixture(scope="module")
def pipeline():
    return Pipeline.from_config(noisy_configuration(), GALAXY, mesh=make_mesh(1))


def noisy_configuration(signal_to_noise=20.0, seed=1):
    noise = {"signal_to_noise": signal_to_noise, "seed": seed}
    return configuration(instrument=INSTRUMENT, noise=noise)


def noise_of(cube, clean):
    return np.asarray(cube.flux) - np.asarray(clean.flux)


def test_variance_is_that_of_the_realised_noise(pipeline, clean):
    """chi^2 per voxel 1.00 over 5e5 voxels (its own scatter is 0.002), mean 0, no correlation of neighbours."""
    cube = pipeline(GALAXY)
    normalised = noise_of(cube, clean) / np.sqrt(np.asarray(cube.variance))
    assert normalised.size > 5e5
    assert np.mean(normalised**2) == pytest.approx(1.0, abs=0.01)
    assert np.mean(normalised) == pytest.approx(0.0, abs=0.005)
    for axis in range(3):
        neighbours = np.take(normalised, range(1, normalised.shape[axis]), axis)
        before = np.take(normalised, range(normalised.shape[axis] - 1), axis)
        assert np.mean(neighbours * before) == pytest.approx(0.0, abs=0.006)
    assert np.mean(normalised**4) == pytest.approx(3.0, abs=0.05)


def test_signal_to_noise_is_that_of_the_brightest_spaxel(pipeline, clean):
    flux = np.asarray(clean.flux)
    brightest = flux.reshape(-1, flux.shape[2])[flux.sum(axis=2).argmax()]
    variance = np.asarray(pipeline(GALAXY).variance)
    np.testing.assert_allclose(np.median(brightest) / np.sqrt(variance), 20.0, rtol=1e-12)


def test_same_key_same_noise_other_key_other_noise(pipeline):
    first, again = np.asarray(pipeline(GALAXY).flux), np.asarray(pipeline(GALAXY).flux)
    np.testing.assert_array_equal(first, again)
    by_key = [np.asarray(pipeline(GALAXY, key=jax.random.key(seed)).flux) for seed in (1, 2)]
    np.testing.assert_array_equal(by_key[0], first)
    other = by_key[1] - first
    assert np.all(other != 0)
    seeded = observe(noisy_configuration(seed=2), GALAXY)
    np.testing.assert_array_equal(np.asarray(seeded.flux), by_key[1])


def test_noise_does_not_depend_on_the_devices(pipeline):
    eight = observe(noisy_configuration(), GALAXY, n_devices=8)
    one = pipeline(GALAXY)
    peak = np.abs(np.asarray(one.flux)).max()
    np.testing.assert_allclose(np.asarray(eight.flux), np.asarray(one.flux), rtol=0, atol=1e-12 * peak)


def test_noise_does_not_vanish_where_spaxels_are_empty(pipeline, clean):
    """All but two of 2500 spaxels are dark here, and each of them is noisy."""
    dark = np.asarray(clean.flux).sum(axis=2) == 0
    assert dark.sum() == 2498
    cube = pipeline(GALAXY)
    scatter = np.asarray(cube.flux)[dark].std(axis=1) / np.sqrt(np.asarray(cube.variance)[dark].mean())
    assert np.all(np.abs(scatter - 1) < 0.3)
    assert np.all(np.asarray(cube.ivar) > 0)


def test_without_noise_there_is_no_variance(clean):
    assert clean.variance is None
    assert clean.ivar is None
    assert eqx.tree_at(lambda cube: cube.flux, clean, clean.flux).flux.min() >= 0
