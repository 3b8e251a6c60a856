"""Tables of the masses of MILES populations (`ssp_mass_Padova00_UN_baseFe_v10.0` and its like).

Rows: IMF code, slope, [M/H], age in Gyr, then masses per mass at birth: total, stars and remnants, stars ... .
"""

from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy import ndarray

_COLUMNS = 6
"""Columns up to the mass in stars and remnants, which is the last of them."""

_ABSENT = "no mass fractions (the folder holds no table of masses for these models)"


def surviving_fraction(
    folder: Path, imf: str, slope: str, isochrones: str, metal: Float[ndarray, " metal"], age: Float[ndarray, " age"]
) -> tuple[Float[ndarray, "metal age"] | None, str]:
    """Mass in stars and remnants over mass at birth at each [M/H] and age (Gyr), and a note of where it is from.

    From the text files in `folder` with "mass" and the isochrones' name in theirs; None where none has rows of this
    IMF and slope. Raises ValueError for a table with rows of it that leave out a node, or is no fraction.
    """
    for path in sorted(folder.iterdir()):
        words = path.name.lower()
        if "mass" in words and isochrones in words and path.suffix.lower() != ".fits" and path.is_file():
            rows = _rows(path, imf, float(slope))
            if rows:
                return _at_nodes(path, np.array(rows), metal, age), f"mass fractions from {path.name}"
    return None, _ABSENT


def _rows(path: Path, imf: str, slope: float) -> list[list[float]]:
    """[M/H], age and mass in stars and remnants of the rows of this IMF and slope."""
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split()
        if len(words) < _COLUMNS or words[0].lower() != imf:
            continue
        try:
            row = [float(word) for word in words[1:_COLUMNS]]
        except ValueError as error:
            raise ValueError(f"{path}: expected numbers after the IMF, got '{line.strip()}'") from error
        if abs(row[0] - slope) < 0.005:
            found.append([row[1], row[2], row[4]])
    return found


def _at_nodes(
    path: Path, rows: Float[ndarray, "row 3"], metal: Float[ndarray, " metal"], age: Float[ndarray, " age"]
) -> Float[ndarray, "metal age"]:
    """The row nearest to each node, which may differ by the rounding of the file names only."""
    fraction = np.empty((len(metal), len(age)))
    for i, value in enumerate(metal):
        for j, years in enumerate(age):
            distance = np.maximum(np.abs(rows[:, 0] - value) / 0.02, np.abs(rows[:, 1] / years - 1.0) / 0.01)
            nearest = np.argmin(distance)
            if distance[nearest] > 1.0:
                raise ValueError(f"{path}: expected a row for [M/H] {value:+.2f} at {years:g} Gyr, got none")
            fraction[i, j] = rows[nearest, 2]
    if not (np.all(fraction > 0.0) and np.all(fraction <= 1.0)):
        raise ValueError(
            f"{path}: expected masses in stars and remnants of 0-1, got {fraction.min():g} to {fraction.max():g}"
        )
    return fraction
