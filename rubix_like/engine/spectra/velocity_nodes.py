"""Velocity nodes of method `basis`, and the errors of splines through them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray

from rubix_like.constants import SOLAR_LUMINOSITY_AT_1_MPC, SPEED_OF_LIGHT
from rubix_like.engine.histogram import VelocityNodes
from rubix_like.engine.setup import LARGEST_STEP, SourcePlan
from rubix_like.instrument.detector import Response, plan_response, rest_window
from rubix_like.physics import bspline
from rubix_like.physics.rebin import Rebinner
from rubix_like.physics.templates import Layers, layers_of
from rubix_like.runtime.mesh.mesh import as_dtype

_SPECTRA_AT_ONCE = 64


def detect(
    response: Response,
    rebinner: Rebinner,
    spectra: Float[Array, "row rest"],
    velocity: Float[Array, " velocity"],
) -> Float[Array, "velocity row wave"]:
    """Luminosity density per detector bin (unit of `spectra`, per Angstrom of the medium) of sources at `velocity`.

    D = exp(v / c) beside the redshift of the rebinner's edges, line spread, exact mean over each bin, as for single
    particles (`direct`).
    """

    def at(velocity: Float[Array, ""]) -> Float[Array, "row wave"]:
        log_doppler = velocity / SPEED_OF_LIGHT
        light = lax.map(
            lambda spectrum: rebinner.light_of_one(spectrum, log_doppler), spectra, batch_size=_SPECTRA_AT_ONCE
        )
        return response.apply(light)

    return lax.map(at, velocity)


def project(
    seen: Float[Array, "velocity rank wave"],
    prefilter: Float[Array, "velocity velocity"],
    smooth: Bool[Array, " wave"],
    luminosity_distance: Float[Array, ""],
) -> Float[Array, "velocity rank wave"]:
    """Flux density (1e-20 erg/s/cm2/Angstrom) in detector bins per unit of each basis spectrum at each velocity node.

    `seen`: what `detect` gives of the basis spectra at the nodes. Node j holds the B-spline's coefficient, not its
    value: sum_j w_j(v) M_j is the spectrum at v. In bins that are not `smooth` in velocity (at the templates' ends) it
    holds the value, which a spline would overshoot. The luminosity distance is in Mpc.
    """
    splined = jnp.einsum("jk,krl->jrl", prefilter, seen, precision=lax.Precision.HIGHEST)
    factor = SOLAR_LUMINOSITY_AT_1_MPC / luminosity_distance**2
    return factor * jnp.where(smooth[None, None, :], splined, seen)


detect_compiled = jax.jit(detect)
project_compiled = jax.jit(project)

_LEAST_WINDOW = 1200.0
_BLOCK = (32, 2)
"""Spectra and velocities at once."""


class Window(NamedTuple):
    """The templates on the part of their wavelengths that the detector can see, and the maps to its bins (64-bit).

    `limit`: largest velocity (km/s) at which the detector still sees only the window, where they have it all.
    `layers`: A / A(V) of the layers of the particles' dust (None: no dust).
    """

    templates: Float[ndarray, "template rest"]
    rest_wavelength: Float[ndarray, " rest"]
    rebinner: Rebinner
    response: Response
    limit: float
    layers: Layers | None


def window_of(plan: SourcePlan) -> Window:
    """The window of a source, wide enough for most galaxies' velocities, so that they share what follows from it."""
    spread, templates = plan.spread, plan.templates
    fine_edges, response = plan_response(spread.bins, spread)
    edges, limit = fine_edges / (1.0 + spread.redshift), max(1.25 * plan.motion.limit + 50.0, _LEAST_WINDOW)
    part = rest_window(templates.rest_wavelength, edges, limit)
    nodes = templates.rest_wavelength[part]
    rebinner = Rebinner.build(nodes, edges)
    return Window(templates.table[:, part], nodes, rebinner, response, limit, layers_of(templates))


def seen(
    window: Window, spectra: Float[ndarray, "row rest"], velocity: Float[ndarray, " velocity"]
) -> Float[ndarray, "velocity row wave"]:
    """Spectra of the window on the detector at velocities in km/s, block by block: one compilation for any numbers of
    spectra and velocities."""
    n_row, n_velocity = _BLOCK
    rows = np.pad(spectra, ((0, -len(spectra) % n_row), (0, 0)))
    velocities = np.pad(velocity, (0, -len(velocity) % n_velocity), mode="edge")
    found = np.empty((len(velocities), len(rows), window.response.matrix.shape[2]))
    with jax.enable_x64(True):
        detector = jax.device_put(as_dtype((window.response, window.rebinner), "float64"))
        for row in range(0, len(rows), n_row):
            block = jax.device_put(rows[row : row + n_row])
            for first in range(0, len(velocities), n_velocity):
                part = detect_compiled(*detector, block, velocities[first : first + n_velocity])
                found[first : first + n_velocity, row : row + n_row] = part
    return found[: len(velocity), : len(spectra)]


BETWEEN: float = 1.05
"""How much larger the error may be than at the middle of every interval between nodes, where it is measured.

To leading order it goes as t^2 (1 - t)^2 within an interval, largest at the middle; in windows of a few bins the
largest was found up to 1/12 of an interval beside it, 1.5 % larger.
"""

_STEPS = (2.0, LARGEST_STEP)
"""Smallest and largest step of the velocity nodes (km/s); 5.5 of the largest lie within the least window."""

_N_SIDE = 6
_FIRST_STEP = 60.0
_N_TRIES = 8
_N_CANDIDATE = 32
_N_ROUND = 4
_HALFWAY = (1 / 48, 23 / 48, 23 / 48, 1 / 48)
"""The cubic B-spline's weights of four nodes midway between the second and the third."""


class Basis(NamedTuple):
    """Basis spectra, the templates' coefficients on them, and the rms error that each template has there."""

    spectra: Float[ndarray, "rank rest"]
    coefficients: Float[ndarray, "template rank"]
    residuals: Float[ndarray, " template"]


class Between(NamedTuple):
    """Spectra midway between the nodes of every interval that velocities may lie in: by a spline, and exactly."""

    splined: Float[ndarray, "interval row wave"]
    true: Float[ndarray, "interval row wave"]


class ChosenNodes(NamedTuple):
    """Nodes, and the largest rms errors of any template at any velocity, relative to its mean on the detector: of the
    spline (`velocity_error`), and of spline and basis together (`spectrum_error`); basis spectra seen `at_nodes`."""

    nodes: VelocityNodes
    velocity_error: float
    spectrum_error: float
    at_nodes: Float[ndarray, "velocity rank wave"]


def plan_nodes(limit: float, step: float) -> VelocityNodes:
    """The fewest nodes at most `step` km/s apart with all of +-`limit`, and what rounds to it, in their support."""
    n_side = max(1, int(np.ceil(limit / step - 1e-5)))
    return VelocityNodes(step=np.asarray(limit * (1 + 1e-6) / n_side), n_node=2 * (n_side + 1) + 1)


def node_velocity(nodes: VelocityNodes) -> Float[ndarray, " velocity"]:
    """km/s at each node, in 64 bits."""
    return (np.arange(nodes.n_node) - nodes.n_node // 2) * float(nodes.step)


def middle_velocity(nodes: VelocityNodes) -> Float[ndarray, " interval"]:
    """km/s midway between nodes 1 and 2, 2 and 3, to the last but one."""
    return node_velocity(nodes)[1:-2] + 0.5 * float(nodes.step)


def midway_weights(n_node: int) -> Float[ndarray, "interval node"]:
    """Weights of the nodes' values in the spline (not-a-knot) midway between nodes 1 and 2, 2 and 3, to the last but
    one."""
    weights = np.zeros((n_node - 3, n_node))
    for interval in range(n_node - 3):
        weights[interval, interval : interval + bspline.SUPPORT] = _HALFWAY
    return weights @ bspline.prefilter(n_node)


def between_nodes(
    window: Window,
    spectra: Float[ndarray, "row rest"],
    at_nodes: Float[ndarray, "velocity row wave"],
    nodes: VelocityNodes,
    bins: Bool[ndarray, " wave"],
) -> Between:
    """Spectra of the window midway between the nodes, in some of the detector's bins."""
    some = slice(None) if bins.all() else bins  # all of them need no copy
    splined = np.tensordot(midway_weights(nodes.n_node), at_nodes[:, :, some], 1)
    return Between(splined, seen(window, spectra, middle_velocity(nodes))[:, :, some])


def candidates_at_rest(
    window: Window,
    spectra: Float[ndarray, "rank rest"],
    coefficients: Float[ndarray, "template rank"],
    bins: Bool[ndarray, " wave"],
) -> Int[ndarray, " candidate"]:
    """The templates that a spline with a step of 60 km/s errs most for, at rest."""
    offsets = (np.arange(-_N_SIDE, _N_SIDE) + 0.5) * _FIRST_STEP
    found = seen(window, spectra, np.concatenate([[0.0], offsets]))[:, :, bins]
    splined = np.einsum("j,jrl->rl", bspline.halfway(_N_SIDE), found[1:])
    return _worst(template_errors(coefficients, Between(splined[None], found[:1])))


def choose_nodes(
    window: Window,
    basis: Basis,
    candidates: Int[ndarray, " candidate"],
    limit: float,
    bins: Bool[ndarray, " wave"],
    budget: float,
    step: float | None = None,
) -> ChosenNodes:
    """About the fewest nodes for +-`limit` km/s, at most `step` apart, between which no template errs by more than the
    budget.

    The number is found for the `candidates`, then the error of all templates is measured, at the middle of every
    interval: splines are linear, so that it is known from the basis spectra's. Where another template errs more than
    the budget, the worst become the candidates.
    """
    nodes = _nodes_for(window, window.templates[candidates], plan_nodes(limit, _FIRST_STEP), bins, limit, budget)
    if step is not None and float(nodes.step) > step:
        nodes = plan_nodes(limit, step)
    tries = _N_TRIES
    while True:
        at_nodes = seen(window, basis.spectra, node_velocity(nodes))
        between = between_nodes(window, basis.spectra, at_nodes, nodes, bins)
        errors = BETWEEN * template_errors(basis.coefficients, between)
        if errors.max() <= budget or float(nodes.step) <= _STEPS[0] or not tries:
            break
        nodes = _nodes_for(window, window.templates[_worst(errors)], nodes, bins, limit, budget)
        tries -= 1
    together = _together(window, basis, basis.residuals + errors, between.splined, nodes, bins)
    return ChosenNodes(nodes, float(errors.max()), together, at_nodes)


def template_errors(coefficients: Float[ndarray, "template rank"], between: Between) -> Float[ndarray, " template"]:
    """Largest rms error of the spline in any interval for each template, relative to its mean, by the basis spectra.

    With E the errors of the basis spectra (rows) over n bins, that of template k is sqrt(C_k E E^T C_k^T / n).
    """
    worst = np.zeros(len(coefficients))
    for splined, true in zip(*between, strict=True):
        error = splined - true
        square = ((coefficients @ (error @ error.T / error.shape[1])) * coefficients).sum(axis=1)
        worst = np.maximum(worst, _relative(np.sqrt(np.maximum(square, 0.0)), coefficients @ true.mean(axis=1)))
    return worst


def _nodes_for(
    window: Window,
    templates: Float[ndarray, "candidate rest"],
    first: VelocityNodes,
    bins: Bool[ndarray, " wave"],
    limit: float,
    budget: float,
) -> VelocityNodes:
    """About the fewest nodes within the budget for some templates, tried from the first on, or those of the least step.

    The error grows at least as the cube of the step, by which the next try is chosen.
    """
    nodes, fitting = first, None
    for _ in range(_N_TRIES):
        at_nodes = seen(window, templates, node_velocity(nodes))
        splined, true = between_nodes(window, templates, at_nodes, nodes, bins)
        error, step = BETWEEN * float(_relative(_rms(splined - true), true.mean(axis=2)).max()), float(nodes.step)
        if error <= budget and (fitting is None or nodes.n_node < fitting.n_node):
            fitting = nodes
        change = np.clip((0.9 * budget / max(error, np.finfo(float).tiny)) ** (1 / 3), 0.25, 4.0)
        nodes = plan_nodes(limit, float(np.clip(step * change, *_STEPS)))
        if 0.7 * budget <= error <= budget or float(nodes.step) == step:
            break
    return fitting or plan_nodes(limit, _STEPS[0])


def _together(
    window: Window,
    basis: Basis,
    bound: Float[ndarray, " template"],
    splined: Float[ndarray, "interval rank used"],
    nodes: VelocityNodes,
    bins: Bool[ndarray, " wave"],
) -> float:
    """Largest rms error of any template, basis and spline together: measured where the bound (the sum of both) is
    largest, and no less than that of the templates that it was not measured for."""
    order, found = np.argsort(bound)[::-1], 0.0
    for start in range(0, _N_CANDIDATE * _N_ROUND, _N_CANDIDATE):
        chosen = order[start : start + _N_CANDIDATE]
        if not len(chosen) or bound[chosen[0]] <= found:
            break
        true = seen(window, window.templates[chosen], middle_velocity(nodes))[:, :, bins]
        error = _rms(np.einsum("kr,irl->ikl", basis.coefficients[chosen], splined) - true)
        found = max(found, BETWEEN * float(_relative(error, true.mean(axis=2)).max()))
    rest = order[_N_CANDIDATE * _N_ROUND :]
    return max(found, float(bound[rest].max(initial=0.0)))


def _worst(errors: Float[ndarray, " template"]) -> Int[ndarray, " candidate"]:
    return np.argsort(errors)[::-1][:_N_CANDIDATE]


def _rms(error: Float[ndarray, "... wave"]) -> Float[ndarray, "..."]:
    return np.sqrt((error**2).mean(axis=-1))


def _relative(error: Float[ndarray, "..."], level: Float[ndarray, "..."]) -> Float[ndarray, "..."]:
    """0 for templates without light."""
    return np.divide(error, level, out=np.zeros_like(error), where=level > 0)
