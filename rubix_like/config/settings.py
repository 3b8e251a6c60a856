"""The base of every section of a run's configuration."""

import ast
import copy
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError
from pydantic_core.core_schema import ErrorType

from rubix_like.config.quantities import as_yaml_values

if TYPE_CHECKING:
    from typing import LiteralString


class AbstractSettings(BaseModel):
    """A section: immutable once checked, with no keys but its own. Settings only describe; other modules build.

    The docstring below a setting describes it: `described_settings`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    instead: ClassVar[Mapping[str, str]] = {}
    """Keys that a section does not have though one may look for them -> what to give instead."""

    @model_validator(mode="before")
    @classmethod
    def _as_in_yaml(cls, data: Any) -> Any:
        """Arrays and quantities of Python as YAML has them, for every key of every section."""
        return (
            {key: as_yaml_values(value, str(key)) for key, value in data.items()} if isinstance(data, Mapping) else data
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return described_schema(cls, core_schema, handler)


def described_schema(
    settings: type[BaseModel], core_schema: CoreSchema, handler: GetJsonSchemaHandler
) -> JsonSchemaValue:
    """The JSON schema of a section, whose keys have the descriptions of its settings."""
    schema = handler(core_schema)
    known = handler.resolve_ref_schema(schema).get("properties", {})
    for name, field in described_settings(settings).items():
        if name in known and field.description is not None:
            known[name]["description"] = field.description
    return schema


@dataclass(frozen=True)
class WithSchema:
    """Changes the JSON schema that pydantic makes of a type: `Annotated[str, WithSchema(changed)]`."""

    changed: Callable[[dict[str, Any]], dict[str, Any]]

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return self.changed(handler(schema))


@functools.cache
def described_settings(settings: type[BaseModel]) -> Mapping[str, FieldInfo]:
    """The settings of a section by name, each described by the docstring below it.

    It reads the source, so that only what shows descriptions takes that time (pydantic's
    `use_attribute_docstrings` takes a tenth of a second of every import). One whose source is not at hand has none.
    """
    texts: dict[str, str] = {}
    for owner in reversed(settings.__mro__[: settings.__mro__.index(BaseModel)]):
        texts |= _docstrings(owner.__module__).get(owner.__qualname__, {})
    found = {name: copy.copy(field) for name, field in settings.model_fields.items()}
    for name, field in found.items():
        field.description = field.description or texts.get(name)
    return found


@functools.cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """The docstrings below annotated names, by qualified name of the class, of a module of Python's source."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError, SyntaxError):
        return {}
    return dict(_described_classes(tree.body, ""))


def _described_classes(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The classes of a module or class, and those inside of its functions and classes."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield prefix + node.name, dict(_described_names(node))
            yield from _described_classes(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield from _described_classes(node.body, f"{prefix}{node.name}.<locals>.")


def _described_names(kind: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for named, text in pairwise(kind.body):
        if (
            isinstance(named, ast.AnnAssign)
            and isinstance(named.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            yield named.target.id, inspect.cleandoc(text.value.value)


def sections_in(annotation: Any, *, listed: bool = True) -> Iterator[type[BaseModel]]:
    """The settings classes named in the type of a setting; `listed`: those in lists and mappings, too."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    if listed or get_origin(annotation) not in (tuple, list, dict):
        for argument in get_args(annotation):
            yield from sections_in(argument, listed=listed)


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
    known = {name: value for name, value in given.items() if name in model.model_fields or not isinstance(name, str)}
    lines: list[InitErrorDetails] = []
    for name in dict.fromkeys([*sections, *(name for name in given if name not in known)]):
        try:
            known[name] = _read_section(sections, name, given.get(name))
        except ValidationError as error:
            lines += _lines(error, name)
    try:
        made = handler(known)
    except ValidationError as error:
        raise ValidationError.from_exception_data(model.__name__, [*_lines(error), *lines]) from error
    if lines:
        raise ValidationError.from_exception_data(model.__name__, lines)
    return made


def schema_with_sections(
    settings: type[BaseModel], schema: CoreSchema, handler: GetJsonSchemaHandler, sections: Sections
) -> dict[str, Any]:
    """JSON schema of a class with these sections beside its keys, and no other ones."""
    made = handler.resolve_ref_schema(described_schema(settings, schema, handler))
    made["properties"] |= {
        name: described_schema(section, section.__pydantic_core_schema__, handler) for name, section in sections.items()
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
    lines = []
    for item in error.errors(include_url=False):
        kind: str | PydanticCustomError = item["type"]
        if kind not in _KNOWN:  # of the validators of pydantic, such as that of paths
            kind = PydanticCustomError(cast("LiteralString", kind), cast("LiteralString", item["msg"]))
        place = (*section, *item["loc"])
        lines.append(InitErrorDetails(type=kind, loc=place, input=item["input"], ctx=item.get("ctx", {})))
    return lines
