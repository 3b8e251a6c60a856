"""The files of a run: their names and sizes, known before anything is computed."""

from dataclasses import dataclass
from pathlib import Path

from rubix_like.config import RunConfig
from rubix_like.fits import SUFFIXES, file_size
from rubix_like.mosaic_grid import Field, grid_around
from rubix_like.pointing import pointings_of
from rubix_like.truth import truth_path


@dataclass(frozen=True)
class OutputFile:
    """A cube that a run will write, of n_y x n_x spaxels, and the noiseless one beside it (null: none)."""

    path: Path
    n_y: int
    n_x: int
    n_wave: int
    n_bytes: int
    truth: Path | None = None
    truth_bytes: int = 0
    is_mosaic: bool = False

    @property
    def all_bytes(self) -> int:
        """Bytes of all its files."""
        return self.n_bytes + self.truth_bytes

    @property
    def paths(self) -> tuple[Path, ...]:
        """All its files."""
        return (self.path,) if self.truth is None else (self.path, self.truth)

    @property
    def n_voxel(self) -> int:
        """Voxels of the cube."""
        return self.n_y * self.n_x * self.n_wave


def output_files(config: RunConfig, path: Path) -> tuple[OutputFile, ...]:
    """The cubes of a run in the order in which they are written: those of the pointings, then the mosaic.

    A run with one field writes `path` alone. With several, the cube of each is called after `path` and the pointing's
    name or number, cube_1.fits, and `path` is the mosaic, unless `observation.mosaic` is false.
    """
    path = path.expanduser()
    pointings = pointings_of(config.observation)
    n_x, n_y = config.instrument.n_spaxel_xy
    if len(pointings) < 2:
        return (_file(config, path, n_y, n_x),)
    files = tuple(_file(config, pointing_path(path, pointing.name), n_y, n_x) for pointing in pointings)
    if not config.observation.mosaic:
        return files
    fields = [Field(pointing.offset, pointing.field_angle, n_y, n_x) for pointing in pointings]
    grid = grid_around(pointings[0].reference, fields, config.instrument.pixel_scale)
    return (*files, _file(config, path, grid.n_y, grid.n_x, is_mosaic=True))


def pointing_path(path: Path, name: str) -> Path:
    """cube.fits.gz -> cube_NAME.fits.gz."""
    suffix = next((suffix for suffix in reversed(SUFFIXES) if path.name.lower().endswith(suffix)), path.suffix)
    stem = path.name[: len(path.name) - len(suffix)]
    return path.with_name(f"{stem}_{name}{path.name[len(stem) :]}")


def cube_bytes(config: RunConfig, n_voxel: int) -> int:
    """Bytes of a cube on the host: flux and mask, with noise the variance, and the truth where it is kept."""
    flux = 8 if config.engine.precision == "float64" else 4
    n_arrays = 1 if config.noise is None else 2 + config.noise.keep_truth
    return n_voxel * (flux * n_arrays + 4)


def _file(config: RunConfig, path: Path, n_y: int, n_x: int, *, is_mosaic: bool = False) -> OutputFile:
    n_wave = config.instrument.wavelength.n_wave
    own = file_size(n_y, n_x, n_wave, config.noise is not None)
    truth, truth_bytes = None, 0
    if config.noise is not None and config.noise.keep_truth:
        truth, truth_bytes = truth_path(path), file_size(n_y, n_x, n_wave, noise=False)
    return OutputFile(path, n_y, n_x, n_wave, own, truth, truth_bytes, is_mosaic)
