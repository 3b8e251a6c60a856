"""The one exception of our own, and the sentence that names the nearest known word."""

import difflib
from collections.abc import Iterable


class ConfigError(ValueError):
    """A setting that cannot be used: the message names the key, what was expected, what came and the remedy."""


def suggest(word: str, known: Iterable[str]) -> str:
    """`"; did you mean 'fwhm'?"` for the known word nearest to `word`, else the list of the known words."""
    known = sorted(known)
    return nearest(word, known) or (f"; known: {', '.join(known)}" if known else "")


def nearest(word: str, known: Iterable[str]) -> str:
    """`"; did you mean 'fwhm'?"` for the known word nearest to `word`; empty where none is near."""
    near = nearest_words(word, known, 1)
    return f"; did you mean '{near[0]}'?" if near else ""


def nearest_words(word: str, known: Iterable[str], most: int) -> list[str]:
    """The known words that are near to `word`, capitals aside, the nearest first."""
    by_small = {own.lower(): own for own in sorted(known, reverse=True)}
    return [by_small[own] for own in difflib.get_close_matches(word.lower(), sorted(by_small), n=most, cutoff=0.6)]
