"""Write a cube as an input scene of ScopeSim, the simulator of METIS, MICADO and others: `scopesim.Source(cube=path)`.

The cube alone in PRIMARY: surface brightness in erg s-1 cm-2 Angstrom-1 arcsec-2 as a linear function of vacuum
wavelength in um, no NaN. ScopeSim's sources lie about the optical axis, so the centre of the field is at (0, 0) deg.
CDELT1 is positive and columns go to the East: ScopeSim takes the columns of a part of the sky in their order, whatever
the sign of CDELT1. It takes sides of pixels from CDELT, so there is no CD matrix.
Source: `Source._from_cube`, `OpticalTrain.prepare_source` and `FieldOfView` of ScopeSim 0.11.4
(https://github.com/AstarVienna/ScopeSim), which tests run.
"""

import numpy as np
from numpy import ndarray

from rubix_like.cube.cube_parts import Block, ShardedCube
from rubix_like.cube.files.default import primary_cards
from rubix_like.cube.files.fits_images import Member, voxel_image
from rubix_like.cube.wcs import Card, header_of
from rubix_like.runtime.files.writers import LAYOUT_CARD

BRIGHTNESS_UNIT: str = "erg s-1 cm-2 Angstrom-1 arcsec-2"
_FLUX_SCALE = 1e-20
"""Our flux unit in erg/s/cm2/Angstrom."""

_MICRON = 1e-4
"""Micrometres in an Angstrom."""


def scopesim_members(cube: ShardedCube) -> list[Member]:
    """The one HDU of the file, columns to the East; voxels that are not finite are 0."""
    scale = np.float32(_FLUX_SCALE / cube.pixel_scale**2)

    def brightness(block: Block) -> ndarray:
        finite = np.nan_to_num(block.flux.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
        return finite[:, ::-1] * scale

    return [voxel_image(cube, np.float32, header_of(_cards(cube)), brightness)]


def _cards(cube: ShardedCube) -> tuple[Card, ...]:
    run = tuple(card for card in primary_cards(cube) if card[0] not in ("RADESYS", "EQUINOX"))
    return (
        *run,
        (LAYOUT_CARD, "scopesim", "a scene for ScopeSim"),
        ("BUNIT", BRIGHTNESS_UNIT, "surface brightness"),
        *_sky_cards(cube),
        *_spectral_cards(cube),
    )


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
