"""The North-up grid of spaxels that covers several fields, and where fields lie on it."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.sparse import csr_array

from rubix_like.overlap import overlap_matrix
from rubix_like.pointing import convergence, from_tangent_plane

_ROUNDING = 6
"""Digits of a side to which edges are compared."""


class Field(NamedTuple):
    """`offset` (East, North; arcsec) of a field's centre from the reference, `angle` (deg) of its +y axis, its size."""

    offset: tuple[float, float]
    angle: float
    n_y: int
    n_x: int


class MosaicGrid(NamedTuple):
    """n_y x n_x upright spaxels in the plane that touches the sky at `reference` (RA, Dec in deg).

    `left`, `bottom`: the outer edges of the first column and row, in spaxels West and North of the reference.
    """

    reference: tuple[float, float]
    pixel_scale: float
    left: float
    bottom: float
    n_y: int
    n_x: int

    @property
    def center(self) -> tuple[float, float]:
        """RA, Dec in deg."""
        west, north = self.left + self.n_x / 2, self.bottom + self.n_y / 2
        return from_tangent_plane(self.reference, (-west * self.pixel_scale, north * self.pixel_scale))

    @property
    def field_angle(self) -> float:
        """Position angle (deg) of +y at the centre: 0 but for the convergence of the meridians."""
        return convergence(self.reference, self.center)

    def overlap(self, field: Field) -> csr_array:
        """Area in spaxels that each spaxel of the grid shares with each of a field, (n_y n_x, field's n_y n_x)."""
        west, north = _placed(field, self.pixel_scale, field.n_y, field.n_x)
        return overlap_matrix(west - self.left, north - self.bottom, self.n_y, self.n_x)


def _placed(
    field: Field, pixel_scale: float, n_step_y: int, n_step_x: int
) -> tuple[Float[ndarray, "row column"], Float[ndarray, "row column"]]:
    """(West, North) of evenly spaced points of a field, edges included, from the reference, in spaxels."""
    x = np.linspace(-field.n_x / 2, field.n_x / 2, n_step_x + 1)[None, :]
    y = np.linspace(-field.n_y / 2, field.n_y / 2, n_step_y + 1)[:, None]
    cos, sin = math.cos(math.radians(field.angle)), math.sin(math.radians(field.angle))
    east, north = (value / pixel_scale for value in field.offset)
    return x * cos - y * sin - east, x * sin + y * cos + north


def grid_around(reference: tuple[float, float], fields: Sequence[Field], pixel_scale: float) -> MosaicGrid:
    """The smallest grid with all of the fields, its spaxels in step with those of the first where that is upright."""
    first = fields[0]
    corners = [_placed(field, pixel_scale, 1, 1) for field in fields]
    origins = -first.offset[0] / pixel_scale - first.n_x / 2, first.offset[1] / pixel_scale - first.n_y / 2
    edges = []
    for axis, origin in enumerate(origins):
        low = min(float(corner[axis].min()) for corner in corners) - origin
        high = max(float(corner[axis].max()) for corner in corners) - origin
        before, after = math.floor(round(low, _ROUNDING)), math.ceil(round(high, _ROUNDING))
        edges.append((origin + before, after - before))
    (left, n_x), (bottom, n_y) = edges
    return MosaicGrid(reference, pixel_scale, left, bottom, n_y, n_x)
