"""A PSF given as an image in a FITS file, on its own pixels, and its light on the spaxels of a field."""

from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits
from jaxtyping import Float
from numpy import ndarray

from rubix_like.config import PSFSettings
from rubix_like.errors import ConfigError
from rubix_like.instrument.painting import Painting
from rubix_like.instrument.psf_profile import TAPS, cell_offsets, sharpened
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.fits_opening import opened_fits
from rubix_like.runtime.places import found_at
from rubix_like.runtime.words import reason_of

_DEEPEST = 0.01
"""How far below 0, relative to its peak, the sharpened image of a PSF may fall."""


def load_psf_image(settings: PSFSettings) -> tuple[Float[ndarray, "plane row column"], float]:
    """The image (one plane per `wavelength`, or one) and the side of its pixels in arcsec.

    Raises ConfigError for a file that is missing, has no image of that shape, holds values that are not finite or
    negative, or does not say how large its pixels are.
    """
    path = Path(settings.file or "").expanduser()
    try:
        with opened_fits(path, quiet=True) as hdus:
            every: Any = list(hdus)
            found = [hdu for hdu in every if hdu.is_image and hdu.data is not None]
            if not found:
                raise ConfigError(f"instrument.psf.file: expected an image in {path}, got none")
            data, header = np.asarray(found[0].data, dtype=np.float64), found[0].header
    except ConfigError:
        raise
    except UNREADABLE as error:
        raise ConfigError(
            f"instrument.psf.file: expected a readable FITS image, got {path} ({reason_of(error)})"
        ) from error
    data = data[None] if data.ndim == 2 else data
    wanted = 1 if settings.wavelength is None else len(settings.wavelength)
    if data.ndim != 3 or len(data) != wanted:
        raise ConfigError(
            f"instrument.psf.file: expected {'one plane' if wanted == 1 else f'{wanted} planes, one per wavelength'}, "
            f"got an array of shape {data.shape} in {path}; give psf.wavelength with one value per plane"
        )
    if not (np.isfinite(data).all() and (data >= 0).all() and (data.sum(axis=(1, 2)) > 0).all()):
        raise ConfigError(f"instrument.psf.file: expected finite values >= 0 with a positive sum, got others in {path}")
    return data, settings.file_scale or _scale(header, path)


def _scale(header: fits.Header, path: Path) -> float:
    """Side of a pixel (arcsec) by the header's world coordinates."""
    if not any(key in header for key in ("CDELT1", "CD1_1", "CDELT2", "CD2_2")):
        raise ConfigError(
            f"instrument.psf.file_scale: expected the side of a pixel of {path} (e.g. 0.05 arcsec), as its header has "
            f"no CDELT1 or CD1_1"
        )
    try:
        sky = found_at("astropy.wcs:WCS")(header, naxis=2)
        scales = found_at("astropy.wcs.utils:proj_plane_pixel_scales")(sky) * 3600.0
    except UNREADABLE as error:
        raise ConfigError(
            f"instrument.psf.file_scale: expected the side of a pixel of {path} (e.g. 0.05 arcsec), as its header "
            f"has no world coordinates that can be read ({reason_of(error)})"
        ) from error
    if not (np.isfinite(scales).all() and scales.min() > 0 and abs(scales[0] / scales[1] - 1.0) <= 1e-6):
        raise ConfigError(f"instrument.psf.file: expected square pixels, got {scales[0]:g} x {scales[1]:g} arcsec")
    return float(scales[0])


def on_spaxels(
    planes: Float[ndarray, "plane row column"], scale: float, enclosed: float, cells: int = 1, least: int = 0
) -> tuple[Float[ndarray, "plane side side"], int, float]:
    """Images integrated over spaxels at the places of painted cells (`TAPS` more on each side), about the middle of the
    array; how many spaxels on each side they hold; the largest fraction cut off.

    `scale` is the side of an image's pixel in spaxels; its light is spread evenly over it. The square is the smallest
    that holds the fraction `enclosed` of the light of each plane, and `least` spaxels on each side or more.
    """
    light = planes / planes.sum(axis=(1, 2), keepdims=True)
    widest = int(np.ceil(max(max(planes.shape[1:]) * scale / 2 - 0.5, 0.0)))
    images = _in_boxes(light, scale, cell_offsets(widest, 1))
    within = np.maximum(*np.abs(np.indices(images.shape[1:]) - widest))
    enclosing = [float(images[:, within <= size].sum(axis=1).min()) for size in range(widest + 1)]
    found = next((size for size, share in enumerate(enclosing) if share >= enclosed - 1e-12), widest)
    reach = max(found, least)
    lost = max(1.0 - enclosing[min(reach, widest)], 0.0)
    return _in_boxes(light, scale, cell_offsets(reach, cells, TAPS)), reach, lost


def _in_boxes(
    light: Float[ndarray, "plane row column"], scale: float, places: Float[ndarray, " place"]
) -> Float[ndarray, "plane place place"]:
    """Light in spaxels at `places` (in spaxels from the middle) along both axes."""
    rows, columns = (_overlap(size, scale, places) for size in light.shape[1:])
    return np.einsum("ij,pjk,lk->pil", rows, light, columns)


def _overlap(size: int, scale: float, places: Float[ndarray, " place"]) -> Float[ndarray, "place pixel"]:
    """Share of each pixel along one axis that lies in a spaxel at each place."""
    edges = (np.arange(size + 1) - size / 2) * scale
    low, high = np.maximum(edges[None, :-1], places[:, None] - 0.5), np.minimum(edges[None, 1:], places[:, None] + 0.5)
    return np.maximum(high - low, 0.0) / scale


def sharpening(images: Float[ndarray, "plane wider wider"], painting: Painting) -> float:
    """Variance of the deposit (cells^2) that images can be sharpened by: none below -1 % of the peak."""
    whole = float(painting.taken_off(np.asarray(np.inf), np))

    def is_sound(variance: float) -> bool:
        sharper = sharpened(sharpened(images, 1, np.asarray(variance), np), 2, np.asarray(variance), np)
        peaks = sharper.max(axis=(1, 2))
        return bool((sharper.min(axis=(1, 2)) >= -_DEEPEST * peaks).all())

    return next((whole * share for share in np.linspace(1.0, 0.0, 21) if is_sound(whole * share)), 0.0)
