"""Notebooks kept as Markdown: a page's cells, and the same as a Jupyter notebook.

A block of Python is a cell. What it printed follows as a block of the language `output`, each of its figures as a
picture of the folder `pictures`. A comment before a block says more: `<!-- parameters -->` (values that a test replaces
by smaller ones), `<!-- needs: MODULE -->` (skipped where it is not installed) or `<!-- long -->` (takes minutes).
"""

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NOTEBOOKS = tuple(sorted((Path(__file__).parent / "notebooks").glob("[0-9]*.md")))

_CELL = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*?) -->\n)?^```python\n(?P<code>.*?)^```\n"
    r"(?P<after>(?:\n```output\n(?P<output>.*?)^```\n)?(?P<pictures>(?:\n!\[[^\]]*\]\(pictures/[^)]*\)\n)*))",
    re.M | re.S,
)
_PICTURE = re.compile(r"!\[(?P<caption>[^\]]*)\]\((?P<path>pictures/[^)]*)\)")


@dataclass(frozen=True)
class Cell:
    """A block of Python with what it gave: its text, or None, and (caption, path) of its pictures."""

    code: str
    mark: str
    output: str | None
    pictures: tuple[tuple[str, str], ...]
    line: int

    @property
    def needs(self) -> str | None:
        """The module without which the cell is skipped."""
        return self.mark.removeprefix("needs: ") if self.mark.startswith("needs: ") else None

    @property
    def is_long(self) -> bool:
        """Whether the cell takes minutes, or needs one that does."""
        return self.mark == "long"


def cells(text: str) -> Iterator[tuple[re.Match[str], Cell]]:
    """Every cell of a page, and where it is."""
    for found in _CELL.finditer(text):
        pictures = tuple((own["caption"], own["path"]) for own in _PICTURE.finditer(found["pictures"]))
        line = text.count("\n", 0, found.start("code"))
        yield found, Cell(found["code"], found["mark"] or "", found["output"], pictures, line)


def with_outputs(text: str, outputs: list[str]) -> str:
    """A page with other texts printed by its cells, "" for none; captions and pictures stay."""
    parts, end = [], 0
    for (found, _), output in zip(cells(text), outputs, strict=True):
        printed = f"\n```output\n{output.rstrip()}\n```\n" if output.strip() else ""
        parts += [text[end : found.start("after")], printed, found["pictures"]]
        end = found.end("after")
    return "".join([*parts, text[end:]])


def as_notebook(page: Path) -> dict[str, Any]:
    """A page as the JSON of a Jupyter notebook (format 4.5), with its outputs."""
    text = page.read_text(encoding="utf-8")
    made, end = [], 0
    for found, cell in cells(text):
        made += [_prose(text[end : found.start()]), _code(cell, page.parent)]
        end = found.end()
    made += [_prose(text[end:])]
    kept = [own for own in made if own["source"]]
    return {
        "cells": [{**own, "id": f"cell-{number}"} for number, own in enumerate(kept)],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _prose(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text.strip()}


def _code(cell: Cell, folder: Path) -> dict[str, Any]:
    outputs: list[dict[str, Any]] = []
    if cell.output is not None:
        outputs.append({"output_type": "stream", "name": "stdout", "text": cell.output})
    for caption, path in cell.pictures:
        data = {"image/png": base64.b64encode((folder / path).read_bytes()).decode(), "text/plain": caption}
        outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
    source = {"cell_type": "code", "metadata": {}, "execution_count": None, "source": cell.code.rstrip()}
    return {**source, "outputs": outputs}
