"""The processes that JAX connects: who is who, and their values, exchanged over the connections of JAX."""

import io
import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jaxtyping import UInt8
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.errors import ConfigError
from rubix_like.runtime.exit_codes import termination_as_it_was
from rubix_like.runtime.processes.launch import (
    EXPLICIT,
    Launch,
    cannot_listen,
    find_launch,
    join_address,
    nothing_found,
    own_address,
)
from rubix_like.runtime.processes.process_group import AbstractProcessGroup

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
    stream = io.BytesIO(data)
    (length,) = _LENGTH.unpack(stream.read(_LENGTH.size))
    return _value(json.loads(stream.read(length)), stream, classes)


def _plain(value: Any, arrays: list[ndarray], classes: dict[str, type]) -> Any:
    """A value as JSON has it: containers but for lists become `{kind: what they hold}`."""

    def plain(items: Any) -> list[Any]:
        return [_plain(item, arrays, classes) for item in items]

    if isinstance(value, ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.kind not in _SENT:
            raise TypeError(f"arrays of '{array.dtype}' cannot be sent to other processes")
        arrays.append(array)
        return {("array" if isinstance(value, ndarray) else "number"): [array.dtype.str, list(array.shape)]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return plain(value)
    if isinstance(value, dict):
        return {"dict": [plain(pair) for pair in value.items()]}
    if type(value) in _CONTAINERS.values():
        return {type(value).__name__: plain(value)}
    if not (is_dataclass(value) or isinstance(value, tuple)):
        raise TypeError(
            f"expected numbers, text, numpy arrays or records of them between processes, got {type(value).__name__}"
        )
    held = [getattr(value, field.name) for field in fields(value)] if is_dataclass(value) else list(value)
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    record = {"record": name, "fields": plain(held)}
    classes[name] = type(value)
    return record


def _value(plain: Any, stream: io.BytesIO, classes: Mapping[str, type]) -> Any:
    """The value of `plain`; `stream` has the bytes of its arrays in the order in which it refers to them."""
    if isinstance(plain, list):
        return [_value(item, stream, classes) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if "record" in plain:
        if plain["record"] not in classes:
            raise ValueError(f"expected what this process sent itself, got '{plain['record']}' from another one")
        return classes[plain["record"]](*_value(plain["fields"], stream, classes))
    ((kind, held),) = plain.items()
    if kind in {"array", "number"}:
        dtype, count = np.dtype(held[0]), int(np.prod(held[1], dtype=np.int64))
        array = np.frombuffer(stream.read(count * dtype.itemsize), dtype, count).reshape(held[1]).copy()
        return array if kind == "array" else array[()]
    items = _value(held, stream, classes)
    return dict(items) if kind == "dict" else _CONTAINERS[kind](items)


Value = TypeVar("Value")

_FIRST_BYTES = 1 << 10
_MOST_BYTES = 1 << 22
_ERROR, _VALUE = b"e", b"v"


class JaxProcesses(AbstractProcessGroup):
    """The processes that JAX has connected; where one is lost, JAX ends the others."""

    def __init__(self) -> None:
        self.number = jax.process_index()
        self.size = jax.process_count()

    def exchange(self, work: Callable[[], Value]) -> list[Value]:
        """The results of `work` in every process, by their numbers: numbers, text, numpy arrays, records of them.

        Where it fails in one, all raise: that process the original error, the others a ValueError "process 3: ...".
        """
        failure: Exception | None = None
        classes: Mapping[str, type] = {}
        try:
            data, classes = encode(work())
            message = _VALUE + data
        except Exception as error:  # whatever it is, the others must not wait
            failure, message = error, _ERROR + (str(error) or type(error).__name__).encode()
        answers = messages_of_all(message)
        if failure is not None:
            raise failure
        for number, answer in enumerate(answers):
            if answer[:1] == _ERROR:
                raise ValueError(f"process {number}: {answer[1:].decode()}")
        return [decode(answer[1:], classes) for answer in answers]


def connect(launch: Launch) -> JaxProcesses:
    """The processes of a launch, connected by JAX, which ends this one where that fails within the time limit.

    Raises ConfigError, and RuntimeError where JAX was used before.
    """
    place = launch.place
    known = {}
    if place is not None:
        known = {
            "coordinator_address": join_address(place.host, place.port),
            "num_processes": place.size,
            "process_id": place.number,
            "cluster_detection_method": "deactivate",
        }
        if place.number == 0:
            known["coordinator_bind_address"] = join_address(own_address(place), place.port)
    with termination_as_it_was():
        _initialize(launch, known)
    team = JaxProcesses()

    def check_size() -> None:  # JAX believes process 0
        if place is not None and place.size != team.size:
            raise ConfigError(
                f"num_processes: expected the same in every process, got {place.size} here and {team.size} in process 0"
            )

    team.each(check_size)
    return team


def _initialize(launch: Launch, known: dict[str, str | int]) -> None:
    try:
        jax.distributed.initialize(
            **known,  # pyright: ignore[reportArgumentType]
            local_device_ids=launch.devices,
            initialization_timeout=int(launch.connect_timeout),
            heartbeat_timeout_seconds=int(launch.peer_timeout),
            shutdown_timeout_seconds=int(launch.peer_timeout),
        )
    except ValueError as error:  # JAX knows neither launcher nor place
        raise ConfigError(nothing_found(os.environ)) from error
    except jax.errors.JaxRuntimeError as error:
        raise ConfigError(cannot_listen(launch.place, error)) from error
    except (RuntimeError, KeyError, OSError) as error:
        if "before any JAX" in str(error):
            raise ConfigError(
                "join_processes: expected to be called before anything uses JAX, got a process that has made arrays "
                "or galaxies; call it first"
            ) from error
        if launch.place is not None:
            raise
        raise ConfigError(f"several processes: the launcher was recognised, but {error}; give {EXPLICIT}") from error


def messages_of_all(message: bytes) -> list[bytes]:
    """The messages of all processes, by their numbers.

    They are sent in blocks of few sizes, each of which JAX compiles for once: a short message in one.
    """
    room = _FIRST_BYTES - _LENGTH.size
    first = _all_blocks(_LENGTH.pack(len(message)) + message[:room], _FIRST_BYTES)
    lengths = [_LENGTH.unpack_from(block)[0] for block in first]
    parts = [[block[_LENGTH.size :]] for block in first]
    done, longest = room, max(lengths)
    while done < longest:
        size = min(1 << (longest - done - 1).bit_length(), _MOST_BYTES)
        for blocks, block in zip(parts, _all_blocks(message[done : done + size], size), strict=True):
            blocks.append(block)
        done += size
    return [b"".join(blocks)[:length] for blocks, length in zip(parts, lengths, strict=True)]


def _all_blocks(message: bytes, size: int) -> list[bytes]:
    """One block of every process, filled up with zeros."""
    block: UInt8[ndarray, " byte"] = np.zeros(size, np.uint8)
    block[: len(message)] = np.frombuffer(message, np.uint8)
    return [sent.tobytes() for sent in multihost_utils.process_allgather(block)]


@named_arguments
@contextmanager
def join_processes(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    connect_timeout: float | None = None,
    peer_timeout: float | None = None,
) -> Iterator[JaxProcesses]:
    """Make this process one of several that share a run; before anything else uses JAX.

    Without arguments the launcher (Slurm, Open MPI, Kubernetes) tells who is who; without a launcher `coordinator` is
    HOST:PORT of process 0. `connect_timeout` (300 s) is how long they wait for each other, `peer_timeout` (100 s) the
    silence after which JAX takes one for lost and ends the others, with its message on standard error.
    Inside, `jax.devices()` are those of all processes. An error here ends all; afterwards this process can only exit.
    Raises ConfigError, and ConnectionError where a computation fails because another process has gone.
    """
    launch = find_launch(
        coordinator, num_processes, process_id, connect_timeout=connect_timeout, peer_timeout=peer_timeout
    )
    with joined(launch) as team:
        yield team


@contextmanager
def joined(launch: Launch) -> Iterator[JaxProcesses]:
    """The team of a launch, as `join_processes`.

    After an error JAX waits, when this process exits, for the others to do so too, and ends them at its time limit.
    """
    try:
        team = connect(launch)
        yield team
        team.exchange(lambda: None)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" in str(error):
            raise
        raise ConnectionError(
            f"what all processes compute together failed ({error}); most likely another one has ended, and says why"
        ) from error
    jax.distributed.shutdown()
