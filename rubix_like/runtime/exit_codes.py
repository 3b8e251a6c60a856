"""How a command ends: its exit code, and one line on standard error for what ended it."""

import os
import sys
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
    """Turns numpy's and XLA's own ways to say that there was no memory left into a MemoryError with the remedy."""
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
