"""Cubes for specutils and xarray."""

from typing import TYPE_CHECKING

import numpy as np
from astropy import units
from astropy.nddata import VarianceUncertainty
from astropy.utils import minversion
from numpy import ndarray

from rubix_like.constants import CUBE_FLUX_DENSITY
from rubix_like.cube.cube import Cube
from rubix_like.cube.files.hdf5_cube import ARRAYS, OF_VOXELS
from rubix_like.cube.footprint import world_coordinates
from rubix_like.cube.views.cutting import sky_at
from rubix_like.errors import ConfigError
from rubix_like.runtime.optional_packages import import_optional

if TYPE_CHECKING:
    from specutils import Spectrum  # pyright: ignore[reportMissingImports]
    from xarray import Dataset


_OLDEST = 2
"""Major version of specutils that has the class `Spectrum`."""

_OLDEST_ASTROPY = "7.1"
"""The version whose WCS can keep the units of its axes."""


def to_specutils(cube: Cube) -> "Spectrum":
    """The cube as `specutils.Spectrum` with axes (wave, y, x), as `Spectrum.read` makes it of our FITS file.

    Flux with its unit, VarianceUncertainty (None without a noise model), mask (True where any bit is set), the WCS.
    The spectral axis is in Angstrom (that of a file in m, into which astropy turns it) and in the cube's medium,
    which is `spectrum.meta["medium"]`; the run is in `spectrum.meta["run"]`. Raises ConfigError if specutils is not
    installed, or astropy is too old to keep Angstrom.
    """
    specutils = import_optional("specutils", "to_specutils")
    if int(specutils.__version__.split(".")[0]) < _OLDEST:
        raise ConfigError(
            f"to_specutils: expected specutils {_OLDEST} or newer, got {specutils.__version__}; pip install -U "
            "'rubix-like[specutils]'"
        )
    if not minversion("astropy", _OLDEST_ASTROPY):
        raise ConfigError(f"to_specutils: expected astropy {_OLDEST_ASTROPY} or newer; pip install -U astropy")
    if cube.sampling == "table":  # specutils has no WCS of these, and puts centres in the middle
        edges = cube.wave_edges
        in_the_middle = np.allclose(cube.wavelength, 0.5 * (edges[1:] + edges[:-1]), rtol=1e-12, atol=0)
        axis = {"spectral_axis": (edges if in_the_middle else cube.wavelength) * units.AA, "spectral_axis_index": 0}
    else:
        axis = {"wcs": world_coordinates(cube.wcs_cards, cube.bins, preserve_units=True)}
    unit, variance = CUBE_FLUX_DENSITY, cube.variance
    return specutils.Spectrum(
        flux=_in_fits_order(cube.flux) * unit,
        uncertainty=None if variance is None else VarianceUncertainty(_in_fits_order(variance), unit=unit**2),
        mask=_in_fits_order(np.asarray(cube.mask) != 0),
        **axis,
        meta={"medium": cube.bins.medium, "sampling": cube.bins.sampling, "run": dict(cube.meta)},
    )


def _in_fits_order(voxels: object) -> ndarray:
    return np.ascontiguousarray(np.asarray(voxels).transpose(2, 0, 1))


def to_xarray(cube: Cube) -> "Dataset":
    """A Dataset with `flux` and what else the cube has, (y, x, wave), and `wave_edges`, with `units` and `long_name`.

    Coordinates: `wave` (Angstrom, in the cube's medium), `x` and `y` (arcsec East and North of the field's centre,
    along columns and rows), `ra` and `dec` (deg) of every spaxel. Attributes: the run's, its
    configuration as `attrs["config"]`. Raises ConfigError if xarray is not installed.
    """
    xarray = import_optional("xarray", "to_xarray")
    found = {name: getattr(cube, name) for name in (*OF_VOXELS, "lsf_fwhm", "mean_v_los", "wave_edges")}
    arrays = {
        name: (ARRAYS[name][0], np.asarray(values), _attributes(*ARRAYS[name][1:]))
        for name, values in found.items()
        if values is not None
    }
    x, y = cube.footprint.centres()
    sky = sky_at(cube, *np.meshgrid(np.arange(cube.n_x), np.arange(cube.n_y)))
    coordinates = {
        "wave": ("wave", cube.wavelength, _attributes("Angstrom", f"centres of the bins, in {cube.medium}")),
        "x": ("x", np.asarray(x), _attributes("arcsec", "offset of the columns to the East")),
        "y": ("y", np.asarray(y), _attributes("arcsec", "offset of the rows to the North")),
        "ra": (("y", "x"), sky.ra.deg, _attributes("deg", "right ascension of the spaxel's centre")),
        "dec": (("y", "x"), sky.dec.deg, _attributes("deg", "declination of the spaxel's centre")),
    }
    known = {key: value for key, value in cube.meta.items() if value is not None}
    attributes = {**known, "medium": cube.medium, "sampling": cube.sampling, "pixel_scale": cube.pixel_scale}
    return xarray.Dataset(arrays, coordinates, attributes)


def _attributes(unit: str, meaning: str) -> dict[str, str]:
    return {"units": unit, "long_name": meaning}
