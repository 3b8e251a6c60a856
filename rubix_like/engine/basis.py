"""Method `basis`: the sum of `direct` to a stated accuracy, at a cost per particle independent of wavelengths."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.cube.meta import SourceCounters
from rubix_like.engine.cost import rates_here
from rubix_like.engine.direct import AbstractDirectPainter, OutlierLight, fit_in_rows, light_in_rows, light_of_spaxels
from rubix_like.engine.histogram import (
    Deposit,
    VelocityNodes,
    coefficient_histogram,
    coefficients_and_slopes,
    ranked,
    template_histogram,
)
from rubix_like.engine.kernels.kernel import AbstractDepositKernel, AtOnce, Spaxels, in_blocks
from rubix_like.engine.painter import AbstractPainter, Look, Sum
from rubix_like.engine.spaxels import Images, SpaxelGrid
from rubix_like.engine.spectra.coefficient_map import AbstractCoefficientMap, MatrixMap
from rubix_like.engine.spectra.dusty_histogram import DustColours, dusty_histogram
from rubix_like.physics.templates import TemplateAxes
from rubix_like.runtime.mesh.mesh import DATA_AXIS, DeviceLayout

_PIECES = 4
"""Pieces, at most, of as many particles as a processor's cache has room for."""

FEW: int = 32
"""Spaxels whose outliers are seen one by one where no more have any."""

_LEAST_ROOM = 1 << 29
"""Bytes for a histogram, or as many as the cube takes."""

Number = Float[Array | ndarray, ""]
Light = tuple[Float[Array, "seen own"], Float[Array, "seen 2"]]
"""Flux density and moments of the spaxels that are seen."""


class Accuracy(eqx.Module):
    """Errors relative to a spectrum's mean over the detector (scalar arrays); all bins that are not flagged count.

    `spectrum_error`: an upper bound of the rms error of any template at any velocity that the nodes reach, and so of
    any sum of templates; `velocity_error`: the same between the velocity nodes, were the basis exact; `residual`:
    largest rms error of any template on the spectral basis; `local_error`: largest error of any template on it in any
    one bin; `flux_error`: largest error of any template's flux over the whole detector; `lowest`: lowest flux of any
    template in any bin, 0 where none is negative.
    """

    spectrum_error: Number
    velocity_error: Number
    residual: Number
    local_error: Number
    flux_error: Number
    lowest: Number


class BasisPartial(eqx.Module):
    """Coefficients per spaxel, (velocity, rank) in one axis, or flux density where that takes less room; moments as for
    `project`; the outliers' light."""

    painted: Float[Array, "spaxel part"]
    moments: Float[Array, "spaxel 2"]
    outliers: OutlierLight | None


class BasisPainter(AbstractPainter):
    """F_p(lambda) = sum over nodes j, basis spectra r of H[p, j, r] M[j, r](lambda); `coefficient_map` holds M.

    H[p, j, r] = sum over templates k of A[p, j, k] C[k, r], where A[p, j, k] = sum_i m_i w_j(v_i) b_k(t_i, Z_i) is the
    amount of template k at node j in spaxel p, C the templates' coefficients on the basis and M the basis spectra at
    each node through the detector: a matrix for spectra (`velocity_nodes.project`), profiles for lines (`LineMap`).
    Particles are summed to A, or, where that is cheaper, to H (`histogram`). Behind the particles' dust the
    coefficients are those of the templates without it, and `colours` brings them to the basis (`dusty_histogram`).

    `by_rows`: where devices finish parts of the bins and H has more columns than such a part, each device keeps the
    rows of its spaxels of the sum, projects them onto all bins, and trades them for its bins of all spaxels.
    `by_terms`: a PSF that follows wavelength acts on the coefficients, of all spaxels, on any number of devices;
    `psf_error` is the error of that, or without `by_terms` the one for which it was refused.
    `keeps_all`: on one device the coefficients are kept for the PSF to act on, although a spectrum takes less room.

    Particles faster than the nodes, at most `capacity` of them on each device, are painted by `outliers` in bins, seen
    only in the spaxels that they are in where these are few. `in_slabs`: partials of several parts of the particles
    are added up.
    """

    axes: TemplateAxes
    coefficients: Float[Array | ndarray, "template rank"]
    coefficient_map: AbstractCoefficientMap
    nodes: VelocityNodes
    velocity_limit: Float[Array | ndarray, ""]
    accuracy: eqx.Module
    kernel: AbstractDepositKernel
    outliers: AbstractDirectPainter | None
    capacity: int = eqx.field(static=True)
    in_slabs: bool = eqx.field(static=True, default=False)
    by_rows: bool = eqx.field(static=True, default=False)
    by_terms: bool = eqx.field(static=True, default=False)
    keeps_all: bool = eqx.field(static=True, default=False)
    psf_error: Number | None = None
    colours: DustColours | None = None

    @property
    def rank(self) -> int:
        """Number of basis spectra."""
        return self.coefficients.shape[1] if self.colours is None else self.colours.reduction.shape[1]

    def paint(self, look: Look, particles: Any, grid: SpaxelGrid, chunk: int) -> tuple[BasisPartial, SourceCounters]:
        """The histogram of all particles, reduced to coefficients block by block of spaxels, and the outliers."""
        ((partial, counters),) = paint_together((self,), look, particles, grid, chunk)
        return partial, counters

    def beside_outliers(
        self,
        sums: tuple[Float[Array, "spaxel part"], Float[Array, "spaxel 2"]],
        counters: SourceCounters,
        look: Look,
        particles: Any,
        grid: SpaxelGrid,
        chunk: int,
    ) -> tuple[BasisPartial, SourceCounters]:
        """The partial of what was painted, and its moments, with the particles beyond the nodes."""
        painted, moments = sums
        if self.outliers is None:
            return BasisPartial(painted, moments, None), counters
        chosen, number = self._outliers(look, particles)
        if self._in_rows(grid):
            light = light_in_rows(self.outliers, look, chosen, number > 0, grid)
        else:
            light = light_of_spaxels(self.outliers, look, chosen, number > 0, grid, chunk)
        overflow = jnp.maximum(number - self.capacity, jnp.zeros_like(number))
        counters = eqx.tree_at(lambda c: c.n_overflow, counters, counters.n_overflow + overflow)
        return BasisPartial(painted, moments, light), counters

    @property
    def n_coefficient(self) -> int:
        """Columns that the coefficient map keeps; none where each device has projected its columns."""
        return 0 if self._projects_early else self.coefficient_map.n_coefficient

    def laid_out(self, layout: DeviceLayout) -> "BasisPainter":
        """The painter with the bins of `coefficient_map` padded; by rows where that moves less."""
        split, n_coefficient = layout.split, self.coefficient_map.n_coefficient
        if self.keeps_all and layout.n_data > 1:
            return dataclasses.replace(self, keeps_all=False).laid_out(layout)
        if split.is_whole:
            return self
        early = not self.by_terms and n_coefficient > split.n_padded // layout.painted.n_shard
        return dataclasses.replace(
            self,
            coefficient_map=self.coefficient_map.padded(split.n_padded),
            outliers=None if self.outliers is None else self.outliers.laid_out(layout),
            by_rows=layout.scatters and not (early or self.by_terms) and n_coefficient > split.n_own,
        )

    @property
    def sums(self) -> tuple[Sum, ...]:
        """Coefficients, or flux density bin by bin, moments, the sums of the outliers' painter, and their number."""
        painted = Sum.ROWS if self.by_rows else Sum.PARTICLES
        painted = Sum.BINS if self._projects_early else painted
        return painted, Sum.PARTICLES, *(() if self.outliers is None else (*self.outliers.sums, Sum.PARTICLES))

    def project(
        self, partial: BasisPartial, spatial: Images, layout: DeviceLayout
    ) -> tuple[Float[Array, "seen own"], Float[Array, "seen 2"]]:
        """The spaxels that are seen through the detector, and the outliers' light.

        `spatial` commutes with that, so it acts on the coefficients, which have fewer columns, or after it where
        each device has but a part of the bins. Where it depends on wavelength, it acts on the coefficients term by term
        if `by_terms`, else on each bin's image.
        """
        moments = spatial(partial.moments)
        if partial.outliers is None:
            return self._seen(partial.painted, spatial, layout), moments
        return self._with_outliers(partial.painted, moments, partial.outliers, spatial, layout)

    def report(self) -> dict[str, int | float]:
        """Sizes and errors (relative to a spectrum's mean)."""
        errors = {field.name: float(getattr(self.accuracy, field.name)) for field in dataclasses.fields(self.accuracy)}
        return {
            "basis_rank": self.rank,
            "basis_velocity_nodes": self.nodes.n_node,
            "basis_velocity_step": float(self.nodes.step),
            "basis_outliers": self.capacity,
            **{f"basis_{name}": value for name, value in errors.items()},
            **({"basis_psf_error": float(self.psf_error)} if self.by_terms and self.psf_error is not None else {}),
        }

    @property
    def _projects_early(self) -> bool:
        """Whether a spaxel's spectrum takes less room than its coefficients."""
        return (
            not (self.by_terms or self.keeps_all) and self.coefficient_map.n_coefficient > self.coefficient_map.n_wave
        )

    def _seen(
        self, painted: Float[Array, "spaxel part"], spatial: Images, layout: DeviceLayout
    ) -> Float[Array, "seen own"]:
        """The spectra of the spaxels that are seen, without the outliers."""
        if self._projects_early:
            return spatial.of_bins(painted)
        if self.by_rows:
            flux = self.coefficient_map.spectra()(painted)  # own spaxels, all bins; traded for all spaxels, own bins
            traded = lax.all_to_all(flux, DATA_AXIS, split_axis=1, concat_axis=0, tiled=True)
            return spatial.of_bins(traded[: spatial.grid.n_spaxel])
        return self.coefficient_map.of_own_bins(layout).seen(painted, spatial, by_terms=self.by_terms)

    def _with_outliers(
        self,
        painted: Float[Array, "spaxel part"],
        moments: Float[Array, "seen 2"],
        outliers: OutlierLight,
        spatial: Images,
        layout: DeviceLayout,
    ) -> Light:
        """The spectra of the spaxels that are seen, and the moments, with the outliers: spaxel by spaxel, where these
        are few and the images of one unit of light say all of each."""
        in_rows, number = self._in_rows(spatial.grid), outliers.number
        is_matrix = isinstance(self.coefficient_map, MatrixMap)
        takes_rows = is_matrix and spatial.by_wavelength is None and not (self._projects_early or self.by_rows)
        flux = None if takes_rows else self._seen(painted, spatial, layout)  # else no cube is added to another

        def others() -> Array:
            return self._seen(painted, spatial, layout) if flux is None else flux

        def with_few(most: int) -> Light:
            lit = outliers.chosen(most, in_rows=in_rows)
            few = spatial.of_few(lit.place, lit.used)
            every = moments + few(lit.light.moments)
            if flux is not None:
                return flux + few.of_bins(lit.light.light), every
            matrix_map = self.coefficient_map.of_own_bins(layout)
            assert isinstance(matrix_map, MatrixMap)
            coefficients = jnp.concatenate([painted, few.units.astype(painted.dtype)], axis=1)
            return matrix_map.beside(lit.light.light).seen(coefficients, spatial, by_terms=self.by_terms), every

        def with_all() -> Light:
            light = outliers.everywhere(spatial.grid.n_spaxel, in_rows=in_rows)
            return others() + spatial.of_bins(light.light), moments + spatial(light.moments)

        ways: list[Callable[[], Light]] = [lambda: (others(), moments), with_all]
        if spatial.by_wavelength is None or self.by_terms:
            n_row = len(outliers.where)
            every = functools.partial(with_few, n_row) if in_rows else with_all
            ways[1:] = [every] if in_rows and n_row <= FEW else [functools.partial(with_few, FEW), every]
        way = sum((number > least).astype(jnp.int32) for least in (0, FEW)[: len(ways) - 1])
        return lax.switch(way, ways)

    def _in_rows(self, grid: SpaxelGrid) -> bool:
        """Whether the outliers' light is kept in rows."""
        return not self.in_slabs and fit_in_rows(self.capacity, grid)

    def blocks(
        self, look: Look, particles: Any, grid: SpaxelGrid, chunk: int, owners: Sequence["BasisPainter"]
    ) -> tuple[list[tuple[Array, Array]], SourceCounters]:
        """(painted, moments) of each of the owners of some columns of the coefficients, and the counters, of the whole
        grid, as many spaxels at a time as a histogram has room for."""
        number, coefficients = len(particles.weight), jnp.asarray(self.coefficients)
        by_template = self.colours is None and self._by_template(number, grid)
        at_once = self._at_once(grid, chunk, by_template)
        histogram = coefficient_histogram
        if self.colours is None and not by_template and self._slopes_by_template(number, grid):
            histogram = coefficients_and_slopes
        finishers = [owner.finisher() for owner in owners]
        ends = np.cumsum([owner.rank for owner in owners])[:-1]

        def reduced(spaxels: Spaxels) -> tuple[Float[Array, "spaxel velocity rank"], SourceCounters]:
            if self.colours is not None:
                return dusty_histogram(look, particles, self.axes, self.nodes, spaxels, coefficients, self.colours)
            deposit = Deposit(look, self.axes, self.nodes, spaxels, at_once, self.kernel)
            if by_template:
                amounts, counters = template_histogram(deposit, particles)
                return ranked(amounts, coefficients), counters
            return histogram(deposit, particles, coefficients)

        def sums(spaxels: Spaxels) -> tuple[list[tuple[Array, Array]], SourceCounters]:
            every, counters = reduced(spaxels)
            parts = jnp.split(every, ends, axis=2) if len(ends) else [every]
            flat = [part.reshape(spaxels[1], -1) for part in parts]
            return [finish(part) for finish, part in zip(finishers, flat, strict=True)], counters

        n_block = self._n_blocks(self.axes.n_template if by_template else self.rank, grid)
        return in_blocks(sums, grid.n_spaxel, n_block)

    def finisher(self) -> Callable[[Float[Array, "spaxel coefficient"]], tuple[Array, Array]]:
        """The function from the coefficients of some spaxels to the columns that are kept, and their moments."""
        spectra, moment_matrix = self.coefficient_map.spectra(), self.coefficient_map.moments()

        def finish(flat: Float[Array, "spaxel coefficient"]) -> tuple[Array, Array]:
            moments = jnp.matmul(flat, moment_matrix, precision=lax.Precision.HIGHEST)
            kept = self.coefficient_map.kept(flat)
            return spectra(kept) if self._projects_early else kept, moments

        return finish

    def _at_once(self, grid: SpaxelGrid, chunk: int, by_template: bool) -> AtOnce:
        """Particles that are looked at and added at once.

        Pieces that add nothing are passed over where a piece has at least as many sums to make as the histogram has
        numbers, as `vmap` makes of each choice a pass over all of them, and where the cache has room for such a piece.
        """
        rates, shares = rates_here(), 4 * grid.n_corner
        n_row = grid.n_spaxel * self.nodes.n_node
        if by_template:
            shares, n_row = shares * self.axes.n_corner, n_row * self.axes.n_template
        added = max(1, min(chunk, rates.values_at_once // (shares if by_template else shares + self.rank)))
        piece = max(added // _PIECES, -(-n_row // shares))
        return AtOnce(chunk, piece) if rates.passes_over and piece <= added else AtOnce(added, added)

    def _by_template(self, n_particle: int, grid: SpaxelGrid) -> bool:
        """Whether it is cheaper to sum per template, and to reduce all templates of all spaxels afterwards."""
        n_cell, n_template = grid.n_spaxel * self.nodes.n_node, self.axes.n_template
        shares = n_particle * grid.n_corner
        deposits = shares * self.axes.n_corner * self._n_blocks(n_template, grid)
        rows = shares * self._n_blocks(self.rank, grid)
        rates = rates_here()
        by_template = rates.template_seconds(deposits, n_cell, n_template, self.rank)
        return by_template < rates.coefficient_seconds(rows, n_cell, self.rank)

    def _slopes_by_template(self, n_particle: int, grid: SpaxelGrid) -> bool:
        """Whether derivatives are cheaper by sums per template where values are not, and those have room."""
        n_cell, n_template, shares = grid.n_spaxel * self.nodes.n_node, self.axes.n_template, n_particle * grid.n_corner
        rates = rates_here()
        by_template = rates.template_slope_seconds(shares * self.axes.n_corner, n_cell, n_template, self.rank)
        cheaper = by_template < rates.coefficient_slope_seconds(shares, self.rank)
        return cheaper and self._n_blocks(n_template, grid) == 1

    def _n_blocks(self, columns: int, grid: SpaxelGrid) -> int:
        """Blocks of spaxels such that a histogram of so many columns has room, and 32 bits for its cells."""
        room = min(max(_LEAST_ROOM, 4 * grid.n_spaxel * self.coefficient_map.n_wave), 8 * (2**31 - 1))
        return -(-8 * grid.n_spaxel * self.nodes.n_node * columns // room)

    def _outliers(self, look: Look, particles: Any) -> tuple[Any, Float[Array, ""]]:
        """The particles beyond the nodes, in `capacity` places, and how many there are."""
        view, _ = look(particles)
        shining = lax.stop_gradient(particles.weight) > 0
        fast = shining & (jnp.abs(lax.stop_gradient(view.v_los)) > self.nodes.limit)
        place = jnp.nonzero(fast, size=self.capacity, fill_value=0)[0].astype(jnp.int32)
        number = fast.sum(dtype=jnp.int32)
        used = (jnp.arange(self.capacity, dtype=jnp.int32) < number).astype(view.amount.dtype)
        chosen = jax.tree.map(lambda leaf: leaf[place], particles)
        chosen = eqx.tree_at(lambda p: p.weight, chosen, lax.stop_gradient(chosen.weight) * used)
        return chosen, number.astype(view.amount.dtype)


def paint_together(
    painters: Sequence[BasisPainter], look: Look, particles: Any, grid: SpaxelGrid, chunk: int
) -> list[tuple[BasisPartial, SourceCounters]]:
    """The partials and counters of several painters from one pass over the same particles.

    They have the same axes, nodes and kernel (`may_paint_together`), and separate bases and detectors.
    """
    every, *others = painters
    if others:
        columns = jnp.concatenate([jnp.asarray(painter.coefficients) for painter in painters], axis=1)
        every = dataclasses.replace(every, coefficients=columns)
    painted, counters = every.blocks(look, particles, grid, chunk, painters)
    return [
        painter.beside_outliers(sums, counters, look, particles, grid, chunk)
        for painter, sums in zip(painters, painted, strict=True)
    ]


def may_paint_together(painters: Sequence[AbstractPainter]) -> bool:
    """Whether painters differ in no more than `paint_together` allows (on the host); none behind dust does."""
    shared = [
        (painter.axes, painter.nodes, painter.kernel, painter.velocity_limit)
        for painter in painters
        if isinstance(painter, BasisPainter) and painter.colours is None
    ]
    return len(shared) == len(painters) and all(bool(eqx.tree_equal(shared[0], other)) for other in shared[1:])
