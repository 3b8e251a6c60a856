"""What a cube is made from: the settings, the files that they name, the version of the package."""

import glob
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rubix_like.catalogue.entries import Entry, described
from rubix_like.config import RunConfig
from rubix_like.readers.snapshot_files import sisters
from rubix_like.ssp.catalogue import LIBRARIES, locate
from rubix_like.version import __version__

FileState = list[int]
"""Size in bytes, and the time of the last change in ns: a list, as JSON has it."""


class Sources:
    """Looks at the files that configurations name, at each of them once."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, FileState]] = {}

    def made_from(self, entry: Entry) -> dict[str, Any]:
        """Plain data, equal for two entries only where their cubes are, but for chance and bugs."""
        files = {name: state for path in _named_files(entry.config) for name, state in self._states(path).items()}
        return {"version": __version__, "settings": described(entry.config), "sources": dict(sorted(files.items()))}

    def _states(self, path: Path) -> dict[str, FileState]:
        known = self._seen.get(str(path))
        if known is None:
            known = {str(own): [state.st_size, state.st_mtime_ns] for own in _files(path) for state in [own.stat()]}
            self._seen[str(path)] = known
        return known


def _named_files(config: RunConfig) -> Iterator[Path]:
    """Paths in a configuration, but for those of what it writes, and the library of spectra that is no packaged one."""
    yield from _paths(config.model_dump(exclude={"output"}))
    library = config.ssp.library
    if library not in LIBRARIES or LIBRARIES[library].kind != "embedded":
        yield locate(library)


def _paths(value: Any) -> Iterator[Path]:
    """Every path among settings, and every text that is the name of a file."""
    if isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _paths(part)
    elif isinstance(value, Path):
        yield value.expanduser()
    elif isinstance(value, str) and Path(value).suffix and len(value) < 1000 and Path(value).expanduser().is_file():
        yield Path(value).expanduser()


def _files(path: Path) -> list[Path]:
    """The files that a path may stand for: those of a folder or a pattern, a numbered one with its sisters."""
    if path.is_dir():
        return sorted(own for own in path.iterdir() if own.is_file())
    if path.is_file():
        return sisters(path)
    return sorted(own for own in map(Path, glob.glob(str(path))) if own.is_file())


def changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What differs between two descriptions, in words."""
    lines = []
    if old["version"] != new["version"]:
        lines.append(f"rubix-like {new['version']} instead of {old['version']}")
    before, now = old["settings"], new["settings"]
    for key in sorted(before.keys() | now.keys()):
        if before.get(key) != now.get(key):
            lines.append(f"{key}: {now.get(key)} instead of {before.get(key)}")
    for name in sorted(old["sources"].keys() | new["sources"].keys()):
        if old["sources"].get(name) != new["sources"].get(name):
            lines.append(f"the file {name} is another, or was changed")
    return lines
