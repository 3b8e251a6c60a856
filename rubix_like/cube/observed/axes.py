"""The axes of a cube in a FITS file: which one is the wavelength, and the map from pixels to world coordinates."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.cube.observed.opening_observed import number_card, text_card
from rubix_like.cube.observed.velocity_axes import is_velocity

SPECTRAL_WORDS: tuple[str, ...] = ("WAVE", "AWAV", "LAMBDA", "WAVELENGTH", "ANGSTROM", "LINEAR", "LOGLAM", "LAMB")
"""What CTYPE begins with for an axis of wavelengths; of these WAVE and AWAV are FITS, the others old habits."""

OTHER_SPECTRAL: tuple[str, ...] = ("VELO", "VRAD", "VOPT", "FELO", "ZOPT", "BETA", "FREQ", "ENER", "WAVN")
"""Spectral axes of FITS that are no wavelengths (Greisen et al. 2006, A&A 446, 747, table 1)."""

_LENGTHS: tuple[str, ...] = ("angstrom", "aa", "nm", "um", "micron", "m")

MIXED_TOLERANCE: float = 1e-6
"""Elements of the matrix between wavelength and sky that are no more than rounding, relative to a step."""

GALACTIC: tuple[str, ...] = ("GLON", "GLAT", "ELON", "ELAT")


@dataclass(frozen=True)
class Axes:
    """FITS axes (1, 2, 3) of a cube: the two of the sky, in the order East-West, North-South, and the spectral one.

    `celestial`: whether the header says where on the sky they lie. `matrix[i, j]`: CD or PC CDELT, world axis i + 1 per
    pixel of axis j + 1, in the header's units.
    """

    x: int
    y: int
    wave: int
    celestial: bool
    matrix: Float[ndarray, "3 3"]

    @property
    def numpy_order(self) -> tuple[int, int, int]:
        """The axes of astropy's array that become (y, x, wave)."""
        return 3 - self.y, 3 - self.x, 3 - self.wave


def find_axes(header: Any, place: str, *, has_wave_table: bool) -> Axes:
    """What each axis of the image is, by CTYPE; without one the order is that of nearly all cubes: x, y, wavelength.

    Raises ValueError for an axis of velocities or frequencies, Galactic coordinates and axes that are mixed.
    """
    kinds = {axis: text_card(header, f"CTYPE{axis}").upper() for axis in (1, 2, 3)}
    _refuse_kinds(kinds, place)
    wave = _spectral_axis(header, kinds, place, has_wave_table)
    sky = [axis for axis in (1, 2, 3) if axis != wave]
    longitudes = [axis for axis in sky if kinds[axis].startswith("RA")]
    latitudes = [axis for axis in sky if kinds[axis].startswith("DEC")]
    celestial = len(longitudes) == len(latitudes) == 1
    degrees = all(kinds[axis] == "DEGREE" for axis in sky)
    x, y = (longitudes[0], latitudes[0]) if celestial else sky
    matrix = pixel_matrix(header, place)
    rows, own = np.abs(matrix), [axis - 1 for axis in sky]
    along, across = rows[wave - 1, own].max(), rows[own, wave - 1].max()
    if along > MIXED_TOLERANCE * rows[wave - 1, wave - 1] or across > MIXED_TOLERANCE * rows[np.ix_(own, own)].max():
        raise ValueError(
            f"{place}: expected a wavelength axis of its own, got one mixed with the sky (CD or PC matrix)"
        )
    return Axes(x, y, wave, celestial or degrees, matrix)


def _refuse_kinds(kinds: dict[int, str], place: str) -> None:
    for axis, kind in kinds.items():
        if kind.startswith(OTHER_SPECTRAL) and not is_velocity(kind):
            raise ValueError(
                f"{place}: expected wavelengths, got CTYPE{axis} = '{kind}'; resample the cube to wavelengths (CTYPE "
                f"WAVE in vacuum, AWAV in air), or to velocities (VRAD or VOPT, with RESTFRQ)"
            )
        if kind.startswith(GALACTIC):
            raise ValueError(
                f"{place}: expected right ascension and declination, got CTYPE{axis} = '{kind}'; write the cube's "
                f"world coordinates as RA, Dec"
            )


def _spectral_axis(header: Any, kinds: dict[int, str], place: str, has_wave_table: bool) -> int:
    """The FITS axis along the wavelength."""
    named = [axis for axis in (3, 2, 1) if kinds[axis].startswith(SPECTRAL_WORDS[:4]) or is_velocity(kinds[axis])]
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


def pixel_matrix(header: Any, place: str) -> Float[ndarray, "3 3"]:
    """World per pixel: CDi_j where there is any, else PCi_j (or the old CROTA2) times CDELTi.

    An axis without a CDi_j has its CDELTi, as in files whose CD is that of the sky alone.

    Greisen & Calabretta 2002, A&A 395, 1061, section 2.1.2; CROTA2: section 6.1.
    """
    pairs = [(i, j) for i in (1, 2, 3) for j in (1, 2, 3)]
    if any(f"CD{i}_{j}" in header for i, j in pairs):
        values = [number_card(header, f"CD{i}_{j}", 0.0, place) for i, j in pairs]
        matrix = np.array(values, dtype=np.float64).reshape(3, 3)
        for axis in (1, 2, 3):
            if not (matrix[axis - 1].any() or matrix[:, axis - 1].any()):
                matrix[axis - 1, axis - 1] = number_card(header, f"CDELT{axis}", 0.0, place)
        return matrix
    delta = np.array([number_card(header, f"CDELT{axis}", 1.0, place) for axis in (1, 2, 3)])
    turn = np.array([number_card(header, f"PC{i}_{j}", float(i == j), place) for i, j in pairs]).reshape(3, 3)
    angle = math.radians(number_card(header, "CROTA2", 0.0, place))
    if angle and not any(f"PC{i}_{j}" in header for i, j in pairs):
        ratio = delta[1] / delta[0]
        turn[:2, :2] = [[math.cos(angle), -math.sin(angle) * ratio], [math.sin(angle) / ratio, math.cos(angle)]]
    return delta[:, None] * turn
