"""Plans of method `basis` on the host: basis spectra, velocity nodes, the projection matrix."""

import dataclasses
from collections.abc import Mapping

import jax
import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.constants import SPEED_OF_LIGHT
from rubix_like.engine.basis import Accuracy, BasisPainter
from rubix_like.engine.cost import Work, rates_here
from rubix_like.engine.direct import DirectPainter
from rubix_like.engine.histogram import VelocityNodes
from rubix_like.engine.kernels.kernel import build_kernel
from rubix_like.engine.setup import Setup, SourcePlan
from rubix_like.engine.source_planning import OnBins, work_of
from rubix_like.engine.spectra.attenuation import DustFactors
from rubix_like.engine.spectra.coefficient_map import TABLES, MatrixMap, TermWeights, find_term_tables
from rubix_like.engine.spectra.dusty_histogram import DustColours
from rubix_like.engine.spectra.spectral_basis import Views, find_basis, find_dusty_basis
from rubix_like.engine.spectra.velocity_nodes import (
    Basis,
    Window,
    candidates_at_rest,
    choose_nodes,
    node_velocity,
    project_compiled,
    seen,
    window_of,
)
from rubix_like.physics import bspline
from rubix_like.runtime.arrays_on_disk import key_of, remembered
from rubix_like.runtime.mesh.mesh import as_dtype

_PSF_SHARE = 0.5
"""Share of the tolerance, beside it, for the terms of a PSF that follows wavelength."""

_REDUCED_SHARE = 0.1
"""Share of the tolerance, beside it, for coefficients that are reduced before they are projected."""

_REDUCED_WORTH = 0.8
"""They are reduced where that takes no more than this share of the seconds."""

_N_A_V = 4
"""A(V) at which the errors between velocity nodes are measured."""

_VELOCITY_SHARE = 0.55
"""Share of the tolerance for the interpolation between velocity nodes; sqrt(1 + 0.55^2) = 1.14 in all."""

_FOUND = ("spectra", "coefficients", "residuals", "candidates", "local_error", "flux_error", "lowest")
_FOUND_BEHIND_DUST = (*_FOUND, "own", "kept", "reduction", "exponent", "mix", "a_v")
_NODES = ("matrix", "step", "n_node", "velocity_error", "spectrum_error")


def build_basis_painter(plan: SourcePlan, setup: Setup) -> BasisPainter:
    """All tables of the painter for one source, from the disk cache where they were worked out before."""
    window = window_of(plan)
    tolerance, dtype = setup.config.engine.tolerance, setup.config.engine.precision
    detector = map(np.asarray, jax.tree.leaves((window.rebinner, window.response)))
    content = key_of(window.templates, window.rest_wavelength, *detector)
    key = key_of(content, np.asarray(plan.templates.covered), window.limit, tolerance, plan.covered)
    if window.layers is None:
        found = remembered("basis", key, _FOUND, lambda: _find(window, plan, tolerance))
    else:
        layers = window.layers(window.rest_wavelength)
        key = key_of(key, layers, plan.templates.axes.largest_a_v)
        found = remembered("basis", key, _FOUND_BEHIND_DUST, lambda: _find_behind_dust(window, plan, tolerance))
        dims = 10.0 ** (-0.4 * (found["a_v"] @ layers))  # the templates behind each A(V), one after the other
        dimmed = window.templates[None] * dims[:, None]
        window = window._replace(templates=dimmed.reshape(-1, window.templates.shape[1]))
    key = key_of(key, found["spectra"], plan.motion.limit, setup.luminosity_distance, dtype)
    key = key if plan.step is None else key_of(key, plan.step)
    kept = remembered("matrix", key, _NODES, lambda: _nodes_and_matrix(window, found, plan, setup))
    nodes = VelocityNodes(step=np.asarray(kept["step"]), n_node=int(kept["n_node"]))
    motion, matrix = plan.motion, kept["matrix"]
    moment_matrix = _moment_matrix(matrix, nodes, np.diff(setup.instrument.bins.edges))
    matrix_map = MatrixMap(matrix, moment_matrix, sizes=(len(matrix),))
    work = work_of(setup, plan.spread, setup.particles.get("stars"), OnBins.of_spectra(plan.spread))
    term_map, psf_error = _term_map(matrix_map, found["coefficients"], setup, work)
    reduced, reduced_error = _reduced_map(matrix_map, found["coefficients"], setup, work)
    keeps_all = term_map is None and reduced is None and rates_here().may_keep_all(work, matrix_map.n_coefficient)
    errors = {"residual": found["residuals"].max(initial=0.0)} | {**found, **kept}
    errors |= {"spectrum_error": kept["spectrum_error"] + reduced_error}
    colours = None
    if window.layers is not None:
        factors = DustFactors(found["exponent"], found["mix"], np.asarray(plan.templates.axes.largest_a_v))
        colours = DustColours(factors, found["reduction"], tuple(int(number) for number in found["kept"]))
    return BasisPainter(
        axes=plan.templates.axes,
        coefficients=found["coefficients"] if window.layers is None else found["own"],
        coefficient_map=term_map or reduced or matrix_map,
        nodes=nodes,
        velocity_limit=np.asarray(plan.velocity_limit if motion.capacity else motion.limit),
        accuracy=Accuracy(**{field.name: np.asarray(errors[field.name]) for field in dataclasses.fields(Accuracy)}),
        kernel=build_kernel(setup.config.engine.kernel),
        outliers=DirectPainter.build(plan, setup, responds="chunk") if motion.capacity else None,
        capacity=motion.capacity,
        colours=colours,
        by_terms=term_map is not None,
        keeps_all=keeps_all,
        psf_error=psf_error,
    )


def _term_map(
    matrix_map: MatrixMap, templates: Float[ndarray, "template rank"], setup: Setup, work: Work
) -> tuple[MatrixMap | None, ndarray | None]:
    """The map for a PSF that follows wavelength, and its error; None for the map where it would be less accurate than
    the tolerance asks, and for both where there is no such PSF or where a convolution of every bin's image is cheaper.
    """
    terms, psf, engine = setup.psf_terms, setup.instrument.psf, setup.config.engine
    if terms is None or psf is None or psf.nodes is None:
        return None, None
    shares = psf.nodes.shares(setup.instrument.bins.wavelength, np)
    weights = TermWeights(shares @ np.asarray(terms.weights).T, np.asarray(terms.size), float(terms.error))
    matrix, tolerance = np.asarray(matrix_map.matrix), _PSF_SHARE * engine.tolerance
    key = key_of(matrix, templates, *weights, tolerance)
    found = remembered("terms", key, TABLES, lambda: find_term_tables(matrix, templates, weights, tolerance))
    sizes = tuple(int(size) for size in found["sizes"])
    rates, n_coefficient = rates_here(), matrix_map.n_coefficient
    if rates.terms_seconds(work, n_coefficient, sizes) > rates.planes_seconds(work, n_coefficient):
        return None, None
    if found["error"] > tolerance:
        return None, found["error"]
    return _map_of(found, matrix_map), found["error"]


def _reduced_map(
    matrix_map: MatrixMap, templates: Float[ndarray, "template rank"], setup: Setup, work: Work
) -> tuple[MatrixMap | None, float]:
    """The map by fewer coefficients, of a field that is large, and the error that it adds; None with a PSF that follows
    wavelength, which has separate terms, and where so many are needed that it would not be cheaper."""
    rates, number = rates_here(), matrix_map.n_coefficient
    seconds = rates.seeing_seconds(work, number)
    if not rates.may_reduce(work, number):
        return None, 0.0
    matrix, tolerance = np.asarray(matrix_map.matrix), _REDUCED_SHARE * setup.config.engine.tolerance
    weights = TermWeights(np.ones((matrix.shape[1], 1)), np.ones(1), 0.0)
    key = key_of(matrix, templates, "one", tolerance)
    found = remembered("terms", key, TABLES, lambda: find_term_tables(matrix, templates, weights, tolerance))
    is_cheaper = rates.terms_seconds(work, number, found["sizes"].tolist()) < _REDUCED_WORTH * seconds
    if not found["reduction"].shape[1] or found["error"] > tolerance or not is_cheaper:
        return None, 0.0
    return _map_of(found, matrix_map), float(found["error"])


def _map_of(found: Mapping[str, ndarray], matrix_map: MatrixMap) -> MatrixMap:
    dtype = np.asarray(matrix_map.matrix).dtype
    reduction, mixing, matrix = (found[name].astype(dtype) for name in ("reduction", "mixing", "matrix"))
    sizes = tuple(int(size) for size in found["sizes"])
    return MatrixMap(matrix, matrix_map.moment_matrix, sizes, reduction if reduction.shape[1] else None, mixing)


def _moment_matrix(
    matrix: Float[ndarray, "velocity_rank wave"], nodes: VelocityNodes, bin_width: Float[ndarray, " wave"]
) -> Float[ndarray, "velocity_rank 2"]:
    """Light of each coefficient on the detector (1e-20 erg/s/cm2), and that of its light times v_los (km/s).

    The second is the spline through the light at each node times the node's velocity.
    """
    light = (matrix.astype(np.float64) @ bin_width).reshape(nodes.n_node, -1)
    prefilter = bspline.prefilter(nodes.n_node)
    moment = prefilter @ (node_velocity(nodes)[:, None] * np.linalg.solve(prefilter, light))
    return np.stack([light.reshape(-1), moment.reshape(-1)], axis=1)


def _find(window: Window, plan: SourcePlan, tolerance: float) -> dict[str, ndarray]:
    views = _seen_templates(window, plan)
    basis = find_basis(window.templates, window.rest_wavelength, views.seen, tolerance, views.n_bin)
    return {
        "spectra": basis.spectra,
        "coefficients": basis.coefficients,
        "residuals": basis.residuals,
        "candidates": candidates_at_rest(window, basis.spectra, basis.coefficients, plan.covered),
        **{name: np.asarray(getattr(basis.errors, name)) for name in ("local_error", "flux_error", "lowest")},
    }


def _find_behind_dust(window: Window, plan: SourcePlan, tolerance: float) -> dict[str, ndarray]:
    """The basis of a window behind dust; `coefficients` and `residuals` are those of its templates at a few `a_v`, one
    after the other."""
    basis = find_dusty_basis(
        _seen_templates(window, plan), float(np.asarray(plan.templates.axes.largest_a_v)), tolerance
    )
    chosen = np.unique(np.linspace(0, len(basis.a_v) - 1, _N_A_V).round().astype(int))
    coefficients = basis.coefficients(basis.a_v[chosen]).reshape(-1, len(basis.spectra))
    factors = basis.dust.factors
    return {
        "spectra": basis.spectra,
        "coefficients": coefficients,
        "residuals": np.maximum(basis.residuals[chosen], basis.residuals.max(axis=0)).reshape(-1),
        "candidates": candidates_at_rest(window, basis.spectra, coefficients, plan.covered),
        "own": basis.dust_free,
        "reduction": basis.reduction[basis.chosen],
        "kept": np.asarray(basis.kept),
        "exponent": np.asarray(factors.exponent),
        "mix": np.asarray(factors.mix),
        "a_v": basis.a_v[chosen],
        **{name: np.asarray(getattr(basis, name)) for name in ("local_error", "flux_error", "lowest")},
    }


def _seen_templates(window: Window, plan: SourcePlan) -> Views:
    """The templates as the detector sees them at velocities that cover the window."""
    bins = plan.spread.bins
    # Views no further apart than half the detector's width cover the window twice: where they are as far apart as it
    # is wide, a basis may err 1.4 times as much between them.
    width = SPEED_OF_LIGHT * np.log(bins.edges[-1] / bins.edges[0])
    velocity = np.linspace(-window.limit, window.limit, max(2, int(np.ceil(4 * window.limit / width)) + 1))
    covered = [plan.spread.covered(v, v) for v in velocity]
    if not any(bins.any() for bins in covered):
        velocity, covered = np.zeros(1), [plan.covered]
    found = seen(window, window.templates, velocity)
    views = [spectra[:, within] for spectra, within in zip(found, covered, strict=True)]
    rest = bins.to_vacuum(bins.wavelength) / (1.0 + plan.spread.redshift)
    wavelength = [rest[within] / np.exp(v / SPEED_OF_LIGHT) for v, within in zip(velocity, covered, strict=True)]
    used = [number for number, spectra in enumerate(views) if spectra.shape[1]]
    return Views(
        templates=window.templates,
        rest_wavelength=window.rest_wavelength,
        seen=np.concatenate([views[number] for number in used], axis=1),
        wavelength=np.concatenate([wavelength[number] for number in used]),
        n_bin=tuple(views[number].shape[1] for number in used),
        layers=window.layers,
    )


def _nodes_and_matrix(
    window: Window, found: Mapping[str, ndarray], plan: SourcePlan, setup: Setup
) -> dict[str, ndarray]:
    """The velocity nodes for a source's velocities, with their errors, and the projection matrix."""
    budget = _VELOCITY_SHARE * setup.config.engine.tolerance
    basis = Basis(found["spectra"], found["coefficients"], found["residuals"])
    chosen = choose_nodes(window, basis, found["candidates"], plan.motion.limit, plan.covered, budget, plan.step)
    nodes = chosen.nodes
    reach = float(nodes.step) * (nodes.n_node // 2)
    smooth = plan.spread.covered(-reach, reach)
    arguments = chosen.at_nodes, bspline.prefilter(nodes.n_node), smooth, np.asarray(setup.luminosity_distance)
    with jax.enable_x64(True):
        matrix = np.asarray(project_compiled(*as_dtype(arguments, "float64")))
    return {
        "matrix": matrix.reshape(-1, matrix.shape[2]).astype(setup.config.engine.precision),
        "step": np.asarray(nodes.step),
        "n_node": np.asarray(nodes.n_node),
        "velocity_error": np.asarray(chosen.velocity_error),
        "spectrum_error": np.asarray(chosen.spectrum_error),
    }
