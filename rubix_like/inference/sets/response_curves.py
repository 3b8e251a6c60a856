"""Bands of images: response curves for photons, and the mean flux density of a cube in them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.cube.bins import WavelengthBins
from rubix_like.errors import ConfigError
from rubix_like.forward.products.bands import load_band
from rubix_like.inference.sets.nuisances import read_columns


@dataclass(frozen=True, eq=False)
class ImageBand:
    """A response R for photons, linear between its nodes (Angstrom in vacuum) and 0 beyond them.

    The mean flux density in it is int F_lambda R lambda dlambda / int R lambda dlambda (Tokunaga & Vacca 2005, PASP
    117, 421, appendix A).
    """

    name: str
    wavelength: Float[ndarray, " node"]
    response: Float[ndarray, " node"]

    @property
    def pivot(self) -> float:
        """sqrt(int R lambda dlambda / int R / lambda dlambda): F_nu = F_lambda pivot^2 / c of the means (ibid.)."""
        between = np.linspace(self.wavelength[0], self.wavelength[-1], 20001)
        fine = np.unique(np.concatenate([between, self.wavelength]))
        response = np.interp(fine, self.wavelength, self.response)
        return float(np.sqrt(np.trapezoid(response * fine, fine) / np.trapezoid(response / fine, fine)))

    def bins(self, count: int) -> WavelengthBins:
        """Even bins in vacuum from end to end."""
        first, last = self.wavelength[[0, -1]]
        step = float(last - first) / count
        return WavelengthBins(float(first) + 0.5 * step, step, count, "linear", "vacuum")

    @property
    def whole(self) -> WavelengthBins:
        """One bin about the pivot wavelength, as wide as the band."""
        first, last = self.wavelength[[0, -1]]
        return WavelengthBins(self.pivot, 2 * float(min(self.pivot - first, last - self.pivot)), 1, "linear", "vacuum")

    def weights(self, bins: WavelengthBins) -> Float[ndarray, " wave"]:
        """w with sum_b w_b F_b the mean flux density of a spectrum that has F_b all over bin b: int_b R lambda dlambda,
        exactly, over the same of all bins."""
        edges = bins.edges
        grid = np.union1d(edges, self.wavelength)
        grid = grid[(grid >= edges[0]) & (grid <= edges[-1])]
        middle = 0.5 * (grid[1:] + grid[:-1])
        values = [np.interp(own, self.wavelength, self.response, 0, 0) * own for own in (grid, middle)]
        cell = (values[0][1:] + 4 * values[1] + values[0][:-1]) * np.diff(grid) / 6  # Simpson: exact for a square
        owner = np.clip(np.searchsorted(edges, middle) - 1, 0, bins.n_wave - 1)
        found = np.bincount(owner, cell, minlength=bins.n_wave)
        return found / found.sum()


def band_of(given: str, place: str) -> ImageBand:
    """The band of a table of text (Angstrom in vacuum, response), or of speclite by its name; else ConfigError."""
    if Path(given).suffix and not given.endswith(".ecsv"):
        table = read_columns(Path(given), place)
        wavelength, response = table[:, 0], table[:, 1] if table.shape[1] > 1 else np.full(len(table), np.nan)
        name = Path(given).stem
    else:
        known = load_band(given, place)
        name, wavelength, response = known.name, known.wavelength, known.response
    if table_fault := _fault(wavelength, response):
        raise ConfigError(f"{place}: {table_fault} ({given})")
    seen = np.flatnonzero(response > 0)
    kept = slice(max(seen[0] - 1, 0), seen[-1] + 2)
    return ImageBand(name, wavelength[kept], response[kept])


def _fault(wavelength: ndarray, response: ndarray) -> str | None:
    """What is wrong with a response curve."""
    if not (np.isfinite(response).all() and np.isfinite(wavelength).all() and (np.diff(wavelength) > 0).all()):
        return "expected two columns of finite numbers, wavelengths that increase and responses, got others"
    if (response < 0).any() or not (response > 0).any():
        return "expected responses of 0 or more, and some above 0, got others"
    return None
