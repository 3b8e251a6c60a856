"""The processes that JAX connects: who is who, and their values, exchanged over JAX's own connections."""

import os
import struct
from collections.abc import Callable
from typing import TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jaxtyping import UInt8
from numpy import ndarray

from rubix_like.errors import ConfigError
from rubix_like.runtime.processes.exchanged_values import decode, encode
from rubix_like.runtime.processes.launch import (
    EXPLICIT,
    Launch,
    cannot_listen,
    join_address,
    nothing_found,
    own_address,
)
from rubix_like.runtime.processes.process_group import AbstractProcessGroup
from rubix_like.runtime.signals import termination_as_it_was

Value = TypeVar("Value")

_LENGTH = struct.Struct(">Q")
_FIRST_BYTES = 1 << 10
_MOST_BYTES = 1 << 22
_ERROR, _VALUE = b"e", b"v"


class JaxProcesses(AbstractProcessGroup):
    """The processes that JAX has connected; where one is lost, JAX ends the others."""

    def __init__(self) -> None:
        self.number = jax.process_index()
        self.size = jax.process_count()

    def exchange(self, work: Callable[[], Value]) -> list[Value]:
        """What `work` gave in every process, by their numbers: numbers, text, numpy arrays, records of them.

        Where it fails in one, all raise: that process its own error, the others a ValueError "process 3: ...".
        """
        own: Exception | None = None
        message, classes = b"", {}
        try:
            message, classes = encode(work())
        except Exception as error:  # whatever it is, the others must not wait
            own = error
        sent = _VALUE + message if own is None else _ERROR + _words(own).encode()
        answers = messages_of_all(sent)
        if own is not None:
            raise own
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
    team.each(lambda: _check_size(launch, team))
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
        if launch.place is not None:
            raise
        raise ConfigError(f"several processes: the launcher was recognised, but {error}; give {EXPLICIT}") from error


def _check_size(launch: Launch, team: JaxProcesses) -> None:
    """JAX believes process 0."""
    if launch.place is not None and launch.place.size != team.size:
        raise ConfigError(
            f"num_processes: expected the same in every process, got {launch.place.size} here and {team.size} in "
            f"process 0"
        )


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
        for own, block in zip(parts, _all_blocks(message[done : done + size], size), strict=True):
            own.append(block)
        done += size
    return [b"".join(own)[:length] for own, length in zip(parts, lengths, strict=True)]


def _all_blocks(message: bytes, size: int) -> list[bytes]:
    """One block of every process, filled up with zeros."""
    block: UInt8[ndarray, " byte"] = np.zeros(size, np.uint8)
    block[: len(message)] = np.frombuffer(message, np.uint8)
    return [own.tobytes() for own in multihost_utils.process_allgather(block)]


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
