"""The pictures of posterior samples: corner, traces, and predictions against the data (`plots` extra)."""

from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy.linalg import solve_triangular
from scipy.ndimage import gaussian_filter, map_coordinates

from rubix_like.plots.fit_pictures import (
    MARGINS,
    PRIOR_COLOR,
    Compared,
    FitView,
    Inferred,
    contour,
    density,
    draw_compared,
    draw_triangle,
    light,
    light_residual,
    panels_for,
    power_of,
    ranked_spaxels,
    set_power,
    spaxel_compared,
    unit_text,
)
from rubix_like.plots.images import SkyImage, draw_images
from rubix_like.plots.style import INK, LIGHT_LABEL, SPAXEL_COLORS, import_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CONTOURS: tuple[float, ...] = tuple(1 - float(np.exp(-0.5 * radius**2)) for radius in (1, 2))
"""Shares of the draws within the contours of two numbers, 39 % and 86 %: of a normal distribution 1 and 2 sigma."""

_FEWEST = 20
"""Number of draws from which contours are made."""

_MOST_CELLS = 400
"""Largest number of cells of the grid of a density, along each axis."""

_ROUNDEST = 1e-9
"""Added to the unit variances of numbers that determine each other."""


@dataclass(frozen=True, eq=False)
class Corner:
    """The numbers that are drawn pair by pair, draws in a row.

    | field | shape | meaning |
    |---|---|---|
    | drawn | | mean and covariance of the draws' latents, and the maps to values |
    | laplace | | the Gaussian approximation of the same latents; None without one |
    | latent, values | (draw, number) | |
    | within | (number, number) | covariance of the latents within the chains |
    | diverging | (draw,) | whether the trajectory left the posterior's energy |
    """

    drawn: Inferred
    laplace: Inferred | None
    latent: Float[ndarray, "draw number"]
    values: Float[ndarray, "draw number"]
    within: Float[ndarray, "number number"]
    diverging: Bool[ndarray, " draw"]


@dataclass(frozen=True, eq=False)
class Followed:
    """One number draw by draw: its name, unit and values, R-hat and effective sample sizes (NaN: there are none)."""

    name: str
    unit: str
    values: Float[ndarray, "chain draw"]
    r_hat: float = float("nan")
    ess_bulk: float = float("nan")
    ess_tail: float = float("nan")


@dataclass(frozen=True, eq=False)
class SampleView:
    """The content of the pictures: numbers pair by pair; numbers draw by draw (none: the draws are no chains); what is
    predicted.

    `cubes`: the data and what is predicted, sigma being the data's times the noise scale; `model_sigma` and
    `predicted_sigma` (y, x, wave): standard deviations of the model over the posterior, and of data as predicted.
    """

    title: str
    corner: Corner
    followed: tuple[Followed, ...]
    diverging: Bool[ndarray, "chain draw"]
    cubes: FitView
    model_sigma: Float[ndarray, "y x wave"]
    predicted_sigma: Float[ndarray, "y x wave"]


@dataclass(frozen=True, eq=False)
class Density:
    """Density of draws of two latents: `height` on cells with the middles `latent`, and the heights that contours
    have."""

    latent: Float[ndarray, "2 i j"]
    height: Float[ndarray, "i j"]
    levels: tuple[float, ...]


def density_of(
    latent: Float[ndarray, "draw 2"], within: Float[ndarray, "2 2"], shares: tuple[float, ...] = CONTOURS
) -> Density | None:
    """The smoothed histogram of draws, and the heights above which these shares of them lie; None of too few draws.

    It is made in coordinates in which draws within a chain have unit variance and no correlation, with a normal kernel
    of the width n^(-1/6) (Scott 1992, Multivariate Density Estimation, section 6.3): thin ellipses stay thin.
    """
    sigma = np.sqrt(np.diag(within))
    if len(latent) < _FEWEST or not (np.isfinite(latent).all() and (sigma > 0).all()):
        return None
    scaled = within / np.outer(sigma, sigma) + _ROUNDEST * np.eye(2)
    factor = sigma[:, None] * np.linalg.cholesky(scaled)
    mean = latent.mean(axis=0)
    white = solve_triangular(factor, (latent - mean).T, lower=True)
    width = len(latent) ** (-1 / 6)
    edges = []
    for values in white:  # cells of a third of the kernel's width, four widths beyond the outermost draws
        low, high = values.min() - 4 * width, values.max() + 4 * width
        edges.append(np.linspace(low, high, min(int(np.ceil((high - low) / (width / 3))), _MOST_CELLS) + 1))
    counts = np.histogram2d(*white, bins=edges)[0]
    steps = np.array([nodes[1] - nodes[0] for nodes in edges])
    height = gaussian_filter(counts, width / steps, mode="constant")
    first = np.array([nodes[0] for nodes in edges])
    at_draws = map_coordinates(height, (white - first[:, None]) / steps[:, None] - 0.5, order=1, mode="nearest")
    levels = np.quantile(at_draws, [1 - share for share in shares])
    middles = np.meshgrid(*[(nodes[1:] + nodes[:-1]) / 2 for nodes in edges], indexing="ij")
    return Density(
        mean[:, None, None] + np.einsum("ab,bij->aij", factor, np.stack(middles)), height, tuple(map(float, levels))
    )


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
    """Draw histograms with 16, 50 and 84 % on the diagonal; below it draws, and contours that hold 39 and 86 % of them.

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
    step = max(-(-len(corner.values) // MOST_POINTS), 1)
    axes.plot(*corner.values[::step, pair].T, ".", color=DRAW_COLOR, markersize=2.2, alpha=0.5, markeredgewidth=0)
    found = density_of(corner.latent[:, pair], corner.within[np.ix_(pair, pair)])
    if found is not None and found.levels[-1] < found.levels[0]:
        values = [corner.drawn.value(int(number), latent) for number, latent in zip(pair, found.latent, strict=True)]
        axes.contour(*values, found.height, levels=sorted(found.levels), colors=DRAW_COLOR, linewidths=(0.8, 1.3))
    if corner.laplace is not None:
        for share in CONTOURS:
            axes.plot(*contour(corner.laplace, first, second, share), color=LAPLACE_COLOR, linewidth=0.7)
    left = corner.values[np.ix_(corner.diverging, pair)]
    axes.plot(*left.T, "x", color=INK, markersize=3, markeredgewidth=0.8)
    truth = corner.drawn.truth
    if truth is not None:
        axes.axvline(truth[first], color=TRUTH_COLOR, linewidth=0.7)
        axes.axhline(truth[second], color=TRUTH_COLOR, linewidth=0.7)


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


_FEWEST_TRACE_BINS, _MOST_TRACE_BINS = 6, 40


def draw_followed(figure: "Figure", view: SampleView) -> None:
    """Draw for each number its values in every chain, in the chain's colour, and their histograms beside them.

    Ticks below are draws that diverged.
    """
    grid: Any = figure.subplots(len(view.followed), 2, sharex="col", sharey="row", width_ratios=(4.5, 1), squeeze=False)
    for (left, right), followed in zip(grid, view.followed, strict=True):
        _draw_chains(left, right, followed)
        for is_diverging, color in zip(view.diverging, cycle(SPAXEL_COLORS), strict=False):
            at = np.flatnonzero(is_diverging)
            style: Any = {"color": color, "markersize": 12, "markeredgewidth": 1.1}
            left.plot(at, np.zeros(len(at)), "|", transform=left.get_xaxis_transform(), **style)
        unit_words = unit_text(followed.unit, set_power(left.yaxis, left.get_ylim()))
        diagnostics = (
            (followed.r_hat, "R-hat", ".3f"),
            (followed.ess_bulk, "bulk ESS", ".0f"),
            (followed.ess_tail, "tail ESS", ".0f"),
        )
        words = [f"{what} {number:{form}}" for number, what, form in diagnostics if np.isfinite(number)]
        name = followed.name + (f" ({unit_words})" if unit_words else "")
        left.set_title("   ·   ".join([name, *words]), fontsize=8)
    grid[-1, 0].set_xlabel("draw")
    grid[-1, 1].set_xlabel("density of draws")
    n_chain, n_draw = view.diverging.shape
    grid[0, 0].set_xlim(-0.5, n_draw - 0.5)
    if 1 < n_chain <= len(SPAXEL_COLORS):
        place: Any = {"loc": "lower right", "bbox_to_anchor": (1.0, 0.98), "borderaxespad": 0}
        grid[0, 0].legend(frameon=False, ncols=n_chain, fontsize=7, **place).set_in_layout(False)


def _draw_chains(left: "Axes", right: "Axes", followed: Followed) -> None:
    """Draw the values of each chain, and their histograms in common bins, all of one height.

    There are as many bins as the square root of the draws of a chain.
    """
    n_bins = int(np.clip(np.sqrt(followed.values.shape[1]), _FEWEST_TRACE_BINS, _MOST_TRACE_BINS))
    edges = np.histogram_bin_edges(followed.values, n_bins)
    for (chain, values), color in zip(enumerate(followed.values), cycle(SPAXEL_COLORS), strict=False):
        left.plot(np.arange(len(values)), values, color=color, linewidth=0.6, label=f"chain {chain + 1}")
        height, _ = np.histogram(values, edges, density=True)
        right.stairs(height / max(float(height.max()), 1e-300), edges, orientation="horizontal", color=color)
    left.margins(y=0.08)
    left.grid(color="#dddddd", linewidth=0.5)
    left.tick_params(labelsize=7)
    left.locator_params(axis="y", nbins=4)
    right.set(xlim=(0, None), xticks=[])
    right.tick_params(labelleft=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)


SPAXELS: tuple[str, ...] = ("brightest", "faint")
"""The spaxels of `ranked_spaxels` that are drawn."""

PREDICTED_COLOR: str = "#bcd9ea"
MODEL_COLOR: str = SPAXEL_COLORS[4]

_WIDTH = 10.5
_SPECTRUM_HEIGHT = 2.4

_ROOM = 0.25
"""For the legend, of the height of a panel."""


@dataclass(frozen=True, eq=False)
class Banded:
    """Spectra, and per bin the sigma of the data's noise, of the model over the posterior, of data as predicted."""

    compared: Compared
    noise_sigma: Float[ndarray, " wave"]
    model_sigma: Float[ndarray, " wave"]
    predicted_sigma: Float[ndarray, " wave"]


def predictive_size(view: SampleView) -> tuple[float, float]:
    """Width and height of the figure in inches."""
    return _WIDTH, _SPECTRUM_HEIGHT * len(banded_spectra(view)) + _map_height(view) + 0.4


def _map_height(view: SampleView) -> float:
    return 0.85 + 2.5 * float(np.clip(view.cubes.sky.n_y / view.cubes.sky.n_x, 0.3, 3.0))


def draw_predictive(figure: "Figure", view: SampleView) -> None:
    """Draw spectra of the sum of all spaxels, the brightest and a faint one, with their residuals, above three maps."""
    spectra = banded_spectra(view)
    heights = (_SPECTRUM_HEIGHT * len(spectra), _map_height(view))
    parts: Any = figure.subfigures(2, 1, height_ratios=heights)
    for (upper, lower), spectrum in zip(panels_for(parts[0], view.cubes, len(spectra)), spectra, strict=True):
        draw_compared(upper, lower, view.cubes, spectrum.compared, "predicted")
        wavelength, middle, sigma = view.cubes.bins.wavelength, spectrum.compared.model, spectrum.noise_sigma
        bands = (
            (spectrum.predicted_sigma, "predicted data ± 1σ", PREDICTED_COLOR, 0.9),
            (spectrum.model_sigma, "model ± 1σ", MODEL_COLOR, 0.8),
        )
        for order, (sigmas, label, color, alpha) in enumerate(bands):
            style: Any = {"color": color, "alpha": alpha, "lw": 0, "zorder": 1 + 0.1 * order}
            half = np.where(spectrum.compared.used, sigmas, np.nan)
            upper.fill_between(wavelength, middle - half, middle + half, label=label, **style)
            lower.fill_between(wavelength, -half / sigma, half / sigma, **style)
    first = parts[0].axes[0]
    low, high = first.get_ylim()
    first.set_ylim(low, high + _ROOM * (high - low))
    first.legend(frameon=False, loc="upper right", ncols=4, fontsize=8)
    images = predictive_images(view)
    draw_images(parts[1], images, view.cubes.sky, len(images))


def banded_spectra(view: SampleView) -> tuple[Banded, ...]:
    """Spectra with bands: of the sum of all spaxels, and of single ones.

    In the sum the model's sigma is an upper limit, that of spaxels which err together (Minkowski's inequality: the
    sigma of a sum is at most the sum of the sigmas); so is that of all that is predicted beside the noise.
    """
    cubes, used = view.cubes, view.cubes.used
    is_covered = np.asarray(used.any(axis=(0, 1)))

    def total(values: Float[ndarray, "y x wave"]) -> Float[ndarray, " wave"]:
        return np.where(is_covered, np.sum(np.where(used, values, 0), axis=(0, 1)), np.nan)

    noise = 1 / np.where(used, cubes.inverse_sigma, 1)
    extra = np.sqrt(np.maximum(view.predicted_sigma**2 - noise**2, 0))
    flux, model, noise_sigma = total(cubes.flux), total(cubes.model), np.sqrt(total(noise**2))
    residual = (flux - model) / np.where(is_covered, noise_sigma, 1)
    compared = Compared("sum of all spaxels (the model: at most ± 1σ)", is_covered, flux, model, residual)
    spectra = [Banded(compared, noise_sigma, total(view.model_sigma), np.hypot(noise_sigma, total(extra)))]
    for name, (x, y) in ranked_spaxels(cubes).items():
        if name in SPAXELS:
            spaxel_sigma = np.where(used[y, x], noise[y, x], np.nan)
            compared = spaxel_compared(cubes, name, (x, y))
            spectra.append(Banded(compared, spaxel_sigma, view.model_sigma[y, x], view.predicted_sigma[y, x]))
    return tuple(spectra)


def predictive_images(view: SampleView) -> tuple[SkyImage, ...]:
    """White light of the data, by how much it differs from the prediction, how well the model knows it.

    The model's sigma is an upper limit, that of bins which err together.
    """
    cubes = view.cubes
    inverse = np.where(cubes.used, cubes.inverse_sigma, np.inf)
    noise = np.sqrt(np.sum((np.diff(cubes.bins.edges) / inverse) ** 2, axis=2))
    model_sigma = light(cubes, view.model_sigma) / np.where(noise > 0, noise, np.nan)
    return (
        SkyImage("data: white light", light(cubes, cubes.flux) / cubes.sky.pixel_scale**2, LIGHT_LABEL, "brightness"),
        SkyImage("data − predicted: white light", light_residual(cubes), "σ of the data", "deviation"),
        SkyImage("model: σ of the white light", model_sigma, "σ of the data (at most)"),
    )
