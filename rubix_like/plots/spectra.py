"""Spectra of the whole field and of single spaxels, with their one-sigma band, masked voxels left out."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.cube import OUTSIDE_SSP, Cube
from rubix_like.plots.choice import Spaxel
from rubix_like.plots.sky import sky_of
from rubix_like.plots.style import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Spectrum:
    """One line: its title, flux and sigma per bin (1e-20 erg/s/cm2/Angstrom, NaN where masked), its colour.

    `sigma` is None without a noise model.
    """

    title: str
    flux: Float[ndarray, " wave"]
    sigma: Float[ndarray, " wave"] | None
    color: str


def field_spectrum(cube: Cube, color: str) -> Spectrum:
    """Sum over all spaxels of the good voxels; a bin that is outside the SSP library everywhere is NaN."""
    good = np.asarray(cube.mask) == 0
    missing = missing_bins(cube)
    total = np.where(missing, np.nan, np.sum(np.asarray(cube.flux), axis=(0, 1), where=good, dtype=np.float64))
    sigma = None
    if cube.variance is not None:
        variance = np.sum(np.asarray(cube.variance), axis=(0, 1), where=good, dtype=np.float64)
        sigma = np.where(missing, np.nan, np.sqrt(variance))
    words = " (grey: outside the SSP library)" if missing.any() else ""
    return Spectrum(f"whole field{words}", total, sigma, color)


def spaxel_spectrum(cube: Cube, spaxel: Spaxel, color: str, name: str = "spaxel") -> Spectrum:
    """The spectrum of one spaxel of the cube."""
    x, y = spaxel
    good = np.asarray(cube.mask[y, x]) == 0
    flux = np.where(good, np.asarray(cube.flux[y, x], dtype=np.float64), np.nan)
    sigma = None
    if cube.variance is not None:
        sigma = np.where(good, np.sqrt(np.asarray(cube.variance[y, x], dtype=np.float64)), np.nan)
    east, north = (round(value, 6) + 0.0 for value in sky_of(cube).offset(x, y))
    words = "" if good.any() else ": every bin is masked"
    place = f"{east:+.2f}″ East, {north:+.2f}″ North".replace("-", "−")
    return Spectrum(f"{name} ({x}, {y}), {place}{words}", flux, sigma, color)


def brightest_spaxel(light: Float[ndarray, "y x"]) -> Spaxel:
    """Column and row of the largest value."""
    y, x = np.unravel_index(int(np.argmax(np.nan_to_num(light, nan=-np.inf))), light.shape)
    return int(x), int(y)


def missing_bins(cube: Cube) -> Bool[ndarray, " wave"]:
    """Bins that no spaxel has, because the SSP library ends before them."""
    return np.all(np.asarray(cube.mask) & OUTSIDE_SSP != 0, axis=(0, 1))


def draw_spectrum(axes: "Axes", cube: Cube, spectrum: Spectrum) -> None:
    """One spectrum with its one-sigma band."""
    wavelength = np.asarray(cube.wavelength)
    axes.plot(wavelength, spectrum.flux, color=spectrum.color, linewidth=0.7 if spectrum.sigma is None else 0.5)
    if spectrum.sigma is not None:
        low, high = spectrum.flux - spectrum.sigma, spectrum.flux + spectrum.sigma
        axes.fill_between(wavelength, low, high, color=spectrum.color, alpha=0.35, lw=0)
    axes.set_title(spectrum.title)
    edges = np.asarray(cube.wave_edges)
    axes.set_xlim(edges[0], edges[-1])
    axes.margins(y=0.08)
    axes.grid(color="#dddddd", linewidth=0.5)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 4), useMathText=True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.yaxis.get_offset_text().set_color(INK)
    _shade(axes, edges, missing_bins(cube))


def _shade(axes: "Axes", edges: Float[ndarray, " edge"], missing: Bool[ndarray, " wave"]) -> None:
    """Grey over the bins that the library does not cover."""
    if missing.any():
        low, high = axes.get_ylim()
        axes.fill_between(edges[:-1], low, high, where=missing, step="post", color="#cccccc", lw=0)
        axes.set_ylim(low, high)
