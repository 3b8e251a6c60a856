"""The axes of a cube in a FITS file: which one is the wavelength, and where its spaxels lie on the sky."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from astropy import units
from astropy.wcs import WCS
from jaxtyping import Float
from numpy import ndarray

from rubix_like.cube.footprint import header_of
from rubix_like.cube.observed.flux_units import in_unit, parse_unit
from rubix_like.cube.observed.observed_layouts import label, number_card, text_card
from rubix_like.runtime.notes import WARNING, Note

SPECTRAL_WORDS: tuple[str, ...] = ("WAVE", "AWAV", "LAMBDA", "WAVELENGTH", "ANGSTROM", "LINEAR", "LOGLAM", "LAMB")
"""What CTYPE begins with for an axis of wavelengths; of these WAVE and AWAV are FITS, the others old habits."""

_CONVERTED: tuple[str, ...] = ("VELO", "VRAD", "VOPT", "FELO", "ZOPT", "BETA", "FREQ", "ENER", "WAVN")
"""Other spectral axes of FITS (Greisen et al. 2006, A&A 446, 747, table 1) and of AIPS (VELO-HEL, FELO-HEL ...)."""

_LENGTHS: tuple[str, ...] = ("angstrom", "aa", "nm", "um", "micron", "m", "nano")

MIXED_TOLERANCE: float = 1e-6
"""Elements of the matrix between wavelength and sky that are no more than rounding, relative to a step."""

SQUARE_TOLERANCE: float = 2e-3
"""Largest relative difference of a spaxel's sides, and of steps by CD and by CDELT; cosine of the sides' angle."""

_SAME_PLACE: float = 0.1
"""Pixels by which the coordinates of two HDUs of a cube may differ."""

ARCSEC_PER_DEGREE: float = 3600.0

PROJECTIONS: tuple[str, ...] = ("-TAN", "-SIN", "-ARC", "-STG", "-ZEA")
"""Zenithal projections, which have their reference where CRVAL says; in a field of arcseconds all others are as TAN."""

GALACTIC: tuple[str, ...] = ("GLON", "GLAT", "ELON", "ELAT")


@dataclass(frozen=True)
class Axes:
    """FITS axes (1, 2, ...) of a cube: the two of the sky, in the order East-West, North-South, and the spectral one.

    `lengths`: of all axes, from the first; those of length 1 that are none of the three are left out. `celestial`:
    whether the header says where on the sky they lie. `matrix[i, j]`: CD or PC CDELT, world axis i + 1 per pixel of
    axis j + 1, in the header's units.
    """

    x: int
    y: int
    wave: int
    lengths: tuple[int, ...]
    celestial: bool
    matrix: Float[ndarray, "axis axis"]

    @property
    def sky_matrix(self) -> Float[ndarray, "2 2"]:
        """The part of `matrix` that is of the sky, (x, y)."""
        return self.matrix[np.ix_([self.x - 1, self.y - 1], [self.x - 1, self.y - 1])]

    @property
    def kept(self) -> tuple[int, ...]:
        """The three axes in numpy's order, the slowest first."""
        return tuple(sorted((self.x, self.y, self.wave), reverse=True))

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the three axes in numpy's order."""
        return tuple(self.lengths[axis - 1] for axis in self.kept)

    def ordered(self, values: ndarray) -> ndarray:
        """An array of this `shape` as (y, x, wave)."""
        return values.transpose([self.kept.index(axis) for axis in (self.y, self.x, self.wave)])


def find_axes(header: Any, place: str, *, has_wave_table: bool) -> Axes:
    """The axes of the image, by CTYPE; without one the order is that of nearly all cubes: x, y, wavelength.

    Raises ValueError for a fourth axis that is longer than 1, Galactic coordinates and axes that are mixed.
    """
    lengths = tuple(int(header[f"NAXIS{axis}"]) for axis in range(1, int(header["NAXIS"]) + 1))
    kinds = {axis: text_card(header, f"CTYPE{axis}").upper() for axis in range(1, len(lengths) + 1)}
    _refuse_kinds(kinds, place)
    wave = _spectral_axis(header, kinds, place, has_wave_table=has_wave_table)
    others = sorted((axis for axis in kinds if axis != wave), key=lambda axis: (lengths[axis - 1] == 1, axis))
    longitudes = [axis for axis in others if kinds[axis].startswith("RA")]
    latitudes = [axis for axis in others if kinds[axis].startswith("DEC")]
    celestial = len(longitudes) == len(latitudes) == 1
    x, y = (longitudes[0], latitudes[0]) if celestial else sorted(others[:2])
    more = [axis for axis in others if axis not in (x, y) and lengths[axis - 1] > 1]
    if more:
        raise ValueError(
            f"{place}: expected two axes of the sky and one of wavelengths, and any others of length 1, got axis "
            f"{more[0]} (CTYPE '{kinds[more[0]]}') of length {lengths[more[0] - 1]}; write one of its planes, such as "
            f"Stokes I, to a file of its own"
        )
    degrees = all(kinds[axis] == "DEGREE" for axis in (x, y))
    axes = Axes(x, y, wave, lengths, celestial or degrees, pixel_matrix(header, place, len(lengths)))
    size, sky = np.abs(axes.matrix), [x - 1, y - 1]
    along, across = size[wave - 1, sky].max(), size[sky, wave - 1].max()
    if along > MIXED_TOLERANCE * size[wave - 1, wave - 1] or across > MIXED_TOLERANCE * abs(axes.sky_matrix).max():
        raise ValueError(
            f"{place}: expected a wavelength axis of its own, got one mixed with the sky (CD or PC matrix)"
        )
    return axes


def is_converted(kind: str) -> bool:
    """Whether a CTYPE is of frequencies, velocities or energies, which become vacuum wavelengths."""
    return kind[:4] in _CONVERTED and kind[4:5] in ("", "-")


def _refuse_kinds(kinds: dict[int, str], place: str) -> None:
    for axis, kind in kinds.items():
        if kind.startswith(_CONVERTED) and not is_converted(kind):
            raise ValueError(
                f"{place}: expected wavelengths, frequencies or velocities of a known convention, got CTYPE{axis} = "
                f"'{kind}'; write VRAD or VOPT (radio or optical velocities), FREQ, WAVE or AWAV"
            )
        if kind.startswith(GALACTIC):
            raise ValueError(
                f"{place}: expected right ascension and declination, got CTYPE{axis} = '{kind}'; write the cube's "
                f"world coordinates as RA, Dec"
            )


def _spectral_axis(header: Any, kinds: dict[int, str], place: str, *, has_wave_table: bool) -> int:
    named = [axis for axis, kind in kinds.items() if kind.startswith(SPECTRAL_WORDS[:4]) or is_converted(kind)]
    if len(named) > 1:
        raise ValueError(f"{place}: expected one wavelength axis, got axes {sorted(named)} ({kinds})")
    if named:
        return named[0]
    unit = text_card(header, "CUNIT3").lower()
    if kinds[3].startswith(SPECTRAL_WORDS) or unit.startswith(_LENGTHS) or has_wave_table:
        return 3
    if not kinds[3] and "CRVAL3" in header and ("CDELT3" in header or "CD3_3" in header):
        return 3
    raise ValueError(
        f"{place}: expected an axis of wavelengths (CTYPE3 = WAVE or AWAV, or an HDU WAVE), got CTYPE3 = '{kinds[3]}'; "
        f"a fit needs a cube of spectra"
    )


def check_axes(path: Path, flux: Any, parts: Iterable[Any | None], axes: Axes) -> None:
    """Raise ValueError where coordinates contradict each other: those of an HDU, or of the fluxes and another part."""
    _check_steps(flux.header, axes, label(path, flux))
    for part in parts:
        if part is not None:
            _check_same_place(path, flux, part, axes)


def _check_steps(header: Any, axes: Axes, place: str) -> None:
    """Raise ValueError where CDELT, beside CD, has another size or direction; 1 is what it has where it is not used."""
    if not any(card.startswith("CD") and card[2:3].isdigit() for card in header):
        return
    steps = {axis: number_card(header, f"CDELT{axis}", 1.0, place) for axis in axes.kept}
    used, wrong = {axis: step for axis, step in steps.items() if step not in (0.0, 1.0)}, []
    for axis, step in used.items():
        length = float(np.linalg.norm(axes.matrix[:, axis - 1]))
        if abs(abs(step) - length) > SQUARE_TOLERANCE * length:
            wrong.append(f"{length:.6g} and {step:.6g} along axis {axis}")
    if used.get(axes.wave, 0.0) * axes.matrix[axes.wave - 1, axes.wave - 1] < 0:
        wrong.append(f"other directions along axis {axes.wave}")
    if used.get(axes.x, 0.0) * used.get(axes.y, 0.0) * np.linalg.det(axes.sky_matrix) < 0:
        wrong.append(f"a field that is mirrored by one of them (axes {axes.x} and {axes.y})")
    if wrong:
        raise ValueError(
            f"{place}: expected CD and CDELT that agree, got {'; '.join(wrong)}; delete the cards that are wrong"
        )


def _check_same_place(path: Path, flux: Any, part: Any, axes: Axes) -> None:
    """Raise ValueError where the world coordinates of an HDU of errors or a mask, as far as it has some, put its pixels
    elsewhere than those of the fluxes are."""
    numbers = [
        axis - 1
        for axis in axes.kept
        if all(f"{card}{axis}" in header for card in ("CRVAL", "CRPIX") for header in (flux.header, part.header))
        and any(card in part.header for card in (f"CDELT{axis}", f"CD{axis}_{axis}"))
        and text_card(flux.header, f"CUNIT{axis}") == text_card(part.header, f"CUNIT{axis}")
    ]
    if not numbers:
        return
    lengths = np.array([axes.lengths[number] for number in numbers], dtype=np.float64)
    corners = np.array([np.ones(len(lengths)), lengths])
    world = []
    for hdu in (flux, part):
        place = label(path, hdu)
        value, pixel = (
            np.array([number_card(hdu.header, f"{card}{number + 1}", 0.0, place) for number in numbers])
            for card in ("CRVAL", "CRPIX")
        )
        matrix = pixel_matrix(hdu.header, place, len(axes.lengths))[np.ix_(numbers, numbers)]
        world.append((value, (corners - pixel) @ matrix.T, matrix))
    (value, offsets, matrix), (other, other_offsets, _) = world
    with np.errstate(all="ignore"):
        shift = (other - value + other_offsets - offsets) @ np.linalg.pinv(matrix).T
    if not np.all(np.abs(shift) < _SAME_PLACE):
        raise ValueError(
            f"{label(path, part)}: expected the world coordinates of {flux.name or 'the fluxes'}, got others, by which "
            f"its pixels lie up to {np.abs(shift).max():.3g} pixels away (mirrored or shifted); bring both to one "
            f"grid, or correct its CRVAL, CRPIX, CD and CDELT"
        )


def pixel_matrix(header: Any, place: str, n_axis: int = 3) -> Float[ndarray, "axis axis"]:
    """World per pixel: CDi_j where there is any, else PCi_j (or the old CROTA2) times CDELTi.

    An axis without a CDi_j has its CDELTi, as in files whose CD is that of the sky alone.

    Greisen & Calabretta 2002, A&A 395, 1061, section 2.1.2; CROTA2: section 6.1.
    """
    axes = range(1, n_axis + 1)
    pairs = [(i, j) for i in axes for j in axes]
    if any(f"CD{i}_{j}" in header for i, j in pairs):
        values = [number_card(header, f"CD{i}_{j}", 0.0, place) for i, j in pairs]
        matrix = np.array(values, dtype=np.float64).reshape(n_axis, n_axis)
        for axis in axes:
            if not (matrix[axis - 1].any() or matrix[:, axis - 1].any()):
                matrix[axis - 1, axis - 1] = number_card(header, f"CDELT{axis}", 0.0, place)
        return matrix
    delta = np.array([number_card(header, f"CDELT{axis}", 1.0, place) for axis in axes])
    turn = np.array([number_card(header, f"PC{i}_{j}", float(i == j), place) for i, j in pairs]).reshape(n_axis, n_axis)
    angle = math.radians(number_card(header, "CROTA2", 0.0, place))
    if angle and not any(f"PC{i}_{j}" in header for i, j in pairs):
        ratio = delta[1] / delta[0]
        turn[:2, :2] = [[math.cos(angle), -math.sin(angle) * ratio], [math.sin(angle) / ratio, math.cos(angle)]]
    return delta[:, None] * turn


@dataclass(frozen=True)
class SkyGrid:
    """The sky grid of an array (y, x): spaxel side (arcsec), position angle of +y (deg) and centre (deg) after it has
    been flipped.

    `flip_y`, `flip_x`: whether rows and columns must be put in reverse, so that the field is not mirrored.
    """

    pixel_scale: float
    field_angle: float
    ra: float | None
    dec: float | None
    flip_y: bool
    flip_x: bool
    notes: tuple[str, ...]


def read_sky(header: Any, axes: Axes, place: str, pixel_scale: float | None) -> SkyGrid:
    """The sky of a cube; `pixel_scale` (arcsec) as the user gives it, or None: it changes the size of the spaxels, not
    where the reference pixel lies or how the field is turned.

    Raises ValueError for spaxels that are not square, and where neither header nor user says how large they are.
    """
    scales = [_degrees(header, axis, axes) for axis in (axes.x, axes.y)]
    if not axes.celestial or (pixel_scale is None and None in scales):
        return _off_sky(header, axes, scales, place, pixel_scale)
    matrix = np.array([scale or 1.0 for scale in scales])[:, None] * axes.sky_matrix
    if not _has_steps(header, axes):
        matrix = np.diag([-1.0, 1.0])
    found, notes = _square_side(matrix, place), []
    if pixel_scale is not None and (None in scales or not math.isclose(pixel_scale, found, rel_tol=SQUARE_TOLERANCE)):
        says = "does not say it, and its CRVAL are taken as deg" if None in scales else f"says {found:g}"
        notes.append(Note("data.overridden", f"pixel_scale {pixel_scale:g} arcsec as given; the header {says}"))
        matrix = matrix * (pixel_scale / found)
    is_mirrored, is_upside_down = bool(np.linalg.det(matrix) >= 0), bool(matrix[1, 1] < 0)
    flips = {"rows": is_mirrored and is_upside_down, "columns": is_mirrored and not is_upside_down}
    up = matrix[:, 1] * (-1 if flips["rows"] else 1)
    angle = math.degrees(math.atan2(up[0], up[1]))
    mirrored = [name for name, is_flipped in flips.items() if is_flipped]
    notes += [
        Note("data.mirrored", f"the field was mirrored: the {name} are put in reverse order") for name in mirrored
    ]
    return SkyGrid(
        found if pixel_scale is None else pixel_scale,
        0.0 if abs(angle) < 1e-9 else angle,
        *_centre(header, axes, matrix, place),
        flip_y=flips["rows"],
        flip_x=flips["columns"],
        notes=tuple(notes),
    )


def _has_steps(header: Any, axes: Axes) -> bool:
    sky = (axes.x, axes.y)
    return any(card in header for i in sky for card in (f"CDELT{i}", *(f"CD{i}_{j}" for j in sky)))


def _degrees(header: Any, axis: int, axes: Axes) -> float | None:
    """Degrees in the unit of a sky axis; None where it is no angle, or the header has no steps."""
    text = text_card(header, f"CUNIT{axis}")
    if not _has_steps(header, axes) or not (text or axes.celestial):
        return None
    try:
        return in_unit(parse_unit(text), units.deg) if text else 1.0
    except (ValueError, TypeError, units.UnitConversionError):
        return None


def _off_sky(header: Any, axes: Axes, scales: list[float | None], place: str, pixel_scale: float | None) -> SkyGrid:
    """Spaxels of a cube that does not say where on the sky it is: their size from the steps if these are angles."""
    note = Note(
        "data.no_coordinates", "there are no celestial coordinates: rows are taken to run North, columns West", WARNING
    )
    if pixel_scale is None:
        if None in scales:
            said = [text_card(header, f"{card}{axis}") for card in ("CTYPE", "CUNIT") for axis in (axes.x, axes.y)]
            raise ValueError(
                f"{place}: expected the size of the spaxels (RA, Dec or angles on axes {axes.x} and {axes.y}), got "
                f"none (CTYPE '{said[0]}', '{said[1]}', CUNIT '{said[2]}', '{said[3]}'); give pixel_scale= in arcsec "
                f"(of a fit: fit.data_pixel_scale)"
            )
        steps = np.array(scales, dtype=np.float64)[:, None] * np.abs(axes.sky_matrix)
        pixel_scale = _square_side(steps, place)
    return SkyGrid(pixel_scale, 0.0, None, None, flip_y=False, flip_x=False, notes=(note,))


def _square_side(matrix: Float[ndarray, "2 2"], place: str) -> float:
    """Side of a spaxel in arcsec, from degrees per pixel; raises ValueError where it is no square."""
    sides = ARCSEC_PER_DEGREE * np.hypot(matrix[0], matrix[1])
    if not np.all(np.isfinite(sides)) or min(sides) <= 0:
        raise ValueError(
            f"{place}: expected spaxels with a size, got {sides[0]:g} x {sides[1]:g} arcsec (CD, PC, CDELT)"
        )
    cosine = abs(float(matrix[:, 0] @ matrix[:, 1])) * ARCSEC_PER_DEGREE**2 / float(sides[0] * sides[1])
    if abs(sides[0] / sides[1] - 1) > SQUARE_TOLERANCE or cosine > SQUARE_TOLERANCE:
        raise ValueError(
            f"{place}: expected square spaxels, got {sides[0]:.4g} x {sides[1]:.4g} arcsec with sides at "
            f"{math.degrees(math.acos(min(cosine, 1.0))):.4g} deg; resample the cube to square spaxels (e.g. reproject)"
        )
    return float(np.sqrt(sides[0] * sides[1]))


def _centre(header: Any, axes: Axes, matrix: Float[ndarray, "2 2"], place: str) -> tuple[float | None, float | None]:
    """RA and Dec (deg) of the middle of the array, which no flip moves."""
    if any(f"CRVAL{axis}" not in header for axis in (axes.x, axes.y)):
        return None, None
    kind = text_card(header, f"CTYPE{axes.x}")
    projection = kind[4:8] if kind[4:8] in PROJECTIONS else "-TAN"
    cards = [("WCSAXES", 2, "")]
    for number, (axis, name) in enumerate(((axes.x, "RA--"), (axes.y, "DEC-")), start=1):
        value = number_card(header, f"CRVAL{axis}", 0.0, place) * (_degrees(header, axis, axes) or 1.0)
        cards += [
            (f"CTYPE{number}", f"{name}{projection}", ""),
            (f"CRVAL{number}", value, ""),
            (f"CRPIX{number}", number_card(header, f"CRPIX{axis}", 0.0, place), ""),
            (f"CD{number}_1", float(matrix[number - 1, 0]), ""),
            (f"CD{number}_2", float(matrix[number - 1, 1]), ""),
        ]
    middle = np.array([[(axes.lengths[axis - 1] + 1) / 2 for axis in (axes.x, axes.y)]])
    try:
        ra, dec = np.asarray(WCS(header_of(cards)).wcs_pix2world(middle, 1))[0]
    except ValueError as error:
        values = [header[f"CRVAL{axis}"] for axis in (axes.x, axes.y)]
        raise ValueError(f"{place}: expected RA and Dec of a place on the sky (CRVAL), got {values}") from error
    return float(ra) % 360.0, float(dec)
