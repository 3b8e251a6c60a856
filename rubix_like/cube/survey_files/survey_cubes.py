"""Our cubes from files that are laid out like those of MaNGA or SAMI, with the correlations that these keep."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from rubix_like.constants import FWHM_PER_SIGMA
from rubix_like.cube.bins import Medium, WavelengthBins
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import Block, ShardedCube
from rubix_like.cube.fibres.fibre_files import local_covariance_image, read_correlations
from rubix_like.cube.files import fits_manga
from rubix_like.cube.files.default import config_table, primary_cards
from rubix_like.cube.files.fits_images import Member, voxel_image
from rubix_like.cube.files.fits_reading import read_config_table
from rubix_like.cube.footprint import Card, Footprint, header_of
from rubix_like.cube.meta import NO_DATA, OUTSIDE_APERTURE
from rubix_like.runtime.files.writers import LAYOUT_CARD

FLUX_UNIT: str = "10**(-16) erg /s /cm**2 /angstrom /pixel"
SAMI_FLUX_PER_OURS: float = 1e-4
"""1e-20 erg/s/cm2/Angstrom in units of 1e-16."""


def sami_members(cube: ShardedCube) -> list[Member]:
    """All HDUs of the file, in order. The cube has a variance and fibres."""
    fibres = cube.fibres
    assert fibres is not None
    coverage = np.asarray(fibres.weights.coverage) / cube.pixel_scale**2

    def weight(block: Block) -> ndarray:
        return np.broadcast_to(coverage[block.rows, :, None], block.shape)

    units: tuple[Card, ...] = (("BUNIT", FLUX_UNIT, ""), (LAYOUT_CARD, "sami", "like a cube of SAMI; a mock"))
    squared: tuple[Card, ...] = (("BUNIT", f"({FLUX_UNIT})**2", ""), *cube.wcs_cards)
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
    variance = np.where(inverse > 0, 1.0 / np.where(inverse > 0, inverse, 1.0), 0.0) / fits_manga.FLUX_PER_OURS**2
    outside = np.where(bits & fits_manga.NO_COVERAGE, OUTSIDE_APERTURE, NO_DATA)
    mask = np.where(bits != 0, outside, 0).astype(np.int32)
    return _voxels(hdus["FLUX"]) / np.float32(fits_manga.FLUX_PER_OURS), variance.astype(np.float32), mask


def _sami_voxels(hdus: Any) -> tuple[Float[ndarray, "y x wave"], Float[ndarray, "y x wave"], Int[ndarray, "y x wave"]]:
    flux, variance = _voxels(hdus[0]), _voxels(hdus["VARIANCE"])
    good = np.isfinite(flux)
    ours = np.float32(SAMI_FLUX_PER_OURS)
    mask = np.where(good, 0, NO_DATA).astype(np.int32)
    return np.where(good, flux, 0) / ours, np.where(good, variance, 0) / ours**2, mask


def _bins_of(header: Any) -> WavelengthBins:
    """Even bins by the cards of the wavelength axis."""
    kind, first, step = str(header["CTYPE3"]), float(header["CRVAL3"]), float(header["CD3_3"])
    medium: Medium = "air" if kind.startswith("AWAV") else "vacuum"
    if kind[4:] == "-LOG":
        return WavelengthBins(first, step / first / np.log(10.0), int(header["NAXIS3"]), "log", medium)
    return WavelengthBins(first, step, int(header["NAXIS3"]), "linear", medium)
