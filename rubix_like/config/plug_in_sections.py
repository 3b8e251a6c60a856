"""Sections of a configuration that plug-ins bring: each is read by the settings class of its plug-in."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

from pydantic import BaseModel, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema, ErrorDetails, InitErrorDetails, PydanticCustomError
from pydantic_core.core_schema import ErrorType

from rubix_like.config.settings import described_schema

if TYPE_CHECKING:
    from typing import LiteralString

Settings = TypeVar("Settings", bound=BaseModel)

Sections = Mapping[str, type[BaseModel]]
"""Key of a section -> the class of its settings."""

_KNOWN = frozenset(get_args(ErrorType))
"""Errors that pydantic can make again by their names."""


def read_with_sections(
    model: type[Settings], given: Mapping[Any, Any], handler: Callable[[Any], Settings], sections: Sections
) -> Settings:
    """The settings of a class, and the `sections` that plug-ins add to it, with the defaults of those left out.

    Raises ValidationError with the errors of both; a key that is neither is one of them.
    """
    own = {name: value for name, value in given.items() if name in model.model_fields or not isinstance(name, str)}
    lines: list[InitErrorDetails] = []
    for name in dict.fromkeys([*sections, *(name for name in given if name not in own)]):
        try:
            own[name] = _read_section(sections, name, given.get(name))
        except ValidationError as error:
            lines += _lines(error, name)
    try:
        made = handler(own)
    except ValidationError as error:
        raise ValidationError.from_exception_data(model.__name__, [*_lines(error), *lines]) from error
    if lines:
        raise ValidationError.from_exception_data(model.__name__, lines)
    return made


def schema_with_sections(
    settings: type[BaseModel], schema: CoreSchema, handler: GetJsonSchemaHandler, sections: Sections
) -> dict[str, Any]:
    """JSON schema of a class with these sections beside its own keys, and no other ones."""
    made = handler.resolve_ref_schema(described_schema(settings, schema, handler))
    made["properties"] |= {
        name: described_schema(own, own.__pydantic_core_schema__, handler) for name, own in sections.items()
    }
    made["additionalProperties"] = False
    return made


def _read_section(sections: Sections, name: str, value: object) -> BaseModel:
    """The settings of a section, null for its defaults; ValidationError for a key that is no section."""
    if name not in sections:
        line = InitErrorDetails(type="extra_forbidden", loc=(), input=value)
        raise ValidationError.from_exception_data(name, [line])
    return sections[name].model_validate({} if value is None else value)


def _lines(error: ValidationError, *section: str) -> list[InitErrorDetails]:
    """The errors of settings, with the section's name before their places."""
    return [_line(item, section) for item in error.errors(include_url=False)]


def _line(item: ErrorDetails, section: tuple[str, ...]) -> InitErrorDetails:
    place = (*section, *item["loc"])
    if item["type"] not in _KNOWN:  # of pydantic's own validators, such as that of paths
        kind = PydanticCustomError(cast("LiteralString", item["type"]), cast("LiteralString", item["msg"]))
        return InitErrorDetails(type=kind, loc=place, input=item["input"])
    return InitErrorDetails(type=item["type"], loc=place, input=item["input"], ctx=item.get("ctx", {}))
