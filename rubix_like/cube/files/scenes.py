"""Cubes as scenes for simulators of instruments: HSIM and ScopeSim."""

from collections.abc import Callable

import numpy as np
from numpy import ndarray

from rubix_like.cube.cube_parts import Block, ShardedCube
from rubix_like.cube.files.default import primary_cards
from rubix_like.cube.files.fits_images import Member, voxel_image
from rubix_like.cube.footprint import Card, header_of
from rubix_like.runtime.files.writers import LAYOUT_CARD

_FLUX_SCALE = 1e-20
"""Our flux unit in erg/s/cm2/Angstrom."""

SURFACE_BRIGHTNESS_UNIT: str = "erg/s/cm2/AA/arcsec2"
BRIGHTNESS_UNIT: str = "erg s-1 cm-2 Angstrom-1 arcsec-2"
_MICRON = 1e-4
"""Micrometres in an Angstrom."""


def hsim_members(cube: ShardedCube) -> list[Member]:
    """The one HDU of the file: surface brightness at offsets in mas from the field's centre, of a turned field (card
    FIELDPA) along its axes; voxels that are not finite are 0."""
    cards_of_cube = {keyword: value for keyword, value, _ in cube.wcs_cards}
    fwhm = 0.0 if cube.lsf_fwhm is None else float(np.median(np.asarray(cube.lsf_fwhm, dtype=np.float64)))
    cards = (
        *_run_cards(cube, "hsim", "a scene for HSIM", SURFACE_BRIGHTNESS_UNIT),
        ("CTYPE1", "x", "offset to the West"),
        ("CTYPE2", "y", "offset to the North"),
        *_centre_cards(cube, "mas", 1000.0 * cube.pixel_scale, "", "[mas]"),
        ("CTYPE3", "wavelength", f"in {cube.bins.medium}"),
        ("CUNIT3", "Angstrom", ""),
        ("CRPIX3", 1.0, "first bin"),
        ("CRVAL3", cards_of_cube["CRVAL3"], "[Angstrom] centre of the first bin"),
        ("CDELT3", cards_of_cube["CDELT3"], "[Angstrom] step"),
        ("SPECRES", fwhm, "[Angstrom] median FWHM; 0: unknown"),
    )
    return [voxel_image(cube, np.float32, header_of(cards), _brightness_of(cube))]


def scopesim_members(cube: ShardedCube) -> list[Member]:
    """The one HDU of the file: surface brightness about the optical axis, columns to the East, of a turned field (card
    FIELDPA) along its axes; voxels that are not finite are 0."""
    brightness = _brightness_of(cube)
    cards = (
        *_run_cards(cube, "scopesim", "a scene for ScopeSim", BRIGHTNESS_UNIT),
        ("CTYPE1", "RA---TAN", "right ascension, gnomonic projection"),
        ("CTYPE2", "DEC--TAN", "declination, gnomonic projection"),
        *_centre_cards(cube, "deg", cube.pixel_scale / 3600.0, "[deg] the optical axis", "[deg] side of a spaxel"),
        ("CTYPE3", "WAVE", f"wavelength in {cube.bins.medium}"),
        ("CUNIT3", "um", ""),
        ("CRPIX3", 1.0, "first bin"),
        ("CRVAL3", cube.bins.first * _MICRON, "[um] centre of the first bin"),
        ("CDELT3", cube.bins.step * _MICRON, "[um] step"),
    )
    return [voxel_image(cube, np.float32, header_of(cards), lambda block: brightness(block)[:, ::-1])]


def _brightness_of(cube: ShardedCube) -> Callable[[Block], ndarray]:
    scale = np.float32(_FLUX_SCALE / cube.pixel_scale**2)
    return lambda block: np.nan_to_num(block.flux.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0) * scale


def _run_cards(cube: ShardedCube, layout: str, words: str, unit: str) -> tuple[Card, ...]:
    """Cards of the run, but for a celestial frame, which scenes have not, the layout in `words`, and the unit."""
    run = tuple(card for card in primary_cards(cube) if card[0] not in ("RADESYS", "EQUINOX"))
    return (*run, (LAYOUT_CARD, layout, words), ("BUNIT", unit, "surface brightness"))


def _centre_cards(cube: ShardedCube, unit: str, step: float, zero: str, side: str) -> tuple[Card, ...]:
    """Both axes of the sky from 0 in the middle of the field."""
    return (
        ("CUNIT1", unit, ""),
        ("CUNIT2", unit, ""),
        ("CRPIX1", (cube.n_x + 1) / 2, "centre of the field"),
        ("CRPIX2", (cube.n_y + 1) / 2, "centre of the field"),
        ("CRVAL1", 0.0, zero),
        ("CRVAL2", 0.0, zero),
        ("CDELT1", step, side),
        ("CDELT2", step, side),
    )
