"""Images of a cube: white light, narrow band, median S/N, good bins, and those of its maps file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import CubeSums, ShardedCube, sums_of
from rubix_like.cube.files.maps_file import LINE_CARD, TRUE
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.views.imaging import mean_of_bins
from rubix_like.errors import ConfigError
from rubix_like.plots.scales import Kind, Scale, scale_of
from rubix_like.plots.style import BAND_LABEL, LIGHT_LABEL, unit_label
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.fits_opening import IMAGES, opened_fits
from rubix_like.runtime.words import reason_of

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
