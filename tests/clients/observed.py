"""The runs whose files the clients open, and what the clients should find in them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import independent
import numpy as np
from astropy import units

from rubix_like import Cube, Galaxy, Gas, Stars

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
    "clean": {"instrument": {key: value for key, value in MUSE.items() if key != "aperture"}},
}
"""Linear bins in air with noise, an aperture and a field wider than high; log bins in vacuum with noise; no noise; no
noise and no flag."""

COMPRESSIONS: dict[str, dict[str, Any]] = {
    "gzip": {"compression": "gzip"},
    "rice": {"compression": "rice", "quantize": 16},
}
"""How files of the run "muse" are compressed."""

FILES: tuple[str, ...] = (*RUNS, *COMPRESSIONS)

LINES = {"Hb": 4862.69, "[O III] 4959": 4960.295, "[O III] 5007": 5008.240}
"""Vacuum Angstrom (NIST)."""

LINE_VELOCITY, LINE_SIGMA = 137.0, 60.0
LINE_RUN: dict[str, Any] = {
    "pipeline": "lines",
    "lines": {"wavelengths": list(LINES), "ratios": [1.0, 0.5, 1.5], "velocity_dispersion": LINE_SIGMA},
    "observation": {"redshift": 0.03, "align": "none"},
    "instrument": {"name": "muse", "fov": "0.6 arcsec", "psf": None, "lsf": {"fwhm": "2.8 Angstrom"}},
    "engine": {"method": "direct"},
}
LINE_AXES: dict[str, Any] = {
    f"{sampling} {medium}": {"start": 4980, "stop": 5190, "step": step, "sampling": sampling, "medium": medium}
    for sampling, step in (("linear", 1.25), ("log", 1e-4))
    for medium in ("air", "vacuum")
}
"""Both kinds of bins in both media; a line is there about 1.3 bins (sigma) wide."""


def one_cloud() -> Galaxy:
    """Gas of one velocity in the middle."""
    still = np.zeros((1, 3))
    stars = Stars(still, still, np.ones(1), np.full(1, 9.0), np.full(1, 0.02))
    moving = np.array([[0.0, 0.0, LINE_VELOCITY]])
    return Galaxy(stars=stars, gas=Gas(still, moving, np.full(1, 1e7), np.full(1, 0.02)))


def centre_of(line: str, medium: str) -> float:
    """Angstrom at which a line of the cloud is seen."""
    vacuum = LINES[line] * 1.03 * np.exp(LINE_VELOCITY / independent.C_KMS)
    return float(independent.vacuum_to_air(vacuum)) if medium == "air" else vacuum


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
