"""Tables of what a configuration can name, with one line about each."""

import argparse
import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from rubix_like.config import json_schema
from rubix_like.config.plug_ins import READERS, SAMPLERS, STAGES
from rubix_like.runs import known_names
from rubix_like.runs.known_names import COLUMNS, Listing, instrument_table
from rubix_like.runtime.notes import WARNING, Note, note_lines
from rubix_like.runtime.words import table_lines

WIDTH: int = 100
"""Columns of the table of instruments where no terminal says another width."""

KINDS: Mapping[str, Callable[[], Listing]] = {
    "instruments": known_names.list_instruments,
    "ssp": known_names.list_libraries,
    "readers": known_names.list_readers,
    "configs": known_names.list_configs,
    "pipelines": known_names.list_pipelines,
    "stages": known_names.list_stages,
    "fields": known_names.list_fields,
    "products": known_names.list_products,
    "lines": known_names.list_lines,
    "notes": known_names.list_notes,
    "kernels": known_names.list_kernels,
    "samplers": known_names.list_samplers,
    "executors": known_names.list_executors,
}
"""What `rubix-like list` takes -> the names."""


def instrument_text(rows: Sequence[Sequence[str]], width: int) -> str:
    """The table within `width` columns: a line per preset and further range, those of one source together and that
    source above them."""
    rows = [line for row in rows for line in _by_range(row)]
    short = [[*row[:1], *row[2:-1]] for row in (COLUMNS, *rows)]
    title, *lines = table_lines(short)
    if max(map(len, (title, *lines))) > width:
        title, *lines = table_lines(short, gap=1)
    blocks = [title]
    pairs = zip(rows, lines, strict=True)
    for (telescope, source), group in groupby(pairs, key=lambda pair: (pair[0][1], pair[0][-1])):
        heading = textwrap.fill(f"{telescope}: {source}", width, break_long_words=False, break_on_hyphens=False)
        blocks.append("\n".join([heading, *(line for _, line in group)]))
    return "\n\n".join(blocks)


def _by_range(row: Sequence[str]) -> list[list[str]]:
    """A row for each wavelength range of a preset: those after the first with nothing but the range."""
    place = COLUMNS.index("range (A)")
    first, *others = row[place].split(", ")
    lines = [[*row[:place], f"{first}," if others else first, *row[place + 1 :]]]
    for other in others:
        line = [cell if number in (1, len(row) - 1) else "" for number, cell in enumerate(row)]
        line[place] = other
        lines.append(line)
    return lines


def print_list(options: argparse.Namespace) -> None:
    """`rubix-like list`."""
    if options.kind == "instruments":
        print(instrument_text(instrument_table(), shutil.get_terminal_size((WIDTH, 24)).columns))
        return
    rows = KINDS[options.kind]().rows
    print(*(table_lines(rows) if rows else ["none: no plug-in that is installed brings one"]), sep="\n")


def print_schema(options: argparse.Namespace) -> None:  # noqa: ARG001
    """`rubix-like schema`."""
    for registry in (READERS, SAMPLERS, *STAGES):
        problems = [Note("registry.not_usable", f"left out: {text}", WARNING) for text in registry.faults().values()]
        print(*(f"{line}\n" for line in note_lines(problems)), sep="", end="", file=sys.stderr)
    print(json.dumps(json_schema(), indent=2))
