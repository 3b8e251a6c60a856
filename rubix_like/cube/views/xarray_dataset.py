"""A cube as an xarray Dataset, as xarray opens a cube in Zarr, with the sky's coordinates of every spaxel."""

from typing import TYPE_CHECKING

import numpy as np

from rubix_like.cube.cube import Cube
from rubix_like.cube.files.hdf5_cube import ARRAYS, OF_VOXELS
from rubix_like.cube.views.sky_places import sky_at
from rubix_like.runtime.optional_packages import import_optional

if TYPE_CHECKING:
    from xarray import Dataset


def to_xarray(cube: Cube) -> "Dataset":
    """A Dataset with `flux` and what else the cube has, (y, x, wave), and `wave_edges`, with `units` and `long_name`.

    Coordinates: `wave` (Angstrom, in the cube's medium), `x` and `y` (arcsec East and North of the field's centre,
    along columns and rows), `ra` and `dec` (deg) of every spaxel. Attributes: the run's, its
    configuration as `attrs["config"]`. Raises ConfigError if xarray is not installed.
    """
    xarray = import_optional("xarray", "to_xarray")
    found = {name: getattr(cube, name) for name in (*OF_VOXELS, "lsf_fwhm", "mean_v_los", "wave_edges")}
    arrays = {
        name: (ARRAYS[name][0], np.asarray(values), _words(*ARRAYS[name][1:]))
        for name, values in found.items()
        if values is not None
    }
    x, y = cube.footprint.centres()
    sky = sky_at(cube, *np.meshgrid(np.arange(cube.n_x), np.arange(cube.n_y)))
    coordinates = {
        "wave": ("wave", cube.wavelength, _words("Angstrom", f"centres of the bins, in {cube.medium}")),
        "x": ("x", np.asarray(x), _words("arcsec", "offset of the columns to the East")),
        "y": ("y", np.asarray(y), _words("arcsec", "offset of the rows to the North")),
        "ra": (("y", "x"), sky.ra.deg, _words("deg", "right ascension of the spaxel's centre")),
        "dec": (("y", "x"), sky.dec.deg, _words("deg", "declination of the spaxel's centre")),
    }
    known = {key: value for key, value in cube.meta.items() if value is not None}
    attributes = {**known, "medium": cube.medium, "sampling": cube.sampling, "pixel_scale": cube.pixel_scale}
    return xarray.Dataset(arrays, coordinates, attributes)


def _words(unit: str, meaning: str) -> dict[str, str]:
    return {"units": unit, "long_name": meaning}
