"""The templates of a source as the detector sees them at a velocity (on the host, in 64 bits)."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.special import ndtr

from rubix_like.engine.setup import SourcePlan
from rubix_like.engine.spectra.projection import Detection, detect_compiled
from rubix_like.instrument.detector import rest_window
from rubix_like.instrument.response import Response, plan_response, spread_matrix
from rubix_like.physics.templates import Layers, layers_of
from rubix_like.runtime.mesh.placement import as_dtype

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
