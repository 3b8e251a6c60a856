"""Method `direct`: the spectrum of every particle, summed, at a cost of particles x wavelengths; it defines correct.

Few particles' spectra may also be kept in rows, one for each spaxel with light of any (`OutlierLight`).
"""

import dataclasses
import functools
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray

from rubix_like.constants import SOLAR_LUMINOSITY_AT_1_MPC, SPEED_OF_LIGHT
from rubix_like.cube.meta import SourceCounters
from rubix_like.engine.cost import MOST_ROWS, rates_here
from rubix_like.engine.painter import AbstractPainter, Look, Sum, View, no_counts
from rubix_like.engine.setup import Setup, SourcePlan
from rubix_like.engine.spaxels import Images, SpaxelGrid
from rubix_like.engine.spectra.attenuation import transmission
from rubix_like.instrument.detector import Response, plan_response, rest_window
from rubix_like.physics.rebin import Rebinner
from rubix_like.physics.templates import TemplateAxes, layers_of, weighted_rows
from rubix_like.runtime.mesh.bin_split import per_bin
from rubix_like.runtime.mesh.mesh import DATA_AXIS, DeviceLayout, accumulate, varying, where_wanted

Responds = Literal["sum", "device", "chunk"]

_CHUNK_ROWS = 256
"""Most rows that are added to a spaxel in a running float32 sum."""

_MOST_SPAXELS = 1 << 24
"""Spaxels whose numbers float32 holds exactly."""

_FINE_BINS = 4
"""Fine bins of a chunk over `Rates.values_at_once`: they are its only large array, 2 MB in float32 on a processor."""


class DirectPartial(eqx.Module):
    """Light in fine bins (1e-20 erg/s/cm2; once it has been through the response, flux density in detector bins), and
    the sums of light and of light x v_los, per spaxel."""

    light: Float[Array, "spaxel bin"]
    moments: Float[Array, "spaxel 2"]


class DirectContribution(eqx.Module):
    """The contribution of one chunk: rows, each with the spaxel that it goes to."""

    index: Int[Array, " row"]
    light: Float[Array, "row bin"]
    moments: Float[Array, "row 2"]


class AbstractDirectPainter(AbstractPainter):
    """A painter that adds up the spectra of all particles; its partial is a `DirectPartial`."""

    @abstractmethod
    def contribution(self, view: View, n_spaxel: int) -> DirectContribution:
        """The spectra of a few particles, shared among their spaxels."""


class DirectPainter(AbstractDirectPainter):
    """F_p(lambda_o) = sum_i m_i S(lambda_o / D_i; t_i, Z_i) / (4 pi D_L^2 D_i) with D_i = (1 + z) exp(v_i / c).

    The mean over each detector bin is exact; relativistic beaming (0.4 % at 300 km/s) is left out.

    `spectra` are the templates on a rest-frame window, in Lsun per vacuum Angstrom per unit of amount; the rebinner's
    edges are in the galaxy's rest frame; behind dust each spectrum is multiplied by 10^(-0.4 A(V) `attenuation`) of
    each layer, at the nodes of the window; `flux_factor` is 1 Lsun / (4 pi D_L^2) in 1e-20 erg/s/cm2. Line spread and
    detector bins act, as `responds` says, once on the sum over devices, on the sum of each device (which may then be
    added up bin by bin), or on each chunk (few particles in a field that is large: the sums have fewer bins).
    """

    axes: TemplateAxes
    spectra: Float[Array | ndarray, "template rest"]
    rebinner: Rebinner
    response: Response
    flux_factor: Float[Array | ndarray, ""]
    velocity_limit: Float[Array | ndarray, ""]
    responds: Responds = eqx.field(static=True)
    on_detector: Float[Array | ndarray, " wave"] | None = eqx.field(metadata=per_bin(), default=None)
    attenuation: Float[Array | ndarray, "layer rest"] | None = None

    @classmethod
    def build(cls, plan: SourcePlan, setup: Setup, responds: Responds = "sum") -> "DirectPainter":
        """Tables on the rest-frame window that the detector can see at up to the plan's velocity limit."""
        seen = plan_response(setup.instrument.bins, plan.spread)
        stretch = 1.0 + setup.config.observation.redshift
        templates = plan.templates
        layers = layers_of(templates)
        window = rest_window(templates.rest_wavelength, seen.fine_edges / stretch, plan.velocity_limit)
        nodes = templates.rest_wavelength[window]
        return cls(
            axes=templates.axes,
            spectra=templates.table[:, window],
            rebinner=Rebinner.build(nodes, seen.fine_edges / stretch),
            response=seen.response,
            flux_factor=np.asarray(SOLAR_LUMINOSITY_AT_1_MPC / setup.luminosity_distance**2),
            velocity_limit=np.asarray(plan.velocity_limit),
            responds=responds,
            attenuation=None if layers is None else layers(nodes),
        )

    @property
    def n_coefficient(self) -> int:
        """0: `direct` has no coefficients."""
        return 0

    def laid_out(self, layout: DeviceLayout) -> "DirectPainter":
        """The painter with the fine bins of each part after those of the one before; padded bins see nothing."""
        if layout.split.is_whole:
            return self
        n_part = layout.painted.n_shard
        n_own = layout.split.n_padded // n_part
        block, part, n_wave = self.response.matrix.shape
        fine = np.arange((n_own + block - 1) * part + 1)[None, :] + np.arange(n_part)[:, None] * n_own * part
        missing = n_part * n_own - n_wave
        return dataclasses.replace(
            self,
            rebinner=self.rebinner.chosen(np.minimum(fine, self.response.n_fine).reshape(-1)),
            response=Response(np.pad(np.asarray(self.response.matrix), ((0, 0), (0, 0), (0, missing)))),
            on_detector=np.pad(np.ones(n_wave), (0, missing)),
            responds="device" if layout.scatters and self.responds == "sum" else self.responds,
        )

    def paint(self, look: Look, particles: Any, grid: SpaxelGrid, chunk: int) -> tuple[DirectPartial, SourceCounters]:
        """Spectra of all particles, added to their spaxels."""
        dtype = self.spectra.dtype
        n_bin = self.response.matrix.shape[2] if self.responds == "chunk" else self.response.n_fine
        empty = DirectPartial(jnp.zeros((grid.n_spaxel, n_bin), dtype), jnp.zeros((grid.n_spaxel, 2), dtype))
        start = varying(empty, particles, self), varying(no_counts(self.axes, dtype), particles)
        chunk = spectra_at_once(chunk, grid.n_corner, self.response.n_fine)
        sums, counters = sum_spectra(self.contribution, look, start, particles, chunk)
        if self.responds == "device":
            sums = DirectPartial(self.response.apply(sums.light), sums.moments)
        return sums, counters

    @property
    def sums(self) -> tuple[Sum, ...]:
        """Light bin by bin; the moments are those of the part's bins."""
        return Sum.BINS, Sum.EVERYTHING

    def contribution(self, view: View, n_spaxel: int) -> DirectContribution:
        """Spectra of one chunk, Doppler-shifted and collected in bins, shared among their spaxels."""
        spectra = weighted_rows(jnp.asarray(self.spectra), view.corners(self.axes))
        spectra = dimmed(spectra, view, self.axes, self.attenuation)
        light = self.rebinner.light(spectra, view.v_los / SPEED_OF_LIGHT)
        light = light * (view.amount * self.flux_factor)[:, None]
        total = self._on_detector(light)
        moments = jnp.stack([total, total * view.v_los], axis=1)
        light = self.response.apply(light) if self.responds == "chunk" else light
        return onto_spaxels(light, moments, view, n_spaxel)

    def project(
        self,
        partial: DirectPartial,
        spatial: Images,
        layout: DeviceLayout,  # noqa: ARG002
    ) -> tuple[Float[Array, "seen own"], Float[Array, "seen 2"]]:
        """Line spread and detector bins, once, on the summed light, where they have not acted yet."""
        flux = self.response.apply(partial.light) if self.responds == "sum" else partial.light
        return spatial.of_bins(flux), spatial(partial.moments)

    def report(self) -> dict[str, int | float]:
        """Nothing to report: the method is exact."""
        return {}

    def _on_detector(self, light: Float[Array, "particle fine"]) -> Float[Array, " particle"]:
        """The light in the detector's bins, without that beyond its ends, from where it is only spread onto it."""
        block, part, n_wave = self.response.matrix.shape
        beyond = (block - 1) // 2 * part
        inner = light[:, beyond : beyond + n_wave * part]
        if self.on_detector is not None:
            inner = inner * jnp.repeat(jnp.asarray(self.on_detector), part)[None, :]
        return inner.sum(axis=1)


PaintedSums = tuple[DirectPartial, SourceCounters]


def sum_spectra(
    contribution: Callable[[View, int], DirectContribution], look: Look, start: PaintedSums, particles: Any, chunk: int
) -> PaintedSums:
    """`start` plus the spectra and counters of all particles, computed at most `chunk` at a time."""
    n_spaxel = len(start[0].light)

    def contribute(part: Any) -> tuple[DirectContribution, SourceCounters]:
        view, counters = look(part)
        return contribution(view, n_spaxel), counters

    def add(total: PaintedSums, part: tuple[DirectContribution, SourceCounters]) -> PaintedSums:
        (sums, counted), (rows, counters) = total, part
        light = sums.light.at[rows.index].add(rows.light, mode="drop")
        moments = sums.moments.at[rows.index].add(rows.moments, mode="drop")
        return DirectPartial(light, moments), jax.tree.map(jnp.add, counted, counters)

    return accumulate(contribute, add, start, particles, chunk)


def dimmed(
    light: Float[Array, "particle wave"],
    view: View,
    axes: TemplateAxes,
    relative: Float[Array | ndarray, "layer wave"] | None,
) -> Float[Array, "particle wave"]:
    """The light of each particle behind its dust, whose A / A(V) is `relative`; unchanged without any."""
    a_v = axes.a_v(view.coordinates)
    if a_v is None or relative is None or axes.largest_a_v is None:
        return light
    return light * transmission(a_v, relative, axes.largest_a_v)


def spectra_at_once(limit: int, n_corner: int, n_bin: int) -> int:
    """Particles whose spectra are computed at once: at most `limit`, fewer where the spectra would not fit in a
    processor's cache or float32 sums would get long."""
    rows = min(_FINE_BINS * rates_here().values_at_once // n_bin, _CHUNK_ROWS)
    return int(np.clip(rows // n_corner, 1, limit))


def onto_spaxels(
    light: Float[Array, "particle bin"], moments: Float[Array, "particle 2"], view: View, n_spaxel: int
) -> DirectContribution:
    """The particles' spectra and moments, shared among their spaxels."""
    target, owner = merge_rows(view.spaxel.reshape(-1), n_spaxel)
    shares = jnp.where(owner, view.share.reshape(1, -1), 0.0).reshape(len(target), *view.share.shape)
    merge = functools.partial(jnp.matmul, shares.sum(axis=2), precision=lax.Precision.HIGHEST)
    return DirectContribution(target, merge(light), merge(moments))


def merge_rows(index: Int[Array, " corner"], n_spaxel: int) -> tuple[Int[Array, " row"], Bool[Array, "row corner"]]:
    """The spaxel of each row (out of range for unused rows), and which corners it is the sum of.

    Corners on the same spaxel become one row, so that a crowded one is added to once per chunk (`accumulate`). There is
    one row per spaxel, or one per corner if there are fewer corners.
    """
    if n_spaxel <= len(index):
        spaxel = jnp.arange(n_spaxel, dtype=index.dtype)
        return spaxel, spaxel[:, None] == index[None, :]
    number = jnp.arange(len(index))
    first = jnp.argmax(index[:, None] == index[None, :], axis=1)
    target = jnp.where(first == number, index, jnp.iinfo(index.dtype).max)
    return target, number[:, None] == first[None, :]


class OutlierLight(eqx.Module):
    """Flux density in bins and moments of outliers, sums over particles: of each spaxel, or in rows, one for each
    spaxel that has light of some, those of each device apart.

    `where`: how many outliers each spaxel has light of; of rows the number of their spaxel from 1 on, 0 where a row is
    not used.
    """

    light: DirectPartial
    where: Float[Array, " row"]

    @property
    def number(self) -> Int[Array, ""]:
        """How many spaxels, or rows, have light."""
        return (self.where > 0).sum(dtype=jnp.int32)

    def chosen(self, most: int, *, in_rows: bool) -> "LitSpaxels":
        """The spaxels with light; `most` of them at most."""
        row = jnp.nonzero(self.where > 0, size=most, fill_value=0)[0].astype(jnp.int32)
        used = jnp.arange(most, dtype=jnp.int32) < self.number
        place = (self.where[row] - 1).astype(jnp.int32) if in_rows else row
        light = jax.tree.map(lambda leaf: jnp.where(used[:, None], leaf[row], jnp.zeros_like(leaf[row])), self.light)
        return LitSpaxels(light, jnp.where(used, place, jnp.zeros_like(place)), used)

    def everywhere(self, n_spaxel: int, *, in_rows: bool) -> DirectPartial:
        """The light of each spaxel."""
        if not in_rows:
            return self.light
        lit = self.chosen(len(self.where), in_rows=True)
        return jax.tree.map(
            lambda leaf: jnp.zeros((n_spaxel, leaf.shape[1]), leaf.dtype).at[lit.place].add(leaf), lit.light
        )


class LitSpaxels(eqx.Module):
    """The light of the few spaxels at `place` that are `used`."""

    light: DirectPartial
    place: Int[Array, " few"]
    used: Bool[Array, " few"]


def fit_in_rows(capacity: int, grid: SpaxelGrid) -> bool:
    """Whether so many outliers of each device are few enough for rows; for code inside `jax.shard_map`."""
    return capacity * grid.n_corner * lax.axis_size(DATA_AXIS) <= MOST_ROWS and grid.n_spaxel < _MOST_SPAXELS


def light_in_rows(
    painter: AbstractDirectPainter, look: Look, chosen: Any, wanted: Bool[Array, ""], grid: SpaxelGrid
) -> OutlierLight:
    """The light of the `chosen` particles in rows; none is worked out where they are not `wanted`."""
    view = look(chosen)[0]
    varied = varying(painter, view)

    def contribution(view: View) -> DirectPartial:
        found = varied.contribution(view, grid.n_spaxel)
        return DirectPartial(found.light, found.moments)

    light = where_wanted(wanted, contribution, view, painter)
    view = lax.stop_gradient(view)
    target, owner = merge_rows(view.spaxel.reshape(-1), grid.n_spaxel)
    lit = (owner & _has_light(view).reshape(1, -1)).any(axis=1) & (target < grid.n_spaxel)
    where = jnp.where(lit, target + 1, jnp.zeros_like(target)).astype(view.amount.dtype)
    n_data = lax.axis_size(DATA_AXIS)

    def apart(rows: Float[Array, "row ..."]) -> Float[Array, "every_row ..."]:
        """A device's rows among those of all devices, at 0: sums over devices then have all."""
        every = varying(jnp.zeros((n_data * len(rows), *rows.shape[1:]), rows.dtype), rows)
        return lax.dynamic_update_slice_in_dim(every, rows, lax.axis_index(DATA_AXIS) * len(rows), 0)

    found = OutlierLight(light, where)
    return found if n_data == 1 else jax.tree.map(apart, found)


def light_of_spaxels(
    painter: AbstractDirectPainter, look: Look, chosen: Any, wanted: Bool[Array, ""], grid: SpaxelGrid, chunk: int
) -> OutlierLight:
    """The light of the `chosen` particles in each spaxel; none is worked out where they are not `wanted`."""

    def paint(chosen: Any) -> DirectPartial:
        return painter.paint(look, chosen, grid, chunk)[0]  # they are in the counters already

    light = where_wanted(wanted, paint, chosen, painter)
    view = lax.stop_gradient(look(chosen)[0])
    empty = varying(jnp.zeros(grid.n_spaxel, view.amount.dtype), chosen)
    return OutlierLight(light, empty.at[view.spaxel].add(_has_light(view).astype(empty.dtype), mode="drop"))


def _has_light(view: View) -> Bool[Array, "particle corner"]:
    return view.share * view.amount[:, None] != 0
