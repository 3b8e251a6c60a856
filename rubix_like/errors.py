"""The one exception of this package, and the sentence that names the nearest known word."""

import difflib
from collections.abc import Iterable
from numbers import Integral
from os import PathLike
from typing import Any, TypeVar

Expected = TypeVar("Expected")

_SHORT = 60
"""Characters of the longest text that an error repeats."""


class ConfigError(ValueError):
    """A setting that cannot be used: the message names the key, what was expected, what came and the remedy."""


def expect(value: Any, kinds: type[Expected] | tuple[type[Expected], ...], place: str, expected: str) -> Expected:
    """The value, where it is of these types; raises ConfigError that names the argument `place` for another."""
    if isinstance(value, kinds):
        return value
    raise ConfigError(f"{place}: expected {expected}, got {came(value)}")


def expect_path(value: Any, place: str, expected: str = "the path of a file") -> Any:
    """The value, where it is a path that is not empty; raises ConfigError that names the argument `place`."""
    if not str(expect(value, (str, PathLike), place, expected)):
        raise ConfigError(f"{place}: expected {expected}, got an empty text")
    return value


def expect_count(number: Any, place: str, least: int = 1) -> None:
    """Raise ConfigError that names the argument `place` unless the number is a whole one, `least` or more."""
    if isinstance(number, bool) or not isinstance(number, Integral) or number < least:
        raise ConfigError(f"{place}: expected a whole number of {least} or more, got {number!r}")


def came(value: Any) -> str:
    """A value in the words of an error: None and short texts as they are, a class by its name, of others the type."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    short = value is None or (isinstance(value, str) and len(value) <= _SHORT)
    return repr(value) if short else f"a value of type {type(value).__name__}"


def suggest(word: str, known: Iterable[str]) -> str:
    """`"; did you mean 'fwhm'?"` for the known word nearest to `word`, else the list of the known words."""
    known = sorted(set(known))
    return nearest(word, known) or (f"; known: {', '.join(known)}" if known else "")


def or_install(suggested: str, what: str = "a plug-in") -> str:
    """The clause of `suggest`, and the remedy for a name whose package is not installed."""
    start = " If" if suggested.endswith("?") else "; if"
    return f"{suggested}{start} it is {what}, install its package (docs/how-to-extend.md)"


def nearest(word: str, known: Iterable[str]) -> str:
    """`"; did you mean 'fwhm'?"` for the known word nearest to `word`; empty where none is near."""
    near = nearest_words(word, known, 1)
    return f"; did you mean '{near[0]}'?" if near else ""


def nearest_words(word: str, known: Iterable[str], most: int, likeness: float = 0.6) -> list[str]:
    """The known words that are near to `word` (`likeness` of 1 is the same), capitals aside, the nearest first."""
    by_small = {name.lower(): name for name in sorted(known, reverse=True)}
    near = difflib.get_close_matches(word.lower(), sorted(by_small), n=most, cutoff=likeness)
    return [by_small[small] for small in near]
