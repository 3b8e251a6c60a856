"""The maps that belong to a cube: 2-D images of a FITS file."""

from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits

from rubix_like.errors import ConfigError
from rubix_like.plots.derived import SkyImage
from rubix_like.plots.style import unit_label


def read_maps(path: str | Path, n_y: int, n_x: int) -> tuple[SkyImage, ...]:
    """Every 2-D image of the file, by its EXTNAME and BUNIT, as float64.

    Raises FileNotFoundError, or ConfigError if the file is no FITS file or its images are not of n_y x n_x spaxels.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"no such maps file: {path}; check the path given to --maps")
    try:
        with fits.open(path, memmap=False) as hdus:
            images = tuple(_image(index, hdu) for index, hdu in enumerate(hdus) if _is_image(hdu))
    except (OSError, TypeError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as maps ({error}); expected a FITS file with 2-D images") from error
    wrong = next((image for image in images if image.values.shape != (n_y, n_x)), None)
    if wrong is not None or not images:
        found = "none" if wrong is None else f"'{wrong.title}' with {wrong.values.shape[1]} x {wrong.values.shape[0]}"
        raise ConfigError(
            f"{path}: expected 2-D images of {n_x} x {n_y} spaxels, as the cube has, got {found}; "
            f"give the maps of this cube with --maps, or move the file away"
        )
    return images


def _is_image(hdu: Any) -> bool:
    return hdu.is_image and hdu.header.get("NAXIS") == 2


def _image(index: int, hdu: Any) -> SkyImage:
    name = str(hdu.name or f"image {index}")
    version = f" {hdu.ver}" if hdu.ver > 1 else ""
    unit = unit_label(str(hdu.header.get("BUNIT", "")))
    return SkyImage(name.replace("_", " ") + version, np.array(hdu.data, dtype=np.float64), unit)
