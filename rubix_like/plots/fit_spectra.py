"""Spectra of a fit: data, model and residual in the brightest, a median and a faint spaxel."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.plots.choice import Spaxel
from rubix_like.plots.fit_view import FitView, light
from rubix_like.plots.style import FLUX_LABEL, INK, SPAXEL_COLORS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RANKS: dict[str, float] = {"brightest": 1.0, "median": 0.5, "faint": 0.1}
"""Names of the spaxels that are drawn -> which fraction of the fitted spaxels is at most as bright."""

DATA_COLOR: str = "#8a8a8a"
LEFT_OUT_COLOR: str = "#e4e4e4"


def ranked_spaxels(view: FitView) -> dict[str, Spaxel]:
    """Column and row of the spaxels of RANKS, by their white light; each spaxel once."""
    brightness = light(view, view.flux).ravel()
    order = np.argsort(np.where(np.isfinite(brightness), brightness, -np.inf), kind="stable")
    order = order[int(np.sum(~np.isfinite(brightness))) :]
    chosen: dict[str, Spaxel] = {}
    for name, rank in RANKS.items():
        y, x = divmod(int(order[round(rank * (len(order) - 1))]), view.flux.shape[1])
        if (x, y) not in chosen.values():
            chosen[name] = (x, y)
    return chosen


def draw_fit_spectra(figure: "Figure", view: FitView) -> None:
    """For each spaxel a panel with data and model, and one with the residual in units of sigma below it."""
    chosen = ranked_spaxels(view)
    grid: Any = figure.subplots(2 * len(chosen), 1, sharex=True, height_ratios=(2.2, 1) * len(chosen), squeeze=False)
    panels = grid[:, 0]
    for number, (name, spaxel) in enumerate(chosen.items()):
        _draw_spaxel(panels[2 * number], panels[2 * number + 1], view, name, spaxel)
    panels[0].legend(frameon=False, loc="upper right", ncols=3, fontsize=8)
    panels[-1].set_xlabel(f"wavelength in {view.medium} (Å)")
    panels[-1].set_xlim(view.wave_edges[0], view.wave_edges[-1])
    figure.supylabel(f"flux ({FLUX_LABEL}); residual (σ)", fontsize=9, color=INK)


def _draw_spaxel(upper: "Axes", lower: "Axes", view: FitView, name: str, spaxel: Spaxel) -> None:
    x, y = spaxel
    used, residual = view.used[y, x], view.residual[y, x]
    flux = np.where(used, view.flux[y, x], np.nan)
    upper.plot(view.wavelength, flux, color=DATA_COLOR, linewidth=0.6, label="data")
    upper.plot(view.wavelength, view.model[y, x], color=SPAXEL_COLORS[1], linewidth=0.9, label="model")
    lower.plot(view.wavelength, residual, color=SPAXEL_COLORS[0], linewidth=0.6)
    lower.axhline(0.0, color=INK, linewidth=0.5)
    half = max(4.0, 1.05 * float(np.nanmax(np.abs(residual))))
    lower.set_ylim(-half, half)
    spread = float(np.sqrt(np.nanmean(residual**2)))
    upper.set_title(f"{name} spaxel ({x}, {y}): rms residual {spread:.2f} σ")
    for axes in (upper, lower):
        axes.grid(color="#dddddd", linewidth=0.5)
        axes.spines[["top", "right"]].set_visible(False)
        _shade(axes, view.wave_edges, ~used)


def _shade(axes: "Axes", edges: Float[ndarray, " edge"], left_out: Bool[ndarray, " wave"]) -> None:
    """Grey over the bins that are not fitted, from bottom to top."""
    for first, last in runs(left_out):
        axes.axvspan(edges[first], edges[last], color=LEFT_OUT_COLOR, lw=0, zorder=0, label="left out")


def runs(chosen: Bool[ndarray, " wave"]) -> list[tuple[int, int]]:
    """First bin and the one after the last of every run of chosen bins."""
    steps = np.flatnonzero(np.diff(np.concatenate([[False], chosen, [False]]).astype(int)))
    return [(int(first), int(last)) for first, last in steps.reshape(-1, 2)]
