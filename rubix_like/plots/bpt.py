"""The BPT diagram of the spaxels of a galaxy: [O III]/Hb over [N II]/Ha, with the curves that divide it.

Baldwin, Phillips & Terlevich 1981, PASP 93, 5.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.cube.maps import Maps
from rubix_like.errors import ConfigError
from rubix_like.physics.units import given_numbers
from rubix_like.plots.style import INK, import_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BPT_LINES: tuple[str, ...] = ("Ha", "Hb", "[N II] 6583", "[O III] 5007")
"""The four lines of the diagram."""

BPT_SIZE: tuple[float, float] = (5.6, 4.6)
"""Width and height of the picture in inches."""

LEAST_SHARE: float = 1e-4
"""Spaxels with less than this share of the brightest one's Ha are left out."""


@named_arguments
def kauffmann_2003(nitrogen: Float[ndarray, "..."]) -> Float[ndarray, "..."]:
    """log [O III]/Hb below which galaxies form stars: 0.61 / (x - 0.05) + 1.3 (Kauffmann et al. 2003, MNRAS 346, 1055,
    eq. 1), x = log [N II]/Ha; -inf from x = 0.05 on, where none do."""
    return _below(nitrogen, 0.05, 1.3)


def kewley_2001(nitrogen: Float[ndarray, "..."]) -> Float[ndarray, "..."]:
    """log [O III]/Hb that stars reach at most: 0.61 / (x - 0.47) + 1.19 (Kewley et al. 2001, ApJ 556, 121, eq. 5);
    -inf from x = 0.47 on."""
    return _below(nitrogen, 0.47, 1.19)


def _below(nitrogen: Float[ndarray, "..."], end: float, level: float) -> Float[ndarray, "..."]:
    """0.61 / (x - end) + level on the branch below `end`, -inf beyond."""
    x = np.asarray(given_numbers(nitrogen, "", "nitrogen"), np.float64)
    return np.where(x < end, 0.61 / np.where(x < end, x - end, -1.0) + level, -np.inf)


@named_arguments
def kewley_2013(nitrogen: Float[ndarray, "..."]) -> Float[ndarray, "..."]:
    """log [O III]/Hb of star-forming galaxies at redshift 0: 0.61 / (x + 0.08) + 1.1 (Kewley et al. 2013, ApJ 774,
    L10); -inf from x = -0.08 on, where there are none."""
    return _below(nitrogen, -0.08, 1.1)


CURVES: tuple[tuple[str, Callable[..., Any], float, str], ...] = (
    ("Kewley+01", kewley_2001, 0.47, "-"),
    ("Kauffmann+03", kauffmann_2003, 0.05, "--"),
    ("Kewley+13, z = 0", kewley_2013, -0.08, ":"),
)
"""Name, function, where it ends, and line style of each curve."""


class BPTRatios(NamedTuple):
    """log10 of [N II] 6583 / Ha and [O III] 5007 / Hb of spaxels (y, x), NaN where a line is too faint or missing; what
    colours them and its words."""

    nitrogen: Float[ndarray, "y x"]
    oxygen: Float[ndarray, "y x"]
    color: Float[ndarray, "y x"]
    words: str


def has_bpt(maps: Maps) -> bool:
    """Whether maps have the four lines."""
    return set(BPT_LINES) <= {line.name for line in maps.lines}


@named_arguments
def bpt_ratios(maps: Maps) -> BPTRatios:
    """The ratios of the spaxels after the PSF, as they are seen, and the equivalent width of Ha, else its flux.

    Spaxels outside the aperture, and those with less than 1e-4 of the brightest one's Ha, are NaN. Raises ConfigError
    for maps without the four lines.
    """
    if not has_bpt(maps):
        found = ", ".join(line.name for line in maps.lines) or "none"
        raise ConfigError(
            f"BPT diagram: expected maps of {', '.join(BPT_LINES)}, got {found}; name them in products.lines"
        )
    h_alpha = maps.after.lines["Ha"]
    flux = {name: np.asarray(maps.after.lines[name].flux, np.float64) for name in BPT_LINES}
    lit = (np.asarray(maps.mask) == 0) & (flux["Ha"] > LEAST_SHARE * flux["Ha"].max())
    lit &= np.all([own > 0 for own in flux.values()], axis=0)
    logs = {name: np.log10(own, where=lit, out=np.full(lit.shape, np.nan)) for name, own in flux.items()}
    width = h_alpha.equivalent_width
    color = flux["Ha"] if width is None else np.asarray(width, np.float64)
    words = "flux of Hα (10⁻²⁰ erg/s/cm²)" if width is None else "EW(Hα) (Å)"
    return BPTRatios(logs["[N II] 6583"] - logs["Ha"], logs["[O III] 5007"] - logs["Hb"], color, words)


@named_arguments
def draw_bpt(axes: "Axes", maps: Maps) -> None:
    """The spaxels in the diagram, coloured by the equivalent width of Ha, and the curves; raises as `bpt_ratios`."""
    ratios = bpt_ratios(maps)
    lit = np.isfinite(ratios.nitrogen) & np.isfinite(ratios.color)
    x, y, color = (own[lit] for own in (ratios.nitrogen, ratios.oxygen, ratios.color))
    low, high = (-1.5, 0.5), (-1.2, 1.3)
    spread = bool(color.size) and color.min() > 0
    norm = import_matplotlib("matplotlib.colors").LogNorm() if spread else None
    dots = axes.scatter(x, y, c=color, s=9, cmap="viridis", norm=norm, linewidths=0, rasterized=True)
    if not x.size:
        axes.text(0.5, 0.5, "no spaxel has all four lines", ha="center", color=INK, transform=axes.transAxes)
    else:
        low, high = ((min(a, own.min() - 0.1), max(b, own.max() + 0.1)) for (a, b), own in ((low, x), (high, y)))
        axes.figure.colorbar(dots, ax=axes, pad=0.02).set_label(ratios.words)
    for name, curve, end, style in CURVES:
        nitrogen = np.linspace(low[0], end - 0.02, 300)
        axes.plot(nitrogen, curve(nitrogen), style, color=INK, linewidth=1.1, label=name)
    axes.set(xlim=low, ylim=high, xlabel="log [N II] 6583 / Hα", ylabel="log [O III] 5007 / Hβ")
    axes.legend(loc="lower left", fontsize=8, frameon=False)
