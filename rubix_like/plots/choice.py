"""The choice of what to draw of a cube: spaxels, band and maps."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rubix_like.arguments import expect_fields
from rubix_like.config.quantities import parse_pair
from rubix_like.cube.cube import Cube
from rubix_like.errors import ConfigError
from rubix_like.plots.derived import Band, SkyImage, band_bins, band_image, cube_images, light_image
from rubix_like.plots.style import SPAXEL_COLORS

Spaxel = tuple[int, int]
"""Column x and row y, counted from 0: cube.flux[y, x]."""


@dataclass(frozen=True)
class Choice:
    """What to draw: spaxels (none: the brightest one), a band (None: no narrow-band image), maps (None: the cube's)."""

    spaxels: tuple[Spaxel, ...] = ()
    band: Band | None = None
    maps: tuple[SkyImage, ...] | None = None

    def __post_init__(self) -> None:
        expect_fields(self)
        if self.band is not None:
            vars(self).update(band=parse_pair(self.band, "Angstrom", "band", "(lowest, highest)"))
        for spaxel in self.spaxels:
            if np.shape(spaxel) != (2,) or np.asarray(spaxel).dtype.kind not in "iu":
                raise ConfigError(
                    f"spaxels: expected pairs (x, y) of whole numbers, e.g. [(0, 0), (2, 1)], got {self.spaxels!r}"
                )


def check_choice(cube: Cube, choice: Choice) -> None:
    """Raise ConfigError where a spaxel or the band is outside the cube, or there are more spaxels than colours."""
    n_y, n_x, _ = np.shape(cube.flux)
    for spaxel in choice.spaxels:
        x, y = spaxel
        if not (0 <= x < n_x and 0 <= y < n_y):
            raise ConfigError(
                f"spaxels: expected (x, y) from (0, 0) to ({n_x - 1}, {n_y - 1}), as this cube has, got ({x}, {y})"
            )
    if len(choice.spaxels) > len(SPAXEL_COLORS):
        raise ConfigError(
            f"spaxels: expected at most {len(SPAXEL_COLORS)} spaxels at once, got {len(choice.spaxels)}; "
            f"make several pictures"
        )
    if choice.band is not None:
        band_bins(cube, choice.band)


def chosen_images(cube: Cube, choice: Choice) -> tuple[SkyImage, ...]:
    """White light, the narrow band if one was chosen, and the maps."""
    band = () if choice.band is None else (band_image(cube, choice.band),)
    maps = cube_images(cube) if choice.maps is None else choice.maps
    return (light_image(cube), *band, *maps)


def read_spaxels(words: Sequence[str]) -> tuple[Spaxel, ...]:
    """`["12,7", ...]` as pairs, each once; raises ConfigError for anything else than X,Y."""
    spaxels = []
    for word in words:
        parts = word.split(",")
        if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
            raise ConfigError(f"--spaxel: expected X,Y (column and row, counted from 0, e.g. 12,7), got '{word}'")
        spaxels.append((int(parts[0]), int(parts[1])))
    return tuple(dict.fromkeys(spaxels))


def read_band(word: str) -> Band:
    """`"5000-5100"` as a pair of Angstrom; raises ConfigError for anything else than LOW-HIGH."""
    parts = word.split("-")
    try:
        low, high = (float(part) for part in parts)
    except ValueError:
        raise ConfigError(f"--band: expected LOW-HIGH in Angstrom (e.g. 5000-5100), got '{word}'") from None
    return low, high
