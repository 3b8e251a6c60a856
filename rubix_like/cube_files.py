"""The files that a cube can be written to: one table of layouts, their limits, their sizes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import h5py

from rubix_like.cube import Cube
from rubix_like.cube_parts import BLOCK_BYTES, CubeParts, in_parts
from rubix_like.errors import ConfigError, suggest
from rubix_like.fits import default_members
from rubix_like.fits_hsim import hsim_members
from rubix_like.fits_images import Member, plan_file, write_fits
from rubix_like.fits_manga import manga_members
from rubix_like.fits_reading import read_fits
from rubix_like.hdf5_cube import read_hdf5, write_hdf5
from rubix_like.shared_file import replacing_together
from rubix_like.team import ALONE, AbstractTeam

Layout = Literal["default", "manga", "hsim"]
"""Names of `output.layout`."""

HEADER_BYTES: int = 200_000
"""More than all headers and tables of a file, except those with a row per bin."""

TOGETHER: str = ".fits"
"""End of the name of a file that several processes can write together."""

_BLOCKS_AT_ONCE = 8
"""Blocks of values, and of what they are turned into, that are in memory while a cube is written."""

BYTES_PER_BIN: int = 64
"""More than all vectors with one element per bin."""


@dataclass(frozen=True)
class FileFormat:
    """How a cube is put into a file, and which cubes can be.

    `images`, `noise_images`: values per voxel that the file holds beside the mask, and those more with a variance; 4
    bytes each. `masks`: those of the mask, 4 bytes each. `keeps_all`: the file also holds the noiseless flux, and
    values of 8 bytes for a cube in float64.
    """

    write: Callable[[CubeParts, Path, AbstractTeam], None]
    suffixes: tuple[str, ...]
    images: int
    noise_images: int = 0
    masks: int = 1
    keeps_all: bool = False
    media: tuple[str, ...] = ("air", "vacuum")
    samplings: tuple[str, ...] = ("linear", "log")
    needs_variance: bool = False


def _write_fits(members: Callable[[CubeParts], list[Member]], cube: CubeParts, path: Path, team: AbstractTeam) -> None:
    write_fits(plan_file(members(cube)), cube, path, team)


_FITS = (".fits", ".fits.gz")

FORMATS: dict[str, tuple[FileFormat, ...]] = {
    "default": (
        FileFormat(partial(_write_fits, default_members), _FITS, images=1, noise_images=2),
        FileFormat(write_hdf5, (".h5", ".hdf5"), images=1, noise_images=1, keeps_all=True),
    ),
    "manga": (
        FileFormat(partial(_write_fits, manga_members), _FITS, images=4, media=("vacuum",), needs_variance=True),
    ),
    "hsim": (
        FileFormat(
            partial(_write_fits, hsim_members), (".fits",), images=1, masks=0, media=("vacuum",), samplings=("linear",)
        ),
    ),
}
"""Layout -> its formats, of which the end of the file's name chooses."""


def write_cube(
    cube: Cube | CubeParts, path: str | Path, layout: Layout = "default", team: AbstractTeam | None = None
) -> Path:
    """Write `cube` to `path` and return the path; an older file is replaced only on success.

    A cube of parts is never put together: a few blocks of it are in memory at a time. With a `team`, each of its
    processes calls this with its own parts, and all write into one file; they succeed, or fail, together.
    Raises ConfigError for an unknown layout or ending and for a cube that the layout cannot hold, OSError (disk full,
    no permission, no such folder) with the remedy, ValueError where the parts are not the whole cube.
    """
    path, team, parts = Path(path).expanduser(), team or ALONE, in_parts(cube)
    chosen = find_format(path, layout)
    check_layout(chosen, layout, noise=parts.has_variance, medium=parts.medium, sampling=parts.sampling)
    check_several(path, team.size)
    with replacing_together(path, team) as (temporary, writing):
        chosen.write(parts, temporary, writing)
    return path


def read_cube(path: str | Path) -> Cube:
    """Read a cube written by `write_cube` in the layout 'default', as FITS or HDF5.

    FITS gives float32 flux and variance, int32 mask, no `mean_v_los`; HDF5 every array as it was. Raises
    FileNotFoundError, or ValueError if the file is not a complete cube of this package in that layout.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"no such cube: {path}; check the path (a run writes to its output.path)")
    return read_hdf5(path) if h5py.is_hdf5(path) else read_fits(path)


def find_format(path: Path, layout: str) -> FileFormat:
    """The format of `layout` for the ending of `path`; raises ConfigError if there is none."""
    if layout not in FORMATS:
        raise ConfigError(f"output.layout: unknown layout '{layout}'{suggest(layout, FORMATS)}")
    for candidate in FORMATS[layout]:
        if path.name.lower().endswith(candidate.suffixes):
            return candidate
    *others, last = [suffix for candidate in FORMATS[layout] for suffix in candidate.suffixes]
    endings = f"{', '.join(others)} or {last}" if others else last
    raise ConfigError(
        f"output.path: expected a path that ends in {endings} (layout '{layout}'), got '{path.name}'; "
        f"write e.g. '{path.stem or 'cube'}.fits'"
    )


def check_layout(chosen: FileFormat, layout: str, *, noise: bool, medium: str, sampling: str) -> None:
    """Raise ConfigError where the layout cannot hold such a cube."""
    if chosen.needs_variance and not noise:
        raise ConfigError(
            f"output.layout: '{layout}' needs a variance, but the cube has none; give the run a noise section "
            f"(e.g. noise: {{signal_to_noise: 50}})"
        )
    for what, value, allowed in (("medium", medium, chosen.media), ("sampling", sampling, chosen.samplings)):
        if value not in allowed:
            raise ConfigError(
                f"output.layout: '{layout}' expects wavelengths with {what} {' or '.join(allowed)}, got {value}; set "
                f"instrument.wavelength.{what}: {allowed[0]}, or choose layout 'default'"
            )


def check_several(path: Path, n_processes: int) -> None:
    """Raise ConfigError where so many processes cannot write such a file together."""
    if n_processes > 1 and not path.name.lower().endswith(TOGETHER):
        raise ConfigError(
            f"output.path: expected a path that ends in {TOGETHER} where {n_processes} processes write one file, got "
            f"'{path.name}'; write '{path.name.split('.')[0] or 'cube'}{TOGETHER}' and convert it afterwards, or run "
            f"in one process"
        )


def file_size(
    chosen: FileFormat, shape: tuple[int, int, int], *, noise: bool, truth: bool = False, float64: bool = False
) -> int:
    """Bytes of an uncompressed file with a cube of this shape (y, x, wave): to be called before a run."""
    n_y, n_x, n_wave = shape
    bytes_each = 8 if chosen.keeps_all and float64 else 4
    voxel = bytes_each * (chosen.images + chosen.noise_images * noise + (truth and chosen.keeps_all)) + 4 * chosen.masks
    spaxel = n_wave * voxel + bytes_each * chosen.keeps_all
    return n_y * n_x * spaxel + HEADER_BYTES + BYTES_PER_BIN * n_wave


def writing_bytes(n_bytes: int) -> int:
    """Most memory that writing a file of `n_bytes` takes, beside the cube."""
    return min(n_bytes, _BLOCKS_AT_ONCE * BLOCK_BYTES)
