"""Files of row-stacked spectra beside a cube of fibres: their names, their sizes, and how they are written."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits
from jaxtyping import Float, Int
from numpy import ndarray

from rubix_like.config.fibre_settings import FibreSettings
from rubix_like.config.file_layouts import BYTES_PER_BIN, HEADER_BYTES
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import ShardedCube
from rubix_like.cube.fibres.fibre_spectra import FibrePlaces, FibreSpectra
from rubix_like.cube.files.default import config_table, primary_cards
from rubix_like.cube.files.fits_images import encoded
from rubix_like.cube.footprint import SPECTRAL_TYPE, Card, header_of, world_coordinates
from rubix_like.cube.survey_files.survey_cubes import (
    FLUX_PER_OURS,
    SAMI_FLUX_PER_OURS,
    TELESCOPE_CARDS,
    line_spread_hdus,
    manga_primary,
    observation_cards,
)
from rubix_like.errors import ConfigError
from rubix_like.runtime.files.outputs import beside, replacing
from rubix_like.runtime.files.writers import LAYOUT_CARD

FIBRE_FLUX_UNIT: str = "1E-17 erg/s/cm^2/Angstrom/fiber"

MASK_BITS: Card = ("MASKNAME", "MANGA_DRP2PIXMASK", "bits of MASK")

NO_DATA: int = 1 << 24
"""Bit NODATA of MANGA_DRP2PIXMASK."""

_SET: int = 3
"""Exposures of a set."""


def manga_spectra(cube: Cube | ShardedCube, fibres: FibreSpectra) -> list[Any]:
    """All HDUs of the file, in order."""
    wavelength = cube.bins.wavelength
    axis = _axis_cards(cube.bins)
    mask = np.where(fibres.usable, 0, NO_DATA).astype(np.int32)
    inverse = np.zeros(fibres.flux.shape)
    if fibres.variance is not None:
        variance = np.asarray(fibres.variance, dtype=np.float64)
        good = (variance > 0) & fibres.usable
        inverse = np.where(good, 1 / np.where(good, variance, 1), 0) / FLUX_PER_OURS**2
    east, north = fibres.places.on_sky_at(_angle(cube), len(wavelength))
    primary = (*manga_primary(cube, str(MASK_BITS[1])), ("DRPMODE", "RSS", "row-stacked spectra"))
    observation = (("BUNIT", FIBRE_FLUX_UNIT, ""), MASK_BITS, *TELESCOPE_CARDS, *observation_cards(cube))

    def image(name: str, values: Float[ndarray, "*fibre wave"], cards: tuple[Card, ...]) -> fits.ImageHDU:
        stored = np.broadcast_to(np.asarray(values, dtype=np.float32), mask.shape)
        return fits.ImageHDU(stored, header_of(cards), name=name)

    return [
        fits.PrimaryHDU(header=header_of(primary)),
        image("FLUX", np.asarray(fibres.flux, dtype=np.float64) * FLUX_PER_OURS, (*observation, *axis)),
        image("IVAR", inverse, axis),
        fits.ImageHDU(mask, header_of((MASK_BITS, *axis)), name="MASK"),
        *line_spread_hdus(cube, image),
        _exposures(cube, fibres.places),
        image("XPOS", -east, (("BUNIT", "arcsec", "to the West"),)),
        image("YPOS", north, (("BUNIT", "arcsec", "to the North"),)),
        config_table(cube, cube.source_counters),
    ]


def _angle(cube: Cube | ShardedCube) -> float:
    return float(cube.meta.get("field_angle") or 0.0)


def _axis_cards(bins: WavelengthBins) -> tuple[Card, ...]:
    """The wavelength axis in Angstrom; logarithmic bins as in `rubix_like.cube.footprint.spectral_cards`, which is what
    MaNGA writes (CRVAL1 = 3621.596, CD1_1 = 0.8339 in DR17). CD2_2, which MaNGA lacks, keeps the matrix regular."""
    is_log = bins.sampling == "log"
    step = bins.first * bins.step * math.log(10.0) if is_log else bins.step
    return (
        ("CTYPE1", SPECTRAL_TYPE[bins.medium, bins.sampling], f"wavelength in {bins.medium}"),
        ("CRPIX1", 1.0, "first bin"),
        ("CRVAL1", bins.first, "[Angstrom] centre of the first bin"),
        ("CD1_1", step, "[Angstrom] CRVAL1 times step in ln" if is_log else "[Angstrom] step"),
        ("CUNIT1", "Angstrom", ""),
        ("CD2_2", 1.0, "spectra"),
    )


def _exposures(cube: Cube | ShardedCube, places: FibrePlaces) -> fits.BinTableHDU:
    """OBSINFO: of each exposure number, set (of three, as in MaNGA), date (0: none), offset from the mean (arcsec, East
    and North), time, seeing, transparency. MaNGA has its number as text."""
    first = np.unique(places.exposure, return_index=True)[1]
    east, north = (side[first] for side in places.on_sky(_angle(cube)))
    seeing, times = cube.meta.get("psf_fwhm"), cube.meta.exposure_times(len(first))
    number = places.exposure[first]
    return _table(
        "OBSINFO",
        ("MJD", "J", None, np.zeros(len(first), dtype=np.int32)),
        ("EXPNUM", "12A", None, number.astype(str)),
        ("SET", "J", None, (number - 1) // _SET + 1),
        ("MGDRA", "D", "arcsec", east - east.mean()),
        ("MGDDEC", "D", "arcsec", north - north.mean()),
        ("EXPTIME", "D", "s", np.full(len(first), np.nan) if times is None else np.array(times)),
        ("SEEING", "D", "arcsec", places.seeing[first] * (np.nan if seeing is None else float(seeing))),
        ("TRANSPAR", "D", None, places.transparency[first]),
    )


def _table(name: str, *columns: tuple[str, str, str | None, ndarray]) -> fits.BinTableHDU:
    """A table of columns (name, format, unit, values)."""
    return fits.BinTableHDU.from_columns(
        [fits.Column(column, kind, unit=unit, array=values) for column, kind, unit, values in columns], name=name
    )


ARCSEC_PER_MICRON: float = 15.22e-3
"""Scale of the plate of SAMI on the Anglo-Australian Telescope (Croom et al. 2012, MNRAS 421, 872)."""

SAMI_FLUX_UNIT: str = "10**(-16) erg/s/cm**2/Angstrom/fibre"


def sami_spectra(cube: Cube | ShardedCube, fibres: FibreSpectra, exposure: int) -> list[Any]:
    """All HDUs of the file of an exposure (from 1), in order."""
    places = fibres.places
    chosen = np.flatnonzero(places.exposure == exposure)
    known = {keyword: value for keyword, value, _ in cube.wcs_cards}
    times = cube.meta.exposure_times(places.n_exposure)
    axis = (
        ("CTYPE1", "Wavelength", f"in {cube.bins.medium}"),
        ("CUNIT1", "Angstrom", ""),
        ("CRPIX1", 1.0, "first bin"),
        ("CRVAL1", cube.bins.first, "[Angstrom] its centre"),
        ("CDELT1", cube.bins.step, "[Angstrom]"),
    )
    cards = (
        *primary_cards(cube),
        (LAYOUT_CARD, "sami", "like a reduced frame of SAMI; a mock observation"),
        ("BUNIT", SAMI_FLUX_UNIT, ""),
        ("EXPOSURE", exposure, "number of this exposure"),
        *((("EXPOSED", times[exposure - 1], "[s] time of the exposure"),) if times is not None else ()),
        ("MEANRA", known["CRVAL1"], "[deg] right ascension of the field's centre"),
        ("MEANDEC", known["CRVAL2"], "[deg] declination of the field's centre"),
        ("FIBDIAM", 2 * places.radius, "[arcsec] diameter of a core"),
        ("PLATESCL", ARCSEC_PER_MICRON * 1e3, "[arcsec/mm] of FIBPOS_X, FIBPOS_Y"),
        ("TRANSPAR", float(places.transparency[chosen[0]]), "of the sky; the flux is calibrated for it"),
        ("RELSEE", float(places.seeing[chosen[0]]), "FWHM of the seeing relative to the PSF's"),
        *axis,
    )
    flux = np.where(fibres.good, np.asarray(fibres.flux, dtype=np.float64), np.nan)[chosen] * SAMI_FLUX_PER_OURS
    hdus: list[Any] = [fits.PrimaryHDU(flux.astype(np.float32), header_of(cards))]
    if fibres.variance is not None:
        variance = np.asarray(fibres.variance, dtype=np.float64)[chosen] * SAMI_FLUX_PER_OURS**2
        header = header_of((("BUNIT", f"({SAMI_FLUX_UNIT})**2", ""), *axis))
        hdus.append(fits.ImageHDU(variance.astype(np.float32), header, name="VARIANCE"))
    return [*hdus, _fibre_table(cube, places, chosen), config_table(cube, cube.source_counters)]


def _fibre_table(cube: Cube | ShardedCube, places: FibrePlaces, chosen: Int[ndarray, " fibre"]) -> fits.BinTableHDU:
    known, number = {keyword: value for keyword, value, _ in cube.wcs_cards}, len(chosen)
    x, y = places.x[chosen], places.y[chosen]
    east, north = (side[chosen] for side in places.on_sky(_angle(cube)))
    column, row = (cube.n_x - 1) / 2 - x / cube.pixel_scale, (cube.n_y - 1) / 2 + y / cube.pixel_scale
    ra, dec = world_coordinates(cube.wcs_cards, cube.bins).celestial.all_pix2world(column, row, 0)
    name = str(cube.meta.get("object") or "mock")
    return _table(
        "FIBRES_IFU",
        ("SPEC_ID", "J", None, np.arange(1, number + 1)),
        ("NAME", f"{max(len(name), 1)}A", None, np.full(number, name)),
        ("TYPE", "1A", None, np.full(number, "P")),
        ("PROBENUM", "J", None, np.ones(number, dtype=np.int32)),
        ("PROBENAME", "6A", None, np.full(number, "Probe1")),
        ("FIBNUM", "J", None, places.number[chosen]),
        ("FIBPOS_X", "D", "um", east / ARCSEC_PER_MICRON),
        ("FIBPOS_Y", "D", "um", north / ARCSEC_PER_MICRON),
        ("XPOS", "D", "arcsec", x),
        ("YPOS", "D", "arcsec", y),
        ("FIB_MRA", "D", "deg", ra),
        ("FIB_MDEC", "D", "deg", dec),
        ("GRP_MRA", "D", "deg", np.full(number, known["CRVAL1"])),
        ("GRP_MDEC", "D", "deg", np.full(number, known["CRVAL2"])),
    )


_IMAGES: dict[str, int] = {"manga": 7, "sami": 2}
"""Images (fibre, wave) of a layout, 4 bytes each."""


def spectra_paths(cube_path: str | Path, settings: FibreSettings | None) -> tuple[Path, ...]:
    """The files of a run's spectra, beside its cube: cube_rss.fits; in SAMI's layout each exposure is a file,
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
    if layout == "manga":
        files = [manga_spectra(cube, cube.fibres)]
    else:
        n_exposure = cube.fibres.places.n_exposure
        files = [sami_spectra(cube, cube.fibres, exposure) for exposure in range(1, n_exposure + 1)]
    for path, hdus in tuple(zip(paths, files, strict=True)):  # counted before the first is written
        fits.HDUList(hdus).update_extend()
        with replacing(path) as temporary, temporary.open("wb") as stream:
            for hdu in hdus:
                stream.write(encoded(hdu))
    return paths
