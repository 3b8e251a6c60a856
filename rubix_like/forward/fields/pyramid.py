"""A pyramid of grids: how much of something lies in front of any position, each particle as wide as it is.

Every level is a grid of cells twice as wide as those of the level below, centred on the same point. Each but the finest
is there twice: as it is, and to be softened, which doubles the variance of its kernels. That makes a ladder of kernels,
and a particle is split between the two rungs around its own width. Shared among cells in three directions (cic, or tsc,
which is smoother) and read by interpolation, it becomes a smooth kernel of its own variance.
"""

import math
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from rubix_like.cube.footprint import Footprint
from rubix_like.engine.spaxels import deposit_weights

VARIANCE: float = 0.075
"""Variance along an axis of a cubic spline kernel per square of the length at which it ends (Dehnen & Aly 2012, MNRAS
425, 1068, table 1)."""

_VARIANCES: dict[str, tuple[float, float]] = {
    "cic": (1 / 6 + 1 / 6, 1 / 6 + 1 / 12),
    "tsc": (1 / 4 + 1 / 6, 1 / 4 + 1 / 12),
}
"""Variance (cells) of the kernel that deposit and look-up make: on the sky (deposit, then bilinear) and along the line
of sight (deposit, then the running sum)."""

_BEYOND = 4
"""Side of the coarsest level's cells over that of the field: wider particles are as wide as that."""

_FAR = 4
"""How much further along the line of sight than the finest cells all others reach."""


Shape = tuple[int, int, int]
"""Cells of one level along y, x and the line of sight, with one more at each end than the field has."""


class Levels(NamedTuple):
    """The static sizes of all levels, finest first, and of the rungs that lie on them."""

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
    def rungs(self) -> tuple[tuple[int, bool], ...]:
        """The level of each rung, from the narrowest kernel to the widest, and whether it is softened."""
        return ((0, False), *((level, soft) for level in range(1, len(self.shapes)) for soft in (False, True)))

    @property
    def rung_shapes(self) -> tuple[Shape, ...]:
        """Cells of each rung."""
        return tuple(self.shapes[level] for level, _ in self.rungs)

    @property
    def n_cell(self) -> int:
        """Cells of all rungs."""
        return int(self.offsets[-1])

    @property
    def offsets(self) -> Int[np.ndarray, " boundary"]:
        """Where each rung's cells begin in the array of all, and where the last one's end."""
        return np.cumsum([0, *(int(np.prod(shape)) for shape in self.rung_shapes)])

    @property
    def widths(self) -> Float[np.ndarray, " rung"]:
        """The width of each rung's cells over that of the finest ones."""
        return np.array([2.0**level for level, _ in self.rungs])


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
    deposit: str = eqx.field(static=True)

    @classmethod
    def over(cls, field: Footprint, cells: int, deposit: str) -> "Pyramid":
        """The grids over a field with `cells` cells along its longer side; `deposit`: cic or tsc."""
        levels = Levels.of(field, cells)
        side = jnp.asarray(field.pixel_scale * (max(field.shape) / (levels.shapes[0][2] - 2)))
        return cls(side, levels, deposit)

    @property
    def depth(self) -> float:
        """Depth of a cell over its side, such that kernels are as wide along the line of sight as across it."""
        across, along = _VARIANCES[self.deposit]
        return (across / along) ** 0.5

    @property
    def variances(self) -> Float[np.ndarray, " rung"]:
        """The variance of each rung's kernel on the sky, in squares of the finest cells' side.

        A grid that is brought to cells of half the size by linear interpolation, and those to the next, is smoothed by
        it: by 1/24 of the square of its cells' side at the first step, a quarter of that at the next.
        """
        level, soft = np.array(self.levels.rungs, dtype=float).T
        steps = np.maximum(level - 1, 0)
        return self.levels.widths**2 * (_VARIANCES[self.deposit][0] * (1 + soft) + (1 - 0.25**steps) / 18)

    def parts(
        self,
        position: Float[Array, "particle 3"],
        smoothing_length: Float[Array, " particle"],
        amount: Float[Array, " particle"],
    ) -> tuple[Int[Array, "particle part"], Float[Array, "particle part"]]:
        """The cells of the array of all levels to which each particle adds, and what: an amount per square arcsec.

        `smoothing_length` (arcsec) is where the particle's kernel ends. Cells beyond the last one get nothing.
        """
        low, share = self._shares(smoothing_length, position[:, 2])
        pairs = [self._on_rung(position, rung, amount * own) for rung, own in ((low, 1 - share), (low + 1, share))]
        cells, amounts = zip(*pairs, strict=True)
        return jnp.concatenate(cells, axis=1), jnp.concatenate(amounts, axis=1)

    def beyond(self, position: Float[Array, "particle 3"]) -> tuple[Bool[Array, " particle"], Bool[Array, " particle"]]:
        """Which particles lie beside the field, and which of the others in front of all grids or behind them."""
        half_y, half_x = (0.5 * (size - 2) * self.side for size in self.levels.shapes[0][:2])
        half_z = self.depth * self.side * (self.levels.shapes[1][2] - 2)
        beside = (jnp.abs(position[:, 0]) > half_x) | (jnp.abs(position[:, 1]) > half_y)
        return beside, ~beside & (jnp.abs(position[:, 2]) > half_z)

    def _shares(
        self, smoothing_length: Float[Array, " particle"], z: Float[Array, " particle"]
    ) -> tuple[Int[Array, " particle"], Float[Array, " particle"]]:
        """The narrower of the two rungs around each particle's variance, and the share of the wider one."""
        ladder = self.side**2 * jnp.asarray(self.variances, self.side.dtype)
        is_far = jnp.abs(z) > self.depth * self.side * (0.5 * self.levels.shapes[0][2] - 1)
        narrowest = jnp.where(is_far, ladder[1], ladder[0])
        variance = jnp.clip(VARIANCE * smoothing_length**2, narrowest, ladder[-1])
        above = jnp.searchsorted(ladder, lax.stop_gradient(variance), side="right").astype(jnp.int32)
        low = jnp.clip(above - 1, 0, len(self.levels.rungs) - 2)
        return low, (variance - ladder[low]) / (ladder[low + 1] - ladder[low])

    def _on_rung(
        self, position: Float[Array, "particle 3"], rung: Int[Array, " particle"], amount: Float[Array, " particle"]
    ) -> tuple[Int[Array, "particle near"], Float[Array, "particle near"]]:
        """The cells of one rung around each particle: 2 x 2 x 2, or 3 x 3 x 3."""
        shapes = jnp.asarray(self.levels.rung_shapes, jnp.int32)[rung]
        offset = jnp.asarray(self.levels.offsets[:-1], jnp.int32)[rung]
        side = self.side * jnp.asarray(self.levels.widths, self.side.dtype)[rung]
        middle = 0.5 * shapes.astype(side.dtype) - 0.5
        n_y, n_x, n_z = (shapes[:, axis, None] for axis in range(3))
        column, x = deposit_weights(position[:, 0] / side + middle[:, 1], self.deposit)
        row, y = deposit_weights(position[:, 1] / side + middle[:, 0], self.deposit)
        depth = position[:, 2] / (self.depth * side) + middle[:, 2]
        along, z = deposit_weights(jnp.clip(depth, 0.0, 2 * middle[:, 2]), self.deposit)
        inside = ((row >= 0) & (row < n_y))[:, :, None] & ((column >= 0) & (column < n_x))[:, None, :]
        first = jnp.where(inside, offset[:, None, None] + (row * n_x)[:, :, None] * n_z[:, :, None], 0)
        start = first + column[:, None, :] * n_z[:, :, None]
        cells = start[:, :, :, None] + jnp.clip(along, 0, n_z - 1)[:, None, None, :]
        shares = y[:, :, None, None] * x[:, None, :, None] * z[:, None, None, :]
        cells = jnp.where(inside[:, :, :, None], cells, self.levels.n_cell)
        amounts = (amount / side**2)[:, None, None, None] * shares
        near = math.prod(cells.shape[1:])
        return cells.reshape(len(rung), near), amounts.reshape(len(rung), near)

    def in_front(self, sums: Float[Array, " cell"]) -> "InFront":
        """The sums of all cells' parts as what is in front of any position."""
        offsets = self.levels.offsets
        parts = [
            sums[first:last].reshape(shape)
            for first, last, shape in zip(offsets[:-1], offsets[1:], self.levels.rung_shapes, strict=True)
        ]
        across, along = _VARIANCES[self.deposit]
        pairs = zip(parts[1::2], parts[2::2], strict=True)
        running = [_running(parts[0]), *(_running(sharp + _softened(soft, across, along)) for sharp, soft in pairs)]
        fine, *others, coarse = running
        for finer in reversed(others):
            coarse = finer + _refined(coarse, finer.shape)
        return InFront(fine, coarse, self.side, self.depth)


class InFront(eqx.Module):
    """How much lies in front of any position, per square arcsec: running sums at the faces of cells along z.

    `fine` is that of the finest level, with cells of this `side` (arcsec); `coarse` that of all others, on cells twice
    as large.
    """

    fine: Float[Array, "y x face"]
    coarse: Float[Array, "y2 x2 face2"]
    side: Float[Array, ""]
    depth: float = eqx.field(static=True)

    def at(self, position: Float[Array, "particle 3"]) -> Float[Array, " particle"]:
        """The amount in front of positions (x, y, z) in arcsec from the field's centre, linear between cells."""
        fine = _trilinear(self.fine, position, self.side, self.depth)
        return fine + _trilinear(self.coarse, position, 2 * self.side, self.depth)

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
    place: Float[Array, " particle"], n_point: int
) -> tuple[Int[Array, " particle"], Float[Array, " particle"]]:
    """The point below a place (in steps from the middle of `n_point` points), and how far it is towards the next one.

    Places beyond the first or last point are put there.
    """
    place = place + (0.5 * n_point - 0.5)
    low = jnp.clip(jnp.floor(lax.stop_gradient(place)), 0.0, n_point - 2)
    return low.astype(jnp.int32), jnp.clip(place - low, 0.0, 1.0)


def _running(cells: Float[Array, "y x z"]) -> Float[Array, "y x face"]:
    """The sum of all cells in front of each face."""
    return jnp.pad(jnp.cumsum(cells, axis=2), ((0, 0), (0, 0), (1, 0)))


def _softened(cells: Float[Array, "y x z"], across: float, along: float) -> Float[Array, "y x z"]:
    """Amounts shared with the neighbouring cells, which adds these variances (cells) to their kernel.

    What leaves the field to the sides is lost; nothing leaves it along the line of sight.
    """
    for axis, variance in enumerate((across, across, along)):
        ends = [(int(own == axis),) * 2 for own in range(3)]
        padded = jnp.pad(cells, ends, mode="edge" if axis == 2 else "constant")
        before, after = (lax.slice_in_dim(padded, at, at + cells.shape[axis], axis=axis) for at in (0, 2))
        cells = (1 - variance) * cells + 0.5 * variance * (before + after)
    return cells


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
    sums: Float[Array, "y x face"], position: Float[Array, "particle 3"], side: Float[Array, ""], depth: float
) -> Float[Array, " particle"]:
    """Running sums at positions: between centres of cells across the line of sight, between faces along it."""
    n_y, n_x, n_face = sums.shape
    (row, y), (column, x), (face, z) = (
        _between(position[:, axis] / size, number)
        for axis, size, number in ((1, side, n_y), (0, side, n_x), (2, depth * side, n_face))
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
