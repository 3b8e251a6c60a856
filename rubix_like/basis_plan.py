"""What the host works out for method `basis`: basis spectra, velocity nodes, the projection matrix."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like import bspline
from rubix_like.accuracy import Accuracy
from rubix_like.basis import BasisPainter
from rubix_like.constants import SPEED_OF_LIGHT
from rubix_like.detector import rest_window
from rubix_like.direct import DirectPainter
from rubix_like.disk_cache import key_of, remembered
from rubix_like.histogram import VelocityNodes
from rubix_like.lookup import TemplateAxes
from rubix_like.motion import LARGEST_STEP
from rubix_like.projection import Detection, detect_compiled, projection_matrix_compiled
from rubix_like.response import plan_response
from rubix_like.setup import Setup
from rubix_like.spectral_basis import find_basis
from rubix_like.tables import as_dtype

_VELOCITY_SHARE = 0.6
"""Of the tolerance, what interpolation between velocity nodes may err by; sqrt(1 + 0.6^2) = 1.17 in all."""

_LEAST_WINDOW = 1200.0
_STEPS = (2.0, LARGEST_STEP)
"""Smallest and largest step of the velocity nodes (km/s); 5.5 of the largest lie within the least window."""

_N_SIDE = 6
_FIRST_STEP = 60.0
_N_ROUGH = 24
_N_TRIES = 8


_ERRORS = tuple(field.name for field in dataclasses.fields(Accuracy))
_PLAN = ("spectra", "coefficients", "step", *_ERRORS)


class Window(NamedTuple):
    """The templates on the part of the library that the detector can see, and the detector itself (64-bit).

    `limit`: largest velocity (km/s) at which the detector still sees only the window, where the library has it all.
    """

    templates: Float[ndarray, "template rest"]
    rest_wavelength: Float[ndarray, " rest"]
    detection: Detection
    limit: float


def build_basis_painter(templates: Float[ndarray, "template rest"], axes: TemplateAxes, setup: Setup) -> BasisPainter:
    """All tables of the painter for one run, from the disk cache where they were worked out before."""
    window = _window(templates, setup)
    tolerance = setup.config.engine.tolerance
    content = key_of(window.templates, window.rest_wavelength, *map(np.asarray, jax.tree.leaves(window.detection)))
    key = key_of(content, window.limit, tolerance, setup.covered)
    plan = remembered("basis", key, _PLAN, lambda: _plan(window, setup, tolerance))
    nodes = plan_nodes(setup.motion.limit, float(plan["step"]))
    smooth = setup.spread.covered(-_reach(nodes), _reach(nodes))
    dtype, distance = setup.config.engine.precision, setup.luminosity_distance
    key = key_of(content, plan["spectra"], float(nodes.step), nodes.n_node, smooth, distance, dtype)
    kept = remembered(
        "matrix", key, ("matrix",), lambda: {"matrix": _matrix(window, plan["spectra"], nodes, smooth, distance, dtype)}
    )
    outliers = None
    if setup.motion.capacity:
        outliers = DirectPainter.build(templates, axes, setup, responds="chunk")
    return BasisPainter(
        axes=axes,
        coefficients=plan["coefficients"],
        matrix=kept["matrix"],
        nodes=nodes,
        moment_matrix=_moment_matrix(kept["matrix"], nodes, np.diff(setup.instrument.bins.edges)),
        velocity_limit=np.asarray(setup.velocity_limit if setup.motion.capacity else setup.motion.limit),
        accuracy=Accuracy(**{name: plan[name] for name in _ERRORS}),
        outliers=outliers,
        capacity=setup.motion.capacity,
    )


def plan_nodes(limit: float, step: float) -> VelocityNodes:
    """The fewest nodes at most `step` km/s apart with all of +-`limit`, and what rounds to it, in their support."""
    n_side = max(1, int(np.ceil(limit / step - 1e-5)))
    return VelocityNodes(step=np.asarray(limit * (1 + 1e-6) / n_side), n_node=2 * (n_side + 1) + 1)


def _moment_matrix(
    matrix: Float[ndarray, "velocity_rank wave"], nodes: VelocityNodes, bin_width: Float[ndarray, " wave"]
) -> Float[ndarray, "velocity_rank 2"]:
    """Of each coefficient: its light on the detector (1e-20 erg/s/cm2), and that of its light times v_los (km/s).

    The second is the spline through the light at each node times the node's velocity.
    """
    light = (matrix.astype(np.float64) @ bin_width).reshape(nodes.n_node, -1)
    prefilter = bspline.prefilter(nodes.n_node)
    moment = prefilter @ (_velocity(nodes)[:, None] * np.linalg.solve(prefilter, light))
    return np.stack([light.reshape(-1), moment.reshape(-1)], axis=1)


def _velocity(nodes: VelocityNodes) -> Float[ndarray, " velocity"]:
    """km/s at each node, in 64 bits."""
    return (np.arange(nodes.n_node) - nodes.n_node // 2) * float(nodes.step)


def _reach(nodes: VelocityNodes) -> float:
    return float(nodes.step) * (nodes.n_node // 2)


def _window(templates: Float[ndarray, "template rest"], setup: Setup) -> Window:
    plan = plan_response(setup.instrument.bins, setup.spread)
    redshift = setup.config.observation.redshift
    limit = max(1.25 * setup.motion.limit + 50.0, _LEAST_WINDOW)
    nodes = np.asarray(setup.library.rest_wavelength)
    part = rest_window(nodes, plan.fine_edges / (1.0 + redshift), limit)
    return Window(templates[:, part], nodes[part], Detection.build(nodes[part], plan, redshift), limit)


def _plan(window: Window, setup: Setup, tolerance: float) -> dict[str, ndarray]:
    """Basis and velocity step of a window."""
    velocity = _views(window.limit, setup.instrument.bins.edges)
    covered = [setup.spread.covered(v, v) for v in velocity]
    if not any(bins.any() for bins in covered):
        velocity, covered = np.zeros(1), [setup.covered]
    seen = [spectra[:, bins] for spectra, bins in zip(_seen(window, window.templates, velocity), covered, strict=True)]
    seen = [spectra for spectra in seen if spectra.shape[1]]
    n_bin = tuple(spectra.shape[1] for spectra in seen)
    basis = find_basis(window.templates, window.rest_wavelength, np.concatenate(seen, axis=1), tolerance, n_bin)
    rough = window.templates[_roughest(seen)]
    step, error = _velocity_step(lambda step: _velocity_error(window, rough, setup, step), _VELOCITY_SHARE * tolerance)
    return {
        "spectra": basis.spectra,
        "coefficients": basis.coefficients,
        "step": np.asarray(step),
        "velocity_error": np.asarray(error),
        **{name: np.asarray(value) for name, value in basis.errors._asdict().items()},
    }


def _views(limit: float, edges: Float[ndarray, " edge"]) -> Float[ndarray, " velocity"]:
    """Velocities from -limit to limit at which the detector's views cover the window: no further apart than it is
    wide."""
    width = SPEED_OF_LIGHT * np.log(edges[-1] / edges[0])
    return np.linspace(-limit, limit, max(2, int(np.ceil(2 * limit / width)) + 1))


def _seen(
    window: Window, templates: Float[ndarray, "template rest"], velocity: Float[ndarray, " velocity"]
) -> Float[ndarray, "velocity template wave"]:
    """Templates on the detector, in 64 bits."""
    with jax.enable_x64(True):
        return np.asarray(detect_compiled(*as_dtype((window.detection, templates, velocity), "float64")))


def _velocity_step(error_of: Callable[[float], float], budget: float) -> tuple[float, float]:
    """The step of the velocity nodes, about the largest within the budget, and its error; the smallest if none is.

    The error grows at least as the cube of the step, by which the next try is chosen.
    """
    fitting, step, error = (0.0, np.inf), _FIRST_STEP, np.inf
    for _ in range(_N_TRIES):
        error = error_of(step)
        if error <= budget and step > fitting[0]:
            fitting = (step, error)
        good_enough = 0.8 * budget <= error <= budget or (error < budget and step >= _STEPS[1])
        if good_enough or (error > budget and step <= _STEPS[0]):
            break
        change = np.clip((0.9 * budget / max(error, np.finfo(float).tiny)) ** (1 / 3), 0.25, 4.0)
        step = float(np.clip(step * change, *_STEPS))
    return fitting if fitting[0] > 0 else (step, error)


def _velocity_error(window: Window, templates: Float[ndarray, "template rest"], setup: Setup, step: float) -> float:
    """Largest rms error of the templates midway between two velocity nodes, relative to their means."""
    offsets = (np.arange(-_N_SIDE, _N_SIDE) + 0.5) * step
    inside = setup.spread.covered(offsets[0], offsets[-1])
    if not inside.any():
        return np.inf
    spectra = _seen(window, templates, np.concatenate([[0.0], offsets]))[:, :, inside]
    truth, splined = spectra[0], np.einsum("j,jtl->tl", bspline.halfway(_N_SIDE), spectra[1:])
    level = np.maximum(truth.mean(axis=1), np.finfo(float).tiny)
    return float((np.sqrt(((splined - truth) ** 2).mean(axis=1)) / level).max())


def _roughest(seen: list[ndarray]) -> ndarray:
    """Templates (rows of each array, all seen at one velocity) with the most structure from bin to bin, at two scales,
    relative to their mean."""
    level = np.maximum(sum(spectra.sum(axis=1) for spectra in seen), np.finfo(float).tiny)
    orders = []
    for stride in (1, 4):
        score = sum((np.diff(spectra[:, ::stride], n=2, axis=1) ** 2).sum(axis=1) for spectra in seen) / level**2
        orders.append(np.argsort(score)[::-1])
    order = np.stack(orders, axis=1).reshape(-1)
    _, first = np.unique(order, return_index=True)
    return order[np.sort(first)][:_N_ROUGH]


def _matrix(
    window: Window,
    spectra: Float[ndarray, "rank rest"],
    nodes: VelocityNodes,
    smooth: Bool[ndarray, " wave"],
    distance: float,
    dtype: str,
) -> Float[ndarray, "velocity_rank wave"]:
    velocity = _velocity(nodes)
    with jax.enable_x64(True):
        arguments = (window.detection, spectra, velocity, bspline.prefilter(nodes.n_node), smooth, np.asarray(distance))
        matrix = np.asarray(projection_matrix_compiled(*as_dtype(arguments, "float64")))
    return matrix.reshape(-1, matrix.shape[2]).astype(dtype)
