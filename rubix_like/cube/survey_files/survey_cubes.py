"""Our cubes from files that are laid out like those of MaNGA or SAMI, with the correlations that these keep."""

from collections.abc import Callable, Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np
from astropy.io import fits
from jaxtyping import Float
from numpy import ndarray

from rubix_like.constants import FWHM_PER_SIGMA
from rubix_like.cube.bins import Medium, WavelengthBins
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import Block, ShardedCube
from rubix_like.cube.fibres.fibre_files import correlation_tables, local_covariance_image, read_correlations
from rubix_like.cube.files.default import config_table, primary_cards, read_config_table
from rubix_like.cube.files.fits_images import Member, voxel_image
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


def manga_members(cube: ShardedCube) -> list[Member]:
    """All HDUs of the file, in order. The cube has a variance; inverse variances are 0 where it is masked."""

    def image(name: str, values: Callable[[Block], ndarray], cards: Iterable[Card], dtype: type = np.float32) -> Member:
        header = header_of((*cards, *cube.wcs_cards))
        return voxel_image(cube, dtype, header, values, name=name, is_rough=name == "FLUX")

    def kept_everywhere(name: str, spectrum: Bins, cards: tuple[Card, ...]) -> Member:
        return image(name, lambda block: np.broadcast_to(spectrum[block.bins], block.shape), cards)

    sdss: Card = ("HDUCLASS", "SDSS", "SDSS format class")
    kind: Card = ("HDUCLAS1", "CUBE", "")
    flux: Card = ("SCIDATA", "FLUX", "science extension name")
    error: Card = ("ERRDATA", "IVAR", "error extension name")
    quality: Card = ("QUALDATA", "MASK", "mask extension name")
    unit: Card = ("BUNIT", FLUX_UNIT, "specific intensity (per spaxel)")
    squares: Card = ("HDUCLAS3", "INVMSE", "inverse variance")
    flags: Card = ("HDUCLAS3", "FLAG64BIT", "")
    bits: Card = ("MASKNAME", "MANGA_DRP3PIXMASK", "bits")
    return [
        fits.PrimaryHDU(header=header_of(manga_primary(cube))),
        image(
            "FLUX",
            lambda block: block.flux * np.float32(FLUX_PER_OURS),
            (unit, *TELESCOPE_CARDS, sdss, kind, ("HDUCLAS2", "DATA", ""), error, quality, *observation_cards(cube)),
        ),
        image("IVAR", _inverse_variance, (sdss, kind, ("HDUCLAS2", "ERROR", ""), squares, flux, quality)),
        image(
            "MASK",
            lambda block: _pixel_mask(block.mask),
            (bits, sdss, kind, ("HDUCLAS2", "QUALITY", ""), flags, flux, error),
            np.int32,
        ),
        *line_spread_hdus(cube, kept_everywhere),
        *correlation_tables(cube.fibres or cube.correlations, cube.bins),
        config_table(cube, cube.source_counters),
    ]


def _inverse_variance(block: Block) -> ndarray:
    variance = np.asarray(block.variance)
    good = (block.mask == 0) & (variance > 0)
    return np.where(good, 1 / np.where(good, variance, 1), 0).astype(variance.dtype) / np.float32(FLUX_PER_OURS**2)


def _pixel_mask(mask: ndarray) -> ndarray:
    """MaNGA's mask of ours: every masked voxel is DONOTUSE, one outside the aperture NOCOV as well."""
    outside = np.where(mask & OUTSIDE_APERTURE, NO_COVERAGE, 0)
    return np.where(mask != 0, DO_NOT_USE | outside, 0).astype(np.int32)


def line_spread_sigmas(fwhm: Bins, widths: Bins, includes_pixel: bool) -> tuple[Bins, Bins]:
    """Sigma (Angstrom) of the line spread after and before the bins' width, from the FWHM in the cube.

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


def line_spread_hdus(cube: Cube | ShardedCube, image: Callable[[str, Bins, tuple[Card, ...]], Member]) -> list[Member]:
    """LSFPOST and LSFPRE, made by `image` of name, sigma (Angstrom) and cards, WAVE, and the resolutions SPECRES and
    PRESPECRES with their scatters; WAVE alone for a cube without an LSF."""
    wavelength = cube.bins.wavelength
    wave = fits.ImageHDU(wavelength, header_of((("BUNIT", "Angstrom", f"in {cube.bins.medium}"),)), name="WAVE")
    if cube.lsf_fwhm is None:
        return [wave]
    includes_pixel = bool(cube.meta.get("lsf_includes_pixel"))
    sigmas = line_spread_sigmas(np.asarray(cube.lsf_fwhm, np.float64), np.diff(cube.bins.edges), includes_pixel)
    resolutions = []
    for name, sigma in zip(("SPECRES", "PRESPECRES"), sigmas, strict=True):
        known = sigma > 0
        resolution = np.where(known, wavelength / np.where(known, FWHM_PER_SIGMA * sigma, 1), 0)
        resolutions += [fits.ImageHDU(resolution, name=name), fits.ImageHDU(0 * resolution, name=f"{name}D")]
    unit = (("BUNIT", "Angstrom", "sigma"),)
    images = [image(name, sigma, unit) for name, sigma in zip(("LSFPOST", "LSFPRE"), sigmas, strict=True)]
    return [*images, wave, *resolutions]


SAMI_CUBE_FLUX_UNIT: str = "10**(-16) erg /s /cm**2 /angstrom /pixel"
SAMI_FLUX_PER_OURS: float = 1e-4
"""1e-20 erg/s/cm2/Angstrom in units of 1e-16."""


def sami_members(cube: ShardedCube) -> list[Member]:
    """All HDUs of the file, in order. The cube has a variance and fibres."""
    fibres = cube.fibres
    assert fibres is not None
    coverage = np.asarray(fibres.weights.coverage) / cube.pixel_scale**2

    def scaled(block: Block, values: Any, power: int) -> ndarray:
        return np.where(block.mask == 0, values * np.float32(SAMI_FLUX_PER_OURS**power), np.float32(np.nan))

    def image(values: Callable[[Block], ndarray], cards: tuple[Card, ...], name: str | None = None) -> Member:
        return voxel_image(cube, np.float32, header_of((*cards, *cube.wcs_cards)), values, name=name)

    units: tuple[Card, ...] = (("BUNIT", SAMI_CUBE_FLUX_UNIT, ""), (LAYOUT_CARD, "sami", "like a cube of SAMI; a mock"))
    squared: tuple[Card, ...] = (("BUNIT", f"({SAMI_CUBE_FLUX_UNIT})**2", ""),)
    return [
        image(lambda block: scaled(block, block.flux, 1), (*primary_cards(cube), *units)),
        image(lambda block: scaled(block, block.variance, 2), squared, "VARIANCE"),
        image(lambda block: np.broadcast_to(coverage[block.rows, :, None], block.shape), (), "WEIGHT"),
        local_covariance_image(fibres, cube.bins.n_wave),
        config_table(cube, cube.source_counters),
    ]


def survey_cube(hdus: Any) -> Cube:
    """The cube in an opened file of ours in the layout 'manga' or 'sami': float32 flux and variance, int32 mask.

    What these layouts do not keep is lost: masked voxels are NO_DATA, of MaNGA's layout OUTSIDE_APERTURE where it says
    so, and have no variance (0), in SAMI's no flux either; SAMI's has no line spread.
    """
    if hdus[0].header[LAYOUT_CARD] == "manga":
        header = hdus["FLUX"].header
        inverse, bits = _voxels(hdus["IVAR"]).astype(np.float64), hdus["MASK"].data.transpose(1, 2, 0)
        variance = np.where(inverse > 0, 1.0 / np.where(inverse > 0, inverse, 1.0), 0.0) / FLUX_PER_OURS**2
        outside = np.where(bits & NO_COVERAGE, OUTSIDE_APERTURE, NO_DATA)
        flux, mask = _voxels(hdus["FLUX"]) / np.float32(FLUX_PER_OURS), np.where(bits != 0, outside, 0)
    else:
        header, scale, values = hdus[0].header, np.float32(SAMI_FLUX_PER_OURS), _voxels(hdus[0])
        good = np.isfinite(values)
        flux, variance = np.where(good, values, 0) / scale, np.where(good, _voxels(hdus["VARIANCE"]), 0) / scale**2
        mask = np.where(good, 0, NO_DATA)
    meta, counters, others = read_config_table(hdus["CONFIG"])
    bins = _bins_of(header)
    lsf_fwhm = None
    if "LSFPOST" in hdus:
        sigma = hdus["LSFPOST" if meta.get("lsf_includes_pixel") else "LSFPRE"].data
        lsf_fwhm = FWHM_PER_SIGMA * sigma[:, sigma.shape[1] // 2, sigma.shape[2] // 2].astype(np.float64)
    return Cube(
        flux=jnp.asarray(flux),
        mask=jnp.asarray(mask.astype(np.int32)),
        bins=bins,
        footprint=Footprint.of(flux.shape, float(hdus[0].header["PIXSCALE"])),
        variance=jnp.asarray(variance.astype(np.float32)),
        lsf_fwhm=lsf_fwhm,
        counters=counters,
        meta=meta,
        source_counters=others,
        correlations=read_correlations(hdus, bins.wavelength, flux.shape[:2]),
    )


def _voxels(hdu: Any) -> Float[ndarray, "y x wave"]:
    return np.ascontiguousarray(hdu.data.transpose(1, 2, 0), dtype=np.float32)


def _bins_of(header: Any) -> WavelengthBins:
    kind, first, step = str(header["CTYPE3"]), float(header["CRVAL3"]), float(header["CD3_3"])
    medium: Medium = "air" if kind.startswith("AWAV") else "vacuum"
    if kind[4:] == "-LOG":
        return WavelengthBins(first, step / first / np.log(10.0), int(header["NAXIS3"]), "log", medium)
    return WavelengthBins(first, step, int(header["NAXIS3"]), "linear", medium)
