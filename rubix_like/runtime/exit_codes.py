"""How a command ends: its exit code, one line on standard error for what ended it, and signals."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rubix_like.errors import ConfigError
from rubix_like.runtime.registry import failed_plug_in, plug_in_failed
from rubix_like.runtime.words import reason_of

EXIT_REFUSED: int = 2
"""Exit code where settings or data cannot be used."""

EXIT_BUG: int = 70
"""Exit code where the program itself is at fault (EX_SOFTWARE of sysexits.h)."""

EXIT_INTERRUPTED: int = 130

EXIT_BROKEN_PIPE: int = 141

REFUSALS = (ConfigError, ValueError, OSError, MemoryError)
"""What says, in words for the user, that settings or data cannot be used."""


def ended_by(
    error: Exception | KeyboardInterrupt | SystemExit, *, traceback: bool, words: Callable[[str], str] = str
) -> int:
    """The exit code of a command that `error` ended, after telling so; with `traceback` errors are raised again.
    `words` puts the message of a refusal in the command's words."""
    if isinstance(error, KeyboardInterrupt):
        print(f"rubix-like: interrupted; {str(error) or 'nothing was left half-written'}", file=sys.stderr)
        return EXIT_INTERRUPTED
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone: what is left goes nowhere
        return EXIT_BROKEN_PIPE
    if traceback or isinstance(error, SystemExit):
        raise error
    origin = error.__cause__ if isinstance(error, ConfigError) else error
    plug_in = None if origin is None else failed_plug_in(origin)
    if isinstance(error, REFUSALS):
        of_plug_in = f" (from the plug-in {plug_in})" if plug_in and plug_in not in str(error) else ""
        print(f"rubix-like: {words(str(error))}{of_plug_in}", file=sys.stderr)
        return EXIT_REFUSED
    if plug_in is not None:
        print(f"rubix-like: {plug_in_failed(plug_in, error)}", file=sys.stderr)
        return EXIT_REFUSED
    print(
        f"rubix-like: a bug: {type(error).__name__}: {reason_of(error)}; run again with --traceback before the command "
        f"(rubix-like --traceback ...), and report what it prints",
        file=sys.stderr,
    )
    return EXIT_BUG


@contextmanager
def explained_exhaustion() -> Iterator[None]:
    """Turns the ways of numpy and XLA to say that there was no memory left into a MemoryError with the remedy."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # jax.errors.JaxRuntimeError is one
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise MemoryError(f"memory: there is not enough ({error}); {MEMORY_REMEDY}, or use fewer particles") from error


MEMORY_REMEDY = (
    "make instrument.fov smaller, instrument.pixel_scale or instrument.wavelength.step larger (light is painted beyond "
    "the field as far as the PSF reaches: instrument.psf.enclosed)"
)


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
