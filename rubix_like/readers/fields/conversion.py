"""Convert stored numbers to our units: unit x a^a x h^h, from the field map or the dataset's own attributes."""

import functools
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from astropy import units

from rubix_like.readers.containers.container import AbstractContainer, as_number, as_text
from rubix_like.readers.fields.epoch import Epoch, first_number
from rubix_like.readers.fields.field_map import QUANTITIES, AttributeSettings, FieldMap, FieldSettings, HeaderSettings

SAME_UNIT: float = 0.01
"""A CGS factor within 1 % of the field map's unit is that unit: codes round the solar mass (1.989e33 or 2e33 g) and the
parsec (3.08e18 cm) when they write the factor, not when they define the unit."""

CODE_UNITS: dict[str, tuple[int, int, int]] = {
    "position": (1, 0, 0),
    "smoothing_length": (1, 0, 0),
    "mass": (0, 1, 0),
    "initial_mass": (0, 1, 0),
    "dust_mass": (0, 1, 0),
    "density": (-3, 1, 0),
    "velocity": (0, 0, 1),
    "internal_energy": (0, 0, 2),
    "birth_time": (1, 0, -1),
}
"""Powers of the run's own units of length, mass and velocity in what is stored in them."""


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
    """The conversion of the dataset at `place`: its own attributes go before the field map, unless told otherwise.

    Where it has none, the run's units in the header do. A quotient of two datasets, and a fraction of another quantity,
    are as the field map says.
    """
    to_unit = QUANTITIES[quantity]
    factor = _factor(field.unit, to_unit if field.fraction_of is None else "")
    stated = Conversion(quantity, field.unit, to_unit, factor, field.a, field.h, "field map")
    if field.trust == "file" and field.divide_by is None and field.fraction_of is None:
        stated = _from_file(stated, field, place, container, field_map)
    if field.times == 1.0:
        return stated
    return replace(stated, unit=f"{field.times:g} {stated.unit}", unit_factor=stated.unit_factor * field.times)


def _from_file(
    stated: Conversion, field: FieldSettings, place: str, container: AbstractContainer, field_map: FieldMap
) -> Conversion:
    names = field_map.attributes
    if names is not None and names.unit:
        return _as_named(stated, as_text(container.attribute(place, names.unit)), f"{container.name}: {place}")
    found = _attributes(place, container, names)
    if found is None:
        cgs = _code_unit(stated.quantity, container, field_map.header)
        if cgs is None:
            return stated
        found = field.a, field.h, cgs
    a, h, cgs = found
    _check_known(cgs, stated, place, container, field_map)
    factor = _unit_factor(cgs, stated)
    unit = field.unit if factor == stated.unit_factor else f"{cgs:.6g} CGS"
    differs = [
        f"{name} {in_file:g} instead of {in_map:g}"
        for name, in_file, in_map in (("a^", a, field.a), ("h^", h, field.h))
        if in_file != in_map
    ]
    if factor != stated.unit_factor:
        differs.append(f"{unit} instead of {field.unit or 'a pure number'}")
    remark = f"the file states {' and '.join(differs)} of the field map" if differs else ""
    return replace(stated, unit=unit, unit_factor=factor, a=a, h=h, origin="attributes of the file", remark=remark)


def _check_known(
    cgs: float | None, stated: Conversion, place: str, container: AbstractContainer, field_map: FieldMap
) -> None:
    """Raise ValueError where a dataset's CGS factor is not that of its simulation, which is known."""
    if not cgs or not field_map.fixed_units:
        return
    known = _code_unit(stated.quantity, container, field_map.header) or stated.unit_factor * _in_cgs(stated.to_unit)
    if not abs(cgs / known - 1.0) < SAME_UNIT:
        raise ValueError(
            f"{container.name}: {place}: expected a CGS factor of {known:.6g}, which is that of {field_map.title}, got "
            f"{cgs:.6g} in its attributes; download the file again, or describe it by a field map of your own"
        )


def _attributes(
    place: str, container: AbstractContainer, names: AttributeSettings | None
) -> tuple[float, float, float | None] | None:
    """Powers of a and h and CGS factor in a dataset's own attributes, None where it has no powers."""
    if names is None:
        return None
    a, h = (as_number(container.attribute(place, name)) for name in (names.a, names.h))
    if a is None or h is None:
        return None
    if names.physical and as_number(container.attribute(place, names.physical)) == 1:
        a, h = 0.0, 0.0
    factors = (as_number(container.attribute(place, name)) for name in names.cgs)
    return a, h, next((factor for factor in factors if factor is not None), None)


def _as_named(stated: Conversion, unit: str, place: str) -> Conversion:
    """The conversion with the unit that a dataset names, if it names one; raises ValueError where it is of another
    kind."""
    if not unit:
        return stated
    try:
        factor = _factor(unit, stated.to_unit)
    except (ValueError, TypeError) as error:
        expected = stated.to_unit or "a pure number"
        raise ValueError(f"{place}: expected a unit of {expected} in its attributes, got '{unit}'") from error
    remark = "" if factor == stated.unit_factor else f"the file states {unit} instead of {stated.unit} of the field map"
    return replace(stated, unit=unit, unit_factor=factor, origin="attributes of the file", remark=remark)


def _code_unit(quantity: str, container: AbstractContainer, header: HeaderSettings) -> float | None:
    """CGS factor of a quantity stored in the run's units, None where the header does not state them."""
    if quantity not in CODE_UNITS:
        return None
    length, mass, velocity, time = (
        first_number(container, places)
        for places in (header.unit_length, header.unit_mass, header.unit_velocity, header.unit_time)
    )
    if velocity is None and length and time:
        velocity = length / time
    result = 1.0
    for stated, power in zip((length, mass, velocity), CODE_UNITS[quantity], strict=True):
        if power and (stated is None or stated <= 0):
            return None
        result *= stated**power if stated and power else 1.0
    return result


def _unit_factor(cgs: float | None, stated: Conversion) -> float:
    """The factor to our unit from a CGS factor (0 stands for a pure number in TNG); the stated one if they agree."""
    if not cgs:
        return stated.unit_factor
    factor = cgs / _in_cgs(stated.to_unit)
    return stated.unit_factor if abs(factor / stated.unit_factor - 1.0) < SAME_UNIT else factor


@functools.lru_cache(maxsize=256)
def _in_cgs(unit: str) -> float:
    """CGS units in one `unit`; kept, as it is asked for with every slab and astropy takes milliseconds."""
    whole = units.Quantity(1.0, unit)
    return np.asarray(whole.to_value(whole.cgs.unit), dtype=np.float64).item()


@functools.lru_cache(maxsize=256)
def _factor(unit: str, to_unit: str) -> float:
    """How many `to_unit` one `unit` is; kept as `_in_cgs` is."""
    return np.asarray(units.Quantity(1.0, unit).to_value(to_unit), dtype=np.float64).item()
