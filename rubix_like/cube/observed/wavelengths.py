"""The wavelengths of a cube in a FITS file as bins in Angstrom: even ones where they are, else those of a table."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from astropy import units
from jaxtyping import Float
from numpy import ndarray

from rubix_like.cube.bins import Medium, Sampling, WavelengthBins
from rubix_like.cube.observed.axes import Axes
from rubix_like.cube.observed.flux_units import in_unit, parse_unit
from rubix_like.cube.observed.observed_layouts import Survey
from rubix_like.cube.observed.opening_observed import image_values, is_image, label, number_card, text_card
from rubix_like.cube.observed.velocity_axes import is_velocity, wavelengths_of
from rubix_like.cube.observed.wave_tables import is_tabulated, tabulated_nodes
from rubix_like.runtime.files.damaged_files import UNREADABLE

EVEN_TOLERANCE: float = 5e-3
"""Largest distance of a bin from an even grid, in bins: what wavelengths in float32 need."""

PLAUSIBLE: tuple[float, float] = (100.0, 1e7)
"""Angstrom: what is beyond is no wavelength of a spectrograph but a wrong unit, or a logarithm."""

OPTICAL: tuple[float, float] = (3000.0, 30000.0)
"""Numbers without a unit that can only be Angstrom: in nm or m they would be no spectrograph's."""

_COLUMNS: tuple[str, ...] = ("WAVE", "WAVELENGTH", "LAMBDA", "LAM")


@dataclass(frozen=True)
class SpectralGrid:
    """The bins, and whether the file has them in descending order."""

    bins: WavelengthBins
    descending: bool
    notes: tuple[str, ...]


def read_wavelengths(
    path: Path, flux: Any, wave: Any | None, axes: Axes, survey: Survey, medium: Medium | None
) -> SpectralGrid:
    """The bins of the cube: from the HDU of wavelengths where there is one, else from the header of the fluxes.

    `medium` as the user gives it, or None. Raises ValueError for wavelengths out of order or with gaps, unknown units
    and an unknown medium.
    """
    place, n_wave = label(path, flux), int(flux.header[f"NAXIS{axes.wave}"])
    chosen, notes = find_medium(flux.header, axes.wave, survey, medium, place)
    if wave is not None and is_tabulated(flux.header, axes.wave):
        return _of_table(path, flux, wave, axes, chosen, notes)
    by_header, step, more = _header_wavelengths(flux.header, axes, n_wave, place)
    if wave is None:
        if by_header is None:
            raise ValueError(
                f"{place}: expected the wavelengths (cards CRVAL{axes.wave} and CDELT{axes.wave} or "
                f"CD{axes.wave}_{axes.wave}, or an HDU WAVE), got none"
            )
        wavelength, notes = by_header, (*notes, *more)
    else:
        place = label(path, wave)
        wavelength, more = _table_wavelengths(path, wave, flux.header, axes.wave, n_wave)
        notes = (*notes, *more, *_disagreement(wavelength, by_header, place))
    kind = text_card(flux.header, f"CTYPE{axes.wave}").upper()
    if not is_velocity(kind):
        _check_plausible(wavelength, place)
    descending = bool(n_wave > 1 and wavelength[-1] < wavelength[0])
    logarithmic = kind.endswith("-LOG") or is_velocity(kind)
    bins, more = fitted_bins(wavelength[::-1] if descending else wavelength, chosen, logarithmic, place, step)
    return SpectralGrid(bins, descending, (*notes, *more))


def _of_table(path: Path, flux: Any, table: Any, axes: Axes, medium: Medium, notes: tuple[str, ...]) -> SpectralGrid:
    """The bins of CTYPE = WAVE-TAB: pixels begin and end where the table is half a pixel from their centres."""
    place = label(path, table)
    nodes = tabulated_nodes(path, table, flux.header, axes, int(flux.header[f"NAXIS{axes.wave}"]))
    unit, more = _angstrom(text_card(flux.header, f"CUNIT{axes.wave}"), nodes, place, f"CUNIT{axes.wave}")
    nodes = nodes * unit
    _check_plausible(nodes, place)
    descending = bool(nodes[-1] < nodes[0])
    nodes = nodes[::-1] if descending else nodes
    try:
        return SpectralGrid(WavelengthBins.of_table(nodes[1::2], nodes[::2], medium), descending, (*notes, *more))
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def find_medium(
    header: Any, axis: int, survey: Survey, given: Medium | None, place: str
) -> tuple[Medium, tuple[str, ...]]:
    """Air or vacuum: as given, else by CTYPE (AWAV, WAVE), else by what is published of the instrument's files."""
    kind = text_card(header, f"CTYPE{axis}").upper()
    stated: Medium | None = "air" if kind.startswith("AWAV") else None
    if kind == "WAVE" or kind.startswith("WAVE-") or is_velocity(kind):
        stated = "vacuum"
    if given is not None:
        differs = stated is not None and stated != given
        return given, (f"wavelengths in {given} as given; the header says {stated}",) if differs else ()
    if stated is not None:
        return stated, ()
    if survey.medium is not None:
        return survey.medium, (f"wavelengths in {survey.medium}, as {survey.name} has them ({survey.source})",)
    raise ValueError(
        f"{place}: expected CTYPE{axis} to say whether wavelengths are in air (AWAV) or vacuum (WAVE), got '{kind}'; "
        f"give medium='air' or medium='vacuum' (of a fit: fit.data_medium)"
    )


def fitted_bins(
    wavelength: Float[ndarray, " wave"], medium: Medium, logarithmic: bool, place: str, step: float = 0.0
) -> tuple[WavelengthBins, tuple[str, ...]]:
    """The grid through ascending wavelengths: linear or logarithmic where they are, else a table; notes on it.

    `logarithmic`: to be tried first. `step`: width of a single bin in Angstrom. Raises ValueError for wavelengths out
    of order, and for gaps.
    """
    count = len(wavelength)
    if count == 1:
        if not step > 0:
            raise ValueError(f"{place}: expected the width of the single bin (CD3_3 or CDELT3), got {step}")
        return WavelengthBins(float(wavelength[0]), step, 1, "linear", medium), ()
    if np.any(np.diff(wavelength) <= 0):
        raise ValueError(f"{place}: expected wavelengths in order, got some that are equal or out of it")
    kinds: tuple[Sampling, Sampling] = ("log", "linear") if logarithmic else ("linear", "log")
    for sampling in kinds:
        bins = _fitted(wavelength, medium, sampling)
        if bins.offset(wavelength) < EVEN_TOLERANCE:
            return bins, ()
    try:
        bins = WavelengthBins.around(wavelength, medium)
    except ValueError as error:
        raise ValueError(f"{place}: {error}; fill the gap with bins that are masked, or cut the cube there") from error
    return bins, (f"uneven wavelengths: bins from {bins.edges[0]:.6g} Angstrom end half way between their centres",)


def _fitted(wavelength: Float[ndarray, " wave"], medium: Medium, sampling: Sampling) -> WavelengthBins:
    """The even grid that fits best; its ends are those given to a few digits of float64 where they are even."""
    count = len(wavelength)
    values = np.log10(wavelength) if sampling == "log" else wavelength
    step = float(values[-1] - values[0]) / (count - 1)
    residual = values - (values[0] + step * np.arange(count))
    centred = np.arange(count) - (count - 1) / 2
    slope = float(centred @ residual / (centred @ centred))
    first = float(values[0] + np.mean(residual) - slope * (count - 1) / 2)
    return WavelengthBins(10.0**first if sampling == "log" else first, step + slope, count, sampling, medium)


def _header_wavelengths(
    header: Any, axes: Axes, n_wave: int, place: str
) -> tuple[Float[ndarray, " wave"] | None, float, tuple[str, ...]]:
    """Wavelengths by the FITS cards (None where there are none) and the width of the last bin, in Angstrom; notes.

    Linear: CRVAL + CD (p - CRPIX); log: CRVAL exp(CD (p - CRPIX) / CRVAL) (Greisen et al. 2006, A&A 446, 747, eq. 5).
    """
    axis = axes.wave
    step = float(axes.matrix[axis - 1, axis - 1])
    if f"CRVAL{axis}" not in header or step == 0:
        return None, 0.0, ()
    kind = text_card(header, f"CTYPE{axis}").upper()
    if len(kind) > 5 and kind[4] == "-" and not kind.endswith("-LOG"):
        raise ValueError(
            f"{place}: expected CTYPE{axis} with wavelengths that are linear or end in -LOG or -TAB, got '{kind}'; "
            f"resample the cube to an even grid"
        )
    value = number_card(header, f"CRVAL{axis}", 0.0, place)
    pixels = np.arange(1, n_wave + 2) - number_card(header, f"CRPIX{axis}", 0.0, place)
    with np.errstate(over="ignore"):
        logarithmic = value * np.exp(step * pixels / value) if kind.endswith("-LOG") and value else None
    values = value + step * pixels if logarithmic is None else logarithmic
    if is_velocity(kind):
        found = wavelengths_of(values, header, axis, place)
        return found[:-1], float(abs(found[-1] - found[-2])), (f"velocities ({kind}) as vacuum wavelengths",)
    unit, notes = _angstrom(text_card(header, f"CUNIT{axis}"), values[:-1], place, f"CUNIT{axis}")
    return values[:-1] * unit, float(abs(values[-1] - values[-2])) * unit, notes


def _table_wavelengths(
    path: Path, wave: Any, header: Any, axis: int, n_wave: int
) -> tuple[Float[ndarray, " wave"], tuple[str, ...]]:
    """Angstrom of the HDU of wavelengths: a vector, or a column of a table."""
    place = label(path, wave)
    if is_image(wave):
        values, unit = image_values(path, wave), text_card(wave.header, "BUNIT")
    else:
        values, unit = _column(wave, place)
    values = np.squeeze(np.asarray(values, dtype=np.float64))
    if values.shape != (n_wave,):
        raise ValueError(f"{place}: expected {n_wave} wavelengths, one per bin of the cube, got shape {values.shape}")
    factor, notes = _angstrom(unit or text_card(header, f"CUNIT{axis}"), values, place, "BUNIT")
    return values * factor, notes


def _column(wave: Any, place: str) -> tuple[ndarray, str]:
    try:
        columns = {column.name.upper(): column for column in wave.columns}
        name = next(name for name in _COLUMNS if name in columns)
        return np.asarray(wave.data[columns[name].name]), str(columns[name].unit or "")
    except (StopIteration, *UNREADABLE) as error:
        raise ValueError(f"{place}: expected a vector of wavelengths or a column {_COLUMNS[0]}, got neither") from error


def _angstrom(text: str, values: Float[ndarray, " wave"], place: str, card: str) -> tuple[float, tuple[str, ...]]:
    """Angstrom in a unit; without one, plausible Angstrom or (the unit of FITS) metres."""
    text = text.strip()
    if text:
        try:
            return in_unit(parse_unit(text), units.Angstrom), ()
        except (ValueError, TypeError, units.UnitConversionError) as error:
            raise ValueError(f"{place}: expected {card} to be a length (Angstrom, nm, um, m), got '{text}'") from error
    low, high = float(np.min(values)), float(np.max(values))
    if OPTICAL[0] <= low and high <= OPTICAL[1]:
        return 1.0, (f"wavelengths from {low:.6g} to {high:.6g} without a unit are taken as Angstrom",)
    if PLAUSIBLE[0] <= low * 1e10 and high * 1e10 <= PLAUSIBLE[1]:
        return 1e10, ("wavelengths without a unit are taken as m, as FITS has them",)
    raise ValueError(
        f"{place}: expected the unit of the wavelengths ({card}), got none for values from {low:.6g} to {high:.6g}; "
        f"write it into the header"
    )


def _check_plausible(wavelength: Float[ndarray, " wave"], place: str) -> None:
    low, high = float(np.min(wavelength)), float(np.max(wavelength))
    if not (math.isfinite(low) and math.isfinite(high) and PLAUSIBLE[0] <= low and high <= PLAUSIBLE[1]):
        raise ValueError(
            f"{place}: expected wavelengths between {PLAUSIBLE[0]:g} and {PLAUSIBLE[1]:g} Angstrom, got {low:g} to "
            f"{high:g}; check CRVAL3 and its unit (a logarithm is written as CTYPE3 = WAVE-LOG)"
        )


def _disagreement(
    wavelength: Float[ndarray, " wave"], by_header: Float[ndarray, " wave"] | None, place: str
) -> tuple[str, ...]:
    """A note if the header's wavelengths differ from the table's, which are used."""
    if by_header is None or len(wavelength) < 2:
        return ()
    worst = float(np.max(np.abs(by_header - wavelength) / np.abs(np.gradient(wavelength))))
    if worst < 0.1:
        return ()
    return (f"{place}: the wavelengths of this HDU are used; those of the header lie up to {worst:.3g} bins off",)
