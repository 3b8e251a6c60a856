"""The one exception of our own, and the sentence that names the nearest known word."""

import difflib
from collections.abc import Iterable


class ConfigError(ValueError):
    """A setting that cannot be used: the message names the key, what was expected, what came and the remedy."""


def suggest(word: str, known: Iterable[str]) -> str:
    """`"; did you mean 'fwhm'?"` for the known word nearest to `word`, else the list of the known words."""
    known = sorted(known)
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; known: {', '.join(known)}" if known else ""
