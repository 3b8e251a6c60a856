"""The parameters of a fit: the Laplace approximation pair by pair, and every parameter against its prior."""

import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from rubix_like.plots.fits.fit_view import AtEdge, Inferred
from rubix_like.plots.style import INK, SPAXEL_COLORS, import_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

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


def paired(inferred: Inferred) -> Int[ndarray, " pair"]:
    """The parameters that are drawn pair by pair: those that the data say most of, in their own order."""
    return np.sort(np.argsort(inferred.sigma, kind="stable")[:MOST_PAIRED])


def contour(inferred: Inferred, first: int, second: int, share: float) -> Float[ndarray, "2 point"]:
    """Values of two parameters on the ellipse of their latents that holds `share` of the probability."""
    chosen = np.array([first, second])
    factor = np.linalg.cholesky(inferred.covariance[np.ix_(chosen, chosen)])
    points = inferred.latent[chosen][:, None] + factor @ _circle(share)
    return np.stack([inferred.value(first, points[0]), inferred.value(second, points[1])])


def prior_contour(inferred: Inferred, first: int, second: int, share: float) -> Float[ndarray, "2 point"]:
    """Values of two parameters on the ellipse of their prior that holds `share` of the probability."""
    circle = _circle(share)
    return np.stack([inferred.value(first, circle[0]), inferred.value(second, circle[1])])


def _circle(share: float) -> Float[ndarray, "2 point"]:
    """Radius sqrt(-2 ln(1 - share)): a normal distribution in two dimensions."""
    angle = np.linspace(0, 2 * np.pi, 121)
    return np.sqrt(-2 * np.log(1 - share)) * np.stack([np.cos(angle), np.sin(angle)])


def density(inferred: Inferred, parameter: int, mean: float, sigma: float) -> Float[ndarray, "2 node"]:
    """Values of a parameter and their probability density where its latent is normal."""
    latent = mean + sigma * np.linspace(-4, 4, 161)
    value = inferred.value(parameter, latent)
    normal = np.exp(-0.5 * ((latent - mean) / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi))
    step = np.gradient(value, latent)
    return np.stack([value, normal / np.where(step > 0, step, np.inf)])


def density_at_edge(inferred: Inferred, parameter: int, known: AtEdge) -> Float[ndarray, "2 node"]:
    """The same of a parameter at the edge of its prior."""
    value = inferred.value(parameter, known.latent)
    step = np.gradient(value, known.latent)
    return np.stack([value, known.density / np.where(step > 0, step, np.inf)])


def draw_pairs(figure: "Figure", inferred: Inferred) -> None:
    """Contours of every pair of parameters, densities on the diagonal; the prior in grey, the truth (if known) red."""
    draw_triangle(
        figure,
        inferred,
        [int(number) for number in paired(inferred)],
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
    grid = _panels(figure, count)
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


def _panels(figure: "Figure", count: int) -> Any:
    """Square panels at the left and the bottom, close together: their titles stand where there are no other panels."""
    figure.set_layout_engine("none")
    width, height = (float(side) for side in figure.get_size_inches())
    left, _, bottom, top = MARGINS
    side = height - bottom - top
    for title in figure.texts:
        title.set_y(1 - _ABOVE / height)
    place = {"left": left / width, "right": (left + side) / width, "bottom": bottom / height, "top": 1 - top / height}
    return figure.subplots(count, count, squeeze=False, gridspec_kw={**place, "wspace": _GAP, "hspace": _GAP})


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
        value, height = density_at_edge(inferred, parameter, known)
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
        axes.plot(*prior_contour(inferred, first, second, share), color=PRIOR_COLOR, linewidth=width)
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
    _draw_pull(panels[0, 0], *_spread(inferred), rows)
    panels[0, 0].set_xlabel("distance from the prior's median (σ of the prior)")
    if inferred.truth is not None:
        _draw_pull(panels[0, 1], inferred.pull(), np.ones(len(rows)), rows)
        panels[0, 1].set_xlabel("distance from the truth (σ of the fit)")
    if len(rows) <= MOST_NAMED:
        panels[0, 0].set_yticks(rows, [_value_text(inferred, n) for n in range(len(rows))], parse_math=False)
    else:
        panels[0, 0].set_yticks([])
        panels[0, 0].set_ylabel(f"{len(rows)} parameters, the first at the top")


def _spread(inferred: Inferred) -> tuple[Float[ndarray, " parameter"], Float[ndarray, " parameter"]]:
    """Middle and half the width of each latent's distribution."""
    middle, half = np.array(inferred.latent), np.array(inferred.sigma)
    for parameter, known in inferred.limits.items():
        mean = np.trapezoid(known.latent * known.density, known.latent)
        variance = np.trapezoid((known.latent - mean) ** 2 * known.density, known.latent)
        middle[parameter], half[parameter] = mean, np.sqrt(variance)
    return middle, half


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
