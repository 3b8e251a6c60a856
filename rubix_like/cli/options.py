"""Options as commands read them, and messages in their words; nothing here takes time to import."""

import argparse
import difflib
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from rubix_like.errors import ConfigError, nearest_words
from rubix_like.runtime.places import found_at
from rubix_like.runtime.resources import resource_names

_OTHER_NAMES = {"--spaxel": "spaxels"}
"""Options that are not called like the argument that they stand for."""


def read_overrides(pairs: Sequence[str]) -> dict[str, str]:
    """`["a.b=1", ...]` as `{"a.b": "1", ...}`; raises ConfigError for one without a key or value."""
    overrides = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise ConfigError(
                f"--set: expected KEY=VALUE (e.g. noise.signal_to_noise=50, or noise=null for nothing), got '{pair}'"
            )
        overrides[key.strip()] = value
    return overrides


def read_stated(options: argparse.Namespace) -> dict[str, Any]:
    """Those options that are given, as keywords of `read_observed`."""
    stated = {name: getattr(options, name) for name in ("medium", "units", "pixel_scale", "hdu")}
    return {name: value for name, value in stated.items() if value is not None}


def options_in(usage: str) -> list[str]:
    """The options that a command's line of usage names."""
    return re.findall(r"--[a-z][a-z-]*", usage)


def in_options(message: str, options: Iterable[str]) -> str:
    """The message with these `options` in place of arguments: `overwrite=True` is `--overwrite`, `part: ` at its begin
    `--part: `, `output=...` and `process_id` also within it `--output ...` and `--process-id`."""
    for option in options:
        name = _OTHER_NAMES.get(option, option.removeprefix("--").replace("-", "_"))
        places = [rf"^{name}(?=[:,])", rf"(?<![\w.'-]){name}=True\b"]
        places += [rf"(?<![\w.'-]){re.escape(name)}(?!\w)"] if "_" in name or "=" in name else []
        message = re.sub("|".join(places), option, message)
        message = re.sub(rf"(?<![\w.'-])(?:{name}|{option})=(?=[\w.])", f"{option} ", message)
        message = re.sub(rf"(?<![\w.'-])(?:{name}|{option})=", option, message)
    return message


_MODEL = "rubix_like.config.run_config:RunConfig"
_KEYS_NEAR = "rubix_like.config.messages:keys_near"
"""Imported only where something is wrong: the settings, and JAX for those of galaxies, take a second."""

_PATH = {"output": "output.path", "library": "ssp.library", "instrument": "instrument.name", "galaxy": "galaxy.path"}
"""Words that stand for one setting of the section of that name."""

_MOST = 3
"""Settings that are named at most."""


def hint_for_words(words: Sequence[str], usage: str, section: str | None) -> str:
    """A hint at what unknown words of a command may mean: an option in its `usage`, or, where it takes settings, one of
    these; empty where nothing is near."""
    hints = []
    pairs: list[tuple[str, str]] = []  # `--name value`, `--name=value`, `name=value`
    for word in words:
        name, equals, value = word.partition("=")
        if pairs and not word.startswith("-") and not equals and not pairs[-1][1]:
            pairs[-1] = (pairs[-1][0], word)
        else:
            pairs.append((name, value))
    for word, value in pairs:
        name = word.lstrip("-")
        keys = [] if section is None else _keys(name, section)
        options = nearest_words(name, re.findall(r"--([a-z-]+)", usage), 1) if word.startswith("--") else []
        if options and not (keys and _likeness(name, keys[0].rpartition(".")[2]) >= _likeness(name, options[0])):
            hints.append(f"--{options[0]}")
        elif keys:
            hints.append(_setting(keys, value))
    return f"; did you mean {', '.join(dict.fromkeys(hints))}?" if hints else ""


def _keys(word: str, section: str) -> list[str]:
    """The settings that a word may stand for; only that of the command's section, where this has such a one."""
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
