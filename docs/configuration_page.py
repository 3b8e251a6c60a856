"""The reference of all settings, from the models that check them."""

import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from simulations_page import markdown_table

from rubix_like.config import RunConfig
from rubix_like.config.parameters import metadata_of
from rubix_like.config.plug_ins import READERS
from rubix_like.config.readers.components import SECTIONS, AbstractKind
from rubix_like.config.sections.fit import SamplingSettings
from rubix_like.config.sections.observation import AlignRadius
from rubix_like.config.settings import described_settings, sections_in

_SIGNS = {"gt": ">", "above": ">", "ge": "≥", "lt": "<", "le": "≤"}

_LONG = 1e5
"""Numbers beyond it are written with an exponent."""

_WORDS = {bool: "true or false", int: "whole number", float: "number", str: "text", Path: "path", dict: "mapping"}


def configuration_reference() -> str:
    """Every section of a run: a heading, what it is for, and a row for each of its keys."""
    parts = []
    for name, field in described_settings(RunConfig).items():
        kinds = _sections_of(name, field)
        if kinds:
            parts += [_section(title, kind) for title, kind in kinds.items()]
    return "\n".join([_overview(), *parts])


def _overview() -> str:
    """The keys of the highest level."""
    rows = []
    for name, field in described_settings(RunConfig).items():
        kinds = _sections_of(name, field)
        text = meaning(field) or next((first_line(kind) for kind in kinds.values()), "")
        first = next(iter(kinds), None)
        rows.append((f"[`{name}`](#{_anchor(first)})" if first else f"`{name}`", default(field, brief=True), text))
    return markdown_table(("section", "default", "what it is"), rows)


def _sections_of(name: str, field: FieldInfo) -> dict[str, type[BaseModel]]:
    """Title -> settings of a section of a run; those of `galaxy` are the readers'."""
    if name == "galaxy":
        readers = {f"galaxy, reader: {reader}": READERS.find(reader) for reader in reversed(READERS.builtin)}
        return readers | {
            f"galaxy.components, {section}" + (f", {own.key}: {kind}" if own.key else ""): own.find(kind)
            for section, own in SECTIONS.items()
            for kind in own.built_in
        }
    found = list(dict.fromkeys(sections_in(field.annotation)))
    if len(found) == 1:
        return {name: found[0]}
    return {f"{name}, kind: {get_args(kind.model_fields['kind'].annotation)[0]}": kind for kind in found}


def _section(title: str, kind: type[BaseModel]) -> str:
    rows = [
        (f"`{key}`", as_other or kind_of(_form(field)), limits(_form(field)), default(field), meaning(field))
        for key, field, as_other in _keys("", kind, {})
    ]
    table = markdown_table(("key", "kind", "limits", "default", "meaning"), rows)
    return f"\n## {title}\n\n{first_line(kind)}\n\n{table}"


def _keys(
    prefix: str, kind: type[BaseModel], known: dict[type[BaseModel], str]
) -> Iterator[tuple[str, FieldInfo, str | None]]:
    """Dotted keys of a section and of those below it, in their order; keys of one model are given once (`known`)."""
    for key, field in described_settings(kind).items():
        name = prefix + key
        sections = dict.fromkeys(sections_in(field.annotation))
        kinds = AbstractKind in sections  # which have sections of their own on the page
        others = [f"section, as `{known[section]}`" for section in sections if section in known and not kinds]
        yield name, field, next(iter(others), None)
        for section in sections:
            if section not in known:
                known[section] = name
                yield from _keys(f"{name}.", section, known)
    if issubclass(kind, SamplingSettings):
        for key, section in SamplingSettings.sections().items():
            yield from _keys(f"{prefix}{key}.", section, known)


def _form(field: FieldInfo) -> Any:
    """The type of a setting with its marks."""
    return Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


def kind_of(form: Any) -> str:
    """What may be given: a quantity with its unit, a number, a choice, a list of them, a section."""
    if form is get_args(AlignRadius)[0]:
        return "number, or length"
    origin, arguments = get_origin(form), get_args(form)
    if origin is Annotated:
        units = [mark.unit for mark in arguments[1:] if getattr(mark, "unit", None)]
        inner = kind_of(arguments[0])
        return inner.replace("number", units[0], 1) if units else inner
    if origin in (Union, types.UnionType):
        return ", or ".join(dict.fromkeys(kind_of(own) for own in arguments if own is not types.NoneType))
    if origin is Literal:
        return ", ".join("null" if own is None else f"`{own}`" for own in arguments)
    return _list_of(arguments) if origin is tuple else _plain_kind(form, origin)


def _plain_kind(form: Any, origin: Any) -> str:
    if isinstance(form, type) and issubclass(form, BaseModel):
        return "section"
    known = [word for own, word in _WORDS.items() if form is own or origin is own]
    return known[0] if known else "text"


def _list_of(arguments: tuple[Any, ...]) -> str:
    if Ellipsis in arguments:
        return f"list of {kind_of(arguments[0])}"
    if len(set(arguments)) == 1:
        return f"list of {len(arguments)}: {kind_of(arguments[0])}"
    return f"[{', '.join(kind_of(own) for own in arguments)}]"


def limits(form: Any) -> str:
    """The limits of a number, as in `> 0, ≤ 1`."""
    own = [
        mark for found in metadata_of(form) for mark in (found.metadata if isinstance(found, FieldInfo) else [found])
    ]
    found = [(sign, getattr(mark, word, None)) for mark in own for word, sign in _SIGNS.items()]
    return ", ".join(dict.fromkeys(f"{sign} {limit:.6g}" for sign, limit in found if limit is not None))


def meaning(field: FieldInfo) -> str:
    """A setting's description on one line."""
    return " ".join((field.description or "").split())


def first_line(kind: type[BaseModel]) -> str:
    """The first sentence of a section's docstring."""
    return " ".join((kind.__doc__ or "").strip().partition("\n\n")[0].split())


def default(field: FieldInfo, brief: bool = False) -> str:
    """The default of a setting as YAML; of sections, where `brief`, only whether there is one."""
    if field.is_required():
        return "(required)"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "null"
    if value in ((), {}):
        return "none"
    if isinstance(value, BaseModel):
        return "its defaults" if brief or len(type(value).model_fields) > 3 else default_section(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    is_long = isinstance(value, float) and abs(value) > _LONG
    return f"{value:g}" if is_long else str(value).replace("False", "false").replace("True", "true").replace("'", "")


def default_section(section: BaseModel) -> str:
    """A section that is there by default, as YAML."""
    return f"{{{', '.join(f'{key}: {default(field)}' for key, field in type(section).model_fields.items())}}}"


def _anchor(title: str) -> str:
    """The anchor of a heading, as mkdocs makes it."""
    return title.replace(",", "").replace(":", "").replace(" ", "-").lower()
