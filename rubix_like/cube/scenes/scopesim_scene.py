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
from rubix_like.cube.files.fits_images import Member, voxel_image
from rubix_like.cube.scenes.brightness import brightness_of, run_cards
from rubix_like.cube.wcs import Card, header_of

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
