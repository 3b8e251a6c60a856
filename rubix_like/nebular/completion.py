"""From the lines of another program to a table: which lines they are, and those that physics gives.

Hydrogen's follow from case B, some others from fixed ratios.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.constants import SPEED_OF_LIGHT
from rubix_like.nebular.case_b import hydrogen_lines, ratio_to_h_beta, temperature_of_ratio
from rubix_like.nebular.line_list import FIXED_RATIOS, LINES
from rubix_like.nebular.table_file import NebularTable

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

    `density` in electrons per cm^3; `texts` are the other fields of the table. The temperature is that of Brg/Hb.
    """
    temperature = recombination_temperature(lines, density)
    full = completed(lines, temperature, density)
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


def completed(
    lines: Mapping[str, Float[ndarray, "*axes"]],
    temperature: Float[ndarray, "*axes"],
    density: Float[ndarray, "*axes"],
) -> dict[str, Float[ndarray, "*axes"]]:
    """All lines in order of wavelength, those that are missing included.

    Of two lines with a fixed ratio (`FIXED_RATIOS`) the missing one follows from the other; a missing line of hydrogen
    is Hb times its ratio in case B.
    """
    full = dict(lines)
    for name, (partner, ratio) in FIXED_RATIOS.items():
        if partner in lines and name not in lines:
            full[name] = lines[partner] * ratio
    for name in hydrogen_lines():
        if name not in lines:
            full[name] = lines["Hb"] * ratio_to_h_beta(name, temperature, density)
    return {name: full[name] for name in LINES if name in full}


def matched_lines(wavelength: Float[ndarray, " entry"], ions: Sequence[str] | None = None) -> dict[str, int]:
    """Line -> place among vacuum wavelengths (Angstrom) of the one nearest to it, if that is within `NEAREST`.

    With `ions` ("O III", one per wavelength) only lines of the same ion are the same.
    """
    found = {}
    for line in LINES.values():
        own = [True] * len(wavelength) if ions is None else [ion == line.ion for ion in ions]
        offset = np.where(own, np.abs(wavelength / line.wavelength - 1.0) * SPEED_OF_LIGHT, np.inf)
        if offset.min() < NEAREST:
            found[line.name] = int(np.argmin(offset))
    return found
