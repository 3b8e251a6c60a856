"""Texts for people: amounts, counts with their nouns and shortened texts; tables of aligned columns and of HTML."""

import base64
import html
import io
from collections.abc import Container, Iterable, Sequence
from typing import SupportsFloat

from rubix_like.runtime.places import found_at

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
    """`24 %` of the share 0.245; `24.5 %` with `digits=1`."""
    return f"{100 * float(share):.{digits}f} %"


def reason_of(error: BaseException) -> str:
    """Why, in one line of at most 300 characters, also of an error without words or with several lines of them."""
    if "allow_pickle" in str(error):  # numpy's advice would run code of the file
        return "it holds Python objects, not numbers; write arrays of numbers by numpy.save or numpy.savez"
    return shortened(" ".join(str(error).split())) or type(error).__name__


def shortened(text: str, most: int = 300) -> str:
    """The text without its middle if it is too long: a damaged file may put anything into a message."""
    return text if len(text) <= most else f"{text[: most - 50]} ... {text[-40:]}"


_CONSOLE, _TABLE, _TEXT = "rich.console:Console", "rich.table:Table", "rich.text:Text"
"""Imported where a table is made: whoever loads a galaxy makes none."""

_UNLIMITED = 1 << 20


def table_lines(
    rows: Sequence[Sequence[str]], *, right: Container[int] = (), gap: int = 2, width: int = _UNLIMITED
) -> list[str]:
    """The rows as lines of aligned columns, `gap` spaces apart, without spaces at their ends.

    Columns whose numbers are in `right` are aligned to the right. A cell that does not fit into `width` goes on below
    itself.
    """
    table = found_at(_TABLE)(box=None, show_header=False, padding=(0, gap, 0, 0), pad_edge=False)
    for column in range(len(rows[0])):
        table.add_column(justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(found_at(_TEXT), row))
    console = found_at(_CONSOLE)(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().splitlines()]


_STYLE = "text-align:left;vertical-align:top;padding:1px 12px 1px 0"


def html_table(
    title: str, rows: Iterable[Sequence[str]], *, notes: Iterable[str] = (), picture: bytes | None = None
) -> str:
    """A title, rows of cells, sentences and a PNG picture beside them as HTML, such as a notebook shows of a value."""
    cells = ["".join(f'<td style="{_STYLE}">{html.escape(cell)}</td>' for cell in row) for row in rows]
    table = "".join(f"<tr>{row}</tr>" for row in cells)
    said = "".join(f"<div>{html.escape(note)}</div>" for note in notes)
    text = f"<div><strong>{html.escape(title)}</strong><table>{table}</table>{said}</div>"
    if picture is None:
        return text
    source = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    shown = f'<img src="{source}" alt="white light" style="image-rendering:pixelated;height:128px"/>'
    return f'<div style="display:flex;gap:16px;align-items:flex-start">{shown}{text}</div>'
