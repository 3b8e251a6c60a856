"""What a program is made of and does between devices, read from its text and its jaxpr; and when one is compiled."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


def collectives(text):
    """(kind, computation) of every collective of a compiled program; the outermost computation is called ENTRY."""
    found, computation = [], ""
    for line in text.splitlines():
        header = re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{\s*$", line)
        if header:
            computation = "ENTRY" if header[1] else header[2]
        found += [(kind, computation) for kind in COLLECTIVES if re.search(rf"= .*[ )}}]{kind}(-start)?\(", line)]
    return found


def equations(jaxpr: Any, within: tuple[str, ...] = ()) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Every equation of a jaxpr and of those in it, with the names of the primitives that it is within."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation, within
        for inner in _inner(equation):
            yield from equations(inner, (*within, equation.primitive.name))


def constant_bytes(jaxpr: Any) -> int:
    """Bytes of the different arrays that a traced function holds itself, inner functions included."""
    return sum(len(content) for *_, content in {(own.dtype.str, own.shape, own.tobytes()) for own in _held(jaxpr)})


def _held(jaxpr: Any) -> Iterator[np.ndarray]:
    yield from map(np.asarray, getattr(jaxpr, "consts", ()))
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        literals = (variable.val for variable in equation.invars if hasattr(variable, "val"))
        yield from (np.asarray(literal) for literal in literals if np.ndim(literal) > 0)
        for inner in _inner(equation):
            yield from _held(inner)


def _inner(equation: Any) -> list[Any]:
    parameters = jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns"))
    return [parameter for parameter in parameters if hasattr(parameter, "eqns")]


BITS = re.compile(r"[a-z]+(\d+)")


def literal_bytes(text: str) -> int:
    """Bytes of all arrays that stand as constants in a compiled program."""
    total = 0
    for kind, shape in re.findall(r"= (\w+)\[([\d,]+)\]\S* constant\(", text):
        bits = BITS.match(kind)
        total += int(np.prod([int(size) for size in shape.split(",")])) * (int(bits[1]) // 8 if bits else 1)
    return total


def compiled_by(call: Callable[[], Any]) -> list[str]:
    """The functions that XLA compiled while `call()` ran, by their names in JAX.

    JAX reports each of them where it calls XLA, whatever its log shows and whatever the function is called.
    """
    found: list[str] = []

    def listen(event: str, _: float, **described: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(str(described.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        call()
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    return found
