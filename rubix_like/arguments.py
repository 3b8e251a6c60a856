"""Errors that name what is of another kind than expected: arguments of public functions, what plug-ins return."""

import contextlib
import dataclasses
import functools
import inspect
import logging
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, SupportsFloat, SupportsIndex, TypeVar

import jaxtyping
import numpy as np
from jaxtyping import AbstractArray
from numpy.typing import ArrayLike

from rubix_like.errors import ConfigError, came, nearest_words

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Kind(NamedTuple):
    """A kind of value: a test, the words for what is expected, and the kinds of its members, where judged."""

    holds: Callable[[Any], bool]
    words: str
    members: "tuple[Kind, ...]" = ()


def named_arguments(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Wrap a function so that a ConfigError names the argument which is not of the kind that is annotated.

    Judged are classes, texts, numbers, arrays of numbers, paths, functions, lists and dicts (also of one class, or of
    texts), literals, protocols for run time and unions of these; what else lists and dicts hold, and shapes, are left
    to the function. Traced values pass.
    """
    signature, empty = inspect.signature(function), inspect.Parameter.empty
    kinds: dict[str, tuple[Kind, ...]] = {}

    @functools.wraps(function)
    def with_names(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if not kinds:  # at the first call: the module is then complete
            several = inspect.Parameter.VAR_POSITIONAL
            single = [parameter for parameter in signature.parameters.values() if parameter.kind is not several]
            annotations = {parameter.name: parameter.annotation for parameter in single}
            kinds.update(_kinds_of(annotations, inspect.unwrap(function).__globals__))
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            name = function.__qualname__.removesuffix(".__call__")
            shown = [part.replace(annotation=empty) for key, part in signature.parameters.items() if key != "self"]
            call = signature.replace(parameters=shown, return_annotation=empty)
            raise TypeError(f"{name}: {error}; expected {call}, of which those after a * are given by name") from None
        for name, value in bound.arguments.items():
            several = value if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD else {name: value}
            for key, single in several.items():
                _expect_kind(single, kinds.get(name, ()), key)
        return function(*args, **kwargs)

    return with_names


def expect_fields(record: Any, place: str = "") -> None:
    """Raise ConfigError that names the field of a dataclass, or of an equinox module, which is not of the kind that is
    annotated, as `named_arguments` does for arguments; it begins with `place`."""
    for name, kinds in _kinds_of_fields(type(record)).items():
        _expect_kind(getattr(record, name), kinds, f"{place}{type(record).__name__}.{name}")


@functools.cache
def _kinds_of_fields(record: type) -> dict[str, tuple[Kind, ...]]:
    annotations = {field.name: field.type for field in dataclasses.fields(record)}
    return _kinds_of(annotations, vars(sys.modules[record.__module__]))


def _expect_kind(value: Any, kinds: tuple[Kind, ...], place: str) -> None:
    """Raise ConfigError for a value of none of the kinds; without kinds every value passes."""
    held = [kind for kind in kinds if kind.holds(value)]
    if kinds and not held:
        expected = " or ".join(dict.fromkeys(kind.words for kind in kinds))
        call = f"; call it: {value.__name__}()" if isinstance(value, type) else ""
        raise ConfigError(f"{place}: expected {expected}, got {came(value)}{call}")
    for kind in held:
        if kind.members and isinstance(value, Collection):
            for key, member in value.items() if isinstance(value, Mapping) else enumerate(value):
                _expect_kind(member, kind.members, f"{place}[{key!r}]")


def returned(value: Any, kinds: Any, call: str, expected: str) -> Any:
    """Return what a plug-in returned, where it is of these kinds; raise ConfigError that names the plug-in for another.

    `call` is what was called, "stage 'fade': `report`". A list of kinds stands for a tuple with a value of each.
    """
    if isinstance(kinds, list):
        fits = isinstance(value, tuple) and len(value) == len(kinds) and all(map(isinstance, value, kinds))
    else:
        fits = isinstance(value, kinds)
    if fits:
        return value
    shape = getattr(value, "shape", None)
    got = came(value) if shape is None else f"an array of shape {shape}"
    if isinstance(value, tuple):
        got = f"({', '.join(type(member).__name__ for member in value)})"
    raise ConfigError(f"{call} must return {expected}, got {got}; see docs/how-to-extend.md")


@contextlib.contextmanager
def plug_in_named(call: str, plug_in: Any, remedy: str = "see docs/how-to-extend.md") -> Iterator[None]:
    """A mistake in the code of a plug-in, an instance, a class or a function, is raised again as ConfigError that names
    `call`, and so is its ValueError, with its words; those of members of this package pass, and every ConfigError.
    """
    try:
        yield
    except (TypeError, AttributeError, LookupError, ArithmeticError, AssertionError, ValueError) as error:
        if isinstance(error, ConfigError) or str(getattr(plug_in, "__module__", "")).startswith("rubix_like."):
            raise
        if isinstance(error, ValueError):
            raise ConfigError(f"{call}: {error}") from error
        words, *_ = str(error).splitlines() or [""]
        unmarked = _unmarked(error) if isinstance(error, AttributeError) else ""
        raise ConfigError(f"{call} ended with {type(error).__name__}: {words}{unmarked}; {remedy}") from error


def _unmarked(error: AttributeError) -> str:
    """The reason why `parameters` lacks an attribute; empty for another object."""
    if type(error.obj).__name__ != "Parameters":
        return ""
    is_section = "observation" in vars(error.obj)
    what = f"no setting of the section '{error.name}' is" if is_section else f"the setting '{error.name}' is not"
    return f"; {what} marked `Parameter()`"


def check_returned_shapes(call: str, shapes: Mapping[str, tuple[Any, tuple[int, ...]]], dtype: Any = None) -> None:
    """Raise ConfigError that names the plug-in for an array of another shape or `dtype` (None: of any); by name: the
    array that was returned (None: it is left out), and its shape. Traced arrays have one, too."""
    for name, (array, expected) in shapes.items():
        if array is not None and np.shape(array) != expected:
            raise ConfigError(
                f"{call} must return {name} of shape {expected}, got {np.shape(array)}; see docs/how-to-extend.md"
            )
        if array is not None and dtype is not None and array.dtype != dtype:
            raise ConfigError(f"{call} must return {name} as {dtype}, got {array.dtype}; see docs/how-to-extend.md")


def check_setting_names(function: Callable[..., Any], names: Iterable[str], known: Iterable[str]) -> None:
    """Raise ConfigError for one of the further `names` given to a function that is nearer to one of its arguments than
    to a `known` setting."""
    several = inspect.Parameter.VAR_KEYWORD
    parameters = inspect.signature(function).parameters.values()
    arguments = [parameter.name for parameter in parameters if parameter.kind is not several]
    settings = set(known)
    for name in names:
        near = nearest_words(name, {*arguments, *settings}, 1)
        if name not in settings and near and near[0] in arguments:
            raise ConfigError(f"{name}: unknown argument of {function.__name__}; did you mean '{near[0]}'?")


def note_renamed(old: str, new: str) -> None:
    """Log that an argument, given by its `old` word, is called `new`."""
    logging.getLogger("rubix_like").warning("%s is called %s now; the old word works until version 0.4", old, new)


def starts_anew(restart: bool, resume: bool | None, output: object) -> bool:
    """Whether earlier progress is discarded: by `restart`, or by the old word for it, `resume=False`.

    Raises ConfigError for `resume=True` beside `restart`, or without an `output` that has progress.
    """
    if resume and restart:
        raise ConfigError("resume: expected resume=True or restart=True, got both; leave one of them out")
    if resume and output is None:
        raise ConfigError(
            "resume: expected the output of what is to go on, got none; give it as output=..., then it goes on without "
            "resume=True"
        )
    if resume is False:
        note_renamed("resume=False", "restart=True")
    return restart or resume is False


def _kinds_of(annotations: Mapping[str, Any], names: dict[str, Any]) -> dict[str, tuple[Kind, ...]]:
    """Kinds that a value may have, by name; those that cannot be judged are left out."""
    found = {}
    for name, annotation in annotations.items():
        kinds = [_kind(member) for member in _members(_evaluated(annotation, names))]
        if None not in kinds:
            found[name] = tuple(kind for kind in kinds if kind is not None)
    return found


class _ToCheckersOnly:
    """Base of the types that stand for classes which are imported for type checkers only."""


def _evaluated(annotation: Any, names: dict[str, Any]) -> Any:
    """The type that a quoted annotation stands for."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return typing.get_type_hints(types.SimpleNamespace(__annotations__={"type": annotation}), names)["type"]
    except NameError as error:
        return _evaluated(annotation, names | {str(error.name): type(str(error.name), (_ToCheckersOnly,), {})})


def _members(annotation: Any) -> list[Any]:
    """The types of a union, or the one type."""
    if annotation == ArrayLike or typing.get_origin(annotation) not in {typing.Union, types.UnionType}:
        return [annotation]
    return [member for part in typing.get_args(annotation) for member in _members(part)]


def _kind(annotation: Any) -> Kind | None:
    """The kind of value that a type stands for; None where it cannot be judged."""
    origin, parts = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    origin = annotation if annotation == ArrayLike else origin
    if origin is typing.Literal:
        types_ = tuple(type(part) for part in parts)
        return Kind(lambda value: isinstance(value, types_) and value in parts, f"one of {', '.join(map(repr, parts))}")
    if origin in _KINDS:
        is_by_name = origin in {Mapping, dict} and parts[:1] == (str,)
        kind, held = (_BY_NAME, parts[1:]) if is_by_name else (_KINDS[origin], parts)
        return kind._replace(members=_kinds_of_members(held))
    is_open = getattr(origin, "_is_protocol", False) and not getattr(origin, "_is_runtime_protocol", False)
    if not isinstance(origin, type) or origin in _ANYTHING or is_open:
        return None
    if issubclass(origin, AbstractArray):
        keys = typing.get_args(jaxtyping.PRNGKeyArray) if "jax" in sys.modules else ()  # it imports JAX
        return _RANDOM_KEY if annotation in keys else Kind(_is_numeric, "an array of numbers")
    words = _WORDS.get(origin.__name__, origin.__name__)
    if issubclass(origin, _ToCheckersOnly):
        return Kind(lambda value: origin.__name__ in {base.__name__ for base in type(value).__mro__}, words)
    return Kind(lambda value: isinstance(value, origin), words)


def _kinds_of_members(parts: tuple[Any, ...]) -> tuple[Kind, ...]:
    """The kind of what a list or dict holds, where that is text or a class of this package; else none."""
    if not parts or parts[1:] not in {(), (...,)}:
        return ()
    is_ours = isinstance(parts[0], type) and parts[0].__module__.startswith("rubix_like.")
    kind = _kind(parts[0]) if is_ours or parts[0] is str else None
    return () if kind is None else (kind,)


def _is_numeric(value: Any) -> bool:
    """Whether it is an array of numbers, or can be made one."""
    try:
        dtype = (None if isinstance(value, type) else getattr(value, "dtype", None)) or np.asarray(value).dtype
    except ValueError:  # lists of different lengths
        return False
    except TypeError:  # quantities in a list
        return True
    return dtype.kind in "biufcV"


def _is_random_key(value: Any) -> bool:
    """Whether it is one key of `jax.random`: a number of the type of keys, or a vector of its 32-bit words."""
    shape, dtype = getattr(value, "shape", None), str(getattr(value, "dtype", ""))
    return (shape == () and dtype.startswith("key<")) or (shape in {(2,), (4,)} and dtype == "uint32")


def _is_iterable(value: Any) -> bool:
    is_number = getattr(value, "ndim", 1) == 0
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping) and not is_number


def _is_list(value: Any) -> bool:
    return _is_iterable(value) and isinstance(value, Sized)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool | np.bool_) or (isinstance(value, int) and value in {0, 1})


def _is_single(value: Any) -> bool:
    return not isinstance(value, bool | type) and np.size(value) == 1


def _is_number(value: Any) -> bool:
    return isinstance(value, SupportsFloat) and _is_single(value)


def _is_whole(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, SupportsIndex) and _is_single(value) and getattr(value, "unit", None) is None


_WORDS = {
    "AbstractGalaxyModel": "a model, derived from AbstractGalaxyModel of rubix_like.extend,",
    "Footprint": "a Footprint of rubix_like.extend",
    "Galaxy": "an rl.Galaxy (rl.load_galaxy(config) reads one)",
    "HasSSPSettings": "a configuration",
    "Mesh": "a mesh (rl.make_mesh() makes one)",
    "Meta": "Meta, as of another cube",
    "ObservedCube": "an rl.ObservedCube (rl.read_observed(path) reads one)",
    "SSPLibrary": "an rl.SSPLibrary (rl.load_ssp(name) reads one)",
    "Stream": "a text file, such as sys.stderr",
    "WavelengthBins": "WavelengthBins of rubix_like.extend",
}
"""For classes by name: what is expected, and how it is made."""


def _is_by_name(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


_RANDOM_KEY = Kind(_is_random_key, "one key, e.g. jax.random.key(1)")
_BY_NAME = Kind(_is_by_name, "a dict whose keys are texts")
_ANYTHING = {object, Any, inspect.Parameter.empty}
_KINDS: dict[Any, Kind] = {
    str: Kind(lambda value: isinstance(value, str), "a text"),
    int: Kind(_is_whole, "a whole number"),
    float: Kind(_is_number, "a number"),
    Path: Kind(lambda value: isinstance(value, str | PathLike), "a path"),
    bool: Kind(_is_flag, "True or False"),
    types.NoneType: Kind(lambda value: value is None, "None"),
    Callable: Kind(callable, "a function"),
    **dict.fromkeys((Mapping, dict), Kind(lambda value: isinstance(value, Mapping), "a dict")),
    **dict.fromkeys((Sequence, tuple, list), Kind(_is_list, "a list")),
    ArrayLike: Kind(_is_numeric, "a list of numbers or an array"),
    Iterable: Kind(_is_iterable, "a list or an iterator"),
}
