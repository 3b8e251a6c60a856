"""One picture of a cube: white light, velocity map and spectra (needs the `plots` extra)."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.atomic import replacing
from rubix_like.cube import OUTSIDE_APERTURE, OUTSIDE_SSP, Cube, white_light
from rubix_like.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FAINT: float = 0.002
"""Spaxels with less than this fraction of the brightest one's light have no colour in the velocity map."""

_FLUX_LABEL = r"$10^{-20}$ erg s$^{-1}$ cm$^{-2}$"
_INK = "#333333"
_STYLE: Any = {
    "font.size": 9,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.linewidth": 0.7,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "xtick.color": _INK,
    "ytick.color": _INK,
    "xtick.direction": "in",
    "ytick.direction": "in",
    "mathtext.default": "regular",
}


def require_matplotlib() -> None:
    """Raise ConfigError, with the remedy, if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("--plot needs matplotlib: pip install 'rubix-like[plots]'")


def save_quicklook(cube: Cube, path: str | Path) -> Path:
    """Draw white light, the light-weighted velocity (if the cube has it) and two spectra; write a PNG, return its path.

    Raises ConfigError if matplotlib is not installed, OSError if the file cannot be written.
    """
    require_matplotlib()
    from matplotlib import rc_context  # noqa: PLC0415 (an optional extra)
    from matplotlib.figure import Figure  # noqa: PLC0415

    path = Path(path).expanduser()
    with rc_context(_STYLE):
        figure = Figure(figsize=(9.6, 7.4), layout="constrained")
        _draw(figure, cube)
        with replacing(path) as temporary:
            figure.savefig(temporary, format="png", dpi=150)
    return path


def _draw(figure: "Figure", cube: Cube) -> None:
    light = white_light(cube)
    outside = np.all(np.asarray(cube.mask) & OUTSIDE_APERTURE != 0, axis=2)
    parts: Any = figure.subfigures(2, 1, height_ratios=(1.15, 1))
    maps, spectra = parts
    figure.suptitle(_title(cube), x=0.01, ha="left", fontsize=11, fontweight="bold", color=_INK)
    left, right = maps.subplots(1, 2)
    _draw_light(left, cube, light, outside)
    _finish_map(left, cube, "white")
    if cube.mean_v_los is None:
        right.set_axis_off()
        right.text(0.5, 0.5, "this cube holds no velocity map", color="#888888", ha="center", transform=right.transAxes)
    else:
        _draw_velocity(right, cube, np.asarray(cube.mean_v_los, dtype=np.float64), light)
        _finish_map(right, cube, _INK)
    _draw_spectra(spectra.subplots(2, 1, sharex=True), cube, light)


def _title(cube: Cube) -> str:
    meta = cube.meta
    words = [str(meta[key]) for key in ("object", "instrument") if meta.get(key)]
    if meta.get("redshift") is not None:
        words.append(f"z = {meta['redshift']:g}")
    if meta.get("inclination") is not None:
        words.append(f"inclination {meta['inclination']:g}°")
    return "   ·   ".join(words) or "mock cube"


def _extent(cube: Cube) -> tuple[float, float, float, float]:
    """Left, right, bottom, top of the field in arcsec East and North of its centre (East is left)."""
    n_y, n_x, _ = cube.flux.shape
    half_x, half_y = n_x * cube.pixel_scale / 2, n_y * cube.pixel_scale / 2
    return half_x, -half_x, -half_y, half_y


def _draw_light(axes: "Axes", cube: Cube, light: Float[ndarray, "y x"], outside: Bool[ndarray, "y x"]) -> None:
    from matplotlib.colors import LogNorm, Normalize  # noqa: PLC0415

    brightness = np.ma.array(light / cube.pixel_scale**2, mask=outside | ~(light > 0))
    peak = float(brightness.max()) if brightness.count() else 1.0
    low = max(float(brightness.min()) if brightness.count() else 0.0, peak * 1e-4)
    norm = LogNorm(low, peak) if 0 < low < peak else Normalize(0, max(peak, 1e-30))
    axes.set_facecolor("black")
    image = axes.imshow(
        brightness, origin="lower", extent=_extent(cube), norm=norm, cmap="magma", interpolation="nearest"
    )
    axes.set_title("white light")
    axes.figure.colorbar(image, ax=axes, label=f"{_FLUX_LABEL} arcsec$^{{-2}}$", fraction=0.05, pad=0.02)


def _draw_velocity(axes: "Axes", cube: Cube, velocity: Float[ndarray, "y x"], light: Float[ndarray, "y x"]) -> None:
    bright = np.isfinite(velocity) & (light > FAINT * light.max())
    values = velocity[bright] if bright.any() else np.zeros(1)
    middle = float(np.median(values))
    half = max(float(np.percentile(np.abs(values - middle), 98)), 1.0)
    axes.set_facecolor("#e6e6e6")
    image = axes.imshow(
        np.ma.array(velocity, mask=~bright),
        origin="lower",
        extent=_extent(cube),
        cmap="RdBu_r",
        vmin=middle - half,
        vmax=middle + half,
        interpolation="nearest",
    )
    axes.set_title("mean line-of-sight velocity (light-weighted)")
    axes.figure.colorbar(image, ax=axes, label="km s$^{-1}$", fraction=0.05, pad=0.02, extend="both")


def _finish_map(axes: "Axes", cube: Cube, color: str) -> None:
    """Labels, the two arrows of the sky and the scale bar, in `color`."""
    style: Any = {"color": color, "fontsize": 8, "ha": "center", "va": "center"}
    arrow = {"arrowstyle": "-", "color": color, "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0}
    for label, tip in (("N", (0.94, 0.19)), ("E", (0.81, 0.06))):
        axes.annotate(label, xytext=tip, xy=(0.94, 0.06), xycoords="axes fraction", arrowprops=arrow, **style)
    axes.set_xlabel("East (arcsec)")
    axes.set_ylabel("North (arcsec)")
    kpc = _kpc_per_arcsec(cube)
    if kpc:
        _draw_scale_bar(axes, cube, kpc, color)


def _kpc_per_arcsec(cube: Cube) -> float | None:
    """D_A = D_L / (1 + z)^2 as kpc per arcsec; None where the cube does not know its distance."""
    distance, redshift = cube.meta.get("luminosity_distance"), cube.meta.get("redshift")
    if not isinstance(distance, int | float) or not isinstance(redshift, int | float):
        return None
    return float(np.radians(1 / 3600) * 1000 * distance / (1 + redshift) ** 2)


def _draw_scale_bar(axes: "Axes", cube: Cube, kpc_per_arcsec: float, color: str) -> None:
    """A bar of a round number of kpc, about a quarter of the field long."""
    left, right, bottom, top = _extent(cube)
    target = 0.25 * (left - right) * kpc_per_arcsec
    decade = 10.0 ** np.floor(np.log10(target))
    length = decade * max(step for step in (1, 2, 5) if step * decade <= target)
    start, height = left - 0.06 * (left - right), bottom + 0.06 * (top - bottom)
    axes.plot([start, start - length / kpc_per_arcsec], [height, height], color=color, linewidth=1.6)
    middle = start - length / kpc_per_arcsec / 2
    axes.text(middle, height + 0.02 * (top - bottom), f"{length:g} kpc", color=color, fontsize=8, ha="center")


def _draw_spectra(panels: Any, cube: Cube, light: Float[ndarray, "y x"]) -> None:
    """The integrated spectrum and that of the brightest spaxel, with its one-sigma band if there is noise."""
    flux, mask = np.asarray(cube.flux), np.asarray(cube.mask)
    wavelength = np.asarray(cube.wavelength)
    row, column = np.unravel_index(int(np.argmax(light)), light.shape)
    left, right, bottom, top = _extent(cube)
    east = left + (column + 0.5) / flux.shape[1] * (right - left)
    north = bottom + (row + 0.5) / flux.shape[0] * (top - bottom)
    missing = np.all(mask & OUTSIDE_SSP != 0, axis=(0, 1))
    total = np.where(missing, np.nan, np.sum(flux, axis=(0, 1), where=mask == 0, dtype=np.float64))
    brightest = np.where(mask[row, column] == 0, flux[row, column], np.nan)
    panels[0].plot(wavelength, total, color="#1f3b73", linewidth=0.7)
    panels[0].set_title("whole field" + (" (grey: outside the SSP library)" if missing.any() else ""))
    panels[1].plot(wavelength, brightest, color="#a3333d", linewidth=0.7)
    panels[1].set_title(f"brightest spaxel ({east + 0:+.2f}″ East, {north + 0:+.2f}″ North)")
    if cube.variance is not None:
        sigma = np.sqrt(np.asarray(cube.variance, dtype=np.float64)[row, column])
        panels[1].fill_between(wavelength, brightest - sigma, brightest + sigma, color="#a3333d", alpha=0.25, lw=0)
    for panel in panels:
        _finish_spectrum(panel, cube, missing)
    panels[0].figure.supylabel(f"{_FLUX_LABEL} Å$^{{-1}}$", fontsize=9, color=_INK)
    panels[1].set_xlabel(f"wavelength in {cube.medium} (Å)")


def _finish_spectrum(axes: "Axes", cube: Cube, missing: Bool[ndarray, " wave"]) -> None:
    edges = np.asarray(cube.wave_edges)
    axes.set_xlim(edges[0], edges[-1])
    axes.margins(y=0.08)
    axes.grid(color="#dddddd", linewidth=0.5)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 4), useMathText=True)
    axes.spines[["top", "right"]].set_visible(False)
    if missing.any():
        low, high = axes.get_ylim()
        axes.fill_between(edges[:-1], low, high, where=missing, step="post", color="#cccccc", lw=0)
        axes.set_ylim(low, high)
