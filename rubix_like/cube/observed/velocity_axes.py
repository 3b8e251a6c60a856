"""Axes of velocities, as radio and millimetre cubes have them, brought to wavelengths by the line's rest frequency."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from astropy import units
from jaxtyping import Float
from numpy import ndarray

from rubix_like.constants import SPEED_OF_LIGHT
from rubix_like.cube.observed.flux_units import in_unit, parse_unit
from rubix_like.cube.observed.opening_observed import number_card, text_card

_STRETCH: Mapping[str, Callable[[Float[ndarray, " wave"]], Float[ndarray, " wave"]]] = {
    "VRAD": lambda beta: 1 / (1 - beta),
    "VOPT": lambda beta: 1 + beta,
}
"""CTYPE -> observed wavelength over that at rest for v / c (Greisen et al. 2006, A&A 446, 747, table 1)."""

_FREQUENCIES: tuple[str, ...] = ("RESTFRQ", "RESTFREQ")


def is_velocity(kind: str) -> bool:
    """Whether a CTYPE is of radio or optical velocities, linear along the axis."""
    return kind.upper() in _STRETCH


def wavelengths_of(values: Float[ndarray, " wave"], header: Any, axis: int, place: str) -> Float[ndarray, " wave"]:
    """Vacuum wavelengths (Angstrom) of the velocities along an axis, in the unit of its CUNIT (m/s without one).

    Raises ValueError without a rest frequency or wavelength, for a unit that is none of a velocity, and for velocities
    beyond that of light.
    """
    kind, text = text_card(header, f"CTYPE{axis}").upper(), text_card(header, f"CUNIT{axis}") or "m/s"
    try:
        factor = in_unit(parse_unit(text), units.Unit("km/s"))
    except (ValueError, TypeError, units.UnitConversionError) as error:
        raise ValueError(f"{place}: expected CUNIT{axis} to be a velocity (m/s, km/s), got '{text}'") from error
    beta = values * factor / SPEED_OF_LIGHT
    if not np.all(np.abs(beta) < 1):
        raise ValueError(
            f"{place}: expected velocities below that of light, got {beta.min() * SPEED_OF_LIGHT:g} to "
            f"{beta.max() * SPEED_OF_LIGHT:g} km/s; check CUNIT{axis}"
        )
    return _at_rest(header, axis, kind, place) * _STRETCH[kind](beta)


def _at_rest(header: Any, axis: int, kind: str, place: str) -> float:
    """Angstrom of the line at rest, by RESTWAV (m) or the rest frequency (Hz)."""
    wavelength = number_card(header, "RESTWAV", 0.0, place)
    if wavelength > 0:
        return wavelength * 1e10
    frequency = max(number_card(header, card, 0.0, place) for card in _FREQUENCIES)
    if not frequency > 0:
        raise ValueError(
            f"{place}: expected the line's rest frequency (RESTFRQ, in Hz) beside CTYPE{axis} = '{kind}', got none; "
            f"write it into the header"
        )
    return SPEED_OF_LIGHT * 1e13 / frequency
