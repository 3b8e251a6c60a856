"""Leaving in order when a batch system ends a command."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_MOMENT_SECONDS = 0.01


@contextmanager
def orderly_termination() -> Iterator[None]:
    """SIGTERM (a batch system's cancel) leaves the block as Ctrl-C does: temporary files are removed on the way out.

    Only in the main thread, where Python handles signals. An exit that comes while Python takes an object away is lost
    (such exceptions cannot be raised, only printed); it is then tried again a moment later.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGTERM, _terminate)
    usual = sys.unraisablehook

    def notice(unraisable: "sys.UnraisableHookArgs") -> None:
        if unraisable.exc_type is SystemExit:
            threading.Timer(_MOMENT_SECONDS, signal.raise_signal, [signal.SIGTERM]).start()
        else:
            usual(unraisable)

    sys.unraisablehook = notice
    try:
        yield
    finally:
        sys.unraisablehook = usual


def _terminate(number: int, frame: object) -> None:  # noqa: ARG001
    sys.exit(128 + number)
