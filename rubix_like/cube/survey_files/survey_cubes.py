"""Our cubes from files that are laid out like those of MaNGA or SAMI, with the correlations that these keep."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from astropy.io import fits
from jaxtyping import Float, Int
from numpy import ndarray

from rubix_like.constants import FWHM_PER_SIGMA
from rubix_like.cube.bins import Medium, WavelengthBins
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import Block, ShardedCube
from rubix_like.cube.fibres.fibre_files import correlation_tables, local_covariance_image, read_correlations
from rubix_like.cube.files.default import config_table, primary_cards
from rubix_like.cube.files.fits_images import Member, VoxelImage, voxel_image
from rubix_like.cube.files.fits_reading import read_config_table
from rubix_like.cube.footprint import Card, Footprint, header_of
from rubix_like.cube.meta import NO_DATA, OUTSIDE_APERTURE
from rubix_like.runtime.files.writers import LAYOUT_CARD

TELESCOPE_CARDS: tuple[Card, ...] = (
    ("TELESCOP", "SDSS 2.5-M", "as in files of MaNGA"),
    ("INSTRUME", "MaNGA", "as in files of MaNGA"),
)
FLUX_UNIT: str = "1E-17 erg/s/cm^2/Ang/spaxel"
FLUX_PER_OURS: float = 1e-3
"""1e-20 erg/s/cm2/Angstrom in units of 1e-17."""

NO_COVERAGE: int = 1 << 0
DO_NOT_USE: int = 1 << 10
"""Bits NOCOV and DONOTUSE of MANGA_DRP3PIXMASK (https://www.sdss4.org/dr17/algorithms/bitmasks)."""

Bins = Float[ndarray, " wave"]

_OBSERVATION: tuple[Card, ...] = (
    ("PLATEIFU", "0-0", "a mock: no plate, no bundle"),
    ("MANGAID", "0-0", "a mock: no galaxy of the survey"),
    ("SRVYMODE", "MaNGA dither", "as in files of MaNGA"),
    ("VERSDRP3", "v3_1_1", "version of the pipeline whose layout this is"),
    ("DRP3QUAL", 0, "quality bits"),
    ("MNGTARG1", 0, "a mock: no target of the survey"),
    ("MNGTARG2", 0, "a mock: no target of the survey"),
    ("MNGTARG3", 0, "a mock: no target of the survey"),
)
"""marvin reads these in FLUX; 3.1.1 is the version of DR17 (Law et al. 2021)."""

_SDSS: tuple[Card, ...] = (("HDUCLASS", "SDSS", "SDSS format class"),)
_SCIENCE: Card = ("SCIDATA", "FLUX", "science extension name")
_ERROR: Card = ("ERRDATA", "IVAR", "error extension name")
_QUALITY: Card = ("QUALDATA", "MASK", "mask extension name")


def manga_members(cube: ShardedCube) -> list[Member]:
    """All HDUs of the file, in order. The cube has a variance; inverse variances are 0 where it is masked."""
    return [
        fits.PrimaryHDU(header=header_of(manga_primary(cube))),
        _image(cube, "FLUX", _manga_flux, (*_flux_cards(), *observation_cards(cube))),
        _image(cube, "IVAR", _inverse_variance, _ivar_cards()),
        _image(cube, "MASK", lambda block: pixel_mask(block.mask), _mask_cards(), np.int32),
        *_line_spread(cube),
        *correlation_tables(cube.fibres or cube.correlations, cube.bins),
        config_table(cube, cube.source_counters),
    ]


def _manga_flux(block: Block) -> ndarray:
    return block.flux * np.float32(FLUX_PER_OURS)


def _inverse_variance(block: Block) -> ndarray:
    """0 where masked or where the variance is 0."""
    variance = np.asarray(block.variance)
    good = (block.mask == 0) & (variance > 0)
    return np.where(good, 1 / np.where(good, variance, 1), 0).astype(variance.dtype) / np.float32(FLUX_PER_OURS**2)


def pixel_mask(mask: ndarray) -> ndarray:
    """MaNGA's mask of ours: every masked voxel is DONOTUSE, one outside the aperture NOCOV as well."""
    outside = np.where(mask & OUTSIDE_APERTURE, NO_COVERAGE, 0)
    return np.where(mask != 0, DO_NOT_USE | outside, 0).astype(np.int32)


def line_spread_sigmas(fwhm: Bins, widths: Bins, includes_pixel: bool) -> tuple[Bins, Bins]:
    """Sigma (Angstrom) of the line spread after and before the bins' own width, from the FWHM in the cube.

    A bin of width w adds w^2 / 12 to the variance; `includes_pixel`: the FWHM has it already.
    """
    variance, bins = (fwhm / FWHM_PER_SIGMA) ** 2, widths**2 / 12
    if includes_pixel:
        return np.sqrt(variance), np.sqrt(np.maximum(variance - bins, 0))
    return np.sqrt(variance + bins), np.sqrt(variance)


def manga_primary(cube: Cube | ShardedCube, mask_bits: str = "MANGA_DRP3PIXMASK") -> tuple[Card, ...]:
    """Our cards, but the telescope and instrument by which programs know MaNGA's files; the real ones are SIM...
    `mask_bits` is the name of the bits of MASK."""
    run = primary_cards(cube)
    known = {keyword: value for keyword, value, _ in run}
    names = (
        (LAYOUT_CARD, "manga", "like a MaNGA LOGCUBE; a mock observation"),
        ("SIMTELES", known.get("TELESCOP", ""), "telescope that was simulated"),
        ("SIMINSTR", known.get("INSTRUME", ""), "instrument that was simulated"),
        *TELESCOPE_CARDS,
        ("MASKNAME", mask_bits, "bits of MASK"),
    )
    of_fibres = () if cube.fibres is None else (("EBVGAL", 0.0, "no dust of the Milky Way"),)
    return (*run, *names, *of_fibres, *observation_cards(cube))


def observation_cards(cube: Cube | ShardedCube) -> tuple[Card, ...]:
    """The field's centre as that of the bundle and of the object, and what programs know an observation by."""
    known = {keyword: value for keyword, value, _ in cube.wcs_cards}
    fields = (
        (f"{place}{axis}", known[key], f"[deg] {text} of the field's centre")
        for place in ("IFU", "OBJ")
        for axis, key, text in (("RA", "CRVAL1", "right ascension"), ("DEC", "CRVAL2", "declination"))
    )
    return (*fields, *_OBSERVATION)


def _flux_cards() -> tuple[Card, ...]:
    kind = (("HDUCLAS1", "CUBE", ""), ("HDUCLAS2", "DATA", ""), _ERROR, _QUALITY)
    return (("BUNIT", FLUX_UNIT, "specific intensity (per spaxel)"), *TELESCOPE_CARDS, *_SDSS, *kind)


def _ivar_cards() -> tuple[Card, ...]:
    kind = (("HDUCLAS1", "CUBE", ""), ("HDUCLAS2", "ERROR", ""), ("HDUCLAS3", "INVMSE", "inverse variance"))
    return (*_SDSS, *kind, _SCIENCE, _QUALITY)


def _mask_cards() -> tuple[Card, ...]:
    kind = (("HDUCLAS1", "CUBE", ""), ("HDUCLAS2", "QUALITY", ""), ("HDUCLAS3", "FLAG64BIT", ""))
    return (("MASKNAME", "MANGA_DRP3PIXMASK", "bits"), *_SDSS, *kind, _SCIENCE, _ERROR)


def _line_spread(cube: ShardedCube) -> list[Member]:
    """LSFPOST, LSFPRE, WAVE and the four vectors of resolution; WAVE alone for a cube without an LSF."""
    wavelength = cube.bins.wavelength
    wave = fits.ImageHDU(wavelength, header_of((("BUNIT", "Angstrom", f"in {cube.bins.medium}"),)), name="WAVE")
    if cube.lsf_fwhm is None:
        return [wave]
    includes_pixel = bool(cube.meta.get("lsf_includes_pixel"))
    post, pre = line_spread_sigmas(np.asarray(cube.lsf_fwhm, np.float64), np.diff(cube.bins.edges), includes_pixel)
    cubes = [
        _image(cube, name, _same_everywhere(sigma), (("BUNIT", "Angstrom", "sigma"),))
        for name, sigma in (("LSFPOST", post), ("LSFPRE", pre))
    ]
    return [*cubes, wave, *resolution_vectors(cube)]


def resolution_vectors(cube: Cube | ShardedCube) -> list[fits.ImageHDU]:
    """SPECRES and PRESPECRES with their scatters, of a cube with an LSF."""
    if cube.lsf_fwhm is None:
        return []
    includes_pixel = bool(cube.meta.get("lsf_includes_pixel"))
    widths = np.diff(cube.bins.edges)
    sigmas = line_spread_sigmas(np.asarray(cube.lsf_fwhm, np.float64), widths, includes_pixel)
    vectors = []
    for name, sigma in zip(("SPECRES", "PRESPECRES"), sigmas, strict=True):
        known = sigma > 0
        resolution = np.where(known, cube.bins.wavelength / np.where(known, FWHM_PER_SIGMA * sigma, 1), 0)
        vectors += [fits.ImageHDU(resolution, name=name), fits.ImageHDU(np.zeros_like(resolution), name=f"{name}D")]
    return vectors


def _same_everywhere(spectrum: Bins) -> Callable[[Block], ndarray]:
    """One spectrum for every spaxel."""
    return lambda block: np.broadcast_to(spectrum[block.bins], block.shape)


def _image(
    cube: ShardedCube,
    name: str,
    values: Callable[[Block], ndarray],
    cards: tuple[Card, ...],
    dtype: type = np.float32,
) -> VoxelImage:
    return voxel_image(cube, dtype, header_of((*cards, *cube.wcs_cards)), values, name=name, is_rough=name == "FLUX")


SAMI_CUBE_FLUX_UNIT: str = "10**(-16) erg /s /cm**2 /angstrom /pixel"
SAMI_FLUX_PER_OURS: float = 1e-4
"""1e-20 erg/s/cm2/Angstrom in units of 1e-16."""


def sami_members(cube: ShardedCube) -> list[Member]:
    """All HDUs of the file, in order. The cube has a variance and fibres."""
    fibres = cube.fibres
    assert fibres is not None
    coverage = np.asarray(fibres.weights.coverage) / cube.pixel_scale**2

    def weight(block: Block) -> ndarray:
        return np.broadcast_to(coverage[block.rows, :, None], block.shape)

    units: tuple[Card, ...] = (("BUNIT", SAMI_CUBE_FLUX_UNIT, ""), (LAYOUT_CARD, "sami", "like a cube of SAMI; a mock"))
    squared: tuple[Card, ...] = (("BUNIT", f"({SAMI_CUBE_FLUX_UNIT})**2", ""), *cube.wcs_cards)
    return [
        voxel_image(cube, np.float32, header_of((*primary_cards(cube), *units, *cube.wcs_cards)), _flux),
        voxel_image(cube, np.float32, header_of(squared), _variance, name="VARIANCE"),
        voxel_image(cube, np.float32, header_of(cube.wcs_cards), weight, name="WEIGHT"),
        local_covariance_image(fibres, cube.bins.n_wave),
        config_table(cube, cube.source_counters),
    ]


def _flux(block: Block) -> ndarray:
    return np.where(block.mask == 0, block.flux * np.float32(SAMI_FLUX_PER_OURS), np.float32(np.nan))


def _variance(block: Block) -> ndarray:
    return np.where(block.mask == 0, np.asarray(block.variance) * np.float32(SAMI_FLUX_PER_OURS**2), np.float32(np.nan))


def survey_cube(hdus: Any) -> Cube:
    """The cube in an opened file of ours in the layout 'manga' or 'sami': float32 flux and variance, int32 mask.

    What these layouts do not keep is lost: masked voxels are NO_DATA, of MaNGA's layout OUTSIDE_APERTURE where it says
    so, and have no variance (0), in SAMI's no flux either; SAMI's has no line spread.
    """
    is_manga = hdus[0].header[LAYOUT_CARD] == "manga"
    flux, variance, mask = _manga_voxels(hdus) if is_manga else _sami_voxels(hdus)
    header = hdus["FLUX" if is_manga else 0].header
    meta, counters, others = read_config_table(hdus["CONFIG"])
    bins = _bins_of(header)
    lsf_fwhm = None
    if "LSFPOST" in hdus:
        sigma = hdus["LSFPOST" if meta.get("lsf_includes_pixel") else "LSFPRE"].data
        lsf_fwhm = FWHM_PER_SIGMA * sigma[:, sigma.shape[1] // 2, sigma.shape[2] // 2].astype(np.float64)
    return Cube(
        flux=jnp.asarray(flux),
        mask=jnp.asarray(mask),
        bins=bins,
        footprint=Footprint.of(flux.shape, float(hdus[0].header["PIXSCALE"])),
        variance=jnp.asarray(variance),
        lsf_fwhm=lsf_fwhm,
        counters=counters,
        meta=meta,
        source_counters=others,
        correlations=read_correlations(hdus, bins.wavelength, flux.shape[:2]),
    )


def _voxels(hdu: Any) -> Float[ndarray, "y x wave"]:
    return np.ascontiguousarray(hdu.data.transpose(1, 2, 0), dtype=np.float32)


def _manga_voxels(hdus: Any) -> tuple[Float[ndarray, "y x wave"], Float[ndarray, "y x wave"], Int[ndarray, "y x wave"]]:
    inverse, bits = _voxels(hdus["IVAR"]).astype(np.float64), hdus["MASK"].data.transpose(1, 2, 0)
    variance = np.where(inverse > 0, 1.0 / np.where(inverse > 0, inverse, 1.0), 0.0) / FLUX_PER_OURS**2
    outside = np.where(bits & NO_COVERAGE, OUTSIDE_APERTURE, NO_DATA)
    mask = np.where(bits != 0, outside, 0).astype(np.int32)
    return _voxels(hdus["FLUX"]) / np.float32(FLUX_PER_OURS), variance.astype(np.float32), mask


def _sami_voxels(hdus: Any) -> tuple[Float[ndarray, "y x wave"], Float[ndarray, "y x wave"], Int[ndarray, "y x wave"]]:
    flux, variance = _voxels(hdus[0]), _voxels(hdus["VARIANCE"])
    good = np.isfinite(flux)
    ours = np.float32(SAMI_FLUX_PER_OURS)
    mask = np.where(good, 0, NO_DATA).astype(np.int32)
    return np.where(good, flux, 0) / ours, np.where(good, variance, 0) / ours**2, mask


def _bins_of(header: Any) -> WavelengthBins:
    kind, first, step = str(header["CTYPE3"]), float(header["CRVAL3"]), float(header["CD3_3"])
    medium: Medium = "air" if kind.startswith("AWAV") else "vacuum"
    if kind[4:] == "-LOG":
        return WavelengthBins(first, step / first / np.log(10.0), int(header["NAXIS3"]), "log", medium)
    return WavelengthBins(first, step, int(header["NAXIS3"]), "linear", medium)
