"""Messages between two processes over a socket, with signs of life, and values as bytes."""

import contextlib
import io
import pickle
import socket
import struct
import threading
from enum import IntEnum
from typing import Any

_HEADER = struct.Struct(">BQ")
_PIECE = 1 << 20
_BEATS_PER_TIMEOUT = 5
_LONGEST_BEAT = 5.0


class Kind(IntEnum):
    """What a message is."""

    HELLO = 1
    WELCOME = 2
    BEAT = 3
    VALUE = 4
    VALUES = 5
    FAILED = 6
    LOST = 7
    BYE = 8


class Line:
    """A connection: messages of any size, sent from any thread and received in one; `silence` in s is the longest wait.

    Raises TimeoutError after that silence, and ConnectionError or another OSError when the other side has gone.
    """

    def __init__(self, connection: socket.socket, silence: float) -> None:
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(silence)
        self._connection = connection
        self._sending = threading.Lock()
        self._closed = threading.Event()

    def send(self, kind: Kind, payload: bytes = b"") -> None:
        """Send one message."""
        with self._sending:
            self._connection.sendall(_HEADER.pack(kind, len(payload)))
            view = memoryview(payload)
            for start in range(0, len(payload), _PIECE):
                self._connection.sendall(view[start : start + _PIECE])

    def receive(self) -> tuple[Kind, bytes]:
        """The next message but for signs of life."""
        while True:
            number, size = _HEADER.unpack(self._read(_HEADER.size))
            payload = self._read(size)
            if number != Kind.BEAT:
                return _kind(number), payload

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            piece = self._connection.recv(min(size - len(parts), _PIECE))
            if not piece:
                raise ConnectionError("the connection was closed")
            parts += piece
        return bytes(parts)

    def live(self, silence: float) -> None:
        """From now on send signs of life, and wait for those of the other side no longer than `silence` s."""
        self._connection.settimeout(silence)
        interval = min(silence / _BEATS_PER_TIMEOUT, _LONGEST_BEAT)

        def beat() -> None:
            while not self._closed.wait(interval):
                try:
                    self.send(Kind.BEAT)
                except OSError:
                    return  # whoever receives notices it, too

        threading.Thread(target=beat, daemon=True).start()

    def close(self) -> None:
        """End it; whoever waits on either side is woken."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def _kind(number: int) -> Kind:
    try:
        return Kind(number)
    except ValueError as error:
        raise ConnectionError("not a message of rubix-like") from error


def pack(value: Any) -> bytes:
    """A value as bytes: numbers, text, arrays of numpy, containers and classes of this package, every bit kept."""
    return pickle.dumps(value, protocol=5)


def unpack(data: bytes) -> Any:
    """The value; only of the kinds that `pack` is for, so that bytes from elsewhere cannot run anything else."""
    return _Unpickler(io.BytesIO(data)).load()


class _Unpickler(pickle.Unpickler):
    """A reader of pickles that knows arrays of numpy, plain containers, paths and the classes of this package."""

    def find_class(self, module: str, name: str) -> Any:
        known = (module, name) in _KNOWN
        ours = module.startswith("rubix_like.") and "." not in name  # "subprocess.Popen" is in modules that import it
        found = pickle.Unpickler.find_class(self, module, name) if known or ours else None
        if known or (isinstance(found, type) and found.__module__ == module):
            return found
        raise pickle.UnpicklingError(
            f"{module}.{name}: expected numbers, text, arrays of numpy or classes of rubix_like between processes"
        )


_KNOWN = frozenset(
    {
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "scalar"),
        ("numpy._core.numeric", "_frombuffer"),
        ("builtins", "set"),
        ("builtins", "frozenset"),
        ("builtins", "complex"),
        ("builtins", "slice"),
        ("builtins", "range"),
        ("pathlib", "PosixPath"),
    }
)
"""What pickles of values refer to, beside the classes of this package."""
