"""Method `direct` of lines: every line of every particle, exact in every bin; it defines correct."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtr
from jaxtyping import Array, Float, Int
from numpy import ndarray

from rubix_like.config.sections.products import LARGEST_DISPERSION
from rubix_like.constants import SOLAR_LUMINOSITY_AT_1_MPC, SPEED_OF_LIGHT
from rubix_like.cube.bins import Sampling
from rubix_like.cube.meta import SourceCounters
from rubix_like.engine.direct import (
    AbstractDirectPainter,
    DirectContribution,
    DirectPartial,
    dimmed,
    onto_spaxels,
    spectra_at_once,
    sum_spectra,
)
from rubix_like.engine.lines.line_planning import LINE_REACH, LineTracks, lines_of, rounded_up
from rubix_like.engine.painter import Look, Sum, View, no_counts
from rubix_like.engine.setup import Setup, SourcePlan
from rubix_like.engine.spaxels import Images, SpaxelGrid
from rubix_like.physics.templates import TemplateAxes, layers_of, weighted_rows
from rubix_like.runtime.mesh.bin_split import per_bin
from rubix_like.runtime.mesh.mesh import DeviceLayout, varying

_N_GRID = 129
"""Velocities at which `bent` and `spread` are tabulated."""

_LEAST_SIGMA = 1e-4
"""Sigma in bins, below which lines are painted with this one: their gradients stay finite."""


class DirectLinePainter(AbstractDirectPainter):
    """Each particle's lines as Gaussians in wavelength, by differences of error functions at the bins' borders.

    Distances are from the line at rest, so that they keep their digits in 32 bits.

    | field | shape | unit |
    |---|---|---|
    | luminosity | (template, line) | Lsun per unit of amount |
    | flux_factor | scalar | 1 Lsun / (4 pi D_L^2) in 1e-20 erg/s/cm2 |
    | centre | (line,) | the line at rest on the detector, Angstrom of the medium |
    | number, phase | (line,) | the bin that it lies in, and its place from that bin's middle, in bins |
    | ends | (line, 2) | distances of the detector's ends from the line at rest, Angstrom |
    | bent | (grid, line) | place on the detector less centre x exp(v / c0), Angstrom: 0 in vacuum |
    | spread | (grid, line) | sigma of the line spread, Angstrom |
    | grid_step | scalar | km/s between the velocities of `bent` and `spread`, from -`velocity_limit` |
    | thermal | (line,) | sigma of the thermal motion, km/s |
    | step | scalar | width of the bins: Angstrom, or ln wavelength |
    | bin_number | (wave,) | numbers of the detector's bins that are held |
    | velocity_dispersion | scalar | km/s, from 0 to 500; lines of any other width are NaN |
    | attenuation | (layer, line) | A / A(V) of the dust that particles are seen through; None without dust |
    | window | static | bins around its middle that a line may reach |
    | border | (line, border) | edges of bins, beyond both ends too, from each line at rest; None for even bins |
    """

    axes: TemplateAxes
    luminosity: Float[Array | ndarray, "template line"]
    flux_factor: Float[Array | ndarray, ""]
    centre: Float[Array | ndarray, " line"]
    number: Int[Array | ndarray, " line"]
    phase: Float[Array | ndarray, " line"]
    ends: Float[Array | ndarray, "line 2"]
    bent: Float[Array | ndarray, "grid line"]
    spread: Float[Array | ndarray, "grid line"]
    grid_step: Float[Array | ndarray, ""]
    thermal: Float[Array | ndarray, " line"]
    step: Float[Array | ndarray, ""]
    bin_number: Int[Array | ndarray, " wave"] = eqx.field(metadata=per_bin())
    velocity_limit: Float[Array | ndarray, ""]
    velocity_dispersion: Float[Array | ndarray, ""]
    sampling: Sampling = eqx.field(static=True)
    window: int = eqx.field(static=True)
    attenuation: Float[Array | ndarray, "layer line"] | None = None
    border: Float[Array | ndarray, "line border"] | None = None

    @classmethod
    def build(cls, plan: SourcePlan, setup: Setup) -> "DirectLinePainter":
        """The lines that reach the detector at up to the plan's velocity limit."""
        bins, limit = setup.instrument.bins, plan.velocity_limit
        grid = np.linspace(-limit, limit, _N_GRID)
        templates = lines_of(plan)
        layers = layers_of(templates)
        tracks = LineTracks.of(templates, plan.spread)
        seen = tracks.on_detector(grid)
        tracks = tracks.chosen(seen)
        placed, centre = tracks.at(grid), tracks.at(np.zeros(1)).centre[0]
        reach = LINE_REACH * tracks.sigma(placed, LARGEST_DISPERSION)
        below = bins.place(placed.centre) - bins.place(np.maximum(placed.centre - reach, np.finfo(float).tiny))
        window = rounded_up(2 * int(np.ceil(below.max())) + 3)
        place, border = np.zeros_like(centre), None
        if bins.sampling == "table":  # edges of the bins, and of twice a window beyond both ends
            edges = bins.at(np.arange(-2 * window, bins.n_wave + 2 * window + 1) - 0.5)
            border = edges[None, :] - centre[:, None]
        else:
            place = bins.place(centre)
        return cls(
            axes=templates.axes,
            luminosity=templates.table[:, seen],
            flux_factor=np.asarray(SOLAR_LUMINOSITY_AT_1_MPC / setup.luminosity_distance**2),
            centre=centre,
            number=np.round(place).astype(np.int32),
            phase=place - np.round(place),
            ends=bins.edges[[0, -1]][None, :] - centre[:, None],
            bent=placed.centre - centre * np.exp(grid / SPEED_OF_LIGHT)[:, None],
            spread=placed.spread,
            grid_step=np.asarray(grid[1] - grid[0]),
            thermal=tracks.thermal,
            step=np.asarray(bins.step * (np.log(10.0) if bins.sampling == "log" else 1.0)),
            bin_number=np.arange(bins.n_wave, dtype=np.int32),
            velocity_limit=np.asarray(limit),
            velocity_dispersion=np.asarray(plan.narrowest),
            sampling=bins.sampling,
            window=window,
            border=border,
            attenuation=None if layers is None else layers(tracks.wavelength),
        )

    @property
    def n_coefficient(self) -> int:
        """0: the sums are flux density in bins."""
        return 0

    def laid_out(self, layout: DeviceLayout) -> "DirectLinePainter":
        """The painter with bins appended until devices have even parts."""
        if layout.split.is_whole:
            return self
        return dataclasses.replace(self, bin_number=np.arange(layout.split.n_padded, dtype=np.int32))

    def paint(self, look: Look, particles: Any, grid: SpaxelGrid, chunk: int) -> tuple[DirectPartial, SourceCounters]:
        """Lines of all particles, added to their spaxels."""
        n_wave, dtype = len(self.bin_number), self.luminosity.dtype
        light, moments = jnp.zeros((grid.n_spaxel, n_wave), dtype), jnp.zeros((grid.n_spaxel, 2), dtype)
        light = varying(light, particles, self.bin_number)
        start = DirectPartial(light, varying(moments, particles)), varying(no_counts(self.axes, dtype), particles)
        return sum_spectra(self.contribution, look, start, particles, spectra_at_once(chunk, grid.n_corner, n_wave))

    @property
    def sums(self) -> tuple[Sum, ...]:
        """Flux density bin by bin, and moments."""
        return Sum.BINS, Sum.PARTICLES

    def contribution(self, view: View, n_spaxel: int) -> DirectContribution:
        """The lines of one chunk in bins, shared among its spaxels."""
        flux = weighted_rows(jnp.asarray(self.luminosity), view.corners(self.axes))
        flux = dimmed(flux, view, self.axes, self.attenuation)
        flux = flux * (view.amount * self.flux_factor)[:, None]
        shift, sigma = self._placed(view.v_los)
        ends = jnp.asarray(self.ends)
        seen = ndtr((ends[None, :, 1] - shift) / sigma) - ndtr((ends[None, :, 0] - shift) / sigma)
        total = (flux * seen).sum(axis=1)
        moments = jnp.stack([total, total * view.v_los], axis=1)
        return onto_spaxels(self._in_bins(flux, shift, sigma), moments, view, n_spaxel)

    def project(
        self,
        partial: DirectPartial,
        spatial: Images,
        layout: DeviceLayout,  # noqa: ARG002
    ) -> tuple[Float[Array, "seen own"], Float[Array, "seen 2"]]:
        """The sums unchanged: they are in the detector's bins already."""
        return spatial.of_bins(partial.light), spatial(partial.moments)

    def report(self) -> dict[str, int | float]:
        """Nothing to report: the method is exact."""
        return {}

    def _placed(
        self, v_los: Float[Array, " particle"]
    ) -> tuple[Float[Array, "particle line"], Float[Array, "particle line"]]:
        """Each line's distance from its place at rest, and its sigma (Angstrom)."""
        place = jnp.clip((v_los + self.velocity_limit) / self.grid_step, 0.0, _N_GRID - 1.0)
        low = jnp.clip(jnp.floor(place), 0, _N_GRID - 2).astype(jnp.int32)
        above = (place - low.astype(place.dtype))[:, None]
        bent, spread = (
            table[low] * (1 - above) + table[low + 1] * above for table in map(jnp.asarray, (self.bent, self.spread))
        )
        centre = jnp.asarray(self.centre)[None, :]
        shift = centre * jnp.expm1(v_los / SPEED_OF_LIGHT)[:, None] + bent
        dispersion = jnp.asarray(self.velocity_dispersion)
        within = (dispersion >= 0) & (dispersion <= LARGEST_DISPERSION * (1 + 1e-5))
        allowed = jnp.where(within, dispersion, jnp.full_like(dispersion, jnp.nan))
        moving = (jnp.asarray(self.thermal) ** 2 + allowed**2)[None, :]
        variance = spread**2 + ((centre + shift) / SPEED_OF_LIGHT) ** 2 * moving
        least = (_LEAST_SIGMA * self._width(shift)) ** 2
        return shift, jnp.sqrt(jnp.maximum(variance, least))

    def _width(self, distance: Float[Array, "particle line"]) -> Float[Array, "particle line"]:
        """About the width (Angstrom) of the bin at a distance from each line at rest."""
        if self.sampling == "log":
            return (jnp.asarray(self.centre)[None, :] + distance) * self.step
        if self.border is not None:
            border = jnp.asarray(self.border)
            middle, width = 0.5 * (border[:, 1:] + border[:, :-1]), jnp.diff(border, axis=1)
            return jax.vmap(jnp.interp, in_axes=(1, 0, 0), out_axes=1)(distance, middle, width)
        return jnp.full_like(distance, self.step)

    def _in_bins(
        self,
        flux: Float[Array, "particle line"],
        shift: Float[Array, "particle line"],
        sigma: Float[Array, "particle line"],
    ) -> Float[Array, "particle wave"]:
        """Flux density in the device's bins, one line of all particles after the other."""
        middle = self._middle(shift)
        first, n_wave = jnp.asarray(self.bin_number)[0], len(self.bin_number)
        particle = jnp.arange(len(flux), dtype=jnp.int32)[:, None]
        within = jnp.arange(self.window + 1, dtype=jnp.int32) - self.window // 2

        def add(spectra: Float[Array, "particle wave"], line: tuple[Any, ...]) -> tuple[Any, None]:
            centre, number, phase, middle, flux, shift, sigma, borders = line
            place = middle[:, None] + within[None, :]
            if borders is not None:
                border = borders[place + 2 * self.window]
            else:
                steps = jnp.asarray(self.step) * (place.astype(flux.dtype) - 0.5 - phase)
                border = centre * jnp.expm1(steps) if self.sampling == "log" else steps
            light = jnp.diff(ndtr((border - shift[:, None]) / sigma[:, None]), axis=1) * flux[:, None]
            bin_number = number + place[:, :-1] - first
            inside = (bin_number >= 0) & (bin_number < n_wave)
            target = jnp.where(inside, bin_number, n_wave)
            return spectra.at[particle, target].add(light / jnp.diff(border, axis=1), mode="drop"), None

        lines = (self.centre, self.number, self.phase, middle.T, flux.T, shift.T, sigma.T, self.border)
        empty = jnp.zeros((len(flux), n_wave), flux.dtype)
        return lax.scan(add, varying(empty, flux, shift, first), lines)[0]

    def _middle(self, shift: Float[Array, "particle line"]) -> Int[Array, "particle line"]:
        """The bin of each line's middle, counted from the line's at rest; of a table from the detector's first.

        Places beyond the table's borders are put into their outermost bin, whose window does not reach the detector.
        """
        if self.border is None:
            relative = jnp.log1p(shift / jnp.asarray(self.centre)[None, :]) if self.sampling == "log" else shift
            return jnp.floor(relative / self.step + jnp.asarray(self.phase)[None, :] + 0.5).astype(jnp.int32)
        border = jnp.asarray(self.border)
        found = jax.vmap(functools.partial(jnp.searchsorted, side="right"), in_axes=(0, 1), out_axes=1)(border, shift)
        room = border.shape[1] - 1 - 4 * self.window
        return jnp.clip(found.astype(jnp.int32) - 1 - 2 * self.window, -self.window, room - 1 + self.window)
