"""Files of row-stacked spectra beside a cube of fibres: their names, their sizes, and how they are written."""

from pathlib import Path
from typing import Any

from astropy.io import fits

from rubix_like.config.fibre_settings import FibreSettings
from rubix_like.config.file_layouts import BYTES_PER_BIN, HEADER_BYTES
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import ShardedCube
from rubix_like.cube.files.fits_images import encoded
from rubix_like.cube.survey_files.manga_spectra import manga_spectra
from rubix_like.cube.survey_files.sami_spectra import sami_spectra
from rubix_like.errors import ConfigError
from rubix_like.runtime.files.outputs import beside, replacing

_IMAGES: dict[str, int] = {"manga": 7, "sami": 2}
"""Images (fibre, wave) of a layout, 4 bytes each."""


def spectra_paths(cube_path: str | Path, settings: FibreSettings | None) -> tuple[Path, ...]:
    """Where the spectra of a run go, beside its cube: cube_rss.fits; in SAMI's layout each exposure is a file,
    cube_rss_1.fits."""
    if settings is None or settings.spectra == "none":
        return ()
    path = Path(cube_path).expanduser()
    if settings.spectra == "manga":
        return (beside(path, "_rss.fits"),)
    return tuple(beside(path, f"_rss_{number}.fits") for number in range(1, len(settings.dithers) + 1))


def spectra_bytes(settings: FibreSettings, n_wave: int) -> int:
    """Bytes of these files together, at most; 0 where there are none."""
    if settings.spectra == "none":
        return 0
    n_exposure = len(settings.dithers)
    n_spectra = (settings.n_fibre - len(set(settings.dead))) * n_exposure
    n_file = 1 if settings.spectra == "manga" else n_exposure
    return 4 * _IMAGES[settings.spectra] * n_spectra * n_wave + n_file * (HEADER_BYTES + BYTES_PER_BIN * n_wave)


def write_spectra(cube: Cube | ShardedCube, paths: tuple[Path, ...], layout: str) -> tuple[Path, ...]:
    """Write the spectra that a cube was made of, in the layout manga (one path) or sami (one for each exposure).

    Raises ConfigError for a cube without such spectra, and OSError (disk full, no permission) with the remedy.
    """
    if cube.fibres is None:
        raise ConfigError("Cube.fibres: expected the spectra of fibres, got None; observe with instrument.fibres")
    made: list[list[Any]] = [manga_spectra(cube)] if layout == "manga" else sami_spectra(cube)
    for path, hdus in zip(paths, made, strict=True):
        fits.HDUList(hdus).update_extend()
        with replacing(path) as temporary, temporary.open("wb") as stream:
            for hdu in hdus:
                stream.write(encoded(hdu))
    return paths
