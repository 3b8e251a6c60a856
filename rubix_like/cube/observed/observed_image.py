"""Images of a band from FITS files, as observed cubes of one bin."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.observed.axes import Axes, pixel_matrix
from rubix_like.cube.observed.flux_units import flux_factor, parse_unit
from rubix_like.cube.observed.observed_cube import NO_VARIANCE, ObservedCube, check_any_used, choose_voxels
from rubix_like.cube.observed.opening_observed import count_axes, image_values, is_image, label, opened, text_card
from rubix_like.cube.observed.sky_axes import SkyGrid, read_sky

_FLUXES = ("SCI", "DATA", "FLUX", "IMAGE", "PRIMARY", "")
"""Names of HDUs with the fluxes, the first that is there."""

_ERRORS = {"ERR": 1, "ERROR": 1, "SIGMA": 1, "VAR": 2, "VARIANCE": 2, "STAT": 2, "IVAR": -2, "INVVAR": -2}
"""Name of an HDU -> the power of the flux's unit that its numbers have."""

_MASKS = ("DQ", "MASK")


def read_image(path: Path, bins: WavelengthBins, unit: str | None, pixel_scale: float | None) -> ObservedCube:
    """The image (y, x, 1) in a FITS file: mean flux densities in a band, which stands as the one of `bins`.

    `unit` (such as "3.1e-19 erg/s/cm2/Angstrom", or a flux per Hz, which is converted at the bin's centre) and
    `pixel_scale` (arcsec) count where the header says something else. Errors are those of an HDU ERR, SIGMA, VAR, STAT
    or IVAR, pixels are left out where DQ or MASK is not 0. Raises FileNotFoundError, or ValueError that names file and
    HDU.
    """
    path = path.expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"no such image: {path}; check the path")
    with opened(path) as hdus:
        images = {hdu.name: hdu for hdu in hdus if is_image(hdu) and count_axes(hdu) == 2}
        name = next((own for own in _FLUXES if own in images), next(iter(images), None))
        if name is None:
            raise ValueError(f"{path}: expected an image with two axes, got none; a cube is given as cube: FILE")
        return _read(path, images, images[name], bins, unit, pixel_scale)


def _read(
    path: Path, images: dict[str, Any], flux: Any, bins: WavelengthBins, unit: str | None, pixel_scale: float | None
) -> ObservedCube:
    place, header = label(path, flux), flux.header
    kinds = [text_card(header, f"CTYPE{axis}").upper() for axis in (1, 2)]
    celestial = kinds[0].startswith("RA") and kinds[1].startswith("DEC")
    axes = Axes(1, 2, 3, celestial, pixel_matrix(header, place))
    sky = read_sky(header, axes, (int(header["NAXIS1"]), int(header["NAXIS2"])), place, pixel_scale)
    text = unit or text_card(header, "BUNIT")
    try:
        factor = float(flux_factor(parse_unit(text), bins, sky.pixel_scale)[0]) if text else np.nan
    except (ValueError, TypeError) as error:
        raise ValueError(f"{place}: expected a flux density per Angstrom or Hz, got '{text}'; give units") from error
    if not text:
        raise ValueError(f"{place}: expected a unit of the fluxes (BUNIT), got none; give units")
    shape = image_values(path, flux).shape
    values = {name: _ordered(path, hdu, sky, shape) for name, hdu in images.items() if hdu is not flux}
    variance = _variance(values, factor)
    masks = {f"{name} not 0": values[name] != 0 for name in _MASKS if name in values}
    own = _ordered(path, flux, sky, shape) * factor
    used, counts = choose_voxels(own, variance, masks)
    notes = (*sky.notes, *counts, *(() if variance is not None else (NO_VARIANCE,)))
    check_any_used(used, str(path), notes)
    return ObservedCube(
        flux=own,
        variance=variance,
        used=used,
        bins=bins,
        footprint=Footprint.of(own.shape, sky.pixel_scale),
        field_angle=sky.field_angle,
        ra=sky.ra,
        dec=sky.dec,
        name=text_card(header, "OBJECT") or path.stem,
        source=str(path),
        notes=notes,
    )


def _ordered(path: Path, hdu: Any, sky: SkyGrid, shape: tuple[int, ...]) -> Float[ndarray, "y x 1"]:
    """The numbers of an image, South to North and East to West; ValueError where its shape is not the fluxes'."""
    values = image_values(path, hdu)
    if values.shape != shape:
        raise ValueError(f"{label(path, hdu)}: expected the shape of the fluxes, {shape}, got {values.shape}")
    y, x = (slice(None, None, -1 if flip else 1) for flip in (sky.flip_y, sky.flip_x))
    return np.array(values[y, x], np.float64)[:, :, None]


def _variance(values: dict[str, ndarray], factor: float) -> Float[ndarray, "y x 1"] | None:
    """By the first HDU of errors that there is."""
    name = next((own for own in _ERRORS if own in values), None)
    if name is None:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        numbers = np.where(values[name] > 0, values[name], np.nan)
        return numbers ** (2 / _ERRORS[name]) * factor**2
