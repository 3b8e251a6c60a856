"""Observed cubes from files: ours, those of MUSE, MaNGA and other instruments, and FITS cubes of common form."""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from astropy import units
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.config.quantities import parse_quantity
from rubix_like.cube.bins import Medium, WavelengthBins
from rubix_like.cube.cube import Cube
from rubix_like.cube.fibres.covariance import SpaxelCorrelations
from rubix_like.cube.fibres.fibre_files import read_correlations
from rubix_like.cube.files.default import read_config_table
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.meta import Meta
from rubix_like.cube.observed.axes import Axes, SkyGrid, check_axes, find_axes, pixel_matrix, read_sky
from rubix_like.cube.observed.flux_units import F_LAMBDA, F_NU, flux_factor, in_unit, parse_unit
from rubix_like.cube.observed.observed_cube import (
    NO_VARIANCE,
    ObservedCube,
    check_any_used,
    choose_voxels,
    observed_from,
)
from rubix_like.cube.observed.observed_layouts import (
    KCWI,
    PYPEIT,
    UNKNOWN,
    ErrorKind,
    Parts,
    Survey,
    find_image_parts,
    find_parts,
    image_values,
    label,
    notes_on_sums,
    number_card,
    opened,
    text_card,
)
from rubix_like.cube.observed.wavelengths import SpectralGrid, read_wavelengths
from rubix_like.errors import expect_path
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.outputs import is_store
from rubix_like.runtime.files.writers import LAYOUT_CARD, ORIGIN
from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.words import reason_of

_AIPS = re.compile(r"CLEAN\s+BMAJ=\s*(\S+)\s+BMIN=\s*(\S+)")


def _read_beam(path: Path, hdus: Any, flux: Any, n_wave: int) -> tuple[Float[ndarray, " wave"], tuple[str, ...]]:
    """Solid angle (arcsec2) of the Gaussian beam of each plane of a file, pi BMAJ BMIN / (4 ln 2), and sentences on it:
    by the table BEAMS of CASA, the cards BMAJ1 ... of WSClean, BMAJ and BMIN, or the history of AIPS.

    Raises ValueError where there is none, or another number of beams than planes.
    """
    place, header = label(path, flux), flux.header
    if header.get("CASAMBM") or "BEAMS" in hdus:
        axes, words = _table(place, hdus, n_wave), f"each of the {n_wave} planes has its own beam (BEAMS)"
    elif f"BMAJ{n_wave}" in header and f"BMAJ{n_wave + 1}" not in header:
        axes = np.array(
            [[number_card(header, f"{axis}{n}", 0.0, place) for axis in ("BMAJ", "BMIN")] for n in range(1, n_wave + 1)]
        )
        words = f"each of the {n_wave} planes has its own beam (BMAJ1 ...)"
    else:
        axes, words = np.array([[number_card(header, axis, 0.0, place) for axis in ("BMAJ", "BMIN")]]), ""
        found = _AIPS.search("\n".join(str(line) for line in header.get("HISTORY", [])))
        if not axes.all() and found:
            axes, words = np.array([found.groups()], np.float64), "the beam is that of the history of AIPS"
    if not (np.isfinite(axes).all() and (axes > 0).all()):
        raise ValueError(
            f"{place}: expected the size of the beam (BMAJ and BMIN in deg, or a table BEAMS with each plane's) beside "
            f"a flux per beam, got none; write it into the header, or divide the fluxes by the beam's solid angle and "
            f"give units='Jy/arcsec2' (of a fit: fit.data_units)"
        )
    area = math.pi * axes[:, 0] * axes[:, 1] / (4 * math.log(2)) * 3600.0**2
    return np.broadcast_to(area, (n_wave,)), (Note("data.beam", words),) if words else ()


def _table(place: str, hdus: Any, n_wave: int) -> Float[ndarray, "wave 2"]:
    """Major and minor axes (deg) in CASA's table, in the order of its channels, for the first polarisation."""
    try:
        table = hdus["BEAMS"]
        rows = table.data
        first = rows["POL"] == rows["POL"].min() if "POL" in rows.names else slice(None)
        order = np.argsort(rows["CHAN"][first], kind="stable") if "CHAN" in rows.names else slice(None)
        factors = [in_unit(parse_unit(table.columns[axis].unit or "arcsec"), units.deg) for axis in ("BMAJ", "BMIN")]
        axes = [np.float64(rows[axis][first][order]) for axis in ("BMAJ", "BMIN")]
        found = np.stack(axes, axis=1) * factors
    except UNREADABLE as error:
        raise ValueError(
            f"{place}: expected the beams of its planes (CASAMBM) in a table BEAMS with BMAJ and BMIN, got none; bring "
            f"the planes to one beam (CASA's imsmooth with kind='commonbeam'), or copy the table into the file"
        ) from error
    if len(found) != n_wave:
        raise ValueError(f"{place}: expected a beam for each of {n_wave} planes, got {len(found)} in the table BEAMS")
    return found


_POWERS: dict[ErrorKind, int] = {"variance": 2, "sigma": 1, "inverse variance": -2, "inverse sigma": -1}
"""Power of the flux that the numbers of an error have."""

MEDIA: dict[str, Medium] = {"air": "air", "vacuum": "vacuum"}

_AN_EXAMPLE: str = "units=, such as units='1e-20 erg/s/cm2/Angstrom' (of a fit: fit.data_units)"

_KCWI = units.Unit("1e16 erg / (s cm2 Angstrom)")
"""What kcwidrp writes as BUNIT of fluxes that it has multiplied by 1e16."""

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
        y, x = (slice(None, None, -1 if flip else 1) for flip in (self.sky.flip_y, self.sky.flip_x))
        return self.along_wave(self.axes.ordered(values)[y, x])

    def along_wave(self, values: ndarray) -> ndarray:
        """Values of the file along the wavelengths, the last axis, in ascending order."""
        return values[..., :: -1 if self.spectral.descending else 1]


@named_arguments
def read_observed(
    path: str | Path,
    *,
    medium: str | None = None,
    units: str | None = None,
    pixel_scale: Any = None,
    hdu: str | int | None = None,
) -> ObservedCube:
    """An observed cube from a file of ours (FITS, HDF5), of MUSE, MaNGA and others (docs/observed-cubes.md).

    What a file does not say can be given, and counts where it says something else: `medium` "air" or "vacuum", `units`
    of the flux ("1e-16 erg/s/cm2/Angstrom"), `pixel_scale` in arcsec or with a unit, `hdu` with the fluxes (its name or
    number). Raises FileNotFoundError, or ValueError that names file and HDU for what is no cube of spectra on a grid of
    square spaxels, or has no voxel to be used.
    """
    path = Path(expect_path(path, "path", "the file of a cube")).expanduser()
    if not (path.is_file() or is_store(path)):
        raise FileNotFoundError(f"no such cube: {path}; check the path")
    if not (medium is None or (isinstance(medium, str) and medium in MEDIA)):
        raise ValueError(f"medium: expected 'air' or 'vacuum', got {medium!r}")
    if pixel_scale is not None:
        pixel_scale = parse_quantity(pixel_scale, "arcsec", "pixel_scale")
        if pixel_scale <= 0:
            raise ValueError(f"pixel_scale: expected a size > 0 in arcsec, got {pixel_scale!r}")
    if not (is_store(path) or h5py.is_hdf5(path)):
        with opened(path) as hdus:
            header = hdus[0].header
            is_default = text_card(header, "ORIGIN") == ORIGIN and LAYOUT_CARD not in header
            if not is_default:  # else `Cube.read` reads it
                parts = find_parts(path, hdus, hdu)
                flux, place = parts.flux, label(path, parts.flux)
                axes = find_axes(flux.header, place, has_wave_table=parts.wave is not None)
                check_axes(path, flux, (parts.error, parts.mask), axes)
                spectral = read_wavelengths(path, hdus, parts, axes, None if medium is None else MEDIA[medium])
                grid = Grid(axes, spectral, read_sky(flux.header, axes, place, pixel_scale))
                return _read(path, hdus, parts, grid, units)
    if (medium, units, pixel_scale, hdu) != (None, None, None, None):
        raise ValueError(
            f"{path}: expected neither medium, units, pixel_scale nor hdu for a cube of rubix_like, which says them "
            f"itself, got ({medium}, {units}, {pixel_scale}, {hdu}); leave them out"
        )
    return observed_from(Cube.read(path), str(path))


def read_image(
    path: Path, bins: WavelengthBins, unit: str | None, pixel_scale: float | None, hdu: str | int | None = None
) -> ObservedCube:
    """The image (y, x, 1) in a FITS file: mean flux densities in a band, which stands as the one of `bins`.

    `unit` (such as "3.1e-19 erg/s/cm2/Angstrom", or a flux per Hz, which is converted at the bin's centre),
    `pixel_scale` (arcsec) and `hdu` as for `read_observed`. Raises FileNotFoundError, or ValueError that names file and
    HDU.
    """
    path = path.expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"no such image: {path}; check the path")
    with opened(path) as hdus:
        parts = find_image_parts(path, hdus, hdu)
        header, place = parts.flux.header, label(path, parts.flux)
        kinds = [text_card(header, f"CTYPE{axis}").upper() for axis in (1, 2)]
        celestial = kinds[0].startswith("RA") and kinds[1].startswith("DEC")
        lengths = int(header["NAXIS1"]), int(header["NAXIS2"]), 1
        axes = Axes(1, 2, 3, lengths, celestial, pixel_matrix(header, place))
        check_axes(path, parts.flux, (parts.error, parts.mask), axes)
        sky = read_sky(header, axes, place, pixel_scale)
        return _read(path, hdus, parts, Grid(axes, SpectralGrid(bins, descending=False, notes=()), sky), unit)


def _read(path: Path, hdus: Any, parts: Parts, grid: Grid, unit: str | None) -> ObservedCube:
    flux_unit, unit_notes = _flux_unit(path, parts, unit)
    factor, factor_notes = _factor(path, hdus, parts, flux_unit, grid)
    flux = _voxels(path, parts.flux, parts.flux, grid)
    flux *= factor
    variance, error_notes = _variance(path, parts, grid, flux_unit, factor)
    masked, mask_notes = _masked(path, parts, grid)
    used, counts = choose_voxels(flux, variance, masked)
    correlations, correlation_notes = _correlations(hdus, grid)
    headers = hdus[0].header, parts.flux.header
    names = (text_card(header, card).removesuffix("(DATA)").strip() for header in headers for card in _NAME_CARDS)
    is_ours = text_card(hdus[0].header, "ORIGIN") == ORIGIN and "CONFIG" in hdus
    notes = (
        *notes_on_sums(path, hdus),
        *grid.spectral.notes,
        *grid.sky.notes,
        *unit_notes,
        *factor_notes,
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
        name=next(filter(None, names), path.name.removesuffix(".gz").removesuffix(".fits")),
        source=str(path),
        notes=notes,
        correlations=correlations,
        meta=read_config_table(hdus["CONFIG"])[0] if is_ours else Meta(),
    )


def _voxels(path: Path, hdu: Any, flux: Any, grid: Grid) -> Float[ndarray, "y x wave"]:
    return np.ascontiguousarray(_ordered(path, hdu, image_values(path, hdu), flux, grid), dtype=np.float64)


def _ordered(path: Path, hdu: Any, values: ndarray, flux: Any, grid: Grid) -> ndarray:
    expected = grid.axes.shape
    if [length for length in values.shape if length > 1] != [length for length in expected if length > 1]:
        raise ValueError(f"{label(path, hdu)}: expected shape {expected} as of {flux.name}, got {values.shape}")
    return grid.ordered(values.reshape(expected))


def _flux_unit(path: Path, parts: Parts, given: str | None) -> tuple[units.UnitBase, tuple[str, ...]]:
    header, survey, place = parts.flux.header, parts.survey, label(path, parts.flux)
    text = text_card(header, "BUNIT")
    if given is None and number_card(header, "FSCALE", 1.0, place) != 1.0:
        raise ValueError(
            f"{place}: expected the scale of the fluxes in BUNIT, got FSCALE = {header['FSCALE']} beside BUNIT = "
            f"'{text}'; give {_AN_EXAMPLE}"
        )
    published = survey.unit
    if survey is PYPEIT and not text and header.get("FLUXUNIT", 1) != 1:  # 1: counts
        published = f"{number_card(header, 'FLUXUNIT', 1.0, place)!r} erg/s/cm2/Angstrom/arcsec2"
    if parts.sensitivity is not None:  # the numbers of the flux may be counts
        text = next((unit for unit in (text, text_card(parts.sensitivity.header, "BUNIT")) if _is_flux(unit)), "")
    chosen = given or text or published
    notes = ()
    if given and text:
        notes = (Note("data.overridden", f"fluxes in '{given}' as given; the header says '{text}'"),)
    elif not text and chosen and not given:
        notes = (Note("data.by_survey", f"fluxes in '{chosen}', as {survey.name} has them ({survey.source})"),)
    came = f"units='{given}'" if given else f"BUNIT = '{text}'" if text else "no BUNIT"
    refusal = f"{place}: expected a unit of flux per Angstrom or Hz, got {came}; give {_AN_EXAMPLE}"
    if not chosen:
        raise ValueError(refusal)
    try:
        unit = _meant(parse_unit(chosen), survey if not given else UNKNOWN)
    except (ValueError, TypeError) as error:
        raise ValueError(refusal) from error
    return unit, (*notes, *_unit_notes(chosen, unit, survey))


def _is_flux(text: str) -> bool:
    try:
        return bool(text) and any(
            units.Unit(parse_unit(text) * per).is_equivalent(density)
            for per in (units.dimensionless_unscaled, units.pix, units.sr)
            for density in (F_LAMBDA, F_NU)
        )
    except (ValueError, TypeError):
        return False


def _meant(unit: units.UnitBase, survey: Survey) -> units.UnitBase:
    """The unit that a header means: kcwidrp writes 1e+16 erg/s/cm2/Angstrom for numbers in 1e-16."""
    is_wrong = survey is KCWI and unit.is_equivalent(F_LAMBDA) and math.isclose(in_unit(unit, _KCWI), 1.0)
    return units.Unit(unit * 1e-32) if is_wrong else unit


def _unit_notes(text: str, unit: units.UnitBase, survey: Survey) -> tuple[str, ...]:
    """Sentences on a unit that is not as it is written, or hardly can be."""
    if parse_unit(text) != unit:
        words = f"fluxes in '{unit}': {survey.name}'s '{text}' is written so for it ({survey.source})"
        return (Note("data.by_survey", words),)
    if np.real(unit.scale) > 1:
        words = f"fluxes in '{text}', a factor above 1: if 1e-N is meant, they are far too bright; give {_AN_EXAMPLE}"
        return (Note("data.flux_unit", words, WARNING),)
    if re.search("fib(er|re)", text, re.IGNORECASE):
        return (Note("data.fibre_area", f"fluxes in '{text}': the area of a fibre is taken as that of a spaxel"),)
    return ()


def _factor(
    path: Path, hdus: Any, parts: Parts, unit: units.UnitBase, grid: Grid
) -> tuple[Float[ndarray, "*spaxel wave"], tuple[str, ...]]:
    beam, notes = None, ()
    if units.beam in unit.bases:
        beam, notes = _read_beam(path, hdus, parts.flux, grid.bins.n_wave)
        beam = grid.along_wave(beam)
    try:
        factor = flux_factor(unit, grid.bins, grid.sky.pixel_scale, beam)
    except ValueError as error:
        raise ValueError(
            f"{label(path, parts.flux)}: expected a flux density or surface brightness, but {error}; give {_AN_EXAMPLE}"
        ) from error
    if parts.sensitivity is None:
        return factor, notes
    values = np.squeeze(image_values(path, parts.sensitivity).astype(np.float64))
    if values.shape == (grid.bins.n_wave,):
        sensitivity = grid.along_wave(values)
    else:
        sensitivity = _voxels(path, parts.sensitivity, parts.flux, grid)
    return factor * sensitivity, (*notes, Note("data.sensitivity", f"fluxes times {parts.sensitivity.name}"))


def _variance(
    path: Path, parts: Parts, grid: Grid, flux_unit: units.UnitBase, factor: Float[ndarray, "*spaxel wave"]
) -> tuple[Float[ndarray, "y x wave"] | None, tuple[str, ...]]:
    if parts.error is None:
        return None, (NO_VARIANCE,)
    values = _voxels(path, parts.error, parts.flux, grid)
    ratio, notes = _error_scale(parts, flux_unit)
    power = _POWERS[parts.error_kind]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        values[~(values > 0)] = np.nan
        values *= ratio
        np.power(values, 2 / power, out=values)
        values *= factor**2
    return values, notes


def _error_scale(parts: Parts, flux_unit: units.UnitBase) -> tuple[float, tuple[str, ...]]:
    """The factor from the error's numbers to the power of the flux's unit that they should have, by their BUNIT.

    They belong to the unit that the header gives the fluxes, even where another was chosen."""
    error: Any = parts.error
    text, power = text_card(error.header, "BUNIT"), _POWERS[parts.error_kind]
    if not text:
        return 1.0, ()
    of_error, of_flux = (_stated_unit(hdu, parts.survey) for hdu in (error, parts.flux))
    expected = (of_flux or flux_unit) ** power
    if of_error is not None and of_error.is_equivalent(expected):
        return in_unit(of_error, expected), ()
    words = f"{error.name} says BUNIT = '{text}'; it is read as the flux's unit to the power {power}"
    return 1.0, (Note("data.error_unit", words, WARNING),)


def _stated_unit(hdu: Any, survey: Survey) -> units.UnitBase | None:
    text = text_card(hdu.header, "BUNIT")
    try:
        return _meant(parse_unit(text), survey) if text else None
    except (ValueError, TypeError):
        return None


def _masked(path: Path, parts: Parts, grid: Grid) -> tuple[dict[str, Bool[ndarray, "y x wave"]], tuple[str, ...]]:
    if parts.mask is None:
        return {}, ()
    name, values = parts.mask.name, image_values(path, parts.mask)
    if values.ndim == 2 and grid.axes.kept[0] == grid.axes.wave:
        values = np.broadcast_to(values, (grid.bins.n_wave, *values.shape))
    values = _ordered(path, parts.mask, values, parts.flux, grid)
    bits = parts.survey.bad_bits
    if bits is None or values.dtype.kind not in "iu":
        return {f"{name} not 0": values != 0}, ()
    bad = (values.astype(np.int64) & bits) != 0
    n_other = int(np.count_nonzero((values != 0) & ~bad))
    note = Note(
        "data.mask_bits", f"{name}: {n_other} voxels with other bits than {bits:#x} are used ({parts.survey.source})"
    )
    return {f"bits {bits:#x} of {name}": bad}, (note,) if n_other else ()


def _correlations(hdus: Any, grid: Grid) -> tuple[SpaxelCorrelations | None, tuple[str, ...]]:
    """Correlations of the spaxels as files of MaNGA and SAMI have them, and a sentence where they cannot be read."""
    if grid.axes.wave != 3:
        return None, ()
    shape = grid.axes.lengths[1], grid.axes.lengths[0]
    wavelength = grid.along_wave(grid.bins.wavelength)
    try:
        found = read_correlations(hdus, wavelength, shape)
    except (KeyError, TypeError, ValueError) as error:
        words = f"its correlations of spaxels are not read: {reason_of(error)}"
        return None, (Note("data.correlations", words, WARNING),)
    if found is None:
        return None, ()
    number = grid.ordered(np.arange(shape[0] * shape[1]).reshape(1, *shape))[:, :, 0]
    return found.renumbered(number.ravel(), number.shape), ()
