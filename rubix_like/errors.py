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
    near = difflib.get_close_matches(word, sorted(known), n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""
