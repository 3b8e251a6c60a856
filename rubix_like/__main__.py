"""The console script `rubix-like`: it handles Ctrl-C before it imports the command line, which takes a second."""

import importlib
import os
import signal
import sys

EXIT_INTERRUPTED = 130


def main() -> int:
    """Import the package and run the command line; Ctrl-C ends it in one line from the beginning."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where a shell has us ignore it
        signal.signal(signal.SIGINT, _leave)
    return importlib.import_module("rubix_like.cli.main").main(imported=_imported)


def _imported() -> None:
    """From now on Ctrl-C is an exception, after which what was begun is put in order."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: object) -> None:  # noqa: ARG001
    """End at once: nothing has been begun, and an exception could be lost in what is being imported."""
    os.write(sys.stderr.fileno(), b"rubix-like: interrupted; nothing was begun\n")
    os._exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
