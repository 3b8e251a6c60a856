"""Project rest-frame spectra onto the detector at a velocity: a pure, differentiable function."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float
from numpy import ndarray
from scipy.special import ndtr

from rubix_like.constants import SOLAR_LUMINOSITY_AT_1_MPC, SPEED_OF_LIGHT
from rubix_like.engine.setup import SourcePlan
from rubix_like.instrument.detector import rest_window
from rubix_like.instrument.response import Response, ResponsePlan, SpreadGeometry, plan_response, spread_matrix
from rubix_like.physics.rebin import Rebinner
from rubix_like.physics.templates import Layers, layers_of
from rubix_like.runtime.mesh.mesh import as_dtype

_SPECTRA_AT_ONCE = 64


class Detection(eqx.Module):
    """What a detector does to spectra on the nodes of a rest-frame window.

    `redshift` and `kernel` (FWHM of the line spread per fine bin, Angstrom of the medium) may be changed and
    differentiated; the rebinner's edges hold for `reference_redshift`.
    """

    rebinner: Rebinner
    geometry: SpreadGeometry
    kernel: Float[Array | ndarray, "extended part"]
    redshift: Float[Array | ndarray, ""]
    reference_redshift: Float[Array | ndarray, ""]

    @classmethod
    def build(cls, rest_wavelength: Float[ndarray, " rest"], plan: ResponsePlan, redshift: float) -> "Detection":
        """For nodes of templates (vacuum Angstrom) and the fine bins of a planned response."""
        return cls(
            rebinner=Rebinner.build(rest_wavelength, plan.fine_edges / (1.0 + redshift)),
            geometry=plan.geometry,
            kernel=plan.kernel,
            redshift=np.asarray(redshift),
            reference_redshift=np.asarray(redshift),
        )


def detect(
    response: Response,
    detection: Detection,
    spectra: Float[Array, "row rest"],
    velocity: Float[Array, " velocity"],
) -> Float[Array, "velocity row wave"]:
    """Luminosity density per detector bin (unit of `spectra`, per Angstrom of the medium) of sources at `velocity`.

    D = (1 + z) exp(v / c), line spread (`response`, of the detection's kernel), exact mean over each bin, as for single
    particles (`direct`).
    """
    stretch = jnp.log1p(detection.redshift) - jnp.log1p(detection.reference_redshift)

    def at(own: Float[Array, ""]) -> Float[Array, "row wave"]:
        log_doppler = own / SPEED_OF_LIGHT + stretch
        light = lax.map(
            lambda spectrum: detection.rebinner.light_of_one(spectrum, log_doppler),
            spectra,
            batch_size=_SPECTRA_AT_ONCE,
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
    holds the value, which a spline would overshoot. Differentiable, also in the luminosity distance (Mpc).
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
    """The templates on the part of their wavelengths that the detector can see, and the detector itself (64-bit).

    `limit`: largest velocity (km/s) at which the detector still sees only the window, where they have it all.
    `layers`: A / A(V) of the layers of the particles' own dust (None: no dust).
    """

    templates: Float[ndarray, "template rest"]
    rest_wavelength: Float[ndarray, " rest"]
    detection: Detection
    limit: float
    layers: Layers | None


def window_of(plan: SourcePlan) -> Window:
    """The window of a source, wide enough for most galaxies' velocities, so that they share what follows from it."""
    spread, templates = plan.spread, plan.templates
    response = plan_response(spread.bins, spread)
    limit = max(1.25 * plan.motion.limit + 50.0, _LEAST_WINDOW)
    part = rest_window(templates.rest_wavelength, response.fine_edges / (1.0 + spread.redshift), limit)
    nodes = templates.rest_wavelength[part]
    detection = Detection.build(nodes, response, spread.redshift)
    return Window(templates.table[:, part], nodes, detection, limit, layers_of(templates))


def seen(
    window: Window, spectra: Float[ndarray, "row rest"], velocity: Float[ndarray, " velocity"]
) -> Float[ndarray, "velocity row wave"]:
    """Spectra of the window on the detector at velocities in km/s, block by block: one compilation for any numbers of
    spectra and velocities."""
    n_row, n_velocity = _BLOCK
    rows = np.pad(spectra, ((0, -len(spectra) % n_row), (0, 0)))
    velocities = np.pad(velocity, (0, -len(velocity) % n_velocity), mode="edge")
    found = np.empty((len(velocities), len(rows), len(window.detection.geometry.bin_width)))
    with jax.enable_x64(True):
        detection = as_dtype(window.detection, "float64")
        geometry = jax.tree.map(np.asarray, detection.geometry)
        response = Response(spread_matrix(np.asarray(detection.kernel), geometry, np, ndtr))
        detector = jax.device_put((response, detection))
        for row in range(0, len(rows), n_row):
            block = jax.device_put(rows[row : row + n_row])
            for first in range(0, len(velocities), n_velocity):
                part = detect_compiled(*detector, block, velocities[first : first + n_velocity])
                found[first : first + n_velocity, row : row + n_row] = part
    return found[: len(velocity), : len(spectra)]
