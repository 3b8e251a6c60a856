"""Figures of a cube (white light, narrow band, maps, spectra of chosen spaxels) or of maps alone (`plots` extra)."""

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rubix_like.arguments import named_arguments
from rubix_like.config.quantities import parse_pair
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import ShardedCube, sums_of
from rubix_like.cube.maps import NO_ATTENUATION, Maps
from rubix_like.cube.views.imaging import SHORT_NAMES, map_of
from rubix_like.errors import ConfigError, expect_path
from rubix_like.plots.attenuation_figure import ATTENUATION_SIZE, draw_attenuation
from rubix_like.plots.bpt import BPT_SIZE, draw_bpt, has_bpt
from rubix_like.plots.choice import Choice, Spaxel, check_choice, chosen_images
from rubix_like.plots.derived import Band, SkyImage, light_image, read_sky_images, velocity_image
from rubix_like.plots.images import draw_images
from rubix_like.plots.sky_offsets import SkyOffsets, cube_title, sky_of
from rubix_like.plots.spectra import Spectrum, brightest_spaxel, draw_spectrum, field_spectrum, spaxel_spectrum
from rubix_like.plots.style import (
    BAND_COLOR,
    FIGURE_STYLE,
    FLUX_LABEL,
    INK,
    SPAXEL_COLORS,
    import_matplotlib,
    unit_label,
    write_picture,
)
from rubix_like.runtime.files.writers import PICTURE, check_outputs
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup
from rubix_like.runtime.progress import ipython_shell

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES: tuple[str, ...] = (".png", ".pdf", ".svg")

_IMAGE_WIDTH = 3.6
_SPECTRUM_HEIGHT = 1.5

FAINT: float = 0.002
"""Spaxels with less than this fraction of the brightest one's light have no colour in a quick look's velocity map."""


@named_arguments
def save_figure(cube: Cube, path: str | Path, choice: Choice | None = None, *, overwrite: bool = False) -> Path:
    """Draw a cube as `choice` says and write it as .png, .pdf or .svg; return the path.

    An earlier picture of rubix_like is replaced; any other file only with `overwrite`.
    Raises ConfigError (no matplotlib, another suffix, a spaxel or band outside the cube, more spaxels than colours),
    OSError if the file cannot be written.
    """
    import_matplotlib()
    path = check_picture(path, overwrite=overwrite)
    choice = choice or Choice()
    check_choice(cube, choice)
    _save(path, cube, chosen_images(cube, choice), chosen_spectra(cube, choice), choice)
    return path


def make_figure(cube: Cube, spaxels: tuple[Spaxel, ...] = (), band: Any = None) -> "Figure":
    """A cube as a figure that is not written: `Cube.plot`. Raises ConfigError as `save_figure`."""
    import_matplotlib()
    ends = None if band is None else parse_pair(band, "Angstrom", "band", "(lowest, highest)")
    choice = Choice(spaxels, ends, None if cube.maps is None else _main_maps(cube))
    check_choice(cube, choice)
    panels, spectra = chosen_images(cube, choice), chosen_spectra(cube, choice)
    with _styled_figure(*_size(cube, panels, spectra)) as figure:
        _draw(figure, cube, panels, spectra, choice)
    _show_in_notebooks(type(figure))
    return figure


def _main_maps(cube: Cube) -> tuple[SkyImage, ...]:
    """The maps with short names."""
    found = [(name, map_of(cube, name)) for name in SHORT_NAMES]
    kinds: Mapping[str, Any] = {"velocity": "velocity"}
    return tuple(
        SkyImage(f"{name}, weighted by light", own.value, unit_label(str(own.unit)), kinds.get(name, "value"))
        for name, own in found
    )


def _show_in_notebooks(kind: "type[Figure]") -> None:
    """Have IPython show figures that pyplot did not make; nothing elsewhere, or where it does."""
    shell = ipython_shell()
    formatters = {} if shell is None else shell.display_formatter.formatters
    if "image/png" in formatters and kind not in formatters["image/png"]:
        formatters["image/png"].for_type(kind, _png_of)


def _png_of(figure: "Figure") -> bytes:
    with io.BytesIO() as file:
        figure.savefig(file, format="png", dpi=100, bbox_inches="tight")
        return file.getvalue()


def save_quicklook(cube: Cube | ShardedCube, path: str | Path, team: AbstractProcessGroup | None = None) -> Path:
    """Draw what a run shows when it ends: white light, the velocity (if the cube has it) and two spectra, as a PNG.

    In a team, whose processes have a part of the cube each, process 0 draws. Returns the path. Raises ConfigError if
    matplotlib is not installed, OSError if the file cannot be written.
    """
    import_matplotlib()
    path, team = Path(path).expanduser(), team or SINGLE
    sums = sums_of(cube, team)
    images = [light_image(cube, sums)]
    if cube.mean_v_los is not None:
        lit = sums.light > FAINT * sums.light.max()
        velocity = velocity_image(cube)
        images.append(replace(velocity, values=np.where(lit, velocity.values, np.nan)))
    brightest = brightest_spaxel(images[0].values)
    spectra = (
        field_spectrum(cube, INK, sums),
        spaxel_spectrum(cube, brightest, SPAXEL_COLORS[0], "brightest spaxel", team),
    )
    team.exchange(lambda: _save(path, cube, images, spectra, Choice()) if team.number == 0 else None)
    return path


MAPS_PICTURES: tuple[str, ...] = ("lines", "bpt", "attenuation")
"""Ends of the names of the pictures of maps beside the first one."""


def save_maps(path: str | Path, stem: str | Path, suffix: str = ".png", *, overwrite: bool = False) -> tuple[Path, ...]:
    """Draw the images of a maps file as they are after the PSF; return the paths of the pictures.

    `STEM.png` has all but the emission lines, `STEM_lines.png` a row of them for each line, `STEM_bpt.png` the BPT
    diagram (`draw_bpt`) where its four lines are there, and `STEM_attenuation.png` the attenuation curve
    (`draw_attenuation`) where dust dims the light. Raises ConfigError (no matplotlib), ValueError for another
    file, OSError if one cannot be read or written.
    """
    maps = Maps.read(path)
    panels, sky = read_sky_images(path, maps.footprint, truth=False), sky_of(maps)
    of_lines, others = ([panel for panel in panels if bool(panel.line) is is_line] for is_line in (True, False))
    first = check_picture(f"{stem}{suffix}", overwrite=overwrite)
    written = [_save_images(first, maps, others, _Grid.of(others, sky))]
    if of_lines:
        rows = set(Counter(panel.line for panel in of_lines).values())
        grid = _Grid.of(of_lines, sky, rows.pop() if len(rows) == 1 else None)
        lines = check_picture(f"{stem}_lines{suffix}", overwrite=overwrite)
        written.append(_save_images(lines, maps, of_lines, grid))
    written += [save_bpt(maps, f"{stem}_bpt{suffix}", overwrite=overwrite)] if has_bpt(maps) else []
    if maps.attenuation is not None and np.any(np.asarray(maps.attenuation.a_lambda) > NO_ATTENUATION):
        written.append(save_attenuation(maps, f"{stem}_attenuation{suffix}", overwrite=overwrite))
    return tuple(written)


@named_arguments
def save_bpt(maps: Maps, path: str | Path, *, overwrite: bool = False) -> Path:
    """Draw the BPT diagram of the spaxels of maps (`draw_bpt`) and write it as .png, .pdf or .svg; return the path.

    Raises ConfigError (no matplotlib, another suffix, maps without the four lines), OSError if it cannot be written.
    """
    path = check_picture(path, overwrite=overwrite)
    with _figure(path, *BPT_SIZE) as figure:
        draw_title(figure, maps)
        draw_bpt(figure.subplots(), maps)
    return path


@named_arguments
def save_attenuation(maps: Maps, path: str | Path, *, overwrite: bool = False) -> Path:
    """Draw the attenuation curve of maps (`draw_attenuation`) and write it as .png, .pdf or .svg; return the path.

    Raises ConfigError (no matplotlib, another suffix, maps without the curve), OSError if it cannot be written.
    """
    path = check_picture(path, overwrite=overwrite)
    if maps.attenuation is None:
        raise ConfigError("attenuation curve: expected maps of dust, got none; set products: {dust: true} in the run")
    with _figure(path, *ATTENUATION_SIZE) as figure:
        draw_title(figure, maps)
        draw_attenuation(figure.subplots(), maps.attenuation)
    return path


def _save_images(path: Path, maps: Maps, images: Sequence[SkyImage], grid: "_Grid") -> Path:
    """Images alone."""
    with _figure(path, grid.width, grid.height) as figure:
        draw_title(figure, maps)
        draw_images(figure, images, sky_of(maps), grid.n_column)
    return path


def _save(
    path: Path, cube: Cube | ShardedCube, panels: Sequence[SkyImage], spectra: Sequence[Spectrum], choice: Choice
) -> None:
    with _figure(path, *_size(cube, panels, spectra)) as figure:
        _draw(figure, cube, panels, spectra, choice)


def _size(cube: Cube | ShardedCube, panels: Sequence[SkyImage], spectra: Sequence[Spectrum]) -> tuple[float, float]:
    """Width and height (inches) of images above spectra."""
    grid = _Grid.of(panels, sky_of(cube))
    return grid.width, grid.height + _spectra_height(spectra)


def _spectra_height(spectra: Sequence[Spectrum]) -> float:
    return _SPECTRUM_HEIGHT * len(spectra) + 0.4


def _draw(
    figure: "Figure",
    cube: Cube | ShardedCube,
    panels: Sequence[SkyImage],
    spectra: Sequence[Spectrum],
    choice: Choice,
) -> None:
    """Images above spectra."""
    sky = sky_of(cube)
    grid = _Grid.of(panels, sky)
    parts: Any = figure.subfigures(2, 1, height_ratios=(grid.height, _spectra_height(spectra)))
    upper, lower = parts
    draw_title(figure, cube)
    marks = [(spaxel, spectrum.color) for spaxel, spectrum in zip(choice.spaxels, spectra, strict=False)]
    for axes, image in zip(draw_images(upper, panels, sky, grid.n_column), panels, strict=True):
        if image.kind == "brightness":
            _draw_marks(axes, sky, marks)
    draw_spectra(lower, cube, spectra, choice.band)


@contextmanager
def _figure(path: Path, width: float, height: float) -> "Iterator[Figure]":
    """A figure of that size (inches) below its title, to be drawn into; it is written where the block ends."""
    with _styled_figure(width, height) as figure:
        yield figure
        write_picture(figure, path, dpi=150, bbox_inches="tight", pad_inches=0.08)


@contextmanager
def _styled_figure(width: float, height: float) -> "Iterator[Figure]":
    """A figure of that size (inches) below its title, while the style of our pictures holds."""
    new_figure, rc_context = import_matplotlib("matplotlib.figure").Figure, import_matplotlib().rc_context
    with rc_context(FIGURE_STYLE):
        yield new_figure(figsize=(width, height + 0.4), layout="constrained")


def check_picture_suffix(path: str | Path, place: str = "path") -> Path:
    """`path` with ~ expanded; raises ConfigError that names `place` unless it ends in a format of SUFFIXES."""
    path = Path(expect_path(path, place)).expanduser()
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"{place}: expected a name ending in {', '.join(SUFFIXES)}, got '{path.name}'")
    return path


def check_picture(path: str | Path, *, overwrite: bool) -> Path:
    """`path` as `check_picture_suffix` takes it; raises ConfigError where `check_outputs` refuses a picture there."""
    path = check_picture_suffix(path)
    check_outputs([path], [PICTURE], overwrite=overwrite)
    return path


def chosen_spectra(cube: Cube, choice: Choice) -> tuple[Spectrum, ...]:
    """The chosen spaxels' spectra, in their colours; without a choice the whole field's and the brightest spaxel's."""
    if not choice.spaxels:
        spaxel = brightest_spaxel(light_image(cube).values)
        return field_spectrum(cube, INK), spaxel_spectrum(cube, spaxel, SPAXEL_COLORS[0], "brightest spaxel")
    return tuple(spaxel_spectrum(cube, s, color) for s, color in zip(choice.spaxels, SPAXEL_COLORS, strict=False))


Mark = tuple[Spaxel, str]
"""A spaxel and its colour."""


def draw_title(figure: "Figure", cube: Cube | ShardedCube | Maps) -> None:
    """Object, instrument, redshift and inclination above everything else, as plain text."""
    style: Any = {"ha": "left", "fontsize": 11, "fontweight": "bold", "color": INK, "parse_math": False}
    figure.suptitle(cube_title(cube), x=0.01, **style)


class _Grid(NamedTuple):
    """Columns of images, and the room that all take (inches)."""

    n_column: int
    width: float
    height: float

    @classmethod
    def of(cls, panels: Sequence[SkyImage], sky: SkyOffsets, n_column: int | None = None) -> "_Grid":
        """As many columns, or few gaps and no picture that is much taller than wide."""
        n_panel = len(panels)
        n_column = n_column or (2 if n_panel in (1, 2, 4) else 3 if n_panel <= 9 else 4)
        n_row = -(-n_panel // n_column)
        height = 0.68 * _IMAGE_WIDTH * min(max(sky.n_y / sky.n_x, 0.3), 3.0) + 0.75
        return cls(n_column, n_column * _IMAGE_WIDTH, n_row * height)


def _draw_marks(axes: "Axes", sky: SkyOffsets, marks: list[Mark]) -> None:
    """A ring in its colour around every chosen spaxel."""
    left, _, bottom, _ = sky.extent
    for (x, y), color in marks:
        middle = (left - (x + 0.5) * sky.pixel_scale, bottom + (y + 0.5) * sky.pixel_scale)
        for edge, width in (("white", 3.2), (color, 1.8)):
            axes.plot(*middle, "o", markersize=8, markerfacecolor="none", markeredgecolor=edge, markeredgewidth=width)


def draw_spectra(
    figure: "Figure", cube: Cube | ShardedCube, spectra: Sequence[Spectrum], band: Band | None = None
) -> None:
    """The spectra below each other on one wavelength axis, the band shaded."""
    panels = np.atleast_1d(figure.subplots(len(spectra), 1, sharex=True))
    for axes, spectrum in zip(panels, spectra, strict=True):
        draw_spectrum(axes, cube, spectrum)
        if band is not None:
            axes.axvspan(*band, color=BAND_COLOR, lw=0, zorder=0)
    noise = "" if spectra[0].sigma is None else " ± 1σ"
    figure.supylabel(f"flux{noise} ({FLUX_LABEL})", fontsize=9, color=INK)
    panels[-1].set_xlabel(f"wavelength in {cube.bins.medium} (Å)")
