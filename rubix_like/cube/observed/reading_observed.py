"""Observed cubes from files: our own, those of MUSE, MaNGA and other instruments, and FITS cubes of common form."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from astropy import units
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.config.quantities import parse_quantity
from rubix_like.cube.bins import Medium, WavelengthBins
from rubix_like.cube.cube import Cube
from rubix_like.cube.fibres.reading_correlations import read_correlations
from rubix_like.cube.fibres.spaxel_correlations import SpaxelCorrelations
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.observed.axes import Axes, find_axes
from rubix_like.cube.observed.flux_units import flux_factor, in_unit, parse_unit
from rubix_like.cube.observed.observed_cube import (
    NO_VARIANCE,
    ObservedCube,
    check_any_used,
    choose_voxels,
    observed_from,
)
from rubix_like.cube.observed.observed_layouts import ErrorKind, Parts, Survey, find_parts
from rubix_like.cube.observed.opening_observed import image_values, label, notes_on_sums, number_card, opened, text_card
from rubix_like.cube.observed.sky_axes import SkyGrid, read_sky
from rubix_like.cube.observed.wavelengths import SpectralGrid, read_wavelengths
from rubix_like.errors import expect, expect_path
from rubix_like.runtime.files.outputs import is_store
from rubix_like.runtime.files.writers import LAYOUT_CARD, ORIGIN
from rubix_like.runtime.words import reason_of

_POWERS: dict[ErrorKind, int] = {"variance": 2, "sigma": 1, "inverse variance": -2, "inverse sigma": -1}
"""Power of the flux that the numbers of an error have."""

MEDIA: dict[str, Medium] = {"air": "air", "vacuum": "vacuum"}

_AN_EXAMPLE: str = "units=, such as units='1e-20 erg/s/cm2/Angstrom' (of a fit: fit.data_units)"

_NAME_CARDS: tuple[str, ...] = ("OBJECT", "MANGAID", "NAME")


@dataclass(frozen=True)
class Grid:
    """The axes of a cube, and how its array is brought into our order."""

    axes: Axes
    spectral: SpectralGrid
    sky: SkyGrid

    @property
    def bins(self) -> WavelengthBins:
        """The cube's wavelength bins, ascending."""
        return self.spectral.bins

    def ordered(self, values: ndarray) -> ndarray:
        """An image of the file as (y, x, wave): South to North, East to West, ascending wavelengths."""
        turned = values.transpose(self.axes.numpy_order)
        y, x = (slice(None, None, -1 if flip else 1) for flip in (self.sky.flip_y, self.sky.flip_x))
        return turned[y, x, :: -1 if self.spectral.descending else 1]


def read_observed(
    path: str | Path,
    *,
    medium: str | None = None,
    units: str | None = None,
    pixel_scale: Any = None,
) -> ObservedCube:
    """An observed cube from a file of ours (FITS, HDF5), of MUSE, MaNGA and others (docs/observed-cubes.md).

    What a file does not say can be given, and counts where it says something else: `medium` "air" or "vacuum", `units`
    of the flux ("1e-16 erg/s/cm2/Angstrom"), `pixel_scale` in arcsec or with a unit. Raises FileNotFoundError, or
    ValueError that names file and HDU for what is no cube of spectra on an even grid of square spaxels, or has no voxel
    to be used.
    """
    path = Path(expect_path(path, "path", "the file of a cube")).expanduser()
    if not (path.is_file() or is_store(path)):
        raise FileNotFoundError(f"no such cube: {path}; check the path")
    if not (medium is None or (isinstance(medium, str) and medium in MEDIA)):
        raise ValueError(f"medium: expected 'air' or 'vacuum', got {medium!r}")
    expect(units, (str, type(None)), "units", "the text of a unit, e.g. '1e-16 erg/s/cm2/Angstrom'")
    if pixel_scale is not None:
        try:
            pixel_scale = parse_quantity(pixel_scale, "arcsec")
        except ValueError as error:
            raise ValueError(f"pixel_scale: {error}") from error
        if pixel_scale <= 0:
            raise ValueError(f"pixel_scale: expected a size > 0 in arcsec, got {pixel_scale!r}")
    if not (is_store(path) or h5py.is_hdf5(path)):
        with opened(path) as hdus:
            if not _is_ours(hdus[0].header):
                return _read(path, hdus, None if medium is None else MEDIA[medium], units, pixel_scale)
    if (medium, units, pixel_scale) != (None, None, None):
        raise ValueError(
            f"{path}: expected neither medium, units nor pixel_scale for a cube of rubix_like, which says them itself, "
            f"got ({medium}, {units}, {pixel_scale}); leave them out"
        )
    return observed_from(Cube.read(path), str(path))


def _is_ours(header: Any) -> bool:
    """Whether `Cube.read` is to read a FITS file: it is ours, in the layout 'default'."""
    return text_card(header, "ORIGIN") == ORIGIN and LAYOUT_CARD not in header


def _read(path: Path, hdus: Any, medium: Medium | None, unit: str | None, pixel_scale: float | None) -> ObservedCube:
    parts = find_parts(path, hdus)
    grid = _read_grid(path, parts, medium, pixel_scale)
    flux_unit, unit_notes = _flux_unit(path, parts.flux, parts.survey, unit)
    factor = _factor(path, parts.flux, flux_unit, grid)
    flux = _voxels(path, parts.flux, parts.flux, grid)
    flux *= factor
    variance, error_notes = _variance(path, parts, grid, flux_unit, factor)
    masked, mask_notes = _masked(path, parts, grid)
    used, counts = choose_voxels(flux, variance, masked)
    correlations, correlation_notes = _correlations(hdus, parts, grid)
    notes = (
        *notes_on_sums(path, hdus),
        *grid.spectral.notes,
        *grid.sky.notes,
        *unit_notes,
        *error_notes,
        *mask_notes,
        *correlation_notes,
        *counts,
    )
    check_any_used(used, str(path), notes)
    return ObservedCube(
        flux=flux,
        variance=variance,
        used=used,
        bins=grid.bins,
        footprint=Footprint.of(flux.shape, grid.sky.pixel_scale),
        field_angle=grid.sky.field_angle,
        ra=grid.sky.ra,
        dec=grid.sky.dec,
        name=_object_name(hdus, parts.flux, path),
        source=str(path),
        notes=notes,
        correlations=correlations,
    )


def _read_grid(path: Path, parts: Parts, medium: Medium | None, pixel_scale: float | None) -> Grid:
    header, place = parts.flux.header, label(path, parts.flux)
    axes = find_axes(header, place, has_wave_table=parts.wave is not None)
    n_x, n_y = (int(header[f"NAXIS{axis}"]) for axis in (axes.x, axes.y))
    return Grid(
        axes,
        read_wavelengths(path, parts.flux, parts.wave, axes, parts.survey, medium),
        read_sky(header, axes, (n_x, n_y), place, pixel_scale),
    )


def _voxels(path: Path, hdu: Any, flux: Any, grid: Grid) -> Float[ndarray, "y x wave"]:
    """The numbers of an image in float64 and our order; raises ValueError where it has not the shape of the fluxes."""
    values = image_values(path, hdu)
    _check_shape(path, hdu, values, flux)
    return np.ascontiguousarray(grid.ordered(values), dtype=np.float64)


def _check_shape(path: Path, hdu: Any, values: ndarray, flux: Any) -> None:
    expected = tuple(int(flux.header[f"NAXIS{axis}"]) for axis in (3, 2, 1))
    if values.shape != expected:
        raise ValueError(f"{label(path, hdu)}: expected shape {expected} as of {flux.name}, got {values.shape}")


def _flux_unit(path: Path, flux: Any, survey: Survey, given: str | None) -> tuple[units.UnitBase, tuple[str, ...]]:
    """The unit of the fluxes: as given, else BUNIT, else as published of the instrument's files."""
    text, place = text_card(flux.header, "BUNIT"), label(path, flux)
    if given is None and number_card(flux.header, "FSCALE", 1.0, place) != 1.0:
        raise ValueError(
            f"{place}: expected the scale of the fluxes in BUNIT, got FSCALE = {flux.header['FSCALE']} beside BUNIT = "
            f"'{text}'; give {_AN_EXAMPLE}"
        )
    chosen = given or text or survey.unit
    notes = ()
    if given and text:
        notes = (f"fluxes in '{given}' as given; the header says '{text}'",)
    elif not text and chosen and not given:
        notes = (f"fluxes in '{chosen}', as {survey.name} has them ({survey.source})",)
    came = f"units='{given}'" if given else f"BUNIT = '{text}'" if text else "no BUNIT"
    refusal = f"{place}: expected a unit of flux per Angstrom or Hz, got {came}; give {_AN_EXAMPLE}"
    if not chosen:
        raise ValueError(refusal)
    try:
        return parse_unit(chosen), notes
    except (ValueError, TypeError) as error:
        raise ValueError(refusal) from error


def _factor(path: Path, flux: Any, unit: units.UnitBase, grid: Grid) -> Float[ndarray, " wave"]:
    try:
        return flux_factor(unit, grid.bins, grid.sky.pixel_scale, _beam(path, flux))
    except ValueError as error:
        raise ValueError(
            f"{label(path, flux)}: expected a flux density or surface brightness, but {error}; give {_AN_EXAMPLE}"
        ) from error


def _beam(path: Path, flux: Any) -> float | None:
    """Solid angle (arcsec2) of the Gaussian beam of the header, pi BMAJ BMIN / (4 ln 2); None without one."""
    place = label(path, flux)
    major, minor = (number_card(flux.header, card, 0.0, place) for card in ("BMAJ", "BMIN"))
    if not (major > 0 and minor > 0):
        return None
    return math.pi * major * minor / (4 * math.log(2)) * 3600.0**2


def _variance(
    path: Path, parts: Parts, grid: Grid, flux_unit: units.UnitBase, factor: Float[ndarray, " wave"]
) -> tuple[Float[ndarray, "y x wave"] | None, tuple[str, ...]]:
    """The variance in our unit, and sentences on what was taken to be so; None where the file has no errors."""
    if parts.error is None:
        return None, (NO_VARIANCE,)
    values = _voxels(path, parts.error, parts.flux, grid)
    ratio, notes = _error_scale(parts.error, parts.error_kind, _stated_unit(parts.flux, flux_unit))
    power = _POWERS[parts.error_kind]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        values[~(values > 0)] = np.nan
        values *= ratio
        np.power(values, 2 / power, out=values)
        values *= factor**2
    return values, notes


def _stated_unit(flux: Any, chosen: units.UnitBase) -> units.UnitBase:
    """The unit that the header gives the fluxes, to which that of the errors belongs even where another was chosen."""
    text = text_card(flux.header, "BUNIT")
    try:
        return parse_unit(text) if text else chosen
    except (ValueError, TypeError):
        return chosen


def _error_scale(error: Any, kind: ErrorKind, flux_unit: units.UnitBase) -> tuple[float, tuple[str, ...]]:
    """What turns the error's numbers into the power of the flux's unit that they should have, by their BUNIT."""
    text, power = text_card(error.header, "BUNIT"), _POWERS[kind]
    if not text:
        return 1.0, ()
    try:
        own = parse_unit(text)
    except (ValueError, TypeError):
        own = None
    expected = flux_unit**power
    if own is not None and own.is_equivalent(expected):
        return in_unit(own, expected), ()
    return 1.0, (f"{error.name} says BUNIT = '{text}'; it is read as the flux's unit to the power {power}",)


def _masked(path: Path, parts: Parts, grid: Grid) -> tuple[dict[str, Bool[ndarray, "y x wave"]], tuple[str, ...]]:
    """Voxels that the file's mask leaves out, and sentences on which of its bits do not."""
    if parts.mask is None:
        return {}, ()
    name, values = parts.mask.name, image_values(path, parts.mask)
    if values.ndim == 2 and grid.axes.wave == 3:
        n_wave = grid.bins.n_wave
        values = np.broadcast_to(values, (n_wave, *values.shape))
    _check_shape(path, parts.mask, values, parts.flux)
    values = grid.ordered(values)
    bits = parts.survey.bad_bits
    if bits is None or values.dtype.kind not in "iu":
        return {f"{name} not 0": values != 0}, ()
    bad = (values.astype(np.int64) & bits) != 0
    n_other = int(np.count_nonzero((values != 0) & ~bad))
    note = f"{name}: {n_other} voxels with other bits than {bits:#x} are used ({parts.survey.source})"
    return {f"bits {bits:#x} of {name}": bad}, (note,) if n_other else ()


def _correlations(hdus: Any, parts: Parts, grid: Grid) -> tuple[SpaxelCorrelations | None, tuple[str, ...]]:
    """Correlations of the spaxels as files of MaNGA and SAMI have them, and a sentence where they cannot be read."""
    if grid.axes.wave != 3:
        return None, ()
    shape = int(parts.flux.header["NAXIS2"]), int(parts.flux.header["NAXIS1"])
    wavelength = grid.bins.wavelength[:: -1 if grid.spectral.descending else 1]
    try:
        found = read_correlations(hdus, wavelength, shape)
    except (KeyError, TypeError, ValueError) as error:
        return None, (f"its correlations of spaxels are not read: {reason_of(error)}",)
    if found is None:
        return None, ()
    number = grid.ordered(np.arange(shape[0] * shape[1]).reshape(1, *shape))[:, :, 0]
    return found.renumbered(number.ravel(), number.shape), ()


def _object_name(hdus: Any, flux: Any, path: Path) -> str:
    """The object's name by the headers, else that of the file."""
    for header in (hdus[0].header, flux.header):
        for card in _NAME_CARDS:
            name = text_card(header, card).removesuffix("(DATA)").strip()
            if name:
                return name
    return path.name.removesuffix(".gz").removesuffix(".fits")
