"""What a cube is made from: the settings, the files that they name, the version of the package."""

from pathlib import Path
from typing import Any

from rubix_like.runs.batch.entries import Entry, described
from rubix_like.runs.named_files import files_at, named_paths
from rubix_like.version import __version__

FileState = list[int]
"""Size in bytes, and the time of the last change in ns: a list, as JSON has it."""


class Sources:
    """Looks at the files that configurations name, at each of them once."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, FileState]] = {}

    def made_from(self, entry: Entry) -> dict[str, Any]:
        """Plain data, equal for two entries only where their cubes are, but for chance and bugs."""
        files = {name: state for _, path in named_paths(entry.config) for name, state in self._states(path).items()}
        return {"version": __version__, "settings": described(entry.config), "sources": dict(sorted(files.items()))}

    def _states(self, path: Path) -> dict[str, FileState]:
        known = self._seen.get(str(path))
        if known is None:
            known = {str(own): [state.st_size, state.st_mtime_ns] for own in files_at(path) for state in [own.stat()]}
            self._seen[str(path)] = known
        return known


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
