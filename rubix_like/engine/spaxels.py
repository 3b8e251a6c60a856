"""The grid of spaxels, a particle's shares of light among them, and the way from painted columns to seen spaxels."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray

from rubix_like.cube.footprint import Footprint
from rubix_like.engine.smoothing import WidthClasses

CORNERS: dict[str, int] = {"nearest": 1, "cic": 2, "tsc": 3, "smoothed": 3}
"""Spaxels along one axis that a particle touches (in one layer), by deposit."""

_SPAXELS_AT_ONCE = 256

Seen = Callable[[Float[Array, "y x k"]], Float[Array, "seen k"]]
"""Linear function from images of all layers together to columns over the spaxels that are seen."""


class SpaxelGrid(eqx.Module):
    """The spaxels of a footprint that is painted, in one layer or, for stars with widths, one per width class.

    Where a spaxel is cut into cells, these count as spaxels here. `footprint` has the margin that the widest class
    needs; narrower ones are painted on less of it, and wide ones on a coarser grid.

    column = (n_x - 1)/2 - x/pixel_scale, row = (n_y - 1)/2 + y/pixel_scale with x East and y North in arcsec, so East
    is towards small columns.
    """

    footprint: Footprint
    deposit: str = eqx.field(static=True)
    widths: WidthClasses | None = None

    @property
    def n_spaxel(self) -> int:
        """Number of spaxels in all layers; also the index that stands for 'outside'."""
        return self.footprint.n_element if self.widths is None else int(self.widths.starts(self.inner.shape)[-1])

    @property
    def inner(self) -> Footprint:
        """The part of the footprint that remains where layers are put together."""
        return self.footprint if self.widths is None else self.footprint.within(self.widths.reach)

    @property
    def n_corner(self) -> int:
        """Spaxels that a particle touches: in two layers where there are several."""
        return CORNERS[self.deposit] ** 2 * (1 if self.widths is None else 2)

    def weights(
        self,
        position: Float[Array, "particle 3"],
        smoothing_length: Float[Array, " particle"] | None = None,
        kind: str = "particles",
    ) -> tuple[Int[Array, "particle corner"], Float[Array, "particle corner"]]:
        """Flat spaxel indices (`n_spaxel` = outside) and weights (they sum to 1) of every particle.

        `smoothing_length` in arcsec; ValueError, with the `kind` of the particles, where the deposit needs it and there
        is none.
        """
        if self.widths is not None and smoothing_length is None:
            raise ValueError(
                f"{kind}.smoothing_length: expected one per particle (kpc) for engine.deposit 'smoothed', got None; "
                f"give it, or use nearest, cic or tsc"
            )
        (n_y, n_x), pixel_scale = self.inner.shape, self.footprint.pixel_scale
        column = (n_x - 1) / 2 - position[:, 0] / pixel_scale
        row = (n_y - 1) / 2 + position[:, 1] / pixel_scale
        if self.widths is None or smoothing_length is None:
            return self._shared(column, row, (n_y, n_x), 0)
        layer, share = self.widths.shares(smoothing_length)
        index, weight = self._in_layers(column, row, layer, self.widths)
        shared = share[:, :, None] * weight
        return index.reshape(len(row), -1), shared.reshape(len(row), -1)

    def images(self, columns: Float[Array, "spaxel k"]) -> Float[Array, "y x k"]:
        """Painted columns as images; layers are convolved to their widths and added, which takes a margin off."""
        if self.widths is None:
            return columns.reshape(*self.footprint.shape, -1)
        return self.widths.together(columns, self.inner.shape)

    def _in_layers(
        self,
        column: Float[Array, " particle"],
        row: Float[Array, " particle"],
        layer: Int[Array, "particle 2"],
        widths: WidthClasses,
    ) -> tuple[Int[Array, "particle 2 corner"], Float[Array, "particle 2 corner"]]:
        inner, grids = self.inner.shape, widths.grid_of_each()
        starts = jnp.asarray(widths.starts(inner)[:-1], jnp.int32)
        shapes = jnp.asarray([grid.shape(inner) for grid in grids], jnp.int32)[layer].reshape(-1, 2)
        n_step, reach = (
            jnp.asarray(numbers, column.dtype)[layer]
            for numbers in ([grid.n_step for grid in grids], [grid.reach for grid in grids])
        )
        in_x, in_y = (((along[:, None] + reach) / n_step).reshape(-1) for along in (column, row))
        sides = shapes[:, 0], shapes[:, 1]
        index, weight = self._shared(in_x, in_y, sides, starts[layer].reshape(-1))
        return index.reshape(*layer.shape, -1), weight.reshape(*layer.shape, -1)

    def _shared(
        self,
        column: Float[Array, " place"],
        row: Float[Array, " place"],
        shape: tuple[Any, Any],
        start: Any,
    ) -> tuple[Int[Array, "place corner"], Float[Array, "place corner"]]:
        """Flat indices from `start` on and weights of places on grids of a `shape`, one for all or one for each."""
        n_y, n_x = (jnp.reshape(jnp.asarray(size, jnp.int32), (-1, 1)) for size in shape)
        columns, column_weights = deposit_weights(column, self.deposit)
        rows, row_weights = deposit_weights(row, self.deposit)
        inside = _within(columns, n_x)[:, None, :] & _within(rows, n_y)[:, :, None]
        first = jnp.reshape(jnp.asarray(start, jnp.int32), (-1, 1, 1))
        flat = first + rows[:, :, None] * n_x[:, :, None] + columns[:, None, :]
        index = jnp.where(inside, flat, self.n_spaxel).reshape(len(row), -1)
        return index, (row_weights[:, :, None] * column_weights[:, None, :]).reshape(len(row), -1)


def field_of(painted: Float[Array, "y x k"], field: Footprint, cells: int) -> Float[Array, "inner_y inner_x k"]:
    """The field in the middle of what was painted, the cells of each spaxel added up."""
    n_y, n_x = field.shape
    low_y, low_x = ((size - cells * inner) // 2 for size, inner in zip(painted.shape, (n_y, n_x), strict=False))
    inside = painted[low_y : low_y + cells * n_y, low_x : low_x + cells * n_x]
    return inside.reshape(n_y, cells, n_x, cells, -1).sum(axis=(1, 3))


def _within(index: Int[Array, "particle side"], size: Int[Array, "#particle 1"]) -> Array:
    return (index >= 0) & (index < size)


def deposit_weights(
    coordinate: Float[Array, " particle"], deposit: str
) -> tuple[Int[Array, "particle side"], Float[Array, "particle side"]]:
    """Pixel indices and weights along one axis (Hockney & Eastwood 1988): nearest (NGP), cic or tsc.

    `coordinate` is in pixels, whole numbers at pixel centres. Weights sum to 1. `nearest` has no gradient with respect
    to the coordinate; cic has a continuous weight, tsc a continuous derivative, too. A coordinate far outside any grid
    (or not finite) is limited before it becomes an integer.
    """
    coordinate = jnp.clip(coordinate, -1e6, 1e6)
    if deposit == "nearest":
        base = jnp.floor(coordinate + 0.5)
        return base.astype(jnp.int32)[:, None], jnp.ones_like(coordinate)[:, None]
    if deposit == "cic":
        base = jnp.floor(coordinate)
        d = coordinate - base
        weights = jnp.stack([1 - d, d], axis=1)
        return base.astype(jnp.int32)[:, None] + jnp.arange(2, dtype=jnp.int32)[None, :], weights
    if deposit in ("tsc", "smoothed"):
        base = jnp.floor(coordinate + 0.5)
        d = coordinate - base
        weights = jnp.stack([0.5 * (0.5 - d) ** 2, 0.75 - d**2, 0.5 * (0.5 + d) ** 2], axis=1)
        return base.astype(jnp.int32)[:, None] + jnp.arange(-1, 2, dtype=jnp.int32)[None, :], weights
    raise ValueError(f"deposit: expected one of {', '.join(CORNERS)}, got '{deposit}'")


class SeenByWavelength(NamedTuple):
    """The map to seen spaxels where it depends on wavelength: w_0(lambda) A_0 + w_1(lambda) A_1 + ..., A linear.

    `terms` takes images in groups of the sizes given, one group for each term, each through the term's map;
    `shares` holds the w of the bins that the device finishes; `bins` takes one image for each of these bins and is
    exact, where the sum of terms has the error of `instrument.psf_terms`.
    """

    terms: Callable[[Float[Array, "y x k"], tuple[int, ...]], Float[Array, "seen k"]]
    shares: Float[Array, "own term"]
    bins: Seen


class Images(NamedTuple):
    """Linear functions from columns over the painted `grid`, (spaxel, k), to columns over the spaxels that are seen.

    Once the columns are images, `seen` does the rest for those of no single wavelength, and for all where
    `by_wavelength` is None.
    """

    grid: SpaxelGrid
    seen: Seen
    by_wavelength: SeenByWavelength | None = None

    def __call__(self, columns: Float[Array, "spaxel k"]) -> Float[Array, "seen k"]:
        """The columns of the spaxels that are seen, by one function for all of them."""
        return self.seen(self.grid.images(columns))

    def of_bins(self, columns: Float[Array, "spaxel own"]) -> Float[Array, "seen own"]:
        """The columns of the spaxels that are seen, where columns are the bins of the device."""
        return self(columns) if self.by_wavelength is None else self.by_wavelength.bins(self.grid.images(columns))

    def projected(
        self, columns: Float[Array, "spaxel k"], projection: Callable[[Array], Array]
    ) -> Float[Array, "seen own"]:
        """The bins of the device, by a `projection` of the columns that are seen."""
        if self.by_wavelength is None:
            return projection(self(columns))
        terms, shares, _ = self.by_wavelength
        n_column, n_term = columns.shape[1], shares.shape[1]
        images = self.grid.images(columns)
        seen = terms(jnp.concatenate([images] * n_term, axis=2), (n_column,) * n_term)

        def of_spaxel(columns: Float[Array, " k"]) -> Float[Array, " own"]:
            return (shares.T * projection(columns.reshape(n_term, n_column))).sum(axis=0)

        return lax.map(of_spaxel, seen, batch_size=_SPAXELS_AT_ONCE)

    def of_few(self, place: Int[Array, " few"], used: Bool[Array, " few"]) -> "FewImages":
        """The functions for light in the few spaxels at `place` that are `used`."""
        units = jnp.zeros((self.grid.n_spaxel, len(place)), jnp.result_type(self.grid.footprint.pixel_scale))
        number = jnp.arange(len(place), dtype=jnp.int32)
        return FewImages(self, units.at[place, number].set(used.astype(units.dtype)))

    def after(self, grid: SpaxelGrid, first: Callable[[Array], Array]) -> "Images":
        """The functions from another painted grid, whose images go through `first` before."""
        by_wavelength = self.by_wavelength
        if by_wavelength is not None:
            terms, shares, bins = by_wavelength
            by_wavelength = SeenByWavelength(
                lambda images, sizes: terms(first(images), sizes), shares, lambda images: bins(first(images))
            )
        return Images(grid, lambda images: self.seen(first(images)), by_wavelength)


class FewImages(NamedTuple):
    """Linear functions from rows, one for each of a few spaxels of the painted grid, (few, k), to columns over the
    spaxels that are seen: rows times the images of one unit of light in each spaxel, `units`."""

    every: Images
    units: Float[Array, "spaxel few"]

    def __call__(self, rows: Float[Array, "few k"]) -> Float[Array, "seen k"]:
        """The columns of the spaxels that are seen, by one function for all of them."""
        return exact_product(self.every(self.units), rows)

    def of_bins(self, rows: Float[Array, "few own"]) -> Float[Array, "seen own"]:
        """The columns where rows are the bins of the device; images that depend on wavelength by the sum of terms."""
        if self.every.by_wavelength is None:
            return self(rows)
        terms, shares, _ = self.every.by_wavelength
        (n_few, _), n_term = rows.shape, shares.shape[1]
        images = jnp.concatenate([self.every.grid.images(self.units)] * n_term, axis=2)
        weighted = (shares.T[:, None, :] * rows[None]).reshape(n_term * n_few, -1)
        return exact_product(terms(images, (n_few,) * n_term), weighted)


def exact_product(left: Float[Array, "..."], right: Float[Array | ndarray, "..."]) -> Float[Array, "..."]:
    """The product of matrices in the full precision of their numbers, on any device."""
    return jnp.matmul(left, jnp.asarray(right), precision=lax.Precision.HIGHEST)
