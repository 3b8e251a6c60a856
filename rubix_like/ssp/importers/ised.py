"""GALAXEV's populations as text: `bc2003_LIBRARY_mNN_IMF_ssp.ised_ASCII`, one file per metallicity, plain or gzipped.

A file is what Fortran's list-directed reading takes (GALAXEV's program bin_ised): the number of ages and the ages (yr,
from 0); limits and segments of the IMF; one more line of parameters; three lines of text with the metallicity Z=...;
the number of wavelengths and the wavelengths; for each age the number of fluxes and the fluxes (Lsun/Angstrom per Msun
at birth), and the number of index fluxes and these; then rows with one number per age, of which the second is the
mass in living stars and the tenth that in remnants.
"""

import gzip
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.packed_files import check_packed

LIVING_ROW, REMNANTS_ROW = 1, 9
"""Rows after the spectra (GALAXEV's strm and rmtm)."""

_HEADER_CHARACTERS = 100_000
_METALLICITY = re.compile(r"^.*\bZ\s*=\s*(\d*\.\d+).*$", re.MULTILINE)


@dataclass(frozen=True)
class Model:
    """What one file holds: ages in yr, Angstrom, fluxes, mass in stars and remnants per mass at birth, IMF's limits."""

    age: Float[ndarray, " age"]
    wavelength: Float[ndarray, " rest"]
    spectra: Float[ndarray, "age rest"]
    surviving: Float[ndarray, " age"] | None
    metallicity: float
    mass_limits: tuple[float, float]


def read_model(path: Path, metallicity: float) -> Model:
    """One file, whose own metallicity must be `metallicity`; ValueError where it is damaged or of other content."""
    text = _text(path)
    labels = list(_METALLICITY.finditer(text[:_HEADER_CHARACTERS]))
    if not labels:
        raise ValueError(f"{path}: expected a line with the metallicity (Z=...) after the ages, got none")
    stated = float(labels[-1][1])
    if abs(stated / metallicity - 1.0) > 0.01:
        raise ValueError(f"{path}: expected Z={metallicity:g} by the file's name, got Z={stated:g}; check the name")
    age, mass_limits = _header(path, text[: labels[0].start()])
    rows = _rows(path, text[labels[-1].end() :])
    wavelength, spectra = rows[0], rows[1 : 2 * len(age) : 2]
    lengths = {len(spectrum) for spectrum in spectra}
    if len(spectra) != len(age) or lengths != {len(wavelength)}:
        raise ValueError(
            f"{path}: expected {len(age)} spectra of {len(wavelength)} wavelengths, got {len(spectra)} of "
            f"{sorted(lengths)}: the file is incomplete"
        )
    surviving = _surviving(path, rows[2 * len(age) + 1 :], len(age))
    return Model(age, wavelength, np.array(spectra), surviving, metallicity, mass_limits)


def _text(path: Path) -> str:
    try:
        check_packed(path)
        content = path.read_bytes()
        return (gzip.decompress(content) if path.suffix.lower() == ".gz" else content).decode("ascii")
    except UNREADABLE as error:
        raise ValueError(
            f"{path}: expected the text of a BC03 file (.ised_ASCII), could not read it: {error}"
        ) from error


def _header(path: Path, text: str) -> tuple[Float[ndarray, " age"], tuple[float, float]]:
    """Ages and the IMF's mass limits, from what stands before the lines of text."""
    try:
        words = text.split()
        count = int(words[0])
        age = np.array(words[1 : count + 1], dtype=np.float64)
        low, high = float(words[count + 1]), float(words[count + 2])
    except (ValueError, IndexError) as error:
        raise ValueError(
            f"{path}: expected the number of ages, the ages and the IMF's limits first: {error}"
        ) from error
    if count < 2 or not np.all(np.diff(age) > 0) or age[0] < 0:
        raise ValueError(f"{path}: expected at least 2 increasing ages in yr, got {age[:3]} ... ({len(age)})")
    return age, (low, high)


def _rows(path: Path, text: str) -> list[Float[ndarray, " row"]]:
    """The rows of numbers, each of which begins with its length."""
    try:
        numbers = np.array(text.split(), dtype=np.float64)
    except ValueError as error:
        raise ValueError(f"{path}: expected numbers after the lines of text: {error}") from error
    if not np.all(np.isfinite(numbers)):
        raise ValueError(f"{path}: expected finite numbers, got NaN or infinity")
    rows, place = [], 0
    while place < len(numbers):
        length = int(numbers[place])
        row = numbers[place + 1 : place + 1 + length]
        if length != numbers[place] or len(row) != length:
            raise ValueError(
                f"{path}: expected {numbers[place]:g} numbers in row {len(rows) + 1} after the text, got {len(row)}: "
                "the file is cut short or damaged"
            )
        rows.append(row)
        place += 1 + length
    if not rows or len(rows[0]) < 2:
        raise ValueError(f"{path}: expected the wavelengths after the lines of text, got none: the file is cut short")
    return rows


def _surviving(path: Path, rows: Sequence[Float[ndarray, " row"]], n_age: int) -> Float[ndarray, " age"] | None:
    """Mass in living stars and remnants; None where the file ends before."""
    if len(rows) <= REMNANTS_ROW:
        return None
    living, remnants = rows[LIVING_ROW], rows[REMNANTS_ROW]
    if len(living) != n_age or len(remnants) != n_age:
        raise ValueError(
            f"{path}: expected {n_age} masses in stars and in remnants, got {len(living)}, {len(remnants)}"
        )
    surviving = living + remnants
    if abs(surviving[0] - 1.0) > 0.01 or surviving.min() <= 0.0 or surviving.max() > 1.01:
        raise ValueError(
            f"{path}: expected the mass in stars and remnants to begin at 1 Msun and to fall, got {surviving[0]:.3g} "
            f"and up to {surviving.max():.3g}: not a simple stellar population"
        )
    return np.minimum(surviving, 1.0)
