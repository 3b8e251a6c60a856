"""A cube of fibres laid out like those of the SAMI Galaxy Survey.

PRIMARY (flux), VARIANCE, WEIGHT (sum of the recipe's weights: of drizzle the fraction of the spaxel that discs cover,
all exposures together) and COVAR (`local_covariance_image`), all in SAMI's unit (Sharp et al. 2015, MNRAS 446, 1551;
Croom et al. 2021, MNRAS 505, 991). Masked voxels are NaN.
"""

import numpy as np
from numpy import ndarray

from rubix_like.cube.cube_parts import Block, ShardedCube
from rubix_like.cube.fibres.correlation_planes import local_covariance_image
from rubix_like.cube.files.default import config_table, primary_cards
from rubix_like.cube.files.fits_images import Member, voxel_image
from rubix_like.cube.wcs import Card, header_of
from rubix_like.runtime.files.writers import LAYOUT_CARD

FLUX_UNIT: str = "10**(-16) erg /s /cm**2 /angstrom /pixel"
FLUX_PER_OURS: float = 1e-4
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
    return np.where(block.mask == 0, block.flux * np.float32(FLUX_PER_OURS), np.float32(np.nan))


def _variance(block: Block) -> ndarray:
    return np.where(block.mask == 0, np.asarray(block.variance) * np.float32(FLUX_PER_OURS**2), np.float32(np.nan))
