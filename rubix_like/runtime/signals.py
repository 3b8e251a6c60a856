"""Leaving in order when a batch system ends a command."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_MOMENT_SECONDS = 0.01

_LOST = {SystemExit: signal.SIGTERM, KeyboardInterrupt: signal.SIGINT}
"""What a signal raises -> the signal."""


@contextmanager
def orderly_termination() -> Iterator[None]:
    """SIGTERM (a batch system's cancel) leaves the block as Ctrl-C does: temporary files are removed on the way out.

    Only in the main thread, where Python handles signals. An exit, or Ctrl-C, that comes while Python takes an object
    away is lost (such exceptions cannot be raised, only printed); it is then tried again a moment later.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    usual = sys.unraisablehook

    def notice(unraisable: "sys.UnraisableHookArgs") -> None:
        number = _LOST.get(unraisable.exc_type)
        if number is None:
            usual(unraisable)
        else:
            threading.Timer(_MOMENT_SECONDS, os.kill, [os.getpid(), number]).start()

    sys.unraisablehook = notice
    try:
        yield
    finally:
        sys.unraisablehook = usual


@contextmanager
def termination_as_it_was() -> Iterator[None]:
    """After the block SIGTERM does what it did before, whatever a library made of it.

    JAX, when it connects processes, has SIGTERM noted and nothing else: a process could then not be ended by it. Only
    in the main thread, and where what it did before is known to Python.
    """
    before = signal.getsignal(signal.SIGTERM)
    yield
    if before is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)
