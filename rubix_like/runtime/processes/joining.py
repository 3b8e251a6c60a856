"""Several processes that make one cube: how they join, exchange values, and end together."""

import atexit
import json
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import jax

from rubix_like.errors import ConfigError
from rubix_like.runtime.files.outputs import remove_temporaries
from rubix_like.runtime.processes.coordinator import GREETING, Hub, who_am_i
from rubix_like.runtime.processes.jax_processes import JaxProcesses
from rubix_like.runtime.processes.launch import Launch, find_launch
from rubix_like.runtime.processes.process_group import AbstractProcessGroup
from rubix_like.runtime.processes.socket_messages import Kind, Line, pack, unpack

EXIT_PEER_LOST = 3
"""Exit code of a process that ends because of another one."""

EXIT_FAILED = 2
_EXIT_INTERRUPTED = 130
_RETRY_SECONDS = 0.2
_VERDICT_SECONDS = 5.0

Value = TypeVar("Value")


class Processes(AbstractProcessGroup):
    """The processes of a run, over sockets to process 0.

    A thread listens all the time: when another process fails, ends or falls silent, this one says so in one sentence
    on standard error, removes what it was writing, and ends with exit code 3.
    """

    def __init__(self, launch: Launch, line: Line, hub: Hub | None) -> None:
        self.number = launch.number
        self.size = launch.size
        self._launch = launch
        self._line = line
        self._hub = hub
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._leaving = threading.Event()
        self._shared: list[BaseException] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def exchange(self, work: Callable[[], Value]) -> list[Value]:
        """What `work` gave in every process, by their numbers: numbers, text, numpy arrays, classes of this package.

        Where it fails in one, all raise: that process its own error, the others a ValueError "process 3: ...".
        """
        own: Exception | None = None
        try:
            message = b"v" + pack(work())
        except Exception as error:  # whatever it is, the others must not wait
            own, message = error, b"e" + _words(error).encode()
        try:
            self._line.send(Kind.VALUE, message)
        except OSError:
            self._wait_for_the_end()
        answers = unpack(self._answers.get())
        if own is not None:
            self._shared.append(own)
            raise own
        for number, answer in enumerate(answers):
            if answer[:1] == b"e":
                self._shared.append(ValueError(f"process {number}: {answer[1:].decode()}"))
                raise self._shared[-1]
        return [unpack(answer[1:]) for answer in answers]

    def leave(self) -> None:
        """The last step of a run, in all processes: nobody waits for this one any more."""
        self._leaving.set()
        self._line.send(Kind.BYE)
        if self._hub is not None:
            self._hub.close()
        self._line.close()

    def fail(self, error: BaseException) -> None:
        """End a run that failed here: the others are told, unless they raised the same.

        Where it is only the echo of another process's end, this waits until that is known, and ends this process.
        """
        if isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            self._wait_for_the_end()
        self._leaving.set()
        known = any(error is shared for shared in self._shared)
        try:
            self._line.send(Kind.BYE if known else Kind.FAILED, b"" if known else _words(error).encode())
        except OSError:
            return  # nobody is there to be told
        if self._hub is not None:
            self._hub.close()
        self._line.close()

    def _wait_for_the_end(self) -> None:
        """Another process has gone: leave it to the listening thread to learn which, and to end this one."""
        time.sleep(self._launch.peer_timeout + _VERDICT_SECONDS)

    def _listen(self) -> None:
        """Take answers as they come; without process 0, or on its word, end this process."""
        try:
            while self._heard(*self._line.receive()):
                continue
        except TimeoutError:
            silence = f"has not been heard of for {self._launch.peer_timeout:g} s (--peer-timeout): stopped or cut off"
            self._give_up(f"process 0 (on {self._launch.host}) {silence}")
        except OSError:
            gone = "has ended without a word: killed, out of memory or crashed"
            self._give_up(f"process 0 (on {self._launch.host}) {gone}")
        except Exception as error:  # out of memory, most likely; nobody must wait for this process
            self._give_up(f"process {self.number} could not take what was sent to it ({_words(error)})")

    def _heard(self, kind: Kind, payload: bytes) -> bool:
        """Take one message; whether more may come."""
        if kind is Kind.VALUES:
            self._answers.put(payload)
        elif kind is Kind.LOST:
            self._give_up(payload.decode())
        return kind is not Kind.LOST

    def _give_up(self, sentence: str) -> None:
        if self._leaving.is_set():
            return
        left = ", ".join(map(str, remove_temporaries()))
        _say(f"rubix-like: {sentence}; {f'remove {left}' if left else 'nothing was left half-written'}")
        os._exit(EXIT_PEER_LOST)


@contextmanager
def join_processes(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    connect_timeout: float | None = None,
    peer_timeout: float | None = None,
) -> Iterator[Processes]:
    """Make this process one of several that share a run; before anything else uses JAX.

    Without arguments the launcher (Slurm, Open MPI, Kubernetes) tells who is who; without a launcher `coordinator` is
    HOST:PORT of process 0. `connect_timeout` (300 s) is how long they wait for each other, `peer_timeout` (100 s) the
    silence after which one is given up: this process then ends with exit code 3 and one sentence on standard error.
    Inside, `jax.devices()` are those of all processes. An error here ends all; afterwards this process can only exit.
    Raises ConfigError, and OSError where process 0 is not reached.
    """
    launch = find_launch(
        coordinator, num_processes, process_id, connect_timeout=connect_timeout, peer_timeout=peer_timeout
    )
    with joined(launch) as team:
        yield team


@contextmanager
def joined(launch: Launch) -> Iterator[Processes]:
    """The team of a launch, as `join_processes`."""
    team = meet(launch)
    try:
        with JaxProcesses(launch, team).started():
            yield team
            team.exchange(lambda: None)
        team.leave()
    except BaseException as error:
        team.fail(error)
        atexit.register(_leave_without_jax, _exit_code(error))
        raise


def meet(launch: Launch) -> Processes:
    """The team, once all processes are there; JAX knows nothing of it. Raises OSError or ConfigError."""
    hub = Hub(launch) if launch.number == 0 else None
    try:
        return Processes(launch, _connect(launch, launch.host if hub is None else hub.address), hub)
    except (OSError, ConfigError):
        if hub is not None:
            hub.close()
        raise


def _leave_without_jax(code: int) -> None:
    """End now: JAX would wait for the other processes."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _exit_code(error: BaseException) -> int:
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        return error.code
    return _EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else EXIT_FAILED


def _connect(launch: Launch, host: str) -> Line:
    """A line to process 0 on `host`, once all processes are there. Raises OSError or ConfigError."""
    deadline = time.monotonic() + launch.connect_timeout
    line = Line(_dial(host, launch, deadline), launch.peer_timeout)
    hello = {"greeting": GREETING, "number": launch.number, "size": launch.size, "who": who_am_i()}
    try:
        line.send(Kind.HELLO, json.dumps(hello).encode())
        line.live(launch.peer_timeout)
        kind, payload = line.receive()
    except OSError as error:
        line.close()
        raise OSError(
            f"--coordinator {launch.host}:{launch.port}: something answered and ended the connection ({error}); is it "
            f"process 0 of this run? If not, choose another port"
        ) from error
    if kind is Kind.LOST:
        line.close()
        raise ConfigError(payload.decode())
    return line


def _dial(host: str, launch: Launch, deadline: float) -> socket.socket:
    """The socket, tried again until the deadline, since process 0 may start later."""
    while True:
        try:
            return socket.create_connection((host, launch.port), timeout=max(deadline - time.monotonic(), 1.0))
        except OSError as error:
            if time.monotonic() + _RETRY_SECONDS > deadline:
                raise OSError(
                    f"--coordinator {launch.host}:{launch.port}: process {launch.number} did not reach process 0 "
                    f"within {launch.connect_timeout:g} s (--connect-timeout): {error}; is it running there, and may "
                    f"this computer connect to it?"
                ) from error
        time.sleep(_RETRY_SECONDS)


def _words(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return "interrupted"
    return str(error) or type(error).__name__


def _say(sentence: str) -> None:
    try:
        os.write(2, f"{sentence}\n".encode())
    except OSError:
        return  # nobody reads it
