"""Progress of long work: a live line on a terminal, plain lines in a log."""

import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

from rubix_like.arguments import named_arguments

_HEARTBEAT_SECONDS = 30.0

Report = Callable[[str, int, int], None]
"""What a step tells of itself while it lasts: what is done ("stars read"), how many of them, and of how many."""


def silent(what: str, done: int, total: int) -> None:
    """A report that nobody reads."""


@runtime_checkable
class Stream(Protocol):
    """A text file that progress is printed to, such as sys.stderr."""

    def write(self, text: str, /) -> Any:
        """Take some text."""

    def flush(self) -> Any:
        """Show it now."""

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        ...


class Progress:
    """Reports named steps as they start and end, and keeps their times (seconds) in `timings`, added up by name; in
    `processor` the processor time meanwhile, and under `import` that before the progress was made.

    On a terminal a step shows a spinner with the elapsed time, and a bar once it reports how far it is; elsewhere it
    prints a line at its start, one every 30 s while it lasts, with what it reported last, and one at its end. With
    `stream=None` nothing is shown. `rewrites`: the next line may take the place of the last, as in a notebook.
    """

    @named_arguments
    def __init__(self, stream: Stream | None = None, *, rewrites: bool = False) -> None:
        self.stream = stream
        self.rewrites = rewrites
        self._covered = 0  # letters of the line that the next one takes the place of
        self.timings: dict[str, float] = {}
        self.processor: dict[str, float] = {"import": time.process_time()}

    @named_arguments
    @contextmanager
    def step(self, name: str, label: str) -> Iterator[Report]:
        """Adds the time of a step to `timings[name]` and shows it as `label`; gives the step's `Report`."""
        start, processor = time.perf_counter(), time.process_time()
        with self._shown(label) as report:
            yield report
        seconds = time.perf_counter() - start
        self.timings[name] = self.timings.get(name, 0.0) + seconds
        self.processor[name] = self.processor.get(name, 0.0) + time.process_time() - processor
        self._line(f"{label}: {seconds:.1f} s")

    def tell(self, text: str) -> None:
        """Shows a line that lasts."""
        self._line(text)

    def _line(self, text: str, *, lasts: bool = True) -> None:
        if self.stream is not None:
            stays = lasts or not self.rewrites
            print(text.ljust(self._covered), file=self.stream, flush=True, end="\n" if stays else "\r")
            self._covered = 0 if stays else len(text)

    @contextmanager
    def _shown(self, label: str) -> Iterator[Report]:
        if self.stream is None:
            yield silent
        elif self.stream.isatty():
            with _bar(self.stream, label) as report:
                yield report
        else:
            self._line(f"{label} ...", lasts=False)
            with self._heartbeat(label) as report:
                yield report

    @contextmanager
    def _heartbeat(self, label: str) -> Iterator[Report]:
        done = threading.Event()
        start = time.perf_counter()
        reported: list[str] = []

        def report(what: str, finished: int, total: int) -> None:
            reported[:] = [f", {_share(what, finished, total)}"]

        def beat() -> None:
            while not done.wait(_HEARTBEAT_SECONDS):
                words = f"{label} ... still at work after {time.perf_counter() - start:.0f} s{''.join(reported)}"
                self._line(words, lasts=False)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield report
        finally:
            done.set()
            thread.join()


def _share(what: str, finished: int, total: int) -> str:
    """`stars read: 1,000 of 2,000`."""
    return f"{what}: {finished:,} of {total:,}"


@contextmanager
def _bar(stream: Stream, label: str) -> Iterator[Report]:
    """A spinner with the elapsed time; the first report adds a bar. Only terminals wait for the import of rich."""
    console, bars = (importlib.import_module(f"rich.{name}") for name in ("console", "progress"))
    plain = (bars.SpinnerColumn(), bars.TextColumn("{task.description}"), bars.TimeElapsedColumn())
    with bars.Progress(*plain, console=console.Console(file=stream), transient=True) as bar:
        task = bar.add_task(label, total=None)

        def report(what: str, finished: int, total: int) -> None:
            if len(bar.columns) == len(plain):
                bar.columns = (*plain[:2], bars.BarColumn(), plain[2])
            bar.update(task, description=f"{label} ({_share(what, finished, total)})", completed=finished, total=total)

        yield report


def terminal_progress() -> Progress:
    """Progress on standard error, so that standard output holds the results alone."""
    return Progress(sys.stderr)


def progress_here(quiet: bool | None = None) -> Progress:
    """Progress for a call from Python: shown in a notebook (standard output) and on a terminal (standard error).

    `quiet`: True shows nothing; False shows it elsewhere too, such as in the log of a job; None: there nothing.
    """
    if quiet:
        return Progress()
    if getattr(ipython_shell(), "kernel", None) is not None:  # a notebook
        return Progress(sys.stdout, rewrites=True)
    return terminal_progress() if quiet is False or sys.stderr.isatty() else Progress()


def ipython_shell() -> Any:
    """The shell of IPython that this runs in; None elsewhere, and where IPython is not imported."""
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
