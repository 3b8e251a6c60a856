"""The templates of a library as the detector sees them at a velocity (on the host, in 64 bits)."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.special import ndtr

from rubix_like.engine.setup import Setup
from rubix_like.engine.spectra.projection import Detection, detect_by_compiled
from rubix_like.instrument.detector import rest_window
from rubix_like.instrument.response import Response, plan_response, spread_matrix
from rubix_like.runtime.mesh.placement import as_dtype

_LEAST_WINDOW = 1200.0
_BLOCK = (32, 2)
"""Spectra and velocities at once."""


class Window(NamedTuple):
    """The templates on the part of the library that the detector can see, and the detector itself (64-bit).

    `limit`: largest velocity (km/s) at which the detector still sees only the window, where the library has it all.
    """

    templates: Float[ndarray, "template rest"]
    rest_wavelength: Float[ndarray, " rest"]
    detection: Detection
    limit: float


def window_of(templates: Float[ndarray, "template rest"], setup: Setup) -> Window:
    """The window of a run, wide enough for most galaxies' velocities, so that they share what follows from it."""
    plan = plan_response(setup.instrument.bins, setup.spread)
    redshift = setup.config.observation.redshift
    limit = max(1.25 * setup.motion.limit + 50.0, _LEAST_WINDOW)
    nodes = np.asarray(setup.library.rest_wavelength)
    part = rest_window(nodes, plan.fine_edges / (1.0 + redshift), limit)
    return Window(templates[:, part], nodes[part], Detection.build(nodes[part], plan, redshift), limit)


def seen(
    window: Window, spectra: Float[ndarray, "row rest"], velocity: Float[ndarray, " velocity"]
) -> Float[ndarray, "velocity row wave"]:
    """Spectra of the window on the detector at velocities in km/s, block by block: one compilation for any numbers of
    spectra and velocities."""
    n_row, n_velocity = _BLOCK
    rows = np.pad(spectra, ((0, -len(spectra) % n_row), (0, 0)))
    velocities = np.pad(velocity, (0, -len(velocity) % n_velocity), mode="edge")
    detection = as_dtype(window.detection, "float64")
    response = Response(spread_matrix(np.asarray(detection.kernel), detection.geometry, np, ndtr))
    found = np.empty((len(velocities), len(rows), len(detection.geometry.bin_width)))
    with jax.enable_x64(True):
        detector = jax.device_put((response, detection))
        for row in range(0, len(rows), n_row):
            block = jax.device_put(rows[row : row + n_row])
            for first in range(0, len(velocities), n_velocity):
                part = detect_by_compiled(*detector, block, velocities[first : first + n_velocity])
                found[first : first + n_velocity, row : row + n_row] = part
    return found[: len(velocity), : len(spectra)]
