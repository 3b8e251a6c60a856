"""One figure of two SSP libraries: spectra, their ratio, mass-to-light ratios, resolution (needs the `plots` extra)."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.plots.style import SPAXEL_COLORS, check_picture_suffix, saved_figure
from rubix_like.ssp.comparison import AGES, SolarPopulation, common_bins, spectrum_bin_means

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DEEPEST: float = 1e-4
"""Part of the brightest light below which nothing is drawn of the spectra."""

RATIOS: tuple[float, float] = (0.4, 1.6)
WAVELENGTHS: tuple[float, float] = (900.0, 25000.0)
"""Limits of the panels."""

WAVELENGTH_TICKS: tuple[int, ...] = (1000, 2000, 3000, 5000, 10000, 20000)

LINE_STYLES: tuple[str, str] = ("-", "--")


def save_comparison(one: SolarPopulation, other: SolarPopulation, path: str | Path) -> Path:
    """Draw two libraries at solar metallicity and write the picture as .png, .pdf or .svg; return its path.

    Raises ConfigError (no matplotlib, another suffix), ValueError for libraries without wavelengths in common, OSError
    if the file cannot be written.
    """
    path = check_picture_suffix(path)
    pair, edges = (one, other), common_bins(one.library, other.library)
    title = " and ".join(
        f"{population.library.name} ({line}, Z = {population.metallicity:g})"
        for population, line in zip(pair, ("solid", "dashed"), strict=True)
    )
    with saved_figure(path, (11.5, 6.6), title, dpi=150) as figure:
        grid: Any = figure.subplots(2, 2, width_ratios=(1.7, 1), height_ratios=(1.5, 1))
        (spectra, masses), (ratios, widths) = grid
        _draw_spectra(spectra, ratios, pair, edges)
        for population, style, color in zip(pair, LINE_STYLES, SPAXEL_COLORS, strict=False):
            library, line = population.library, {"color": color, "linewidth": 1.2, "label": population.library.name}
            masses.plot(10.0 ** np.asarray(library.log_age), population.mass_to_light, style, **line)
            wavelength = np.asarray(library.rest_wavelength)
            shown = (wavelength >= WAVELENGTHS[0]) & (wavelength <= WAVELENGTHS[1])
            widths.plot(wavelength[shown], library.fwhm[shown], style, **line)
        masses.set(xscale="log", yscale="log", xlabel="age (yr)", ylabel="mass at birth / V light (solar)")
        masses.legend(frameon=False, loc="upper left")
        _set_wavelengths(widths, *WAVELENGTHS)
        widths.set(yscale="log", xlabel="wavelength in vacuum (Å)", ylabel="resolution, FWHM (Å)")
        for axes in grid.ravel():
            axes.grid(color="#dddddd", linewidth=0.5)
            axes.spines[["top", "right"]].set_visible(False)
    return path


def _draw_spectra(
    spectra: "Axes", ratios: "Axes", pair: tuple[SolarPopulation, SolarPopulation], edges: Float[ndarray, " edge"]
) -> None:
    """Draw means over bins as wide as the coarser resolution, on one scale, and their ratios."""
    middles = 0.5 * (edges[1:] + edges[:-1])
    inside = (middles >= WAVELENGTHS[0]) & (middles <= WAVELENGTHS[1])
    brightest = 0.0
    for (label, log_age), color in zip(AGES.items(), SPAXEL_COLORS, strict=False):
        light = [
            spectrum_bin_means(np.asarray(population.library.rest_wavelength), population.spectrum(log_age), edges)
            for population in pair
        ]
        for values, style, text in zip(light, LINE_STYLES, (label, None), strict=True):
            spectra.plot(middles, middles * values, style, color=color, linewidth=0.7, label=text)
            brightest = max(brightest, np.max((middles * values)[inside & np.isfinite(values)], initial=0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios.plot(middles, light[1] / light[0], color=color, linewidth=0.7)
    for axes in (spectra, ratios):
        _set_wavelengths(axes, max(edges[0], WAVELENGTHS[0]), min(edges[-1], WAVELENGTHS[1]))
    spectra.set(yscale="log", ylabel="λ × light (Lsun per Msun at birth)")
    if brightest > 0.0:
        spectra.set_ylim(DEEPEST * brightest, 2.0 * brightest)
    spectra.legend(frameon=False, loc="upper right", ncols=2)
    ratios.set(ylim=RATIOS, ylabel="ratio, second to first", xlabel="wavelength in vacuum (Å)")


def _set_wavelengths(axes: "Axes", low: float, high: float) -> None:
    """Make the axis logarithmic, with plain numbers."""
    axes.set_xscale("log")
    axes.set_xticks(WAVELENGTH_TICKS, [str(tick) for tick in WAVELENGTH_TICKS])
    axes.minorticks_off()
    axes.set_xlim(low, high)
