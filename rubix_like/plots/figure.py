"""Figures of a cube (white light, narrow band, maps, spectra) or of maps alone, as files (`plots` extra)."""

import io
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.config.quantities import parse_pair
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import CubeSums, ShardedCube, in_parts, spaxel_of, sums_of
from rubix_like.cube.maps import NO_ATTENUATION, AttenuationCurve, Maps
from rubix_like.cube.meta import OUTSIDE_SSP
from rubix_like.cube.views.imaging import SHORT_NAMES, map_of
from rubix_like.errors import ConfigError
from rubix_like.physics.units import given_numbers
from rubix_like.plots.images import (
    Band,
    Choice,
    SkyImage,
    SkyOffsets,
    Spaxel,
    check_choice,
    chosen_images,
    cube_title,
    draw_images,
    light_image,
    read_sky_images,
    sky_of,
    velocity_image,
)
from rubix_like.plots.style import (
    BAND_COLOR,
    FLUX_LABEL,
    INK,
    SPAXEL_COLORS,
    check_picture,
    import_matplotlib,
    saved_figure,
    styled_figure,
    unit_label,
)
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup
from rubix_like.runtime.progress import ipython_shell

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BPT_LINES: tuple[str, ...] = ("Ha", "Hb", "[N II] 6583", "[O III] 5007")
"""The four lines of the diagram."""

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
    lit &= np.all([values > 0 for values in flux.values()], axis=0)
    logs = {name: np.log10(values, where=lit, out=np.full(lit.shape, np.nan)) for name, values in flux.items()}
    width = h_alpha.equivalent_width
    color = flux["Ha"] if width is None else np.asarray(width, np.float64)
    words = "flux of Hα (10⁻²⁰ erg/s/cm²)" if width is None else "EW(Hα) (Å)"
    return BPTRatios(logs["[N II] 6583"] - logs["Ha"], logs["[O III] 5007"] - logs["Hb"], color, words)


@named_arguments
def draw_bpt(axes: "Axes", maps: Maps) -> None:
    """The spaxels in the diagram, coloured by the equivalent width of Ha, and the curves; raises as `bpt_ratios`."""
    ratios = bpt_ratios(maps)
    lit = np.isfinite(ratios.nitrogen) & np.isfinite(ratios.color)
    x, y, color = (values[lit] for values in (ratios.nitrogen, ratios.oxygen, ratios.color))
    across, up = (-1.5, 0.5), (-1.2, 1.3)
    norm = import_matplotlib("matplotlib.colors").LogNorm() if color.size and color.min() > 0 else None
    dots = axes.scatter(x, y, c=color, s=9, cmap="viridis", norm=norm, linewidths=0, rasterized=True)
    if x.size:
        across = min(across[0], x.min() - 0.1), max(across[1], x.max() + 0.1)
        up = min(up[0], y.min() - 0.1), max(up[1], y.max() + 0.1)
        axes.figure.colorbar(dots, ax=axes, pad=0.02).set_label(ratios.words)
    else:
        axes.text(0.5, 0.5, "no spaxel has all four lines", ha="center", color=INK, transform=axes.transAxes)
    for name, curve, end, style in CURVES:
        nitrogen = np.linspace(across[0], end - 0.02, 300)
        axes.plot(nitrogen, curve(nitrogen), style, color=INK, linewidth=1.1, label=name)
    axes.set(xlim=across, ylim=up, xlabel="log [N II] 6583 / Hα", ylabel="log [O III] 5007 / Hβ")
    axes.legend(loc="lower left", fontsize=8, frameon=False)


_IMAGE_WIDTH, _SPECTRUM_HEIGHT, _TITLE = 3.6, 1.5, 0.4
"""Inches: width of an image, heights of a spectrum and of the title."""

FAINT: float = 0.002
"""Spaxels with less than this fraction of the brightest one's light have no colour in a quick look's velocity map."""


@dataclass(frozen=True)
class Spectrum:
    """One line: its title, flux and sigma per bin (1e-20 erg/s/cm2/Angstrom, NaN where masked), its colour.

    `sigma` is None without a noise model; `missing`: bins outside the SSP library.
    """

    title: str
    flux: Float[ndarray, " wave"]
    sigma: Float[ndarray, " wave"] | None
    color: str
    missing: Bool[ndarray, " wave"]


def field_spectrum(cube: Cube | ShardedCube, color: str, sums: CubeSums | None = None) -> Spectrum:
    """Sum over all spaxels of the good voxels; a bin that is outside the SSP library everywhere is NaN.

    `sums`: of all parts of the cube, where they are known.
    """
    sums = sums or sums_of(cube)
    missing = sums.missing
    total, deviation = (np.where(missing, np.nan, values) for values in (sums.field, np.sqrt(sums.field_variance)))
    words = " (grey: outside the SSP library)" if missing.any() else ""
    return Spectrum(f"whole field{words}", total, deviation if in_parts(cube).has_variance else None, color, missing)


def spaxel_spectrum(
    cube: Cube | ShardedCube, spaxel: Spaxel, color: str, name: str = "spaxel", team: AbstractProcessGroup | None = None
) -> Spectrum:
    """The spectrum of one spaxel of the cube, whose parts may be spread over a team."""
    x, y = spaxel
    bins = spaxel_of(cube, x, y, team)
    good = bins.mask == 0
    flux = np.where(good, bins.flux, np.nan)
    sigma = np.where(good, np.sqrt(bins.variance), np.nan) if in_parts(cube).has_variance else None
    east, north = (round(value, 6) + 0.0 for value in sky_of(cube).offset(x, y))
    words = "" if good.any() else ": every bin is masked"
    place = f"{east:+.2f}″ East, {north:+.2f}″ North".replace("-", "−")
    return Spectrum(f"{name} ({x}, {y}), {place}{words}", flux, sigma, color, bins.mask & OUTSIDE_SSP != 0)


def brightest_spaxel(light: Float[ndarray, "y x"]) -> Spaxel:
    """Column and row of the largest value."""
    y, x = np.unravel_index(int(np.argmax(np.nan_to_num(light, nan=-np.inf))), light.shape)
    return int(x), int(y)


def draw_spectrum(axes: "Axes", cube: Cube | ShardedCube, spectrum: Spectrum) -> None:
    """Draw one spectrum with its one-sigma band, grey over the bins that the library does not cover."""
    wavelength, edges = cube.bins.wavelength, cube.bins.edges
    axes.plot(wavelength, spectrum.flux, color=spectrum.color, linewidth=0.7 if spectrum.sigma is None else 0.5)
    if spectrum.sigma is not None:
        low, high = spectrum.flux - spectrum.sigma, spectrum.flux + spectrum.sigma
        axes.fill_between(wavelength, low, high, color=spectrum.color, alpha=0.35, lw=0)
    axes.set_title(spectrum.title)
    axes.set_xlim(edges[0], edges[-1])
    axes.margins(y=0.08)
    axes.grid(color="#dddddd", linewidth=0.5)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 4), useMathText=True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.yaxis.get_offset_text().set_color(INK)
    if spectrum.missing.any():
        low, high = axes.get_ylim()
        axes.fill_between(edges[:-1], low, high, where=spectrum.missing, step="post", color="#cccccc", lw=0)
        axes.set_ylim(low, high)


@named_arguments
def save_figure(cube: Cube, path: str | Path, choice: Choice | None = None, *, overwrite: bool = False) -> Path:
    """Draw a cube as `choice` says and write it as .png, .pdf or .svg; return the path.

    An earlier picture of rubix_like is replaced; any other file only with `overwrite`.
    Raises ConfigError (no matplotlib, another suffix, a spaxel or band outside the cube, more spaxels than colours),
    OSError if the file cannot be written.
    """
    path = check_picture(path, overwrite=overwrite)
    choice = choice or Choice()
    check_choice(cube, choice)
    size, draw = _drawing(cube, chosen_images(cube, choice), chosen_spectra(cube, choice), choice)
    with _saved(path, size, cube) as figure:
        draw(figure)
    return path


def make_figure(cube: Cube, spaxels: tuple[Spaxel, ...] = (), band: Any = None) -> "Figure":
    """A cube as a figure that is not written: `Cube.plot`. Raises ConfigError as `save_figure`."""
    ends = None if band is None else parse_pair(band, "Angstrom", "band", "(lowest, highest)")
    choice = Choice(spaxels, ends, None if cube.maps is None else _main_maps(cube))
    check_choice(cube, choice)
    size, draw = _drawing(cube, chosen_images(cube, choice), chosen_spectra(cube, choice), choice)
    with styled_figure((size[0], size[1] + _TITLE), cube_title(cube)) as figure:
        draw(figure)
    kind = type(figure)
    shell = ipython_shell()
    formatters = {} if shell is None else shell.display_formatter.formatters
    if "image/png" in formatters and kind not in formatters["image/png"]:
        formatters["image/png"].for_type(kind, _png_of)
    return figure


def _main_maps(cube: Cube) -> tuple[SkyImage, ...]:
    """The maps with short names."""
    kinds: Mapping[str, Any] = {"velocity": "velocity"}
    images = []
    for name in SHORT_NAMES:
        quantity = map_of(cube, name)
        unit = unit_label(str(quantity.unit))
        images.append(SkyImage(f"{name}, weighted by light", quantity.value, unit, kinds.get(name, "value")))
    return tuple(images)


def _png_of(figure: "Figure") -> bytes:
    with io.BytesIO() as file:
        figure.savefig(file, format="png", dpi=100, bbox_inches="tight")
        return file.getvalue()


def save_quicklook(cube: Cube | ShardedCube, path: str | Path, team: AbstractProcessGroup | None = None) -> Path:
    """Draw the picture of a run: white light, the velocity (if the cube has it) and two spectra, as a PNG.

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

    def save() -> None:
        size, draw = _drawing(cube, images, spectra, Choice())
        with _saved(path, size, cube) as figure:
            draw(figure)

    team.exchange(lambda: save() if team.number == 0 else None)
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
    curve = maps.attenuation
    drawn = {
        "": True,
        "_lines": bool(of_lines),
        "_bpt": has_bpt(maps),
        "_attenuation": curve is not None and bool(np.any(np.asarray(curve.a_lambda) > NO_ATTENUATION)),
    }
    ends = [end for end, is_drawn in drawn.items() if is_drawn]
    paths = {end: check_picture(f"{stem}{end}{suffix}", overwrite=overwrite) for end in ends}
    counts = set(Counter(panel.line for panel in of_lines).values())
    n_column = counts.pop() if len(counts) == 1 else None
    for end, images, columns in (("", others, None), ("_lines", of_lines, n_column)):
        if end in paths:
            n_columns, *size = _grid(len(images), sky, columns)
            with _saved(paths[end], size, maps) as figure:
                draw_images(figure, images, sky, n_columns)
    if "_bpt" in paths:
        save_bpt(maps, paths["_bpt"], overwrite=overwrite)
    if "_attenuation" in paths:
        save_attenuation(maps, paths["_attenuation"], overwrite=overwrite)
    return tuple(paths.values())


@named_arguments
def save_bpt(maps: Maps, path: str | Path, *, overwrite: bool = False) -> Path:
    """Draw the BPT diagram of the spaxels of maps (`draw_bpt`) and write it as .png, .pdf or .svg; return the path.

    Raises ConfigError (no matplotlib, another suffix, maps without the four lines), OSError if it cannot be written.
    """
    path = check_picture(path, overwrite=overwrite)
    with _saved(path, (5.6, 4.6), maps) as figure:
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
    with _saved(path, (5.6, 4.0), maps) as figure:
        draw_attenuation(figure.subplots(), maps.attenuation)
    return path


def _saved(path: Path, size: Sequence[float], cube: Cube | ShardedCube | Maps) -> Any:
    """A figure of that size (inches) below the title of a cube or maps, written where the block ends."""
    width, height = size
    return saved_figure(path, (width, height + _TITLE), cube_title(cube), dpi=150, bbox_inches="tight", pad_inches=0.08)


def _drawing(
    cube: Cube | ShardedCube, panels: Sequence[SkyImage], spectra: Sequence[Spectrum], choice: Choice
) -> tuple[tuple[float, float], Callable[["Figure"], None]]:
    """Size (inches) of images above spectra, and the function that draws them."""
    sky = sky_of(cube)
    n_column, width, grid_height = _grid(len(panels), sky)
    spectra_height = _SPECTRUM_HEIGHT * len(spectra) + 0.4
    marks = [(spaxel, spectrum.color) for spaxel, spectrum in zip(choice.spaxels, spectra, strict=False)]

    def draw(figure: "Figure") -> None:
        parts: Any = figure.subfigures(2, 1, height_ratios=(grid_height, spectra_height))
        for axes, image in zip(draw_images(parts[0], panels, sky, n_column), panels, strict=True):
            if image.kind == "brightness":
                _draw_marks(axes, sky, marks)
        draw_spectra(parts[1], cube, spectra, choice.band)

    return (width, grid_height + spectra_height), draw


def _draw_marks(axes: "Axes", sky: SkyOffsets, marks: Sequence[tuple[Spaxel, str]]) -> None:
    """Draw a ring in its colour around every chosen spaxel."""
    left, _, bottom, _ = sky.extent
    for (x, y), color in marks:
        middle = (left - (x + 0.5) * sky.pixel_scale, bottom + (y + 0.5) * sky.pixel_scale)
        for edge, width in (("white", 3.2), (color, 1.8)):
            axes.plot(*middle, "o", markersize=8, markerfacecolor="none", markeredgecolor=edge, markeredgewidth=width)


def chosen_spectra(cube: Cube, choice: Choice) -> tuple[Spectrum, ...]:
    """The chosen spaxels' spectra, in their colours; without a choice the whole field's and the brightest spaxel's."""
    if not choice.spaxels:
        spaxel = brightest_spaxel(light_image(cube).values)
        return field_spectrum(cube, INK), spaxel_spectrum(cube, spaxel, SPAXEL_COLORS[0], "brightest spaxel")
    return tuple(spaxel_spectrum(cube, s, color) for s, color in zip(choice.spaxels, SPAXEL_COLORS, strict=False))


def _grid(n_panel: int, sky: SkyOffsets, n_column: int | None = None) -> tuple[int, float, float]:
    """Columns of a grid of images, and the room that all take (inches).

    Without a number there are as many columns as leave few gaps and make no picture much taller than wide.
    """
    if n_column is None:
        n_column = 3 if n_panel <= 9 else 4
        if n_panel in (1, 2, 4):
            n_column = 2
    height = 0.68 * _IMAGE_WIDTH * min(max(sky.n_y / sky.n_x, 0.3), 3.0) + 0.75
    return n_column, n_column * _IMAGE_WIDTH, -(-n_panel // n_column) * height


def draw_spectra(
    figure: "Figure", cube: Cube | ShardedCube, spectra: Sequence[Spectrum], band: Band | None = None
) -> None:
    """Draw the spectra below each other on one wavelength axis, the band shaded."""
    panels = np.atleast_1d(figure.subplots(len(spectra), 1, sharex=True))
    for axes, spectrum in zip(panels, spectra, strict=True):
        draw_spectrum(axes, cube, spectrum)
        if band is not None:
            axes.axvspan(*band, color=BAND_COLOR, lw=0, zorder=0)
    noise = "" if spectra[0].sigma is None else " ± 1σ"
    figure.supylabel(f"flux{noise} ({FLUX_LABEL})", fontsize=9, color=INK)
    panels[-1].set_xlabel(f"wavelength in {cube.bins.medium} (Å)")


def draw_attenuation(axes: "Axes", curve: AttenuationCurve) -> None:
    """Draw A / A(V) of all stars in the field by wavelength at rest; A in mag where V is not dimmed or not covered."""
    relative, a_v = np.asarray(curve.relative, np.float64), float(curve.a_v)
    has_v = bool(np.isfinite(relative).any())
    values = relative if has_v else np.asarray(curve.a_lambda, np.float64)
    axes.plot(np.asarray(curve.wavelength), values, color=INK, linewidth=1.2)
    axes.set(xscale="log", xlabel="wavelength at rest, vacuum (Å)", ylabel="A / A(5500 Å)" if has_v else "A (mag)")
    if has_v:
        axes.text(0.97, 0.94, f"A(5500 Å) = {a_v:.3g} mag", ha="right", va="top", color=INK, transform=axes.transAxes)


Drawing = tuple[str, tuple[float, float], Callable[["Figure"], None]]
"""The end of the file's name, the figure's size in inches, and what draws on it."""

_CHARACTERS_PER_INCH = 10
"""Characters of a title per inch of its figure."""


def save_drawings(
    title: str, drawings: Iterable[Drawing], stem: str | Path, suffix: str, *, overwrite: bool
) -> tuple[Path, ...]:
    """Write `STEM_ENDING.SUFFIX` for every drawing, the title above it; their paths.

    Raises ConfigError (no matplotlib, another suffix than .png, .pdf or .svg, without `overwrite` a file that is no
    picture of rubix_like) before any is written, and OSError if one cannot be written.
    """
    chosen = list(drawings)
    paths = [check_picture(f"{stem}_{ending}{suffix}", overwrite=overwrite) for ending, _, _ in chosen]
    for path, (_, size, draw) in zip(paths, chosen, strict=True):
        with saved_figure(path, size, textwrap.fill(title, int(_CHARACTERS_PER_INCH * size[0])), dpi=120) as figure:
            draw(figure)
    return tuple(paths)
