"""Shapes of fields on the sky, and masks from files."""

from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.config import ApertureSettings
from rubix_like.cube.footprint import Footprint
from rubix_like.errors import ConfigError
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.fits_opening import IMAGES, opened_fits
from rubix_like.runtime.words import reason_of

FLAT_PER_CORNER: float = float(np.sqrt(3) / 2)
"""Distance of opposite sides of a regular hexagon over that of opposite corners."""


def aperture_mask(
    settings: ApertureSettings | None, fov: tuple[float, float], footprint: Footprint
) -> Bool[ndarray, "y x"]:
    """Whether the centre of each spaxel lies in the aperture (None: all do).

    `fov` (x, y) in arcsec. Raises ConfigError for a mask file that cannot be used.
    """
    if settings is None:
        return np.ones(footprint.shape, dtype=bool)
    if settings.file is not None:
        return read_mask(settings.file, footprint.shape)
    x, y = np.meshgrid(*footprint.centres())
    return inside_aperture(settings.shape, x, y, *aperture_sides(settings, fov))


def inside_aperture(
    shape: str, x: Float[ndarray, "y x"], y: Float[ndarray, "y x"], width: float, height: float
) -> Bool[ndarray, "y x"]:
    """Whether points (arcsec from the field's centre) lie in a shape of the given full width and height.

    square, rectangle; circle (an ellipse where width and height differ); hexagon: `width` from corner to corner, two
    corners East and West, `height` from side to side (sqrt(3)/2 of the width where it is regular). The edge is inside.
    """
    x, y = np.abs(x) * (2 / width), np.abs(y) * (2 / height)
    edge = 1 + 1e-9
    if shape == "circle":
        return x**2 + y**2 <= edge
    if shape == "hexagon":
        return (y <= edge) & (2 * x + y <= 2 * edge)
    return (x <= edge) & (y <= edge)


def read_mask(path: Path, shape: tuple[int, int]) -> Bool[ndarray, "y x"]:
    """Where the image of a FITS (the first 2-D one) or .npy file is not 0, if it has the `shape` (y, x) of the field.

    Raises ConfigError that names the key and the file where it cannot be read, has another shape, holds values that
    are not finite, or leaves no spaxel.
    """
    image = _read_image(path.expanduser())
    if image.shape != shape:
        came = " x ".join(str(length) for length in reversed(image.shape)) or "one number"
        raise _refusal(
            path,
            f"a mask of the field's {shape[1]} x {shape[0]} spaxels",
            f"{came} (change the file or instrument.fov)",
        )
    if image.dtype.kind not in "biuf" or not np.isfinite(image).all():
        raise _refusal(path, "finite numbers (0 is outside)", f"others, of type {image.dtype}")
    inside = image != 0
    if not inside.any():
        raise _refusal(path, "a value that is not 0 in at least one spaxel", "only 0")
    return inside


def aperture_sides(settings: ApertureSettings, fov: tuple[float, float]) -> tuple[float, float]:
    """Full width and height of a shape in arcsec."""
    if settings.size is not None and len(settings.size) == 2:
        return settings.size[0], settings.size[1]
    if settings.size is None and settings.shape == "rectangle":
        return fov
    shape, narrow = settings.shape, min(fov)
    width = settings.size[0] if settings.size else fov[0] if shape == "hexagon" else narrow
    return width, width * (FLAT_PER_CORNER if shape == "hexagon" else 1.0)


def _read_image(path: Path) -> ndarray:
    try:
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        with opened_fits(path, quiet=True) as hdus:
            images = [np.asarray(hdu.data) for hdu in hdus if isinstance(hdu, IMAGES) and hdu.data is not None]
    except UNREADABLE as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else reason_of(error)
        raise _refusal(path, "a readable FITS image or .npy file", f"an error: {reason}") from error
    images = [image for image in images if image.ndim == 2]
    if not images:
        raise _refusal(path, "a 2-D image", "none")
    return images[0]


def _refusal(path: Path, expected: str, came: str) -> ConfigError:
    return ConfigError(f"instrument.aperture.file: expected {expected} in '{path}', got {came}")
