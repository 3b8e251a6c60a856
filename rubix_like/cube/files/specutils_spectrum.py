"""A cube as a spectrum of specutils, with its variance, mask and world coordinates."""

from typing import TYPE_CHECKING, Any

import numpy as np
from astropy import units
from astropy.nddata import VarianceUncertainty
from numpy import ndarray

from rubix_like.constants import CUBE_FLUX_UNIT
from rubix_like.cube.cube import Cube
from rubix_like.errors import ConfigError

if TYPE_CHECKING:
    from specutils import Spectrum  # pyright: ignore[reportMissingImports]


def to_specutils(cube: Cube) -> "Spectrum":
    """The cube as `specutils.Spectrum` with axes (wave, y, x), the same as `Spectrum.read` makes of our FITS file.

    Flux with its unit, VarianceUncertainty (None without a noise model), mask (True where any bit is set), the WCS.
    The spectral axis is in m and in the cube's own medium, which is `spectrum.meta["medium"]`; the run is in
    `spectrum.meta["run"]`. Raises ConfigError if specutils is not installed.
    """
    spectrum = _find_class()
    unit = units.Unit(CUBE_FLUX_UNIT / units.AA)
    variance = cube.variance
    return spectrum(
        flux=in_fits_order(cube.flux) * unit,
        uncertainty=None if variance is None else VarianceUncertainty(in_fits_order(variance), unit=unit**2),
        mask=in_fits_order(np.asarray(cube.mask) != 0),
        wcs=cube.wcs,
        meta={"medium": cube.medium, "sampling": cube.sampling, "run": dict(cube.meta)},
    )


def in_fits_order(voxels: object) -> ndarray:
    """(y, x, wave) voxels as a contiguous array (wave, y, x), the order of axes of FITS."""
    return np.ascontiguousarray(np.asarray(voxels).transpose(2, 0, 1))


def _find_class() -> Any:
    try:
        from specutils import Spectrum  # noqa: PLC0415  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ConfigError(
            "to_specutils needs specutils 2 or newer: pip install specutils (or 'rubix-like[specutils]')"
        ) from error
    return Spectrum
