"""Spectra of the whole field and of single spaxels, with their one-sigma band, masked voxels left out."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import CubeSums, ShardedCube, in_parts, spaxel_of, sums_of
from rubix_like.cube.meta import OUTSIDE_SSP
from rubix_like.plots.choice import Spaxel
from rubix_like.plots.sky_offsets import sky_of
from rubix_like.plots.style import INK
from rubix_like.runtime.processes.process_group import AbstractProcessGroup

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Spectrum:
    """One line: its title, flux and sigma per bin (1e-20 erg/s/cm2/Angstrom, NaN where masked), its colour.

    `sigma` is None without a noise model; `missing`: bins outside the SSP library.
    """

    title: str
    flux: Float[ndarray, " wave"]
    sigma: Float[ndarray, " wave"] | None
    color: str
    missing: Bool[ndarray, " wave"]


def field_spectrum(cube: Cube | ShardedCube, color: str, sums: CubeSums | None = None) -> Spectrum:
    """Sum over all spaxels of the good voxels; a bin that is outside the SSP library everywhere is NaN.

    `sums`: of all parts of the cube, where they are known.
    """
    sums = sums or sums_of(cube)
    missing = sums.missing
    total, deviation = (np.where(missing, np.nan, values) for values in (sums.field, np.sqrt(sums.field_variance)))
    words = " (grey: outside the SSP library)" if missing.any() else ""
    return Spectrum(f"whole field{words}", total, deviation if in_parts(cube).has_variance else None, color, missing)


def spaxel_spectrum(
    cube: Cube | ShardedCube, spaxel: Spaxel, color: str, name: str = "spaxel", team: AbstractProcessGroup | None = None
) -> Spectrum:
    """The spectrum of one spaxel of the cube, whose parts may be spread over a team."""
    x, y = spaxel
    seen = spaxel_of(cube, x, y, team)
    good = seen.mask == 0
    flux = np.where(good, seen.flux, np.nan)
    sigma = np.where(good, np.sqrt(seen.variance), np.nan) if in_parts(cube).has_variance else None
    east, north = (round(value, 6) + 0.0 for value in sky_of(cube).offset(x, y))
    words = "" if good.any() else ": every bin is masked"
    place = f"{east:+.2f}″ East, {north:+.2f}″ North".replace("-", "−")
    return Spectrum(f"{name} ({x}, {y}), {place}{words}", flux, sigma, color, seen.mask & OUTSIDE_SSP != 0)


def brightest_spaxel(light: Float[ndarray, "y x"]) -> Spaxel:
    """Column and row of the largest value."""
    y, x = np.unravel_index(int(np.argmax(np.nan_to_num(light, nan=-np.inf))), light.shape)
    return int(x), int(y)


def draw_spectrum(axes: "Axes", cube: Cube | ShardedCube, spectrum: Spectrum) -> None:
    """One spectrum with its one-sigma band, grey over the bins that the library does not cover."""
    wavelength, edges = cube.bins.wavelength, cube.bins.edges
    axes.plot(wavelength, spectrum.flux, color=spectrum.color, linewidth=0.7 if spectrum.sigma is None else 0.5)
    if spectrum.sigma is not None:
        low, high = spectrum.flux - spectrum.sigma, spectrum.flux + spectrum.sigma
        axes.fill_between(wavelength, low, high, color=spectrum.color, alpha=0.35, lw=0)
    axes.set_title(spectrum.title)
    axes.set_xlim(edges[0], edges[-1])
    axes.margins(y=0.08)
    axes.grid(color="#dddddd", linewidth=0.5)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 4), useMathText=True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.yaxis.get_offset_text().set_color(INK)
    if spectrum.missing.any():
        low, high = axes.get_ylim()
        axes.fill_between(edges[:-1], low, high, where=spectrum.missing, step="post", color="#cccccc", lw=0)
        axes.set_ylim(low, high)
