"""The light of absorbed photons as templates of a source: the lines of a table, and the continuum that goes with them.

The amount of a source is the number of ionising photons that its gas absorbs per second, in units of `PHOTONS`.
"""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.constants import ATOMIC_MASS_UNIT, BOLTZMANN_CONSTANT, LYMAN_LIMIT, SOLAR_LUMINOSITY
from rubix_like.nebular.continuum import (
    HELIUM_SECOND_LEVELS,
    HIGHEST_LEVEL,
    PARTICLES_PER_ELECTRON,
    RYDBERG,
    nebular_continuum,
)
from rubix_like.nebular.line_grid import STEPS, line_grid, refined
from rubix_like.nebular.line_list import LINES
from rubix_like.nebular.table_file import NebularTable
from rubix_like.physics.templates import LineTemplates, TemplateAxes, Templates

PHOTONS: float = 1e49
"""Absorbed photons per second that an amount of 1 stands for: an O7 star, and a number that 32 bits can hold."""

LINE_TEMPERATURE: float = 1e4
"""K at which the lines' thermal widths are taken; those of H II regions are within 30 % of it, their widths 15 %."""

_KM_PER_CM = 1e-5
_LUMINOSITY = PHOTONS / SOLAR_LUMINOSITY
_STEP_FACTOR = 5.0
"""The continuum depends on the temperature alone: its axes have steps that are longer than those of lines by this."""

_LOG_STEP = 0.004
_EDGE = 1e-6
"""Steps of ln(wavelength) between the continuum's nodes, and across its edges."""

_LOG_TEMPERATURE = 0.03
"""Step of ln T between which the continuum's logarithm is straight to 1e-4."""


def photon_lines(table: NebularTable) -> LineTemplates:
    """The lines of a table, refined as for look-up; fix first the axes on which particles do not differ (`fixed`)."""
    grid = line_grid(table)
    lines = [LINES[name] for name in grid.lines]
    masses = np.array([line.mass for line in lines]) * ATOMIC_MASS_UNIT
    return LineTemplates(
        name=f"the nebular table '{table.name}'",
        axes=grid.axes,
        lines=grid.lines,
        wavelength=np.array([line.wavelength for line in lines]),
        table=np.asarray(grid.per_photon) * _LUMINOSITY,
        thermal=np.sqrt(BOLTZMANN_CONSTANT * LINE_TEMPERATURE / masses) * _KM_PER_CM,
    )


def photon_continuum(table: NebularTable, log_pressure: float, first: float, last: float) -> Templates:
    """The continuum at the temperatures of a table, on its axes, from `first` to `last` (vacuum Angstrom at rest).

    The density is that of the pressure (log10 of P / k, K / cm^3): n_e = P / (2.1 k T). There is none below 912 A.
    """
    coarse = refined(table, {name: _STEP_FACTOR * step for name, step in STEPS.items()})
    first = max(first, LYMAN_LIMIT)
    last = max(last, 2.0 * first)
    wavelength = _nodes(first, last)
    return Templates(
        name="the nebular continuum",
        axes=TemplateAxes(tuple(coarse.axes.values()), tuple(coarse.axes)),
        rest_wavelength=wavelength,
        table=_at_temperatures(wavelength, coarse.temperature.reshape(-1), log_pressure) * _LUMINOSITY,
        fwhm=np.zeros(len(wavelength)),
        covered=(0.0, last),
    )


def _at_temperatures(
    wavelength: Float[ndarray, " wave"], temperature: Float[ndarray, " template"], log_pressure: float
) -> Float[ndarray, "template wave"]:
    """The continuum (erg per Angstrom and photon) of each temperature (K), its logarithm straight between some."""
    low, high = np.log([temperature.min(), temperature.max()])
    nodes = np.linspace(low, high, int(np.ceil((high - low) / _LOG_TEMPERATURE)) + 2)
    density = 10.0**log_pressure / (PARTICLES_PER_ELECTRON * np.exp(nodes))
    light = [nebular_continuum(wavelength, *own) for own in zip(np.exp(nodes), density, strict=True)]
    place = np.interp(np.log(temperature), nodes, np.arange(len(nodes)))
    below = np.minimum(place.astype(int), len(nodes) - 2)
    share = (place - below)[:, None]
    logs = np.log(light)
    return np.exp((1 - share) * logs[below] + share * logs[below + 1])


def _nodes(first: float, last: float) -> Float[ndarray, " wave"]:
    """Wavelengths between which the continuum is straight to 1e-5, with two at every edge of captures."""
    even = np.exp(np.arange(np.log(first), np.log(last) + _LOG_STEP, _LOG_STEP))
    energies = [RYDBERG / level**2 for level in range(2, HIGHEST_LEVEL + 1)]
    edges = 1e8 / np.array([*energies, *(energy for energy, _ in HELIUM_SECOND_LEVELS)])
    edges = edges[(edges > even[0]) & (edges < even[-1])]
    return np.unique(np.concatenate([even, edges * (1 - _EDGE), edges * (1 + _EDGE)]))
