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


def brightness_of(cube: ShardedCube) -> Callable[[Block], ndarray]:
    """Of a block of the cube in erg/s/cm2/Angstrom/arcsec2; voxels that are not finite are 0."""
    scale = np.float32(_FLUX_SCALE / cube.pixel_scale**2)

    def brightness(block: Block) -> ndarray:
        return np.nan_to_num(block.flux.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0) * scale

    return brightness


def run_cards(cube: ShardedCube, layout: str, words: str, unit: str) -> tuple[Card, ...]:
    """Those of the run, but for a celestial frame, which scenes have not, the layout in `words`, and the unit."""
    run = tuple(card for card in primary_cards(cube) if card[0] not in ("RADESYS", "EQUINOX"))
    return (*run, (LAYOUT_CARD, layout, words), ("BUNIT", unit, "surface brightness"))


SURFACE_BRIGHTNESS_UNIT: str = "erg/s/cm2/AA/arcsec2"


def hsim_members(cube: ShardedCube) -> list[Member]:
    """The one HDU of the file; voxels that are not finite are 0."""
    run = run_cards(cube, "hsim", "a scene for HSIM", SURFACE_BRIGHTNESS_UNIT)
    header = header_of((*run, *_hsim_sky_cards(cube), *_hsim_spectral_cards(cube)))
    return [voxel_image(cube, np.float32, header, brightness_of(cube))]


def _hsim_sky_cards(cube: ShardedCube) -> tuple[Card, ...]:
    """Offsets from the field's centre in mas; of a turned field (card FIELDPA) along its own axes."""
    step = 1000.0 * cube.pixel_scale
    return (
        ("CTYPE1", "x", "offset to the West"),
        ("CTYPE2", "y", "offset to the North"),
        ("CUNIT1", "mas", ""),
        ("CUNIT2", "mas", ""),
        ("CRPIX1", (cube.n_x + 1) / 2, "centre of the field"),
        ("CRPIX2", (cube.n_y + 1) / 2, "centre of the field"),
        ("CRVAL1", 0.0, ""),
        ("CRVAL2", 0.0, ""),
        ("CDELT1", step, "[mas]"),
        ("CDELT2", step, "[mas]"),
    )


def _hsim_spectral_cards(cube: ShardedCube) -> tuple[Card, ...]:
    ours = {keyword: value for keyword, value, _ in cube.wcs_cards}
    fwhm = 0.0 if cube.lsf_fwhm is None else float(np.median(np.asarray(cube.lsf_fwhm, dtype=np.float64)))
    return (
        ("CTYPE3", "wavelength", f"in {cube.bins.medium}"),
        ("CUNIT3", "Angstrom", ""),
        ("CRPIX3", 1.0, "first bin"),
        ("CRVAL3", ours["CRVAL3"], "[Angstrom] centre of the first bin"),
        ("CDELT3", ours["CDELT3"], "[Angstrom] step"),
        ("SPECRES", fwhm, "[Angstrom] median FWHM; 0: unknown"),
    )


BRIGHTNESS_UNIT: str = "erg s-1 cm-2 Angstrom-1 arcsec-2"
_MICRON = 1e-4
"""Micrometres in an Angstrom."""


def scopesim_members(cube: ShardedCube) -> list[Member]:
    """The one HDU of the file, columns to the East; voxels that are not finite are 0."""
    brightness = brightness_of(cube)

    def eastwards(block: Block) -> ndarray:
        return brightness(block)[:, ::-1]

    run = run_cards(cube, "scopesim", "a scene for ScopeSim", BRIGHTNESS_UNIT)
    header = header_of((*run, *_sky_cards(cube), *_spectral_cards(cube)))
    return [voxel_image(cube, np.float32, header, eastwards)]


def _sky_cards(cube: ShardedCube) -> tuple[Card, ...]:
    """A sky about the optical axis; of a turned field (card FIELDPA) along its own axes."""
    step = cube.pixel_scale / 3600.0
    return (
        ("CTYPE1", "RA---TAN", "right ascension, gnomonic projection"),
        ("CTYPE2", "DEC--TAN", "declination, gnomonic projection"),
        ("CUNIT1", "deg", ""),
        ("CUNIT2", "deg", ""),
        ("CRPIX1", (cube.n_x + 1) / 2, "centre of the field"),
        ("CRPIX2", (cube.n_y + 1) / 2, "centre of the field"),
        ("CRVAL1", 0.0, "[deg] the optical axis"),
        ("CRVAL2", 0.0, "[deg] the optical axis"),
        ("CDELT1", step, "[deg] side of a spaxel"),
        ("CDELT2", step, "[deg] side of a spaxel"),
    )


def _spectral_cards(cube: ShardedCube) -> tuple[Card, ...]:
    return (
        ("CTYPE3", "WAVE", f"wavelength in {cube.bins.medium}"),
        ("CUNIT3", "um", ""),
        ("CRPIX3", 1.0, "first bin"),
        ("CRVAL3", cube.bins.first * _MICRON, "[um] centre of the first bin"),
        ("CDELT3", cube.bins.step * _MICRON, "[um] step"),
    )
