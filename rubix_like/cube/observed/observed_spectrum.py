"""Single spectra from tables, as observed cubes of one spaxel."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from astropy import units
from astropy.table import Table
from jaxtyping import Float
from numpy import ndarray

from rubix_like.cube.bins import SAME_BINS, Medium, Sampling, WavelengthBins
from rubix_like.cube.cube import Cube
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.observed.flux_units import flux_factor, in_unit, parse_unit
from rubix_like.cube.observed.observed_cube import NO_VARIANCE, ObservedCube, check_any_used, choose_voxels, number_of
from rubix_like.cube.survey_files.survey_cubes import FLUX_PER_OURS
from rubix_like.runtime.files.damaged_files import DAMAGED, UNREADABLE
from rubix_like.runtime.files.fits_opening import opened_fits
from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.words import reason_of

_WAVELENGTHS = ("wavelength", "wave", "lambda", "loglam")
_FLUXES = ("flux", "flux_density", "spectrum")
_ERRORS = {"sigma": 1, "error": 1, "err": 1, "flux_error": 1, "uncertainty": 1, "variance": 2, "ivar": -2}
"""Name of a column -> the power of the flux that its numbers are."""

_PER_SPAXEL = 1.0


def read_spectrum(path: Path, medium: str | None, unit: str | None) -> ObservedCube:
    """The spectrum (1, 1, wave) in a table of astropy's (FITS, ECSV, text with names of columns).

    Columns: wavelength (or wave, lambda; loglam: its log10) in Angstrom unless it has a unit, flux, and one of sigma,
    error, variance, ivar. Wavelengths are even in themselves or their logarithm, in `medium` (air where None). `unit`
    of the fluxes counts where the table says something else. Raises FileNotFoundError, or ValueError that names the
    file.
    """
    path = path.expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"no such spectrum: {path}; check the path")
    table = _table(path)
    known: Medium = "vacuum" if medium == "vacuum" else "air"
    bins = table_bins(_wavelength(path, table), known, path)
    flux, text = _column(path, table, _FLUXES)
    text = unit or text
    if not text:
        raise ValueError(f"{path}: expected a unit of the fluxes, got none; give units")
    try:
        factor = flux_factor(parse_unit(text), bins, _PER_SPAXEL)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: expected a flux density per Angstrom or Hz, got '{text}'; give units") from error
    variance, error = None, next((name for name in _ERRORS if name in table.colnames), None)
    if error is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            numbers = _numbers(table[error])
            numbers = np.where(numbers > 0, numbers, np.nan) ** (2 / _ERRORS[error])
        variance = (numbers * factor**2)[None, None]
    values = (flux * factor)[None, None]
    used, counts = choose_voxels(values, variance, {})
    notes = (*counts, *(() if variance is not None else (NO_VARIANCE,)))
    if not medium:
        notes = (Note("data.medium", f"wavelengths are taken to be in {known}; medium says otherwise", WARNING), *notes)
    check_any_used(used, str(path), notes)
    return ObservedCube(
        flux=values,
        variance=variance,
        used=used,
        bins=bins,
        footprint=Footprint(1, 1, _PER_SPAXEL),
        name=path.stem,
        source=str(path),
        notes=notes,
    )


def _table(path: Path) -> Any:
    try:
        fits = path.name.lower().endswith((".fits", ".fit", ".fits.gz"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", units.UnitsWarning)  # units are parsed here
            table = Table.read(path, format="fits" if fits else None if path.suffix == ".ecsv" else "ascii")
    except (*UNREADABLE, units.UnitsError) as error:
        raise ValueError(f"{path}: expected a table with a spectrum, got none ({reason_of(error)})") from error
    for name in list(table.colnames):
        if name != name.lower():
            table.rename_column(name, name.lower())
    return table


def _column(path: Path, table: Any, names: tuple[str, ...]) -> tuple[Float[ndarray, " wave"], str]:
    name = next((name for name in names if name in table.colnames), None)
    if name is None:
        raise ValueError(f"{path}: expected a column {' or '.join(names)}, got {', '.join(table.colnames)}")
    return _numbers(table[name]), str(table[name].unit or "")


def _numbers(column: Any) -> Float[ndarray, " wave"]:
    return np.ma.filled(np.ma.asarray(np.asanyarray(column), np.float64), np.nan)


def _wavelength(path: Path, table: Any) -> Float[ndarray, " wave"]:
    wavelength, unit = _column(path, table, _WAVELENGTHS)
    if "loglam" in table.colnames and not any(name in table.colnames for name in _WAVELENGTHS[:3]):
        return 10.0**wavelength
    try:
        return wavelength * (in_unit(parse_unit(unit), units.Angstrom) if unit else 1.0)
    except (ValueError, TypeError, units.UnitConversionError) as error:
        raise ValueError(f"{path}: expected wavelengths as a length, got '{unit}'") from error


def table_bins(wavelength: Float[ndarray, " wave"], medium: Medium, path: Path) -> WavelengthBins:
    """The bins with these centres: even ones where they are, else from half way to half way between them."""
    if len(wavelength) > 1 and np.isfinite(wavelength).all() and (np.diff(wavelength) > 0).all() and wavelength[0] > 0:
        ends, count = wavelength[[0, -1]], len(wavelength)
        steps = (float(np.diff(pair)[0]) / (count - 1) for pair in (ends, np.log10(ends)))
        samplings: tuple[Sampling, ...] = ("linear", "log")
        for sampling, step in zip(samplings, steps, strict=True):
            found = WavelengthBins(float(wavelength[0]), step, count, sampling, medium)
            if found.offset(wavelength) < 10 * SAME_BINS:
                return found
    try:
        return WavelengthBins.around(wavelength, medium)
    except ValueError as error:
        raise ValueError(f"{path}: {error}; fill the gap with bins that are masked, or cut the spectrum") from error


@dataclass(frozen=True, eq=False)
class ObservedFibres:
    """Spectra of fibres, exposure after exposure.

    | field | shape | |
    |---|---|---|
    | spectra | (fibre, 1, wave) | flux per fibre and its variance, as a column of spaxels |
    | east, north | (fibre, wave) | arcsec on the sky from the middle of the field: where a fibre sees each bin |
    """

    spectra: ObservedCube
    east: Float[ndarray, "fibre wave"]
    north: Float[ndarray, "fibre wave"]


def fibres_from(cube: Cube, source: str) -> ObservedFibres:
    """The spectra that a cube was made of; raises ValueError for a cube that holds none."""
    if cube.fibres is None:
        raise ValueError(
            f"{source}: expected a cube that holds the spectra of its fibres, got none of them; observe with "
            f"instrument.fibres, or give the file of the spectra"
        )
    fibres, meta = cube.fibres, cube.meta
    angle = float(meta.get("field_angle") or 0.0)
    place = {name: number_of(meta.get(name)) for name in ("ra", "dec")}
    variance = None if fibres.variance is None else np.array(fibres.variance, dtype=np.float64)
    flux = np.array(fibres.flux, dtype=np.float64)
    spectra = _spectra(flux, variance, ~fibres.usable, cube.bins, source, field_angle=angle, meta=meta, **place)
    return ObservedFibres(spectra, *fibres.places.on_sky_at(angle, flux.shape[1]))


def read_fibres(path: Path) -> ObservedFibres:
    """A file of row-stacked spectra in MaNGA's layout (LOGRSS, LINRSS): FLUX, IVAR, MASK, WAVE, XPOS, YPOS.

    Places are those of each wavelength; spectra with any bit of the mask are not used. Raises FileNotFoundError or
    ValueError for what cannot be read.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a file of row-stacked spectra, found none")
    try:
        with opened_fits(path) as file:
            return _from_manga(file, path)
    except (KeyError, *UNREADABLE) as error:
        raise ValueError(
            f"{path}: expected row-stacked spectra as MaNGA writes them (FLUX, IVAR, MASK, WAVE, XPOS, YPOS), got "
            f"{reason_of(error)}"
        ) from error


def _from_manga(file: Any, path: Path) -> ObservedFibres:
    names = ("FLUX", "IVAR", "MASK", "XPOS", "YPOS")
    flux, ivar, mask, x, y = (np.asarray(file[name].data, np.float64) for name in names)
    wavelength = np.asarray(file["WAVE"].data, np.float64)
    shapes = {array.shape for array in (flux, ivar, mask, x, y)}
    if shapes != {(len(flux), len(wavelength))}:
        raise ValueError(f"{path}: expected FLUX, IVAR, MASK, XPOS and YPOS of one shape (fibre, wave), got {shapes}")
    if not np.isfinite([x, y]).all():
        raise ValueError(f"{path}: expected finite places (XPOS, YPOS) of all spectra, got others; {DAMAGED}")
    good = np.isfinite(ivar) & (ivar > 0)
    variance = np.where(good, 1 / np.where(good, ivar, 1.0), np.nan) / FLUX_PER_OURS**2
    header = file[0].header
    place = {
        name: number_of(next((header[name] for name in cards if name in header), None))
        for name, cards in (("ra", _RA), ("dec", _DEC))
    }
    of_wave = file["WAVE"].header
    wavelength_text = f"{of_wave['BUNIT']}{of_wave.comments['BUNIT']}" if "BUNIT" in of_wave else ""
    medium: Medium = "air" if "air" in wavelength_text else "vacuum"
    bins = table_bins(wavelength, medium, path)
    spectra = _spectra(flux / FLUX_PER_OURS, variance, mask != 0, bins, str(path), **place)
    return ObservedFibres(spectra, -x, y)


_RA, _DEC = ("IFURA", "OBJRA"), ("IFUDEC", "OBJDEC")


def _spectra(
    flux: Float[ndarray, "fibre wave"],
    variance: Float[ndarray, "fibre wave"] | None,
    masked: ndarray,
    bins: WavelengthBins,
    source: str,
    **place: Any,
) -> ObservedCube:
    column: dict[str, Any] = {"flux": flux[:, None], "variance": None if variance is None else variance[:, None]}
    used, notes = choose_voxels(column["flux"], column["variance"], {"masked": masked[:, None]})
    check_any_used(used, source, notes)
    known = place.get("ra") is not None and place.get("dec") is not None
    place |= {} if known else {"ra": None, "dec": None}
    axes = {"bins": bins, "footprint": Footprint(len(flux), 1, 1.0)}
    return ObservedCube(**column, **axes, used=used, source=source, notes=notes, **place)
