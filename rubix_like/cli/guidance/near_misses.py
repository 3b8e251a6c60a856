"""The options and settings that unknown words of a command may stand for."""

import difflib
import re
import shlex
from collections.abc import Sequence

from rubix_like.errors import nearest_words
from rubix_like.runtime.places import found_at
from rubix_like.runtime.resources import resource_names

_MODEL = "rubix_like.config.run_config:RunConfig"
_KEYS_NEAR = "rubix_like.config.dotted_keys:keys_near"
"""Imported only where something is wrong: the settings take half a second."""

_PATH = {"output": "output.path", "library": "ssp.library", "instrument": "instrument.name", "galaxy": "galaxy.path"}
"""Words that stand for one setting of the section of that name."""

_MOST = 3
"""Settings that are named at most."""


def hint_for_words(words: Sequence[str], usage: str, section: str | None) -> str:
    """A hint at what unknown words of a command may mean: an option in its `usage`, or, where it takes settings, one of
    these; empty where nothing is near."""
    hints = []
    for word, value in _pairs(words):
        name = word.lstrip("-")
        keys = [] if section is None else _keys(name, section)
        options = nearest_words(name, re.findall(r"--([a-z-]+)", usage), 1) if word.startswith("--") else []
        if options and not (keys and _likeness(name, keys[0].rpartition(".")[2]) >= _likeness(name, options[0])):
            hints.append(f"--{options[0]}")
        elif keys:
            hints.append(_setting(keys, value))
    return f"; did you mean {', '.join(dict.fromkeys(hints))}?" if hints else ""


def _pairs(words: Sequence[str]) -> list[tuple[str, str]]:
    """Words with their values: `--name value`, `--name=value`, `name=value`; an empty one where there is none."""
    found: list[tuple[str, str]] = []
    for word in words:
        name, equals, value = word.partition("=")
        if found and not word.startswith("-") and not equals and not found[-1][1]:
            found[-1] = (found[-1][0], word)
        else:
            found.append((name, value))
    return found


def _keys(word: str, section: str) -> list[str]:
    """The settings that a word may stand for; that of the command's own section alone, where it has such a one."""
    if word in _PATH:
        return [_PATH[word]]
    keys = found_at(_KEYS_NEAR)(word, found_at(_MODEL))
    return [key for key in keys if key.startswith(f"{section}.")] or keys[:_MOST]


def _likeness(word: str, other: str) -> float:
    """From 0 to 1, dashes and underlines being the same."""
    return difflib.SequenceMatcher(None, word.replace("-", "_"), other.replace("-", "_")).ratio()


def _setting(keys: Sequence[str], value: str) -> str:
    """`--set observation.inclination=30`."""
    first, *others = keys
    if first == "instrument.name" and (presets := nearest_words(value, resource_names("instruments"), 1)):
        value, others = presets[0], []
    more = f" (or {' or '.join(others)})" if others else ""
    pair = f"{first}={value or 'VALUE'}"
    return f"--set {shlex.quote(pair)}{more}"
