"""Broad-band light of simple stellar populations in B and V (Vega magnitudes), per solar mass at birth."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.constants import SOLAR_LUMINOSITY_AT_1_MPC
from rubix_like.ssp.library import SSPLibrary

SOLAR_V_MAGNITUDE: float = 4.81
"""Absolute V magnitude of the Sun (Willmer 2018, ApJS 236, 47)."""

_AT_10_PC = 1e-20 * 1e10
"""erg/s/cm2 at 10 pc of what gives 1e-20 erg/s/cm2 at 1 Mpc."""


@dataclass(frozen=True)
class Passband:
    """Energy response at every 100 Angstrom from `first` on, and the flux of magnitude 0 in erg/s/cm2/Angstrom."""

    first: float
    responses: str
    zero_flux: float

    @property
    def nodes(self) -> Float[ndarray, " node"]:
        """Wavelengths in vacuum Angstrom (the tables' own, 1.4 Angstrom less in air, which is 1e-3 mag)."""
        return self.first + 100.0 * np.arange(len(self.responses.split()))

    @property
    def response(self) -> Float[ndarray, " node"]:
        """Response at the nodes."""
        return np.array(self.responses.split(), dtype=np.float64)


B_BAND = Passband(
    3600.0,
    "0 .03 .134 .567 .92 .978 1 .978 .935 .853 .74 .64 .536 .424 .325 .235 .15 .095 .043 .009 0",
    6.32e-9,
)
"""Bessell 1990, PASP 102, 1181, table 2; zero point: Bessell, Castelli & Plez 1998, A&A 333, 231, table A2."""

V_BAND = Passband(
    4700.0,
    "0 .03 .163 .458 .78 .967 1 .973 .898 .792 .684 .574 .461 .359 .27 .197 .135 .081 .045 .025 .017 .013 .009 0",
    3.631e-9,
)
"""From the same tables."""


def magnitudes(library: SSPLibrary, band: Passband) -> Float[ndarray, "metal age"]:
    """Absolute magnitudes of 1 Msun at birth: -2.5 log10(int L_lambda R dlambda / int R dlambda / 4 pi (10 pc)^2 f_0).

    NaN where the library does not cover the band.
    """
    wavelength = np.asarray(library.rest_wavelength)
    nodes = band.nodes
    if wavelength[0] > nodes[0] or wavelength[-1] < nodes[-1]:
        return np.full(np.shape(library.spectra)[:2], np.nan)
    inside = wavelength[(wavelength > nodes[0]) & (wavelength < nodes[-1])]
    grid = np.union1d(nodes, inside)
    steps = np.diff(grid)
    weights = 0.5 * (np.append(steps, 0.0) + np.append(0.0, steps)) * np.interp(grid, nodes, band.response)
    below = np.clip(np.searchsorted(wavelength, grid, side="right") - 1, 0, len(wavelength) - 2)
    part = (grid - wavelength[below]) / (wavelength[below + 1] - wavelength[below])
    by_node = np.zeros(len(wavelength))
    np.add.at(by_node, below, weights * (1.0 - part))
    np.add.at(by_node, below + 1, weights * part)
    mean = np.asarray(library.spectra) @ by_node / weights.sum()
    flux = mean * SOLAR_LUMINOSITY_AT_1_MPC * _AT_10_PC
    with np.errstate(divide="ignore"):
        return -2.5 * np.log10(flux / band.zero_flux)


def mass_to_light(library: SSPLibrary) -> Float[ndarray, "metal age"]:
    """Mass at birth over V luminosity in solar units: 10^(0.4 (M_V - M_V,sun)); NaN where V is not covered."""
    return 10.0 ** (0.4 * (magnitudes(library, V_BAND) - SOLAR_V_MAGNITUDE))
