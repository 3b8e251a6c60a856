"""One case in a child of its own, forked with the package imported, under limits of time and memory."""

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from rubix_like.__main__ import main

from . import impossible, mutations
from .kinds import Kind

SECONDS = 30
"""Of processor time: a case that takes longer is a hang, however busy the computer is."""

WAITING_SECONDS = 60
"""After which a case that does nothing is one, too."""

MEMORY = 6 << 30
"""Bytes of address space that a child may have beyond the parent's."""

REPOSITORY = Path(__file__).resolve().parent.parent.parent

COMMAND_SECONDS = 600
"""Of a real command, which imports and compiles; its reading alone is measured in children."""


@dataclass(frozen=True)
class Outcome:
    """What came of a case: accepted, refused, or a fault (traceback, hang, crash, impossible) with its words."""

    kind: str
    number: int
    change: str
    status: str
    words: str
    seconds: float


def attempt(kind: Kind, number: int, source: Path, folder: Path) -> Outcome:
    """Change a copy of `source` by the numbers of this case, and read it in a child."""
    path, change = changed_copy(kind, number, source, folder)
    begun, told = time.monotonic(), folder / "outcome.json"
    child = os.fork()
    if child == 0:
        _read(kind, path, told)
    _, status = os.waitpid(child, 0)
    seconds = time.monotonic() - begun
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        return Outcome(kind.name, number, change, "hang" if name in {"SIGALRM", "SIGXCPU"} else "crash", name, seconds)
    if not told.exists():
        return Outcome(kind.name, number, change, "crash", f"left with {os.WEXITSTATUS(status)}", seconds)
    return Outcome(kind.name, number, change, *json.loads(told.read_text()), seconds)


def changed_copy(kind: Kind, number: int, source: Path, folder: Path) -> tuple[Path, str]:
    """The copy in `folder`, and what was done to it."""
    rng = np.random.default_rng([number, *kind.name.encode()])
    path = folder / source.name
    copy = shutil.copytree if source.is_dir() else shutil.copyfile
    copy(source, path)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            change = kind.changes[rng.integers(len(kind.changes))](path, rng)
        except Exception:  # what cannot be changed so, is changed otherwise
            if path.is_dir():
                shutil.rmtree(path)
            copy(source, path)
            change = (mutations.change_inside if path.is_dir() else mutations.change_bytes)(path, rng)
    return path, f"{source.name}: {change}"


def _read(kind: Kind, path: Path, told: Path) -> None:
    """In the child: read, write what came of it, and leave without a word."""
    with contextlib.suppress(BaseException):
        signal.alarm(WAITING_SECONDS)
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
        _limit_memory()
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        warnings.simplefilter("ignore")
        told.write_text(json.dumps(_outcome(kind, path)))
    os._exit(0)


def _outcome(kind: Kind, path: Path) -> tuple[str, str]:
    try:
        found = kind.read(path)
    except (ValueError, OSError) as error:
        return "refused", str(error) or "no words: a traceback would say more"
    except MemoryError as error:
        return ("refused", str(error)) if str(error) else ("traceback", "MemoryError without words")
    except BaseException:
        return "traceback", traceback.format_exc()
    return ("impossible", "; ".join(found)) if found else ("accepted", "")


def _limit_memory() -> None:
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, resource.RLIM_INFINITY))


def command(kind: Kind, number: int, source: Path, folder: Path, data: Path, *, is_new: bool = False) -> Outcome:
    """The same as a user's command; `data`: the whole cube that fits may be given. `is_new`: in a new process, which
    imports the package anew, in place of one forked from this."""
    path, change = changed_copy(kind, number, source, folder)
    shutil.copyfile(data, folder / "data.fits")
    environment = {"PYTHONPATH": str(REPOSITORY)}
    if kind.name == "ssp":
        environment["RUBIX_LIKE_CACHE"] = str(folder / "cache")
    begun = time.monotonic()
    done = (_new_process if is_new else _forked)(kind.words(path), environment, folder)
    if done is None:
        return Outcome(kind.name, number, change, "hang", "command", time.monotonic() - begun)
    status, text = _judged(done, folder / "out.fits", kind.most)
    return Outcome(kind.name, number, f"command: {change}", status, text, time.monotonic() - begun)


def _new_process(words: list[str], environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess | None:
    """How a command ended; None where it did not."""
    program = [sys.executable, "-m", "rubix_like", *words]
    own = os.environ | environment
    try:
        return subprocess.run(
            program,
            env=own,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS,
            preexec_fn=_limit_memory,
        )
    except subprocess.TimeoutExpired:
        return None


def _forked(words: list[str], environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess | None:
    """The same in a child that has the package imported already."""
    printed, told = folder / "printed.txt", folder / "told.txt"
    child = os.fork()
    if child == 0:
        _leave_through_command(words, environment, folder, printed, told)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return None if code == -signal.SIGALRM else subprocess.CompletedProcess(words, code, "", told.read_text())


def _leave_through_command(
    words: list[str], environment: dict[str, str], folder: Path, printed: Path, told: Path
) -> NoReturn:
    """In the child: the console script, with its streams in files; what Python says of an exception is a traceback."""
    for number, path in ((1, printed), (2, told)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    code: object = 70
    try:
        signal.alarm(COMMAND_SECONDS)
        _limit_memory()
        os.environ.update(environment)
        os.chdir(folder)
        sys.argv = ["rubix-like", *words]
        code = main()
    except SystemExit as left:
        code = left.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def _judged(done: subprocess.CompletedProcess, cube: Path, most: float | None) -> tuple[str, str]:
    if done.returncode < 0:
        return "crash", f"{signal.Signals(-done.returncode).name}: {done.stderr[-500:]}"
    if "Traceback" in done.stderr or "a bug:" in done.stderr or done.returncode not in {0, 1, 2}:
        return "traceback", f"{done.returncode}: {done.stderr[-2000:]}"
    if done.returncode != 0:
        return "refused", done.stderr[-500:]
    found = impossible.of_run(cube, most) if cube.exists() else []
    return ("impossible", "; ".join(found)) if found else ("accepted", "")


def as_line(outcome: Outcome) -> str:
    """For a file of outcomes."""
    return json.dumps(asdict(outcome))
