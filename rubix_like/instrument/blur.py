"""Convolve a stack of images (y, x, k), larger than the field, with a PSF; the field comes out, flux conserved.

Where images have several `cells` along the side of a spaxel, the PSF takes light from cells to spaxels.
"""

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int
from scipy.fft import next_fast_len

_IMAGES_AT_ONCE = 32
_FFT_COST = 8.0
"""Cost of an FFT per cell and octave, in products of a direct sum: measured on two CPU cores (images of 25 to 170
spaxels, PSFs of 7 to 71)."""


def blur_separable(
    images: Float[Array, "y x k"], weights: tuple[tuple[Float[Array, ""], Float[Array, " offset"]], ...], cells: int = 1
) -> Float[Array, "inner_y inner_x k"]:
    """The sum of separable convolutions, each a (share, weights along both axes); only what sees all of it is kept."""
    exact = lax.Precision.HIGHEST
    parts, (n_y, n_x, _) = [], images.shape
    for share, kernel in weights:
        offsets = (
            jnp.arange(size)[None, :] - cells * jnp.arange((size - len(kernel)) // cells + 1)[:, None]
            for size in (n_y, n_x)
        )
        rows, columns = (_looked_up(axis, at) for axis, at in zip((share * kernel, kernel), offsets, strict=True))
        part = jnp.einsum("ij,jxk->ixk", rows, images, precision=exact)
        parts.append(jnp.einsum("ij,yjk->yik", columns, part, precision=exact))
    return sum(parts[1:], start=parts[0])


def refine(
    layers: Float[Array, "layer y x k"], weights: Float[Array, "layer offset"], n_step: int, inner: tuple[int, int]
) -> Float[Array, "inner_y inner_x k"]:
    """The sum of layers on a coarser grid, seen on cells: the light of each place spread with the layer's `weights`
    along both axes.

    `weights`: of the cells at offsets -reach ... reach, which keep light where they have the sum 1. The first place is
    on the cell `reach` before the first that comes out, the others every `n_step` cells.
    """
    exact = lax.Precision.HIGHEST
    offsets = (
        jnp.arange(size)[:, None] + weights.shape[1] - 1 - n_step * jnp.arange(outer)[None, :]
        for size, outer in zip(inner, layers.shape[1:3], strict=True)
    )
    rows, columns = (jax.vmap(partial(_looked_up, offset=offset))(weights) for offset in offsets)
    part = jnp.einsum("lij,ljxk->lixk", rows, layers, precision=exact)
    return jnp.einsum("lij,lyjk->yik", columns, part, precision=exact)


def blur(
    images: Float[Array, "y x k"], psf: Float[Array, "side side"], cells: int = 1
) -> Float[Array, "inner_y inner_x k"]:
    """Every image convolved with one PSF."""
    return blur_groups(images, psf[None], (images.shape[2],), cells)


def blur_groups(
    images: Float[Array, "y x k"], psfs: Float[Array, "group side side"], sizes: tuple[int, ...], cells: int = 1
) -> Float[Array, "inner_y inner_x k"]:
    """Images in groups of these sizes, one after the other, each convolved with the PSF of its group: by FFT or by
    shifted sums, whichever is cheaper by the sizes."""
    if cells > 1:
        parts = [blur_groups(phase, psf, sizes) for phase, psf in _by_phase(images, psfs, cells)]
        return sum(parts[1:], start=parts[0])
    n_y, n_x, _ = images.shape
    side = psfs.shape[1]
    inner = (n_y - side + 1) * (n_x - side + 1)
    if inner * side**2 <= _FFT_COST * n_y * n_x * np.log2(n_y * n_x):
        groups = jnp.split(images, np.cumsum(sizes)[:-1], axis=2)
        return jnp.concatenate([_by_shifts(*pair) for pair in zip(groups, psfs, strict=True)], axis=2)
    spectra = jnp.fft.rfft2(psfs, _fft_shape(n_y, n_x))
    group = jnp.asarray(np.repeat(np.arange(len(sizes), dtype=np.int32), sizes))

    def blurred(pair: tuple[Array, Array]) -> Array:
        image, number = pair
        return _by_fft(image, spectra[number], side)

    stack = jnp.moveaxis(images, 2, 0), group
    return jnp.moveaxis(lax.map(blurred, stack, batch_size=_IMAGES_AT_ONCE), 0, 2)


def blur_each(
    images: Float[Array, "y x k"], psfs: Float[Array, "node side side"], shares: Float[Array, "k node"], cells: int = 1
) -> Float[Array, "inner_y inner_x k"]:
    """Image k convolved with its PSF, sum over nodes of shares[k] psfs, by FFT."""
    if cells > 1:
        parts = [blur_each(phase, psf, shares) for phase, psf in _by_phase(images, psfs, cells)]
        return sum(parts[1:], start=parts[0])
    side = psfs.shape[1]
    spectra = jnp.fft.rfft2(psfs, _fft_shape(*images.shape[:2]))

    def blurred(pair: tuple[Array, Array]) -> Array:
        image, share = pair
        return _by_fft(image, jnp.tensordot(share.astype(spectra.dtype), spectra, 1), side)

    stack = jnp.moveaxis(images, 2, 0), shares
    return jnp.moveaxis(lax.map(blurred, stack, batch_size=_IMAGES_AT_ONCE), 0, 2)


def _by_phase(images: Float[Array, "y x k"], psfs: Array, cells: int) -> Iterator[tuple[Array, Array]]:
    """The cells at each place within their spaxels, as images on spaxels, and the PSFs applied to them."""
    for row, column in itertools.product(range(cells), repeat=2):
        yield images[row::cells, column::cells], psfs[..., cells - 1 - row :: cells, cells - 1 - column :: cells]


def _fft_shape(n_y: int, n_x: int) -> tuple[int, int]:
    """Sizes at least as large as the images, so that light that wraps around stays in the part that is cut off."""
    lengths: Any = (next_fast_len(n_y, real=True), next_fast_len(n_x, real=True))
    return lengths


def _by_fft(image: Float[Array, "y x"], spectrum: Array, side: int) -> Float[Array, "inner_y inner_x"]:
    n_y, n_x = image.shape
    shape = _fft_shape(n_y, n_x)
    whole = jnp.fft.irfft2(jnp.fft.rfft2(image, shape) * spectrum, shape)
    return whole[side - 1 : n_y, side - 1 : n_x]


def _by_shifts(images: Float[Array, "y x k"], psf: Float[Array, "side side"]) -> Float[Array, "inner_y inner_x k"]:
    side = len(psf)
    shape = (images.shape[0] - side + 1, images.shape[1] - side + 1, images.shape[2])

    def add(total: Array, number: Array) -> tuple[Array, None]:
        row, column = number // side, number % side
        start = (side - 1 - row, side - 1 - column, jnp.zeros_like(row))
        return total + psf[row, column] * lax.dynamic_slice(images, start, shape), None

    numbers = jnp.arange(side**2, dtype=jnp.int32)
    return lax.scan(add, jnp.zeros_like(images, shape=shape), numbers)[0]


def _looked_up(weights: Float[Array, " offset"], offset: Int[Array, "inner outer"]) -> Float[Array, "inner outer"]:
    """The weights at these places, 0 where there is none."""
    inside = (offset >= 0) & (offset < len(weights))
    return jnp.where(inside, weights[jnp.clip(offset, 0, len(weights) - 1)], jnp.zeros((), weights.dtype))
