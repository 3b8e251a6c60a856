"""Shares of spaxels in a circle, against counting points."""

import numpy as np
import pytest

from rubix_like.physics.discs import disc_overlap

N_POINT = 200


def circle_overlap(x, y, radius):
    """Area that unit squares about the grid of `x` and `y` share with a circle about the origin."""
    right, upper = x[None, :] + 0.5, y[:, None] + 0.5
    return disc_overlap(right - 1, right, upper - 1, upper, radius)


def counted_shares(x, y, radius):
    """The share of a fine grid of points in every square that lies in the circle."""
    points = (np.arange(N_POINT) + 0.5) / N_POINT - 0.5
    u, v = x[:, None] + points, y[:, None] + points
    inside = u[None, :, None, :] ** 2 + v[:, None, :, None] ** 2 <= radius**2
    return inside.mean(axis=(2, 3))


@pytest.mark.parametrize("radius", [0.1, 0.5, 0.7, 1.0, 2.3])
@pytest.mark.parametrize("centre", [(0.0, 0.0), (0.5, 0.5), (0.2, -0.35), (-1.9, 0.0)])
def test_shares_are_those_of_points(radius, centre):
    x, y = np.arange(-4, 5) - centre[0], np.arange(-3, 4) - centre[1]
    np.testing.assert_allclose(circle_overlap(x, y, radius), counted_shares(x, y, radius), atol=3e-3)


@pytest.mark.parametrize("radius", [0.3, 1.0, 3.7])
def test_the_area_is_that_of_the_circle(radius):
    x = np.arange(-6, 7) + 0.3
    assert circle_overlap(x, x, radius).sum() == pytest.approx(np.pi * radius**2, rel=1e-12)


@pytest.mark.parametrize("radius", [30.0, 1e4, 1e6, 1e9])
def test_a_circle_beyond_the_field_holds_whole_squares(radius):
    x = np.arange(20) - 9.5
    np.testing.assert_array_equal(circle_overlap(x, x, radius), 1.0)
