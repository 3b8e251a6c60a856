"""Turn pydantic's errors into one text: the dotted key, what was expected, what came, the nearest known word."""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, get_args, get_origin, runtime_checkable

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from rubix_like.config.plug_ins import READERS
from rubix_like.config.quantities import InUnit, number_in
from rubix_like.config.settings import AbstractSettings, sections_in
from rubix_like.errors import nearest, nearest_words, or_install, suggest

_BY_OTHERS = "run dynesty or nautilus on rl.log_posterior, as docs/own-inference.md shows"


class Removed(NamedTuple):
    """The remedy, a clause that an error puts behind a semicolon; and the default of a removed key, which results of
    version 0.2.0 record though nobody set it."""

    remedy: str
    default: Any = None


REMOVED: Mapping[str, Removed] = {
    "output.path: .parquet": Removed("write a cube as .h5, .zarr or .fits"),
    "fit.optimiser.learning_rate": Removed("leave it out: lbfgs finds the length of its steps", 0.05),
    "fit.optimiser.name: adam": Removed("take lbfgs, or optax on rl.log_posterior, as docs/own-inference.md shows"),
    "fit.optimiser.name: gauss_newton": Removed("take levenberg_marquardt"),
    "fit.sampling.method: mgvi": Removed("take geovi, or nuts"),
    "fit.sampling.method: nested": Removed(_BY_OTHERS),
    "fit.sampling.nested": Removed(f"leave it out: {_BY_OTHERS}", {"live": 250, "tolerance": 0.1, "draws": 1000}),
    "simulate.files: parquet": Removed("write hdf5 or zarr"),
}
"""A dotted key of a run (`fit.optimiser.learning_rate`), a key with a value (`fit.sampling.method: nested`) or with the
ending of a path (`output.path: .parquet`)."""


def refusal(key: str, value: object) -> str | None:
    """The sentence that refuses a removed key, or a removed value of it; None where neither was removed."""
    words = [str(value), *([Path(value).suffix.lower()] if isinstance(value, str | Path) else [])]
    entry = next((entry for entry in (key, *(f"{key}: {word}" for word in words)) if entry in REMOVED), None)
    return None if entry is None else f"'{entry}' was removed after version 0.2.0; {REMOVED[entry].remedy}"


def without_unset(sections: Mapping[str, Any]) -> dict[str, Any]:
    """The sections without removed keys that have their defaults."""
    for key, removed in REMOVED.items():
        if removed.default is not None:
            sections = _without(sections, key.split("."), removed.default)
    return dict(sections)


def _without(section: Mapping[str, Any], parts: list[str], default: Any) -> Mapping[str, Any]:
    name, *below = parts
    value = section.get(name)
    if below and isinstance(value, Mapping):
        return {**section, name: _without(value, below, default)}
    if not below and name in section and value == default:
        return {key: kept for key, kept in section.items() if key != name}
    return section


@runtime_checkable
class Extended(Protocol):
    """Settings with sections that plug-ins bring."""

    @classmethod
    def sections(cls, *names: str) -> dict[str, type[BaseModel]]:
        """Key -> settings: of the built-in sections, and of these of plug-ins."""
        ...

    @classmethod
    def section_names(cls) -> tuple[str, ...]:
        """The keys of the sections that plug-ins bring, without those of plug-ins that cannot be used."""
        ...


_LIMITS = {
    "greater_than": ("gt", "a number > {:g}"),
    "greater_than_equal": ("ge", "a number >= {:g}"),
    "less_than": ("lt", "a number < {:g}"),
    "less_than_equal": ("le", "a number <= {:g}"),
    "too_short": ("min_length", "at least {} values"),
    "too_long": ("max_length", "at most {} values"),
}
_KINDS = {
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "path_type": "a path",
    "model_type": "a section ('key: value' pairs)",
    "dict_type": "a section ('key: value' pairs)",
    "invalid_key": "keys that are text",
}
_SECTION_KINDS = ("model_type", "dict_type")
_OF_A_SECTION = 2
"""Parts of the location of a key right in a section, which may be meant for another section; those below are local."""

_NOTHING = ("none", "no", "off", "false", "nothing")


def explain(error: ValidationError, model: type[BaseModel], place: str) -> str:
    """One text for all that is wrong with the settings from `place` that `model` refused."""
    lines: dict[str, str] = {}
    items = error.errors(include_url=False)
    for item in items:
        if item["type"] == "too_short" and any(
            other is not item and other["loc"][: len(item["loc"])] == item["loc"] for other in items
        ):
            continue  # too short only because items were refused
        # without the names that pydantic adds for the members of a union
        location = tuple(itertools.takewhile(lambda part: not re.search(r"[\[\]()]", str(part)), item["loc"]))
        key = dotted(location)
        lines.setdefault(key, refusal(key, item["input"]) or _sentence(item, model, location))
    texts = list(lines.values())
    if len(texts) == 1:
        return f"{place}: {texts[0]}"
    return "\n  ".join([f"{place}: {len(texts)} problems:", *texts])


def explain_value(error: ValidationError) -> str:
    """The message on a single value that the type of a setting refused."""
    item = error.errors(include_url=False)[0]
    return _sentence(item, BaseModel, ()).removeprefix(": ")


def dotted(location: Sequence[str | int]) -> str:
    """The dotted name, such as `instrument.psf.fwhm` or `observation.offset[1]`."""
    named = [part for part in location if not _is_tag(part)]
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in named)
    return text.removeprefix(".")


def _is_tag(part: str | int) -> bool:
    """Whether a part of a location says which kind of section a section is (`kind=particles`), and is no key."""
    return isinstance(part, str) and part.startswith("kind=")


def _has_free_names(annotation: Any) -> bool:
    return get_origin(annotation) is dict or any(map(_has_free_names, get_args(annotation)))


def _sentence(item: ErrorDetails, model: type[BaseModel], location: tuple[str | int, ...]) -> str:
    key, kind, context = dotted(location), item["type"], item.get("ctx", {})
    came = f"got {_shown(item['input'])}"
    if kind == "extra_forbidden":
        return f"unknown key '{key}'{_remedy(location, _section_at(model, location[:-1]), model)}"
    if kind == "missing":
        return f"{key}: expected {_wanted(str(location[-1]), _section_at(model, location[:-1]))}, got none"
    if kind == "value_error":
        return ": ".join(filter(None, (key, str(context["error"]))))
    if kind == "literal_error":
        words = re.findall(r"'([^']*)'", context["expected"])
        choices = ", ".join([*words, "null"] if context["expected"].endswith(" or None") else words)
        choices += " or a section" if location and _is_tag(location[-1]) else ""
        return f"{key}: expected one of {choices}, {came}{nearest(str(item['input']), words)}"
    if kind in _LIMITS:
        name, text = _LIMITS[kind]
        came = f"got {context['actual_length']}" if "actual_length" in context else came + _unit_of_number(item, model)
        return f"{key}: expected {text.format(context[name])}, {came}"
    expected = _KINDS.get(kind) or item["msg"].removeprefix("Input should be ")
    instead = _null_instead(item["input"], model, location) or _section_instead(item, model, location)
    return f"{key}: expected {expected}, {came}{instead}"


def _section_instead(item: ErrorDetails, model: type[BaseModel], location: tuple[str | int, ...]) -> str:
    """The section that a lone value may stand for: with a key that takes the value alone; a number may be of two."""
    section, value = _section_at(model, location), item["input"]
    if section is None or item["type"] not in _SECTION_KINDS or not isinstance(value, str | int | float):
        return ""
    keys = () if isinstance(value, bool) else section.model_fields
    name = next((word for word in reversed(location) if isinstance(word, str) and "=" not in word), "")  # no kind
    sections = [f"{{{key}: {value}}}" for key in keys if _takes(section, {key: value})]
    shown = sections[: 1 if isinstance(value, str) else 2]
    return f"; write {name}: {' or '.join(shown)}" if shown else ""


def _takes(section: type[BaseModel], values: dict[str, Any]) -> bool:
    try:
        section.model_validate(values)
    except ValidationError:
        return False
    return True


def _null_instead(came: object, model: type[BaseModel], location: tuple[str | int, ...]) -> str:
    """The clause that a word for nothing should be null, where null can stand."""
    if str(came).lower() not in _NOTHING or not location:
        return ""
    section = _section_at(model, location[:-1])
    annotation = None if section is None else _annotation(section, str(location[-1]))
    return "; for none write null" if type(None) in get_args(annotation) else ""


def _shown(value: object) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _section_at(model: type[BaseModel], location: Sequence[str | int]) -> type[BaseModel] | None:
    """The settings of the section at `location` below `model`; None where they are not known."""
    named_freely = False  # the next part is a key of a mapping from names to sections
    kinds: tuple[type[BaseModel], ...] = ()
    for part in location:
        if isinstance(part, str) and _is_tag(part):
            tagged = [kind for kind in kinds if "kind" in kind.model_fields]
            tag = part.removeprefix("kind=")
            model = next((kind for kind in tagged if tag in get_args(kind.model_fields["kind"].annotation)), model)
            continue
        if isinstance(part, int) or named_freely:
            named_freely = False
            continue
        annotation = _annotation(model, part)
        kinds = tuple(sections_in(annotation))
        if not kinds:
            return None
        named_freely = _has_free_names(annotation)
        model = kinds[0]
    return model


def _annotation(model: type[BaseModel], key: str) -> Any:
    """The type of a key, also of a section that a plug-in brings; None for one that is not known."""
    if key in model.model_fields:
        return model.model_fields[key].annotation
    return model.sections(key).get(key) if isinstance(model, Extended) else None


def _remedy(location: Sequence[str | int], section: type[BaseModel] | None, model: type[BaseModel]) -> str:
    """The key that may have been meant by one that a section does not have: one of its keys, of a section that it
    brings, or one elsewhere in `model`."""
    key = str(location[-1])
    if section is None:
        return ""
    instead = section.instead.get(key) if issubclass(section, AbstractSettings) else None
    if instead is not None:
        return f"; {instead}"
    is_top = isinstance(section, Extended)
    known = (*section.model_fields, *(section.section_names() if is_top else ()))
    inner = section.sections() if isinstance(section, Extended) and section is not model else {}
    within = [dotted([*location[:-1], name, key]) for name, settings in inner.items() if key in settings.model_fields]
    if within:
        return f"; did you mean {' or '.join(map(repr, within))}?"
    below = [] if is_top else [name for name in keys_near(key, section) if name.endswith(f".{key}")]
    if below:
        return f"; did you mean {' or '.join(repr(dotted([*location[:-1], name])) for name in below[:3])}?"
    depth = len([part for part in location if not _is_tag(part)])
    elsewhere = keys_near(key, model, 0.6 if is_top else 0.8)[:3] if depth <= _OF_A_SECTION else []
    suggested = suggest(key, known)
    if elsewhere and isinstance(model, Extended):  # a run, and no section that is checked alone
        suggested = f"; did you mean {' or '.join(map(repr, elsewhere))}?"
    return nearest(key, known) or (or_install(suggested, "a section of a plug-in") if is_top else suggested)


def _unit_of_number(item: ErrorDetails, model: type[BaseModel]) -> str:
    """The unit that a number without one was taken to be in; nothing for other values."""
    if number_in(item["input"]) is None or not item["loc"]:
        return ""
    section = _section_at(model, item["loc"][:-1])
    field = None if section is None else section.model_fields.get(str(item["loc"][-1]))
    unit = None if field is None else _unit_of(field)
    return f" (without a unit: in {unit})" if unit else ""


def _unit_of(field: FieldInfo) -> str | None:
    """The unit of a setting, where it is one number."""
    return next((mark.unit for mark in field.metadata if isinstance(mark, InUnit)), None)


def _wanted(key: str, section: type[BaseModel] | None) -> str:
    """A value of a required key in words: its unit and limits."""
    field = None if section is None else section.model_fields.get(key)
    if field is None:
        return "a value"
    unit = _unit_of(field)
    kinds = {float: "a number", int: "a whole number"}
    what = kinds.get(field.annotation, "a value") if unit is None else f"a quantity in {unit}"
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    found = [(sign, getattr(mark, name, None)) for mark in field.metadata for name, sign in signs.items()]
    limits = [f"{sign} {limit:g}" for sign, limit in found if limit is not None]
    return f"{what} ({', '.join(limits)})" if limits else what


_READERS = "galaxy"
"""The section whose keys are those of its reader."""


_LAST = ("fit", "simulate")
"""Sections whose keys are the last to be thought of."""


def dotted_keys(
    model: type[BaseModel], prefix: str = "", above: tuple[type[BaseModel], ...] = (), beginning: str = ""
) -> Iterator[str]:
    """The dotted key of every setting below `model` that is no section, readers' included; lists of sections, and
    sections of a class they are within (`above`), count as settings.

    Only keys on the way to `beginning` and below it: those of `galaxy` need JAX.
    """
    above = (*above, model)
    for name, field in model.model_fields.items():
        key, sections = f"{prefix}{name}", list(sections_in(field.annotation, listed=False))
        if not (key.startswith(beginning) or beginning.startswith(f"{key}.")):
            continue
        if key == _READERS:
            sections = [READERS.find(reader) for reader in READERS.builtin]
        sections = [section for section in sections if section not in above]
        for section in sections:
            yield from dotted_keys(section, f"{key}.", above, beginning)
        if not sections:
            yield key


def keys_near(word: str, model: type[BaseModel], likeness: float = 0.6) -> list[str]:
    """The dotted keys that end in `word`, the shortest first; else those whose last part is near to it (`likeness` as
    in `nearest_words`)."""
    return near_among(word, dotted_keys(model), likeness)


def near_among(word: str, known: Iterable[str], likeness: float = 0.6) -> list[str]:
    """The dotted keys among some `known` ones, as `keys_near` finds them."""
    keys = sorted(set(known), key=lambda key: (key.count("."), key.startswith(_LAST), key))
    asked = word.lower().replace("-", "_")
    ends = [key for key in keys if f".{key}".endswith(f".{asked}")]
    if ends:
        return ends
    last: dict[str, str] = {}
    for key in keys:
        last.setdefault(key.rpartition(".")[2], key)
    return [last[near] for near in nearest_words(asked.rpartition(".")[2], last, 1, likeness)]
