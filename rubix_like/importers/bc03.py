"""GALAXEV's populations (Bruzual & Charlot 2003) as text: `bc2003_LIBRARY_mNN_IMF_ssp.ised_ASCII`, plain or gzipped.

A set has one file per metallicity. A file is what Fortran's list-directed reading takes (GALAXEV's program bin_ised):
the number of ages and the ages (yr, from 0); limits and segments of the IMF; one more line of parameters; three lines
of text with the metallicity Z=...; the number of wavelengths and the wavelengths; for each age the number of fluxes
and the fluxes (Lsun/Angstrom per Msun at birth), and the number of index fluxes and these; then rows with one number
per age, of which the second is the mass in living stars and the tenth that in remnants.
"""

import gzip
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.errors import ConfigError
from rubix_like.importers.stellar_spectra import BC03_SOLAR_METALLICITY, basel_fwhm, bc03_miles_fwhm
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.fits_opening import check_packed
from rubix_like.runtime.files.foreign_layouts import SourceFormat
from rubix_like.ssp.library_file import SSPTable

LIVING_ROW, REMNANTS_ROW = 1, 9
"""Rows after the spectra (GALAXEV's strm and rmtm)."""

_HEADER_CHARACTERS = 100_000
_METALLICITY = re.compile(r"^.*\bZ\s*=\s*(\d*\.\d+).*$", re.MULTILINE)

SUFFIX = re.compile(r"\.ised_ascii(\.gz)?$", re.IGNORECASE)

NAME = re.compile(
    r"(?P<set>bc2003_(?P<library>(lr|hr)(_[a-z]+)?))_m(?P<code>\d+)_(?P<imf>[a-z]+)_ssp\.ised_ascii(\.gz)?",
    re.IGNORECASE,
)

METALLICITIES: dict[str, float] = {
    "22": 0.0001,
    "32": 0.0004,
    "42": 0.004,
    "52": 0.008,
    "62": 0.02,
    "72": 0.05,
    "122": 0.0004,
    "132": 0.001,
    "142": 0.004,
    "152": 0.008,
    "162": 0.019,
    "172": 0.03,
}
"""Metal mass fraction by the code in the file's name: Padova 1994 (22-72) and Padova 2000 tracks (122-172).

Bruzual & Charlot 2003, table 2. The file m82 (Z = 0.1) of the version of 2016 is not taken: when young it has a 20th of
the others' ultraviolet light.
"""

IMFS: dict[str, str] = {"chab": "Chabrier 2003", "salp": "Salpeter 1955", "krou": "Kroupa 2001"}
"""Initial mass function by the first four letters in the file's name."""


def stelib_fwhm(wavelength: Float[ndarray, " rest"]) -> Float[ndarray, " rest"]:
    """FWHM (Angstrom) of spectra made of STELIB stars: 3 A at 3200-9500 A, as BaSeL elsewhere.

    Bruzual & Charlot 2003, MNRAS 344, 1000, abstract and section 2.2.
    """
    return np.where((wavelength >= 3200.0) & (wavelength <= 9500.0), 3.0, basel_fwhm(wavelength))


@dataclass(frozen=True)
class StellarLibrary:
    """The stars behind a set of files: short name, medium of the wavelengths and its source, resolution."""

    name: str
    medium: str
    medium_source: str
    fwhm: Callable[[Float[ndarray, " rest"]], Float[ndarray, " rest"]]


BASEL = StellarLibrary(
    "lr", "vacuum", "vacuum inferred: its lines stand at those of BC03-MILES in vacuum within 40 km/s", basel_fwhm
)
STELIB = StellarLibrary("stelib", "air", "STELIB's wavelengths are in air (Le Borgne et al. 2003)", stelib_fwhm)
MILES = StellarLibrary("miles", "air", "MILES' wavelengths are in air", bc03_miles_fwhm)

LIBRARIES: dict[str, StellarLibrary] = {
    "lr": BASEL,
    "lr_basel": BASEL,
    "hr": STELIB,
    "hr_stelib": STELIB,
    "hr_xmiless": MILES,
    "hr_xmilesi": MILES,
}
"""Libraries by the resolution and library in the file's name; the names of 2003 have no library."""


@dataclass(frozen=True)
class Model:
    """The content of one file: ages in yr, Angstrom, fluxes, mass in stars and remnants per mass at birth, IMF's
    limits."""

    age: Float[ndarray, " age"]
    wavelength: Float[ndarray, " rest"]
    spectra: Float[ndarray, "age rest"]
    surviving: Float[ndarray, " age"] | None
    mass_limits: tuple[float, float]


def read_bc03_ascii(path: Path) -> SSPTable:
    """The set of files to which the file `path` belongs, or the one set in the folder `path`.

    Of a plain and a gzipped file of one name the plain one is taken. Raises ConfigError where a folder holds several
    sets, ValueError for files that are damaged or do not fit together.
    """
    files = _files_of_one_set(path)
    parts = _name_parts(next(iter(files.values())))
    library, imf = LIBRARIES.get(parts["library"].lower()), IMFS.get(parts["imf"].lower()[:4])
    if library is None:
        raise ValueError(
            f"{path}: expected a set of files bc2003_NAME with NAME one of {', '.join(LIBRARIES)}, got {parts['set']}"
        )
    if imf is None:
        raise ValueError(f"{path}: expected the IMF {', '.join(IMFS)} in the file's name, got '{parts['imf']}'")
    models = {code: _read_model(file, METALLICITIES[code]) for code, file in files.items()}
    first = next(iter(models.values()))
    for code, model in models.items():
        axes = (("ages", first.age, model.age), ("wavelengths", first.wavelength, model.wavelength))
        for what, expected, values in axes:
            if not np.array_equal(expected, values):
                raise ValueError(
                    f"{files[code]}: expected the {what} of the other files of the set ({len(expected)}, "
                    f"{expected[0]:g}-{expected[-1]:g}), got {len(values)}, {values[0]:g}-{values[-1]:g}; take all "
                    f"files from one version of GALAXEV"
                )
    grown = first.age > 0.0
    surviving = [model.surviving[grown] for model in models.values() if model.surviving is not None]
    family = {code for code in METALLICITIES if len(code) == len(next(iter(files)))}
    missing = sorted(family - set(files), key=int)
    left_out = f"; without the metallicities {', '.join('m' + code for code in missing)}" if missing else ""
    return SSPTable(
        name=f"bc03-{library.name}-{imf.split()[0].lower()}",
        medium=library.medium,
        imf=f"{imf}, {first.mass_limits[0]:g}-{first.mass_limits[1]:g} Msun",
        solar_metallicity=BC03_SOLAR_METALLICITY,
        citation="Bruzual & Charlot 2003, MNRAS 344, 1000",
        licence="all rights reserved by the authors of the models",
        source=f"GALAXEV, {parts['set']}_m*_{parts['imf']}_ssp.ised_ASCII{left_out}; {library.medium_source}; age 0 "
        "left out; mass in stars and remnants as in the files",
        spectra=np.array([model.spectra[grown] for model in models.values()]),
        log_age=np.log10(first.age[grown]),
        metallicity=np.array([METALLICITIES[code] for code in models]),
        rest_wavelength=first.wavelength,
        fwhm=library.fwhm(first.wavelength),
        surviving_fraction=np.array(surviving) if len(surviving) == len(models) else None,
    )


def _is_bc03_ascii(path: Path) -> bool:
    return SUFFIX.search(path.name) is not None


def _files_of_one_set(path: Path) -> dict[str, Path]:
    """Files of the set by metallicity code, poorest first."""
    folder = path if path.is_dir() else path.parent
    candidates = sorted((file for file in folder.iterdir() if _is_bc03_ascii(file)), key=lambda file: len(file.name))
    wanted = None if path.is_dir() else _set_key(_name_parts(path))
    sets: dict[tuple[str, ...], dict[str, Path]] = {}
    for file in candidates:
        parts = NAME.fullmatch(file.name)
        if parts is not None and parts["code"] in METALLICITIES and wanted in (None, _set_key(parts)):
            sets.setdefault(_set_key(parts), {}).setdefault(parts["code"], file)
    if len(sets) > 1:
        names = ", ".join(sorted(next(iter(files.values())).name for files in sets.values()))
        raise ConfigError(f"{path}: holds {len(sets)} sets of BC03 files; give one file of the set you want: {names}")
    files = next(iter(sets.values()), {})
    if len(files) < 2:
        raise ValueError(
            f"{path}: expected the files of at least 2 metallicities (bc2003_..._m22_..._ssp.ised_ASCII to m72) in the "
            f"folder, got {len(files)}; put them beside each other, with the names that they had"
        )
    return {code: files[code] for code in METALLICITIES if code in files}


def _name_parts(file: Path) -> re.Match[str]:
    parts = NAME.fullmatch(file.name)
    if parts is None:
        raise ValueError(
            f"{file}: expected a name such as bc2003_hr_stelib_m62_chab_ssp.ised_ASCII, which tells stars, metallicity "
            "and IMF; give the file the name that it had (composite populations cannot be used)"
        )
    return parts


def _set_key(parts: re.Match[str]) -> tuple[str, ...]:
    tracks = "Padova 1994" if len(parts["code"]) == 2 else "Padova 2000"
    return parts["set"].lower(), parts["imf"].lower(), tracks


def _read_model(path: Path, metallicity: float) -> Model:
    """One file, whose metallicity must be `metallicity`; ValueError where it is damaged or of other content."""
    try:
        check_packed(path)
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix.lower() == ".gz" else content).decode("ascii")
    except UNREADABLE as error:
        raise ValueError(
            f"{path}: expected the text of a BC03 file (.ised_ASCII), could not read it: {error}"
        ) from error
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
    return Model(age, wavelength, np.array(spectra), surviving, mass_limits)


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


BC03_ASCII = SourceFormat(_is_bc03_ascii, read_bc03_ascii)
BC03_ASCII_FOLDER = SourceFormat(lambda path: any(map(_is_bc03_ascii, path.iterdir())), read_bc03_ascii, directory=True)
