"""Units of observed fluxes, as files write them, and the factors to ours."""

import re
import warnings
from typing import Any

import numpy as np
from astropy import units
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.constants import ANGSTROM_PER_KM, CUBE_FLUX_UNIT, SPEED_OF_LIGHT
from rubix_like.cube.bins import WavelengthBins
from rubix_like.physics import air
from rubix_like.physics.units import as_quantity, in_plain_unit, split_mask

F_LAMBDA = units.Unit(CUBE_FLUX_UNIT / units.Angstrom)
F_NU = units.Unit("erg / (s cm2 Hz)")

_SPELLINGS: dict[str, str] = {
    r"(?:ergs|Erg|ERG|ERGS)": "erg",
    r"(?:sec|S|SEC)": "s",
    r"CM": "cm",
    r"(?:A|Å|Ang|ang|ANG|Angstroms|angstroms|ANGSTROM|Angstroem)": "Angstrom",
    r"(?:spaxel|spaxels|spax|Spaxel|pixel|pixels|PIXEL|SPAXEL)": "pix",
    r"(?:microJy|MICROJY)": "uJy",
}
"""How files spell what astropy knows by another name; A is never ampere in a flux."""

_WHOLE_POWER = re.compile(r"^\((?P<inner>.*)\)\s*(?:\*\*|\^)\s*[({]?\s*(?P<power>[-+]?\d+)\s*[)}]?$")
_FACTOR = re.compile(
    r"^(?P<base>\d+\.?\d*(?:[eE][-+]?\d+)?)"
    r"(?:\s*(?:\*\*|\^|(?=[-+]))\s*(?:\(\s*(?P<bracket>[-+]?\d+)\s*\)|(?P<bare>[-+]?\d+)))?"
    r"\s*(?:\*(?!\*))?\s*(?P<rest>.*)$"
)
_FLAM = re.compile(r"\bFLAM(\d*)\b")
_LETTERS = str.maketrans("0123456789", "abcdefghij")
"""Names of units must not have digits."""


def parse_unit(text: str) -> units.UnitBase:
    """The unit that a header means by BUNIT: `1E-17 erg/s/cm^2/Ang/spaxel`, `10**(-20)*erg/s/cm**2/Angstrom`, `FLAM16`.

    FLAM16 (KCWI) is 1e-16 erg/s/cm2/Angstrom. Raises ValueError for text that is no unit.
    """
    text = text.strip()
    whole = _WHOLE_POWER.match(text)
    if whole:
        return parse_unit(whole["inner"]) ** int(whole["power"])
    factor = _FACTOR.match(text)
    number, rest = (_number(factor), factor["rest"]) if factor else (1.0, text)
    scales = {found[1]: float(f"1e-{found[1] or 0}") for found in _FLAM.finditer(rest)}
    rest = _FLAM.sub(lambda found: f"FLAM{found[1].translate(_LETTERS)}", rest)
    for spelling, name in _SPELLINGS.items():
        rest = re.sub(rf"(?<![A-Za-zÅ]){spelling}(?![A-Za-zÅ])", name, rest)
    per_angstrom = units.Unit("erg / (s cm2 Angstrom)")
    own = [units.def_unit(f"FLAM{n.translate(_LETTERS)}", scale * per_angstrom) for n, scale in scales.items()]
    with warnings.catch_warnings(), units.add_enabled_units(own):
        warnings.simplefilter("ignore", units.UnitsWarning)
        return units.Unit(number * units.Unit(rest))


def in_unit(unit: units.UnitBase, other: units.UnitBase) -> float:
    """How many of `other` one `unit` is; raises astropy's UnitConversionError where they measure different things."""
    return np.asarray(units.Quantity(1.0, unit).to_value(other), dtype=np.float64).item()


def _number(factor: re.Match[str]) -> float:
    """The value of a factor such as `10**(-20)` or `1E-17`."""
    power = factor["bracket"] or factor["bare"]
    return float(factor["base"]) if power is None else float(factor["base"]) ** int(power)


def flux_factor(
    unit: units.UnitBase, bins: WavelengthBins, pixel_scale: float, beam: float | None = None
) -> Float[ndarray, " wave"]:
    """What turns a flux in `unit` into 1e-20 erg/s/cm2 per Angstrom of the cube's medium, per spaxel.

    A surface brightness is multiplied by the spaxel's area (`pixel_scale` in arcsec), a flux per beam by that area over
    the solid angle of the `beam` (arcsec2; None: not known), a flux per Hz by
    c / lambda^2 at the vacuum wavelength (and by d lambda_vac / d lambda_air for a cube in air).
    Raises ValueError for a unit that is not one of a flux density or surface brightness.
    """
    areas = [(units.dimensionless_unscaled, 1.0), (units.pix, 1.0), (units.arcsec**2, pixel_scale**2)]
    areas += [] if beam is None else [(units.beam, pixel_scale**2 / beam)]
    for per, area in areas:
        own = units.Unit(unit * per)
        if own.is_equivalent(F_LAMBDA):
            return np.full(bins.n_wave, in_unit(own, F_LAMBDA) * area)
        if own.is_equivalent(F_NU):
            return in_unit(own, F_NU) * area * _per_angstrom(bins)
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
        return in_plain_unit(data, "", place), mask
    try:
        factor = flux_factor(quantity.unit ** (1 / power), bins, pixel_scale)
    except ValueError as error:
        of = "" if power == 1 else f" to the power {power}"
        raise ValueError(f"{place}: expected a flux density{of}, got a quantity in {quantity.unit}: {error}") from error
    return quantity.value * factor**power, mask


def _per_angstrom(bins: WavelengthBins) -> Float[ndarray, " wave"]:
    """1 erg/s/cm2/Hz in units of 1e-20 erg/s/cm2 per Angstrom of the medium."""
    vacuum = bins.to_vacuum(bins.wavelength)
    stretch = air.vacuum_per_air(vacuum) if bins.medium == "air" else 1.0
    per_angstrom = SPEED_OF_LIGHT * ANGSTROM_PER_KM / vacuum**2 * stretch
    return per_angstrom * in_unit(units.Unit("erg / (s cm2 Angstrom)"), F_LAMBDA)
