"""Spectra of fibres as data: those that a cube of ours was made of, or a file of row-stacked spectra like MaNGA's."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.cube.bins import Medium, WavelengthBins
from rubix_like.cube.cube import Cube
from rubix_like.cube.files.fits_manga import FLUX_PER_OURS
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.observed.observed_cube import ObservedCube, check_any_used, choose_voxels
from rubix_like.cube.observed.observed_spectrum import table_bins
from rubix_like.runtime.files.damaged_files import DAMAGED, UNREADABLE
from rubix_like.runtime.files.fits_opening import opened_fits
from rubix_like.runtime.words import reason_of


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
    """Those that a cube was made of; raises ValueError for a cube that holds none."""
    if cube.fibres is None:
        raise ValueError(
            f"{source}: expected a cube that holds the spectra of its fibres, got none of them; observe with "
            f"instrument.fibres, or give the file of the spectra"
        )
    fibres, meta = cube.fibres, cube.meta
    angle = float(meta.get("field_angle") or 0.0)
    place = {name: _number(meta.get(name)) for name in ("ra", "dec")}
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
    place = {name: _number(_first(header, cards)) for name, cards in (("ra", _RA), ("dec", _DEC))}
    of_wave = file["WAVE"].header
    unit = f"{of_wave['BUNIT']}{of_wave.comments['BUNIT']}" if "BUNIT" in of_wave else ""
    medium: Medium = "air" if "air" in unit else "vacuum"
    bins = table_bins(wavelength, medium, path)
    spectra = _spectra(flux / FLUX_PER_OURS, variance, mask != 0, bins, str(path), **place)
    return ObservedFibres(spectra, -x, y)


_RA, _DEC = ("IFURA", "OBJRA"), ("IFUDEC", "OBJDEC")


def _first(header: Any, names: tuple[str, ...]) -> Any:
    return next((header[name] for name in names if name in header), None)


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


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
