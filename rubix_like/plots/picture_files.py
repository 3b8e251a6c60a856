"""Pictures as files: each with the house's style and a title, written whole or not at all (needs the `plots` extra)."""

import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rubix_like.plots.figure import check_picture
from rubix_like.plots.style import FIGURE_STYLE, INK, import_matplotlib, write_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawing = tuple[str, tuple[float, float], Callable[["Figure"], None]]
"""The end of the file's name, the figure's size in inches, and what draws on it."""

_CHARACTERS_PER_INCH = 10
"""Characters of a title per inch of its figure."""


def save_drawings(
    title: str, drawings: Iterable[Drawing], stem: str | Path, suffix: str, *, overwrite: bool
) -> tuple[Path, ...]:
    """Write `STEM_ENDING.SUFFIX` for every drawing, the title above it; their paths.

    Raises ConfigError (no matplotlib, another suffix than .png, .pdf or .svg, without `overwrite` a file that is no
    picture of rubix_like) before any is written, and OSError if one cannot be written.
    """
    make_figure, rc_context = import_matplotlib("matplotlib.figure").Figure, import_matplotlib().rc_context
    style: Any = {"x": 0.01, "ha": "left", "fontsize": 11, "fontweight": "bold", "color": INK, "parse_math": False}
    chosen = list(drawings)
    paths = [check_picture(f"{stem}_{ending}{suffix}", overwrite=overwrite) for ending, _, _ in chosen]
    for path, (_, size, draw) in zip(paths, chosen, strict=True):
        with rc_context(FIGURE_STYLE):
            figure = make_figure(figsize=size, layout="constrained")
            figure.suptitle(textwrap.fill(title, int(_CHARACTERS_PER_INCH * size[0])), **style)
            draw(figure)
            write_picture(figure, path, dpi=120)
    return tuple(paths)
