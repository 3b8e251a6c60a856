"""Tables of nebular lines, and their file: energies in lines per ionising photon, on named axes.

Attributes of the file: format, format_version, name, axes and lines (names, separated by commas and semicolons),
energy_unit, temperature_unit, solar_oxygen, solar_metallicity, citation, licence, source, sha256. Datasets: one per
axis, called axis_NAME; per_photon (axes ..., line) and temperature (axes ...), float32, gzip with shuffle.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.arguments import expect_fields, named_arguments
from rubix_like.constants import SPEED_OF_LIGHT
from rubix_like.nebular.case_b import hydrogen_lines, ratio_to_h_beta, temperature_of_ratio
from rubix_like.nebular.line_list import FIXED_RATIOS, LINES, find_line
from rubix_like.physics.units import plain_fields
from rubix_like.runtime.files.array_files import ArrayFileLayout
from rubix_like.runtime.files.writers import NEBULAR

AXES: Mapping[str, str] = {
    "oxygen_abundance": "12 + log10(O/H) of the gas, by number",
    "log_u": "log10 of the ionisation parameter U = photons / hydrogen atoms where the light enters the gas",
    "log_pressure": "log10 of the pressure over Boltzmann's constant, K / cm^3",
    "log_age": "log10 of the age of the ionising stars, yr",
    "log_peak_energy": "log10 of the energy at which the spectrum of an active nucleus peaks, keV",
}
"""Axis -> what it is. The first two are in every table."""

LIMITS: Mapping[str, tuple[float, float]] = {
    "oxygen_abundance": (4.0, 11.0),
    "log_u": (-8.0, 3.0),
    "log_pressure": (0.0, 12.0),
    "log_age": (3.0, 10.5),
    "log_peak_energy": (-4.0, 2.0),
}
"""Axis -> between which values a nebula can be."""

LAYOUT = ArrayFileLayout(
    noun="nebular table",
    article="a",
    command="rubix-like nebular",
    format=NEBULAR,
    version=1,
    texts=("name", "axes", "lines", "citation", "licence", "source"),
    numbers=("solar_oxygen", "solar_metallicity"),
    units={"energy_unit": "erg", "temperature_unit": "K"},
    arrays=("per_photon", "temperature", "axis_oxygen_abundance", "axis_log_u"),
    others=tuple(f"axis_{name}" for name in AXES),
)
"""The layout of the file."""

HALPHA_PER_PHOTON = (0.9e-12, 2.8e-12)
"""erg: limits of Ha per ionising photon. Case B gives 1.26e-12 to 1.75e-12 (20000 to 3000 K). Around stars of 10 Myr
and more, models have down to 0.95e-12 (Bagpipes) and up to 2.6e-12 (FSPS: their light excites hydrogen, too)."""

HALPHA_OVER_HBETA = (2.6, 4.0)
"""Case B gives 2.75-3.3; collisions add."""

O3_DOUBLET = (2.8, 3.1)
"""[O III] 5007 over 4959 is 2.984 by atomic physics alone (2.89 in Cloudy 25, 3.01 in Cloudy 13); checked where 5007
has more than 1 % of Hb."""

MOST_PER_PHOTON = 2e-10
"""erg (125 eV): beyond the mean energy of the ionising photons of stars and active nuclei."""


@dataclass(frozen=True, eq=False)
class NebularTable:
    """Energy in each line for each ionising photon that the gas absorbs (host arrays, 64 bits).

    | field | shape | unit |
    |---|---|---|
    | axes | name -> (node,) | see `AXES`; increasing |
    | lines | (line,) | names of `LINES` |
    | per_photon | (axes ..., line) | erg per photon below 912 A that is absorbed |
    | temperature | (axes ...) | K, of the electrons where hydrogen recombines |
    | solar_oxygen, solar_metallicity | | 12 + log10(O/H) of the gas around stars of this metal mass fraction |

    Shapes and order are checked when it is built, and what no nebula shines: see `check_nebular_light` (ValueError).
    """

    name: str
    citation: str
    licence: str
    source: str
    solar_oxygen: float
    solar_metallicity: float
    axes: Mapping[str, Float[ndarray, "_"]]
    lines: tuple[str, ...]
    per_photon: Float[ndarray, "*axes line"]
    temperature: Float[ndarray, "*axes"]

    def __post_init__(self) -> None:
        vars(self).update(plain_fields(self, {"per_photon": "erg", "temperature": "K"}))
        expect_fields(self)
        _check_axes(self)
        shape = tuple(len(nodes) for nodes in self.axes.values())
        for name, expected in (("per_photon", (*shape, len(self.lines))), ("temperature", shape)):
            values = getattr(self, name)
            if np.shape(values) != expected:
                raise ValueError(
                    f"nebular table '{self.name}': {name}: expected shape {expected}, got {np.shape(values)}"
                )
            if not (np.all(np.isfinite(values)) and np.all(values >= 0)):
                raise ValueError(f"nebular table '{self.name}': {name}: expected finite values of 0 or more")
        check_nebular_light(self)

    @named_arguments
    def line(self, name: str) -> Float[ndarray, "*axes"]:
        """Energy per photon (erg) in the line of a name (see `find_line`); ValueError where the table lacks it."""
        found = find_line(name).name
        if found not in self.lines:
            raise ValueError(f"nebular table '{self.name}' has no line '{found}'; it has {', '.join(self.lines)}")
        return self.per_photon[..., self.lines.index(found)]


def check_nebular_light(table: NebularTable) -> None:
    """Raise ValueError for light that no nebula shines: Ha per photon, Ha/Hb, the [O III] doublet, the whole energy."""
    h_alpha, h_beta = table.line("Ha"), table.line("Hb")
    _check_range(table, "energy in Ha per ionising photon (erg)", h_alpha, 1.0, HALPHA_PER_PHOTON)
    _check_range(table, "Ha/Hb", h_alpha, h_beta, HALPHA_OVER_HBETA)
    strong, weak = table.line("[O III] 5007"), table.line("[O III] 4959")
    fair = np.where(strong > 1e-2 * h_beta, weak, strong / np.mean(O3_DOUBLET))
    _check_range(table, "[O III] 5007/4959", strong, fair, O3_DOUBLET)
    _check_range(
        table, "energy in all lines per ionising photon (erg)", table.per_photon.sum(-1), 1.0, (0.0, MOST_PER_PHOTON)
    )


def write_nebular(table: NebularTable, path: Path, compression: int = 4, *, overwrite: bool = True) -> None:
    """Write `table` to `path` in one step, with gzip's level `compression`; errors as of `ArrayFileLayout.write`."""
    attributes: dict[str, Any] = {name: getattr(table, name) for name in (*LAYOUT.texts, *LAYOUT.numbers)}
    attributes |= {"axes": ",".join(table.axes), "lines": ";".join(table.lines)}
    arrays = {f"axis_{name}": np.ascontiguousarray(nodes, dtype="<f8") for name, nodes in table.axes.items()}
    for name in ("per_photon", "temperature"):  # 13 significant bits (1e-4), which compress well
        mantissa, exponent = np.frexp(getattr(table, name))
        arrays[name] = np.ldexp(np.round(mantissa * 2**13) / 2**13, exponent).astype("<f4")
    LAYOUT.write(path, attributes, arrays, compression, overwrite=overwrite)


def read_nebular(path: Path) -> NebularTable:
    """Read and verify a file written by `write_nebular`; errors as of `ArrayFileLayout.read`."""

    def make(attributes: dict[str, Any], arrays: dict[str, ndarray]) -> NebularTable:
        numbers = {name: np.asarray(array, dtype=np.float64) for name, array in arrays.items()}
        names = attributes["axes"].split(",")
        if not all(f"axis_{name}" in numbers for name in names):
            raise ValueError(LAYOUT.damaged(path))
        axes = {name: numbers[f"axis_{name}"] for name in names}
        values = {name: numbers[name] for name in ("per_photon", "temperature")}
        lines = tuple(attributes["lines"].split(";"))
        return NebularTable(**{**attributes, **values, "axes": axes, "lines": lines})

    return LAYOUT.read(path, make)


def _check_axes(table: NebularTable) -> None:
    where = f"nebular table '{table.name}'"
    if not set(table.axes) <= set(AXES):
        raise ValueError(f"{where}: axes: expected some of {', '.join(AXES)}, got {', '.join(table.axes)}")
    for name, nodes in table.axes.items():
        if np.ndim(nodes) != 1 or len(nodes) < 2 or not np.all(np.diff(nodes) > 0):
            raise ValueError(f"{where}: {name}: expected at least 2 increasing values, got {nodes}")
        low, high = LIMITS[name]
        if not (nodes[0] >= low and nodes[-1] <= high):
            raise ValueError(f"{where}: {name}: expected {low:g} to {high:g}, got {nodes[0]:g} to {nodes[-1]:g}")
    for name, (low, high) in {"solar_oxygen": LIMITS["oxygen_abundance"], "solar_metallicity": (0.0, 1.0)}.items():
        if not low < getattr(table, name) < high:
            raise ValueError(f"{where}: {name}: expected {low:g} to {high:g}, got {getattr(table, name)!r}")
    unknown = [name for name in table.lines if name not in LINES]
    if unknown or len(set(table.lines)) != len(table.lines):
        raise ValueError(f"{where}: lines: expected known names, each once, got {', '.join(unknown or table.lines)}")


def _check_range(table: NebularTable, what: str, value: Any, unit: Any, limits: tuple[float, float]) -> None:
    """Name the first node of the axes where `value` is beyond the limits, which are in `unit`."""
    wrong = (value < limits[0] * unit) | (value > limits[1] * unit)
    if not np.any(wrong):
        return
    first = tuple(np.argwhere(wrong)[0])
    found = np.asarray(value)[first] / np.broadcast_to(unit, np.shape(value))[first]
    nodes = [f"{name} {nodes[k]:.4g}" for (name, nodes), k in zip(table.axes.items(), first, strict=True)]
    raise ValueError(
        f"nebular table '{table.name}': {what}: expected {limits[0]:.3g} to {limits[1]:.3g}, got {found:.3g} at "
        f"{', '.join(nodes)} ({np.sum(wrong)} of {np.size(wrong)} nodes): no nebula shines so; leave such nodes out"
    )


THERMOMETER = "Brg"
"""The line whose ratio to Hb tells the temperature: collisions excite it least, and every code has it."""

NEAREST = 30.0
"""km/s: how near two wavelengths of one line must be: programs differ by up to 27, lines of one ion by 44 or more."""


def recombination_temperature(
    lines: Mapping[str, Float[ndarray, "*axes"]], density: Float[ndarray, "*axes"]
) -> Float[ndarray, "*axes"]:
    """Temperature (K) where hydrogen recombines, of Brg/Hb in case B; `density` in electrons per cm^3."""
    return temperature_of_ratio(THERMOMETER, lines[THERMOMETER] / lines["Hb"], density)


def assembled(
    lines: Mapping[str, Float[ndarray, "*axes"]],
    density: Float[ndarray, "*axes"],
    axes: Mapping[str, Float[ndarray, "_"]],
    source: str,
    **texts: Any,
) -> NebularTable:
    """The table of energies per photon (erg) that another program gives, with the lines that it lacks.

    `density` in electrons per cm^3; `texts` are the other fields of the table. The temperature is that of Brg/Hb. Of
    two lines with a fixed ratio (`FIXED_RATIOS`) the missing one follows from the other; a missing line of hydrogen is
    Hb times its ratio in case B.
    """
    temperature = recombination_temperature(lines, density)
    full = dict(lines)
    for name, (partner, ratio) in FIXED_RATIOS.items():
        if partner in lines and name not in lines:
            full[name] = lines[partner] * ratio
    for name in hydrogen_lines():
        if name not in lines:
            full[name] = lines["Hb"] * ratio_to_h_beta(name, temperature, density)
    full = {name: full[name] for name in LINES if name in full}
    added = [name for name in full if name not in lines]
    return NebularTable(
        source=f"{source}; temperature of {THERMOMETER}/Hb in case B; lines added by case B or fixed ratios: "
        f"{', '.join(added) or 'none'}",
        axes=axes,
        lines=tuple(full),
        per_photon=np.stack(list(full.values()), axis=-1),
        temperature=temperature,
        **texts,
    )


def matched_lines(wavelength: Float[ndarray, " entry"], ions: Sequence[str] | None = None) -> dict[str, int]:
    """Line -> place among vacuum wavelengths (Angstrom) of the one nearest to it, if that is within `NEAREST`.

    With `ions` ("O III", one per wavelength) only lines of the same ion are the same.
    """
    found = {}
    for line in LINES.values():
        same_ion = True if ions is None else np.array([ion == line.ion for ion in ions])
        offset = np.where(same_ion, np.abs(wavelength / line.wavelength - 1.0) * SPEED_OF_LIGHT, np.inf)
        if offset.min() < NEAREST:
            found[line.name] = int(np.argmin(offset))
    return found


_COLUMN = 16
_WIDTH = 120
_TIGHT = "\xa0"


def describe_table(table: NebularTable) -> str:
    """Text of `rubix-like nebular info`: axes, lines, temperatures, Ha per photon, provenance."""
    h_alpha = table.line("Ha")
    rows = [("name", table.name)]
    for name, nodes in table.axes.items():
        rows.append((name, f"{len(nodes)}, {nodes[0]:.4g} to {nodes[-1]:.4g}: {AXES[name]}"))
    rows += [
        ("temperature", f"{table.temperature.min():.0f} - {table.temperature.max():.0f} K"),
        ("Ha", f"{h_alpha.min():.3g} - {h_alpha.max():.3g} erg per ionising photon"),
        ("Sun", f"12 + log10(O/H) {table.solar_oxygen:g} at a metal mass fraction of {table.solar_metallicity:g}"),
        ("lines", f"{len(table.lines)}: {', '.join(name.replace(' ', _TIGHT) for name in table.lines)}"),
        ("citation", table.citation),
        ("licence", table.licence),
        ("source", table.source),
    ]
    wide = max(_COLUMN, *(len(label) + 2 for label, _ in rows))
    wrap = textwrap.TextWrapper(width=_WIDTH, subsequent_indent=" " * wide, break_long_words=False)
    text = "\n".join(wrap.fill(f"{label + ':':<{wide}}{value}") for label, value in rows)
    return text.replace(_TIGHT, " ")


def line_rows() -> list[tuple[str, str]]:
    """(name, vacuum wavelength and ion) of all known lines, from short wavelengths to long ones."""
    return [(line.name, f"{line.wavelength:.3f} A (vacuum)  {line.ion}") for line in LINES.values()]
