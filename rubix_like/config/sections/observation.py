"""Settings of an observation: several pointings, and the radius of its alignment."""

import math
import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from rubix_like.config.quantities import Arcsec, Degree, parse_number, parse_quantity
from rubix_like.config.settings import AbstractSettings
from rubix_like.galaxy.radius import Radius


def parse_radius(value: object) -> Radius:
    """The radius in `value`: a bare number in half-mass radii, or text with a unit of length; above 0.

    Raises ValueError for anything else.
    """
    if isinstance(value, Radius):
        return value
    words = f"expected a number of half-mass radii (e.g. 2) or a length (e.g. '5 kpc') above 0, got {value!r}"
    try:
        radius = Radius(parse_number(value))
    except ValueError:
        try:
            radius = Radius(parse_quantity(value, "kpc"), in_kpc=True)
        except ValueError as error:
            raise ValueError(words) from error
    if not 0 < radius.number < math.inf:
        raise ValueError(words)
    return radius


class _Parsed:
    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            parse_radius, serialization=core_schema.plain_serializer_function_ser_schema(Radius.written)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        number = {"type": "number", "exclusiveMinimum": 0, "description": "in half-mass radii of the stars"}
        return {"anyOf": [number, {"type": "string", "description": "number and unit of length, e.g. '5 kpc'"}]}


AlignRadius = Annotated[Radius, _Parsed()]

Displacement = Annotated[Arcsec, Field(ge=-3600, le=3600)]


def _check_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", name):
        raise ValueError(
            f"expected letters, digits, '.', '_', '+' and '-', the first a letter or digit (it ends the name of a "
            f"file), got '{name}'"
        )
    return name


class PointingSettings(AbstractSettings):
    """One pointing: where its field lies, and how it is turned."""

    offset: tuple[Displacement, Displacement] = (0.0, 0.0)
    """(East, North) of this field's centre from `observation.ra`, `.dec` in arcsec, in the plane that touches the sky
    there; at most one degree."""
    field_angle: Degree | None = None
    """deg; of this field's +y axis, from North (at `observation.ra`, `.dec`) through East; null:
    `observation.field_angle`."""
    name: Annotated[str, Field(max_length=60), AfterValidator(_check_name)] | None = None
    """Ends the name of its file: letters, digits, '.', '_', '+', '-'; null: its number, from 1."""


def labels(pointings: tuple[PointingSettings, ...]) -> tuple[str, ...]:
    """What the pointings are called: their names, or their numbers from 1."""
    return tuple(pointing.name or str(number) for number, pointing in enumerate(pointings, start=1))


def _check_labels(pointings: tuple[PointingSettings, ...]) -> tuple[PointingSettings, ...]:
    """Refuse two pointings whose files would have one name, also where names ignore case."""
    names = labels(pointings)
    twice = sorted({name for name in names if [other.lower() for other in names].count(name.lower()) > 1})
    if twice:
        raise ValueError(
            f"expected a name of its own for each pointing, got {', '.join(repr(name) for name in twice)} more than "
            f"once (a pointing without a name is called by its number)"
        )
    return pointings


Pointings = Annotated[tuple[PointingSettings, ...], Field(min_length=1), AfterValidator(_check_labels)]
"""At least one pointing; their names differ."""
