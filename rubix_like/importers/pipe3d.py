"""Templates of pyPipe3D (Lacerda et al. 2022, New Astronomy 97, 101895), such as MaStar_CB19.slog_1_5.fits.gz.

One image (template, rest) with linear wavelengths in Angstrom (CRVAL1, CDELT1, CRPIX1), every template divided by its
flux at WAVENORM; NAMEi is spec_ssp_AGE_zMETALLICITY.spec (AGE in Gyr, or with the unit Gyr or Myr; z017 is 0.017),
NORMi the flux that template i was divided by, in Lsun/Angstrom per Msun at birth.
"""

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits
from astropy.utils.exceptions import AstropyWarning
from jaxtyping import Float
from numpy import ndarray

from rubix_like.importers.stellar_spectra import check_light_unit, measured_medium, node_spacing
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.fits_opening import check_fits
from rubix_like.runtime.files.foreign_layouts import SourceFormat, open_source_fits
from rubix_like.ssp.library_file import SSPTable

NAME = re.compile(r"spec_ssp_(?P<age>\d*\.?\d+)(?P<unit>Gyr|Myr)?_z(?P<decimals>\d+)(\.spec)?")

MASTAR_RESOLVING_POWER = 1800.0
"""lambda / FWHM of the MaStar stars (Yan et al. 2019, ApJ 883, 175)."""

CB19_SOLAR_METALLICITY = 0.017
"""Sanchez et al. 2022, ApJS 262, 36."""


def read_pipe3d(path: Path) -> SSPTable:
    """The templates as a full grid of age and metallicity; the medium is measured from their Balmer lines.

    Raises ValueError for a damaged file, a grid with gaps, and templates other than MaStar_CB19, whose IMF and
    resolution the file does not state.
    """
    if not path.name.lower().startswith("mastar"):
        raise ValueError(
            f"{path}: expected a file of templates MaStar_CB19.*.fits, got '{path.name}': IMF and resolution of others "
            "are not stated in their files; give the file the name it had, or write an importer (docs/how-to-extend.md)"
        )
    with open_source_fits(path) as file:
        header = {card.keyword: card.value for card in file[0].header.cards}
        with np.errstate(invalid="ignore"):
            image = np.asarray(file[0].data, dtype=np.float64)
    if image.ndim != 2 or not np.all(np.isfinite(image)):
        raise ValueError(f"{path}: expected an image (template, wavelength) of finite numbers, got other ones")
    start, step, pixel = (_number(path, header, key) for key in ("CRVAL1", "CDELT1", "CRPIX1"))
    if not (step > 0 and start + step * (1 - pixel) > 0):
        raise ValueError(f"{path}: CRVAL1, CDELT1, CRPIX1: expected Angstrom, got {start:g}, {step:g}, {pixel:g}")
    wavelength = start + step * (np.arange(image.shape[1]) + 1 - pixel)
    places = [_place(path, header, index) for index in range(len(image))]
    norms = np.array([_number(path, header, f"NORM{index}") for index in range(len(image))])
    if not np.all(norms > 0):
        index = int(np.argmin(norms > 0))
        raise ValueError(
            f"{path}: NORM{index}: expected the flux that the template was divided by, got {norms[index]:g}"
        )
    spectra, log_age, metallicity = _grid(path, places, image * norms[:, np.newaxis])
    medium, offset = measured_medium(path.name, wavelength, log_age, metallicity, spectra)
    check_light_unit(path.name, wavelength, log_age, metallicity, spectra)
    return SSPTable(
        name="mastar-cb19",
        medium=medium,
        imf="Salpeter 1955, 0.1-100 Msun",
        solar_metallicity=CB19_SOLAR_METALLICITY,
        citation="Sanchez et al. 2022, ApJS 262, 36 (appendix A); stars: Yan et al. 2019, ApJ 883, 175; pyPipe3D: "
        "Lacerda et al. 2022, New Astronomy 97, 101895",
        licence="not stated with the templates; pyPipe3D: MIT",
        source=f"pyPipe3D templates, {path.name}; template times NORM; IMF as in Sanchez et al. 2022; the file does "
        f"not state its medium: {medium} measured (the Balmer lines stand {offset:+.0f} km/s from it); FWHM = lambda / "
        f"{MASTAR_RESOLVING_POWER:g}, that of MaStar; no mass fractions",
        spectra=spectra,
        log_age=log_age,
        metallicity=metallicity,
        rest_wavelength=wavelength,
        fwhm=np.maximum(node_spacing(wavelength), wavelength / MASTAR_RESOLVING_POWER),
    )


def _place(path: Path, header: dict[str, Any], index: int) -> tuple[float, float]:
    """Metal mass fraction and age (yr) of a template, from its name."""
    name = str(header.get(f"NAME{index}", "nothing")).strip()
    parts = NAME.fullmatch(name)
    if parts is None or float(parts["age"]) <= 0 or int(parts["decimals"]) == 0:
        raise ValueError(f"{path}: NAME{index}: expected a name such as spec_ssp_1.0000_z017.spec, got '{name}'")
    age = float(parts["age"]) * (1e6 if parts["unit"] == "Myr" else 1e9)
    return float(f"0.{parts['decimals']}"), age


def _grid(
    path: Path, places: list[tuple[float, float]], spectra: Float[ndarray, "template rest"]
) -> tuple[Float[ndarray, "metal age rest"], Float[ndarray, " age"], Float[ndarray, " metal"]]:
    """Spectra, log10(age / yr) and metallicities of a full grid."""
    metallicity, age = (np.unique([place[axis] for place in places]) for axis in (0, 1))
    if len(set(places)) != len(places) or len(places) != len(metallicity) * len(age):
        raise ValueError(
            f"{path}: expected one template for each of {len(metallicity)} metallicities and {len(age)} ages, got "
            f"{len(set(places))} of these and {len(places) - len(set(places))} double ones"
        )
    grid = np.empty((len(metallicity), len(age), spectra.shape[1]))
    for place, spectrum in zip(places, spectra, strict=True):
        grid[np.searchsorted(metallicity, place[0]), np.searchsorted(age, place[1])] = spectrum
    return grid, np.log10(age), metallicity


def _number(path: Path, header: dict[str, Any], key: str) -> float:
    value: Any = header.get(key)
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {key}: expected a number in the header, got {value!r}") from error
    if not np.isfinite(number):
        raise ValueError(f"{path}: {key}: expected a finite number in the header, got {value!r}")
    return number


def _is_pipe3d(path: Path) -> bool:
    """Whether it is one, by the first header, which a file that is cut short still has."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AstropyWarning)
            check_fits(path)
            header = fits.getheader(path)
            return header["NAXIS"] == 2 and NAME.fullmatch(str(header["NAME0"]).strip()) is not None
    except UNREADABLE:
        return False


PIPE3D_FITS = SourceFormat(_is_pipe3d, read_pipe3d)
