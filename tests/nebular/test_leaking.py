"""Photons that leak: their way through gas of one density, as seen on the sky."""

import numpy as np
import pytest
from scipy.integrate import quad

from rubix_like.nebular.ionising_light import absorbed_within, leaked_share


def test_the_share_within_a_radius_is_that_of_random_ways():
    """A million photons in random directions, with ways of an exponential distribution."""
    dice = np.random.default_rng(6)
    cosine = dice.uniform(-1, 1, 10**6)
    radius = dice.exponential(1.0, 10**6) * np.sqrt(1 - cosine**2)
    for limit in (0.1, 0.5, 1.0, 3.0):
        assert absorbed_within(np.array([limit]))[0] == pytest.approx(np.mean(radius < limit), abs=2e-3)


@pytest.mark.parametrize("path", [0.3, 2.0, 10.0])
def test_shares_of_cells_are_integrals_over_them(path):
    share = leaked_share(path, 60)
    assert share.sum() == pytest.approx(1.0, abs=2e-3)
    np.testing.assert_allclose(share, share[::-1, ::-1].T, rtol=1e-12)
    middle = len(share) // 2

    def along(x, y):
        radius = np.hypot(x, y)
        return quad(lambda z: np.exp(-np.hypot(radius, z) / path) / (np.hypot(radius, z) ** 2), 0, 40 * path)[0]

    nodes, weights = np.polynomial.legendre.leggauss(5)
    own = sum(
        a * b * along(2 + 0.5 * x, 1 + 0.5 * y)
        for x, a in zip(nodes, weights, strict=True)
        for y, b in zip(nodes, weights, strict=True)
    )
    assert share[middle + 1, middle + 2] == pytest.approx(own / 4 * 2 / (4 * np.pi * path), rel=0.02)


def test_it_reaches_no_further_than_is_asked_for():
    assert leaked_share(50.0, 20).shape == (41, 41)
    np.testing.assert_allclose(leaked_share(50.0, 20), leaked_share(50.0, 30)[10:-10, 10:-10], rtol=1e-12)
