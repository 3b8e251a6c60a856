"""The noise of a mosaic: every spaxel is a weighted mean of those of the pointings, so that neighbours share noise.

The mosaic is a linear map of independent numbers: of the pointings' spaxels or, where these were made of fibres, of
the spectra of those. Its covariance is W V W^T, with the map W and the variances V.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray
from scipy.sparse import csr_array, diags_array, hstack

from rubix_like.cube.fibres.fibre_spectra import FibreSpectra, without_flagged
from rubix_like.cube.footprint import Footprint
from rubix_like.physics.tangent_plane import convergence, from_tangent_plane

_ROUNDING = 6
"""Digits of a side to which edges are compared."""


class Field(NamedTuple):
    """A footprint: `offset` (East, North; arcsec) of its centre from the reference, `angle` (deg) of its +y axis."""

    offset: tuple[float, float]
    angle: float
    footprint: Footprint


class MosaicGrid(NamedTuple):
    """Upright spaxels (`footprint`) in the plane that touches the sky at `reference` (RA, Dec in deg).

    `left`, `bottom`: the outer edges of the first column and row, in spaxels West and North of the reference.
    """

    reference: tuple[float, float]
    left: float
    bottom: float
    footprint: Footprint

    @property
    def center(self) -> tuple[float, float]:
        """RA and Dec of the grid's centre in deg."""
        grid = self.footprint
        west, north = self.left + grid.n_x / 2, self.bottom + grid.n_y / 2
        return from_tangent_plane(self.reference, (-west * grid.pixel_scale, north * grid.pixel_scale))

    @property
    def field_angle(self) -> float:
        """Position angle (deg) of +y at the centre: 0 but for the convergence of the meridians."""
        return convergence(self.reference, self.center)

    def overlap(self, field: Field) -> csr_array:
        """Area in spaxels that each spaxel of the grid shares with each of a field, (n_y n_x, field's n_y n_x)."""
        west, north = _placed(field, *field.footprint.shape)
        return overlap_matrix(west - self.left, north - self.bottom, *self.footprint.shape)


def _placed(
    field: Field, n_step_y: int, n_step_x: int
) -> tuple[Float[ndarray, "row column"], Float[ndarray, "row column"]]:
    """(West, North) of evenly spaced points of a field, edges included, from the reference, in spaxels."""
    (n_y, n_x), pixel_scale = field.footprint.shape, field.footprint.pixel_scale
    x = np.linspace(-n_x / 2, n_x / 2, n_step_x + 1)[None, :]
    y = np.linspace(-n_y / 2, n_y / 2, n_step_y + 1)[:, None]
    cos, sin = math.cos(math.radians(field.angle)), math.sin(math.radians(field.angle))
    east, north = (value / pixel_scale for value in field.offset)
    return x * cos - y * sin - east, x * sin + y * cos + north


def grid_around(reference: tuple[float, float], fields: Sequence[Field]) -> MosaicGrid:
    """The smallest grid with all of the fields, its spaxels in step with those of the first where that is upright."""
    (east, north), first = fields[0].offset, fields[0].footprint
    corners = [_placed(field, 1, 1) for field in fields]
    origins = -east / first.pixel_scale - first.n_x / 2, north / first.pixel_scale - first.n_y / 2
    edges = []
    for axis, origin in enumerate(origins):
        low = min(float(corner[axis].min()) for corner in corners) - origin
        high = max(float(corner[axis].max()) for corner in corners) - origin
        before, after = math.floor(round(low, _ROUNDING)), math.ceil(round(high, _ROUNDING))
        edges.append((origin + before, after - before))
    (left, n_x), (bottom, n_y) = edges
    return MosaicGrid(reference, left, bottom, Footprint(n_y, n_x, first.pixel_scale))


_CHUNK = 8192

_REACH = 3
"""Upright unit squares that a turned one can touch along an axis."""

_DIGITS = 6
"""Corners are rounded to 1e-6 of a side, so that grids that agree to rounding agree exactly."""


def overlap_matrix(
    corner_x: Float[ndarray, "row_corner column_corner"],
    corner_y: Float[ndarray, "row_corner column_corner"],
    n_rows: int,
    n_columns: int,
) -> csr_array:
    """Area that square j of an upright grid shares with square i of a grid with these corners: (upright, turned).

    Upright squares have sides of 1, from 0 to `n_columns` in x and `n_rows` in y; so have, up to a turn, the others.
    Flat indices run along x first. Areas outside the upright grid are left out.
    """
    corners = np.round(np.stack([corner_x, corner_y], axis=-1), _DIGITS)
    around = [corners[:-1, :-1], corners[:-1, 1:], corners[1:, 1:], corners[1:, :-1]]
    squares = np.stack(around, axis=2).reshape(-1, 4, 2)
    parts = [_overlaps(squares[start : start + _CHUNK], start) for start in range(0, len(squares), _CHUNK)]
    source, column, row, area = (np.concatenate(values) for values in zip(*parts, strict=True))
    inside = (column >= 0) & (column < n_columns) & (row >= 0) & (row < n_rows) & (area > 1e-9)
    target = row[inside] * n_columns + column[inside]
    return csr_array((area[inside], (target, source[inside])), shape=(n_rows * n_columns, len(squares)))


def _overlaps(squares: Float[ndarray, "square 4 2"], first: int) -> tuple[ndarray, ndarray, ndarray, ndarray]:
    """(square, column, row, area) for every pair of a square and an upright one near it."""
    lowest = np.floor(squares.min(axis=1)).astype(np.int64)
    steps = np.stack(np.meshgrid(np.arange(_REACH), np.arange(_REACH), indexing="ij"), axis=-1).reshape(-1, 2)
    cells = lowest[:, None, :] + steps[None, :, :]
    moved = squares[:, None, :, :] - cells[:, :, None, :]
    source = np.broadcast_to(first + np.arange(len(squares))[:, None], cells.shape[:2])
    return source.ravel(), cells[..., 0].ravel(), cells[..., 1].ravel(), area_in_unit_square(moved).ravel()


def area_in_unit_square(polygons: Float[ndarray, "*polygon corner 2"]) -> Float[ndarray, "*polygon"]:
    """Area of polygons within the unit square [0, 1] x [0, 1].

    By Green's theorem it is the integral of x dy along the edges, x and y limited to [0, 1]: what lies outside is
    pushed onto the square's rim, where it holds no area. Along an edge, limited x and y are linear between the places
    where it meets the four lines of the rim, so that the trapezoids between those are exact.
    """
    start = polygons
    edge = np.roll(polygons, -1, axis=-2) - start
    with np.errstate(divide="ignore", invalid="ignore"):
        meets = np.concatenate([-start / edge, (1 - start) / edge], axis=-1)
    meets = np.clip(np.nan_to_num(meets), 0, 1)
    ends = np.zeros((*meets.shape[:-1], 1))
    along = np.sort(np.concatenate([ends, meets, ends + 1], axis=-1), axis=-1)
    x, y = (np.clip(start[..., axis, None] + along * edge[..., axis, None], 0, 1) for axis in (0, 1))
    mean_x, step_y = (x[..., 1:] + x[..., :-1]) / 2, np.diff(y, axis=-1)
    return np.abs(np.sum(mean_x * step_y, axis=(-2, -1)))


_BAD = 1e-30
"""Weight of a flagged voxel: it counts only where there is no good one."""


class FibreNoise(NamedTuple):
    """The map from fibres to the spaxels of a pointing, the fibres' variances (fibre, wave), and which of their bins no
    systematic error flags."""

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
        """The weight of each voxel, beside its area: 1 where it is good."""
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
        """The pointing in one bin, without flux."""
        variance, mask = (np.asarray(values)[:, :, bin_].reshape(-1, 1) for values in (self.variance, self.mask))
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
    """The noise of a mosaic's pointings, of which its covariance is made; a pytree.

    `bins`, `rows`, `columns`: the part of the mosaic that is left of it, first and last (exclusive).
    """

    pointings: tuple[PointingNoise, ...]
    grid: MosaicGrid = eqx.field(static=True)
    bins: tuple[int, int] = eqx.field(static=True)
    rows: tuple[int, int] = eqx.field(static=True)
    columns: tuple[int, int] = eqx.field(static=True)

    @classmethod
    def of(cls, pointings: tuple[PointingNoise, ...], grid: MosaicGrid) -> "MosaicNoise":
        """The noise of a whole mosaic."""
        n_wave, (n_y, n_x) = pointings[0].variance.shape[2], grid.footprint.shape
        return cls(pointings, grid, (0, n_wave), (0, n_y), (0, n_x))

    def part(self, bins: slice) -> "MosaicNoise":
        """The noise in some bins."""
        return MosaicNoise(self.pointings, self.grid, _within(self.bins, bins), self.rows, self.columns)

    def within(self, rows: slice, columns: slice) -> "MosaicNoise":
        """The noise of some spaxels."""
        kept = _within(self.rows, rows), _within(self.columns, columns)
        return MosaicNoise(self.pointings, self.grid, self.bins, *kept)

    def linear_map(self, bin_: int) -> tuple[Any, Float[ndarray, " source"], tuple[int, int]]:
        """W (spaxel, source) as a scipy CSR array, V (source,) and the shape of the spaxels, in one bin."""
        maps, variances, total = [], [], np.zeros(self.grid.footprint.n_element)
        for pointing in self.pointings:
            layer, weight = pointing.layer(self.grid, self.bins[0] + bin_), float(pointing.weight[self.bins[0] + bin_])
            share = layer.share[:, 0]
            total = total + weight * (layer.overlap @ share)
            linear = weight * (layer.overlap @ diags_array(share))
            maps.append(linear if layer.fibres is None else linear @ layer.fibres.used(0))
            source = layer.variance if layer.fibres is None else layer.fibres.variance
            assert source is not None
            variances.append(source[:, 0])
        inverse = np.where(total > 0, 1.0 / np.where(total > 0, total, 1.0), 0.0)
        whole = csr_array(diags_array(inverse) @ hstack(maps, format="csr"))
        number = np.arange(total.size).reshape(self.grid.footprint.shape)[slice(*self.rows), slice(*self.columns)]
        return whole[number.ravel()], np.concatenate(variances), number.shape


def _within(ends: tuple[int, int], part: slice) -> tuple[int, int]:
    first, last, _ = part.indices(ends[1] - ends[0])
    return ends[0] + first, ends[0] + last
