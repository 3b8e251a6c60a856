"""A PSF given as an image in a FITS file, on its own pixels, and its light on the spaxels of a field."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from astropy.io import fits
from jaxtyping import Float
from numpy import ndarray

from rubix_like.config import PSFSettings
from rubix_like.errors import ConfigError
from rubix_like.instrument.painting import Painting
from rubix_like.instrument.psf_profile import TAPS, cell_offsets, sharpened
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.fits_opening import IMAGES, opened_fits
from rubix_like.runtime.places import found_at
from rubix_like.runtime.words import reason_of

_FINE, _BINNED = ("OVERDIST", "OVERSAMP"), ("DET_SAMP", "DET_DIST")
"""Extensions of stpsf (poppy) with images on pixels finer than the detector's, the better one first, and on those."""

_DEEPEST = 0.01
"""How far below 0, relative to its peak, the sharpened image of a PSF may fall."""


class PSFImage(NamedTuple):
    """Images, the side of their pixels (arcsec), and the planes' wavelengths (Angstrom), None of one plane."""

    planes: Float[ndarray, "plane row column"]
    scale: float
    wavelength: Float[ndarray, " plane"] | None


def load_psf_image(settings: PSFSettings) -> PSFImage:
    """The image of a file, in order of wavelength; what `psf.wavelength` does not say is read from the header.

    Of files of stpsf, webbpsf or poppy: the extension OVERDIST (with the detector's effects) where there is one, else
    OVERSAMP. Raises ConfigError for a file that is missing, has no image of that shape, holds values that are not
    finite or negative, or does not say how large its pixels are or at which wavelengths its planes.
    """
    path = Path(settings.file or "").expanduser()
    try:
        with opened_fits(path, quiet=True) as hdus:
            return _image_of(_chosen(list(hdus), settings.extension, path), settings, path)
    except ConfigError:
        raise
    except UNREADABLE as error:
        raise ConfigError(
            f"instrument.psf.file: expected a readable FITS image, got {path} ({reason_of(error)})"
        ) from error


def _image_of(hdu: Any, settings: PSFSettings, path: Path) -> PSFImage:
    data, header = np.asarray(hdu.data, dtype=np.float64), hdu.header
    data = data[None] if data.ndim == 2 else data
    table = None if settings.wavelength is None else np.asarray(settings.wavelength)
    if table is None and data.ndim == 3 and len(data) > 1:
        table = _wavelengths(header, len(data), path)
    wanted = 1 if table is None else len(table)
    if data.ndim != 3 or len(data) != wanted:
        raise ConfigError(
            f"instrument.psf.file: expected {'one plane' if wanted == 1 else f'{wanted} planes, one per wavelength'}, "
            f"got an array of shape {data.shape} in {path}; give psf.wavelength with one value per plane"
        )
    if not (np.isfinite(data).all() and (data >= 0).all() and (data.sum(axis=(1, 2)) > 0).all()):
        raise ConfigError(f"instrument.psf.file: expected finite values >= 0 with a positive sum, got others in {path}")
    if table is not None and settings.wavelength is None:
        order = np.argsort(table)
        data, table = data[order], table[order]
    return PSFImage(data, settings.file_scale or _scale(header, path), table)


def _chosen(hdus: list[Any], extension: str | None, path: Path) -> Any:
    """The HDU with the image."""
    found = [hdu for hdu in hdus if isinstance(hdu, IMAGES) and hdu.data is not None]
    if not found:
        raise ConfigError(f"instrument.psf.file: expected an image in {path}, got none")
    by_name = {hdu.name.upper(): hdu for hdu in reversed(found)}
    if extension is not None:
        if extension.upper() not in by_name:
            known = ", ".join(name for name in by_name if name) or "images without names"
            raise ConfigError(f"instrument.psf.extension: expected one with an image, of {known}, got '{extension}'")
        return by_name[extension.upper()]
    if found[0].name.upper() in _BINNED and not set(_FINE) & set(by_name):
        raise ConfigError(
            f"instrument.psf.file: expected an image on pixels finer than the detector's ({' or '.join(_FINE)}), got "
            f"{found[0].name} alone in {path}, which has the box of the detector's pixels in it; compute it with "
            f"output_mode 'both', or say psf.extension: {found[0].name}"
        )
    return next((by_name[name] for name in _FINE if name in by_name), found[0])


def _wavelengths(header: fits.Header, number: int, path: Path) -> Float[ndarray, " plane"] | None:
    """Those of the planes (Angstrom) by the cards that poppy's `calc_datacube` writes in metres; None without any."""
    names = [f"WAVELN{plane:02d}" if number < 100 else f"WVLN{plane:04d}" for plane in range(number)]
    given = [header.get(name) for name in names]
    if not any(value is not None for value in given):
        return None
    values = np.array([float(value) if isinstance(value, int | float) else np.nan for value in given]) * 1e10
    if not (np.isfinite(values).all() and (values > 0).all() and len(np.unique(values)) == number):
        raise ConfigError(
            f"instrument.psf.file: expected a wavelength for each of {number} planes (cards {names[0]} to "
            f"{names[-1]}), all different, got {given} in {path}; give psf.wavelength"
        )
    return values


def _scale(header: fits.Header, path: Path) -> float:
    """Side of a pixel (arcsec) by the header: PIXELSCL, as stpsf writes it, or the world coordinates."""
    own = header.get("PIXELSCL")
    if isinstance(own, int | float) and own > 0 and str(header.get("PIXUNIT", "arcsecond")).startswith("arcsec"):
        return float(own)
    if not any(key in header for key in ("CDELT1", "CD1_1", "CDELT2", "CD2_2")):
        raise ConfigError(
            f"instrument.psf.file_scale: expected the side of a pixel of {path} (e.g. 0.05 arcsec), as its header has "
            f"no PIXELSCL (arcsec), CDELT1 or CD1_1"
        )
    try:
        sky = found_at("astropy.wcs:WCS")(header, naxis=2)
        scales = found_at("astropy.wcs.utils:proj_plane_pixel_scales")(sky) * 3600.0
    except (AttributeError, *UNREADABLE) as error:  # the first where astropy expects text and a card is a number
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
