"""A cube as a spectrum of specutils, with its variance, mask and world coordinates."""

from typing import TYPE_CHECKING, Any

import numpy as np
from astropy import units
from astropy.nddata import VarianceUncertainty
from astropy.utils import minversion
from numpy import ndarray

from rubix_like.constants import CUBE_FLUX_DENSITY
from rubix_like.cube.cube import Cube
from rubix_like.cube.wcs import world_coordinates
from rubix_like.errors import ConfigError
from rubix_like.runtime.optional_packages import import_optional

if TYPE_CHECKING:
    from specutils import Spectrum  # pyright: ignore[reportMissingImports]


_OLDEST = 2
"""Major version of specutils that has the class `Spectrum`."""

_OLDEST_ASTROPY = "7.1"
"""The version whose WCS can keep the units of its axes."""


def to_specutils(cube: Cube) -> "Spectrum":
    """The cube as `specutils.Spectrum` with axes (wave, y, x), as `Spectrum.read` makes it of our FITS file.

    Flux with its unit, VarianceUncertainty (None without a noise model), mask (True where any bit is set), the WCS.
    The spectral axis is in Angstrom (that of a file in m, into which astropy turns it) and in the cube's own medium,
    which is `spectrum.meta["medium"]`; the run is in `spectrum.meta["run"]`. Raises ConfigError if specutils is not
    installed, or astropy is too old to keep Angstrom.
    """
    spectrum = _find_class()
    unit = CUBE_FLUX_DENSITY
    variance = cube.variance
    return spectrum(
        flux=in_fits_order(cube.flux) * unit,
        uncertainty=None if variance is None else VarianceUncertainty(in_fits_order(variance), unit=unit**2),
        mask=in_fits_order(np.asarray(cube.mask) != 0),
        **_axis(cube),
        meta={"medium": cube.bins.medium, "sampling": cube.bins.sampling, "run": dict(cube.meta)},
    )


def _axis(cube: Cube) -> dict[str, Any]:
    """The world coordinates; of bins by a table their edges alone, for specutils has no WCS of these, or their centres
    where these are not in the middle, in which specutils puts them."""
    if cube.sampling == "table":
        edges = cube.wave_edges
        in_the_middle = np.allclose(cube.wavelength, 0.5 * (edges[1:] + edges[:-1]), rtol=1e-12, atol=0)
        return {"spectral_axis": (edges if in_the_middle else cube.wavelength) * units.AA, "spectral_axis_index": 0}
    return {"wcs": world_coordinates(cube.wcs_cards, cube.bins, preserve_units=True)}


def in_fits_order(voxels: object) -> ndarray:
    """(y, x, wave) voxels as a contiguous array (wave, y, x), the order of axes of FITS."""
    return np.ascontiguousarray(np.asarray(voxels).transpose(2, 0, 1))


def _find_class() -> Any:
    found = import_optional("specutils", "to_specutils")
    if int(found.__version__.split(".")[0]) < _OLDEST:
        raise ConfigError(
            f"to_specutils: expected specutils {_OLDEST} or newer, got {found.__version__}; pip install -U "
            "'rubix-like[specutils]'"
        )
    if not minversion("astropy", _OLDEST_ASTROPY):
        raise ConfigError(f"to_specutils: expected astropy {_OLDEST_ASTROPY} or newer; pip install -U astropy")
    return found.Spectrum
