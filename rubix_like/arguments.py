"""Public functions whose errors name the argument that is of another kind than its annotation states."""

import functools
import inspect
import logging
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, SupportsFloat, SupportsIndex, TypeVar

import jaxtyping
import numpy as np
from jaxtyping import AbstractArray

from rubix_like.errors import ConfigError, came, nearest_words

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Kind(NamedTuple):
    """What a value may be: a test, and the words for what is expected."""

    holds: Callable[[Any], bool]
    words: str


def named_arguments(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The same function, with a ConfigError that names the argument which is not of the kind that is annotated.

    Judged are classes, texts, numbers, arrays of numbers, paths, functions, lists, dicts, literals and unions of these;
    what lists and dicts hold, shapes and protocols are left to the function. Traced values pass.
    """
    signature = inspect.signature(function)
    kinds: dict[str, tuple[Kind, ...]] = {}

    @functools.wraps(function)
    def with_names(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if not kinds:  # at the first call: the module is then complete
            kinds.update(_kinds_of(signature, inspect.unwrap(function).__globals__))
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            if name in kinds and not any(kind.holds(value) for kind in kinds[name]):
                expected = " or ".join(dict.fromkeys(kind.words for kind in kinds[name]))
                raise ConfigError(f"{name}: expected {expected}, got {came(value)}")
        return function(*args, **kwargs)

    return with_names


def check_setting_names(function: Callable[..., Any], names: Iterable[str], known: Iterable[str]) -> None:
    """Raise ConfigError for one of the further `names` given to a function that is nearer to one of its arguments than
    to a `known` setting."""
    arguments = inspect.signature(function).parameters
    settings = set(known)
    for name in names:
        near = nearest_words(name, {*arguments, *settings}, 1)
        if name not in settings and near and near[0] in arguments:
            raise ConfigError(f"{name}: unknown argument of {function.__name__}; did you mean '{near[0]}'?")


def note_renamed(old: str, new: str, *, given: bool) -> bool:
    """`given`; where it is True, with a note in the log that what was called `old` is called `new`."""
    if given:
        logging.getLogger("rubix_like").warning("%s is called %s now; the old word works until version 0.4", old, new)
    return given


def _kinds_of(signature: inspect.Signature, names: dict[str, Any]) -> dict[str, tuple[Kind, ...]]:
    """By name: the kinds that a parameter may have; those that cannot be judged are left out."""
    found = {}
    for name, parameter in signature.parameters.items():
        kinds = [_kind(member) for member in _members(_evaluated(parameter.annotation, names))]
        if parameter.kind not in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD} and None not in kinds:
            found[name] = tuple(kind for kind in kinds if kind is not None)
    return found


def _evaluated(annotation: Any, names: dict[str, Any]) -> Any:
    """The type that a quoted annotation stands for; `Any` where a name is known to type checkers only."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return typing.get_type_hints(types.SimpleNamespace(__annotations__={"type": annotation}), names)["type"]
    except NameError:
        return Any


def _members(annotation: Any) -> list[Any]:
    """The types of a union, or the one type."""
    if typing.get_origin(annotation) not in {typing.Union, types.UnionType}:
        return [annotation]
    return [member for part in typing.get_args(annotation) for member in _members(part)]


def _kind(annotation: Any) -> Kind | None:
    """The kind of value that a type stands for; None where it cannot be judged."""
    origin, parts = typing.get_origin(annotation) or annotation, typing.get_args(annotation)
    if origin is typing.Literal:
        return Kind(lambda value: value in parts, f"one of {', '.join(map(repr, parts))}")
    if origin in _KINDS:
        return _BY_NAME if parts and parts[0] is str and origin in {Mapping, dict} else _KINDS[origin]
    if not isinstance(origin, type) or origin in _ANYTHING or getattr(origin, "_is_protocol", False):
        return None
    if issubclass(origin, AbstractArray):
        keys = typing.get_args(jaxtyping.PRNGKeyArray)  # here, because it imports JAX
        return _RANDOM_KEY if annotation in keys else Kind(_is_numeric, "an array of numbers")
    return Kind(lambda value: isinstance(value, origin), _WORDS.get(origin.__name__, origin.__name__))


def _is_numeric(value: Any) -> bool:
    """Whether it is an array of numbers, or can be made one."""
    try:
        dtype = getattr(value, "dtype", None) or np.asarray(value).dtype
    except ValueError:  # lists of different lengths
        return False
    return dtype.kind in "biufcV"


def _is_random_key(value: Any) -> bool:
    """Whether it is one key of `jax.random`: a number of a key's own type, or a vector of its 32-bit words."""
    shape, dtype = getattr(value, "shape", None), str(getattr(value, "dtype", ""))
    return (shape == () and dtype.startswith("key<")) or (shape in {(2,), (4,)} and dtype == "uint32")


def _is_iterable(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


def _is_list(value: Any) -> bool:
    return _is_iterable(value) and isinstance(value, Sized)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool | np.bool_) or (isinstance(value, int) and value in {0, 1})


def _is_whole(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, SupportsIndex) and not isinstance(value, bool)


_WORDS = {
    "Galaxy": "an rl.Galaxy (rl.load_galaxy(config) reads one)",
    "Mesh": "a mesh (rl.make_mesh() makes one)",
    "ObservedCube": "an rl.ObservedCube (rl.read_observed(path) reads one)",
    "SSPLibrary": "an rl.SSPLibrary (rl.load_ssp(name) reads one)",
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
    float: Kind(lambda value: isinstance(value, SupportsFloat) and not isinstance(value, bool), "a number"),
    Path: Kind(lambda value: isinstance(value, str | PathLike), "a path"),
    bool: Kind(_is_flag, "True or False"),
    types.NoneType: Kind(lambda value: value is None, "None"),
    Callable: Kind(callable, "a function"),
    **dict.fromkeys((Mapping, dict), Kind(lambda value: isinstance(value, Mapping), "a dict")),
    **dict.fromkeys((Sequence, tuple, list), Kind(_is_list, "a list")),
    Iterable: Kind(_is_iterable, "a list or an iterator"),
}
