"""Images on the sky, with colour bar, directions and scale bar."""

import textwrap
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.plots.derived import Scale, SkyImage
from rubix_like.plots.sky_offsets import SkyOffsets, scale_bar
from rubix_like.plots.style import INK, import_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NO_DATA = "#d9d9d9"

_OWN: Mapping[int, Scale] = MappingProxyType({})


def draw_image(axes: "Axes", image: SkyImage, sky: SkyOffsets, scale: Scale | None = None) -> None:
    """One image with its colour bar; light is black where there is none, other values are grey.

    The tips of the colour bar say that values go beyond it. `scale`: that of another image; None: its own.
    """
    light = image.kind == "brightness"
    scale = scale or image.scale
    values = np.ma.array(image.values, mask=~np.isfinite(image.values))
    axes.set_facecolor("black" if light else _NO_DATA)
    if scale.logarithmic:
        values = np.ma.array(values, mask=~(values > 0))
    colors = import_matplotlib("matplotlib.colors")
    norm = (colors.LogNorm if scale.logarithmic else colors.Normalize)(scale.low, scale.high)
    drawn = axes.imshow(
        values, origin="lower", extent=sky.extent, interpolation="nearest", cmap=scale.colors, norm=norm
    )
    axes.set_title(textwrap.fill(image.title, 42), parse_math=False)
    extend = "neither" if light or image.kind == "share" else _extend(values.compressed(), scale)
    if not values.count():
        middle: Any = {"ha": "center", "va": "center", "transform": axes.transAxes, "color": "white" if light else INK}
        axes.text(0.5, 0.5, "no values", **middle)
    bar = axes.figure.colorbar(drawn, ax=axes, fraction=0.046, pad=0.02, extend=extend)
    bar.set_label(", ".join(filter(None, (image.unit, "log scale" * scale.logarithmic))), parse_math=False)
    pale = scale.colors in ("RdBu_r", "Greys_r")
    _finish(axes, sky, *((INK, "white") if pale else ("white", "black")))


def draw_images(
    figure: "Figure", images: Sequence[SkyImage], sky: SkyOffsets, n_columns: int, scales: Mapping[int, Scale] = _OWN
) -> "list[Axes]":
    """Images in rows, with labels at the outer edges only; their axes. `scales`: of images that have not their own."""
    grid: Any = figure.subplots(-(-len(images) // n_columns), n_columns, squeeze=False)
    panels = list(grid.ravel())
    for number, (axes, image) in enumerate(zip(panels, images, strict=False)):
        draw_image(axes, image, sky, scales.get(number))
        axes.locator_params(nbins=5)
        if number % n_columns:
            axes.set_ylabel("")
        if number + n_columns < len(images):
            axes.set_xlabel("")
    for axes in panels[len(images) :]:
        axes.set_axis_off()
    return panels[: len(images)]


def _extend(found: Float[ndarray, " spaxel"], scale: Scale) -> Literal["neither", "both", "min", "max"]:
    below, above = bool(np.any(found < scale.low)), bool(np.any(found > scale.high))
    if below and above:
        return "both"
    return "min" if below else "max" if above else "neither"


def _finish(axes: "Axes", sky: SkyOffsets, color: str, halo: str) -> None:
    """Labels, the two arrows of the sky and the scale bar, in `color` with a thin edge of `halo`."""
    edge = [import_matplotlib("matplotlib.patheffects").withStroke(linewidth=2.2, foreground=halo, alpha=0.8)]
    style: Any = {"color": color, "fontsize": 8, "ha": "center", "va": "center", "path_effects": edge}
    arrow = {"arrowstyle": "-", "color": color, "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0, "path_effects": edge}
    steps = sky.directions()
    across, up = ([step[axis] for step in steps.values()] for axis in (0, 1))
    foot = (0.94 - 0.13 * max(*across, 0.0), 0.06 - 0.13 * min(*up, 0.0))
    for name, step in steps.items():
        tip = (foot[0] + 0.13 * step[0], foot[1] + 0.13 * step[1])
        axes.annotate(name, xytext=tip, xy=foot, xycoords="axes fraction", arrowprops=arrow, **style)
    along = ("East", "North") if sky.north_is_up else ("offset", "offset")
    axes.set_xlabel(f"{along[0]} (arcsec)")
    axes.set_ylabel(f"{along[1]} (arcsec)")
    _draw_scale_bar(axes, sky, color, edge)


def _draw_scale_bar(axes: "Axes", sky: SkyOffsets, color: str, edge: list[Any]) -> None:
    """A bar of a round length in the lower left corner."""
    left, right, bottom, top = sky.extent
    length, label = scale_bar(sky)
    start, height = left - 0.06 * (left - right), bottom + 0.06 * (top - bottom)
    bar: Any = {"color": color, "path_effects": edge}
    axes.plot([start, start - length], [height, height], linewidth=1.6, solid_capstyle="butt", **bar)
    axes.text(start - length / 2, height + 0.02 * (top - bottom), label, fontsize=8, ha="center", **bar)
