"""Plain values as rows (KEY, VALUE) of printable ASCII, as a FITS table holds them, and back without loss.

Numbers, booleans and None are JSON. A string stands as it is, one row per line with the key repeated, so that the
YAML of a run can be read in any table viewer; a line that could be taken for JSON, holds other letters than printable
ASCII or ends in blanks is a JSON string.
"""

import json
from collections.abc import Iterable, Mapping

COUNTER_PREFIX: str = "counters."
"""Keys of the stars' counters in the CONFIG table."""

SOURCE_PREFIX: str = "source_counters/"
"""Keys of the counters of other sources there."""

Row = tuple[str, str]


def split_rows(values: Mapping[str, str | int | float | bool | None]) -> list[Row]:
    """The rows of `values`, in their order."""
    rows = []
    for key, value in values.items():
        lines = [_quoted(line) for line in value.split("\n")] if isinstance(value, str) else [json.dumps(value)]
        rows.extend((key, line) for line in lines)
    return rows


def join_rows(rows: Iterable[Row]) -> dict[str, str | int | float | bool | None]:
    """The values of rows made by `split_rows`."""
    lines: dict[str, list[str]] = {}
    for key, line in rows:
        lines.setdefault(key, []).append(line)
    return {key: _value(parts) for key, parts in lines.items()}


def _value(lines: list[str]) -> str | int | float | bool | None:
    if len(lines) == 1:
        return _unquoted(lines[0])
    return "\n".join(str(_unquoted(line)) for line in lines)


def _quoted(line: str) -> str:
    printable = line.isascii() and line.isprintable() and line == line.rstrip()
    return line if printable and _unquoted(line) is line else json.dumps(line)


def _unquoted(line: str) -> str | int | float | bool | None:
    """The scalar that `line` is in JSON, else `line` itself."""
    try:
        value = json.loads(line)
    except ValueError:
        return line
    return line if isinstance(value, list | dict) else value
