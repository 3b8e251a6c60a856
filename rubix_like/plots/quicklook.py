"""The quick look of a run: white light, velocity map and two spectra on one picture (needs the `plots` extra)."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import ShardedCube
from rubix_like.cube.cube_sums import CubeSums, sums_of
from rubix_like.plots.derived import SkyImage, light_image
from rubix_like.plots.figure import draw_spectra, draw_title
from rubix_like.plots.images import draw_image
from rubix_like.plots.sky_offsets import SkyOffsets, sky_of
from rubix_like.plots.spectra import Spectrum, brightest_spaxel, field_spectrum, spaxel_spectrum
from rubix_like.plots.style import FIGURE_STYLE, INK, SPAXEL_COLORS, import_matplotlib, unit_label
from rubix_like.runtime.files.outputs import replacing
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FAINT: float = 0.002
"""Spaxels with less than this fraction of the brightest one's light have no colour in the velocity map."""


def save_quicklook(cube: Cube | ShardedCube, path: str | Path, team: AbstractProcessGroup | None = None) -> Path:
    """Draw white light, the light-weighted velocity (if the cube has it) and two spectra; write a PNG, return its path.

    Of a team, whose processes have a part of the cube each, process 0 draws. Raises ConfigError if matplotlib is not
    installed, OSError if the file cannot be written.
    """
    import_matplotlib()
    path, team = Path(path).expanduser(), team or SINGLE
    sums = sums_of(cube, team)
    brightest = brightest_spaxel(light_image(cube, sums).values)
    spectra = (
        field_spectrum(cube, INK, sums),
        spaxel_spectrum(cube, brightest, SPAXEL_COLORS[0], "brightest spaxel", team),
    )
    team.exchange(lambda: _save(cube, sums, spectra, path) if team.number == 0 else None)
    return path


def _save(cube: Cube | ShardedCube, sums: CubeSums, spectra: Sequence[Spectrum], path: Path) -> None:
    make_figure, rc_context = import_matplotlib("matplotlib.figure").Figure, import_matplotlib().rc_context
    with rc_context(FIGURE_STYLE):
        figure = make_figure(figsize=(9.6, 7.4), layout="constrained")
        _draw(figure, cube, sums, spectra)
        with replacing(path) as temporary:
            figure.savefig(temporary, format="png", dpi=150)


def _draw(figure: "Figure", cube: Cube | ShardedCube, sums: CubeSums, spectra: Sequence[Spectrum]) -> None:
    parts: Any = figure.subfigures(2, 1, height_ratios=(1.15, 1))
    maps, lower = parts
    draw_title(figure, cube)
    left, right = maps.subplots(1, 2)
    sky = sky_of(cube)
    draw_image(left, light_image(cube, sums), sky)
    if cube.mean_v_los is None:
        right.set_axis_off()
        right.text(0.5, 0.5, "this cube holds no velocity map", color="#888888", ha="center", transform=right.transAxes)
    else:
        _draw_velocity(right, np.asarray(cube.mean_v_los, dtype=np.float64), sums.light, sky)
    draw_spectra(lower, cube, spectra)


def _draw_velocity(
    axes: "Axes", velocity: Float[ndarray, "y x"], light: Float[ndarray, "y x"], sky: SkyOffsets
) -> None:
    bright = np.isfinite(velocity) & (light > FAINT * light.max())
    title = "mean line-of-sight velocity (light-weighted)"
    draw_image(axes, SkyImage(title, np.where(bright, velocity, np.nan), unit_label("km s-1"), "velocity"), sky)
