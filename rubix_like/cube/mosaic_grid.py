"""The North-up grid of spaxels that covers several fields, and where fields lie on it."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.sparse import csr_array

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
    (east, north), own = fields[0].offset, fields[0].footprint
    corners = [_placed(field, 1, 1) for field in fields]
    origins = -east / own.pixel_scale - own.n_x / 2, north / own.pixel_scale - own.n_y / 2
    edges = []
    for axis, origin in enumerate(origins):
        low = min(float(corner[axis].min()) for corner in corners) - origin
        high = max(float(corner[axis].max()) for corner in corners) - origin
        before, after = math.floor(round(low, _ROUNDING)), math.ceil(round(high, _ROUNDING))
        edges.append((origin + before, after - before))
    (left, n_x), (bottom, n_y) = edges
    return MosaicGrid(reference, left, bottom, Footprint(n_y, n_x, own.pixel_scale))


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
