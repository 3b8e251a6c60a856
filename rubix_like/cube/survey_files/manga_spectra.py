"""Row-stacked spectra laid out like a LOGRSS (or LINRSS) file of MaNGA's data reduction pipeline.

PRIMARY (no data), FLUX, IVAR, MASK, LSFPOST, LSFPRE (fibre, wave), WAVE, SPECRES, SPECRESD, PRESPECRES, PRESPECRESD,
OBSINFO (a row for each exposure), XPOS and YPOS (fibre, wave): where each fibre lies, in arcsec from the bundle's
middle, XPOS to the West (Law et al. 2016, AJ 152, 83, appendix B). Spectra are those of exposure after exposure.
"""

import numpy as np
from astropy.io import fits
from jaxtyping import Float
from numpy import ndarray

from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import ShardedCube
from rubix_like.cube.fibres.fibre_spectra import FibreSpectra
from rubix_like.cube.files.default import config_table
from rubix_like.cube.files.fits_manga import (
    FLUX_PER_OURS,
    line_spread_sigmas,
    manga_primary,
    resolution_vectors,
)
from rubix_like.cube.wcs import Card, header_of

FIBRE_FLUX_UNIT: str = "1E-17 erg/s/cm^2/Ang/fiber"

NO_DATA: int = 1 << 24
"""Bit NODATA of MANGA_DRP2PIXMASK."""


def manga_spectra(cube: Cube | ShardedCube) -> list[fits.PrimaryHDU | fits.ImageHDU | fits.BinTableHDU]:
    """All HDUs of the file, in order."""
    fibres = cube.fibres
    assert fibres is not None
    wavelength = cube.bins.wavelength
    axis = _axis_cards(cube)
    mask = np.where(fibres.usable, 0, NO_DATA).astype(np.int32)
    east, north = fibres.places.on_sky(float(cube.meta.get("field_angle") or 0.0))
    return [
        fits.PrimaryHDU(header=header_of((*manga_primary(cube), ("DRPMODE", "RSS", "row-stacked spectra")))),
        _image("FLUX", _flux(fibres), (("BUNIT", FIBRE_FLUX_UNIT, ""), *axis)),
        _image("IVAR", _inverse_variance(fibres), axis),
        fits.ImageHDU(mask, header_of((("MASKNAME", "MANGA_DRP2PIXMASK", "bits"), *axis)), name="MASK"),
        *_line_spread(cube, fibres.flux.shape),
        fits.ImageHDU(wavelength, header_of((("BUNIT", "Angstrom", f"in {cube.bins.medium}"),)), name="WAVE"),
        *resolution_vectors(cube),
        _exposures(cube, fibres),
        _image("XPOS", _everywhere(-east, len(wavelength)), (("BUNIT", "arcsec", "to the West"),)),
        _image("YPOS", _everywhere(north, len(wavelength)), (("BUNIT", "arcsec", "to the North"),)),
        config_table(cube, cube.source_counters),
    ]


def _flux(fibres: FibreSpectra) -> Float[ndarray, "fibre wave"]:
    return np.asarray(fibres.flux, dtype=np.float64) * FLUX_PER_OURS


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


def _axis_cards(cube: Cube | ShardedCube) -> tuple[Card, ...]:
    """The first axis in the linear (or log10) wavelength, as in MaNGA's files."""
    bins = cube.bins
    if bins.sampling == "log":
        kind, first = ("CTYPE1", "WAVE-LOG", ""), ("CRVAL1", float(np.log10(bins.first)), "log10 of the first bin")
        return (kind, first, ("CRPIX1", 1.0, ""), ("CD1_1", bins.step, "[dex]"), ("CUNIT1", "Angstrom", ""), _DC)
    kind = ("CTYPE1", "WAVE", "")
    return (kind, ("CRVAL1", bins.first, ""), ("CRPIX1", 1.0, ""), ("CD1_1", bins.step, ""), ("CUNIT1", "Angstrom", ""))


_DC: Card = ("DC-FLAG", 1, "log-linear")


def _exposures(cube: Cube | ShardedCube, fibres: FibreSpectra) -> fits.BinTableHDU:
    """OBSINFO: of each exposure number, offset from the mean (arcsec, East and North), time, seeing, transparency."""
    places = fibres.places
    first = np.unique(places.exposure, return_index=True)[1]
    east, north = (side[first] for side in places.on_sky(float(cube.meta.get("field_angle") or 0.0)))
    seeing, times = cube.meta.get("psf_fwhm"), cube.meta.exposure_times(len(first))
    columns = (
        ("EXPNUM", "J", None, places.exposure[first]),
        ("MGDRA", "D", "arcsec", east - east.mean()),
        ("MGDDEC", "D", "arcsec", north - north.mean()),
        ("EXPTIME", "D", "s", np.full(len(first), np.nan) if times is None else np.array(times)),
        ("SEEING", "D", "arcsec", places.seeing[first] * (np.nan if seeing is None else float(seeing))),
        ("TRANSPAR", "D", None, places.transparency[first]),
    )
    return fits.BinTableHDU.from_columns(
        [fits.Column(name, kind, unit=unit, array=values) for name, kind, unit, values in columns], name="OBSINFO"
    )


def _everywhere(values: Float[ndarray, " fibre"], n_wave: int) -> Float[ndarray, "fibre wave"]:
    return np.broadcast_to(values[:, None], (len(values), n_wave))


def _image(name: str, values: Float[ndarray, "fibre wave"], cards: tuple[Card, ...]) -> fits.ImageHDU:
    return fits.ImageHDU(np.asarray(values, dtype=np.float32), header_of(cards), name=name)
