"""The quick look of a run: white light, velocity map and two spectra on one picture (needs the `plots` extra)."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.atomic import replacing
from rubix_like.cube import Cube, white_light
from rubix_like.plots.choice import Choice
from rubix_like.plots.derived import SkyImage, light_image
from rubix_like.plots.figure import chosen_spectra, draw_spectra, draw_title
from rubix_like.plots.images import draw_image
from rubix_like.plots.sky import Sky, sky_of
from rubix_like.plots.style import FIGURE_STYLE, require_matplotlib, unit_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FAINT: float = 0.002
"""Spaxels with less than this fraction of the brightest one's light have no colour in the velocity map."""


def save_quicklook(cube: Cube, path: str | Path) -> Path:
    """Draw white light, the light-weighted velocity (if the cube has it) and two spectra; write a PNG, return its path.

    Raises ConfigError if matplotlib is not installed, OSError if the file cannot be written.
    """
    require_matplotlib()
    from matplotlib import rc_context  # noqa: PLC0415 (an optional extra)
    from matplotlib.figure import Figure  # noqa: PLC0415

    path = Path(path).expanduser()
    with rc_context(FIGURE_STYLE):
        figure = Figure(figsize=(9.6, 7.4), layout="constrained")
        _draw(figure, cube)
        with replacing(path) as temporary:
            figure.savefig(temporary, format="png", dpi=150)
    return path


def _draw(figure: "Figure", cube: Cube) -> None:
    parts: Any = figure.subfigures(2, 1, height_ratios=(1.15, 1))
    maps, spectra = parts
    draw_title(figure, cube)
    left, right = maps.subplots(1, 2)
    sky = sky_of(cube)
    draw_image(left, light_image(cube), sky)
    if cube.mean_v_los is None:
        right.set_axis_off()
        right.text(0.5, 0.5, "this cube holds no velocity map", color="#888888", ha="center", transform=right.transAxes)
    else:
        _draw_velocity(right, np.asarray(cube.mean_v_los, dtype=np.float64), white_light(cube), sky)
    draw_spectra(spectra, cube, chosen_spectra(cube, Choice()))


def _draw_velocity(axes: "Axes", velocity: Float[ndarray, "y x"], light: Float[ndarray, "y x"], sky: Sky) -> None:
    bright = np.isfinite(velocity) & (light > FAINT * light.max())
    title = "mean line-of-sight velocity (light-weighted)"
    draw_image(axes, SkyImage(title, np.where(bright, velocity, np.nan), unit_label("km s-1"), "velocity"), sky)
