"""The pictures of a fit, as files: steps, spectra, maps, parameters pair by pair, pulls (needs the `plots` extra)."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rubix_like.plots.fits.fit_maps import draw_fit_maps
from rubix_like.plots.fits.fit_parameters import MOST_NAMED, draw_pairs, draw_pulls, paired, triangle_size
from rubix_like.plots.fits.fit_spectra import draw_fit_spectra, ranked_spaxels
from rubix_like.plots.fits.fit_steps import draw_traces
from rubix_like.plots.fits.fit_view import FitView
from rubix_like.plots.picture_files import Drawing, save_drawings


def draw_fit(view: FitView, stem: str | Path, suffix: str = ".png") -> tuple[Path, ...]:
    """Write `STEM_steps.png`, `_spectra`, `_maps`, `_pairs` and `_pulls` (those with data) and return their paths.

    Raises ConfigError (no matplotlib, another suffix than .png, .pdf or .svg) and OSError if one cannot be written.
    """
    return save_drawings(view.title, drawings(view), stem, suffix)


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
        yield "pairs", triangle_size(len(paired(inferred)), 1.15), lambda figure: draw_pairs(figure, inferred)
        height = 0.24 * min(len(inferred.labels), MOST_NAMED) + 1.2
        yield "pulls", (9.5, height), lambda figure: draw_pulls(figure, inferred)
