"""Tables of text: aligned columns, by rich."""

import io
from collections.abc import Container, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

_UNLIMITED = 1 << 20


def table_lines(
    rows: Sequence[Sequence[str]], *, right: Container[int] = (), gap: int = 2, width: int = _UNLIMITED
) -> list[str]:
    """The rows as lines of aligned columns, `gap` spaces apart, without spaces at their ends.

    Columns whose numbers are in `right` are aligned to the right. A cell that does not fit into `width` goes on below
    itself.
    """
    table = Table(box=None, show_header=False, padding=(0, gap, 0, 0), pad_edge=False)
    for column in range(len(rows[0])):
        table.add_column(justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().splitlines()]
