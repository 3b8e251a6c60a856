"""Checks of the files that settings name: none that is read will be replaced, and none is a pipe or a device."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rubix_like.errors import ConfigError

Named = tuple[str, Path]
"""What a file is (a dotted setting, an option) and its path."""

_LONGEST_TEXT = 1000


def given_files(places: Mapping[str, object]) -> Iterator[Named]:
    """What was given beside the settings, by its name: paths, and text, which may be one; nothing else."""
    for name, value in places.items():
        if isinstance(value, str | Path):
            yield name, Path(os.path.expanduser(value))


def check_separate(written: Iterable[Path], read: Iterable[Named], setting: str) -> None:
    """Raise ConfigError, naming `setting`, where a file that will be written is one that is read, or a link to it.

    To be called before anything is computed. Files that there are not yet are compared by their resolved names.
    """
    known: dict[object, tuple[str, Path]] = {}
    for name, path in read:
        known |= dict.fromkeys(_identities(path), (name, path))
    for path in written:
        lost = next((known[identity] for identity in _identities(path) if identity in known), None)
        if lost is not None:
            raise ConfigError(
                f"{setting}: expected other files than those that are read, got '{path}', which is '{lost[1]}' "
                f"({lost[0]}) and would be replaced; choose another name (output=...)"
            )


def _identities(path: Path) -> Iterator[object]:
    """What a file is known by: its name without links, and where there is one its place on the disk."""
    name = os.path.expanduser(path)
    with suppress(OSError, ValueError):  # a name that cannot be one
        yield os.path.realpath(name)
    with suppress(OSError, ValueError):  # there is no file yet, or none that can be looked at
        status = os.stat(name)
        yield status.st_dev, status.st_ino


def paths_in(value: Any, key: str = "") -> Iterator[Named]:
    """Every path among settings, and every text that is the name of a file, with their dotted keys."""
    for name, text in _texts_in(value, key):
        if isinstance(text, Path) or (Path(text).suffix != "" and _has_kind(text, stat.S_ISREG)):
            yield name, Path(text).expanduser()


def check_regular(value: Any, key: str) -> None:
    """Raise ConfigError for a path, or one among settings, that is neither a file nor a folder.

    Reading a pipe or a device such as /dev/zero may never end.
    """
    for name, text in _texts_in(value, key):
        if _has_kind(text, lambda mode: not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))):
            raise ConfigError(
                f"{name}: expected a file or a folder, got '{text}', which is a pipe or a device; write what "
                f"comes from it into a file, and give that"
            )


def _texts_in(value: Any, key: str) -> Iterator[tuple[str, str | Path]]:
    """Every path and every text among settings, with its dotted key."""
    if isinstance(value, str | Path):
        yield key, value
    for name, part in _parts(value):
        yield from _texts_in(part, f"{key}.{name}".strip("."))


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(str(name), part) for name, part in value.items()]
    return [("", part) for part in value] if isinstance(value, list | tuple) else []


def _has_kind(name: str | Path, is_kind: Callable[[int], bool]) -> bool:
    """Whether there is something of a kind, by the mode of its status, under a name."""
    try:
        return len(str(name)) < _LONGEST_TEXT and is_kind(Path(name).expanduser().stat().st_mode)
    except (OSError, ValueError, RuntimeError):  # nothing there, a null character, the home of an unknown user
        return False
