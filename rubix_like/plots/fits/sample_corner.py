"""The corner plot: draws of the best constrained numbers, one by one and pair by pair."""

from typing import TYPE_CHECKING, Any

import numpy as np

from rubix_like.plots.fits.fit_parameters import MARGINS, PRIOR_COLOR, contour, density, draw_triangle, power_of
from rubix_like.plots.fits.sample_view import CONTOURS, Corner, density_of, evenly_chosen
from rubix_like.plots.style import INK, SPAXEL_COLORS, import_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHARES: tuple[float, ...] = (0.16, 0.5, 0.84)
"""Shares of the draws below the lines in a histogram."""

DRAW_COLOR, TRUTH_COLOR, LAPLACE_COLOR = SPAXEL_COLORS[:3]

MOST_LARGE: int = 6
"""Numbers up to which panels are large."""

MOST_POINTS: int = 2000
"""Draws that are points in a panel; of more, evenly chosen ones."""

_TAIL = 0.002
"""Share of the draws beyond each limit of a panel, but for its margin."""
_MARGIN = 0.15
_FEWEST_BINS, _MOST_BINS = 8, 40


def draw_corner(figure: "Figure", corner: Corner) -> None:
    """Histograms with 16, 50 and 84 % on the diagonal; below it draws, and contours that hold 39 and 86 % of them.

    Laplace's approximation is green, the truth (if known) red, the prior grey; crosses are draws that diverged.
    """
    limits = [_limits(corner, number) for number in range(len(corner.drawn.labels))]
    draw_triangle(
        figure,
        corner.drawn,
        range(len(limits)),
        lambda number: limits[number],
        lambda axes, number: _draw_histogram(axes, corner, number, limits[number]),
        lambda axes, first, second: _draw_pair(axes, corner, first, second),
    )
    _draw_legend(figure, corner)


def _limits(corner: Corner, number: int) -> tuple[float, float]:
    """Nearly all draws, and the truth where it is not far away."""
    low, high = (float(value) for value in np.quantile(corner.values[:, number], [_TAIL, 1 - _TAIL]))
    span = high - low if high > low else max(abs(low), 1.0) * 1e-3
    truth = corner.drawn.truth
    true = float("nan") if truth is None else float(truth[number])
    if low - span < true < high + span:
        low, high = min(low, true), max(high, true)
    return low - _MARGIN * span, high + _MARGIN * span


def _draw_histogram(axes: "Axes", corner: Corner, number: int, limits: tuple[float, float]) -> None:
    values = corner.values[:, number]
    n_bins = int(np.clip(np.sqrt(len(values)), _FEWEST_BINS, _MOST_BINS))
    height, *_ = axes.hist(values, bins=n_bins, range=limits, density=True, color=DRAW_COLOR, alpha=0.4, lw=0)
    marks = np.quantile(values, SHARES)
    for mark, style in zip(marks, (":", "-", ":"), strict=True):
        axes.axvline(float(mark), color=DRAW_COLOR, linewidth=0.9, linestyle=style)
    axes.plot(*density(corner.drawn, number, 0.0, 1.0), color=PRIOR_COLOR, linewidth=1.0)
    if corner.laplace is not None:
        normal = corner.laplace
        curve = density(normal, number, float(normal.latent[number]), float(normal.sigma[number]))
        axes.plot(*curve, color=LAPLACE_COLOR, linewidth=0.9)
    axes.set_ylim(0, 1.25 * float(np.max(height)))
    axes.set_yticks([])
    low, middle, high = (float(mark) for mark in marks)
    known = corner.drawn.limits.get(number)
    axes.set_title(_interval(corner, limits, (low, middle, high)) if known is None else known.words, fontsize=7)
    if corner.drawn.truth is not None:
        axes.axvline(corner.drawn.truth[number], color=TRUTH_COLOR, linewidth=0.9)


def _interval(corner: Corner, limits: tuple[float, float], marks: tuple[float, float, float]) -> str:
    """Median and distances of 16 and 84 %, in the units of the ticks, which the name below the column says."""
    power = power_of(max(abs(limits[0]), abs(limits[1])))
    low, middle, high = (value / 10.0**power for value in marks)
    half = 0.5 * (high - low)
    decimals = max(1 - int(np.floor(np.log10(half))), 0) if half > 0 else 6
    between = "\n" if len(corner.drawn.labels) > MOST_LARGE else " "
    return f"{middle:.{decimals}f}{between}+{high - middle:.{decimals}f} −{middle - low:.{decimals}f}"


def _draw_pair(axes: "Axes", corner: Corner, first: int, second: int) -> None:
    pair = np.array([first, second])
    points = corner.values[np.ix_(evenly_chosen(len(corner.values), MOST_POINTS), pair)]
    axes.plot(*points.T, ".", color=DRAW_COLOR, markersize=2.2, alpha=0.5, markeredgewidth=0)
    _draw_contours(axes, corner, pair)
    if corner.laplace is not None:
        for share in CONTOURS:
            axes.plot(*contour(corner.laplace, first, second, share), color=LAPLACE_COLOR, linewidth=0.7)
    left = corner.values[np.ix_(corner.diverging, pair)]
    axes.plot(*left.T, "x", color=INK, markersize=3, markeredgewidth=0.8)
    truth = corner.drawn.truth
    if truth is not None:
        axes.axvline(truth[first], color=TRUTH_COLOR, linewidth=0.7)
        axes.axhline(truth[second], color=TRUTH_COLOR, linewidth=0.7)


def _draw_contours(axes: "Axes", corner: Corner, pair: np.ndarray) -> None:
    found = density_of(corner.latent[:, pair], corner.within[np.ix_(pair, pair)])
    if found is None or not found.levels[-1] < found.levels[0]:
        return
    values = [corner.drawn.value(int(number), own) for number, own in zip(pair, found.latent, strict=True)]
    axes.contour(*values, found.height, levels=sorted(found.levels), colors=DRAW_COLOR, linewidths=(0.8, 1.3))


def _draw_legend(figure: "Figure", corner: Corner) -> None:
    """Draw the legend in the empty corner of the plot."""
    lines = import_matplotlib("matplotlib.lines")

    def line(label: str, color: str, **style: Any) -> Any:
        return lines.Line2D([], [], label=label, color=color, **style)

    handles = [line("draws: 39 %, 86 % of them", DRAW_COLOR, linewidth=1.4), line("prior", PRIOR_COLOR)]
    if corner.laplace is not None:
        handles.append(line("Laplace's approximation", LAPLACE_COLOR, linewidth=0.9))
    if corner.drawn.truth is not None:
        handles.append(line("truth", TRUTH_COLOR, linewidth=0.9))
    if corner.diverging.any():
        handles.append(line(f"{corner.diverging.sum()} diverged", INK, linestyle="", marker="x", markersize=4))
    width, height = (float(side) for side in figure.get_size_inches())
    place = (1 - MARGINS[1] / width, 1 - MARGINS[3] / height)
    figure.legend(handles=handles, frameon=False, fontsize=8, loc="upper right", bbox_to_anchor=place, borderaxespad=0)
