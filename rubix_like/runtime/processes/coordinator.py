"""What process 0 keeps for all: the place where processes meet, swap values and learn that one of them is gone."""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from rubix_like.errors import ConfigError
from rubix_like.runtime.processes.launch import Launch, join_address, own_address
from rubix_like.runtime.processes.socket_messages import Kind, Line, pack

GREETING = "rubix-like 1"
"""First words of every process: the language they speak."""

_GREETING_SECONDS = 10.0


@dataclass
class _Member:
    """A process at the hub; `who`: its computer and process number there."""

    number: int
    who: str
    line: Line


@dataclass
class _State:
    """What the threads of a hub share, guarded by `lock`."""

    members: dict[int, _Member] = field(default_factory=dict)
    values: dict[int, bytes] = field(default_factory=dict)
    left: set[int] = field(default_factory=set)
    verdict: str | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)
    over: threading.Event = field(default_factory=threading.Event)


class Hub:
    """Listens for `launch.size` processes (process 0 among them) and serves them, each by a thread.

    It listens at `address` alone, the coordinator's own. Values come back to all when all have sent theirs. A process
    that fails, ends or falls silent ends all the others, with one sentence that says which.
    """

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._state = _State()
        self._server = _listen(launch)
        self.address = str(self._server.getsockname()[0])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Wait until the others have left, or have been told why all end."""
        self._state.over.wait(self._launch.peer_timeout)
        self._server.close()
        for member in tuple(self._state.members.values()):
            member.line.close()

    def _accept(self) -> None:
        """Take whoever comes until all are there; at the time limit say who is missing, also to who comes later."""
        deadline = time.monotonic() + self._launch.connect_timeout
        self._server.settimeout(0.2)
        while not self._is_complete():
            if time.monotonic() > deadline:
                self._end(self._missing(), culprit=None)
            try:
                connection, _ = self._server.accept()
            except TimeoutError:
                continue
            except OSError:
                return  # closed
            threading.Thread(target=self._greet, args=(connection,), daemon=True).start()

    def _is_complete(self) -> bool:
        return len(self._state.members) == self._launch.size

    def _missing(self) -> str:
        absent = [str(number) for number in range(self._launch.size) if number not in self._state.members]
        return (
            f"{len(absent)} of {self._launch.size} processes (number {', '.join(absent)}) did not come to process 0 "
            f"within {self._launch.connect_timeout:g} s (--connect-timeout); were they started, and can they reach "
            f"{join_address(self._launch.host, self._launch.port)}, where process 0 listens at {self.address} alone?"
        )

    def _greet(self, connection: socket.socket) -> None:
        """Learn who has come; a stranger is left alone, a process that does not fit is told why and all end."""
        line = Line(connection, _GREETING_SECONDS)
        try:
            kind, payload = line.receive()
            hello = json.loads(payload) if kind is Kind.HELLO else {}
        except (OSError, ValueError):
            return line.close()
        if hello.get("greeting") != GREETING:
            return line.close()
        member = _Member(int(hello["number"]), str(hello["who"]), line)
        wrong = self._admit(member, int(hello["size"]))
        if wrong is not None:
            with contextlib.suppress(OSError):
                line.send(Kind.LOST, wrong.encode())
            line.close()
            return self._end(wrong, culprit=None)
        return self._serve(member)

    def _admit(self, member: _Member, size: int) -> str | None:
        """Take a process in; what is wrong with it, or None. The last one opens the run for all."""
        with self._state.lock:
            if self._state.verdict is not None:
                return self._state.verdict
            if size != self._launch.size:
                return (
                    f"process {member.number} ({member.who}) was started with --num-processes {size}, process 0 with "
                    f"{self._launch.size}; start all with the same"
                )
            twin = self._state.members.get(member.number)
            if twin is not None:
                return (
                    f"process {member.number} was started twice ({twin.who} and {member.who}); give each its own number"
                )
            self._state.members[member.number] = member
            member.line.live(self._launch.peer_timeout)
            if self._is_complete():
                self._tell(self._state.members, Kind.WELCOME)
        return None

    def _tell(self, numbers: Iterable[int], kind: Kind, payload: bytes = b"") -> None:
        """Send to several; who has gone is noticed by the thread that serves it."""
        for number in numbers:
            with contextlib.suppress(OSError):
                self._state.members[number].line.send(kind, payload)

    def _serve(self, member: _Member) -> None:
        """Answer one process until it leaves, fails or is lost."""
        try:
            while self._answer(member, *member.line.receive()):
                continue
        except TimeoutError:
            silence = f"has not been heard of for {self._launch.peer_timeout:g} s (--peer-timeout): stopped or cut off"
            self._end(f"process {member.number} ({member.who}) {silence}", member.number)
        except OSError:
            gone = "has ended without a word: killed, out of memory or crashed"
            self._end(f"process {member.number} ({member.who}) {gone}", member.number)
        except Exception as error:  # out of memory, most likely; nobody must wait
            words = str(error) or type(error).__name__
            self._end(f"process 0 could not pass on what process {member.number} sent ({words})", culprit=None)

    def _answer(self, member: _Member, kind: Kind, payload: bytes) -> bool:
        """Do what one message asks for; whether more are to come."""
        if kind is Kind.VALUE:
            self._collect(member.number, payload)
        elif kind is Kind.FAILED:
            self._end(f"process {member.number}: {payload.decode()}", member.number)
        elif kind is Kind.BYE:
            self._leave(member.number)
        return kind is Kind.VALUE

    def _collect(self, number: int, value: bytes) -> None:
        """Keep a value; the last one sends all to all, in the order of the processes."""
        with self._state.lock:
            self._state.values[number] = value
            if len(self._state.values) < self._launch.size:
                return
            every = pack([self._state.values[own] for own in range(self._launch.size)])
            self._state.values = {}
        self._tell(range(self._launch.size), Kind.VALUES, every)

    def _leave(self, number: int) -> None:
        with self._state.lock:
            self._state.left.add(number)
            if len(self._state.left) == self._launch.size:
                self._state.over.set()

    def _end(self, verdict: str, culprit: int | None) -> None:
        """Tell all others, process 0 last, since the hub ends with it."""
        with self._state.lock:
            if self._state.verdict is not None or (culprit is not None and culprit in self._state.left):
                return
            self._state.verdict = verdict
        others = set(self._state.members) - {culprit} - self._state.left
        self._tell(sorted(others, reverse=True), Kind.LOST, verdict.encode())
        self._state.over.set()


def _listen(launch: Launch) -> socket.socket:
    """The socket of process 0, at the coordinator's own address alone."""
    family, address = own_address(launch)
    try:
        return socket.create_server((address, launch.port), family=family, backlog=launch.size + 8)
    except OSError as error:
        raise ConfigError(
            f"process 0 cannot listen on port {launch.port} of {address} ({error.strerror}); choose another by "
            f"--coordinator {launch.host}:PORT or the environment variable JAX_COORDINATOR_PORT"
        ) from error


def who_am_i() -> str:
    """This process for messages: its computer and its number there."""
    return f"{socket.gethostname()}, pid {os.getpid()}"
