"""The epoch of a snapshot: scale factor, Hubble parameter, cosmology, and the periodic box."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from astropy import units
from numpy import ndarray

from rubix_like.physics.cosmology import MatterAndLambda, snapshot_cosmology
from rubix_like.readers.containers.container import AbstractContainer, as_number, as_text
from rubix_like.readers.fields.field_map import QUANTITIES, FieldMap, FieldSettings, HeaderSettings

SAME_TIME: float = 1e-3
"""How far two statements of one scale factor or time may differ, as a ratio."""

ROUNDING: float = 1e-4
"""How far a scale factor may be above 1: the last step of a run may end a little after redshift 0."""


@dataclass(frozen=True)
class Epoch:
    """Scale factor and h (1 for a run without expansion), the snapshot's `time` as stored, cosmology and box.

    `box_size`: the three sides as stored (unit of the stars' position), None where nothing is periodic. `cosmology` is
    None for a run without expansion; `is_isolated` where the header, or the field map, says that it is one.
    """

    scale_factor: float
    h: float
    time: float
    box_size: tuple[float, float, float] | None
    cosmology: MatterAndLambda | None
    cosmology_text: str
    simulation: str
    is_isolated: bool = False

    @property
    def redshift(self) -> float | None:
        """1 / a - 1; None for a run without expansion."""
        return None if self.cosmology is None else 1 / self.scale_factor - 1

    @property
    def universe_age(self) -> float | None:
        """Age of the Universe in yr, None for a run without expansion."""
        return None if self.cosmology is None else self.cosmology.age(1 / self.scale_factor - 1)


def read_epoch(container: AbstractContainer, field_map: FieldMap) -> Epoch:
    """The epoch in the header of a file; raises ValueError where something is missing or impossible."""
    header = field_map.header
    simulation = next((text for place in header.simulation if (text := as_text(_stored(container, place)))), "")
    box_size = _box_size(container, header.box_size)
    expands = _expands(container, field_map)
    if not expands:
        h = first_number(container, header.h) or 1.0
        time = first_number(container, header.time) or 0.0
        text = "none (a run without expansion)"
        return Epoch(1.0, h, time, box_size, None, text, simulation, is_isolated=expands is not None)
    scale_factor = _scale_factor(container, field_map)
    h, omega_m = _needed(container, field_map, "h"), _needed(container, field_map, "omega_m")
    omega_l = first_number(container, header.omega_l) if header.flat else _needed(container, field_map, "omega_l")
    omega_l = 1.0 - omega_m if omega_l is None else omega_l
    text = f"H0={100 * h:g}, Omega_m={omega_m:g}, Omega_Lambda={omega_l:g} (snapshot)"
    try:
        cosmology = snapshot_cosmology(h, omega_m, omega_l)
    except ValueError as error:
        raise ValueError(f"{container.name}: {error}") from error
    return Epoch(scale_factor, h, scale_factor, box_size, cosmology, text, simulation)


def _box_size(container: AbstractContainer, places: tuple[str, ...]) -> tuple[float, float, float] | None:
    """Sides of the periodic box as stored; None where they are 0 or not stated. Raises ValueError for other numbers."""
    stated = next((place for place in places if _stored(container, place) is not None), None)
    if stated is None:
        return None
    stored = _stored(container, stated)
    sides = [side for side in map(as_number, np.asarray(stored).reshape(-1)) if side is not None and side >= 0]
    if len(sides) == 1:
        sides *= 3
    if len(sides) != 3 or (min(sides) == 0 < max(sides)):
        raise ValueError(
            f"{container.name}: {stated}: expected the side of a periodic box, or its three sides, or 0 for none, got "
            f"{stored}; correct it, or download the file again"
        )
    x, y, z = sides
    return (x, y, z) if x else None


def side_words(sides: Sequence[float] | ndarray) -> str:
    """The side of a cubic box, or the three of another one."""
    texts = [f"{side:g}" for side in sides]
    return texts[0] if len(set(texts)) == 1 else " x ".join(texts)


def _expands(container: AbstractContainer, field_map: FieldMap) -> bool | None:
    """Whether the run is cosmological, by the field map or the header; None where neither tells.

    A scale factor and a redshift that agree prove it, unless the header states Omega_m = 0.
    """
    if field_map.expansion == "never":
        return False
    header = field_map.header
    stated = first_number(container, header.cosmological)
    if stated is not None:
        return stated > 0
    omega_m, time = first_number(container, header.omega_m), first_number(container, header.scale_factor)
    redshift = first_number(container, header.redshift)
    if omega_m == 0:
        return False
    differ = time is not None and redshift is not None and abs(time * (1.0 + redshift) - 1.0) >= SAME_TIME
    agree = time is not None and redshift is not None and not differ
    if field_map.expansion == "always" or agree:
        return True
    return None if omega_m is None else not differ


def _scale_factor(container: AbstractContainer, field_map: FieldMap) -> float:
    """The scale factor, or 1 / (1 + redshift) where it is missing."""
    header = field_map.header
    redshift = first_number(container, header.redshift)
    stored = first_number(container, header.scale_factor)
    if stored is None and (redshift is None or redshift <= -1):
        stored = _needed(container, field_map, "scale_factor")
    scale_factor = 1.0 / (1.0 + (redshift or 0.0)) if stored is None else stored
    group, _, name = header.scale_factor[0].rpartition("/")
    place = f"{container.name}: {group}" if group else f"header of the field map '{field_map.title}'"
    if not 0.01 < scale_factor <= 1.0 + ROUNDING:
        raise ValueError(
            f"{place}: expected a scale factor {name} in (0.01, 1], got {scale_factor}; "
            f"{field_map.title} is read as a cosmological simulation: is the file of another one?"
        )
    if redshift is not None and abs(scale_factor * (1.0 + redshift) - 1.0) > SAME_TIME:
        raise ValueError(
            f"{place}: expected scale factor = 1 / (1 + redshift), got {scale_factor} and redshift {redshift}; "
            f"correct the one that is wrong"
        )
    return min(scale_factor, 1.0)


def _needed(container: AbstractContainer, field_map: FieldMap, key: str) -> float:
    """The number at `header.KEY` of the field map; raises ValueError where there is none."""
    places = getattr(field_map.header, key)
    number = first_number(container, places)
    if number is not None:
        return number
    group, _, name = places[0].rpartition("/")
    also = {"scale_factor": " (or header.redshift)", "omega_l": " (or header.flat: true)"}.get(key, "")
    remedy = (
        f"download the file again as the simulation's team gives it, or correct header.{key}{also} in the field map "
        f"'{field_map.name}'"
    )
    if group not in container.groups():
        raise ValueError(f"{container.name}: no group {group}; {container.contents()}; {remedy}")
    found = ", ".join(sorted(container.attributes(group))) or "none"
    raise ValueError(f"{container.name}: {group} has no attribute {name} that is a number; it has {found}; {remedy}")


def first_number(container: AbstractContainer, places: tuple[str, ...]) -> float | None:
    """The first of several attributes that is a number."""
    return next((number for place in places if (number := as_number(_stored(container, place))) is not None), None)


def _stored(container: AbstractContainer, place: str) -> object:
    """The attribute at a place; a field map may state a number in place of an attribute's name."""
    try:
        return float(place)
    except ValueError:
        group, _, name = place.rpartition("/")
        return container.attribute(group, name)


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
"""Powers of the run's units of length, mass and velocity in what is stored in them."""


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
    """The conversion of the dataset at `place`: its attributes go before the field map, unless told otherwise.

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
    found, code_unit = None, None
    if names is not None:
        a, h = (as_number(container.attribute(place, name)) for name in (names.a, names.h))
        if names.physical and as_number(container.attribute(place, names.physical)) == 1 and None not in (a, h):
            a, h = 0.0, 0.0
        factors = (as_number(container.attribute(place, name)) for name in names.cgs)
        if a is not None and h is not None:
            found = a, h, next((factor for factor in factors if factor is not None), None)
    if found is None or field_map.fixed_units:
        code_unit = _code_unit(stated.quantity, container, field_map.header)
    if found is None and code_unit is None:
        return stated
    a, h, cgs = found or (field.a, field.h, code_unit)
    factor = stated.unit_factor
    if cgs:  # 0 stands for a pure number in TNG
        in_cgs = _in_cgs(stated.to_unit)
        known = code_unit or stated.unit_factor * in_cgs
        if field_map.fixed_units and not abs(cgs / known - 1.0) < SAME_UNIT:
            raise ValueError(
                f"{container.name}: {place}: expected a CGS factor of {known:.6g}, which is that of {field_map.title}, "
                f"got {cgs:.6g} in its attributes; download the file again, or describe it by a field map of your own"
            )
        factor = factor if abs(cgs / in_cgs / factor - 1.0) < SAME_UNIT else cgs / in_cgs
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


@functools.lru_cache(maxsize=256)
def _in_cgs(unit: str) -> float:
    """CGS units in one `unit`; kept, as it is asked for with every slab and astropy takes milliseconds."""
    whole = units.Quantity(1.0, unit)
    return np.asarray(whole.to_value(whole.cgs.unit), dtype=np.float64).item()


@functools.lru_cache(maxsize=256)
def _factor(unit: str, to_unit: str) -> float:
    """How many `to_unit` one `unit` is; kept as `_in_cgs` is."""
    return np.asarray(units.Quantity(1.0, unit).to_value(to_unit), dtype=np.float64).item()
