"""A table of lines as a model looks it up: refined once on the host, then multilinear and differentiable."""

from collections.abc import Mapping
from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.constants import ATOMIC_MASS_UNIT, BOLTZMANN_CONSTANT, LYMAN_LIMIT, SOLAR_LUMINOSITY
from rubix_like.nebular.case_b import (
    HELIUM_SECOND_LEVELS,
    HIGHEST_LEVEL,
    PARTICLES_PER_ELECTRON,
    RYDBERG,
    nebular_continuum,
)
from rubix_like.nebular.line_list import LINES
from rubix_like.nebular.table_file import NebularTable
from rubix_like.physics.templates import LineTemplates, TemplateAxes, Templates, weighted_rows
from rubix_like.runtime.places import found_at

FAINTEST = 1e-6
"""Of Hb: fainter lines, and lines that a table has no number for, are taken to be as bright as this between nodes."""

STEPS: Mapping[str, float] = {
    "oxygen_abundance": 0.02,
    "log_u": 0.05,
    "log_pressure": 0.1,
    "log_age": 0.05,
    "log_peak_energy": 0.05,
}
"""Largest distance of two nodes of a refined axis. Multilinear look-up then errs by 0.4 % (rms) of the spline, and by
up to 3 % where [O III] falls by a factor of ten within 0.2 dex of O/H."""


class LineGrid(eqx.Module):
    """Energy per photon in each line, at any place between the nodes of a refined table.

    | field | shape | unit |
    |---|---|---|
    | axes | | named axes, of any number of particles' coordinates |
    | per_photon | (template, line) | erg per absorbed ionising photon |
    | temperature | (template,) | K |
    | lines | (line,) | names |
    """

    axes: TemplateAxes
    per_photon: Float[Array | ndarray, "template line"]
    temperature: Float[Array | ndarray, " template"]
    lines: tuple[str, ...] = eqx.field(static=True)

    def light(self, coordinates: tuple[Float[Array, " particle"], ...]) -> Float[Array, "particle line"]:
        """Energy per photon (erg) at coordinates in the order of the axes, limited to their ends.

        Beyond an end the gradient is zero; `axes.outside(name, coordinates)` tells which particles are there.
        """
        return weighted_rows(jnp.asarray(self.per_photon), self.axes.corners(coordinates))


@named_arguments
def fixed(table: NebularTable, **values: float) -> NebularTable:
    """The table at given values of some of its axes, such as `log_pressure=5.8`, without these axes.

    Raises ValueError for an axis that the table does not have, and for a value beyond its ends.
    """
    for name, value in values.items():
        if name not in table.axes:
            raise ValueError(f"nebular table '{table.name}' has no axis '{name}'; it has {', '.join(table.axes)}")
        if np.ndim(value):
            raise ValueError(f"{name}: expected a number, got {value!r}")
        nodes = table.axes[name]
        if not nodes[0] <= value <= nodes[-1]:
            raise ValueError(
                f"nebular table '{table.name}': {name}: expected {nodes[0]:g} to {nodes[-1]:g}, got {value:g}"
            )
        table = _along(table, name, np.array([value]), keep=False)
    return table


def refined(table: NebularTable, steps: Mapping[str, float] = STEPS) -> NebularTable:
    """The table on axes of equal steps, none longer than `steps` says, from its first node to its last.

    Between its nodes the logarithm of every value is a modified Akima spline along one axis after the other (Akima
    1970, J. ACM 17, 589; weights of "makima"), which does not overshoot where a line fades.
    """
    if set(table.axes) - set(steps) or not all(step > 0 for step in steps.values()):
        raise ValueError(f"steps: expected a step above 0 for each of {', '.join(table.axes)}, got {dict(steps)}")
    for name, nodes in table.axes.items():
        n_node = int(np.ceil((nodes[-1] - nodes[0]) / steps[name] - 1e-9)) + 1
        table = _along(table, name, np.linspace(nodes[0], nodes[-1], n_node), keep=True)
    return table


@named_arguments
def line_grid(table: NebularTable, steps: Mapping[str, float] = STEPS) -> LineGrid:
    """The table refined and flattened, for a model; fix first the axes on which particles do not differ (`fixed`)."""
    fine = refined(table, steps)
    axes = TemplateAxes(tuple(fine.axes.values()), tuple(fine.axes))
    return LineGrid(axes, fine.per_photon.reshape(axes.n_template, -1), fine.temperature.reshape(-1), fine.lines)


def _along(table: NebularTable, name: str, nodes: Float[ndarray, " node"], keep: bool) -> NebularTable:
    """The table at other nodes of one axis; without `keep` at the only one of them."""
    place = list(table.axes).index(name)
    axes = dict(table.axes) | {name: nodes}
    if not keep:
        del axes[name]
    faintest = FAINTEST * table.line("Hb")[..., None]
    arrays = {"per_photon": np.maximum(table.per_photon, faintest), "temperature": table.temperature}
    for field, values in arrays.items():
        spline = found_at("scipy.interpolate:Akima1DInterpolator")(
            table.axes[name], np.log(values), axis=place, method="makima"
        )
        found = np.exp(spline(nodes))
        arrays[field] = found if keep else np.asarray(np.take(found, 0, axis=place))
    return replace(table, axes=axes, **arrays)


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
    light = [nebular_continuum(wavelength, kelvin, n_e) for kelvin, n_e in zip(np.exp(nodes), density, strict=True)]
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
