"""Files of row-stacked spectra beside a cube of fibres: their names, their sizes, and how they are written."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits
from jaxtyping import Float
from numpy import ndarray

from rubix_like.config.fibre_settings import FibreSettings
from rubix_like.config.file_layouts import BYTES_PER_BIN, HEADER_BYTES
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import ShardedCube
from rubix_like.cube.fibres.fibre_spectra import FibreSpectra
from rubix_like.cube.files.default import config_table, primary_cards
from rubix_like.cube.files.fits_images import encoded
from rubix_like.cube.footprint import SPECTRAL_TYPE, Card, header_of, world_coordinates
from rubix_like.cube.survey_files.survey_cubes import (
    FLUX_PER_OURS,
    SAMI_FLUX_PER_OURS,
    TELESCOPE_CARDS,
    line_spread_sigmas,
    manga_primary,
    observation_cards,
    resolution_vectors,
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


def manga_spectra(cube: Cube | ShardedCube) -> list[fits.PrimaryHDU | fits.ImageHDU | fits.BinTableHDU]:
    """All HDUs of the file, in order."""
    fibres = cube.fibres
    assert fibres is not None
    wavelength = cube.bins.wavelength
    axis = _axis_cards(cube.bins)
    mask = np.where(fibres.usable, 0, NO_DATA).astype(np.int32)
    angle = float(cube.meta.get("field_angle") or 0.0)
    east, north = fibres.places.on_sky_at(angle, len(wavelength))
    primary = (*manga_primary(cube, str(MASK_BITS[1])), ("DRPMODE", "RSS", "row-stacked spectra"))
    observation = (("BUNIT", FIBRE_FLUX_UNIT, ""), MASK_BITS, *TELESCOPE_CARDS, *observation_cards(cube))
    return [
        fits.PrimaryHDU(header=header_of(primary)),
        _image("FLUX", np.asarray(fibres.flux, dtype=np.float64) * FLUX_PER_OURS, (*observation, *axis)),
        _image("IVAR", _inverse_variance(fibres), axis),
        fits.ImageHDU(mask, header_of((MASK_BITS, *axis)), name="MASK"),
        *_line_spread(cube, fibres.flux.shape),
        fits.ImageHDU(wavelength, header_of((("BUNIT", "Angstrom", f"in {cube.bins.medium}"),)), name="WAVE"),
        *resolution_vectors(cube),
        _exposures(cube, fibres),
        _image("XPOS", -east, (("BUNIT", "arcsec", "to the West"),)),
        _image("YPOS", north, (("BUNIT", "arcsec", "to the North"),)),
        config_table(cube, cube.source_counters),
    ]


def _inverse_variance(fibres: FibreSpectra) -> Float[ndarray, "fibre wave"]:
    """0 without noise, and where masked."""
    if fibres.variance is None:
        return np.zeros(fibres.flux.shape)
    variance = np.asarray(fibres.variance, dtype=np.float64)
    good = (variance > 0) & fibres.usable
    return np.where(good, 1 / np.where(good, variance, 1), 0) / FLUX_PER_OURS**2


def _line_spread(cube: Cube | ShardedCube, shape: tuple[int, ...]) -> list[fits.ImageHDU]:
    """LSFPOST and LSFPRE, for a cube with an LSF."""
    if cube.lsf_fwhm is None:
        return []
    includes_pixel = bool(cube.meta.get("lsf_includes_pixel"))
    widths = np.diff(cube.bins.edges)
    sigmas = line_spread_sigmas(np.asarray(cube.lsf_fwhm, np.float64), widths, includes_pixel)
    unit = (("BUNIT", "Angstrom", "sigma"),)
    names = ("LSFPOST", "LSFPRE")
    return [_image(name, np.broadcast_to(own, shape), unit) for name, own in zip(names, sigmas, strict=True)]


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


def _exposures(cube: Cube | ShardedCube, fibres: FibreSpectra) -> fits.BinTableHDU:
    """OBSINFO: of each exposure number, set (of three, as in MaNGA), date (0: none), offset from the mean (arcsec, East
    and North), time, seeing, transparency. MaNGA has its number as text."""
    places = fibres.places
    first = np.unique(places.exposure, return_index=True)[1]
    east, north = (side[first] for side in places.on_sky(float(cube.meta.get("field_angle") or 0.0)))
    seeing, times = cube.meta.get("psf_fwhm"), cube.meta.exposure_times(len(first))
    number = places.exposure[first]
    columns = (
        ("MJD", "J", None, np.zeros(len(first), dtype=np.int32)),
        ("EXPNUM", "12A", None, number.astype(str)),
        ("SET", "J", None, (number - 1) // _SET + 1),
        ("MGDRA", "D", "arcsec", east - east.mean()),
        ("MGDDEC", "D", "arcsec", north - north.mean()),
        ("EXPTIME", "D", "s", np.full(len(first), np.nan) if times is None else np.array(times)),
        ("SEEING", "D", "arcsec", places.seeing[first] * (np.nan if seeing is None else float(seeing))),
        ("TRANSPAR", "D", None, places.transparency[first]),
    )
    return fits.BinTableHDU.from_columns(
        [fits.Column(name, kind, unit=unit, array=values) for name, kind, unit, values in columns], name="OBSINFO"
    )


def _image(name: str, values: Float[ndarray, "fibre wave"], cards: tuple[Card, ...]) -> fits.ImageHDU:
    return fits.ImageHDU(np.asarray(values, dtype=np.float32), header_of(cards), name=name)


ARCSEC_PER_MICRON: float = 15.22e-3
"""Scale of the plate of SAMI on the Anglo-Australian Telescope (Croom et al. 2012, MNRAS 421, 872)."""

SAMI_FLUX_UNIT: str = "10**(-16) erg/s/cm**2/Angstrom/fibre"


def sami_spectra(cube: Cube | ShardedCube) -> list[list[fits.PrimaryHDU | fits.ImageHDU | fits.BinTableHDU]]:
    """All HDUs of the file of each exposure, in order."""
    fibres = cube.fibres
    assert fibres is not None
    return [_exposure(cube, number) for number in range(1, fibres.places.n_exposure + 1)]


def _exposure(cube: Cube | ShardedCube, number: int) -> list[fits.PrimaryHDU | fits.ImageHDU | fits.BinTableHDU]:
    fibres = cube.fibres
    assert fibres is not None
    own = np.flatnonzero(fibres.places.exposure == number)
    cards = (*primary_cards(cube), *_cards(cube, number), *_sami_axis_cards(cube))
    flux = np.where(fibres.good, np.asarray(fibres.flux, dtype=np.float64), np.nan)[own] * SAMI_FLUX_PER_OURS
    hdus: list[fits.PrimaryHDU | fits.ImageHDU | fits.BinTableHDU] = [
        fits.PrimaryHDU(flux.astype(np.float32), header_of(cards))
    ]
    if fibres.variance is not None:
        variance = np.asarray(fibres.variance, dtype=np.float64)[own] * SAMI_FLUX_PER_OURS**2
        header = header_of((("BUNIT", f"({SAMI_FLUX_UNIT})**2", ""), *_sami_axis_cards(cube)))
        hdus.append(fits.ImageHDU(variance.astype(np.float32), header, name="VARIANCE"))
    return [*hdus, _fibre_table(cube, own), config_table(cube, cube.source_counters)]


def _cards(cube: Cube | ShardedCube, number: int) -> tuple[Card, ...]:
    fibres = cube.fibres
    assert fibres is not None
    first = int(np.flatnonzero(fibres.places.exposure == number)[0])
    known = {keyword: value for keyword, value, _ in cube.wcs_cards}
    times = cube.meta.exposure_times(fibres.places.n_exposure)
    return (
        (LAYOUT_CARD, "sami", "like a reduced frame of SAMI; a mock observation"),
        ("BUNIT", SAMI_FLUX_UNIT, ""),
        ("EXPOSURE", number, "number of this exposure"),
        *((("EXPOSED", times[number - 1], "[s] time of the exposure"),) if times is not None else ()),
        ("MEANRA", known["CRVAL1"], "[deg] right ascension of the field's centre"),
        ("MEANDEC", known["CRVAL2"], "[deg] declination of the field's centre"),
        ("FIBDIAM", 2 * fibres.places.radius, "[arcsec] diameter of a core"),
        ("PLATESCL", ARCSEC_PER_MICRON * 1e3, "[arcsec/mm] of FIBPOS_X, FIBPOS_Y"),
        ("TRANSPAR", float(fibres.places.transparency[first]), "of the sky; the flux is calibrated for it"),
        ("RELSEE", float(fibres.places.seeing[first]), "FWHM of the seeing relative to the PSF's"),
    )


def _sami_axis_cards(cube: Cube | ShardedCube) -> tuple[Card, ...]:
    bins = cube.bins
    return (
        ("CTYPE1", "Wavelength", f"in {bins.medium}"),
        ("CUNIT1", "Angstrom", ""),
        ("CRPIX1", 1.0, "first bin"),
        ("CRVAL1", bins.first, "[Angstrom] its centre"),
        ("CDELT1", bins.step, "[Angstrom]"),
    )


def _fibre_table(cube: Cube | ShardedCube, own: np.ndarray) -> fits.BinTableHDU:
    fibres = cube.fibres
    assert fibres is not None
    places, known = fibres.places, {keyword: value for keyword, value, _ in cube.wcs_cards}
    x, y = places.x[own], places.y[own]
    east, north = (side[own] for side in places.on_sky(float(cube.meta.get("field_angle") or 0.0)))
    column, row = (cube.n_x - 1) / 2 - x / cube.pixel_scale, (cube.n_y - 1) / 2 + y / cube.pixel_scale
    ra, dec = world_coordinates(cube.wcs_cards, cube.bins).celestial.all_pix2world(column, row, 0)
    name = str(cube.meta.get("object") or "mock")
    columns = (
        ("SPEC_ID", "J", None, np.arange(1, len(own) + 1)),
        ("NAME", f"{max(len(name), 1)}A", None, np.full(len(own), name)),
        ("TYPE", "1A", None, np.full(len(own), "P")),
        ("PROBENUM", "J", None, np.ones(len(own), dtype=np.int32)),
        ("PROBENAME", "6A", None, np.full(len(own), "Probe1")),
        ("FIBNUM", "J", None, places.number[own]),
        ("FIBPOS_X", "D", "um", east / ARCSEC_PER_MICRON),
        ("FIBPOS_Y", "D", "um", north / ARCSEC_PER_MICRON),
        ("XPOS", "D", "arcsec", x),
        ("YPOS", "D", "arcsec", y),
        ("FIB_MRA", "D", "deg", ra),
        ("FIB_MDEC", "D", "deg", dec),
        ("GRP_MRA", "D", "deg", np.full(len(own), known["CRVAL1"])),
        ("GRP_MDEC", "D", "deg", np.full(len(own), known["CRVAL2"])),
    )
    return fits.BinTableHDU.from_columns(
        [fits.Column(key, kind, unit=unit, array=values) for key, kind, unit, values in columns], name="FIBRES_IFU"
    )


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
