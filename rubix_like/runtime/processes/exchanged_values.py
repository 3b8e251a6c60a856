"""Values between processes as bytes: JSON, followed by the arrays that it refers to. Nothing in them is ever run."""

import json
import struct
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

_LENGTH = struct.Struct(">Q")
_SENT = "biufcSU"
"""Kinds of arrays whose bytes are their values."""

_CONTAINERS: dict[str, type] = {"tuple": tuple, "set": set, "frozenset": frozenset}


class Encoded(NamedTuple):
    """A value as bytes; `classes`: those of the records in it, by name."""

    data: bytes
    classes: Mapping[str, type]


def encode(value: Any) -> Encoded:
    """A value for other processes: None, numbers, text, numpy arrays, and lists, tuples, sets, dictionaries, named
    tuples and dataclasses of them. Every bit is kept.

    Raises TypeError for anything else.
    """
    arrays: list[ndarray] = []
    classes: dict[str, type] = {}
    text = json.dumps(_plain(value, arrays, classes)).encode()
    return Encoded(b"".join([_LENGTH.pack(len(text)), text, *(array.tobytes() for array in arrays)]), classes)


def decode(data: bytes, classes: Mapping[str, type]) -> Any:
    """The value; its records can only be of these classes, those of the value that this process sent itself.

    Raises ValueError where the bytes are not those of a value.
    """
    (length,) = _LENGTH.unpack_from(data)
    start = _LENGTH.size + length
    return _Reader(data, start, classes).value(json.loads(data[_LENGTH.size : start]))


def _plain(value: Any, arrays: list[ndarray], classes: dict[str, type]) -> Any:
    """A value as JSON has it: containers but for lists become `{kind: what they hold}`."""

    def plain(items: Any) -> list[Any]:
        return [_plain(item, arrays, classes) for item in items]

    if isinstance(value, ndarray | np.generic):
        return _plain_array(np.asarray(value), arrays, "array" if isinstance(value, ndarray) else "number")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return plain(value)
    if isinstance(value, dict):
        return {"dict": [plain(pair) for pair in value.items()]}
    if type(value) in _CONTAINERS.values():
        return {type(value).__name__: plain(value)}
    held = plain(_fields(value))
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    classes[name] = type(value)
    return {"record": name, "fields": held}


def _plain_array(array: ndarray, arrays: list[ndarray], kind: str) -> dict[str, Any]:
    if array.dtype.kind not in _SENT:
        raise TypeError(f"arrays of '{array.dtype}' cannot be sent to other processes")
    arrays.append(array)
    return {kind: [array.dtype.str, list(array.shape)]}


def _fields(value: Any) -> list[Any]:
    """What a record holds, in the order in which its class takes it."""
    if is_dataclass(value):
        return [getattr(value, field.name) for field in fields(value)]
    if isinstance(value, tuple):
        return list(value)
    raise TypeError(
        f"expected numbers, text, numpy arrays or records of them between processes, got {type(value).__name__}"
    )


class _Reader:
    """Reads a value whose arrays lie in `data` from `start` on, in the order in which it refers to them."""

    def __init__(self, data: bytes, start: int, classes: Mapping[str, type]) -> None:
        self._data = data
        self._start = start
        self._classes = classes

    def value(self, plain: Any) -> Any:
        """What `plain` stands for."""
        if isinstance(plain, list):
            return [self.value(item) for item in plain]
        if not isinstance(plain, dict):
            return plain
        if "record" in plain:
            return self._record(plain["record"], plain["fields"])
        ((kind, held),) = plain.items()
        if kind in {"array", "number"}:
            array = self._array(*held)
            return array if kind == "array" else array[()]
        if kind == "dict":
            return {self.value(key): self.value(item) for key, item in held}
        return _CONTAINERS[kind](self.value(item) for item in held)

    def _array(self, dtype: str, shape: list[int]) -> ndarray:
        count = int(np.prod(shape, dtype=np.int64))
        array = np.frombuffer(self._data, np.dtype(dtype), count, self._start).reshape(shape).copy()
        self._start += array.nbytes
        return array

    def _record(self, name: str, held: list[Any]) -> Any:
        if name not in self._classes:
            raise ValueError(f"expected what this process sent itself, got '{name}' from another one")
        return self._classes[name](*(self.value(item) for item in held))
