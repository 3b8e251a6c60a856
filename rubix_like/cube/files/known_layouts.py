"""The layouts of a cube's file: what each format holds. What writes it is imported when it writes.

Every configuration is held against them, also where no cube is made.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rubix_like.config.file_layouts import FileFormat, FileLayout, Packing
from rubix_like.runtime.files.outputs import FOLDER_SUFFIX
from rubix_like.runtime.places import found_at
from rubix_like.runtime.processes.process_group import AbstractProcessGroup

_FITS_SUFFIXES = (".fits", ".fits.gz")

_FITS_COMPRESSIONS = ("gzip", "rice")
"""How the images of a FITS file can be compressed."""

_ALL_SAMPLINGS = ("linear", "log", "table")


def _alone(place: str) -> Callable[..., None]:
    """Write by the function at `module:attribute`, which is for a single process and imported when it is called."""

    def write(cube: Any, path: Path, team: AbstractProcessGroup, *packing: Packing) -> None:
        team.exchange(lambda: found_at(place)(cube, path, *packing))

    return write


def _fits_of(members: str, suffixes: tuple[str, ...] = _FITS_SUFFIXES, **limits: Any) -> FileFormat:
    """FITS files of the members that are made at `module:attribute` in `rubix_like.cube`."""

    def write(*arguments: Any) -> None:
        found_at("rubix_like.cube.files.fits_images:write_members")(found_at(f"rubix_like.cube.{members}"), *arguments)

    return FileFormat(write, suffixes, **limits)


def _scene_of(members: str) -> FileLayout:
    return FileLayout((_fits_of(members, (".fits",), images=1, masks=0, media=("vacuum",), samplings=("linear",)),))


DEFAULT = FileLayout(
    (
        _fits_of(
            "files.default:default_members",
            images=1,
            noise_images=2,
            mask_bytes=1,
            samplings=_ALL_SAMPLINGS,
            compressions=_FITS_COMPRESSIONS,
        ),
        FileFormat(
            _alone("rubix_like.cube.files.hdf5_cube:write_hdf5"),
            (".h5", ".hdf5"),
            images=1,
            noise_images=1,
            keeps_all=True,
            keeps_fibres=True,
            samplings=_ALL_SAMPLINGS,
            compressions=("gzip",),
        ),
        FileFormat(
            _alone("rubix_like.cube.files.zarr_cube:write_zarr"),
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
        _fits_of(
            "survey_files.survey_cubes:manga_members",
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
        _fits_of(
            "survey_files.survey_cubes:sami_members",
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

HSIM = _scene_of("files.scenes:hsim_members")
"""Input of HSIM, the simulator of HARMONI."""

SCOPESIM = _scene_of("files.scenes:scopesim_members")
"""Input of ScopeSim, the simulator of METIS, MICADO and others."""
