"""Units as files spell them, and the factors from units of flux to ours."""

import math
import re
import warnings
from functools import cache
from typing import Any

import numpy as np
from astropy import units
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.constants import ANGSTROM_PER_KM, CUBE_FLUX_DENSITY, SPEED_OF_LIGHT
from rubix_like.cube.bins import WavelengthBins
from rubix_like.physics import air
from rubix_like.physics.units import as_quantity, plain_array, split_mask

F_LAMBDA = CUBE_FLUX_DENSITY
F_NU = units.Unit("erg / (s cm2 Hz)")

_ALIASES: dict[str, str] = {
    **dict.fromkeys(("a", "å", "aa", "ang", "angstroem"), "Angstrom"),
    **dict.fromkeys(("s", "sec"), "s"),
    **dict.fromkeys(("spaxel", "spax", "spx", "fiber", "fibre"), "pix"),
    "microjy": "uJy",
}
"""Units by names that astropy does not know, or knows for something else: A is never ampere, S never siemens."""

_TEX: tuple[tuple[str, str], ...] = (
    (r"\\(?:mathrm|rm|text)\s*\{([^{}]*)\}", r"\1"),
    (r"\\[,;! ]|[$~\[\]]", " "),
    (r"\\(?:cdot|times)|×", "*"),
    (r"\\", ""),
    (r"\{", "("),
    (r"\}", ")"),
)
"""What TeX writes -> what astropy reads."""

_WHOLE_POWER = re.compile(r"^\((?P<inner>.*)\)\s*(?:\*\*|\^)\s*\(?\s*(?P<power>[-+]?\d+)\s*\)?$")
_FACTOR = re.compile(
    r"^(?:[xX*]\s*)?(?:(?P<base>\d+\.?\d*(?:[eE][-+]?\d+)?)|[eE](?=[-+]?\d))"
    r"(?:\s*(?:\*\*|\^|(?=[-+(\d]))\s*(?:\(\s*(?P<bracket>[-+]?\d+)\s*\)|(?P<bare>[-+]?\d+)))?"
    r"\s*(?:\*(?!\*))?\s*(?P<rest>.*)$"
)
_FLAM = re.compile(r"\bFLAM(\d*)\b(?:(?:\*\*|\^)\(?([-+]?\d+)\)?)?", re.IGNORECASE)


def parse_unit(text: str) -> units.UnitBase:
    """The unit that a header means: `1E-17 erg/s/cm^2/Ang/spaxel`, `x10^-16 erg s^{-1} cm^{-2} A^{-1}`, `JY/BEAM`.

    Names may be in capitals or plural; FLAM16 (KCWI) is 1e-16 erg/s/cm2/Angstrom. Raises ValueError for text that is
    no unit.
    """
    text = text.strip()
    for pattern, replacement in _TEX:
        text = re.sub(pattern, replacement, text)
    text = text.strip()
    whole = _WHOLE_POWER.match(text)
    if whole:
        return parse_unit(whole["inner"]) ** int(whole["power"])
    factor, number, rest = _FACTOR.match(text), 1.0, text
    if factor:  # such as `10**(-20)`, `1E-17` or `E-17`
        number, rest = float(factor["base"] or 10.0) ** int(factor["bracket"] or factor["bare"] or 1), factor["rest"]
    scale = math.prod(10.0 ** (-int(found[1] or 0) * int(found[2] or 1)) for found in _FLAM.finditer(rest))
    for found in reversed(list(_FLAM.finditer(rest))):
        power = int(found[2] or 1)
        words = f"(erg{power} s{-power} cm{-2 * power} Angstrom{-power})"
        rest = rest[: found.start()] + words + rest[found.end() :]
    rest = re.sub(r"[A-Za-zÅå]+", lambda word: _known_name(word[0]), rest)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", units.UnitsWarning)
        return units.Unit(number * scale * units.Unit(rest))


def in_unit(unit: units.UnitBase, other: units.UnitBase) -> float:
    """How many of `other` one `unit` is; raises astropy's UnitConversionError where they measure different things."""
    return np.asarray(units.Quantity(1.0, unit).to_value(other), dtype=np.float64).item()


@cache
def _names() -> dict[str, tuple[str, ...]]:
    found = dict[str, tuple[str, ...]]()
    for name in units.get_current_unit_registry().registry:
        found[name.lower()] = (*found.get(name.lower(), ()), name)
    return found


def _known_name(word: str) -> str:
    """How astropy spells a unit, whatever its case and number; the word itself where it knows none such."""
    lower = word.lower().replace("metre", "meter")
    for small in (lower, lower.removesuffix("s")):
        if small in _ALIASES:
            return _ALIASES[small]
        names = _names().get(small, ())
        if names:  # MJY is mega, mJy milli
            return max(names, key=lambda name: (name == word, name[0] == word[0]))
    return word


def flux_factor(
    unit: units.UnitBase, bins: WavelengthBins, pixel_scale: float, beam: float | Float[ndarray, " wave"] | None = None
) -> Float[ndarray, " wave"]:
    """The factor that turns a flux in `unit` into 1e-20 erg/s/cm2 per Angstrom of the cube's medium, per spaxel.

    A surface brightness is multiplied by the spaxel's area (`pixel_scale` in arcsec), a flux per beam by that area over
    the solid angle of the `beam` (arcsec2, of all bins or each; None: not known), a flux per Hz by
    c / lambda^2 at the vacuum wavelength (and by d lambda_vac / d lambda_air for a cube in air).
    Raises ValueError for a unit that is not one of a flux density or surface brightness.
    """
    vacuum = bins.to_vacuum(bins.wavelength)
    areas = [(units.dimensionless_unscaled, 1.0), (units.pix, 1.0), (units.arcsec**2, pixel_scale**2)]
    areas += [] if beam is None else [(units.beam, pixel_scale**2 / beam)]
    for per, area in areas:
        density = units.Unit(unit * per)
        if density.is_equivalent(F_LAMBDA):
            return np.ones(bins.n_wave) * in_unit(density, F_LAMBDA) * area
        if density.is_equivalent(F_NU):
            stretch = air.vacuum_per_air(vacuum) if bins.medium == "air" else 1.0
            per_angstrom = SPEED_OF_LIGHT * ANGSTROM_PER_KM / vacuum**2 * stretch
            per_angstrom *= in_unit(units.Unit("erg / (s cm2 Angstrom)"), F_LAMBDA)
            return in_unit(density, F_NU) * area * per_angstrom
    raise ValueError(f"'{unit}' is neither a flux per Angstrom (or Hz) and spaxel nor a surface brightness")


def plain_flux(
    values: Any, bins: WavelengthBins, pixel_scale: float, place: str, power: int = 1
) -> tuple[Any, Bool[ndarray, "..."] | bool]:
    """Fluxes (y, x, wave) without unit and mask, and where they are masked: a quantity in 1e-20 erg/s/cm2/Angstrom.

    `power`: 2 for variances. Raises ValueError that names `place` for another physical type.
    """
    data, mask = split_mask(values)
    quantity = as_quantity(data)
    if quantity is None:
        return plain_array(data, "", place), mask
    try:
        factor = flux_factor(quantity.unit ** (1 / power), bins, pixel_scale)
    except ValueError as error:
        of = "" if power == 1 else f" to the power {power}"
        raise ValueError(f"{place}: expected a flux density{of}, got a quantity in {quantity.unit}: {error}") from error
    return quantity.value * factor**power, mask
