"""Images on the sky, with colour bar, directions and scale bar, and where their spaxels are on the sky."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import ShardedCube
from rubix_like.cube.footprint import AbstractGridded, Footprint
from rubix_like.cube.maps import Maps
from rubix_like.plots.derived import Scale, SkyImage
from rubix_like.plots.style import INK, import_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class SkyOffsets(AbstractGridded):
    """The plane of the sky of a cube, in arcsec from the field's centre; spaxels (x, y) count from 0.

    `matrix` ((2, 2), arcsec) turns steps along x and y into offsets East and North: the cube's CD matrix. `center` is
    the spaxel position (x, y) of the field's centre. `kpc_per_arcsec` is None where the cube knows no distance.
    """

    footprint: Footprint
    matrix: tuple[tuple[float, float], tuple[float, float]]
    center: tuple[float, float]
    kpc_per_arcsec: float | None

    @property
    def north_is_up(self) -> bool:
        """Whether rows run along North and columns along East (and not at an angle)."""
        return bool(abs(self.matrix[0][1]) + abs(self.matrix[1][0]) < 1e-6 * self.pixel_scale)

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Left, right, bottom, top edge of the picture: arcsec against x (so that East is left) and along y."""
        (x, y), side = self.center, self.pixel_scale
        return (x + 0.5) * side, (x + 0.5 - self.n_x) * side, -(y + 0.5) * side, (self.n_y - y - 0.5) * side

    def offset(self, x: float | int, y: float | int) -> tuple[float, float]:
        """Arcsec East and North of the field's centre of the spaxel position (x, y), counted from 0."""
        step = np.array([x - self.center[0], y - self.center[1]])
        east, north = np.array(self.matrix) @ step + 0.0
        return float(east), float(north)

    def directions(self) -> dict[str, tuple[float, float]]:
        """Unit steps on the picture (right, up) towards North and East."""
        inverse = np.linalg.inv(np.array(self.matrix))
        steps = {"N": inverse @ np.array([0.0, 1.0]), "E": inverse @ np.array([1.0, 0.0])}
        return {name: (float(s[0] / np.hypot(*s)), float(s[1] / np.hypot(*s))) for name, s in steps.items()}


def sky_of(cube: Cube | ShardedCube | Maps) -> SkyOffsets:
    """The sky of a cube or of maps, from their world coordinates and, for kpc, their distance."""
    cards = {keyword: value for keyword, value, _ in cube.wcs_cards}
    rows = tuple((3600.0 * float(cards[f"CD{row}_1"]), 3600.0 * float(cards[f"CD{row}_2"])) for row in (1, 2))
    return SkyOffsets(
        footprint=cube.footprint,
        matrix=(rows[0], rows[1]),
        center=(cards["CRPIX1"] - 1.0, cards["CRPIX2"] - 1.0),
        kpc_per_arcsec=_kpc_per_arcsec(cube),
    )


def _kpc_per_arcsec(cube: Cube | ShardedCube | Maps) -> float | None:
    """D_A = D_L / (1 + z)^2 as kpc per arcsec; None where the cube does not know its distance."""
    distance, redshift = cube.meta.get("luminosity_distance"), cube.meta.get("redshift")
    if not isinstance(distance, int | float) or not isinstance(redshift, int | float):
        return None
    return float(np.radians(1 / 3600) * 1000 * distance / (1 + redshift) ** 2)


def scale_bar(sky: SkyOffsets) -> tuple[float, str]:
    """Length (arcsec) and label of a bar of a round number of kpc (or arcsec), at most a quarter of the field wide."""
    per_arcsec, unit = (sky.kpc_per_arcsec, " kpc") if sky.kpc_per_arcsec else (1.0, "″")
    target = 0.25 * sky.n_x * sky.pixel_scale * per_arcsec
    decade = 10.0 ** np.floor(np.log10(target))
    length = float(decade * max(step for step in (1, 2, 5) if step * decade <= target))
    return length / per_arcsec, f"{length:g}{unit}"


def cube_title(cube: Cube | ShardedCube | Maps) -> str:
    """Object, instrument, redshift and inclination, as far as known."""
    meta = cube.meta
    words = [str(meta[key]) for key in ("object", "instrument") if meta.get(key)]
    if meta.get("redshift") is not None:
        words.append(f"z = {meta['redshift']:g}")
    if meta.get("inclination") is not None:
        words.append(f"inclination {meta['inclination']:g}°")
    return "   ·   ".join(words) or "mock cube"


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
    left, right, bottom, top = sky.extent
    length, label = scale_bar(sky)
    start, height = left - 0.06 * (left - right), bottom + 0.06 * (top - bottom)
    bar: Any = {"color": color, "path_effects": edge}
    axes.plot([start, start - length], [height, height], linewidth=1.6, solid_capstyle="butt", **bar)
    axes.text(start - length / 2, height + 0.02 * (top - bottom), label, fontsize=8, ha="center", **bar)
