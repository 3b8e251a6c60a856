"""From stored numbers to our units: unit x a^a x h^h, from the field map or the dataset's own attributes."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from astropy import units

from rubix_like.readers.container import AbstractContainer, as_number
from rubix_like.readers.epoch import Epoch
from rubix_like.readers.field_map import QUANTITIES, FieldMap, FieldSettings

SAME_UNIT: float = 0.01
"""A CGS factor within 1 % of the field map's unit is that unit: codes round the solar mass (1.989e33 or 2e33 g) and the
parsec (3.08e18 cm) when they write the factor, not when they define the unit."""


@dataclass(frozen=True)
class Conversion:
    """value = stored x `unit_factor` x a^`a` x h^`h` in the unit `to_unit`; `origin` says where that was stated."""

    quantity: str
    unit: str
    to_unit: str
    unit_factor: float
    a: float
    h: float
    origin: Literal["field map", "attributes of the file"]
    remark: str = ""

    def factor(self, epoch: Epoch) -> float:
        """The number that stored values are multiplied by; raises ValueError for one that is no positive number."""
        try:
            factor = self.unit_factor * epoch.scale_factor**self.a * epoch.h**self.h
        except (OverflowError, ZeroDivisionError):
            factor = np.inf
        if not (np.isfinite(factor) and factor > 0):
            raise ValueError(
                f"{self.quantity}: expected a positive factor to {self.to_unit or 'a pure number'}, got "
                f"{self.unit_factor:g} x {epoch.scale_factor:g}^{self.a:g} x {epoch.h:g}^{self.h:g} from the "
                f"{self.origin}; correct the header of the file or the field map"
            )
        return factor


def find_conversion(
    quantity: str, field: FieldSettings, place: str, container: AbstractContainer, field_map: FieldMap
) -> Conversion:
    """The conversion of the dataset at `place`: its own attributes go before the field map, unless told otherwise."""
    stated = _from_map(quantity, field)
    attributes = field_map.attributes
    if attributes is None or field.trust == "map":
        return stated
    a, h, cgs = (as_number(container.attribute(place, name)) for name in (attributes.a, attributes.h, attributes.cgs))
    if a is None or h is None:
        return stated
    factor = _unit_factor(cgs, stated)
    unit = field.unit if factor == stated.unit_factor else f"{cgs:.6g} CGS"
    differs = [
        f"{name} {theirs:g} instead of {ours:g}"
        for name, theirs, ours in (("a^", a, field.a), ("h^", h, field.h))
        if theirs != ours
    ]
    if factor != stated.unit_factor:
        differs.append(f"{unit} instead of {field.unit or 'a pure number'}")
    remark = f"the file states {' and '.join(differs)} of the field map" if differs else ""
    return Conversion(quantity, unit, stated.to_unit, factor, a, h, "attributes of the file", remark)


def _from_map(quantity: str, field: FieldSettings) -> Conversion:
    to_unit = QUANTITIES[quantity]
    factor = _factor(field.unit, to_unit)
    return Conversion(quantity, field.unit, to_unit, factor, field.a, field.h, "field map")


def _unit_factor(cgs: float | None, stated: Conversion) -> float:
    """From a CGS factor (0 stands for a pure number in TNG) to our unit; the stated one where they are the same."""
    if not cgs:
        return stated.unit_factor
    base = units.Quantity(1.0, stated.to_unit).cgs.unit
    factor = cgs / _factor(stated.to_unit, base)
    return stated.unit_factor if abs(factor / stated.unit_factor - 1.0) < SAME_UNIT else factor


def _factor(unit: str, to_unit: Any) -> float:
    return np.asarray(units.Quantity(1.0, unit).to_value(to_unit), dtype=np.float64).item()
