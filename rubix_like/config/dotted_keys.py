"""The settings of a run by their dotted keys, to find the one that a misplaced or misspelt word may mean."""

from collections.abc import Iterable, Iterator

from pydantic import BaseModel

from rubix_like.config.plug_ins import READERS
from rubix_like.config.settings import sections_in
from rubix_like.errors import nearest_words

_READERS = "galaxy"
"""The section whose keys are those of its reader."""


_LAST = ("fit", "simulate")
"""Sections whose keys are the last to be thought of."""


def dotted_keys(
    model: type[BaseModel], prefix: str = "", above: tuple[type[BaseModel], ...] = (), beginning: str = ""
) -> Iterator[str]:
    """The dotted key of every setting below `model` that is no section, readers' included; lists of sections, and
    sections of a class they are within (`above`), count as settings.

    Only keys on the way to `beginning` and below it: those of `galaxy` need JAX.
    """
    above = (*above, model)
    for name, field in model.model_fields.items():
        key, sections = f"{prefix}{name}", list(sections_in(field.annotation, listed=False))
        if not (key.startswith(beginning) or beginning.startswith(f"{key}.")):
            continue
        if key == _READERS:
            sections = [READERS.find(reader) for reader in READERS.builtin]
        sections = [section for section in sections if section not in above]
        for section in sections:
            yield from dotted_keys(section, f"{key}.", above, beginning)
        if not sections:
            yield key


def keys_near(word: str, model: type[BaseModel], likeness: float = 0.6) -> list[str]:
    """The dotted keys that end in `word`, the shortest first; else those whose last part is near to it (`likeness` as
    in `nearest_words`)."""
    return near_among(word, dotted_keys(model), likeness)


def near_among(word: str, known: Iterable[str], likeness: float = 0.6) -> list[str]:
    """The dotted keys among some `known` ones, as `keys_near` finds them."""
    keys = sorted(set(known), key=lambda key: (key.count("."), key.startswith(_LAST), key))
    asked = word.lower().replace("-", "_")
    ends = [key for key in keys if f".{key}".endswith(f".{asked}")]
    if ends:
        return ends
    last: dict[str, str] = {}
    for key in keys:
        last.setdefault(key.rpartition(".")[2], key)
    return [last[own] for own in nearest_words(asked.rpartition(".")[2], last, 1, likeness)]
