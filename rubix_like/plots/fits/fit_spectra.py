"""Spectra of a fit: data, model and residual in the brightest, a median and a faint spaxel."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.plots.choice import Spaxel
from rubix_like.plots.fits.fit_view import FitView, light
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


@dataclass(frozen=True, eq=False)
class Compared:
    """Spectra of data and model over the bins that are `used`, and their difference in units of the data's sigma."""

    title: str
    used: Bool[ndarray, " wave"]
    flux: Float[ndarray, " wave"]
    model: Float[ndarray, " wave"]
    residual: Float[ndarray, " wave"]


def draw_fit_spectra(figure: "Figure", view: FitView) -> None:
    """For each spaxel a panel with data and model, and one with the residual in units of sigma below it."""
    spectra = [spaxel_compared(view, name, spaxel) for name, spaxel in ranked_spaxels(view).items()]
    for (upper, lower), spectrum in zip(panels_for(figure, view, len(spectra)), spectra, strict=True):
        draw_compared(upper, lower, view, spectrum)
    figure.axes[0].legend(frameon=False, loc="upper right", ncols=3, fontsize=8)


def panels_for(figure: "Figure", view: FitView, count: int) -> "list[tuple[Axes, Axes]]":
    """A high and a low panel for each of so many spectra, below one another on one axis of wavelengths."""
    grid: Any = figure.subplots(2 * count, 1, sharex=True, height_ratios=(2.2, 1) * count, squeeze=False)
    panels = grid[:, 0]
    panels[-1].set_xlabel(f"wavelength in {view.bins.medium} (Å)")
    panels[-1].set_xlim(view.bins.edges[0], view.bins.edges[-1])
    figure.supylabel(f"flux ({FLUX_LABEL}); residual (σ)", fontsize=9, color=INK)
    return list(zip(panels[::2], panels[1::2], strict=True))


def spaxel_compared(view: FitView, name: str, spaxel: Spaxel) -> Compared:
    """Data, model and residual of one spaxel (column, row)."""
    x, y = spaxel
    return Compared(
        f"{name} spaxel ({x}, {y})", view.used[y, x], view.flux[y, x], view.model[y, x], view.residual[y, x]
    )


def draw_compared(upper: "Axes", lower: "Axes", view: FitView, spectrum: Compared, model: str = "model") -> None:
    """Data and model (called so) above, the residual below."""
    flux = np.where(spectrum.used, spectrum.flux, np.nan)
    upper.plot(view.bins.wavelength, flux, color=DATA_COLOR, linewidth=0.6, label="data")
    upper.plot(view.bins.wavelength, spectrum.model, color=SPAXEL_COLORS[1], linewidth=0.9, label=model)
    lower.plot(view.bins.wavelength, spectrum.residual, color=SPAXEL_COLORS[0], linewidth=0.6)
    lower.axhline(0.0, color=INK, linewidth=0.5)
    half = max(4.0, 1.05 * float(np.nanmax(np.abs(spectrum.residual))))
    lower.set_ylim(-half, half)
    spread = float(np.sqrt(np.nanmean(spectrum.residual**2)))
    upper.set_title(f"{spectrum.title}: rms residual {spread:.2f} σ")
    for axes in (upper, lower):
        axes.grid(color="#dddddd", linewidth=0.5)
        axes.spines[["top", "right"]].set_visible(False)
        _shade(axes, view.bins.edges, ~spectrum.used)


def _shade(axes: "Axes", edges: Float[ndarray, " edge"], left_out: Bool[ndarray, " wave"]) -> None:
    """Grey over the bins that are not fitted, from bottom to top."""
    for first, last in runs(left_out):
        axes.axvspan(edges[first], edges[last], color=LEFT_OUT_COLOR, lw=0, zorder=0, label="left out")


def runs(chosen: Bool[ndarray, " wave"]) -> list[tuple[int, int]]:
    """First bin and the one after the last of every run of chosen bins."""
    steps = np.flatnonzero(np.diff(np.concatenate([[False], chosen, [False]]).astype(int)))
    return [(int(first), int(last)) for first, last in steps.reshape(-1, 2)]
