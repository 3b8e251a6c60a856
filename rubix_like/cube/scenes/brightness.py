"""What the files of scenes for other simulators have in common: surface brightness, and cards of the run."""

from collections.abc import Callable

import numpy as np
from numpy import ndarray

from rubix_like.cube.cube_parts import Block, ShardedCube
from rubix_like.cube.files.default import primary_cards
from rubix_like.cube.wcs import Card
from rubix_like.runtime.files.writers import LAYOUT_CARD

_FLUX_SCALE = 1e-20
"""Our flux unit in erg/s/cm2/Angstrom."""


def brightness_of(cube: ShardedCube) -> Callable[[Block], ndarray]:
    """Of a block of the cube in erg/s/cm2/Angstrom/arcsec2; voxels that are not finite are 0."""
    scale = np.float32(_FLUX_SCALE / cube.pixel_scale**2)

    def brightness(block: Block) -> ndarray:
        return np.nan_to_num(block.flux.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0) * scale

    return brightness


def run_cards(cube: ShardedCube, layout: str, words: str, unit: str) -> tuple[Card, ...]:
    """Those of the run, but for a celestial frame, which scenes have not, the layout in `words`, and the unit."""
    run = tuple(card for card in primary_cards(cube) if card[0] not in ("RADESYS", "EQUINOX"))
    return (*run, (LAYOUT_CARD, layout, words), ("BUNIT", unit, "surface brightness"))
