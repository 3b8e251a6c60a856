"""The pictures of a fit, as files: steps, spectra, maps, parameters pair by pair, pulls (needs the `plots` extra)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.plots.choice import Spaxel
from rubix_like.plots.derived import SkyImage
from rubix_like.plots.fits.fit_parameters import MOST_NAMED, draw_pairs, draw_pulls, paired, triangle_size
from rubix_like.plots.fits.fit_view import FitView, Trace, light, light_residual, reduced_chi_square, velocity_residual
from rubix_like.plots.images import draw_images
from rubix_like.plots.picture_files import Drawing
from rubix_like.plots.style import FLUX_LABEL, INK, LIGHT_LABEL, SPAXEL_COLORS, import_matplotlib


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
        yield "pairs", triangle_size(len(paired(inferred.sigma)), 1.15), lambda figure: draw_pairs(figure, inferred)
        height = 0.24 * min(len(inferred.labels), MOST_NAMED) + 1.2
        yield "pulls", (9.5, height), lambda figure: draw_pulls(figure, inferred)


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS: int = 3

WELL_KNOWN: float = 5.0
"""Shifts are drawn where their sigma is at most this many times the smallest one."""


def fit_images(view: FitView) -> tuple[SkyImage, ...]:
    """White light of data and model, its residual, chi^2 per voxel, the shift of the lines, the model's velocity."""
    area = view.sky.pixel_scale**2
    velocity, sigma = velocity_residual(view)
    known = sigma <= WELL_KNOWN * np.min(sigma[np.isfinite(sigma)], initial=np.inf)
    images = [
        SkyImage("data: white light", light(view, view.flux) / area, LIGHT_LABEL, "brightness"),
        SkyImage("model: white light", light(view, view.model) / area, LIGHT_LABEL, "brightness"),
        SkyImage("data − model: white light", light_residual(view), "σ", "deviation"),
        SkyImage("χ² per fitted voxel", reduced_chi_square(view)),
        SkyImage("data − model: velocity", np.where(known, velocity, np.nan), "km s⁻¹", "deviation"),
    ]
    if view.velocity is None:
        ratio = np.where(sigma > 0, velocity / np.where(sigma > 0, sigma, 1), np.nan)
        return (*images, SkyImage("data − model: velocity / its σ", ratio, "σ", "deviation"))
    return (*images, SkyImage("model: mean velocity", view.velocity, "km s⁻¹", "velocity"))


def draw_fit_maps(figure: "Figure", view: FitView) -> None:
    """All images; the model's light in the colours of the data's."""
    images = fit_images(view)
    draw_images(figure, images, view.sky, COLUMNS, {1: images[0].scale})


FLOOR: float = 1e-4
"""Distance from the best loss at which the logarithmic axis ends."""


def draw_traces(figure: "Figure", traces: Sequence[Trace]) -> None:
    """Loss minus the lowest loss of all starts, and gradient norm, against steps; a cross ends a start that failed."""
    upper, lower = np.atleast_1d(figure.subplots(2, 1, sharex=True))
    finite = [float(np.nanmin(trace.loss)) for trace in traces if np.isfinite(trace.loss).any()]
    lowest = min(finite, default=0.0)
    for number, trace in enumerate(traces):
        color = SPAXEL_COLORS[number % len(SPAXEL_COLORS)]
        above = np.maximum(trace.loss - lowest, FLOOR)
        label = f"start {number + 1}" + ("" if trace.converged else " (not converged)")
        for axes, values in ((upper, above), (lower, trace.gradient_norm)):
            axes.plot(np.arange(len(values)), values, color=color, linewidth=1.1, label=label)
            if len(values):
                mark = "o" if trace.converged else "x"
                axes.plot(len(values) - 1, values[-1], mark, color=color, markersize=5)
    upper.set_ylabel(f"loss − {lowest:.6g}")
    upper.set_title(f"loss = χ²/2 + prior, above the lowest, {lowest:.6g} (drawn from {FLOOR:g})")
    lower.set_ylabel("norm of the gradient")
    lower.set_xlabel("step")
    for axes in (upper, lower):
        _finish(axes)
    if len(traces) <= len(SPAXEL_COLORS):
        upper.legend(frameon=False, loc="upper right")


def _finish(axes: "Axes") -> None:
    style: Any = {"color": "#dddddd", "linewidth": 0.5}
    axes.set_yscale("log")
    axes.grid(**style)
    axes.xaxis.set_major_locator(import_matplotlib("matplotlib.ticker").MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)


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
    edges = view.bins.edges
    for axes in (upper, lower):
        axes.grid(color="#dddddd", linewidth=0.5)
        axes.spines[["top", "right"]].set_visible(False)
        for first, last in runs(~spectrum.used):
            axes.axvspan(edges[first], edges[last], color=LEFT_OUT_COLOR, lw=0, zorder=0, label="left out")


def runs(chosen: Bool[ndarray, " wave"]) -> list[tuple[int, int]]:
    """First bin and the one after the last of every run of chosen bins."""
    steps = np.flatnonzero(np.diff(np.concatenate([[False], chosen, [False]]).astype(int)))
    return [(int(first), int(last)) for first, last in steps.reshape(-1, 2)]
