"""Words for messages: amounts of memory, counts with their nouns, shortened texts."""

from collections.abc import Iterable
from typing import SupportsFloat

_MOST = 6


def format_bytes(number: int | None) -> str:
    """`"1.2 GB"`; "unknown" for None."""
    if number is None:
        return "unknown"
    if number > 1e18:
        return "more than 1 EB"
    size, units = float(number), ["B", "kB", "MB", "GB", "TB", "PB"]
    while size >= 999.5 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.3g} {units[0]}"


def counted(number: int, noun: str, several: str = "") -> str:
    """`1 star`, `2 stars`; `several`: the plural of a noun that takes no s."""
    return f"{number} {noun if number == 1 else several or noun + 's'}"


def listed(words: Iterable[str]) -> str:
    """The first six of them, and how many more there are."""
    words = list(words)
    more = [f"{len(words) - _MOST} more"] if len(words) > _MOST else []
    return ", ".join([*words[:_MOST], *more])


def percent(share: SupportsFloat, digits: int = 0) -> str:
    """`24.5 %` of the share 0.245."""
    return f"{100 * float(share):.{digits}f} %"


def reason_of(error: BaseException) -> str:
    """Why, in one line of at most 300 characters, also of an error without words or with several lines of them."""
    if "allow_pickle" in str(error):  # numpy's advice would run code of the file
        return "it holds Python objects, not numbers; write arrays of numbers by numpy.save or numpy.savez"
    return shortened(" ".join(str(error).split())) or type(error).__name__


def shortened(text: str, most: int = 300) -> str:
    """The text without its middle if it is too long: a damaged file may put anything into a message."""
    return text if len(text) <= most else f"{text[: most - 50]} ... {text[-40:]}"
