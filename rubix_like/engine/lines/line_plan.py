"""What the host works out for lines by method `basis`: basis line ratios, velocity nodes, windows of bins."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray
from scipy.special import ndtr

from rubix_like.arguments import named_arguments
from rubix_like.constants import SOLAR_LUMINOSITY_AT_1_MPC, SPEED_OF_LIGHT
from rubix_like.engine.basis import BasisPainter, Number
from rubix_like.engine.histogram import VelocityNodes
from rubix_like.engine.kernels.kernel import build_kernel
from rubix_like.engine.lines.line_direct import DirectLinePainter
from rubix_like.engine.lines.line_map import LineMap
from rubix_like.engine.lines.line_planning import lines_of, node_step
from rubix_like.engine.lines.line_ratios import factored_dust_of, find_ratios, reference_light
from rubix_like.engine.lines.line_tracks import LineTracks, rounded_up
from rubix_like.engine.painter import AbstractPainter
from rubix_like.engine.setup import Setup, SourcePlan
from rubix_like.engine.spectra.dusty_histogram import DustColours
from rubix_like.engine.spectra.velocity_nodes import node_velocity, plan_nodes
from rubix_like.physics import bspline

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
    own = jnp.asarray(velocity_dispersion)
    if isinstance(painter, DirectLinePainter):
        return dataclasses.replace(painter, velocity_dispersion=own)
    if not (isinstance(painter, BasisPainter) and isinstance(painter.coefficient_map, LineMap)):
        raise TypeError(f"velocity_dispersion: expected a painter of lines, got {type(painter).__name__}")
    outliers = None if painter.outliers is None else with_dispersion(painter.outliers, own)
    return dataclasses.replace(
        painter,
        coefficient_map=dataclasses.replace(painter.coefficient_map, velocity_dispersion=own),
        outliers=outliers,
    )


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
    """The tables of the map, all distances from the lines at rest."""
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
    step, worst = float(nodes.step), 0.0
    offset = (np.arange(-_N_SIDE, _N_SIDE) + 0.5) * step
    for middle in np.linspace(-1.0, 1.0, _N_PLACE) * float(nodes.limit):
        velocity = np.concatenate([[middle], middle + offset])
        placed = tracks.at(velocity)
        first = np.round(tracks.bins.place(placed.centre[0]))
        reach = int(
            np.ceil(np.max(tracks.bins.place(placed.centre[-1] + 6 * tracks.sigma(placed, dispersion)[0]) - first))
        )
        border = tracks.bins.at(first[:, None] + np.arange(-reach, reach + 2)[None, :] - 0.5)
        place = (border[None] - placed.centre[:, :, None]) / tracks.sigma(placed, dispersion)[:, :, None]
        light = np.diff(ndtr(place), axis=2)
        error = np.abs(np.tensordot(bspline.halfway(_N_SIDE), light[1:], 1) - light[0]).max(axis=1)
        worst = max(worst, float(np.max(error / light[0].max(axis=1))))
    return worst
