"""Checks of types and shapes at run time: those of jaxtyping's own decorator, which checks each argument twice and
binds all of them for its messages, a sixth of the time of tests of settings."""

import dataclasses
import functools
import inspect
import types
import typing
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping._storage import pop_shape_memo, push_shape_memo

_HINTED = beartype(conf=BeartypeConf(violation_type=jaxtyping.TypeCheckError))
"""Raises a TypeError."""


def check_types() -> None:
    """Every function and dataclass of the package that is imported from now on checks what it is given and returns.

    jaxtyping's hook writes `@jaxtyping.jaxtyped(typechecker=...)` above each of them.
    """
    jaxtyping.jaxtyped = lambda typechecker: _checked
    jaxtyping.install_import_hook("rubix_like", "beartype.beartype")


def _checked(target: Any) -> Any:
    if inspect.isclass(target):
        if dataclasses.is_dataclass(target) and not hasattr(target.__init__, "checks_types"):
            target.__init__ = _checked(target.__init__)
        return target
    checked = _HINTED(_with_hints(target))

    @functools.wraps(target)
    def with_lengths(*arguments: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        if jaxtyping.config.jaxtyping_disable:
            return target(*arguments, **named)
        push_shape_memo({})  # an axis has one length in all arguments and in what is returned
        try:
            return checked(*arguments, **named)
        finally:
            pop_shape_memo()

    with_lengths.checks_types = True
    return with_lengths


def _with_hints(function: Any) -> Any:
    """The function, or one with the same code whose hints beartype can check: those in quotes name what may be imported
    for them alone, and a generator has returned nothing when it is made."""
    hints = dict(function.__annotations__)
    if inspect.isgeneratorfunction(function):
        hints.pop("return", None)
    for name, hint in hints.items():
        if "'" in repr(hint):
            hints[name] = _resolved(hint, function.__globals__)
    if hints == function.__annotations__:
        return function
    copied = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    for name in ("__kwdefaults__", "__qualname__", "__module__"):
        setattr(copied, name, getattr(function, name))
    copied.__annotations__ = hints
    return copied


def _resolved(hint: Any, names: dict[str, Any]) -> Any:
    holder = types.SimpleNamespace(__annotations__={"hint": hint})
    try:
        return typing.get_type_hints(holder, names, include_extras=True)["hint"]
    except (NameError, AttributeError):
        return Any
