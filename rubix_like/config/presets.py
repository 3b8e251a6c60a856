"""Merge an instrument's section with the preset that it names, and the preset with its own base."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rubix_like.config.yaml_files import SUFFIXES, find_file, read_section
from rubix_like.errors import ConfigError
from rubix_like.runtime.resources import resource_names

KIND = "instruments"

Merge = Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]
"""A section below and the one above it -> the section of both."""


def preset_layers(section: Mapping[str, Any], complete: frozenset[str]) -> tuple[Mapping[str, Any], ...]:
    """The files below `section`, the deepest first, then `section` itself.

    The first file is the one called `section["based_on"]` or, without it, `section["name"]`; each may be `based_on`
    another (a path is taken from the folder of the file that states it). What states every key of `complete` needs
    nothing below. Raises ConfigError for a name that is not known, for two names of one thing and for a circle.
    """
    layers: list[Mapping[str, Any]] = [section]
    passed: list[Path] = []
    reference, folder = None if complete <= set(section) else _first_reference(section), None
    while reference is not None and not complete <= set(layers[-1]):
        path = _find(reference, folder)
        if path in passed:
            circle = " -> ".join(f"'{_name(step)}'" for step in (*passed[passed.index(path) :], path))
            raise ConfigError(f"{path}: based_on goes round in a circle: {circle}")
        passed.append(path)
        layers.append(read_section(path))
        reference, folder = layers[-1].get("based_on"), path.parent
    return tuple(reversed(layers))


def merge_layers(layers: Sequence[Mapping[str, Any]], merges: Mapping[str, Merge]) -> dict[str, Any]:
    """Each layer put on the one before: sections by their function in `merges`, other values replaced whole."""
    result: dict[str, Any] = {}
    for layer in layers:
        both = {
            key: merge(result[key], layer[key])
            for key, merge in merges.items()
            if isinstance(result.get(key), Mapping) and isinstance(layer.get(key), Mapping)
        }
        result |= {**layer, **both}
    return {**result, "based_on": None}


def _first_reference(section: Mapping[str, Any]) -> object:
    name, base = section.get("name"), section.get("based_on")
    names = resource_names(KIND)
    if not isinstance(name, str):
        raise ConfigError(
            f"expected the key 'name': one of {', '.join(names)}, or the path of a .yaml file; got {name!r}"
        )
    if base is None:
        return name
    if base != name and (name in names or Path(name).suffix in SUFFIXES):
        raise ConfigError(
            f"based_on: expected it beside a name of your own, but '{name}' stands for a preset or file itself; "
            f"got '{base}' (give another name, or no based_on)"
        )
    return base


def _find(reference: object, folder: Path | None) -> Path:
    """The file of a preset's name or path, a path being relative to `folder` (None: the working directory)."""
    if not isinstance(reference, str):
        raise ConfigError(f"based_on: expected the name of a preset or the path of a .yaml file, got {reference!r}")
    path = Path(reference).expanduser()
    if folder is not None and path.suffix in SUFFIXES:
        reference = str(folder / path)
    return find_file(KIND, reference).resolve()


def _name(path: Path) -> str:
    """The name under which users know a file: that of the preset, or the file's."""
    return path.stem if path.stem in resource_names(KIND) else path.name
