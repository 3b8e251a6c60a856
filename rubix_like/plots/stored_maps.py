"""The maps that belong to a cube: 2-D images of a FITS file."""

from pathlib import Path
from typing import Any

import numpy as np

from rubix_like.cube.files.maps_file import TRUE
from rubix_like.cube.footprint import Footprint
from rubix_like.errors import ConfigError
from rubix_like.plots.derived import SkyImage
from rubix_like.plots.style import unit_label
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.fits_opening import opened_fits
from rubix_like.runtime.words import reason_of


def read_sky_images(path: str | Path, footprint: Footprint, *, truth: bool = True) -> tuple[SkyImage, ...]:
    """Every 2-D image of the file but its mask (DQ), by its COMMENT, or else EXTNAME, and BUNIT, as float64.

    Without `truth` those before the PSF are left out. Raises FileNotFoundError, or ConfigError if the
    file is no FITS file or its images are not of the cube's footprint.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"no such maps file: {path}; check the path given to --maps")
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
            f"give the maps of this cube with --maps, or move the file away"
        )
    return images


def _is_map(hdu: Any, truth: bool) -> bool:
    if not hdu.is_image or hdu.header.get("NAXIS") != 2 or hdu.name == "DQ":
        return False
    return truth or not hdu.name.endswith(TRUE)


def _image(index: int, hdu: Any) -> SkyImage:
    words = " ".join(str(line) for line in hdu.header.get("COMMENT", []))
    name = (hdu.name or f"image {index}") + (f" {hdu.ver}" if hdu.ver > 1 else "")
    unit = unit_label(str(hdu.header.get("BUNIT", "")))
    return SkyImage(words or name.replace("_", " "), np.array(hdu.data, dtype=np.float64), unit)
