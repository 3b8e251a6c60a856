"""The wavelengths of a cube in a FITS file as bins in Angstrom: even ones where they are, else those of a table."""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from astropy import units
from astropy.io import fits
from astropy.wcs import WCS
from jaxtyping import Float
from numpy import ndarray

from rubix_like.constants import SPEED_OF_LIGHT
from rubix_like.cube.bins import Medium, Sampling, WavelengthBins
from rubix_like.cube.observed.axes import Axes, is_converted
from rubix_like.cube.observed.flux_units import in_unit, parse_unit
from rubix_like.cube.observed.observed_layouts import (
    Parts,
    Survey,
    image_values,
    is_image,
    is_tabulated,
    label,
    number_card,
    text_card,
)
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.words import reason_of

EVEN_TOLERANCE: float = 5e-3
"""Largest distance of a bin from an even grid, in bins: what wavelengths in float32 need."""

_CONVERTED_TOLERANCE: float = 1e-4
"""The same for frequencies and velocities, whose bins are known exactly."""

PLAUSIBLE: tuple[float, float] = (100.0, 1e7)
"""Angstrom: what is beyond is no wavelength of a spectrograph but a wrong unit, or a logarithm."""

_LONGEST_RADIO: float = 1e12
"""Angstrom, of frequencies and velocities: 3 MHz."""

OPTICAL: tuple[float, float] = (3000.0, 30000.0)
"""Numbers without a unit that can only be Angstrom: in nm or m they would be no spectrograph's."""

_COLUMNS: tuple[str, ...] = ("WAVE", "WAVELENGTH", "LAMBDA", "LAM")

_SI: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("VELO", "VRAD", "VOPT", "FELO"), ("m/s", "velocity")),
    "FREQ": ("Hz", "frequency"),
    "ENER": ("J", "energy"),
    "WAVN": ("1/m", "wavenumber"),
    "ZOPT": ("", "number"),
    "BETA": ("", "number"),
}
"""CTYPE -> unit of its numbers without a CUNIT, and what they measure."""

_OF_A_LINE: tuple[str, ...] = ("VELO", "VRAD", "VOPT", "FELO", "ZOPT", "BETA")
"""What needs the frequency at rest."""

Nodes = Float[ndarray, " node"]
"""Edges and centres of all bins in turn, Angstrom."""


@dataclass(frozen=True)
class SpectralGrid:
    """The bins, and whether the file has them in descending order."""

    bins: WavelengthBins
    descending: bool
    notes: tuple[str, ...]


def read_wavelengths(path: Path, hdus: Any, parts: Parts, axes: Axes, medium: Medium | None) -> SpectralGrid:
    """The bins of the cube: from the HDU of wavelengths where there is one, else from the header of the fluxes.

    `medium` as the user gives it, or None. Raises ValueError for wavelengths out of order or with gaps, unknown units
    and an unknown medium.
    """
    header, place, wave = parts.flux.header, label(path, parts.flux), parts.wave
    kind = text_card(header, f"CTYPE{axes.wave}").upper()
    chosen, notes = _find_medium(header, axes.wave, parts.survey, medium, place)
    nodes, more = _header_nodes(hdus, header, axes, place)
    if wave is not None:
        place = label(path, wave)
        by_header = None if nodes is None else nodes[1::2]
        wavelength, more = _table_wavelengths(path, wave, header, axes, by_header)
        notes = (*notes, *more)
        if by_header is not None and len(wavelength) > 1:
            worst = float(np.max(np.abs(by_header - wavelength) / np.abs(np.gradient(wavelength))))
            text = f"{place}: the wavelengths of this HDU are used; those of the header lie up to {worst:.3g} bins off"
            notes += (Note("data.wavelengths_disagree", text, WARNING),) if worst >= 0.1 else ()
        edges = None if nodes is None else nodes[::2]
    elif nodes is None:
        raise ValueError(
            f"{place}: expected the wavelengths (cards CRVAL{axes.wave} and CDELT{axes.wave} or "
            f"CD{axes.wave}_{axes.wave}, or an HDU WAVE), got none"
        )
    else:
        wavelength, edges, notes = nodes[1::2], nodes[::2], (*notes, *more)
    longest = _LONGEST_RADIO if is_converted(kind) else PLAUSIBLE[1]
    low, high = float(np.min(wavelength)), float(np.max(wavelength))
    if not (math.isfinite(low) and math.isfinite(high) and PLAUSIBLE[0] <= low and high <= longest):
        raise ValueError(
            f"{place}: expected wavelengths between {PLAUSIBLE[0]:g} and {longest:g} Angstrom, got {low:g} to "
            f"{high:g}; check CRVAL3, CDELT3 and CUNIT3 (a logarithm is written as CTYPE3 = WAVE-LOG)"
        )
    descending = bool(len(wavelength) > 1 and wavelength[-1] < wavelength[0])
    if descending:
        wavelength, edges = wavelength[::-1], None if edges is None else edges[::-1]
    try:
        if is_tabulated(header, axes.wave) and edges is not None:
            bins, more = WavelengthBins.of_table(wavelength, edges, chosen), ()
        else:
            logarithmic, exact = kind.endswith("-LOG") or is_converted(kind), is_converted(kind) and wave is None
            bins, more = _fitted_bins(wavelength, edges, chosen, logarithmic, exact=exact)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error
    return SpectralGrid(bins, descending, (*notes, *more))


def _find_medium(
    header: Any, axis: int, survey: Survey, given: Medium | None, place: str
) -> tuple[Medium, tuple[str, ...]]:
    """Air or vacuum: as given, else by CTYPE (AWAV, WAVE), else by what is published of the instrument's files."""
    kind = text_card(header, f"CTYPE{axis}").upper()
    stated: Medium | None = "air" if kind.startswith("AWAV") else None
    if kind == "WAVE" or kind.startswith("WAVE-") or is_converted(kind):
        stated = "vacuum"
    if given is not None:
        note = Note("data.overridden", f"wavelengths in {given} as given; the header says {stated}")
        return given, () if stated in (None, given) else (note,)
    if stated is not None:
        return stated, ()
    if survey.medium is not None:
        words = f"wavelengths in {survey.medium}, as {survey.name} has them ({survey.source})"
        return survey.medium, (Note("data.by_survey", words),)
    raise ValueError(
        f"{place}: expected CTYPE{axis} to say whether wavelengths are in air (AWAV) or vacuum (WAVE), got '{kind}'; "
        f"give medium='air' or medium='vacuum' (of a fit: fit.data_medium)"
    )


def _fitted_bins(
    wavelength: Float[ndarray, " wave"],
    edges: Float[ndarray, " edge"] | None,
    medium: Medium,
    logarithmic: bool,
    *,
    exact: bool,
) -> tuple[WavelengthBins, tuple[str, ...]]:
    """The grid through ascending wavelengths: linear or logarithmic where they are, else a table; notes on it.

    `logarithmic`: to be tried first; `exact`: the edges of uneven bins are those given, not half way between centres.
    Raises ValueError for wavelengths out of order, and for gaps.
    """
    count = len(wavelength)
    if count == 1:
        step = 0.0 if edges is None else float(edges[1] - edges[0])
        if step == 0:
            raise ValueError("expected the width of the single bin (CD3_3 or CDELT3), got none")
        return WavelengthBins(float(wavelength[0]), abs(step), 1, "linear", medium), ()
    if np.any(np.diff(wavelength) <= 0):
        raise ValueError("expected wavelengths in order, got some that are equal or out of it")
    kinds: tuple[Sampling, Sampling] = ("log", "linear") if logarithmic else ("linear", "log")
    for sampling in kinds:
        bins = _fitted(wavelength, medium, sampling)
        if bins.offset(wavelength) < (_CONVERTED_TOLERANCE if exact else EVEN_TOLERANCE):
            return bins, ()
    if exact and edges is not None:
        return WavelengthBins.of_table(wavelength, edges, medium), ()
    try:
        bins = WavelengthBins.around(wavelength, medium)
    except ValueError as error:
        raise ValueError(f"{error}; fill the gap with bins that are masked, or cut the cube there") from error
    words = f"uneven wavelengths: bins from {bins.edges[0]:.6g} Angstrom end half way between their centres"
    return bins, (Note("data.uneven_bins", words),)


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


def _header_nodes(hdus: Any, header: Any, axes: Axes, place: str) -> tuple[Nodes | None, tuple[str, ...]]:
    """Wavelengths of the edges and centres of all bins by astropy's WCS of the axis, and sentences on them; None where
    the header has none.

    Frequencies and velocities, also by the names of AIPS, become wavelengths in vacuum (Greisen et al. 2006, A&A 446,
    747).
    """
    axis, step = axes.wave, float(axes.matrix[axes.wave - 1, axes.wave - 1])
    kind, text = (text_card(header, f"{card}{axis}") for card in ("CTYPE", "CUNIT"))
    kind = kind.upper()
    tabulated = is_tabulated(header, axis)
    if not tabulated and (f"CRVAL{axis}" not in header or step == 0):
        return None, ()
    cards = {"CDELT1": step}
    cards |= {f"{card}1": number_card(header, f"{card}{axis}", 0.0, place) for card in ("CRVAL", "CRPIX")}
    if tabulated:
        name = text_card(header, f"PS{axis}_0")
        if not name or name not in hdus:
            raise ValueError(
                f"{place}: expected the table of its wavelengths (CTYPE{axis} = "
                f"'{text_card(header, f'CTYPE{axis}')}') in an extension '{name}' (PS{axis}_0), got a file without it"
            )
        parameters = (card for card in header if re.fullmatch(rf"P[SV]{axis}_\d+", card))
        cards |= {f"{card[:2]}1{card[card.index('_') :]}": header[card] for card in parameters}
    pixels = 0.5 + 0.5 * np.arange(2 * axes.lengths[axis - 1] + 1)
    if not is_converted(kind):
        if len(kind) > 5 and kind[4] == "-" and kind[5:] not in ("LOG", "TAB"):
            raise ValueError(
                f"{place}: expected CTYPE{axis} with wavelengths that are linear or end in -LOG or -TAB, got '{kind}'; "
                f"resample the cube to an even grid"
            )
        nodes = _computed(cards | {"CTYPE1": f"WAVE{kind[4:8]}" if kind[4:5] == "-" else "WAVE"}, pixels, hdus, place)
        factor, notes = _angstrom(text, nodes[1::2], place, f"CUNIT{axis}")
        return nodes * factor, notes
    si, what = _SI[kind[:4]]
    try:
        factor = in_unit(parse_unit(text or si), units.Unit(si))
    except (ValueError, TypeError, units.UnitConversionError) as error:
        raise ValueError(f"{place}: expected CUNIT{axis} to be a {what} ({si}), got '{text}'") from error
    cards |= {"CTYPE1": kind, "CUNIT1": si, "CDELT1": factor * step, "CRVAL1": factor * cards["CRVAL1"]}
    cards |= {"VELREF": int(number_card(header, "VELREF", 0.0, place))}
    if kind[:4] in _OF_A_LINE:
        wavelength = number_card(header, "RESTWAV", 0.0, place)
        frequency = max(number_card(header, card, 0.0, place) for card in ("RESTFRQ", "RESTFREQ"))
        if not (wavelength > 0 or frequency > 0):
            raise ValueError(
                f"{place}: expected the line's rest frequency (RESTFRQ, in Hz) beside CTYPE{axis} = '{kind}', got "
                f"none; write it into the header"
            )
        cards |= {"RESTFRQ": frequency or SPEED_OF_LIGHT * 1e3 / wavelength, "RESTWAV": wavelength}
    nodes = _computed(cards, pixels, hdus, place, limit=SPEED_OF_LIGHT * 1e3 if what == "velocity" else math.inf)
    words = f"a {what} (CTYPE{axis} = '{kind}') as vacuum wavelengths"
    return 1e10 * nodes, (Note("data.converted_wavelengths", words),)


def _computed(cards: dict[str, Any], pixels: Nodes, hdus: Any, place: str, limit: float = math.inf) -> Nodes:
    """World coordinates along the axis of these cards: as they are for wavelengths, else in m."""
    kind = cards["CTYPE1"]
    try:
        wcs = WCS(fits.Header(cards), fobj=hdus)
        beyond = np.abs(wcs.wcs_pix2world(pixels[[0, -1], None], 1)).max() >= limit
        if is_converted(kind) and not beyond:
            wcs.wcs.sptr("WAVE-???")
        nodes = np.asarray(wcs.wcs_pix2world(pixels[:, None], 1), np.float64)[:, 0]
    except UNREADABLE as error:
        raise ValueError(
            f"{place}: expected wavelengths that astropy can compute by CTYPE '{kind}', got none ({reason_of(error)}); "
            f"correct the header"
        ) from error
    if beyond:
        raise ValueError(f"{place}: expected velocities below that of light, got others; check CUNIT and CDELT")
    if not np.isfinite(nodes).all():
        raise ValueError(
            f"{place}: expected wavelengths for all pixels by CTYPE '{kind}', got some that are not finite"
        )
    return nodes


def _table_wavelengths(
    path: Path, wave: Any, header: Any, axes: Axes, by_header: Float[ndarray, " wave"] | None
) -> tuple[Float[ndarray, " wave"], tuple[str, ...]]:
    """Angstrom of the HDU of wavelengths: a vector, or a column of a table."""
    place, n_wave = label(path, wave), axes.lengths[axes.wave - 1]
    if is_image(wave):
        values, unit = image_values(path, wave), text_card(wave.header, "BUNIT")
    else:
        try:
            columns = {column.name.upper(): column for column in wave.columns}
            column = next(columns[name] for name in _COLUMNS if name in columns)
            values, unit = wave.data[column.name], str(column.unit or "")
        except (StopIteration, *UNREADABLE) as error:
            raise ValueError(
                f"{place}: expected a vector of wavelengths or a column {_COLUMNS[0]}, got neither"
            ) from error
    values = np.squeeze(np.asarray(values, dtype=np.float64))
    if values.shape != (n_wave,) and (n_wave, values.size) != (1, 1):
        raise ValueError(f"{place}: expected {n_wave} wavelengths, one per bin of the cube, got shape {values.shape}")
    values = values.reshape(n_wave)
    if unit:
        factor, notes = _angstrom(unit, values, place, "BUNIT")
        return values * factor, notes
    factor, notes = _angstrom(text_card(header, f"CUNIT{axes.wave}"), values, place, "BUNIT")
    with np.errstate(all="ignore"):
        ratio = np.inf if by_header is None else np.mean(values) / np.mean(by_header)
        is_angstrom = by_header is not None and abs(np.log(ratio)) < abs(np.log(ratio * factor))
    if is_angstrom:
        words = "wavelengths of the HDU are in Angstrom, by those of the header; its own unit is not stated"
        return values, (Note("data.wavelength_unit", words, WARNING),)
    return values * factor, notes


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
        words = f"wavelengths from {low:.6g} to {high:.6g} without a unit are taken as Angstrom"
        return 1.0, (Note("data.wavelength_unit", words, WARNING),)
    if PLAUSIBLE[0] <= low * 1e10 and high * 1e10 <= PLAUSIBLE[1]:
        words = "wavelengths without a unit are taken as m, as FITS has them"
        return 1e10, (Note("data.wavelength_unit", words, WARNING),)
    raise ValueError(
        f"{place}: expected the unit of the wavelengths ({card}), got none for values from {low:.6g} to {high:.6g}; "
        f"write it into the header"
    )
