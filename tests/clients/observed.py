"""The runs whose files the clients open, and what the clients should find in them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from astropy import units

from rubix_like import Cube

FLUX_UNIT = units.Unit(1e-20 * units.erg / units.s / units.cm**2 / units.AA)

GALAXY = {
    "galaxy": {"reader": "synthetic", "n_stars": 2000},
    "observation": {"redshift": 0.03, "ra": "150.1 deg", "dec": "52.2 deg", "inclination": "50 deg"},
    "engine": {"method": "direct"},
}
MUSE = {
    "name": "muse",
    "fov": ["3 arcsec", "2 arcsec"],
    "aperture": {"shape": "rectangle", "size": "1.6 arcsec"},
    "wavelength": {"start": 5000, "stop": 5100, "step": 1.25, "medium": "air"},
}
MANGA = {
    "name": "muse",
    "pixel_scale": "0.5 arcsec",
    "fov": ["7 arcsec", "5 arcsec"],
    "lsf": {"fwhm": "2.8 Angstrom"},
    "wavelength": {"start": 5000, "stop": 5100, "step": 1e-4, "medium": "vacuum", "sampling": "log"},
}
RUNS: dict[str, dict[str, Any]] = {
    "muse": {"instrument": MUSE, "noise": {"signal_to_noise": 30}},
    "manga": {"instrument": MANGA, "noise": {"signal_to_noise": 30}},
    "noiseless": {"instrument": MUSE},
}
"""Linear bins in air with noise, an aperture and a field wider than high; log bins in vacuum with noise; no noise."""


@dataclass(frozen=True)
class Mock:
    """A file and the cube, as the run returned it, that was written to it."""

    path: Path
    cube: Cube

    def in_order(self, name: str) -> np.ndarray:
        """An array of the cube with axes (wave, y, x)."""
        return np.moveaxis(np.asarray(getattr(self.cube, name)), 2, 0)

    @property
    def corners(self) -> list[tuple[int, int]]:
        """(x, y) of the four corner spaxels."""
        n_y, n_x, _ = self.cube.flux.shape
        return [(x, y) for y in (0, n_y - 1) for x in (0, n_x - 1)]

    def sky(self, x: float, y: float) -> tuple[float, float]:
        """RA and Dec (deg) of spaxel (x, y): the inverse gnomonic projection, written out; East is to the left."""
        n_y, n_x, _ = self.cube.flux.shape
        scale = np.radians(self.cube.pixel_scale / 3600)
        east, north = -(x - (n_x - 1) / 2) * scale, (y - (n_y - 1) / 2) * scale
        ra, dec = (np.radians(self.cube.meta[key]) for key in ("ra", "dec"))
        along = np.cos(dec) - north * np.sin(dec)
        right_ascension = ra + np.arctan2(east, along)
        return np.degrees(right_ascension), np.degrees(
            np.arctan2(np.sin(dec) + north * np.cos(dec), np.hypot(east, along))
        )
