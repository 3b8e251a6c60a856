"""Progress of long work: a live line on a terminal, plain lines in a log."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Protocol, cast, runtime_checkable

_HEARTBEAT_SECONDS = 30.0


@runtime_checkable
class Stream(Protocol):
    """What progress is printed to: a text file, such as sys.stderr."""

    def write(self, text: str, /) -> Any:
        """Take some text."""

    def flush(self) -> Any:
        """Show it now."""

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        ...


class Progress:
    """Reports named steps as they start and end, and keeps their times (seconds) in `timings`, added up by name.

    On a terminal a step shows a spinner with the elapsed time; elsewhere it prints a line at its start, one every
    30 s while it lasts, and one at its end. With `stream=None` nothing is shown.
    """

    def __init__(self, stream: Stream | None = None) -> None:
        self.stream = stream
        self.timings: dict[str, float] = {}

    @contextmanager
    def step(self, name: str, label: str) -> Iterator[None]:
        """Adds the time of a step to `timings[name]` and shows it as `label`."""
        start = time.perf_counter()
        with self._shown(label):
            yield
        seconds = time.perf_counter() - start
        self.timings[name] = self.timings.get(name, 0.0) + seconds
        self._line(f"{label}: {seconds:.1f} s")

    def _line(self, text: str) -> None:
        if self.stream is not None:
            print(text, file=self.stream, flush=True)

    @contextmanager
    def _shown(self, label: str) -> Iterator[None]:
        if self.stream is None:
            yield
        elif self.stream.isatty():
            with _spinner(self.stream, label):
                yield
        else:
            self._line(f"{label} ...")
            with self._heartbeat(label):
                yield

    @contextmanager
    def _heartbeat(self, label: str) -> Iterator[None]:
        done = threading.Event()
        start = time.perf_counter()

        def beat() -> None:
            while not done.wait(_HEARTBEAT_SECONDS):
                self._line(f"{label} ... still at work after {time.perf_counter() - start:.0f} s")

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


@contextmanager
def _spinner(stream: Stream, label: str) -> Iterator[None]:
    from rich.console import Console  # noqa: PLC0415 (slow to import, only for terminals)
    from rich.progress import Progress as Bar  # noqa: PLC0415
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Bar(*columns, console=Console(file=cast(IO[str], stream)), transient=True) as bar:
        bar.add_task(label, total=None)
        yield


def terminal_progress() -> Progress:
    """Progress on standard error, so that standard output holds the results alone."""
    return Progress(sys.stderr)
