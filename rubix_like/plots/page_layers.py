"""Flux and sigma of a cube as the small numbers of a page: rounded to 16 bits or to the noise, then packed by DEFLATE.

A spectrum is low + step * code. Codes are stored as differences from bin to bin, and as two planes of bytes, because
DEFLATE packs that best: 50 x 50 x 3681 voxels with their noise take about 15 MB of a page.
"""

import base64
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, UInt16
from numpy import ndarray

from rubix_like.cube.cube import Cube

MASKED: int = 65535
"""The code of a masked voxel; good ones have 0 to 65534."""

FLUX_STEP: float = 1 / 32
"""Smallest step of the flux, in medians of a spectrum's sigma: rounding adds 8e-5 to its variance."""

SIGMA_STEP: float = 1 / 512
"""Smallest step of sigma, in the same: an error of at most 0.1 percent."""

UNPACKED: int = 4
"""The codes take at most so many times the page's limit in the browser's memory."""

_SAMPLED_ROWS = 6
"""Rows of the cube that are packed to find out how large the page will be."""


@dataclass(frozen=True)
class Blocks:
    """How many spaxels (along x and along y) and bins of the cube one spaxel and bin of the page stand for."""

    space: int
    wave: int

    def shape(self, shape: tuple[int, int, int]) -> tuple[int, int, int]:
        """(y, x, wave) on the page of a cube of that shape; blocks at its ends may be smaller."""
        return -(-shape[0] // self.space), -(-shape[1] // self.space), -(-shape[2] // self.wave)


@dataclass(frozen=True)
class Layer:
    """Flux or sigma of every voxel of the page as low + step * code, per spaxel; `packed`: the codes (y, x, wave).

    The error of rounding is at most step / 2.
    """

    packed: bytes
    low: Float[ndarray, "y x"]
    step: Float[ndarray, "y x"]

    @property
    def text(self) -> str:
        """The packed codes as base64."""
        return base64.b64encode(self.packed).decode("ascii")


Layers = tuple[Layer, Layer | None]
"""Flux, and sigma where there is a noise model."""


def page_layers(cube: Cube, limit: int) -> tuple[Blocks, Layers]:
    """Flux and sigma within `limit` bytes of base64, in the smallest blocks that do it."""
    n_layers = 1 if cube.variance is None else 2
    rate = _bytes_per_voxel(cube, n_layers)
    while True:
        blocks = choose_blocks(cube.shape, n_layers, rate, limit)
        layers = block_layers(cube, blocks)
        size = sum(4 / 3 * len(layer.packed) for layer in layers if layer)
        voxels = np.prod(blocks.shape(cube.shape))
        if size <= limit or voxels == 1:
            return blocks, layers
        rate = 1.05 * max(rate, float(size / voxels))


def choose_blocks(shape: tuple[int, int, int], n_layers: int, rate: float, limit: int) -> Blocks:
    """The blocks that keep most of a cube (y, x, wave), at `rate` bytes of the page per voxel, within `limit` bytes.

    They have the smallest larger factor, and of these the smallest in space. The codes (two bytes per layer and voxel)
    are within `UNPACKED` times the limit as well.
    """

    def fits(space: int, wave: int) -> bool:
        voxels = float(np.prod(Blocks(space, wave).shape(shape), dtype=np.float64))
        return rate * voxels <= limit and 2 * n_layers * voxels <= UNPACKED * limit

    largest = max(shape)
    for factor in range(1, largest + 1):
        pairs = [(space, factor) for space in range(1, factor)] + [(factor, wave) for wave in range(1, factor + 1)]
        fitting = [pair for pair in pairs if fits(*pair)]
        if fitting:
            return Blocks(*min(fitting))
    return Blocks(largest, largest)


def block_layers(cube: Cube, blocks: Blocks) -> Layers:
    """Flux and sigma: means over the good voxels of every block, sigma = sqrt(sum of the variances) / their number.

    The voxels' noise is taken as independent.
    """
    n_y = cube.shape[0]
    packers = (_Packer(FLUX_STEP), _Packer(SIGMA_STEP))
    for flux, sigma in _block_rows(cube, blocks, range(0, n_y, blocks.space)):
        for packer, values in zip(packers, (flux, sigma), strict=True):
            if values is not None:
                packer.add(values, sigma)
    flux_layer, sigma_layer = (packer.layer() for packer in packers)
    assert flux_layer is not None
    return flux_layer, sigma_layer


def _bytes_per_voxel(cube: Cube, n_layers: int) -> float:
    """Bytes of base64 per voxel of all layers, measured on some rows of the cube."""
    n_y, n_x, n_wave = cube.shape
    rows = np.unique(np.linspace(0, n_y - 1, _SAMPLED_ROWS).astype(int))
    packers = [_Packer(step) for step in (FLUX_STEP, SIGMA_STEP)[:n_layers]]
    for values in _block_rows(cube, Blocks(1, 1), rows.tolist()):
        for packer, own in zip(packers, values, strict=False):
            if own is not None:
                packer.add(own, values[1])
    packed = sum(len(layer.packed) for layer in (packer.layer() for packer in packers) if layer)
    return 4 / 3 * packed / (rows.size * n_x * n_wave)


BlockRow = tuple[Float[ndarray, "block bin"], Float[ndarray, "block bin"] | None]
"""Flux and sigma of a row of blocks, NaN where there is none."""


def _block_rows(cube: Cube, blocks: Blocks, starts: Any) -> Iterator[BlockRow]:
    """The rows of blocks that begin at these rows of the cube."""
    _, n_x, n_wave = cube.shape
    columns, bins = np.arange(0, n_x, blocks.space), np.arange(0, n_wave, blocks.wave)
    widths = np.diff(cube.wave_edges)
    for start in starts:
        rows = slice(start, start + blocks.space)
        flux = np.asarray(cube.flux[rows], dtype=np.float64)
        good = np.asarray(cube.mask[rows]) == 0
        width = _sums(good * widths, columns, bins)
        least = np.where(width > 0, width, 1.0)
        mean = np.where(width > 0, _sums(np.where(good, flux * widths, 0.0), columns, bins) / least, np.nan)
        if cube.variance is None:
            yield mean, None
            continue
        variance = np.asarray(cube.variance[rows], dtype=np.float64)
        known = np.where(np.isfinite(variance) & (variance >= 0), variance, np.nan)
        total = _sums(np.where(good, known * widths**2, 0.0), columns, bins)
        yield mean, np.where(width > 0, np.sqrt(total) / least, np.nan)


def _sums(slab: Float[ndarray, "row x wave"], columns: ndarray, bins: ndarray) -> Float[ndarray, "block bin"]:
    return np.add.reduceat(np.add.reduceat(slab.sum(axis=0), columns, axis=0), bins, axis=1)


class _Packer:
    """One layer, packed row by row."""

    def __init__(self, smallest_step: float) -> None:
        self._smallest_step = smallest_step
        self._stream = zlib.compressobj(6)
        self._packed = bytearray()
        self._numbers: list[tuple[ndarray, ndarray]] = []

    def add(self, values: Float[ndarray, "block bin"], sigma: Float[ndarray, "block bin"] | None) -> None:
        """Take the next row."""
        noise = np.zeros(len(values)) if sigma is None else _medians(sigma)
        codes, low, step = _encode(values, self._smallest_step * noise)
        self._numbers.append((low, step))
        self._packed += self._stream.compress(_planes(codes))

    def layer(self) -> Layer | None:
        """What was added; None for nothing."""
        if not self._numbers:
            return None
        self._packed += self._stream.flush()
        low, step = (np.stack(parts) for parts in zip(*self._numbers, strict=True))
        return Layer(bytes(self._packed), low, step)


def _medians(sigma: Float[ndarray, "block bin"]) -> Float[ndarray, " block"]:
    """The median of every row; 0 where it has no value."""
    found = np.isfinite(sigma).any(axis=1)
    medians = np.zeros(len(sigma))
    medians[found] = np.nanmedian(sigma[found], axis=1)
    return medians


def _encode(
    values: Float[ndarray, "block bin"], smallest: Float[ndarray, " block"]
) -> tuple[UInt16[ndarray, "block bin"], Float[ndarray, " block"], Float[ndarray, " block"]]:
    """Codes, lowest value and step of every row: 1 / 65534 of its range, or `smallest` if that is more."""
    found = np.isfinite(values)
    low = np.where(found.any(axis=1), np.min(values, axis=1, where=found, initial=np.inf), 0.0)
    high = np.where(found.any(axis=1), np.max(values, axis=1, where=found, initial=-np.inf), 0.0)
    step = np.maximum((high - low) / (MASKED - 1), smallest)
    step = np.where(step > 0, step, 1.0)
    codes = np.rint((np.where(found, values, low[:, None]) - low[:, None]) / step[:, None])
    return np.where(found, codes, MASKED).astype(np.uint16), low, step


def _planes(codes: UInt16[ndarray, "block bin"]) -> bytes:
    """High bytes, then low bytes, of the differences along a row, folded so that small ones of both signs are small."""
    differences = np.diff(codes.astype(np.int32), axis=1, prepend=0).astype(np.int16).astype(np.int32)
    folded = ((differences << 1) ^ (differences >> 15)).astype(np.uint16)
    return (folded >> 8).astype(np.uint8).tobytes() + (folded & 0xFF).astype(np.uint8).tobytes()
