"""The trace plot: chains draw by draw, and a histogram of each."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.plots.fits.fit_parameters import set_power, unit_text
from rubix_like.plots.fits.sample_view import Followed, SampleView
from rubix_like.plots.style import SPAXEL_COLORS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FEWEST_BINS, _MOST_BINS = 6, 40


def draw_followed(figure: "Figure", view: SampleView) -> None:
    """For each number its values in every chain, in the chain's colour, and their histograms beside them.

    Ticks below are draws that diverged.
    """
    grid: Any = figure.subplots(len(view.followed), 2, sharex="col", sharey="row", width_ratios=(4.5, 1), squeeze=False)
    for (left, right), followed in zip(grid, view.followed, strict=True):
        _draw_chains(left, followed)
        _draw_histograms(right, followed)
        for chain, is_diverging in enumerate(view.diverging):
            at = np.flatnonzero(is_diverging)
            style: Any = {"color": _color(chain), "markersize": 12, "markeredgewidth": 1.1}
            left.plot(at, np.zeros(len(at)), "|", transform=left.get_xaxis_transform(), **style)
        left.set_title(_title(left, followed), fontsize=8)
    grid[-1, 0].set_xlabel("draw")
    grid[-1, 1].set_xlabel("density of draws")
    n_chain, n_draw = view.diverging.shape
    grid[0, 0].set_xlim(-0.5, n_draw - 0.5)
    if 1 < n_chain <= len(SPAXEL_COLORS):
        place: Any = {"loc": "lower right", "bbox_to_anchor": (1.0, 0.98), "borderaxespad": 0}
        grid[0, 0].legend(frameon=False, ncols=n_chain, fontsize=7, **place).set_in_layout(False)


def _draw_chains(axes: "Axes", own: Followed) -> None:
    for chain, values in enumerate(own.values):
        axes.plot(np.arange(len(values)), values, color=_color(chain), linewidth=0.6, label=f"chain {chain + 1}")
    axes.margins(y=0.08)
    axes.grid(color="#dddddd", linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=7)
    axes.locator_params(axis="y", nbins=4)


def _draw_histograms(axes: "Axes", own: Followed) -> None:
    """Each chain's, of one area, in common bins."""
    edges = bins_of(own.values)
    for chain, values in enumerate(own.values):
        height, _ = np.histogram(values, edges, density=True)
        axes.stairs(height / max(float(height.max()), 1e-300), edges, orientation="horizontal", color=_color(chain))
    axes.set_xlim(left=0)
    axes.set_xticks([])
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelleft=False)


def bins_of(values: Float[ndarray, "chain draw"]) -> Float[ndarray, " edge"]:
    """Number of bins: as many as the square root of the draws of a chain."""
    n_bins = int(np.clip(np.sqrt(values.shape[1]), _FEWEST_BINS, _MOST_BINS))
    return np.histogram_bin_edges(values, n_bins)


def _title(axes: "Axes", drawn: Followed) -> str:
    """The number's name, the unit of its ticks, and what its draws are worth."""
    unit = unit_text(drawn.unit, set_power(axes.yaxis, axes.get_ylim()))
    worth = (
        (drawn.r_hat, "R-hat", ".3f"),
        (drawn.ess_bulk, "bulk ESS", ".0f"),
        (drawn.ess_tail, "tail ESS", ".0f"),
    )
    words = [f"{name} {number:{form}}" for number, name, form in worth if np.isfinite(number)]
    return "   ·   ".join([drawn.name + (f" ({unit})" if unit else ""), *words])


def _color(chain: int) -> str:
    return SPAXEL_COLORS[chain % len(SPAXEL_COLORS)]
