"""Where light lands: indices and weights against closed forms."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rubix_like.engine.spaxels import CORNERS, SpaxelGrid, deposit_weights
from rubix_like.extend import Footprint

GENERATOR = np.random.default_rng(2)
COORDINATE = GENERATOR.uniform(-3, 12, 400)


@functools.partial(jax.jit, static_argnames="deposit")
def deposited(coordinate, deposit):
    return deposit_weights(coordinate, deposit)


@functools.partial(jax.jit, static_argnames="deposit")
def on_grid(position, deposit):
    """Indices and weights on 4 x 6 spaxels of 0.5 arcsec."""
    return SpaxelGrid(Footprint(4, 6, jnp.asarray(0.5)), deposit).weights(position)


VARIANCES = {"nearest": 0.0, "cic": (COORDINATE % 1) * (1 - COORDINATE % 1), "tsc": 0.25, "smoothed": 0.25}


@pytest.mark.parametrize("deposit", CORNERS)
def test_weights_sum_to_one_at_distinct_neighbours_about_the_position(deposit):
    """`nearest` rounds; tsc spreads every particle by the same variance, 1/4; cic by d (1 - d)."""
    index, weight = (np.asarray(x) for x in deposited(COORDINATE, deposit))
    assert index.shape == weight.shape == (len(COORDINATE), CORNERS[deposit])
    np.testing.assert_allclose(weight.sum(axis=1), 1.0, rtol=1e-14)
    assert weight.min() >= 0
    assert (np.diff(index, axis=1) == 1).all()
    assert np.abs(index - COORDINATE[:, None]).max() <= 0.5 * CORNERS[deposit]
    place = np.round(COORDINATE) if deposit == "nearest" else COORDINATE
    np.testing.assert_allclose((index * weight).sum(axis=1), place, atol=1e-12)
    variance = (weight * (index - place[:, None]) ** 2).sum(axis=1)
    np.testing.assert_allclose(variance, np.broadcast_to(VARIANCES[deposit], variance.shape), atol=1e-12)


def test_unknown_deposit():
    with pytest.raises(ValueError, match=r"expected one of nearest, cic, tsc, smoothed, got 'ngp'"):
        deposit_weights(jnp.zeros(1), "ngp")


@pytest.mark.parametrize("deposit", CORNERS)
def test_image_against_a_loop(deposit):
    """Every corner of every particle, one by one. What falls outside is not wrapped around, far and broken coordinates
    stay outside; column = (n_x - 1)/2 - x/scale, row = (n_y - 1)/2 + y/scale: East is at small columns, North at large
    rows."""
    position = GENERATOR.uniform(-2.5, 2.5, (400, 3))
    position[:4, :2] = (1e300, 0.0), (-1e300, 0.0), (0.0, np.inf), (np.nan, 0.0)
    position[4, :2] = 1.25, 0.75
    index, weight = (np.asarray(x) for x in on_grid(position, deposit))
    np.testing.assert_array_equal(index[:3], 24)
    assert np.isfinite(weight[:3]).all()
    if deposit == "nearest":
        assert index[4, 0] == 6 * 3
    image = np.zeros(4 * 6 + 1)
    np.add.at(image, index[4:], weight[4:])
    columns, column_weights = (np.asarray(x) for x in deposited(2.5 - position[:, 0] / 0.5, deposit))
    rows, row_weights = (np.asarray(x) for x in deposited(1.5 + position[:, 1] / 0.5, deposit))
    expected = np.zeros((4, 6))
    for particle in range(4, len(position)):
        for row, a in zip(rows[particle], row_weights[particle], strict=True):
            for column, b in zip(columns[particle], column_weights[particle], strict=True):
                if 0 <= row < 4 and 0 <= column < 6:
                    expected[row, column] += a * b
    np.testing.assert_allclose(image[:-1].reshape(4, 6), expected, atol=1e-12)
    np.testing.assert_allclose(image.sum(), len(position) - 4)


@pytest.mark.parametrize(("deposit", "expected"), [("nearest", 0.0), ("cic", 1.0), ("tsc", 1.0)])
def test_gradient_of_the_position(deposit, expected):
    """The mean column moves by one per spaxel; `nearest` has no gradient."""

    @jax.jit
    @jax.grad
    def slopes(coordinate):
        index, weight = deposit_weights(coordinate, deposit)
        return (index.astype(weight.dtype) * weight).sum()

    np.testing.assert_allclose(slopes(COORDINATE), expected, atol=1e-12)
