"""Images of a cube on the sky: which ones are drawn, with colour scales, colour bar, directions and scale bar."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.arguments import expect_fields
from rubix_like.config.quantities import parse_pair
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import CubeSums, ShardedCube, sums_of
from rubix_like.cube.files.maps_file import LINE_CARD, TRUE
from rubix_like.cube.footprint import AbstractGridded, Footprint
from rubix_like.cube.maps import Maps
from rubix_like.cube.views.imaging import mean_of_bins
from rubix_like.errors import ConfigError
from rubix_like.plots.style import BAND_LABEL, INK, LIGHT_LABEL, SPAXEL_COLORS, import_matplotlib, unit_label
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.fits_opening import IMAGES, opened_fits
from rubix_like.runtime.words import reason_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Kind = Literal["brightness", "velocity", "deviation", "share", "value", "line_flux", "line_value"]
"""What an image shows: light; km/s around a mean; anything around 0; percent; anything else; the light of a line or
beside it, logarithmic for every line; what else there is of a line, linear for every line."""

WIDE_RANGE: float = 30.0
"""Positive values whose 99th percentile is further above their median than this have a logarithmic scale."""

DECADES: float = 1e-4
"""Light fainter than this fraction of the peak is black."""


@dataclass(frozen=True)
class Scale:
    """matplotlib's name of a colour map, the values of its two ends, and whether it runs along the logarithm."""

    colors: str
    low: float
    high: float
    logarithmic: bool = False


def scale_of(values: Float[ndarray, "y x"], kind: Kind) -> Scale:
    """The scale of an image; values that are not finite count as none."""
    found = values[np.isfinite(values)]
    if not found.size:
        found = np.zeros(1)
    if kind == "brightness":  # from the faintest light, or the noise (rms of the negative values), to the peak
        peak, positive, negative = float(found.max()), found[found > 0], found[found < 0]
        noise = float(np.sqrt(np.mean(negative**2))) if negative.size else 0.0
        low = max(float(positive.min(initial=np.inf)), noise, peak * DECADES)
        return Scale("magma", low, peak, True) if low < peak else Scale("magma", 0.0, peak if peak > 0 else 1.0)
    if kind == "share":
        return Scale("Greys_r", 0.0, 100.0)
    if kind == "velocity":
        middle = float(np.median(found))
        return _around(middle, float(np.percentile(np.abs(found - middle), 98)), 1.0)
    if kind == "deviation":
        return _around(0.0, float(np.percentile(np.abs(found), 98)), 1.0)
    if kind == "line_flux":
        return _logarithmic(found, float(found.max()))
    return _values(found, may_be_logarithmic=kind == "value")


def _values(found: Float[ndarray, " spaxel"], *, may_be_logarithmic: bool) -> Scale:
    """1st to 99th percentile; around 0 where both signs matter, logarithmic where the values span decades."""
    low, high = (float(value) for value in np.percentile(found, (1, 99)))
    if low < -0.1 * high and high > -0.1 * low:
        return _around(0.0, max(-low, high), 0.0)
    positive = found[found > 0]
    wide = low >= 0 and positive.size and high > WIDE_RANGE * float(np.median(positive))
    if may_be_logarithmic and wide:
        return _logarithmic(found, high)
    if low == high:
        low, high = min(low, 0.0), max(high, 0.0)
    return Scale("viridis", low, high if high > low else low + 1.0)


def _logarithmic(found: Float[ndarray, " spaxel"], high: float) -> Scale:
    """From the faintest positive value, or `DECADES` of the high one; linear where there is no such range."""
    positive = found[found > 0]
    low = max(float(positive.min()), high * DECADES) if positive.size else high
    if low < high:
        return Scale("cividis", low, high, logarithmic=True)
    return Scale("cividis", 0.0, high if high > 0 else 1.0)


def _around(middle: float, half: float, smallest: float) -> Scale:
    half = max(half, smallest)
    return Scale("RdBu_r", middle - half, middle + half)


Band = tuple[float, float]
"""Lowest and highest wavelength, Angstrom."""


@dataclass(frozen=True)
class SkyImage:
    """One image: its title, its values ((y, x) float64, NaN where there is none), its unit in words, what it shows.

    `line`: the emission line that it is a map of, if it is one.
    """

    title: str
    values: Float[ndarray, "y x"]
    unit: str = ""
    kind: Kind = "value"
    line: str = ""

    @property
    def scale(self) -> Scale:
        """The colour scale of the image, from its values and kind."""
        return scale_of(self.values, self.kind)


def light_image(cube: Cube | ShardedCube, sums: CubeSums | None = None) -> SkyImage:
    """White light as surface brightness: sum of F_lambda d(lambda) over the good bins / spaxel area.

    `sums`: of all parts of the cube, where they are known.
    """
    sums = sums or sums_of(cube)
    values = np.where(sums.unlit, np.nan, sums.light / cube.pixel_scale**2)
    return SkyImage("white light", values, LIGHT_LABEL, "brightness")


def band_bins(cube: Cube, band: Band) -> Bool[ndarray, " wave"]:
    """The bins whose centres lie within the band; raises ConfigError where it leaves the cube or holds no bin."""
    low, high = band
    edges, wavelength = cube.bins.edges, cube.bins.wavelength
    if not edges[0] <= low < high <= edges[-1]:
        raise ConfigError(
            f"band: expected (lowest, highest) in Angstrom, within the cube's {edges[0]:.2f} to {edges[-1]:.2f} "
            f"({cube.bins.medium}), got {low:g} to {high:g}"
        )
    inside = (wavelength >= low) & (wavelength <= high)
    if not inside.any():
        nearest = int(np.argmin(np.abs(wavelength - (low + high) / 2)))
        raise ConfigError(
            f"band: expected one with the centre of a bin, got {low:g} to {high:g}; the nearest bin is "
            f"{edges[nearest]:.2f} to {edges[nearest + 1]:.2f} Angstrom"
        )
    return inside


def band_image(cube: Cube, band: Band) -> SkyImage:
    """Narrow band: mean of F_lambda over the good bins of the band / spaxel area; nothing is subtracted.

    A spaxel without a good bin in the band is NaN. Raises ConfigError as `band_bins`.
    """
    values = mean_of_bins(cube, band_bins(cube, band)) / cube.pixel_scale**2
    return SkyImage(f"{band[0]:g} to {band[1]:g} Å", values, BAND_LABEL, "brightness")


def cube_images(cube: Cube) -> tuple[SkyImage, ...]:
    """The images of a cube without a maps file: median S/N (if it has a variance), velocity (if it has one), good
    bins."""
    images, is_good = [], np.asarray(cube.mask) == 0
    if cube.variance is not None:
        variance = np.asarray(cube.variance, dtype=np.float64)
        usable = is_good & (variance > 0)
        ratio = np.where(usable, np.asarray(cube.flux) / np.sqrt(np.where(usable, variance, 1.0)), np.nan)
        median, has_any = np.full(ratio.shape[:2], np.nan), usable.any(axis=2)
        median[has_any] = np.nanmedian(ratio[has_any], axis=1)
        images.append(SkyImage("median S/N per bin", median))
    if cube.mean_v_los is not None:
        images.append(velocity_image(cube))
    return (*images, SkyImage("bins that are not masked", 100 * np.mean(is_good, axis=2), "%", "share"))


def velocity_image(cube: Cube | ShardedCube) -> SkyImage:
    """The light-weighted mean velocity of a cube that has it."""
    velocity = np.asarray(cube.mean_v_los, dtype=np.float64)
    return SkyImage("mean velocity (light-weighted)", velocity, unit_label("km s-1"), "velocity")


def read_sky_images(path: str | Path, footprint: Footprint, *, truth: bool = True) -> tuple[SkyImage, ...]:
    """Every 2-D image of a maps file but its mask (DQ), titled by its COMMENT or EXTNAME, its unit BUNIT, as float64.

    Without `truth` those before the PSF are left out. Raises FileNotFoundError, or ConfigError if the
    file is no FITS file or its images are not of the cube's footprint.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"no such maps file: {path}; check the path (maps=...)")
    try:
        with opened_fits(path, quiet=True) as hdus:
            planes = [(n, hdu) for n, hdu in enumerate(hdus) if isinstance(hdu, IMAGES) and hdu.name != "DQ"]
            maps = [(n, hdu) for n, hdu in planes if truth or not hdu.name.endswith(TRUE)]
            images = tuple(_image(n, hdu) for n, hdu in maps if hdu.header.get("NAXIS") == 2)
    except UNREADABLE as error:
        raise ConfigError(
            f"{path} cannot be read as maps ({reason_of(error)}); expected a FITS file with 2-D images"
        ) from error
    wrong = next((image for image in images if image.values.shape != footprint.shape), None)
    if wrong is not None or not images:
        found = "none" if wrong is None else f"'{wrong.title}' with {wrong.values.shape[1]} x {wrong.values.shape[0]}"
        raise ConfigError(
            f"{path}: expected 2-D images of {footprint.n_x} x {footprint.n_y} spaxels, as the cube has, got {found}; "
            f"give the maps of this cube (maps=...), or move the file away"
        )
    return images


def _image(index: int, hdu: Any) -> SkyImage:
    words = " ".join(str(line) for line in hdu.header.get("COMMENT", []))
    name = (hdu.name or f"image {index}") + (f" {hdu.ver}" if hdu.ver > 1 else "")
    unit = unit_label(str(hdu.header.get("BUNIT", "")))
    values, line = np.array(hdu.data, dtype=np.float64), str(hdu.header.get(LINE_CARD, ""))
    kind: Kind = "value"
    if line:
        kind = "line_flux" if "erg" in unit else "line_value"
    return SkyImage(words or name.replace("_", " "), values, unit, kind, line)


Spaxel = tuple[int, int]
"""Column x and row y, counted from 0: cube.flux[y, x]."""


@dataclass(frozen=True)
class Choice:
    """The choice of what is drawn: spaxels (none: the brightest one), a band (None: no narrow-band image), maps (None:
    the cube's)."""

    spaxels: tuple[Spaxel, ...] = ()
    band: Band | None = None
    maps: tuple[SkyImage, ...] | None = None

    def __post_init__(self) -> None:
        expect_fields(self)
        if self.band is not None:
            vars(self).update(band=parse_pair(self.band, "Angstrom", "band", "(lowest, highest)"))
        for spaxel in self.spaxels:
            if np.shape(spaxel) != (2,) or np.asarray(spaxel).dtype.kind not in "iu":
                raise ConfigError(
                    f"spaxels: expected pairs (x, y) of whole numbers, e.g. [(0, 0), (2, 1)], got {self.spaxels!r}"
                )


def check_choice(cube: Cube, choice: Choice) -> None:
    """Raise ConfigError where a spaxel or the band is outside the cube, or there are more spaxels than colours."""
    n_y, n_x, _ = np.shape(cube.flux)
    for spaxel in choice.spaxels:
        x, y = spaxel
        if not (0 <= x < n_x and 0 <= y < n_y):
            raise ConfigError(
                f"spaxels: expected (x, y) from (0, 0) to ({n_x - 1}, {n_y - 1}), as this cube has, got ({x}, {y})"
            )
    if len(choice.spaxels) > len(SPAXEL_COLORS):
        raise ConfigError(
            f"spaxels: expected at most {len(SPAXEL_COLORS)} spaxels at once, got {len(choice.spaxels)}; "
            f"make several pictures"
        )
    if choice.band is not None:
        band_bins(cube, choice.band)


def chosen_images(cube: Cube, choice: Choice) -> tuple[SkyImage, ...]:
    """White light, the narrow band if one was chosen, and the maps."""
    band = () if choice.band is None else (band_image(cube, choice.band),)
    maps = cube_images(cube) if choice.maps is None else choice.maps
    return (light_image(cube), *band, *maps)


def read_spaxels(words: Sequence[str]) -> tuple[Spaxel, ...]:
    """`["12,7", ...]` as pairs, each once; raises ConfigError for anything else than X,Y."""
    spaxels = []
    for word in words:
        parts = word.split(",")
        if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
            raise ConfigError(f"--spaxel: expected X,Y (column and row, counted from 0, e.g. 12,7), got '{word}'")
        spaxels.append((int(parts[0]), int(parts[1])))
    return tuple(dict.fromkeys(spaxels))


def read_band(word: str) -> Band:
    """`"5000-5100"` as a pair of Angstrom; raises ConfigError for anything else than LOW-HIGH."""
    parts = word.split("-")
    try:
        low, high = (float(part) for part in parts)
    except ValueError:
        raise ConfigError(f"--band: expected LOW-HIGH in Angstrom (e.g. 5000-5100), got '{word}'") from None
    return low, high


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
    """The sky of a cube or of maps, from their world coordinates and (D_A = D_L / (1 + z)^2) distance."""
    cards = {keyword: value for keyword, value, _ in cube.wcs_cards}
    rows = tuple((3600.0 * float(cards[f"CD{row}_1"]), 3600.0 * float(cards[f"CD{row}_2"])) for row in (1, 2))
    distance, redshift = cube.meta.get("luminosity_distance"), cube.meta.get("redshift")
    kpc_per_arcsec = None
    if isinstance(distance, int | float) and isinstance(redshift, int | float):
        kpc_per_arcsec = float(np.radians(1 / 3600) * 1000 * distance / (1 + redshift) ** 2)
    center = (cards["CRPIX1"] - 1.0, cards["CRPIX2"] - 1.0)
    return SkyOffsets(cube.footprint, (rows[0], rows[1]), center, kpc_per_arcsec)


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


def _draw_image(axes: "Axes", image: SkyImage, sky: SkyOffsets, scale: Scale) -> None:
    """Draw one image with its colour bar; light is black where there is none, other values are grey.

    The tips of the colour bar say that values go beyond it.
    """
    light = image.kind == "brightness"
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
    known = values.compressed()
    beyond = (bool(np.any(known < scale.low)), bool(np.any(known > scale.high)))
    extend: Any = {(True, True): "both", (True, False): "min", (False, True): "max"}.get(beyond, "neither")
    if light or image.kind == "share":
        extend = "neither"
    if not values.count():
        middle: Any = {"ha": "center", "va": "center", "transform": axes.transAxes, "color": "white" if light else INK}
        axes.text(0.5, 0.5, "no values", **middle)
    bar = axes.figure.colorbar(drawn, ax=axes, fraction=0.046, pad=0.02, extend=extend)
    bar.set_label(", ".join(filter(None, (image.unit, "log scale" * scale.logarithmic))), parse_math=False)
    pale = scale.colors in ("RdBu_r", "Greys_r")
    _finish(axes, sky, *((INK, "white") if pale else ("white", "black")))


def draw_images(
    figure: "Figure",
    images: Sequence[SkyImage],
    sky: SkyOffsets,
    n_columns: int,
    scales: Mapping[int, Scale] = MappingProxyType({}),
) -> "list[Axes]":
    """Draw images in rows, labels at the outer edges only; their axes. `scales`: of images in another's colours."""
    grid: Any = figure.subplots(-(-len(images) // n_columns), n_columns, squeeze=False)
    panels = list(grid.ravel())
    for number, (axes, image) in enumerate(zip(panels, images, strict=False)):
        _draw_image(axes, image, sky, scales.get(number, image.scale))
        axes.locator_params(nbins=5)
        if number % n_columns:
            axes.set_ylabel("")
        if number + n_columns < len(images):
            axes.set_xlabel("")
    for axes in panels[len(images) :]:
        axes.set_axis_off()
    return panels[: len(images)]


def _finish(axes: "Axes", sky: SkyOffsets, color: str, halo: str) -> None:
    """Draw labels, the two arrows of the sky and the scale bar, in `color` with a thin edge of `halo`."""
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
