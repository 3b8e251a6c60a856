"""A pyramid of grids: how much of something lies in front of any position, each particle as wide as it is.

Every level is a grid of cells twice as wide as those of the level below, centred on the same point. A particle is split
between the two levels around its own width. Shared among cells in three directions (cic) and read by interpolation, it
becomes a smooth kernel whose variance on the sky is a third of a cell's side squared.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from rubix_like.cube.footprint import Footprint

VARIANCE: float = 0.075
"""Variance along an axis of a cubic spline kernel per square of the length at which it ends (Dehnen & Aly 2012, MNRAS
425, 1068, table 1)."""

DEPTH: float = 2.0 / 3.0**0.5
"""Depth of a cell over its side for which the kernel is as wide along the line of sight as across it: its variance is a
cell's squared / 4 there (cic, then the running sum), and / 3 on the sky (cic, then bilinear)."""

_BEYOND = 4
"""Side of the coarsest level's cells over that of the field: wider particles are as wide as that."""

_FAR = 4
"""How much further along the line of sight than the finest cells all others reach."""


Shape = tuple[int, int, int]
"""Cells of one level along y, x and the line of sight, with one more at each end than the field has."""


class Levels(NamedTuple):
    """The static sizes of all levels, finest first."""

    shapes: tuple[Shape, ...]

    @classmethod
    def of(cls, field: Footprint, cells: int) -> "Levels":
        """Grids over a field with `cells` cells (or one more) along its longer side and the line of sight."""
        longest, most = max(field.shape), _even(cells)
        cores = [(*(_even(most * size / longest) for size in field.shape), most)]
        for number in range(int(np.ceil(np.log2(_BEYOND * cells)))):
            y, x, z = cores[-1]
            cores.append((_even(y / 2), _even(x / 2), _even((1 if number else _FAR) * z / 2)))
        return cls(tuple((y + 2, x + 2, z + 2) for y, x, z in cores))

    @property
    def n_cell(self) -> int:
        """Cells of all levels."""
        return int(self.offsets[-1])

    @property
    def offsets(self) -> Int[np.ndarray, " boundary"]:
        """Where each level's cells begin in the array of all, and where the last one's end."""
        return np.cumsum([0, *(int(np.prod(shape)) for shape in self.shapes)])

    @property
    def widths(self) -> Float[np.ndarray, " level"]:
        """The width of each level's cells over that of the finest ones."""
        return 2.0 ** np.arange(len(self.shapes))


def _even(size: float | int) -> int:
    """The smallest even number that is not less."""
    return max(2, 2 * int(np.ceil(size / 2 - 1e-9)))


class Pyramid(eqx.Module):
    """The grids: `side` (arcsec) of the finest level's cells, which are `DEPTH` times as deep.

    Positions are (x, y, z) from the field's centre, z away from the observer. Particles beyond the grids are ignored in
    x and y, and put at their ends in z; those beyond the finest levels along z are at least as wide as the next ones.
    """

    side: Float[Array, ""]
    levels: Levels = eqx.field(static=True)

    @classmethod
    def over(cls, field: Footprint, cells: int) -> "Pyramid":
        """The grids over a field with `cells` cells along its longer side."""
        levels = Levels.of(field, cells)
        return cls(jnp.asarray(field.pixel_scale * (max(field.shape) / (levels.shapes[0][2] - 2))), levels)

    def parts(
        self,
        position: Float[Array, "particle 3"],
        smoothing_length: Float[Array, " particle"],
        amount: Float[Array, " particle"],
    ) -> tuple[Int[Array, "particle 16"], Float[Array, "particle 16"]]:
        """The cells of the array of all levels to which each particle adds, and what: an amount per square arcsec.

        `smoothing_length` (arcsec) is where the particle's kernel ends. Cells beyond the last one get nothing.
        """
        low, share = self._shares(smoothing_length, position[:, 2])
        pairs = [self._on_level(position, level, amount * own) for level, own in ((low, 1 - share), (low + 1, share))]
        cells, amounts = zip(*pairs, strict=True)
        return jnp.concatenate(cells, axis=1), jnp.concatenate(amounts, axis=1)

    def _shares(
        self, smoothing_length: Float[Array, " particle"], z: Float[Array, " particle"]
    ) -> tuple[Int[Array, " particle"], Float[Array, " particle"]]:
        """The narrower of the two levels around each particle's variance, and the share of the wider one."""
        ladder = self.side**2 / 3 * jnp.asarray(self.levels.widths**2, self.side.dtype)
        is_far = jnp.abs(z) > DEPTH * self.side * (0.5 * self.levels.shapes[0][2] - 1)
        narrowest = jnp.where(is_far, ladder[1], ladder[0])
        variance = jnp.clip(VARIANCE * smoothing_length**2, narrowest, ladder[-1])
        above = jnp.searchsorted(ladder, lax.stop_gradient(variance), side="right").astype(jnp.int32)
        low = jnp.clip(above - 1, 0, len(self.levels.shapes) - 2)
        return low, (variance - ladder[low]) / (ladder[low + 1] - ladder[low])

    def _on_level(
        self, position: Float[Array, "particle 3"], level: Int[Array, " particle"], amount: Float[Array, " particle"]
    ) -> tuple[Int[Array, "particle 8"], Float[Array, "particle 8"]]:
        """The eight cells of one level around each particle."""
        shapes = jnp.asarray(self.levels.shapes, jnp.int32)[level]
        offset = jnp.asarray(self.levels.offsets[:-1], jnp.int32)[level]
        wider = jnp.asarray(self.levels.widths, self.side.dtype)[level]
        side, depth = self.side * wider, DEPTH * self.side * wider
        (first_x, x), (first_y, y), (first_z, z) = (
            _between(position[:, axis] / size, shapes[:, place], ends=axis == 2)
            for axis, place, size in ((0, 1, side), (1, 0, side), (2, 2, depth))
        )
        n_y, n_x, n_z = shapes[:, 0], shapes[:, 1], shapes[:, 2]
        per_area = amount / side**2
        cells, amounts = [], []
        for step_y, share_y in ((0, 1 - y), (1, y)):
            for step_x, share_x in ((0, 1 - x), (1, x)):
                row, column = first_y + step_y, first_x + step_x
                inside = (row >= 0) & (row < n_y) & (column >= 0) & (column < n_x)
                start = offset + (row * n_x + column) * n_z + first_z
                own = per_area * share_y * share_x
                for step_z, share_z in ((0, 1 - z), (1, z)):
                    cells.append(jnp.where(inside, start + step_z, self.levels.n_cell))
                    amounts.append(own * share_z)
        return jnp.stack(cells, axis=1), jnp.stack(amounts, axis=1)

    def in_front(self, sums: Float[Array, " cell"]) -> "InFront":
        """The sums of all cells' parts as what is in front of any position."""
        offsets = self.levels.offsets
        running = [
            _running(sums[first:last].reshape(shape))
            for first, last, shape in zip(offsets[:-1], offsets[1:], self.levels.shapes, strict=True)
        ]
        fine, *others, coarse = running
        for finer in reversed(others):
            coarse = finer + _refined(coarse, finer.shape)
        return InFront(fine, coarse, self.side)


class InFront(eqx.Module):
    """How much lies in front of any position, per square arcsec: running sums at the faces of cells along z.

    `fine` is that of the finest level, with cells of this `side` (arcsec); `coarse` that of all others, on cells twice
    as large.
    """

    fine: Float[Array, "y x face"]
    coarse: Float[Array, "y2 x2 face2"]
    side: Float[Array, ""]

    def at(self, position: Float[Array, "particle 3"]) -> Float[Array, " particle"]:
        """The amount in front of positions (x, y, z) in arcsec from the field's centre, linear between cells."""
        return _trilinear(self.fine, position, self.side) + _trilinear(self.coarse, position, 2 * self.side)

    def through(self, field: Footprint) -> Float[Array, "row column"]:
        """The amount along whole lines of sight, its mean over each spaxel of a footprint about the same centre."""
        coarse = self.coarse[:, :, -1:]
        whole = (self.fine[:, :, -1:] + _refined(coarse, (*self.fine.shape[:2], 0)))[:, :, 0]
        x, y = field.centres(jnp)
        rows, columns = (
            _overlaps(centres, field.pixel_scale, size, self.side)
            for centres, size in ((y, whole.shape[0]), (x, whole.shape[1]))
        )
        return jnp.einsum("ri,ij,cj->rc", rows, whole, columns, precision=lax.Precision.HIGHEST)


def _between(
    place: Float[Array, " particle"], n_cell: Int[Array, " particle"] | int, *, ends: bool
) -> tuple[Int[Array, " particle"], Float[Array, " particle"]]:
    """The cell below a place (in cells from the middle of `n_cell`), and how far it is towards the next one.

    `ends`: places beyond the first or last cell's centre are put there; else they keep what cannot be an index.
    """
    size = jnp.asarray(n_cell, place.dtype)
    place = place + 0.5 * size - 0.5
    if ends:
        low = jnp.clip(jnp.floor(lax.stop_gradient(place)), 0.0, size - 2)
        return low.astype(jnp.int32), jnp.clip(place - low, 0.0, 1.0)
    low = jnp.floor(lax.stop_gradient(jnp.clip(place, -2.0, size + 1)))
    return low.astype(jnp.int32), jnp.clip(place - low, 0.0, 1.0)


def _running(cells: Float[Array, "y x z"]) -> Float[Array, "y x face"]:
    """The sum of all cells in front of each face."""
    return jnp.pad(jnp.cumsum(cells, axis=2), ((0, 0), (0, 0), (1, 0)))


def _refined(coarse: Float[Array, "y2 x2 face2"], shape: tuple[int, ...]) -> Float[Array, "y x face"]:
    """Running sums on cells of half the size, by linear interpolation, the middle of them in `shape`.

    Cells' centres across the line of sight, faces along it; a single face stays one (`shape` ends in 0 there).
    """
    for axis in (0, 1):
        coarse = _halved(coarse, axis, shape[axis])
    if shape[2] == 0:
        return coarse
    middle = 0.5 * (coarse[:, :, 1:] + coarse[:, :, :-1])
    both = jnp.stack([coarse[:, :, :-1], middle], axis=3).reshape(*coarse.shape[:2], -1)
    faces = jnp.concatenate([both, coarse[:, :, -1:]], axis=2)
    start = (faces.shape[2] - shape[2]) // 2
    return faces[:, :, start : start + shape[2]]


def _halved(cells: Float[Array, "y x face"], axis: int, size: int) -> Float[Array, "y2 x2 face"]:
    """Values at the centres of cells as those of `size` cells of half the width, in the middle."""
    n_cell = cells.shape[axis]
    before = lax.slice_in_dim(cells, 0, n_cell - 1, axis=axis)
    after = lax.slice_in_dim(cells, 1, n_cell, axis=axis)
    both = jnp.stack([0.75 * before + 0.25 * after, 0.25 * before + 0.75 * after], axis=axis + 1)
    halves = both.reshape(*cells.shape[:axis], 2 * (n_cell - 1), *cells.shape[axis + 1 :])
    start = (2 * (n_cell - 1) - size) // 2
    return lax.slice_in_dim(halves, start, start + size, axis=axis)


def _trilinear(
    sums: Float[Array, "y x face"], position: Float[Array, "particle 3"], side: Array
) -> Float[Array, " particle"]:
    """Running sums at positions: between centres of cells across the line of sight, between faces along it."""
    n_y, n_x, n_face = sums.shape
    (row, y), (column, x), (face, z) = (
        _between(position[:, axis] / size, number, ends=True)
        for axis, size, number in ((1, side, n_y), (0, side, n_x), (2, DEPTH * side, n_face))
    )
    flat, found = sums.reshape(-1), jnp.zeros_like(z)
    for step_y, share_y in ((0, 1 - y), (1, y)):
        for step_x, share_x in ((0, 1 - x), (1, x)):
            start = ((row + step_y) * n_x + column + step_x) * n_face + face
            found += share_y * share_x * ((1 - z) * flat[start] + z * flat[start + 1])
    return found


def _overlaps(
    centres: Float[Array, " spaxel"], width: Float[Array, ""], n_cell: int, side: Float[Array, ""]
) -> Float[Array, "spaxel cell"]:
    """Which share of each spaxel lies in each cell, along one axis."""
    low = (jnp.arange(n_cell, dtype=centres.dtype) - 0.5 * n_cell) * side
    first = jnp.maximum(low[None, :], centres[:, None] - 0.5 * width)
    last = jnp.minimum(low[None, :] + side, centres[:, None] + 0.5 * width)
    return jnp.maximum(last - first, 0.0) / width
