"""The numbers of a page, unpacked in Python as a browser does, beside those of the cube."""

import base64
import zlib
from dataclasses import replace

import numpy as np
import pytest
from small import noisy_cube

from rubix_like.extend import WavelengthBins
from rubix_like.plots.page import MASKED, Blocks, block_layers, choose_blocks, page_layers, page_values


def unpacked(layer, shape):
    """(y, x, wave) of a layer: bytes to folded differences to codes to numbers; NaN where masked."""
    n_y, n_x, n_wave = shape
    planes = np.frombuffer(zlib.decompress(layer.packed), np.uint8).reshape(n_y, 2, n_x, n_wave).astype(np.int64)
    folded = 256 * planes[:, 0] + planes[:, 1]
    differences = np.where(folded % 2, -(folded + 1) // 2, folded // 2)
    codes = np.cumsum(differences, axis=-1) % 65536
    return np.where(codes == MASKED, np.nan, layer.low[..., None] + layer.step[..., None] * codes)


RATE = 3.0


def test_blocks_keep_as_much_as_fits():
    assert choose_blocks((50, 50, 3681), 2, RATE, 32_000_000) == Blocks(1, 1)
    assert choose_blocks((100, 100, 3681), 2, RATE, 32_000_000) == Blocks(2, 1)
    assert choose_blocks((300, 300, 3681), 1, 1e-3, 32_000_000) == Blocks(2, 2), "little text, but too much memory"
    for shape, n_layers in (((300, 300, 3681), 2), ((7, 900, 10), 1), ((1, 1, 10**8), 1)):
        blocks = choose_blocks(shape, n_layers, RATE, 32_000_000)
        assert RATE * np.prod(blocks.shape(shape)) <= 32e6
    assert choose_blocks((2, 2, 2), 1, RATE, limit=1) == Blocks(2, 2)


def test_flux_and_sigma_are_there_to_what_the_page_says():
    cube = noisy_cube()
    layers = block_layers(cube, Blocks(1, 1))
    good, sigma = np.asarray(cube.mask) == 0, np.sqrt(np.asarray(cube.variance, np.float64))
    for layer, wanted, share in zip(layers, (np.asarray(cube.flux), sigma), (64, 1024), strict=True):
        found = unpacked(layer, cube.shape)
        assert (np.isfinite(found) == good).all()
        for y, x in np.ndindex(cube.shape[:2]):
            own = good[y, x]
            if not own.any():
                continue
            bound = max(np.median(sigma[y, x][own]) / share, np.ptp(wanted[y, x][own]) / 131068)
            assert np.abs(found - wanted)[y, x][own].max() <= 1.001 * bound


def test_without_noise_16_bits_of_the_range_are_there():
    cube = noisy_cube(variance=None)
    flux, sigma = block_layers(cube, Blocks(1, 1))
    assert sigma is None
    good = np.asarray(cube.mask) == 0
    span = np.ptp(np.asarray(cube.flux))
    assert np.abs(unpacked(flux, cube.shape) - np.asarray(cube.flux))[good].max() < span / 131068 * 1.001


def test_blocks_are_means_over_good_voxels():
    cube = noisy_cube()
    blocks = Blocks(2, 7)
    flux, sigma = block_layers(cube, blocks)
    shape = blocks.shape(cube.shape)
    assert shape == (3, 3, 6)
    decoded, errors = (unpacked(layer, shape) for layer in (flux, sigma))
    for y, x, k in ((0, 0, 0), (1, 2, 3), (2, 2, 5), (2, 1, 0)):
        place = np.s_[2 * y : 2 * y + 2, 2 * x : 2 * x + 2, 7 * k : 7 * k + 7]
        good = np.asarray(cube.mask)[place] == 0
        values, variance = (np.asarray(a, np.float64)[place][good] for a in (cube.flux, cube.variance))
        np.testing.assert_allclose(decoded[y, x, k], values.mean(), atol=flux.step[y, x])
        np.testing.assert_allclose(errors[y, x, k], np.sqrt(variance.sum()) / good.sum(), atol=sigma.step[y, x])


def test_blocks_of_uneven_bins_keep_the_light():
    """Means over a block's wavelengths by numpy, and the middle of the block on the page."""
    widths = np.linspace(1.0, 3.0, 40)
    edges = 4750 + np.append(0, np.cumsum(widths))
    cube = replace(noisy_cube(), bins=WavelengthBins.of_table(0.5 * (edges[1:] + edges[:-1]), edges, "air"))
    blocks = Blocks(1, 10)
    layers = block_layers(cube, blocks)
    decoded, errors = (unpacked(layer, (5, 6, 4)) for layer in layers)
    own = np.s_[3, 2, 10:20]
    light, noise = (np.asarray(values, np.float64)[own] for values in (cube.flux, cube.variance))
    np.testing.assert_allclose(decoded[3, 2, 1], np.average(light, weights=widths[10:20]), atol=layers[0].step[3, 2])
    error = np.sqrt(noise @ widths[10:20] ** 2) / widths[10:20].sum()
    np.testing.assert_allclose(errors[3, 2, 1], error, atol=layers[1].step[3, 2])
    packed = zlib.decompress(base64.b64decode(page_values(cube, (), blocks, layers)["wavelength"]))
    np.testing.assert_allclose(np.frombuffer(packed, "<f8"), 0.5 * (edges[:-1:10] + edges[10::10]), rtol=1e-12)


def test_a_variance_that_is_no_number_leaves_the_flux():
    variance = np.asarray(noisy_cube().variance).copy()
    variance[2, 3, 10:12] = np.nan, np.inf
    cube = replace(noisy_cube(), variance=variance)
    flux, sigma = (unpacked(layer, cube.shape) for layer in block_layers(cube, Blocks(1, 1)))
    assert np.isfinite(flux[2, 3, 10:12]).all()
    assert np.isnan(sigma[2, 3, 10:12]).all()
    assert np.isfinite(sigma[2, 3, 12])


@pytest.mark.parametrize("limit", [2_000, 10_000, 10**6])
def test_the_packed_numbers_are_within_the_limit(limit):
    cube = noisy_cube(12, 14, 50)
    blocks, layers = page_layers(cube, limit)
    assert sum(len(layer.text) for layer in layers) <= limit
    assert (blocks == Blocks(1, 1)) == (limit == 10**6)
