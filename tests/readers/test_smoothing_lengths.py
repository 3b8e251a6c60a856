"""Smoothing lengths of stars: distances to neighbours, and which stars get them."""

import dataclasses

import numpy as np
import pytest
from snapshot_reading import reader_of

from rubix_like import ConfigError, Galaxy, GalaxyInfo, Stars, load_config
from rubix_like.readers.galaxy_loading import choose_smoothing_lengths, neighbour_distance

N = 400
INFO = GalaxyInfo(name="ball", reader="auto", source="ball.hdf5")


def brute_force(position, number):
    distance = np.linalg.norm(position[:, None] - position[None], axis=2)
    return np.sort(distance, axis=1)[:, number]


def ball(n, seed=1):
    """Points of constant density within the unit sphere."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=(n, 3))
    return direction / np.linalg.norm(direction, axis=1)[:, None] * rng.random((n, 1)) ** (1 / 3)


def test_distances_by_brute_force():
    """Few particles take the farthest."""
    position = ball(N) * 5
    position[3] = position[4]
    for number in (1, 7, 32):
        np.testing.assert_allclose(neighbour_distance(position, number), brute_force(position, number), rtol=1e-12)
    position = ball(5)
    np.testing.assert_allclose(neighbour_distance(position, 32), brute_force(position, 4), rtol=1e-12)
    np.testing.assert_array_equal(neighbour_distance(position[:1], 32), [0.0])


def test_constant_density():
    """The sphere that ends at the neighbour of this number holds, on average, that many times the volume per particle.

    4/3 pi h^3 n follows a gamma distribution of that mean and variance (a Poisson process in space).
    """
    n, number = 30000, 32
    position = ball(n)
    length = neighbour_distance(position, number)
    inside = np.linalg.norm(position, axis=1) < 0.8
    assert length[inside].max() < 0.2
    count = n * length[inside] ** 3
    assert count.mean() == pytest.approx(number, rel=5 / np.sqrt(n))
    assert count.var() == pytest.approx(number, rel=0.1)


def stars(lengths, scale=5.0):
    position = ball(N) * scale
    return Galaxy(
        Stars(
            position=position,
            velocity=np.zeros((N, 3)),
            initial_mass=np.ones(N),
            log_age=np.full(N, 9.0),
            metallicity=np.full(N, 0.02),
            smoothing_length=lengths,
        )
    )


def run(deposit="smoothed", **keys):
    galaxy = reader_of(path="ball.hdf5", **keys)
    sections = {"observation": {"redshift": 0.05}, "instrument": {"name": "muse"}, "engine": {"deposit": deposit}}
    return load_config(sections | {"galaxy": galaxy})


FILE = np.full(N, 0.3)
HALF_MASS = 5 * 0.5 ** (1 / 3)
EXPECTED = brute_force(ball(N) * 5, 32)


def test_auto_takes_the_file_where_it_can():
    galaxy, info = choose_smoothing_lengths(stars(FILE), INFO, run())
    np.testing.assert_array_equal(galaxy.stars.smoothing_length, FILE)
    assert (info.smoothing_length, info.notes) == ("file", ())


def test_auto_estimates_what_the_file_has_not():
    galaxy, info = choose_smoothing_lengths(stars(None), INFO, run())
    np.testing.assert_allclose(galaxy.stars.smoothing_length, EXPECTED, rtol=1e-12)
    assert info.smoothing_length == "distance to neighbour 32; 400 of 400 stars"
    assert "not from the file" in info.notes[0]
    partly = np.where(np.arange(N) < 100, np.nan, FILE)
    galaxy, info = choose_smoothing_lengths(stars(partly), INFO, run(neighbours=8))
    expected = np.where(np.isnan(partly), brute_force(ball(N) * 5, 8), FILE)
    np.testing.assert_allclose(galaxy.stars.smoothing_length, expected, rtol=1e-12)
    assert info.smoothing_length == "distance to neighbour 8; 100 of 400 stars"
    _, info = choose_smoothing_lengths(stars(None), INFO, run(neighbours=500))
    assert "neighbour 399 (galaxy.neighbours: 500 is more than there are); 400 of 400 stars" in info.notes[-1]


def test_auto_leaves_lengths_above_the_half_mass_radius_aside():
    for median, usable in ((0.97 * HALF_MASS, True), (1.06 * HALF_MASS, False)):
        galaxy, info = choose_smoothing_lengths(stars(np.full(N, median)), INFO, run())
        expected = np.full(N, median) if usable else EXPECTED
        np.testing.assert_allclose(galaxy.stars.smoothing_length, expected, rtol=1e-12)
        assert (info.smoothing_length == "file") == usable
    assert "is above the half-mass radius of 3." in info.notes[0]
    asked = choose_smoothing_lengths(stars(np.full(N, 30.0)), INFO, run(smoothing_length="file"))
    np.testing.assert_array_equal(asked[0].stars.smoothing_length, 30.0)


def test_nothing_is_estimated_for_a_run_that_does_not_smooth():
    for lengths in (None, np.where(np.arange(N) < 100, np.nan, FILE)):
        galaxy, info = choose_smoothing_lengths(stars(lengths), INFO, run("nearest"))
        assert galaxy.stars.smoothing_length is None
        assert (info.smoothing_length, info.notes) == ("", ())
    galaxy, info = choose_smoothing_lengths(stars(FILE), INFO, run("nearest", smoothing_length="neighbours"))
    np.testing.assert_allclose(galaxy.stars.smoothing_length, EXPECTED, rtol=1e-12)
    assert info.smoothing_length.endswith("400 of 400 stars")


def test_the_file_is_asked_for_and_has_none():
    with pytest.raises(ConfigError, match=r"galaxy.smoothing_length: .* 400 of 400 have none; set it to auto"):
        choose_smoothing_lengths(stars(None), INFO, run(smoothing_length="file"))


def test_any_reader_gets_them():
    """Without settings of its own, as auto with 32 neighbours."""
    config = load_config(
        {"observation": {"redshift": 0.05}, "instrument": {"name": "muse"}, "engine": {"deposit": "smoothed"}},
        {"galaxy": {"reader": "synthetic"}},
    )
    galaxy, _ = choose_smoothing_lengths(stars(None), INFO, config)
    np.testing.assert_allclose(galaxy.stars.smoothing_length, EXPECTED, rtol=1e-12)


def test_broken_positions_are_named():
    galaxy = stars(None)
    position = np.array(galaxy.stars.position)
    position[7, 1] = np.nan
    broken = Galaxy(dataclasses.replace(galaxy.stars, position=position))
    with pytest.raises(ValueError, match=r"stars.position: expected finite values, got nan at index \(7, 1\)"):
        choose_smoothing_lengths(broken, INFO, run())
