"""Method `basis` of lines: basis line ratios, velocity nodes, windows of bins."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax import lax
from jax.scipy.special import ndtr
from jaxtyping import Array, Float, Int
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.config.sections.products import LARGEST_DISPERSION
from rubix_like.constants import SOLAR_LUMINOSITY_AT_1_MPC, SPEED_OF_LIGHT
from rubix_like.engine.basis import BasisPainter, Number
from rubix_like.engine.histogram import VelocityNodes
from rubix_like.engine.kernels.kernel import build_kernel
from rubix_like.engine.lines.line_direct import DirectLinePainter
from rubix_like.engine.lines.line_planning import (
    LineTracks,
    factored_dust_of,
    find_ratios,
    lines_of,
    node_step,
    reference_light,
    rounded_up,
)
from rubix_like.engine.painter import AbstractPainter
from rubix_like.engine.setup import Setup, SourcePlan
from rubix_like.engine.spaxels import Images, exact_product
from rubix_like.engine.spectra.coefficient_map import AbstractCoefficientMap, Projection, projected
from rubix_like.engine.spectra.dusty_histogram import DustColours
from rubix_like.engine.spectra.velocity_nodes import node_velocity, plan_nodes
from rubix_like.physics import bspline
from rubix_like.runtime.mesh.bin_split import per_bin
from rubix_like.runtime.mesh.mesh import DeviceLayout, varying

_VALUES_AT_ONCE = 1 << 22
"""Numbers (lines at nodes, bins) of the spaxels that are projected at once."""


class LineMap(AbstractCoefficientMap):
    """The map from coefficients, (velocity node, basis line ratio) flattened to one axis, to lines exact in every bin.

    Line l at node j is a Gaussian in wavelength about c with sigma^2 = `spread`^2 + `stretch`^2 (`thermal`^2 +
    `velocity_dispersion`^2); a bin holds the difference of the error functions at its borders over its width.
    As for spectra, a node holds the B-spline's coefficient (`prefilter`), not the value. Each line is projected
    in a separate window of bins, around all its nodes; bins of other devices are left out.

    | field | shape | unit |
    |---|---|---|
    | bin_number | (wave,) | numbers of the detector's bins that are held |
    | start | (line,) | number of each window's first bin; windows may reach beyond the detector |
    | border | (line, border) | borders of the window's bins from the line at rest, Angstrom of the medium |
    | per_width | (line, window) | 1 / bin width, 1 / Angstrom |
    | ends | (line, 2) | the detector's ends from the line at rest |
    | shift | (line, velocity) | the line at each node from the line at rest |
    | spread, stretch | (line, velocity) | sigma of the line spread, Angstrom; c / c0, Angstrom per km/s |
    | thermal | (line,) | km/s |
    | loading | (rank, line) | flux (1e-20 erg/s/cm2) of each line per unit of each basis line ratio |
    | velocity_dispersion | scalar | km/s, from `narrowest` to 500; lines of any other width are NaN |
    """

    bin_number: Int[Array | ndarray, " wave"] = eqx.field(metadata=per_bin())
    start: Int[Array | ndarray, " line"]
    border: Float[Array | ndarray, "line border"]
    per_width: Float[Array | ndarray, "line window"]
    ends: Float[Array | ndarray, "line 2"]
    shift: Float[Array | ndarray, "line velocity"]
    spread: Float[Array | ndarray, "line velocity"]
    stretch: Float[Array | ndarray, "line velocity"]
    thermal: Float[Array | ndarray, " line"]
    loading: Float[Array | ndarray, "rank line"]
    prefilter: Float[Array | ndarray, "velocity velocity"]
    nodes: VelocityNodes
    narrowest: Float[Array | ndarray, ""]
    velocity_dispersion: Float[Array | ndarray, ""]

    @property
    def n_coefficient(self) -> int:
        """Nodes times rank."""
        return self.nodes.n_node * self.loading.shape[0]

    @property
    def n_wave(self) -> int:
        """Bins that are held."""
        return len(self.bin_number)

    def kept(self, coefficients: Float[Array, "spaxel coefficient"]) -> Float[Array, "spaxel kept"]:
        """All of them."""
        return coefficients

    def spectra(self) -> Projection:
        """The projection line by line, a few spaxels at a time: no matrix of all lines in all bins is made."""
        response, loading = self._responses(), jnp.asarray(self.loading)
        at_once = max(1, _VALUES_AT_ONCE // (self.nodes.n_node * loading.shape[1] + self.n_wave))

        @jax.checkpoint
        def of_one(coefficients: Float[Array, " coefficient"]) -> Float[Array, " wave"]:
            by_line = exact_product(coefficients.reshape(self.nodes.n_node, -1), loading)
            return self._added(by_line, response)

        return lambda coefficients: lax.map(of_one, coefficients, batch_size=at_once)

    def moments(self) -> Float[Array, "coefficient 2"]:
        """The moments, from the share of each line that falls on the detector."""
        place = (jnp.asarray(self.ends)[:, None, :] - jnp.asarray(self.shift)[:, :, None]) / self._sigma()[:, :, None]
        seen = jnp.diff(ndtr(place), axis=2)[:, :, 0]
        light = exact_product(seen.T, jnp.asarray(self.loading).T)
        number = jnp.arange(self.nodes.n_node) - self.nodes.n_node // 2
        velocity = number.astype(light.dtype) * self.nodes.step
        filtered = [exact_product(jnp.asarray(self.prefilter), sums) for sums in (light, velocity[:, None] * light)]
        return jnp.stack([sums.reshape(-1) for sums in filtered], axis=1)

    def seen(
        self, kept: Float[Array, "spaxel kept"], spatial: Images, *, by_terms: bool
    ) -> Float[Array, "seen own_bin"]:
        """The projection, after or before the spaxels are seen."""
        return projected(self.spectra(), kept, spatial, by_terms=by_terms)

    def of_own_bins(self, layout: DeviceLayout) -> "LineMap":
        """The map to these bins only."""
        return dataclasses.replace(self, bin_number=layout.own_bins(jnp.asarray(self.bin_number)))

    def padded(self, n_padded: int) -> "LineMap":
        """The map with bins beyond the detector's last appended."""
        return dataclasses.replace(self, bin_number=np.arange(n_padded, dtype=np.int32))

    def _sigma(self) -> Float[Array, "line velocity"]:
        """Sigma (Angstrom) of each line at each node; NaN for a velocity_dispersion outside the planned range."""
        dispersion = jnp.asarray(self.velocity_dispersion)
        within = (dispersion >= self.narrowest * (1 - 1e-5)) & (dispersion <= LARGEST_DISPERSION * (1 + 1e-5))
        moving = jnp.asarray(self.thermal) ** 2 + dispersion**2
        variance = jnp.asarray(self.spread) ** 2 + jnp.asarray(self.stretch) ** 2 * moving[:, None]
        return jnp.where(within, jnp.sqrt(variance), jnp.full_like(variance, jnp.nan))

    def _responses(self) -> Float[Array, "line velocity window"]:
        """Flux density (1 / Angstrom) of a line of flux 1 in its window, for the spline's coefficient at each node."""
        distance = jnp.asarray(self.border)[:, None, :] - jnp.asarray(self.shift)[:, :, None]
        light = jnp.diff(ndtr(distance / self._sigma()[:, :, None]), axis=2)
        density = light * jnp.asarray(self.per_width)[:, None, :]
        prefilter = jnp.asarray(self.prefilter)
        return jnp.einsum("jk,lkb->ljb", prefilter, density, precision=lax.Precision.HIGHEST)

    def _added(
        self, by_line: Float[Array, "velocity line"], response: Float[Array, "line velocity window"]
    ) -> Float[Array, " wave"]:
        """The sum of all lines in the device's bins; margins as wide as a window take the light beyond them."""
        n_window, first = response.shape[2], jnp.asarray(self.bin_number)[0]
        place = jnp.clip(jnp.asarray(self.start) - first + n_window, 0, self.n_wave + n_window)

        def add(flux: Float[Array, " wide"], line: tuple[Any, ...]) -> tuple[Float[Array, " wide"], None]:
            place, amounts, response = line
            window = lax.dynamic_slice_in_dim(flux, place, n_window) + exact_product(amounts, response)
            return lax.dynamic_update_slice_in_dim(flux, window, place, 0), None

        empty = jnp.zeros(self.n_wave + 2 * n_window, by_line.dtype)
        flux, _ = lax.scan(add, varying(empty, by_line, response, first), (place, by_line.T, response))
        return flux[n_window : n_window + self.n_wave]


_N_SIDE = 8
"""Velocity nodes on either side of a velocity whose splines are added up there."""

_N_PLACE = 16
"""Velocities at which the error of a profile is measured."""


class LineAccuracy(eqx.Module):
    """Largest errors of the narrowest lines that the nodes are planned for (scalar arrays).

    `line_flux_error`: of a line's flux, relative to that flux (lines fainter than 1e-2 of Hb: to 1e-2 of Hb);
    `line_profile_error`: of a line in one bin, relative to its highest bin, midway between velocity nodes.
    """

    line_flux_error: Number
    line_profile_error: Number


def build_line_nodes(plan: SourcePlan, setup: Setup) -> BasisPainter:
    """The painter of lines at velocity nodes."""
    engine, templates, motion = setup.config.engine, lines_of(plan), plan.motion
    every = LineTracks.of(templates, plan.spread)
    step = node_step(every, motion.limit, plan.narrowest, engine.tolerance)
    nodes = plan_nodes(motion.limit, step)
    seen = every.on_detector(np.array([-1.0, 1.0]) * max(plan.velocity_limit, motion.limit))
    tracks = every.chosen(seen)
    dust = factored_dust_of(templates, tracks.wavelength, engine.tolerance)
    ratios = find_ratios(templates.table[:, seen], reference_light(templates.table, templates.lines), engine.tolerance)
    flux_factor = SOLAR_LUMINOSITY_AT_1_MPC / setup.luminosity_distance**2
    coefficients, loading, colours, dust_error = ratios.coefficients, ratios.loading, None, 0.0
    if dust is not None:
        products = (dust.parts[:, None, :] * loading[None, :, :]).reshape(-1, loading.shape[1])
        loading, dust_error = np.eye(loading.shape[1]), dust.error
        colours = DustColours(dust.factors, products, (coefficients.shape[1],) * len(dust.parts))
    profile_error = _profile_error(tracks, nodes, plan.narrowest)
    line_map = _line_map(tracks, nodes, flux_factor * loading, plan.narrowest)
    terms = setup.psf_terms
    by_terms = terms is not None and terms.n_term * line_map.n_coefficient < line_map.n_wave
    return BasisPainter(
        axes=templates.axes,
        coefficients=coefficients,
        coefficient_map=line_map,
        nodes=nodes,
        velocity_limit=np.asarray(plan.velocity_limit if motion.capacity else motion.limit),
        accuracy=LineAccuracy(np.asarray(ratios.error + dust_error), np.asarray(profile_error)),
        kernel=build_kernel(engine.kernel),
        outliers=DirectLinePainter.build(plan, setup) if motion.capacity else None,
        capacity=motion.capacity,
        colours=colours,
        by_terms=by_terms,
        psf_error=np.asarray(terms.error) if terms is not None and by_terms else None,
    )


@named_arguments
def with_dispersion(painter: AbstractPainter, velocity_dispersion: Float[Array | ndarray, ""]) -> AbstractPainter:
    """The painter of lines with another velocity_dispersion (km/s, may be traced); TypeError for one of spectra."""
    dispersion = jnp.asarray(velocity_dispersion)
    if isinstance(painter, DirectLinePainter):
        return dataclasses.replace(painter, velocity_dispersion=dispersion)
    if not (isinstance(painter, BasisPainter) and isinstance(painter.coefficient_map, LineMap)):
        raise TypeError(f"velocity_dispersion: expected a painter of lines, got {type(painter).__name__}")
    outliers = None if painter.outliers is None else with_dispersion(painter.outliers, dispersion)
    line_map = dataclasses.replace(painter.coefficient_map, velocity_dispersion=dispersion)
    return dataclasses.replace(painter, coefficient_map=line_map, outliers=outliers)


def dispersion_of(painter: AbstractPainter) -> Float[Array, ""] | None:
    """The velocity_dispersion (km/s) that a painter paints lines with; None for one of spectra."""
    if isinstance(painter, DirectLinePainter):
        return jnp.asarray(painter.velocity_dispersion)
    if isinstance(painter, BasisPainter) and isinstance(painter.coefficient_map, LineMap):
        return jnp.asarray(painter.coefficient_map.velocity_dispersion)
    return None


def _line_map(
    tracks: LineTracks, nodes: VelocityNodes, loading: Float[ndarray, "rank line"], narrowest: float
) -> LineMap:
    bins, velocity = tracks.bins, node_velocity(nodes)
    placed, rest = tracks.at(velocity), tracks.at(np.zeros(1)).centre[0]
    first, last = tracks.windows(velocity)
    number = first[:, None] + np.arange(rounded_up(int((last - first).max()) + 1) + 1)[None, :]
    border = bins.at(number - 0.5)
    return LineMap(
        bin_number=np.arange(bins.n_wave, dtype=np.int32),
        start=first,
        border=border - rest[:, None],
        per_width=1.0 / np.diff(border, axis=1),
        ends=bins.edges[[0, -1]][None, :] - rest[:, None],
        shift=(placed.centre - rest).T,
        spread=placed.spread.T,
        stretch=placed.centre.T / SPEED_OF_LIGHT,
        thermal=tracks.thermal,
        loading=loading,
        prefilter=bspline.prefilter(nodes.n_node),
        nodes=nodes,
        narrowest=np.asarray(narrowest),
        velocity_dispersion=np.asarray(narrowest),
    )


def _profile_error(tracks: LineTracks, nodes: VelocityNodes, dispersion: float) -> float:
    """Largest error of a line in any bin, relative to its highest one, midway between nodes at some velocities."""
    offset, worst = (np.arange(-_N_SIDE, _N_SIDE) + 0.5) * float(nodes.step), 0.0
    for middle in np.linspace(-1.0, 1.0, _N_PLACE) * float(nodes.limit):
        velocity = np.concatenate([[middle], middle + offset])
        placed = tracks.at(velocity)
        first, sigma = np.round(tracks.bins.place(placed.centre[0])), tracks.sigma(placed, dispersion)
        reach = int(np.ceil(np.max(tracks.bins.place(placed.centre[-1] + 6 * sigma[0]) - first)))
        border = tracks.bins.at(first[:, None] + np.arange(-reach, reach + 2)[None, :] - 0.5)
        place = (border[None] - placed.centre[:, :, None]) / sigma[:, :, None]
        light = np.diff(scipy.special.ndtr(place), axis=2)
        error = np.abs(np.tensordot(bspline.halfway(_N_SIDE), light[1:], 1) - light[0]).max(axis=1)
        worst = max(worst, float(np.max(error / light[0].max(axis=1))))
    return worst
