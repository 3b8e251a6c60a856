"""Predictions of the draws against the data: spectra with their bands, and maps of the differences."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.plots.derived import SkyImage
from rubix_like.plots.fits.fit_spectra import Compared, draw_compared, panels_for, ranked_spaxels, spaxel_compared
from rubix_like.plots.fits.fit_view import light, light_residual
from rubix_like.plots.fits.sample_view import SampleView, model_light_sigma, summed
from rubix_like.plots.images import draw_image
from rubix_like.plots.style import LIGHT_LABEL, SPAXEL_COLORS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SPAXELS: tuple[str, ...] = ("brightest", "faint")
"""The spaxels of `ranked_spaxels` that are drawn."""

PREDICTED_COLOR: str = "#bcd9ea"
MODEL_COLOR: str = SPAXEL_COLORS[4]

_WIDTH = 10.5
_SPECTRUM_HEIGHT = 2.4

_ROOM = 0.25
"""For the legend, of the height of a panel."""


@dataclass(frozen=True, eq=False)
class Banded:
    """Spectra, and per bin the sigma of the data's noise, of the model over the posterior, of data as predicted."""

    compared: Compared
    noise_sigma: Float[ndarray, " wave"]
    model_sigma: Float[ndarray, " wave"]
    predicted_sigma: Float[ndarray, " wave"]


def predictive_size(view: SampleView) -> tuple[float, float]:
    """Width and height of the figure in inches."""
    return _WIDTH, _SPECTRUM_HEIGHT * len(banded_spectra(view)) + _map_height(view) + 0.4


def _map_height(view: SampleView) -> float:
    return 0.85 + 2.5 * float(np.clip(view.cubes.sky.n_y / view.cubes.sky.n_x, 0.3, 3.0))


def draw_predictive(figure: "Figure", view: SampleView) -> None:
    """Spectra of the sum of all spaxels, the brightest and a faint one, each with its residual, above three maps."""
    spectra = banded_spectra(view)
    heights = (_SPECTRUM_HEIGHT * len(spectra), _map_height(view))
    parts: Any = figure.subfigures(2, 1, height_ratios=heights)
    for (upper, lower), spectrum in zip(panels_for(parts[0], view.cubes, len(spectra)), spectra, strict=True):
        draw_compared(upper, lower, view.cubes, spectrum.compared, "predicted")
        _draw_bands(upper, lower, view, spectrum)
    first = parts[0].axes[0]
    low, high = first.get_ylim()
    first.set_ylim(low, high + _ROOM * (high - low))
    first.legend(frameon=False, loc="upper right", ncols=4, fontsize=8)
    _draw_maps(parts[1], view)


def banded_spectra(view: SampleView) -> tuple[Banded, ...]:
    """Spectra with bands: of the sum of all spaxels, whose model sigma is an upper limit, and of single ones."""
    of_all, used = summed(view), np.isfinite(summed(view).flux)
    words = "sum of all spaxels (the model: at most ± 1σ)"
    residual = (of_all.flux - of_all.model) / np.where(used, of_all.noise_sigma, 1)
    total = np.hypot(of_all.noise_sigma, of_all.extra_sigma)
    compared = Compared(words, used, of_all.flux, of_all.model, residual)
    spectra = [Banded(compared, of_all.noise_sigma, of_all.model_sigma, total)]
    for name, (x, y) in ranked_spaxels(view.cubes).items():
        if name in SPAXELS:
            inverse = view.cubes.inverse_sigma[y, x]
            noise = np.where(inverse > 0, 1 / np.where(inverse > 0, inverse, 1), np.nan)
            own = spaxel_compared(view.cubes, name, (x, y))
            spectra.append(Banded(own, noise, view.model_sigma[y, x], view.predicted_sigma[y, x]))
    return tuple(spectra)


def _draw_bands(upper: "Axes", lower: "Axes", view: SampleView, spectrum: Banded) -> None:
    """68 % of the data that are predicted, and of the models; below in units of the data's sigma."""
    wavelength, middle, sigma = view.cubes.bins.wavelength, spectrum.compared.model, spectrum.noise_sigma
    bands = (
        (spectrum.predicted_sigma, "predicted data ± 1σ", PREDICTED_COLOR, 0.9),
        (spectrum.model_sigma, "model ± 1σ", MODEL_COLOR, 0.8),
    )
    for order, (sigmas, label, color, alpha) in enumerate(bands):
        style: Any = {"color": color, "alpha": alpha, "lw": 0, "zorder": 1 + 0.1 * order}
        half = np.where(spectrum.compared.used, sigmas, np.nan)
        upper.fill_between(wavelength, middle - half, middle + half, label=label, **style)
        lower.fill_between(wavelength, -half / sigma, half / sigma, **style)


def predictive_images(view: SampleView) -> tuple[SkyImage, ...]:
    """White light of the data, by how much it differs from the prediction, how well the model knows it."""
    cubes = view.cubes
    return (
        SkyImage("data: white light", light(cubes, cubes.flux) / cubes.sky.pixel_scale**2, LIGHT_LABEL, "brightness"),
        SkyImage("data − predicted: white light", light_residual(cubes), "σ of the data", "deviation"),
        SkyImage("model: σ of the white light", model_light_sigma(view), "σ of the data (at most)"),
    )


def _draw_maps(figure: "Figure", view: SampleView) -> None:
    images = predictive_images(view)
    grid: Any = figure.subplots(1, len(images), squeeze=False)
    for number, (axes, image) in enumerate(zip(grid.ravel(), images, strict=True)):
        draw_image(axes, image, view.cubes.sky)
        axes.locator_params(nbins=5)
        if number:
            axes.set_ylabel("")
