"""One figure of two SSP libraries: spectra, their ratio, mass-to-light ratios, resolution (needs the `plots` extra)."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.plots.figure import check_picture_suffix
from rubix_like.plots.style import FIGURE_STYLE, INK, SPAXEL_COLORS, import_matplotlib, write_picture
from rubix_like.ssp.comparison import AGES, SolarPopulation, common_bins, spectrum_bin_means

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    make_figure, rc_context = import_matplotlib("matplotlib.figure").Figure, import_matplotlib().rc_context
    path = check_picture_suffix(path)
    edges = common_bins(one.library, other.library)
    with rc_context(FIGURE_STYLE):
        figure = make_figure(figsize=(11.5, 6.6), layout="constrained")
        _draw(figure, one, other, edges)
        write_picture(figure, path, dpi=150)
    return path


def _draw(figure: "Figure", one: SolarPopulation, other: SolarPopulation, edges: Float[ndarray, " edge"]) -> None:
    grid: Any = figure.subplots(2, 2, width_ratios=(1.7, 1), height_ratios=(1.5, 1))
    (spectra, masses), (ratios, widths) = grid
    title: Any = {"x": 0.01, "ha": "left", "fontsize": 11, "fontweight": "bold", "color": INK, "parse_math": False}
    names = [
        f"{population.library.name} ({line}, Z = {population.metallicity:g})"
        for population, line in ((one, "solid"), (other, "dashed"))
    ]
    figure.suptitle(" and ".join(names), **title)
    _draw_spectra(spectra, ratios, one, other, edges)
    for population, style, color in zip((one, other), LINE_STYLES, SPAXEL_COLORS, strict=False):
        ages = 10.0 ** np.asarray(population.library.log_age)
        masses.plot(ages, population.mass_to_light, style, color=color, linewidth=1.2, label=population.library.name)
    masses.set_xscale("log")
    masses.set_yscale("log")
    masses.set_xlabel("age (yr)")
    masses.set_ylabel("mass at birth / V light (solar)")
    masses.legend(frameon=False, loc="upper left")
    _draw_resolution(widths, one, other)
    for axes in grid.ravel():
        axes.grid(color="#dddddd", linewidth=0.5)
        axes.spines[["top", "right"]].set_visible(False)


def _draw_spectra(
    spectra: "Axes", ratios: "Axes", one: SolarPopulation, other: SolarPopulation, edges: Float[ndarray, " edge"]
) -> None:
    """Means over bins as wide as the coarser resolution, on one scale, and their ratios."""
    middles = 0.5 * (edges[1:] + edges[:-1])
    brightest = 0.0
    for (label, log_age), color in zip(AGES.items(), SPAXEL_COLORS, strict=False):
        light = [
            spectrum_bin_means(np.asarray(population.library.rest_wavelength), population.spectrum(log_age), edges)
            for population in (one, other)
        ]
        for values, style, text in zip(light, LINE_STYLES, (label, None), strict=True):
            spectra.plot(middles, middles * values, style, color=color, linewidth=0.7, label=text)
            brightest = max(brightest, _highest(middles, middles * values))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios.plot(middles, light[1] / light[0], color=color, linewidth=0.7)
    for axes in (spectra, ratios):
        _set_wavelengths(axes, max(edges[0], WAVELENGTHS[0]), min(edges[-1], WAVELENGTHS[1]))
    spectra.set_yscale("log")
    if brightest > 0.0:
        spectra.set_ylim(DEEPEST * brightest, 2.0 * brightest)
    spectra.set_ylabel("λ × light (Lsun per Msun at birth)")
    spectra.legend(frameon=False, loc="upper right", ncols=2)
    ratios.set_ylim(*RATIOS)
    ratios.set_ylabel("ratio, second to first")
    ratios.set_xlabel("wavelength in vacuum (Å)")


def _highest(wavelength: Float[ndarray, " bin"], values: Float[ndarray, " bin"]) -> float:
    shown = values[(wavelength >= WAVELENGTHS[0]) & (wavelength <= WAVELENGTHS[1]) & np.isfinite(values)]
    return float(shown.max()) if shown.size else 0.0


def _draw_resolution(axes: "Axes", one: SolarPopulation, other: SolarPopulation) -> None:
    for population, style, color in zip((one, other), LINE_STYLES, SPAXEL_COLORS, strict=False):
        library = population.library
        wavelength = np.asarray(library.rest_wavelength)
        shown = (wavelength >= WAVELENGTHS[0]) & (wavelength <= WAVELENGTHS[1])
        axes.plot(wavelength[shown], library.fwhm[shown], style, color=color, linewidth=1.2, label=library.name)
    _set_wavelengths(axes, *WAVELENGTHS)
    axes.set_yscale("log")
    axes.set_xlabel("wavelength in vacuum (Å)")
    axes.set_ylabel("resolution, FWHM (Å)")


def _set_wavelengths(axes: "Axes", low: float, high: float) -> None:
    """A logarithmic axis with plain numbers."""
    axes.set_xscale("log")
    axes.set_xticks(WAVELENGTH_TICKS, [str(tick) for tick in WAVELENGTH_TICKS])
    axes.minorticks_off()
    axes.set_xlim(low, high)
