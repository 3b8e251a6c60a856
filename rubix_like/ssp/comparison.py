"""Differences between two SSP libraries: numbers at solar metallicity, and sentences."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.constants import SOLAR_LUMINOSITY_AT_1_MPC
from rubix_like.runtime.words import table_lines
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
        """Wavelengths in vacuum Angstrom (as in the tables, 1.4 Angstrom less in air, which is 1e-3 mag)."""
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


AGES: dict[str, float] = {"10 Myr": 7.0, "100 Myr": 8.0, "1 Gyr": 9.0, "10 Gyr": 10.0}
"""The ages that are compared, as log10(age / yr)."""

REFERENCE_WAVELENGTH = 5500.0
"""Vacuum Angstrom at which resolutions are printed."""


@dataclass(frozen=True)
class SolarPopulation:
    """A library at the node of its metallicity axis that is nearest to its solar metallicity."""

    library: SSPLibrary
    metallicity: float
    v_magnitude: Float[ndarray, " age"]
    b_minus_v: Float[ndarray, " age"]
    mass_to_light: Float[ndarray, " age"]

    def at_age(self, values: Float[ndarray, " age"], log_age: float) -> float:
        """`values` of the age axis, linear in log age; NaN beyond the library's ages."""
        return float(np.interp(log_age, np.asarray(self.library.log_age), values, left=np.nan, right=np.nan))

    def spectrum(self, log_age: float) -> Float[ndarray, " rest"]:
        """Lsun/Angstrom/Msun, linear in log age; NaN beyond the library's ages."""
        ages, spectra = np.asarray(self.library.log_age), self.spectra
        if not ages[0] <= log_age <= ages[-1]:
            return np.full(spectra.shape[1], np.nan)
        low = int(np.clip(np.searchsorted(ages, log_age, side="right") - 1, 0, len(ages) - 2))
        part = (log_age - ages[low]) / (ages[low + 1] - ages[low])
        return (1.0 - part) * spectra[low] + part * spectra[low + 1]

    @property
    def spectra(self) -> Float[ndarray, "age rest"]:
        """The spectra at this metallicity."""
        index = int(np.argmin(np.abs(np.asarray(self.library.metallicity) - self.metallicity)))
        return np.asarray(self.library.spectra[index])


def solar_population(library: SSPLibrary) -> SolarPopulation:
    """The library at (about) solar metallicity, with its light in B and V."""
    metallicity = np.maximum(np.asarray(library.metallicity), 1e-9)
    index = int(np.argmin(np.abs(np.log(metallicity / library.solar_metallicity))))
    v_magnitude = magnitudes(library, V_BAND)[index]
    return SolarPopulation(
        library=library,
        metallicity=float(np.asarray(library.metallicity)[index]),
        v_magnitude=v_magnitude,
        b_minus_v=magnitudes(library, B_BAND)[index] - v_magnitude,
        mass_to_light=mass_to_light(library)[index],
    )


def common_bins(one: SSPLibrary, other: SSPLibrary) -> Float[ndarray, " edge"]:
    """Edges of bins as wide as the coarser library's resolution, where both have light (vacuum Angstrom).

    Raises ValueError where the two have no wavelengths in common.
    """
    grids = [np.asarray(library.rest_wavelength) for library in (one, other)]
    low, high = max(grid[0] for grid in grids), min(grid[-1] for grid in grids)
    if low >= high:
        raise ValueError(
            f"expected libraries with wavelengths in common, got {grids[0][0]:g}-{grids[0][-1]:g} A ({one.name}) and "
            f"{grids[1][0]:g}-{grids[1][-1]:g} A ({other.name})"
        )
    union = np.union1d(*grids)
    union = union[(union >= low) & (union <= high)]
    widths = [np.interp(union, grid, np.asarray(lib.fwhm)) for grid, lib in zip(grids, (one, other), strict=True)]
    passed = np.concatenate([[0.0], np.cumsum(np.diff(union) / np.maximum(*widths)[1:])])
    return np.interp(np.arange(0.0, passed[-1], 1.0), passed, union)


def spectrum_bin_means(
    wavelength: Float[ndarray, " rest"], spectrum: Float[ndarray, " rest"], edges: Float[ndarray, " edge"]
) -> Float[ndarray, " bin"]:
    """Mean of a spectrum, linear between its nodes, over bins (trapezoids between the nodes and the edges)."""
    grid = np.union1d(wavelength, edges)
    values = np.interp(grid, wavelength, spectrum)
    integral = np.concatenate([[0.0], np.cumsum(0.5 * (values[1:] + values[:-1]) * np.diff(grid))])
    return np.diff(integral[np.searchsorted(grid, edges)]) / np.diff(edges)


def comparison_lines(one: SolarPopulation, other: SolarPopulation) -> list[str]:
    """The table of V light, colour and mass-to-light ratio, then what differs, one sentence a line."""
    pair, (first, second) = (one, other), (one.library, other.library)
    rows = [
        ("", first.name, second.name),
        ("Z", *(f"{population.metallicity:.4g}" for population in pair)),
        ("age", *["M_V    B-V    M/L_V"] * 2),
        *((label, *(_cell(population, log_age) for population in pair)) for label, log_age in AGES.items()),
    ]
    note = "Vega magnitudes and solar units, per Msun at birth; '-': beyond the library's ages or wavelengths"
    lines = [*table_lines(rows, gap=4), note, ""]
    for (name, a), b in zip(_facts(first).items(), _facts(second).values(), strict=True):
        lines.append(f"{name}: both {a}" if a == b else f"{name}: {first.name} {a}, {second.name} {b}")
    changes = []
    for label, log_age in AGES.items():
        difference = other.at_age(other.v_magnitude, log_age) - one.at_age(one.v_magnitude, log_age)
        if np.isfinite(difference):
            changes.append(f"{100.0 * (10.0 ** (-0.4 * difference) - 1.0):+.0f} % at {label}")
    text = ", ".join(changes) or "not comparable (no ages with V light in common)"
    return [*lines, f"V light of {second.name} against {first.name}, per Msun at birth: {text}"]


def _cell(population: SolarPopulation, log_age: float) -> str:
    words = []
    for column, digits in ((population.v_magnitude, 2), (population.b_minus_v, 3), (population.mass_to_light, 3)):
        value = population.at_age(column, log_age)
        text = f"{value:.{digits}f}" if np.isfinite(value) else "-"
        words.append(f"{text:<6}")
    return " ".join(words)


def _facts(library: SSPLibrary) -> dict[str, str]:
    """Facts on a library, in words, by their names."""

    def span(axis: Any, form: str) -> str:
        values = np.asarray(axis)
        return f"{len(values)}, {values[0]:{form}}-{values[-1]:{form}}"

    wavelength, resolution = np.asarray(library.rest_wavelength), "not covered"
    if wavelength[0] <= REFERENCE_WAVELENGTH <= wavelength[-1]:
        resolution = f"{np.interp(REFERENCE_WAVELENGTH, wavelength, np.asarray(library.fwhm)):.3g} A"
    return {
        "wavelengths were given in (here both are in vacuum)": library.source_medium,
        "initial mass function": library.imf,
        "solar metallicity": f"{library.solar_metallicity:g}",
        "metallicities": span(library.metallicity, ".4g"),
        "ages": f"{span(10.0 ** np.asarray(library.log_age), '.3g')} yr",
        "wavelengths": f"{span(wavelength, '.5g')} A",
        f"resolution (FWHM at {REFERENCE_WAVELENGTH:g} A)": resolution,
        "surviving mass": "in the file" if library.surviving_fraction is not None else "not in the file",
        "licence": library.licence,
    }
