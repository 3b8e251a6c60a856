"""Ionising photons of an active nucleus, and where those that leave a nebula are absorbed."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.special import iti0k0

from rubix_like.constants import LYMAN_LIMIT, PHOTON_ENERGY_AT_1_ANGSTROM

BREAK: float = 912.0
"""Angstrom at which the mean spectrum of quasars becomes steeper (Lusso et al. 2015, MNRAS 449, 4204)."""

SLOPES: tuple[float, float] = (-0.61, -1.70)
"""Its slopes d ln L_nu / d ln nu, redwards and bluewards of the break (the same)."""

REDDEST: float = 1e4
BLUEST: float = 6.1992
"""Angstrom (1 micron, 2 keV) between which the light counts as bolometric, as for Krawczyk et al. (2013, ApJS 206, 4):
what dust re-radiates is not counted twice."""


def photons_per_erg() -> float:
    """Photons below 912 A for each erg of the bolometric luminosity of an active nucleus, 9.2e9.

    Of the mean spectrum of 53 quasars, L_nu ~ nu^-0.61 redwards and nu^-1.70 bluewards of 912 A: Q / L = integral of
    L_nu / (h nu) from 912 A on / integral of L_nu. The mean photon has 32 eV. Single quasars differ by a factor of two.
    """
    red, blue = SLOPES
    cool = (1.0 - (BREAK / REDDEST) ** (1.0 + red)) / (1.0 + red)
    hot = (1.0 - (BREAK / BLUEST) ** (1.0 + blue)) / -(1.0 + blue)
    photons = ((LYMAN_LIMIT / BREAK) ** -blue - (BLUEST / BREAK) ** -blue) / -blue
    return photons / (cool + hot) * BREAK / PHOTON_ENERGY_AT_1_ANGSTROM


REACH: float = 8.0
"""Mean free paths within which all but 1e-4 of the photons are absorbed."""

_NODES = 20001
_FEW, _MANY, _NEAR = 3, 15, 20
"""Points along the side of a cell at which its share is averaged: many up to so many cells from the middle."""


def absorbed_within(radius: Float[ndarray, " place"]) -> Float[ndarray, " place"]:
    """Share of the photons that are absorbed within a radius on the sky, both in mean free paths.

    In gas of one density the photons of a point are absorbed by exp(-r / l) / (4 pi r^2 l) per volume. Along the line
    of sight that is Ki_1(R / l) / (2 pi l R) per area, with Bickley's function Ki_1(x) = integral of K_0 from x on.
    """
    nodes = np.concatenate([[0.0], np.geomspace(1e-6, 2 * REACH, _NODES)])
    bickley = 0.5 * np.pi - iti0k0(nodes)[1]
    steps = 0.5 * (bickley[1:] + bickley[:-1]) * np.diff(nodes)
    return np.interp(radius, nodes, np.concatenate([[0.0], np.cumsum(steps)]))


def leaked_share(mean_free_path: float, most: int) -> Float[ndarray, "side side"]:
    """Share of the photons of the middle cell that each cell around it absorbs; `mean_free_path` in cells.

    It reaches `REACH` mean free paths, or `most` cells, on each side.
    """
    reach = max(1, min(most, int(np.ceil(REACH * mean_free_path))))
    quarter = _averages(mean_free_path, reach, _FEW)
    near = min(reach, _NEAR) + 1
    quarter[:near, :near] = _averages(mean_free_path, near - 1, _MANY)
    angle = (np.arange(1000) + 0.5) / 1000 * np.pi / 4
    quarter[0, 0] = absorbed_within(0.5 / np.cos(angle) / mean_free_path).mean()
    half = np.concatenate([quarter[:0:-1], quarter])
    return np.concatenate([half[:, :0:-1], half], axis=1)


def _averages(mean_free_path: float, reach: int, n_part: int) -> Float[ndarray, "quarter quarter"]:
    """Shares of the cells from the middle on, each the mean over so many points along its sides."""
    nodes = np.geomspace(1e-3 / mean_free_path, 2 * REACH, _NODES)
    surface = (0.5 * np.pi - iti0k0(nodes)[1]) / (2 * np.pi * nodes) / mean_free_path**2
    part = (np.arange(n_part) + 0.5) / n_part - 0.5
    columns = (np.arange(reach + 1)[:, None] + part[None, :]).reshape(-1)
    found = np.zeros((reach + 1, reach + 1))
    for row in part:
        radius = np.hypot((np.arange(reach + 1) + row)[:, None], columns[None, :]) / mean_free_path
        found += np.interp(radius, nodes, surface, right=0.0).reshape(reach + 1, reach + 1, n_part).mean(axis=2)
    return found / n_part
