"""The noise of a mosaic: every spaxel is a weighted mean of those of the pointings, so that neighbours share noise.

The mosaic is a linear map of independent numbers: of the pointings' spaxels or, where these were made of fibres, of
the spectra of those. Its covariance is W V W^T, with the map W and the variances V.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray
from scipy.sparse import csr_array, diags_array, hstack

from rubix_like.cube.fibres.cube_weights import without_flagged
from rubix_like.cube.fibres.fibre_spectra import FibreSpectra
from rubix_like.cube.mosaic_grid import Field, MosaicGrid

_BAD = 1e-30
"""Weight of a flagged voxel: it counts only where there is no good one."""


class FibreNoise(NamedTuple):
    """What the spaxels of a pointing are made of: (spaxel, fibre), the fibres' variances (fibre, wave), and which of
    their bins no systematic error flags."""

    weights: csr_array
    variance: Float[ndarray, "fibre wave"]
    good: Bool[ndarray, "fibre wave"]

    def used(self, bin_: int) -> Any:
        """The weights in one bin, those of flagged fibres given to the others."""
        return without_flagged(self.weights, self.good[:, bin_])


class PointingLayer(NamedTuple):
    """A pointing as it enters the mosaic: (spaxel, wave) arrays on the host, and its overlap with the mosaic."""

    flux: Float[ndarray, "spaxel wave"]
    variance: Float[ndarray, "spaxel wave"] | None
    mask: Int[ndarray, "spaxel _"]
    overlap: csr_array
    fibres: FibreNoise | None = None

    @property
    def share(self) -> Float[ndarray, "spaxel _"]:
        """By how much each voxel counts, beside its area: good ones wholly."""
        return np.where(self.mask == 0, 1.0, _BAD)


def pointing_weights(parts: Sequence[PointingLayer]) -> list[Float[ndarray, " wave"]]:
    """Each pointing's inverse median variance over its good spaxels, by wavelength; 1 where one of them is 0."""
    n_wave = parts[0].flux.shape[1]
    depths = np.ones((len(parts), n_wave))
    for depth, part in zip(depths, parts, strict=True):
        if part.variance is not None:
            good = np.any(part.mask == 0, axis=1)
            depth[:] = np.median(part.variance[good] if good.any() else part.variance, axis=0)
    known = np.all(depths > 0, axis=0)
    return [np.where(known, depths.min(axis=0) / np.where(known, depth, 1.0), 1.0) for depth in depths]


def summed_variance(part: PointingLayer) -> Float[ndarray, "own wave"]:
    """Variance of a pointing's part of the sums, before the pointing's weight."""
    if part.variance is None:
        raise ValueError("expected a pointing with noise, got one without variance")
    if part.fibres is None:
        return part.overlap.power(2) @ (part.share**2 * part.variance)
    share = np.broadcast_to(part.share, part.flux.shape)
    both = np.concatenate([share, part.fibres.good])
    _, first, kind = np.unique(both, axis=1, return_index=True, return_inverse=True)
    found = np.empty((len(part.overlap.indptr) - 1, share.shape[1]))
    for number, example in enumerate(first):
        bins = kind.reshape(-1) == number
        linear = part.overlap @ diags_array(share[:, example]) @ part.fibres.used(int(example))
        found[:, bins] = linear.power(2) @ part.fibres.variance[:, bins]
    return found


class PointingNoise(eqx.Module):
    """Variance and mask (y, x, wave) of a pointing, its weight, its fibres if it has any, and where it lies."""

    variance: Float[Array | ndarray, "y x wave"]
    mask: Int[Array | ndarray, "y x wave"]
    weight: Float[Array | ndarray, " wave"]
    fibres: FibreSpectra | None
    field: Field = eqx.field(static=True)

    def layer(self, grid: MosaicGrid, bin_: int) -> PointingLayer:
        """It in one bin, without flux."""
        variance, mask = (np.asarray(own)[:, :, bin_].reshape(-1, 1) for own in (self.variance, self.mask))
        nothing = np.zeros(variance.shape)
        fibres = None if self.fibres is None else fibre_noise(self.fibres, slice(bin_, bin_ + 1))
        return PointingLayer(nothing, variance.astype(np.float64), mask, grid.overlap(self.field), fibres)


def fibre_noise(fibres: FibreSpectra, bins: slice = slice(None)) -> FibreNoise | None:
    """The noise of a pointing's fibres in some bins; None without any."""
    if fibres.variance is None:
        return None
    variance = np.asarray(fibres.variance[:, bins], dtype=np.float64)
    return FibreNoise(fibres.weights.matrix(), variance, fibres.good[:, bins])


class MosaicNoise(eqx.Module):
    """What the covariance of a mosaic is made of; a pytree.

    `bins`, `rows`, `columns`: the part of the mosaic that is left of it, first and last (exclusive).
    """

    pointings: tuple[PointingNoise, ...]
    grid: MosaicGrid = eqx.field(static=True)
    bins: tuple[int, int] = eqx.field(static=True)
    rows: tuple[int, int] = eqx.field(static=True)
    columns: tuple[int, int] = eqx.field(static=True)

    @classmethod
    def of(cls, pointings: tuple[PointingNoise, ...], grid: MosaicGrid) -> "MosaicNoise":
        """That of a whole mosaic."""
        n_wave, (n_y, n_x) = pointings[0].variance.shape[2], grid.footprint.shape
        return cls(pointings, grid, (0, n_wave), (0, n_y), (0, n_x))

    def part(self, bins: slice) -> "MosaicNoise":
        """That of some bins."""
        return MosaicNoise(self.pointings, self.grid, _within(self.bins, bins), self.rows, self.columns)

    def within(self, rows: slice, columns: slice) -> "MosaicNoise":
        """That of some spaxels."""
        return MosaicNoise(
            self.pointings, self.grid, self.bins, _within(self.rows, rows), _within(self.columns, columns)
        )

    def linear_map(self, bin_: int) -> tuple[Any, Float[ndarray, " source"], tuple[int, int]]:
        """W (spaxel, source) as a scipy CSR array, V (source,) and the shape of the spaxels, in one bin."""
        layers = [own.layer(self.grid, self.bins[0] + bin_) for own in self.pointings]
        weights = [float(own.weight[self.bins[0] + bin_]) for own in self.pointings]
        maps, variances, total = [], [], np.zeros(self.grid.footprint.n_element)
        for layer, weight in zip(layers, weights, strict=True):
            share = layer.share[:, 0]
            total = total + weight * (layer.overlap @ share)
            own = weight * (layer.overlap @ diags_array(share))
            maps.append(own if layer.fibres is None else own @ layer.fibres.used(0))
            source = layer.variance if layer.fibres is None else layer.fibres.variance
            assert source is not None
            variances.append(source[:, 0])
        inverse = np.where(total > 0, 1.0 / np.where(total > 0, total, 1.0), 0.0)
        whole = csr_array(diags_array(inverse) @ hstack(maps, format="csr"))
        number = np.arange(total.size).reshape(self.grid.footprint.shape)[slice(*self.rows), slice(*self.columns)]
        return whole[number.ravel()], np.concatenate(variances), number.shape


def _within(own: tuple[int, int], part: slice) -> tuple[int, int]:
    """First and last of a part of a part."""
    first, last, _ = part.indices(own[1] - own[0])
    return own[0] + first, own[0] + last
