"""The pictures of a fit, as files: steps, spectra, maps, parameters pair by pair, pulls (needs the `plots` extra)."""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from rubix_like.constants import SPEED_OF_LIGHT
from rubix_like.cube.bins import WavelengthBins
from rubix_like.plots.figure import Drawing
from rubix_like.plots.images import SkyImage, SkyOffsets, Spaxel, draw_images
from rubix_like.plots.style import FLUX_LABEL, INK, LIGHT_LABEL, SPAXEL_COLORS, import_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

LatentNodes = Float[ndarray, "#parameter node"]

LATENT_GRID: Float[ndarray, " node"] = np.linspace(-8.0, 8.0, 641)
"""Latents at which the priors' maps are tabulated: values of a parameter against its standard normal latent."""

_WELL_WITHIN = 12.0
"""Standard deviations about the middle of a parameter's distribution within which its map is tabulated more finely."""


def fine_nodes(latent: Float[ndarray, " parameter"], sigma: Float[ndarray, " parameter"]) -> LatentNodes:
    """LATENT_GRID and as many latents where a distribution is, however narrow, for each parameter in rising order."""
    near = latent[:, None] + sigma[:, None] * np.linspace(-_WELL_WITHIN, _WELL_WITHIN, LATENT_GRID.size)
    whole = np.broadcast_to(LATENT_GRID, near.shape)
    return np.sort(np.concatenate([whole, np.clip(near, LATENT_GRID[0], LATENT_GRID[-1])], axis=1), axis=1)


@dataclass(frozen=True, eq=False)
class Trace:
    """One start: its loss and the norm of the gradient after every step, and whether it converged."""

    loss: Float[ndarray, " step"]
    gradient_norm: Float[ndarray, " step"]
    converged: bool = True


@dataclass(frozen=True, eq=False)
class AtEdge:
    """A value at the edge of its prior: its limit or interval in `words`, and, where it is known, the density of its
    latent on `latent`, rising."""

    words: str
    latent: Float[ndarray, " node"] = field(default_factory=lambda: np.zeros(0))
    density: Float[ndarray, " node"] = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, eq=False)
class Inferred:
    """The Laplace approximation: a normal distribution of the latents, and each parameter's map to its value.

    | field | shape | meaning |
    |---|---|---|
    | labels, units | (parameter,) | dotted names with an index where they have several values; units |
    | latent, covariance | (parameter,), (parameter, parameter) | of the latents, whose prior is standard normal |
    | prior | (parameter, node) | values at the latents `nodes` |
    | truth | (parameter,) or None | the values that the data were made of (NaN: not known) |
    | nodes | (1 or parameter, node) | rising; by default LATENT_GRID |
    | limits | by parameter's number | of those at the edge of their prior, whose distribution is not normal |
    """

    labels: tuple[str, ...]
    units: tuple[str, ...]
    latent: Float[ndarray, " parameter"]
    covariance: Float[ndarray, "parameter parameter"]
    prior: Float[ndarray, "parameter node"]
    truth: Float[ndarray, " parameter"] | None = None
    nodes: LatentNodes = field(default_factory=lambda: LATENT_GRID[None])
    limits: Mapping[int, AtEdge] = field(default_factory=dict)

    @property
    def sigma(self) -> Float[ndarray, " parameter"]:
        """Standard deviations of the latents: 1 where the data say nothing."""
        return np.sqrt(np.diag(self.covariance))

    def value(self, parameter: int, latent: Float[ndarray, "..."] | float) -> Float[ndarray, "..."]:
        """Values of one parameter at latents."""
        return np.asarray(np.interp(latent, self._nodes(parameter), self.prior[parameter]))

    def true_latent(self) -> Float[ndarray, " parameter"]:
        """Latents of the truth; NaN where it is not known, or outside the prior."""
        latent = np.full(len(self.labels), np.nan)
        for number, value in enumerate([] if self.truth is None else self.truth):
            values = self.prior[number]
            rising = np.append(True, np.diff(values) > 0)  # a prior with bounds is flat towards its ends
            if values[0] <= value <= values[-1]:
                latent[number] = np.interp(value, values[rising], self._nodes(number)[rising])
        return latent

    def pull(self) -> Float[ndarray, " parameter"]:
        """(latent - that of the truth) / sigma; NaN where the truth is not known."""
        return (self.latent - self.true_latent()) / self.sigma

    def _nodes(self, parameter: int) -> Float[ndarray, " node"]:
        return self.nodes[parameter % len(self.nodes)]


@dataclass(frozen=True, eq=False)
class FitView:
    """Data and model of a fit on one grid, the starts, and what is known of the parameters.

    `flux`, `model` (with the continuum's polynomial), `inverse_sigma` (0: left out of the fit): (y, x, wave), in
    1e-20 erg/s/cm2/Angstrom per spaxel and its inverse; `bins`: of the wavelengths; `velocity` (km/s): light-weighted
    mean of the model, None where it is not known.
    """

    title: str
    sky: SkyOffsets
    bins: WavelengthBins
    flux: Float[ndarray, "y x wave"]
    model: Float[ndarray, "y x wave"]
    inverse_sigma: Float[ndarray, "y x wave"]
    traces: tuple[Trace, ...] = ()
    inferred: Inferred | None = None
    velocity: Float[ndarray, "y x"] | None = None

    @property
    def used(self) -> ndarray:
        """Which voxels are fitted."""
        return self.inverse_sigma > 0

    @property
    def residual(self) -> Float[ndarray, "y x wave"]:
        """(data - model) / sigma; NaN where a voxel is left out."""
        return np.where(self.used, (np.where(self.used, self.flux, 0) - self.model) * self.inverse_sigma, np.nan)


def light(view: FitView, values: Float[ndarray, "y x wave"]) -> Float[ndarray, "y x"]:
    """Sum of values times bin width over the fitted voxels of every spaxel; NaN where there is none."""
    total = np.sum(np.where(view.used, values, 0) * np.diff(view.bins.edges), axis=2)
    return np.where(view.used.any(axis=2), total, np.nan)


def light_residual(view: FitView) -> Float[ndarray, "y x"]:
    """Light of the data minus that of the model, in units of its sigma."""
    width = np.diff(view.bins.edges)
    sigma = np.where(view.used, 1 / np.where(view.used, view.inverse_sigma, 1), 0)
    return _ratio(light(view, view.flux) - light(view, view.model), np.sqrt(np.sum((sigma * width) ** 2, axis=2)))


def reduced_chi_square(view: FitView) -> Float[ndarray, "y x"]:
    """Mean over the fitted voxels of a spaxel of ((data - model) / sigma)^2."""
    return _ratio(np.nansum(view.residual**2, axis=2), view.used.sum(axis=2).astype(float))


def velocity_residual(view: FitView) -> tuple[Float[ndarray, "y x"], Float[ndarray, "y x"]]:
    """How much faster the data recede than the model (km/s), and its sigma, spaxel by spaxel, to first order.

    The shift dv and a factor that fit the residuals best: data - model = f model + dv dmodel/dv by least squares, with
    dmodel/dv = -(1 / c) dmodel / dln(wavelength). The spectra are per Angstrom; their factor 1 + v / c is in f.
    """
    slope = -np.gradient(view.model, np.log(view.bins.wavelength), axis=2) / SPEED_OF_LIGHT
    scaled = view.model * view.inverse_sigma
    shifted = slope * view.inverse_sigma
    residual = np.where(view.used, view.residual, 0)
    square, cross, shift = (np.sum(a * b, axis=2) for a, b in ((scaled, scaled), (scaled, shifted), (shifted, shifted)))
    determinant = square * shift - cross**2
    velocity = square * np.sum(shifted * residual, axis=2) - cross * np.sum(scaled * residual, axis=2)
    return _ratio(velocity, determinant), np.sqrt(_ratio(square, determinant))


def _ratio(above: Float[ndarray, "y x"], below: Float[ndarray, "y x"]) -> Float[ndarray, "y x"]:
    """The ratio of two images; NaN where the denominator is not positive."""
    return np.where(below > 0, above / np.where(below > 0, below, 1), np.nan)


def drawings(view: FitView) -> Iterator[Drawing]:
    """The pictures, in the order of their files."""
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
    """Draw all images; the model's light in the colours of the data's."""
    images = fit_images(view)
    draw_images(figure, images, view.sky, 3, {1: images[0].scale})


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
        style: Any = {"color": "#dddddd", "linewidth": 0.5}
        axes.set_yscale("log")
        axes.grid(**style)
        axes.xaxis.set_major_locator(import_matplotlib("matplotlib.ticker").MaxNLocator(integer=True))
        axes.spines[["top", "right"]].set_visible(False)
    if len(traces) <= len(SPAXEL_COLORS):
        upper.legend(frameon=False, loc="upper right")


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


MOST_PAIRED: int = 12
"""Parameters that are drawn pair by pair."""

MOST_NAMED: int = 40
"""Parameters that are drawn one by one, with their names."""

SHARES: tuple[float, ...] = (0.68, 0.95)
"""Parts of the probability within the contours."""

MARGINS: tuple[float, float, float, float] = (0.85, 0.2, 0.95, 0.6)
"""Left, right, below and above the panels of pairs, inches."""

_ABOVE = 0.1
"""Between the title and the upper edge, inches."""

_GAP = 0.07
"""Between panels, of their sides."""

PRIOR_COLOR: str = "#9a9a9a"
PLAIN_POWERS = range(-2, 4)
"""Powers of ten of numbers that are written out."""

WIDTH: float = 3.5
"""Half a panel's width in standard deviations."""


def paired(sigma: Float[ndarray, " parameter"]) -> Int[ndarray, " pair"]:
    """The parameters that are drawn pair by pair: those that the data say most of, in the order of the parameters.

    `sigma`: of their latents.
    """
    return np.sort(np.argsort(sigma, kind="stable")[:MOST_PAIRED])


def contour(
    inferred: Inferred, first: int, second: int, share: float, *, prior: bool = False
) -> Float[ndarray, "2 point"]:
    """Values of two parameters on the ellipse of their latents that holds `share` of the probability.

    For a normal distribution in two dimensions its radius is sqrt(-2 ln(1 - share)). With `prior` the prior's.
    """
    angle = np.linspace(0, 2 * np.pi, 121)
    points = np.sqrt(-2 * np.log(1 - share)) * np.stack([np.cos(angle), np.sin(angle)])
    if not prior:
        pair = np.array([first, second])
        points = inferred.latent[pair][:, None] + np.linalg.cholesky(inferred.covariance[np.ix_(pair, pair)]) @ points
    return np.stack([inferred.value(first, points[0]), inferred.value(second, points[1])])


def density(inferred: Inferred, parameter: int, mean: float, sigma: float) -> Float[ndarray, "2 node"]:
    """Values of a parameter and their probability density where its latent is normal."""
    latent = mean + sigma * np.linspace(-4, 4, 161)
    value = inferred.value(parameter, latent)
    normal = np.exp(-0.5 * ((latent - mean) / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi))
    step = np.gradient(value, latent)
    return np.stack([value, normal / np.where(step > 0, step, np.inf)])


def draw_pairs(figure: "Figure", inferred: Inferred) -> None:
    """Contours of every pair of parameters, densities on the diagonal; the prior in grey, the truth (if known) red."""
    draw_triangle(
        figure,
        inferred,
        [int(number) for number in paired(inferred.sigma)],
        lambda number: _limits(inferred, number),
        lambda axes, number: _draw_density(axes, inferred, number),
        lambda axes, first, second: _draw_pair(axes, inferred, first, second),
    )


def draw_triangle(
    figure: "Figure",
    inferred: Inferred,
    chosen: Sequence[int],
    limits_of: Callable[[int], tuple[float, float]],
    draw_one: Callable[["Axes", int], None],
    draw_pair: Callable[["Axes", int, int], None],
) -> None:
    """A panel for each of the chosen parameters on the diagonal, and one for each pair of them below it."""
    count = len(chosen)
    figure.set_layout_engine("none")
    width, height = (float(side) for side in figure.get_size_inches())
    left, _, bottom, top = MARGINS
    side = height - bottom - top
    for title in figure.texts:
        title.set_y(1 - _ABOVE / height)
    place = {"left": left / width, "right": (left + side) / width, "bottom": bottom / height, "top": 1 - top / height}
    grid = figure.subplots(count, count, squeeze=False, gridspec_kw={**place, "wspace": _GAP, "hspace": _GAP})
    for row, second in enumerate(chosen):
        for column, first in enumerate(chosen):
            axes = grid[row, column]
            if column > row:
                axes.set_axis_off()
                continue
            if column == row:
                draw_one(axes, first)
            else:
                draw_pair(axes, first, second)
                axes.set_ylim(*limits_of(second))
            axes.set_xlim(*limits_of(first))
            _name(axes, inferred, first, second, row == count - 1, column == 0 and row > 0)


def triangle_size(count: int, panel: float) -> tuple[float, float]:
    """Size of a figure with so many panels of this side along each edge, inches."""
    left, right, bottom, top = MARGINS
    return left + right + count * panel, bottom + top + count * panel


def _limits(inferred: Inferred, parameter: int) -> tuple[float, float]:
    if parameter in inferred.limits:
        ends = inferred.value(parameter, inferred.limits[parameter].latent[[0, -1]])
        return float(ends[0]), float(ends[1])
    sigma, middle = inferred.sigma[parameter], inferred.latent[parameter]
    low, high = inferred.value(parameter, middle + np.array([-WIDTH, WIDTH]) * sigma)
    return float(low), float(high)


def _draw_density(axes: "Axes", inferred: Inferred, parameter: int) -> None:
    sigma = float(inferred.sigma[parameter])
    value, height = density(inferred, parameter, 0.0, 1.0)
    axes.plot(value, height, color=PRIOR_COLOR, linewidth=1.0)
    known = inferred.limits.get(parameter)
    if known is None:
        value, height = density(inferred, parameter, float(inferred.latent[parameter]), sigma)
    else:
        value = inferred.value(parameter, known.latent)
        step = np.gradient(value, known.latent)
        height = known.density / np.where(step > 0, step, np.inf)
    axes.fill_between(value, height, color=SPAXEL_COLORS[0], alpha=0.4, lw=0)
    axes.set_ylim(0, 1.15 * float(height.max()))
    axes.set_yticks([])
    best = float(inferred.value(parameter, inferred.latent[parameter]))
    half = 0.5 * float(np.ptp(inferred.value(parameter, inferred.latent[parameter] + np.array([-sigma, sigma]))))
    axes.set_title(f"{best:.4g} ± {half:.2g}" if known is None else known.words, fontsize=7)
    if inferred.truth is not None:
        axes.axvline(inferred.truth[parameter], color=SPAXEL_COLORS[1], linewidth=0.9)


def _draw_pair(axes: "Axes", inferred: Inferred, first: int, second: int) -> None:
    for share, width in zip(SHARES, (1.3, 0.7), strict=True):
        axes.plot(*contour(inferred, first, second, share), color=SPAXEL_COLORS[0], linewidth=width)
        axes.plot(*contour(inferred, first, second, share, prior=True), color=PRIOR_COLOR, linewidth=width)
    if inferred.truth is not None:
        axes.plot(inferred.truth[first], inferred.truth[second], "+", color=SPAXEL_COLORS[1], markersize=7)


def _name(axes: "Axes", inferred: Inferred, first: int, second: int, lowest: bool, leftmost: bool) -> None:
    """Ticks and names at the outer edges only."""
    axes.tick_params(labelsize=6, labelbottom=lowest, labelleft=leftmost)
    axes.locator_params(nbins=3)
    axes.tick_params(axis="x", labelrotation=45)
    power = set_power(axes.xaxis, axes.get_xlim())
    if lowest:
        axes.set_xlabel(_label(inferred, first, power), fontsize=7)
    if leftmost:
        power = set_power(axes.yaxis, axes.get_ylim())
        axes.set_ylabel(_label(inferred, second, power), fontsize=7)


def set_power(axis: "Axis", limits: tuple[float, float]) -> int:
    """Ticks in units of 10^power, which is returned, 0 but for large and small numbers; nothing is written beside."""
    power = power_of(max(abs(limits[0]), abs(limits[1])))
    plain = import_matplotlib("matplotlib.ticker").ScalarFormatter(useOffset=False)
    plain.set_powerlimits((power, power))
    plain.set_scientific(power != 0)
    axis.set_major_formatter(plain)
    axis.get_offset_text().set_visible(False)
    return power


def power_of(largest: float) -> int:
    """The power of ten to factor out of numbers up to `largest`; 0 if they need none."""
    power = int(np.floor(np.log10(largest))) if largest > 0 else 0
    return 0 if power in PLAIN_POWERS else power


def _label(inferred: Inferred, parameter: int, power: int = 0) -> str:
    """The parameter's name without its section, in lines that fit beside a panel, and its unit."""
    name = inferred.labels[parameter].rpartition(".")[2].replace("_", " ")
    unit = unit_text(inferred.units[parameter], power)
    return textwrap.fill(name, 14) + (f"\n({unit})" if unit else "")


def unit_text(unit: str, power: int) -> str:
    """A power of ten and a unit."""
    return " ".join([*([f"$10^{{{power}}}$"] if power else []), *([unit] if unit else [])])


def draw_pulls(figure: "Figure", inferred: Inferred) -> None:
    """Every parameter against its prior, and against the truth where it is known, in standard deviations."""
    panels: Any = figure.subplots(1, 1 if inferred.truth is None else 2, sharey=True, squeeze=False)
    rows = np.arange(len(inferred.labels))[::-1]
    middle, half = np.array(inferred.latent), np.array(inferred.sigma)
    for parameter, known in inferred.limits.items():
        mean = np.trapezoid(known.latent * known.density, known.latent)
        variance = np.trapezoid((known.latent - mean) ** 2 * known.density, known.latent)
        middle[parameter], half[parameter] = mean, np.sqrt(variance)
    _draw_pull(panels[0, 0], middle, half, rows)
    panels[0, 0].set_xlabel("distance from the prior's median (σ of the prior)")
    if inferred.truth is not None:
        _draw_pull(panels[0, 1], inferred.pull(), np.ones(len(rows)), rows)
        panels[0, 1].set_xlabel("distance from the truth (σ of the fit)")
    if len(rows) <= MOST_NAMED:
        panels[0, 0].set_yticks(rows, [_value_text(inferred, n) for n in range(len(rows))], parse_math=False)
    else:
        panels[0, 0].set_yticks([])
        panels[0, 0].set_ylabel(f"{len(rows)} parameters, the first at the top")


def _value_text(inferred: Inferred, parameter: int) -> str:
    middle, sigma = inferred.latent[parameter], inferred.sigma[parameter]
    low, best, high = inferred.value(parameter, middle + sigma * np.array([-1.0, 0.0, 1.0]))
    unit = f" {inferred.units[parameter]}" if inferred.units[parameter] else ""
    if parameter in inferred.limits:
        return f"{inferred.labels[parameter]}: {inferred.limits[parameter].words}{unit}"
    return f"{inferred.labels[parameter]} = {best:.5g} ± {0.5 * (high - low):.2g}{unit}"


def _draw_pull(
    axes: "Axes", place: Float[ndarray, " parameter"], sigma: Float[ndarray, " parameter"], rows: ndarray
) -> None:
    for half in (2, 1):
        axes.axvspan(-half, half, color="#eeeeee" if half == 2 else "#dddddd", lw=0, zorder=0)
    axes.axvline(0.0, color=PRIOR_COLOR, linewidth=0.7)
    axes.errorbar(place, rows, xerr=sigma, fmt="o", markersize=3.5, linewidth=1.0, color=SPAXEL_COLORS[0])
    furthest = float(np.nanmax(np.abs(place) + sigma, initial=0.0))
    axes.set_xlim(-max(3.0, 1.05 * furthest), max(3.0, 1.05 * furthest))
    axes.spines[["top", "right"]].set_visible(False)
    axes.yaxis.label.set_color(INK)
