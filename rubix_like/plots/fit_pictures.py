"""The pictures of a fit, as files: steps, spectra, maps, parameters pair by pair, pulls (needs the `plots` extra)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rubix_like.atomic import replacing
from rubix_like.plots.figure import check_picture_suffix
from rubix_like.plots.fit_maps import draw_fit_maps
from rubix_like.plots.fit_parameters import MOST_NAMED, draw_pairs, draw_pulls, paired
from rubix_like.plots.fit_spectra import draw_fit_spectra, ranked_spaxels
from rubix_like.plots.fit_steps import draw_traces
from rubix_like.plots.fit_view import FitView
from rubix_like.plots.style import FIGURE_STYLE, INK, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawing = tuple[str, tuple[float, float], Callable[["Figure"], None]]
"""The end of the file's name, the figure's size in inches, and what draws on it."""


def draw_fit(view: FitView, stem: str | Path, suffix: str = ".png") -> tuple[Path, ...]:
    """Write `STEM_steps.png`, `_spectra`, `_maps`, `_pairs` and `_pulls` (those of which there are data); their paths.

    Raises ConfigError (no matplotlib, another suffix than .png, .pdf or .svg) and OSError if one cannot be written.
    """
    require_matplotlib()
    from matplotlib import rc_context  # noqa: PLC0415 (an optional extra)
    from matplotlib.figure import Figure  # noqa: PLC0415

    paths = []
    for ending, size, draw in drawings(view):
        path = check_picture_suffix(f"{stem}_{ending}{suffix}")
        with rc_context(FIGURE_STYLE):
            figure = Figure(figsize=size, layout="constrained")
            title = {"x": 0.01, "ha": "left", "fontsize": 11, "fontweight": "bold", "color": INK, "parse_math": False}
            figure.suptitle(view.title, **title)
            draw(figure)
            with replacing(path) as temporary:
                figure.savefig(temporary, format=path.suffix[1:], dpi=120)
        paths.append(path)
    return tuple(paths)


def drawings(view: FitView) -> Iterator[Drawing]:
    """What there is to draw, in the order of the files."""
    inferred = view.inferred
    if view.traces:
        yield "steps", (7.5, 5.5), lambda figure: draw_traces(figure, view.traces)
    if view.used.any():
        tall = float(np.clip(view.sky.n_y / view.sky.n_x, 0.3, 3.0))
        yield "spectra", (9.5, 2.6 * len(ranked_spaxels(view)) + 0.6), lambda figure: draw_fit_spectra(figure, view)
        yield "maps", (11.5, 2 * (2.7 * tall + 0.7)), lambda figure: draw_fit_maps(figure, view)
    if inferred is not None and inferred.labels:
        side = 1.15 * len(paired(inferred)) + 1.0
        yield "pairs", (side, side), lambda figure: draw_pairs(figure, inferred)
        height = 0.24 * min(len(inferred.labels), MOST_NAMED) + 1.2
        yield "pulls", (9.5, height), lambda figure: draw_pulls(figure, inferred)
