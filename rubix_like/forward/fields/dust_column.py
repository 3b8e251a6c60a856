"""Field `dust_column`: the dust of the gas in front of any position, for what shines to be dimmed by."""

import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray
from scipy.special import ndtr

from rubix_like.config.sections.dust import DUST_COLUMN, ParticleDustSettings
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.meta import LINE_OF_SIGHT, NO_DUST, SourceCounters
from rubix_like.engine.setup import Setup
from rubix_like.engine.spaxels import SpaxelGrid, deposit_weights
from rubix_like.forward.fields.field import AbstractField, Parts
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.sources.source import Kind, ReaderWords
from rubix_like.forward.stages.base import refuse_options
from rubix_like.galaxy.limits import LARGEST
from rubix_like.galaxy.particles import CELL_RADII, Galaxy, Gas
from rubix_like.galaxy.scene import Scene
from rubix_like.physics.cosmology import find_cosmology, hubble

VARIANCE: float = 0.075
"""Variance along an axis of a cubic spline kernel per square of the length at which it ends (Dehnen & Aly 2012, MNRAS
425, 1068, table 1)."""

_SHARED: dict[str, float] = {"cic": 1 / 6, "tsc": 1 / 4}
"""Variance (cells) of sharing a particle along an axis."""

_READ: float = 1 / 6
"""Variance (cells) of linear interpolation along an axis."""

_LENGTHS: tuple[float, float] = (4.0, 4.0 * 2**0.5)
"""Lengths (cells) of the kernels on the two filtered rungs of each level."""

_TAPS: dict[str, tuple[tuple[float, ...], ...]] = {
    "cic": ((0.2779, 0.0298), (0.2183, 0.1218, 0.0305)),
    "tsc": ((0.2805, 0.0192), (0.2155, 0.1243, 0.0256)),
}
"""Weights of the neighbours (the next, the second, ...) in the filters of these two rungs, fitted to columns of the
kernel at random offsets by least squares over all lengths that are mixed of two rungs."""

_MARGIN = 4
"""Cells of each filtered rung beside the field, at each end: gas there reaches into the field."""

_BEYOND = 2
"""Side of the coarsest level's cells over that of the field: wider particles are as wide as the widest kernel."""

_DEPTH: float = (4 / 3) ** 0.5
"""Depth of the narrowest rung's cells over their side, such that its kernel is as wide along the line of sight."""

_FAR, _N_FAR = 4 * _DEPTH, 12
"""How much further along the line of sight all grids reach than the field is wide, and their cells there, at each end.

Within the near part, as long as the field is wide, cells are short enough for the kernels."""

Shape = tuple[int, int, int]
"""Cells along y, x and the line of sight."""


class Rung(NamedTuple):
    """A grid: its cells, their `side` and the `length` of its kernels in sides of the finest cells, and its filter.

    Along the line of sight `near` cells lie between the middle and the end of the near part, `far` beyond it.
    """

    shape: Shape
    side: int
    length: float
    taps: tuple[float, ...]
    near: int
    far: int

    @property
    def centres(self) -> Float[np.ndarray, " z"]:
        """Centres of the cells along the line of sight, in units of the near part's half."""
        near, far = np.arange(self.near + 1) / self.near, 1 + (_FAR - 1) * np.arange(1, self.far + 1) / self.far
        ahead = np.concatenate([near, far])
        return np.concatenate([-ahead[:0:-1], ahead])


class Levels(NamedTuple):
    """The static sizes: `n` cells of the finest level along the field's longer side, and all rungs, narrowest first."""

    n: int
    rungs: tuple[Rung, ...]

    @classmethod
    def of(cls, field: Footprint, cells: int, deposit: str = "cic") -> "Levels":
        """Grids over a field with `cells` cells (or one more) along its longer side."""
        longest, n = max(field.shape), _even(cells)
        y, x = (_even(n * size / longest) for size in field.shape)
        narrowest = ((_SHARED[deposit] + _READ) / VARIANCE) ** 0.5
        rungs = [_rung((y + 2, x + 2), 1, narrowest, (), round(n / (2 * _DEPTH)))]
        for level in range(int(np.ceil(np.log2(_BEYOND * n))) + 1):
            side, across = 2**level, (y + 2 * _MARGIN, x + 2 * _MARGIN)
            for length, taps in zip(_LENGTHS, _TAPS[deposit], strict=True):
                rungs.append(_rung(across, side, side * length, taps, max(1, round(1.25 * n / (side * length)))))
            y, x = _even(y / 2), _even(x / 2)
        return cls(n, tuple(rungs))

    @property
    def n_cell(self) -> int:
        """Cells of all rungs."""
        return int(self.offsets[-1])

    @property
    def offsets(self) -> Int[np.ndarray, " boundary"]:
        """The place of each rung's first cell in the array of all, and the number of all cells."""
        return np.cumsum([0, *(math.prod(rung.shape) for rung in self.rungs)])


def _rung(across: tuple[int, int], side: int, length: float, taps: tuple[float, ...], near: int) -> Rung:
    far = min(_N_FAR, math.ceil((_FAR - 1) * near))
    return Rung((*across, 2 * (near + far) + 1), side, length, taps, near, far)


def _even(size: float | int) -> int:
    return max(2, 2 * int(np.ceil(size / 2 - 1e-9)))


class Pyramid(eqx.Module):
    """The grids: `side` (arcsec) of the finest level's cells, and the tables of the rungs.

    Positions are (x, y, z) from the field's centre, z away from the observer. Particles beyond the grids are ignored in
    x and y, and put at their ends in z.
    """

    side: Float[Array, ""]
    tables: "RungTables"
    levels: Levels = eqx.field(static=True)
    deposit: str = eqx.field(static=True)

    @classmethod
    def over(cls, field: Footprint, cells: int, deposit: str, tables: "RungTables | None" = None) -> "Pyramid":
        """The grids over a field with `cells` cells along its longer side; `deposit`: cic or tsc; `tables`: of their
        rungs, where they are at hand."""
        levels = Levels.of(field, cells, deposit)
        tables = RungTables.of(levels, deposit) if tables is None else tables
        return cls(jnp.asarray(field.pixel_scale * (max(field.shape) / levels.n)), tables, levels, deposit)

    @property
    def near(self) -> Float[Array, ""]:
        """Half of the length (arcsec) of the near part along the line of sight."""
        return 0.5 * self.levels.n * self.side

    def parts(
        self,
        position: Float[Array, "particle 3"],
        smoothing_length: Float[Array, " particle"],
        amount: Float[Array, " particle"],
    ) -> tuple[Int[Array, "particle part"], Float[Array, "particle part"]]:
        """The cells of the array of all rungs to which each particle adds, and what: an amount per square arcsec.

        `smoothing_length` (arcsec) is where the particle's kernel ends. Cells beyond the last one get nothing.
        """
        low, share = self._shares(smoothing_length)
        pairs = [self._on_rung(position, rung, amount * part) for rung, part in ((low, 1 - share), (low + 1, share))]
        cells, amounts = zip(*pairs, strict=True)
        return jnp.concatenate(cells, axis=1), jnp.concatenate(amounts, axis=1)

    def beyond(self, position: Float[Array, "particle 3"]) -> tuple[Bool[Array, " particle"], Bool[Array, " particle"]]:
        """Which particles lie beside the field, and which of the others in front of all grids or behind them."""
        half_y, half_x = (0.5 * (size - 2) * self.side for size in self.levels.rungs[0].shape[:2])
        beside = (jnp.abs(position[:, 0]) > half_x) | (jnp.abs(position[:, 1]) > half_y)
        return beside, ~beside & (jnp.abs(position[:, 2]) > _FAR * self.near)

    def _shares(
        self, smoothing_length: Float[Array, " particle"]
    ) -> tuple[Int[Array, " particle"], Float[Array, " particle"]]:
        """The narrower of the two rungs around each particle's length, and the share of the wider one.

        Shares are linear in 1 / length, which keeps the error of the mixed kernel smallest.
        """
        ladder = jnp.asarray(self.tables.lengths, self.side.dtype)[:, 0]
        length = jnp.clip(smoothing_length / self.side, ladder[0], ladder[-1])
        above = jnp.searchsorted(ladder, lax.stop_gradient(length), side="right").astype(jnp.int32)
        low = jnp.clip(above - 1, 0, len(self.levels.rungs) - 2)
        narrow, wide = ladder[low], ladder[low + 1]
        return low, (1 - narrow / length) / (1 - narrow / wide)

    def _on_rung(
        self, position: Float[Array, "particle 3"], rung: Int[Array, " particle"], amount: Float[Array, " particle"]
    ) -> tuple[Int[Array, "particle near"], Float[Array, "particle near"]]:
        """The cells of one rung around each particle: 2 x 2 x 2, or 3 x 3 x 3."""
        shapes, offset = jnp.split(jnp.asarray(self.tables.cells, jnp.int32)[rung], [3], axis=1)
        offset = offset[:, 0]
        _, width, near, far = jnp.asarray(self.tables.lengths, self.side.dtype)[rung].T
        side = self.side * width
        middle = 0.5 * shapes.astype(side.dtype) - 0.5
        n_y, n_x, n_z = (shapes[:, axis, None] for axis in range(3))
        column, x = deposit_weights(position[:, 0] / side + middle[:, 1], self.deposit)
        row, y = deposit_weights(position[:, 1] / side + middle[:, 0], self.deposit)
        depth = _depth(position[:, 2] / self.near, near, far) + middle[:, 2]
        along, z = deposit_weights(jnp.clip(depth, 0.0, 2 * middle[:, 2]), self.deposit)
        inside = ((row >= 0) & (row < n_y))[:, :, None] & ((column >= 0) & (column < n_x))[:, None, :]
        first = jnp.where(inside, offset[:, None, None] + (row * n_x)[:, :, None] * n_z[:, :, None], 0)
        start = first + column[:, None, :] * n_z[:, :, None]
        cells = start[:, :, :, None] + jnp.clip(along, 0, n_z - 1)[:, None, None, :]
        shares = y[:, :, None, None] * x[:, None, :, None] * z[:, None, None, :]
        cells = jnp.where(inside[:, :, :, None], cells, self.levels.n_cell)
        amounts = (amount / side**2)[:, None, None, None] * shares
        around = math.prod(cells.shape[1:])
        return cells.reshape(len(rung), around), amounts.reshape(len(rung), around)

    def in_front(self, sums: Float[Array, " cell"]) -> "InFront":
        """The sums of all cells' parts as what is in front of any position."""
        levels = self.levels
        parts = [
            sums[first:last].reshape(rung.shape)
            for first, last, rung in zip(levels.offsets[:-1], levels.offsets[1:], levels.rungs, strict=True)
        ]
        narrow = jnp.pad(jnp.cumsum(parts[0], axis=2), ((0, 0), (0, 0), (1, 0)))
        running = []
        for cells, rung, share in zip(parts[1:], levels.rungs[1:], self.tables.shares, strict=True):
            filtered = _filtered(cells, rung.taps, tuple(size - 2 * (_MARGIN - 1) for size in rung.shape[:2]))
            in_share = jnp.asarray(share, cells.dtype)
            running.append(jnp.einsum("yxz,zf->yxf", filtered, in_share, precision=lax.Precision.HIGHEST))
        *finer, wide = (first + second for first, second in zip(running[::2], running[1::2], strict=True))
        for level in reversed(finer):
            wide = level + _halved(_halved(wide, 0, level.shape[0]), 1, level.shape[1])
        return InFront(narrow, wide, self.side, levels)


class RungTables(NamedTuple):
    """Numbers that follow from the sizes of the rungs (arrays, so that compiled programs take them as arguments).

    `cells`: n_y, n_x, n_z and the place of the first cell of each rung; `lengths`: its `length`, `side`, `near` and
    `far`; `shares`: of each rung but the first the share of its kernels, by cell along z, in front of the faces that
    are read.
    """

    cells: Int[Array | ndarray, "rung 4"]
    lengths: Float[Array | ndarray, "rung 4"]
    shares: tuple[Float[Array | ndarray, "_ _"], ...]

    @classmethod
    def of(cls, levels: Levels, deposit: str) -> "RungTables":
        """The tables of these rungs. For its share each cell becomes a Gaussian that has the kernel's variance less
        that of sharing and reading."""
        read = levels.rungs[2]
        faces = 0.5 * (read.centres[1:] + read.centres[:-1])
        shares = []
        for rung in levels.rungs[1:]:
            depth, length = np.gradient(rung.centres), 2 * rung.length / levels.n
            added = _SHARED[deposit] * depth**2 + _READ / read.near**2
            sigma = np.sqrt(np.maximum(VARIANCE * length**2 - added, (depth / 6) ** 2))
            share = ndtr((faces - rung.centres[:, None]) / sigma[:, None])
            shares.append(np.concatenate([np.zeros_like(share[:, :1]), share, np.ones_like(share[:, :1])], axis=1))
        cells = [(*rung.shape, first) for rung, first in zip(levels.rungs, levels.offsets, strict=False)]
        lengths = [(rung.length, rung.side, rung.near, rung.far) for rung in levels.rungs]
        return cls(np.asarray(cells, np.int32), np.asarray(lengths, float), tuple(shares))


class InFront(eqx.Module):
    """How much lies in front of any position, per square arcsec, at the faces of cells along z.

    `narrow` holds the narrowest rung on cells of this `side` (arcsec), `wide` all others as coefficients of quadratic
    B-splines on the same cells.
    """

    narrow: Float[Array, "y x face"]
    wide: Float[Array, "y2 x2 face2"]
    side: Float[Array, ""]
    levels: Levels = eqx.field(static=True)

    def at(self, position: Float[Array, "particle 3"]) -> Float[Array, " particle"]:
        """The amount in front of positions (x, y, z) in arcsec from the field's centre."""
        narrow, _, wide = self.levels.rungs[:3]
        return self._read(self.narrow, position, narrow, 1) + self._read(self.wide, position, wide, 2)

    def _read(
        self, sums: Float[Array, "y x face"], position: Float[Array, "particle 3"], rung: Rung, degree: int
    ) -> Float[Array, " particle"]:
        """Sums at positions, by B-splines across the line of sight and linear between faces; beyond the field, those at
        its edge."""
        n_y, n_x, n_face = sums.shape
        (row, y), (column, x) = (
            _near_weights(jnp.clip(position[:, axis] / self.side, 1 - 0.5 * n, 0.5 * n - 1) + 0.5 * (n - 1), degree)
            for axis, n in ((1, n_y), (0, n_x))
        )
        depth = _depth(position[:, 2] / (0.5 * self.levels.n * self.side), rung.near, rung.far)
        face, z = _near_weights(jnp.clip(depth + 0.5 * (n_face - 1), 0.0, n_face - 1), 1)
        flat, found = sums.reshape(-1), jnp.zeros_like(depth)
        first = (row * n_x + column) * n_face + face
        for step_y, share_y in enumerate(y):
            for step_x, share_x in enumerate(x):
                start = first + (step_y * n_x + step_x) * n_face
                found += share_y * share_x * (z[0] * flat[start] + z[1] * flat[start + 1])
        return found

    def through(self, field: Footprint) -> Float[Array, "row column"]:
        """The amount along whole lines of sight, its mean over each spaxel of a footprint about the same centre."""
        y, x = (size - 2 for size in self.narrow.shape[:2])
        whole = self.narrow[1:-1, 1:-1, -1] + _filtered(self.wide[:, :, -1:], (1 / 6,), (y, x))[:, :, 0]
        x, y = field.centres(jnp)
        rows, columns = (
            _overlaps(centres, field.pixel_scale, size, self.side)
            for centres, size in ((y, whole.shape[0]), (x, whole.shape[1]))
        )
        return jnp.einsum("ri,ij,cj->rc", rows, whole, columns, precision=lax.Precision.HIGHEST)


def _near_weights(
    place: Float[Array, " particle"], degree: int
) -> tuple[Int[Array, " particle"], tuple[Float[Array, " particle"], ...]]:
    """The first cell and the weights of the 2 or 3 B-splines of a degree (1 or 2) at places in cells."""
    first = jnp.floor(lax.stop_gradient(place) + (0.5 * degree - 0.5)) - (degree - 1)
    d = place - first - (degree - 1)
    if degree == 1:
        return first.astype(jnp.int32), (1 - d, d)
    return first.astype(jnp.int32), (0.5 * (0.5 - d) ** 2, 0.75 - d**2, 0.5 * (0.5 + d) ** 2)


def _depth(
    place: Float[Array, " particle"], near: Float[Array, " particle"] | int, far: Float[Array, " particle"] | int
) -> Float[Array, " particle"]:
    """Places along the line of sight, in halves of the near part, as cells from the middle."""
    within = jnp.clip(place, -1.0, 1.0)
    return within * near + (place - within) * far / (_FAR - 1)


def _filtered(cells: Float[Array, "y x z"], taps: tuple[float, ...], shape: tuple[int, ...]) -> Float[Array, "y2 x2 z"]:
    """Cells after each gave these shares to its neighbours at each side, along y and x, cut to a `shape`."""
    for axis in (0, 1):
        size, first = shape[axis], (cells.shape[axis] - shape[axis]) // 2
        total = (1 - 2 * sum(taps)) * lax.slice_in_dim(cells, first, first + size, axis=axis)
        for step, tap in enumerate(taps, start=1):
            starts = first - step, first + step
            total += tap * sum(lax.slice_in_dim(cells, start, start + size, axis=axis) for start in starts)
        cells = lax.optimization_barrier(total)
    return cells


def _halved(cells: Float[Array, "y x face"], axis: int, size: int) -> Float[Array, "y2 x2 face"]:
    """Coefficients of quadratic B-splines as those on `size` cells of half the width, in the middle."""
    n_cell = cells.shape[axis]
    before = lax.slice_in_dim(cells, 0, n_cell - 1, axis=axis)
    after = lax.slice_in_dim(cells, 1, n_cell, axis=axis)
    both = jnp.stack([0.75 * before + 0.25 * after, 0.25 * before + 0.75 * after], axis=axis + 1)
    halves = both.reshape(*cells.shape[:axis], 2 * (n_cell - 1), *cells.shape[axis + 1 :])
    start = (2 * (n_cell - 1) - size) // 2
    return lax.slice_in_dim(halves, start, start + size, axis=axis)


def _overlaps(
    centres: Float[Array, " spaxel"], width: Float[Array, ""], n_cell: int, side: Float[Array, ""]
) -> Float[Array, "spaxel cell"]:
    low = (jnp.arange(n_cell, dtype=centres.dtype) - 0.5 * n_cell) * side
    first = jnp.maximum(low[None, :], centres[:, None] - 0.5 * width)
    last = jnp.minimum(low[None, :] + side, centres[:, None] + 0.5 * width)
    return jnp.maximum(last - first, 0.0) / width


_PC_PER_KPC = 1e3

_WIDEST = 1e6
"""kpc: the width of gas without density, wider than any field."""


class DustColumns(eqx.Module):
    """Columns of dust (Msun / pc^2) in front of positions, and those through the whole galaxy.

    `values` (y, x) are the latter on the painted grid: those of a spaxel's cells add up to the spaxel's mean. `counts`
    are those of `DustColumn.count`.
    """

    dust: InFront
    values: Float[Array, "y x"]
    counts: Float[Array, " count"]

    def at(self, position: Float[Array, "particle 3"]) -> Float[Array, " particle"]:
        """Dust in Msun / pc^2 in front of positions in the field of view (arcsec, as `Scene` has them).

        It has gradients with respect to the positions, and to the mass, place and width of the gas. Beyond the painted
        grid it is that of the grid's edge. Gas that shines sees half of its dust in front of it.
        """
        return self.dust.at(position)

    @property
    def counters(self) -> SourceCounters:
        """The counters of the gas that has dust."""
        return counters_of(self.counts)


def counters_of(counts: Float[Array, " count"]) -> SourceCounters:
    """The counters that `DustColumn.count` stands for, with the dust (Msun) as amount: of the gas that has dust, what
    lies beside the painted field, and by `LINE_OF_SIGHT` what lies in front of all grids or behind them."""
    (total, outside, far), (mass, mass_outside, mass_far), none = counts[:3], counts[3:6], jnp.zeros_like(counts[0])
    return SourceCounters(
        n_particles=total,
        n_outside=outside,
        n_clamped={LINE_OF_SIGHT: far},
        n_beyond_velocity=none,
        n_overflow=none,
        n_not_finite=counts[6],
        amount_total=mass,
        amount_outside=mass_outside,
        amount_clamped={LINE_OF_SIGHT: mass_far},
    )


class DustColumn(AbstractField):
    """Dust of gas that is cold or forms stars, smoothed by the gas' own lengths, summed along the line of sight.

    Its mass is the gas' `dust_mass` where the galaxy has that, else dust_to_metal x metallicity x mass. It is `shared`
    among the cells of a pyramid of grids by cic, or by tsc, whose derivatives are continuous, where `engine.deposit` is
    tsc or a fit moves particles.

    | field | unit | |
    |---|---|---|
    | dust_to_metal | | mass of dust per mass of metals |
    | cold | K | temperature below which gas has dust (None: all gas has) |
    | torrey | Msun / kpc^3 | 1e10 h^2 of the line above which hot gas has none (None: no hot gas has any) |
    | arcsec_per_kpc | | at the galaxy's distance |
    """

    dust_to_metal: Float[Array | ndarray, ""]
    cold: Float[Array | ndarray, ""] | None
    torrey: Float[Array | ndarray, ""] | None
    arcsec_per_kpc: Float[Array | ndarray, ""]
    cells: int = eqx.field(static=True)
    per_spaxel: int = eqx.field(static=True)
    shared: str = eqx.field(static=True)
    tables: RungTables | None = None
    kind: ClassVar[Kind] = "gas"
    words: ClassVar[ReaderWords] = ReaderWords("dust of kind particles", "set dust: null")
    n_count: ClassVar[int] = 7
    map: ClassVar[tuple[str, str] | None] = ("solMass pc-2", "column of dust through the whole galaxy")

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "DustColumn | None":
        """No options; None where the run's dust is not that of its particles."""
        refuse_options(DUST_COLUMN, options)
        dust = setup.config.dust
        if not isinstance(dust, ParticleDustSettings):
            return None
        h = hubble(find_cosmology(setup.config.observation.cosmology))
        return cls(
            dust_to_metal=np.asarray(dust.dust_to_metal),
            cold=None if dust.cold is None else np.asarray(dust.cold),
            torrey=np.asarray(1e10 * h**2) if dust.hot_dust == "torrey" else None,
            arcsec_per_kpc=np.asarray(setup.arcsec_per_kpc),
            cells=dust.cells,
            per_spaxel=setup.painting.cells,
            shared="tsc" if setup.painting.deposit == "tsc" or setup.config.frees_places else "cic",
        )

    def on_grid(self, grid: SpaxelGrid) -> "DustColumn":
        """With the tables of the pyramid."""
        return replace(self, tables=RungTables.of(Levels.of(grid.footprint, self.cells, self.shared), self.shared))

    def with_parameters(self, parameters: Parameters) -> "DustColumn":
        """With `dust.dust_to_metal`."""
        return eqx.tree_at(lambda field: field.dust_to_metal, self, parameters.dust.dust_to_metal)

    def absent(self, galaxy: Galaxy) -> Gas:
        """Gas without mass in the places of the stars."""
        stars, none = galaxy.stars, jnp.zeros_like(jnp.asarray(galaxy.stars.initial_mass))
        return Gas(
            position=stars.position,
            velocity=stars.velocity,
            mass=none,
            metallicity=none,
            dust_mass=none,
            smoothing_length=none,
            temperature=none,
            weight=none,
        )

    def n_cell(self, grid: SpaxelGrid) -> int:
        """The cells of all grids of the pyramid."""
        return Levels.of(grid.footprint, self.cells).n_cell

    def deposit(self, particles: Gas, scene: Scene, grid: SpaxelGrid) -> Parts:
        """The dust of each gas particle, per square arcsec, in the cells of two rungs of the pyramid."""
        mass = self.mass(particles) * scene.weight
        return self._pyramid(grid).parts(scene.position, self.lengths(particles), mass)

    def count(self, particles: Gas, scene: Scene, grid: SpaxelGrid) -> Float[Array, " count"]:
        """Numbers of gas particles with dust, of those beside the field and beyond its ends, and their dust (Msun);
        then the number of those whose dust or width is no number, or whose dust is negative."""
        mass = lax.stop_gradient(self.mass(particles))
        beside, far = self._pyramid(grid).beyond(lax.stop_gradient(scene.position))
        broken = ~(jnp.isfinite(mass) & (mass >= 0) & jnp.isfinite(lax.stop_gradient(self.lengths(particles))))
        broken = broken if scene.possible is None else broken | ~scene.possible
        dusty = (mass > 0) & ~broken
        chosen = jnp.stack([dusty, dusty & beside, dusty & far], axis=1).astype(scene.weight.dtype)
        weight = lax.stop_gradient(scene.weight)
        dust = jnp.where(broken, jnp.zeros_like(mass), mass) * weight
        numbers = jnp.sum(weight[:, None] * chosen, axis=0), jnp.sum(dust[:, None] * chosen, axis=0)
        return jnp.concatenate([*numbers, jnp.sum(weight * broken.astype(weight.dtype))[None]])

    def mass(self, gas: Gas) -> Float[Array, " particle"]:
        """Dust of each gas particle in Msun."""
        if gas.dust_mass is not None:
            return jnp.asarray(gas.dust_mass)
        if gas.metallicity is None:
            raise ValueError(
                "gas.metallicity: expected metals for dust of kind particles (dust.dust_to_metal), got neither "
                "metallicity nor dust_mass; give one of them, or set dust: null"
            )
        mass = jnp.asarray(self.dust_to_metal) * jnp.asarray(gas.metallicity) * jnp.asarray(gas.mass)
        return mass if self.cold is None else jnp.where(self._is_dusty(gas, self.cold), mass, jnp.zeros_like(mass))

    def _is_dusty(self, gas: Gas, cold: Float[Array | ndarray, ""]) -> Bool[Array, " particle"]:
        """Gas that forms stars, whose temperature is that of an equation of state, and gas that is cold enough."""
        if gas.temperature is None:
            raise ValueError(
                "gas.temperature: expected temperatures (K) to tell gas with dust from gas without (dust.cold), got "
                "none; give temperature or dust_mass, or set dust.cold: null for dust in all gas"
            )
        temperature = jnp.asarray(gas.temperature)
        dusty = temperature < cold
        if self.torrey is not None:
            if gas.density is None:
                raise ValueError(
                    "gas.density: expected densities (Msun / kpc^3) for dust.hot_dust 'torrey', got none; give them, "
                    "or set dust.hot_dust: none"
                )
            dusty |= temperature < 1e6 * (jnp.asarray(gas.density) / self.torrey) ** 0.25
        if gas.star_formation_rate is not None:
            dusty |= jnp.asarray(gas.star_formation_rate) > 0
        return dusty

    def lengths(self, gas: Gas) -> Float[Array, " particle"]:
        """Smoothing lengths in arcsec; without any, twice the radius of a sphere of the cell's volume.

        Gas whose density is 0 is as wide as the widest cells.
        """
        if gas.smoothing_length is not None:
            return jnp.asarray(gas.smoothing_length) * self.arcsec_per_kpc
        if gas.density is None:
            raise ValueError(
                "gas.smoothing_length: expected the widths of the gas (kpc) for dust of kind particles, got neither "
                "smoothing_length nor density; give one of them, or set dust: null"
            )
        density = jnp.asarray(gas.density)
        volume = jnp.asarray(gas.mass) / jnp.where(density > 0, density, jnp.ones_like(density))
        sphere = CELL_RADII**3 * 3 / (4 * np.pi) * volume
        known = (density > 0) & (sphere > 0)
        length = jnp.cbrt(jnp.where(known, sphere, jnp.ones_like(sphere)))
        return jnp.where(known, length, jnp.full_like(length, _WIDEST)) * self.arcsec_per_kpc

    def finish(self, sums: Float[Array, " cell"], grid: SpaxelGrid) -> DustColumns:
        """Columns in Msun / pc^2, from sums in Msun / arcsec^2, and the counts."""
        area = (self.arcsec_per_kpc / _PC_PER_KPC) ** 2
        dust = self._pyramid(grid).in_front(sums[: -self.n_count] * area)
        reach = 0 if grid.widths is None else grid.widths.reach
        painted = grid.footprint.within(reach)
        return DustColumns(dust, dust.through(painted) / self.per_spaxel**2, sums[-self.n_count :])

    def _pyramid(self, grid: SpaxelGrid) -> Pyramid:
        return Pyramid.over(grid.footprint, self.cells, self.shared, self.tables)


def check_dust(counters: SourceCounters) -> None:
    """Warn where no gas has dust; raise ValueError for dust that is no number. It does nothing while tracing."""
    if isinstance(counters.n_not_finite, Tracer):
        return
    counters = jax.device_get(counters)
    if int(counters.n_not_finite):
        raise ValueError(
            f"galaxy.gas: expected finite masses, metallicities and widths, masses from 0 to {LARGEST['mass']:g} Msun "
            f"and fractions from 0 to 1, for its dust, got {int(counters.n_not_finite)} particles with others; "
            f"rubix_like.validate(galaxy) names them"
        )
    if not int(counters.n_particles):
        logging.getLogger("rubix_like").warning("dust of kind particles: none but that of birth clouds (%s)", NO_DUST)
