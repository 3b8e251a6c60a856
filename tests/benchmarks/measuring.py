"""Seconds of calls, rows in processes of their own, files of records, tables in Markdown: for all benchmarks."""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jax


def timed(function: Callable[[], Any], repeat: int) -> tuple[float, float]:
    """(first call, median of `repeat` further calls) in seconds."""
    times = []
    for _ in range(repeat + 1):
        start = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - start)
    return times[0], statistics.median(times[1:])


def in_turns(
    calls: Mapping[Any, Callable[[], Any]], repeat: int, clock: Callable[[], float] = time.process_time
) -> dict[Any, list[float]]:
    """Seconds of each call, which take turns, so that other work on the machine meets all alike; a first turn, in which
    all is compiled, is not counted."""
    times: dict[Any, list[float]] = {name: [] for name in calls}
    for turn in range(repeat + 1):
        for name, call in calls.items():
            start = clock()
            jax.block_until_ready(call())
            if turn:
                times[name].append(clock() - start)
    return times


def medians(
    calls: Mapping[Any, Callable[[], Any]], repeat: int, clock: Callable[[], float] = time.process_time
) -> dict[Any, float]:
    """The medians of `in_turns`."""
    return {name: statistics.median(times) for name, times in in_turns(calls, repeat, clock).items()}


def peak_gb() -> float:
    """The largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def run_row(script: str, row: dict[str, Any]) -> dict[str, Any]:
    """A row with what `script --row` prints of it, in a process of its own; the reason where it failed."""
    command = [sys.executable, script, "--row", json.dumps(row)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return row | {"failed": (done.stderr.splitlines() or ["killed"])[-1]}
    return row | json.loads(done.stdout.splitlines()[-1])


def by_peer(options: argparse.Namespace, size: float, *words: str) -> dict[str, Any]:
    """The JSON line that RUBIX's script prints for so many particles, with further words; empty where it was killed."""
    command = [options.peer, options.peer_script, str(int(size)), "MUSE", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {}


def peer_options(parser: argparse.ArgumentParser) -> None:
    """The options of `by_peer`."""
    parser.add_argument("--peer", help="python of an environment with RUBIX")
    parser.add_argument("--peer-script", help="script that times RUBIX")


def described(text: str | None) -> argparse.ArgumentParser:
    """A parser whose help is a module's docstring."""
    return argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)


def records(path: Path) -> list[Any]:
    """The JSON lines of a file that may be missing."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def add_record(path: Path, record: Any) -> None:
    """One more line, at once: a benchmark that is ended goes on."""
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def run_or_report(
    parser: argparse.ArgumentParser, commands: Mapping[str, Callable[[argparse.Namespace], None]]
) -> None:
    """The command that is named, in 64 bits."""
    jax.config.update("jax_enable_x64", True)
    given = parser.parse_args()
    commands[given.command](given)


def head(*columns: str) -> str:
    """The head of a table."""
    return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"


def show(title: str, columns: list[str], rows: Iterable[Iterable[Any]]) -> None:
    """A table."""
    print(f"\n### {title}\n\n{head(*columns)}")
    for row in rows:
        print(f"| {' | '.join(map(_cell, row))} |")
    sys.stdout.flush()


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
