"""Tables for people: aligned columns of text, by rich, and HTML for notebooks."""

import base64
import html
import io
from collections.abc import Container, Iterable, Sequence

from rubix_like.runtime.places import found_at

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
