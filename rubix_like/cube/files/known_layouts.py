"""The layouts of a cube's file: what each format holds. What writes it is imported when it writes.

Every configuration is held against them, also where no cube is made.
"""

from collections.abc import Callable
from typing import Any

from rubix_like.config.file_layouts import FileFormat, FileLayout
from rubix_like.runtime.files.outputs import FOLDER_SUFFIX
from rubix_like.runtime.places import found_at

_FITS_SUFFIXES = (".fits", ".fits.gz")

_FITS_COMPRESSIONS = ("gzip", "rice")
"""How the images of a FITS file can be compressed."""

_ALL_SAMPLINGS = ("linear", "log", "table")

_FITS_WRITER = "rubix_like.cube.files.fits_images:fits_writer"


def _by(place: str) -> Callable[..., None]:
    """Call the function at `module:attribute`, imported when it is called."""

    def write(*arguments: Any) -> None:
        found_at(place)(*arguments)

    return write


def _fits_of(members: str) -> Callable[..., None]:
    """Write a FITS file of the members that are made at `module:attribute`."""

    def write(*arguments: Any) -> None:
        found_at(_FITS_WRITER)(found_at(members))(*arguments)

    return write


DEFAULT = FileLayout(
    (
        FileFormat(
            _fits_of("rubix_like.cube.files.default:default_members"),
            _FITS_SUFFIXES,
            images=1,
            noise_images=2,
            mask_bytes=1,
            samplings=_ALL_SAMPLINGS,
            compressions=_FITS_COMPRESSIONS,
        ),
        FileFormat(
            _by("rubix_like.cube.files.hdf5_cube:write_hdf5"),
            (".h5", ".hdf5"),
            images=1,
            noise_images=1,
            keeps_all=True,
            keeps_fibres=True,
            samplings=_ALL_SAMPLINGS,
            compressions=("gzip",),
        ),
        FileFormat(
            _by("rubix_like.cube.files.zarr_cube:write_zarr"),
            (FOLDER_SUFFIX,),
            images=1,
            noise_images=1,
            keeps_all=True,
            samplings=_ALL_SAMPLINGS,
            compressions=("gzip",),
            package="zarr",
        ),
    )
)
"""The layout for most programs, and HDF5 and Zarr that keep everything."""

MANGA = FileLayout(
    (
        FileFormat(
            _fits_of("rubix_like.cube.survey_files.survey_cubes:manga_members"),
            _FITS_SUFFIXES,
            images=4,
            media=("vacuum",),
            needs_variance=True,
            compressions=_FITS_COMPRESSIONS,
        ),
    )
)
"""As MaNGA's data reduction pipeline writes cubes."""

SAMI = FileLayout(
    (
        FileFormat(
            _fits_of("rubix_like.cube.survey_files.survey_cubes:sami_members"),
            (".fits",),
            images=3,
            masks=0,
            samplings=("linear",),
            needs_variance=True,
            needs_fibres=True,
        ),
    )
)
"""As the SAMI Galaxy Survey writes cubes; of fibres alone."""

HSIM = FileLayout(
    (
        FileFormat(
            _fits_of("rubix_like.cube.files.scenes:hsim_members"),
            (".fits",),
            images=1,
            masks=0,
            media=("vacuum",),
            samplings=("linear",),
        ),
    )
)
"""Input of HSIM, the simulator of HARMONI."""

SCOPESIM = FileLayout(
    (
        FileFormat(
            _fits_of("rubix_like.cube.files.scenes:scopesim_members"),
            (".fits",),
            images=1,
            masks=0,
            media=("vacuum",),
            samplings=("linear",),
        ),
    )
)
"""Input of ScopeSim, the simulator of METIS, MICADO and others."""
