"""The place of a cube's spaxels on the sky: their size, the field's rotation, the direction of its axes."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from astropy import units
from astropy.wcs import WCS
from jaxtyping import Float
from numpy import ndarray

from rubix_like.cube.observed.axes import Axes
from rubix_like.cube.observed.flux_units import in_unit
from rubix_like.cube.observed.opening_observed import number_card, text_card
from rubix_like.cube.wcs import header_of

SQUARE_TOLERANCE: float = 2e-3
"""Largest relative difference of a spaxel's sides, and cosine of the angle between them."""

ARCSEC_PER_DEGREE: float = 3600.0

PROJECTIONS: tuple[str, ...] = ("-TAN", "-SIN", "-ARC", "-STG", "-ZEA")
"""Zenithal projections, which have their reference where CRVAL says; in a field of arcseconds all others are as TAN."""


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


def read_sky(header: Any, axes: Axes, n_xy: tuple[int, int], place: str, pixel_scale: float | None) -> SkyGrid:
    """The sky of a cube of `n_xy` spaxels; `pixel_scale` (arcsec) as the user gives it, or None.

    Raises ValueError for spaxels that are not square, and where neither header nor user says how large they are.
    """
    pick = np.ix_([axes.x - 1, axes.y - 1], [axes.x - 1, axes.y - 1])
    scales = [_degrees(header, axis, axes.celestial) for axis in (axes.x, axes.y)]
    if not axes.celestial or None in scales:
        return _off_sky(np.abs(axes.matrix[pick]), scales, place, pixel_scale)
    degrees = np.array(scales, dtype=np.float64)
    matrix = degrees[:, None] * axes.matrix[pick]
    found = _square_side(matrix, place)
    notes: tuple[str, ...] = ()
    if pixel_scale is not None and not math.isclose(pixel_scale, found, rel_tol=SQUARE_TOLERANCE):
        notes = (f"pixel_scale {pixel_scale:g} arcsec as given; the header says {found:g}",)
    flip_y, flip_x = _flips(matrix)
    up = matrix[:, 1] * (-1 if flip_y else 1)
    angle = math.degrees(math.atan2(up[0], up[1]))
    ra, dec = _centre(header, axes, matrix, n_xy, place)
    return SkyGrid(
        pixel_scale=found if pixel_scale is None else pixel_scale,
        field_angle=0.0 if abs(angle) < 1e-9 else angle,
        ra=ra,
        dec=dec,
        flip_y=flip_y,
        flip_x=flip_x,
        notes=(
            *notes,
            *(
                f"the field was mirrored: {name} are put in reverse order"
                for name, flip in _named(flip_y, flip_x)
                if flip
            ),
        ),
    )


def _named(flip_y: bool, flip_x: bool) -> tuple[tuple[str, bool], ...]:
    return ("the rows", flip_y), ("the columns", flip_x)


def _degrees(header: Any, axis: int, celestial: bool) -> float | None:
    """Degrees in the unit of a sky axis; None where it is no angle."""
    text = text_card(header, f"CUNIT{axis}")
    if not text:
        return 1.0 if celestial else None
    try:
        return in_unit(units.Unit(text), units.deg)
    except (ValueError, units.UnitConversionError):
        return None


def _off_sky(
    steps: Float[ndarray, "2 2"], scales: list[float | None], place: str, pixel_scale: float | None
) -> SkyGrid:
    """Spaxels of a cube that does not say where on the sky it is: their size from the steps if these are angles."""
    note = "there are no celestial coordinates: rows are taken to run North, columns West"
    if pixel_scale is None:
        if None in scales:
            raise ValueError(
                f"{place}: expected the size of the spaxels (RA, Dec or angles on axes 1 and 2), got none; give "
                f"pixel_scale= in arcsec (of a fit: fit.data_pixel_scale)"
            )
        pixel_scale = _square_side(np.array(scales, dtype=np.float64)[:, None] * steps, place)
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


def _flips(matrix: Float[ndarray, "2 2"]) -> tuple[bool, bool]:
    """(rows, columns) to reverse: none where East is left of North, else what leaves the field less turned."""
    if np.linalg.det(matrix) < 0:
        return False, False
    return (True, False) if matrix[1, 1] < 0 else (False, True)


def _centre(
    header: Any, axes: Axes, matrix: Float[ndarray, "2 2"], n_xy: tuple[int, int], place: str
) -> tuple[float | None, float | None]:
    """RA and Dec (deg) of the middle of the array, which no flip moves."""
    if any(f"CRVAL{axis}" not in header for axis in (axes.x, axes.y)):
        return None, None
    kind = text_card(header, f"CTYPE{axes.x}")
    projection = kind[4:8] if kind[4:8] in PROJECTIONS else "-TAN"
    cards = [("WCSAXES", 2, "")]
    for number, (axis, name) in enumerate(((axes.x, "RA--"), (axes.y, "DEC-")), start=1):
        value = number_card(header, f"CRVAL{axis}", 0.0, place) * (_degrees(header, axis, celestial=True) or 1.0)
        cards += [
            (f"CTYPE{number}", f"{name}{projection}", ""),
            (f"CRVAL{number}", value, ""),
            (f"CRPIX{number}", number_card(header, f"CRPIX{axis}", 0.0, place), ""),
            (f"CD{number}_1", float(matrix[number - 1, 0]), ""),
            (f"CD{number}_2", float(matrix[number - 1, 1]), ""),
        ]
    middle = np.array([[(n + 1) / 2 for n in n_xy]])
    try:
        ra, dec = np.asarray(WCS(header_of(cards)).wcs_pix2world(middle, 1))[0]
    except ValueError as error:
        values = [header[f"CRVAL{axis}"] for axis in (axes.x, axes.y)]
        raise ValueError(f"{place}: expected RA and Dec of a place on the sky (CRVAL), got {values}") from error
    return float(ra) % 360.0, float(dec)
