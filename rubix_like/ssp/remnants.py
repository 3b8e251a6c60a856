"""Mass of stellar remnants, which simulations count as part of a star particle and tables of living stars do not."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

_NODES = 20001


def with_remnants(living: Float[ndarray, "metal age"]) -> Float[ndarray, "metal age"]:
    """Mass in living stars and remnants per unit of birth mass, from that in living stars, for a Kroupa IMF.

    IMF: xi ~ m^-1.3 (0.1-0.5 Msun), m^-2.3 (0.5-100 Msun) (Kroupa 2001, MNRAS 322, 231). The turn-off mass is the one
    below which the IMF holds the living fraction; what was born above it has left a remnant of 0.077 m + 0.48 (below
    8.5 Msun), 1.4 (to 40 Msun) or 0.5 m (Renzini & Ciotti 1993, ApJ 416, L49).
    """
    mass = np.geomspace(0.1, 100.0, _NODES)
    number = np.where(mass < 0.5, mass**-1.3, 0.5 * mass**-2.3)
    remnant = np.where(mass < 8.5, 0.077 * mass + 0.48, np.where(mass < 40.0, 1.4, 0.5 * mass))
    born = _running(number * mass, mass)
    left = _running(number * np.minimum(remnant, mass), mass)
    turn_off = np.interp(living, born / born[-1], mass)
    return living + (left[-1] - np.interp(turn_off, mass, left)) / born[-1]


def _running(values: Float[ndarray, " node"], mass: Float[ndarray, " node"]) -> Float[ndarray, " node"]:
    """Integral of `values` from the lowest mass up to each node (trapezoids)."""
    areas = 0.5 * (values[1:] + values[:-1]) * np.diff(mass)
    return np.concatenate([[0.0], np.cumsum(areas)])
