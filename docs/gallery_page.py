"""The gallery: every picture of these pages, with its caption and the page whose code makes it."""

import re
from collections.abc import Iterator
from pathlib import Path

_FOLDER = Path(__file__).parent

_PICTURE = re.compile(r"^!\[([^\]]+)\]\(([\w./-]+\.png)\)$", re.M)


def gallery() -> str:
    """The pictures of the notebooks, then those of the other pages, as figures that link to their pages."""
    pages = [*sorted(_FOLDER.glob("notebooks/*.md")), *sorted(_FOLDER.glob("*.md"))]
    figures = [figure for page in pages if page.stem != "gallery" for figure in _figures(page)]
    return "\n".join(['<div class="gallery" markdown>\n', *figures, "</div>\n"])


def _figures(page: Path) -> Iterator[str]:
    text = page.read_text(encoding="utf-8")
    title = re.search(r"^# (.+)$", text, re.M)
    place = page.relative_to(_FOLDER).as_posix()
    for caption, path in _PICTURE.findall(text):
        picture = (page.parent / path).relative_to(_FOLDER).as_posix()
        name = title[1] if title else page.stem
        yield (
            f"<figure markdown>\n[![{caption}]({picture})]({place})\n"
            f"<figcaption markdown>[{name}]({place}): {caption}.</figcaption>\n</figure>\n"
        )
