"""Row-stacked spectra laid out like a LOGRSS (or LINRSS) file of MaNGA's data reduction pipeline.

PRIMARY (no data), FLUX, IVAR, MASK, LSFPOST, LSFPRE (fibre, wave), WAVE, SPECRES, SPECRESD, PRESPECRES, PRESPECRESD,
OBSINFO (a row for each exposure), XPOS and YPOS (fibre, wave): what each fibre sees at each wavelength, corrected for
refraction, in arcsec from the field's centre, XPOS to the West (Law et al. 2016, AJ 152, 83, appendix B). Spectra are
those of exposure after exposure.
"""

import math

import numpy as np
from astropy.io import fits
from jaxtyping import Float
from numpy import ndarray

from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import ShardedCube
from rubix_like.cube.fibres.fibre_spectra import FibreSpectra
from rubix_like.cube.files.default import config_table
from rubix_like.cube.files.fits_manga import (
    FLUX_PER_OURS,
    TELESCOPE_CARDS,
    line_spread_sigmas,
    manga_primary,
    observation_cards,
    resolution_vectors,
)
from rubix_like.cube.wcs import SPECTRAL_TYPE, Card, header_of

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
    """The wavelength axis in Angstrom; logarithmic bins as in `rubix_like.cube.wcs.spectral_cards`, which is what MaNGA
    writes (CRVAL1 = 3621.596, CD1_1 = 0.8339 in DR17). CD2_2, which MaNGA lacks, keeps the matrix regular."""
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
