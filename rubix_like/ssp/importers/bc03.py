"""Sets of files of GALAXEV (Bruzual & Charlot 2003) as text: what their names tell, and the table of a set."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.errors import ConfigError
from rubix_like.runtime.files.foreign_layouts import SourceFormat
from rubix_like.ssp.formats import BC03_SOLAR_METALLICITY, basel_fwhm, bc03_miles_fwhm
from rubix_like.ssp.importers.ised import Model, read_model
from rubix_like.ssp.library_file import SSPTable

SUFFIX = re.compile(r"\.ised_ascii(\.gz)?$", re.IGNORECASE)

NAME = re.compile(
    r"(?P<set>bc2003_(?P<resolution>lr|hr)(_(?P<library>[a-z]+))?)_m(?P<code>\d+)_(?P<imf>[a-z]+)_ssp\.ised_ascii(\.gz)?",
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
    """The stars behind a set of files: short name, medium of the wavelengths and what tells it, resolution."""

    name: str
    medium: str
    medium_source: str
    fwhm: Callable[[Float[ndarray, " rest"]], Float[ndarray, " rest"]]


BASEL = StellarLibrary(
    "lr", "vacuum", "vacuum inferred: its lines stand at those of BC03-MILES in vacuum within 40 km/s", basel_fwhm
)
STELIB = StellarLibrary("stelib", "air", "STELIB's wavelengths are in air (Le Borgne et al. 2003)", stelib_fwhm)
MILES = StellarLibrary("miles", "air", "MILES' wavelengths are in air", bc03_miles_fwhm)

LIBRARIES: dict[tuple[str, str], StellarLibrary] = {
    ("lr", ""): BASEL,
    ("lr", "basel"): BASEL,
    ("hr", ""): STELIB,
    ("hr", "stelib"): STELIB,
    ("hr", "xmiless"): MILES,
    ("hr", "xmilesi"): MILES,
}
"""Libraries by the resolution and library in the file's name; the names of 2003 have no library."""


def read_bc03_ascii(path: Path) -> SSPTable:
    """The set of files to which the file `path` belongs, or the one set in the folder `path`.

    Of a plain and a gzipped file of one name the plain one is taken. Raises ConfigError where a folder holds several
    sets, ValueError for files that are damaged or do not fit together.
    """
    files = _files_of_one_set(path)
    parts = _name_parts(next(iter(files.values())))
    library, imf = _library(path, parts), _imf(path, parts)
    models = {code: read_model(file, METALLICITIES[code]) for code, file in files.items()}
    first = next(iter(models.values()))
    for code, model in models.items():
        _check_same_axes(files[code], first, model)
    grown = first.age > 0.0
    surviving = [model.surviving[grown] for model in models.values() if model.surviving is not None]
    missing = sorted(set(_family(next(iter(files)))) - set(files), key=int)
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
        metallicity=np.array([model.metallicity for model in models.values()]),
        rest_wavelength=first.wavelength,
        fwhm=library.fwhm(first.wavelength),
        surviving_fraction=np.array(surviving) if len(surviving) == len(models) else None,
    )


def _is_bc03_ascii(path: Path) -> bool:
    return SUFFIX.search(path.name) is not None


def _is_folder_of_bc03_ascii(path: Path) -> bool:
    return any(_is_bc03_ascii(file) for file in path.iterdir())


def _files_of_one_set(path: Path) -> dict[str, Path]:
    """Files of the set by metallicity code, poorest first."""
    folder = path if path.is_dir() else path.parent
    found = sorted((file for file in folder.iterdir() if _is_bc03_ascii(file)), key=lambda file: len(file.name))
    wanted = None if path.is_dir() else _set_key(_name_parts(path))
    sets: dict[tuple[str, ...], dict[str, Path]] = {}
    for file in found:
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


def _family(code: str) -> list[str]:
    return [other for other in METALLICITIES if len(other) == len(code)]


def _library(path: Path, parts: re.Match[str]) -> StellarLibrary:
    library = LIBRARIES.get((parts["resolution"].lower(), (parts["library"] or "").lower()))
    if library is None:
        known = ", ".join("_".join(filter(None, key)) for key in LIBRARIES)
        raise ValueError(f"{path}: expected a set of files bc2003_NAME with NAME one of {known}, got {parts['set']}")
    return library


def _imf(path: Path, parts: re.Match[str]) -> str:
    imf = IMFS.get(parts["imf"].lower()[:4])
    if imf is None:
        raise ValueError(f"{path}: expected the IMF {', '.join(IMFS)} in the file's name, got '{parts['imf']}'")
    return imf


def _check_same_axes(path: Path, first: Model, model: Model) -> None:
    for what, one, other in (("ages", first.age, model.age), ("wavelengths", first.wavelength, model.wavelength)):
        if not np.array_equal(one, other):
            raise ValueError(
                f"{path}: expected the {what} of the other files of the set ({len(one)}, {one[0]:g}-{one[-1]:g}), got "
                f"{len(other)}, {other[0]:g}-{other[-1]:g}; take all files from one version of GALAXEV"
            )


BC03_ASCII = SourceFormat(_is_bc03_ascii, read_bc03_ascii)
BC03_ASCII_FOLDER = SourceFormat(_is_folder_of_bc03_ascii, read_bc03_ascii, directory=True)
