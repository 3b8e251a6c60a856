"""Images of a cube with their colour scales, and the choice of what to draw of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.arguments import expect_fields
from rubix_like.config.quantities import parse_pair
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import ShardedCube
from rubix_like.cube.cube_sums import CubeSums, sums_of
from rubix_like.cube.files.maps_file import LINE_CARD, TRUE
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.views.imaging import mean_of_bins
from rubix_like.errors import ConfigError
from rubix_like.plots.style import BAND_LABEL, LIGHT_LABEL, SPAXEL_COLORS, unit_label
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.fits_opening import IMAGES, opened_fits
from rubix_like.runtime.words import reason_of

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
    if kind == "brightness":
        return _brightness(found)
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


def _brightness(found: Float[ndarray, " spaxel"]) -> Scale:
    """Logarithmic from the faintest light, or the noise (rms of the negative values), to the peak."""
    peak = float(found.max())
    if peak <= 0:
        return Scale("magma", 0.0, 1.0)
    negative = found[found < 0]
    noise = float(np.sqrt(np.mean(negative**2))) if negative.size else 0.0
    low = max(float(found[found > 0].min()), noise, peak * DECADES)
    return Scale("magma", low, peak, logarithmic=True) if low < peak else Scale("magma", 0.0, peak)


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
    return (
        Scale("cividis", low, high, logarithmic=True)
        if low < high
        else Scale("cividis", 0.0, high if high > 0 else 1.0)
    )


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
    """What a cube tells without a maps file: median S/N (if it has a variance), velocity (if it has one), good bins."""
    images = []
    if cube.variance is not None:
        images.append(SkyImage("median S/N per bin", _median_signal_to_noise(cube)))
    if cube.mean_v_los is not None:
        images.append(velocity_image(cube))
    good = 100 * np.mean(np.asarray(cube.mask) == 0, axis=2)
    return (*images, SkyImage("bins that are not masked", good, "%", "share"))


def velocity_image(cube: Cube | ShardedCube) -> SkyImage:
    """The light-weighted mean velocity of a cube that has it."""
    velocity = np.asarray(cube.mean_v_los, dtype=np.float64)
    return SkyImage("mean velocity (light-weighted)", velocity, unit_label("km s-1"), "velocity")


def _median_signal_to_noise(cube: Cube) -> Float[ndarray, "y x"]:
    """Median over the good bins of flux / sigma; NaN where there is none."""
    variance = np.asarray(cube.variance, dtype=np.float64)
    good = (np.asarray(cube.mask) == 0) & (variance > 0)
    ratio = np.where(good, np.asarray(cube.flux) / np.sqrt(np.where(good, variance, 1.0)), np.nan)
    any_good = good.any(axis=2)
    median = np.full(any_good.shape, np.nan)
    median[any_good] = np.nanmedian(ratio[any_good], axis=1)
    return median


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
            images = tuple(_image(index, hdu) for index, hdu in enumerate(hdus) if _is_map(hdu, truth))
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


def _is_map(hdu: Any, truth: bool) -> bool:
    if not isinstance(hdu, IMAGES) or hdu.header.get("NAXIS") != 2 or hdu.name == "DQ":
        return False
    return truth or not hdu.name.endswith(TRUE)


def _image(index: int, hdu: Any) -> SkyImage:
    words = " ".join(str(line) for line in hdu.header.get("COMMENT", []))
    name = (hdu.name or f"image {index}") + (f" {hdu.ver}" if hdu.ver > 1 else "")
    unit = unit_label(str(hdu.header.get("BUNIT", "")))
    values, line = np.array(hdu.data, dtype=np.float64), str(hdu.header.get(LINE_CARD, ""))
    kind: Kind = "value" if not line else "line_flux" if "erg" in unit else "line_value"
    return SkyImage(words or name.replace("_", " "), values, unit, kind, line)


Spaxel = tuple[int, int]
"""Column x and row y, counted from 0: cube.flux[y, x]."""


@dataclass(frozen=True)
class Choice:
    """What to draw: spaxels (none: the brightest one), a band (None: no narrow-band image), maps (None: the cube's)."""

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
