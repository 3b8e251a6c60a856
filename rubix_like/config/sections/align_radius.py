"""The setting `observation.align_radius`: in half-mass radii of the stars, or a length."""

import math
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from rubix_like.config.quantities import parse_number, parse_quantity
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
    """How pydantic reads and writes a radius."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            parse_radius, serialization=core_schema.plain_serializer_function_ser_schema(Radius.written)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        number = {"type": "number", "exclusiveMinimum": 0, "description": "in half-mass radii of the stars"}
        return {"anyOf": [number, {"type": "string", "description": "number and unit of length, e.g. '5 kpc'"}]}


AlignRadius = Annotated[Radius, _Parsed()]
