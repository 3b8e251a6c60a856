"""What may have been meant by an option that a command does not have: a setting, as `--set` takes it."""

import shlex
from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from rubix_like.config import RunConfig
from rubix_like.config.readers.synthetic import SyntheticReader
from rubix_like.config.settings import sections_in
from rubix_like.errors import nearest

_MOST = 3
"""Settings that are named at most."""


def setting_hint(command: str, unknown: Sequence[str]) -> str:
    """`; write --set simulate.seed=3` for the unknown arguments `--seed 3` of a command, or `seed=3`; empty where no
    setting is called so, or nearly so.

    Settings in the section that is named like the command come first.
    """
    word, value = _asked(unknown)
    if not word:
        return ""
    keys = list(dict.fromkeys((*_keys(RunConfig), *_keys(SyntheticReader, "galaxy."))))
    last = [key.rpartition(".")[2] for key in keys]
    found = [key for key in keys if key == word or key.endswith(f".{word}")]
    if not found:
        near = nearest(word, last).removeprefix("; did you mean '").removesuffix("'?")
        found = [key for key, own in zip(keys, last, strict=True) if own == near]
    found = [key for key in found if key.startswith(f"{command}.")] or sorted(found, key=lambda key: key.count("."))
    if not found:
        return ""
    shown = [f"--set {key}={shlex.quote(value or '...')}" for key in found[:_MOST]]
    return f"; if a setting is meant, write {' or '.join(shown)}"


def _asked(unknown: Sequence[str]) -> tuple[str, str]:
    """The name and the value of the first unknown argument; an empty name for none that could be a setting."""
    first, *rest = unknown
    name, equals, value = first.partition("=")
    if not (name.startswith("--") or equals):
        return "", ""
    if not equals and rest and not rest[0].startswith("-"):
        value = rest[0]
    return name.removeprefix("--").replace("-", "_"), value


def _keys(settings: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The dotted keys of settings, and of the sections below."""
    for name, field in settings.model_fields.items():
        sections = tuple(sections_in(field.annotation))
        if not sections:
            yield prefix + name
        for section in sections:
            yield from _keys(section, f"{prefix}{name}.")
