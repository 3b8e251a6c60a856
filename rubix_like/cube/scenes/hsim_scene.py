"""Write a cube as an input scene of HSIM, the simulator of ELT HARMONI.

The cube alone in PRIMARY: surface brightness in erg/s/cm2/AA/arcsec2 as a linear function of vacuum wavelength,
CTYPE3 = 'wavelength', positive CDELT1 and CDELT2 (HSIM refuses negative ones: x grows to the West here), SPECRES the
FWHM of the scene in CUNIT3 (0: not known), no NaN. Source: HSIM 3's manual and its reader, `hsim/src/init_cube.py` of
https://github.com/HARMONI-ELT/HSIM; HSIM's own sky lines lie at vacuum wavelengths (issue 8 there).
"""

import numpy as np

from rubix_like.cube.cube_parts import ShardedCube
from rubix_like.cube.files.fits_images import Member, voxel_image
from rubix_like.cube.scenes.brightness import brightness_of, run_cards
from rubix_like.cube.wcs import Card, header_of

SURFACE_BRIGHTNESS_UNIT: str = "erg/s/cm2/AA/arcsec2"


def hsim_members(cube: ShardedCube) -> list[Member]:
    """The one HDU of the file; voxels that are not finite are 0."""
    run = run_cards(cube, "hsim", "a scene for HSIM", SURFACE_BRIGHTNESS_UNIT)
    header = header_of((*run, *_sky_cards(cube), *_spectral_cards(cube)))
    return [voxel_image(cube, np.float32, header, brightness_of(cube))]


def _sky_cards(cube: ShardedCube) -> tuple[Card, ...]:
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


def _spectral_cards(cube: ShardedCube) -> tuple[Card, ...]:
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
