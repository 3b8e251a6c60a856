"""Types of settings that are numbers: quantities with a unit, plain numbers and integers.

A quantity is written as text with any convertible unit ("0.8 arcsec", "2 arcmin") or as a bare number in the unit
that the type states; inside the package it is a float in that unit. Numeric text ("1e5") counts as a number.
"""

import functools
import math
import re
import warnings
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from pathlib import PurePath
from typing import Annotated, Any, Protocol, runtime_checkable

import numpy as np
from astropy import units
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, PydanticKnownError, PydanticSerializationUnexpectedValue, core_schema

from rubix_like.arguments import expect_fields, named_arguments
from rubix_like.errors import came
from rubix_like.physics.units import as_quantity, plain_numbers

WITH_UNITS: str = "with_units"
"""Key of the serialisation context that makes quantities come out as text with their unit."""

OLDEST: float = 2e4
"""Myr: the largest age of stars that a setting in Myr can name, the oldest of SSP libraries (log age 10.3)."""

_NUMBER_AND_UNIT = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([^\d\s.].*?)\s*$")


@dataclass(frozen=True)
class InUnit:
    """Marks a float setting as a quantity in `unit`: `Annotated[float, InUnit("arcsec")]`; with `many`, one that may
    also be a list of quantities."""

    unit: str
    many: bool = False

    def __post_init__(self) -> None:
        expect_fields(self)
        units.Unit(self.unit)  # ValueError for an unknown one

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(
            self._parse,
            handler(source),
            serialization=core_schema.plain_serializer_function_ser_schema(self._serialize, info_arg=True),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        text = {"type": "string", "description": f"number and unit, e.g. '1 {self.unit}'"}
        number = {"type": "number", "description": f"in {self.unit}"}
        listed = {"type": "array", "items": {"anyOf": [number, text]}, "minItems": 1}
        return {"anyOf": [number, text, *([listed] if self.many else [])]}

    def _parse(self, value: object) -> float | list[float]:
        if self.many and isinstance(value, list | tuple):
            return [_number_of(item, self.unit) for item in value]
        return _number_of(value, self.unit)

    def _serialize(self, value: float | tuple[float, ...], info: Any) -> Any:
        if isinstance(value, tuple):
            return [self._serialize(number, info) for number in value]
        if isinstance(value, BaseModel):
            raise PydanticSerializationUnexpectedValue("a section")  # the next member of the union writes it
        return f"{value!r} {self.unit}" if (info.context or {}).get(WITH_UNITS) else value


@dataclass(frozen=True)
class Within:
    """Limits of a setting that is one number or a list of one or more: each is from `ge` to `le`."""

    ge: float
    le: float

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def _check(self, value: float | tuple[float, ...]) -> float | tuple[float, ...]:
        if value == ():
            raise PydanticKnownError("too_short", {"field_type": "List", "min_length": 1, "actual_length": 0})
        if min(as_tuple(value)) < self.ge:
            raise PydanticKnownError("greater_than_equal", {"ge": self.ge})
        if max(as_tuple(value)) > self.le:
            raise PydanticKnownError("less_than_equal", {"le": self.le})
        return value


@named_arguments
def parse_quantity(value: object, unit: str, place: str = "") -> float:
    """The number of `unit` in `value`: a number, numeric text, text with a unit, or an astropy Quantity.

    Raises ValueError, which begins with `place`, for another physical type, for text that is no quantity and for what
    is not finite; also for a unit that does not exist.
    """
    if not is_unit(unit):
        raise ValueError(f"unit: expected one that astropy.units knows, such as 'kpc', got '{unit}'")
    return _number_of(value, unit, place)


def _number_of(value: object, unit: str, place: str = "") -> float:
    begin = f"{place}: " if place else ""
    example = unit if unit[:1].isdigit() else f"0.8 {unit}"  # the unit may have a number before it, 1e-20 erg / (s cm2)
    expected = f"{begin}expected a quantity in {unit} (e.g. '{example}'), got {value!r}"
    number = number_in(value)
    if number is None:
        try:
            number = np.asarray(plain_numbers(_as_array(value), unit, ""), dtype=np.float64).item()
        except (TypeError, ValueError) as error:
            is_quantity = number_in(unit) is not None or (unit[:1].isdigit() and unit.endswith(str(value)))
            if isinstance(value, str) and value not in ("", unit) and is_unit(value) and is_quantity:
                expected = f"value: expected a quantity, got a unit; swap them: parse_quantity({unit!r}, {value!r})"
            raise ValueError(expected) from error
    if not math.isfinite(number):
        raise ValueError(f"{begin}expected a finite quantity in {unit}, got {value!r}")
    return number


def parse_pair(values: Any, unit: str, place: str, meaning: str) -> tuple[float, float]:
    """Two numbers of `unit`, as `parse_quantity` reads each; raises ValueError that names `place` for others."""
    unordered = isinstance(values, str | bytes | Mapping | Set) or getattr(values, "shape", None) == ()
    pair = () if unordered or not isinstance(values, Iterable) else tuple(values)
    if len(pair) != 2:
        raise ValueError(f"{place}: expected {meaning}, each with a unit or in {unit}, got {values!r}")
    return parse_quantity(pair[0], unit, place), parse_quantity(pair[1], unit, place)


def is_unit(text: object) -> bool:
    """Whether quantities can be in this unit: one that astropy knows, or none ("")."""
    if not isinstance(text, str):
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", units.UnitsWarning)
        try:
            _unit(text)
        except ValueError:
            return False
    return True


def parse_number(value: object) -> float:
    """A finite float from a number or numeric text; raises ValueError for anything else, also for true and false."""
    expected = f"expected a finite number, got {value!r}"
    number = number_in(value)
    if number is None:
        try:
            number = parse_quantity(value, "")
        except ValueError as error:
            raise ValueError(expected) from error
    if not math.isfinite(number):
        raise ValueError(expected)
    return number


def parse_integer(value: object) -> int:
    """An integer from an integer, a whole float or numeric text ("5e4"); raises ValueError for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lstrip("+-").isdecimal():
        return int(value)
    number = number_in(value)
    if number is None or not number.is_integer():
        raise ValueError(f"expected a whole number, got {value!r}")
    return int(number)


def number_in(value: object) -> float | None:
    """`value` as a float where it is a bare number or numeric text, else None."""
    if isinstance(value, bool) or not isinstance(value, str | Real):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _as_array(value: object) -> np.ndarray:
    """An array of numbers as it is, or a quantity from text of a number and a unit; raises ValueError for others."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "iuf":
        return value
    match = _NUMBER_AND_UNIT.match(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("not a number with a unit")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", units.UnitsWarning)  # of several slashes, as everybody writes erg/s/cm2
        return float(match[1]) * _unit(match[2])


@runtime_checkable
class _Array(Protocol):
    """Arrays of numpy and of JAX, which takes a second to import."""

    def __array__(self, dtype: Any = None) -> np.ndarray:
        """Convert the numbers to a numpy array."""
        ...


_PLAIN = (str, bool, int, float, type(None))
"""Types of most values of a configuration: looked at first, for to ask whether a value is an `_Array` takes 20 times as
long."""


def as_yaml_values(value: Any, place: str) -> Any:
    """Arrays, quantities and paths, also in lists and sections, as YAML has them: lists, texts with a unit, and texts.

    Raises ValueError that names `place` for masked values, tables and open HDF5 files.
    """
    is_open_file = isinstance(value, Mapping) and type(value).__module__.startswith("h5py.")
    if is_open_file or getattr(getattr(value, "dtype", None), "names", None) is not None:
        raise ValueError(
            f"{place}: expected numbers, texts or paths, got {came(value)}; save it as a file, and give its path"
        )
    if isinstance(value, Mapping):
        return {key: as_yaml_values(below, f"{place}.{key}") for key, below in value.items()}
    if type(value) in (list, tuple):
        return type(value)(as_yaml_values(part, place) for part in value)
    if isinstance(value, PurePath):
        return str(value)
    if type(value) in _PLAIN or not isinstance(value, _Array) or isinstance(value, BaseModel | type):
        return value
    quantity = as_quantity(value)
    if quantity is None:
        return np.asarray(plain_numbers(value, "", place)).tolist()
    unit = quantity.unit
    if not isinstance(unit, units.UnitBase):  # logarithmic, as of astropy.units.Magnitude
        raise ValueError(f"{place}: expected a number with a plain unit, got {value}; give e.g. 2 * astropy.units.mag")
    numbers = np.asarray(plain_numbers(value, unit, place)) * unit.scale
    return _texts(numbers.tolist(), units.CompositeUnit(1.0, unit.bases, unit.powers).to_string(fraction=False))


def _texts(numbers: Any, unit: str) -> Any:
    return [_texts(number, unit) for number in numbers] if isinstance(numbers, list) else f"{numbers!r} {unit}"


def as_tuple(value: Any) -> Any:
    """A value that may also be given alone as the list that a setting holds; lists and null pass."""
    return value if isinstance(value, list | tuple) or value is None else (value,)


Texts = Annotated[tuple[str, ...], BeforeValidator(as_tuple)]
"""One text or a list of them."""


def one_or_many(schema: dict[str, Any]) -> WithJsonSchema:
    """JSON schema of one quantity or a list of them, the list's length limited by `schema`."""
    quantity = [{"type": "number"}, {"type": "string"}]
    return WithJsonSchema({"anyOf": [*quantity, {"type": "array", "items": {"anyOf": quantity}, **schema}]})


_NUMERIC_TEXT = {"type": "string", "description": "numeric text, e.g. '1e5'"}

Number = Annotated[float, BeforeValidator(parse_number), WithJsonSchema({"anyOf": [{"type": "number"}, _NUMERIC_TEXT]})]
"""A finite number without a unit."""

Integer = Annotated[
    int, BeforeValidator(parse_integer), WithJsonSchema({"anyOf": [{"type": "integer"}, _NUMERIC_TEXT]})
]
"""A whole number; true and false are refused."""


def _check_increasing(value: tuple[float, ...]) -> tuple[float, ...]:
    if any(low >= high for low, high in pairwise(value)):
        raise ValueError(f"expected increasing wavelengths, got {list(value)}")
    return value


Arcsec = Annotated[float, InUnit("arcsec")]
Degree = Annotated[float, InUnit("deg")]
Angstrom = Annotated[float, InUnit("Angstrom")]
PositiveAngstrom = Annotated[Angstrom, Field(gt=0)]
Wavelengths = Annotated[tuple[PositiveAngstrom, ...], Field(min_length=2), AfterValidator(_check_increasing)]
Kms = Annotated[float, InUnit("km/s")]
Kpc = Annotated[float, InUnit("kpc")]
Mpc = Annotated[float, InUnit("Mpc")]
Msun = Annotated[float, InUnit("Msun")]
Gyr = Annotated[float, InUnit("Gyr")]
Myr = Annotated[float, InUnit("Myr")]
Dex = Annotated[float, InUnit("dex")]
Mag = Annotated[float, InUnit("mag")]
Second = Annotated[float, InUnit("s")]
SquareMetre = Annotated[float, InUnit("m2")]

Sizes = Annotated[
    tuple[Annotated[Arcsec, Field(gt=0)], ...],
    BeforeValidator(as_tuple),
    Field(min_length=1, max_length=2),
    one_or_many({"minItems": 1, "maxItems": 2}),
]
"""One side in arcsec, or both."""


def check_unit(text: str) -> str:
    """The unit as given; raises ValueError where astropy does not know it."""
    try:
        units.Unit(text)
    except (ValueError, TypeError) as error:
        raise ValueError(f"expected a unit that astropy knows, such as 'kpc' or '1e10 Msun', got '{text}'") from error
    return text


def check_equivalent(quantity: str, text: str, expected: str) -> None:
    """Raise ValueError unless the unit `text` is one of `quantity`, which is read into `expected`."""
    if not _unit(text).is_equivalent(_unit(expected)):
        raise ValueError(f"{quantity}: expected a unit of {expected or 'a pure number'}, got '{text}'")


@functools.lru_cache(maxsize=256)
def _unit(text: str) -> units.UnitBase:
    """A unit by its text; field maps have the same few many times."""
    return units.Unit(text)
