"""Maps of a fit: light of data and model, where and how the model is wrong."""

from typing import TYPE_CHECKING, Any

import numpy as np

from rubix_like.plots.derived import SkyImage
from rubix_like.plots.fits.fit_view import FitView, light, light_residual, reduced_chi_square, velocity_residual
from rubix_like.plots.images import draw_image
from rubix_like.plots.style import LIGHT_LABEL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS: int = 3

WELL_KNOWN: float = 5.0
"""Shifts are drawn where their sigma is at most this many times the smallest one."""


def fit_images(view: FitView) -> tuple[SkyImage, ...]:
    """White light of data and model, its residual, chi^2 per voxel, the shift of the lines, the model's velocity."""
    area = view.sky.pixel_scale**2
    velocity, sigma = velocity_residual(view)
    known = sigma <= WELL_KNOWN * np.min(sigma[np.isfinite(sigma)], initial=np.inf)
    images = [
        SkyImage("data: white light", light(view, view.flux) / area, LIGHT_LABEL, "brightness"),
        SkyImage("model: white light", light(view, view.model) / area, LIGHT_LABEL, "brightness"),
        SkyImage("data − model: white light", light_residual(view), "σ", "deviation"),
        SkyImage("χ² per fitted voxel", reduced_chi_square(view)),
        SkyImage("data − model: velocity", np.where(known, velocity, np.nan), "km s⁻¹", "deviation"),
    ]
    if view.velocity is None:
        return (*images, SkyImage("data − model: velocity / its σ", _ratio(velocity, sigma), "σ", "deviation"))
    return (*images, SkyImage("model: mean velocity", view.velocity, "km s⁻¹", "velocity"))


def _ratio(value: Any, sigma: Any) -> Any:
    return np.where(sigma > 0, value / np.where(sigma > 0, sigma, 1), np.nan)


def draw_fit_maps(figure: "Figure", view: FitView) -> None:
    """All images; the model's light in the colours of the data's."""
    images = fit_images(view)
    grid: Any = figure.subplots(-(-len(images) // COLUMNS), COLUMNS, squeeze=False)
    for number, (axes, image) in enumerate(zip(grid.ravel(), images, strict=True)):
        draw_image(axes, image, view.sky, images[0].scale if number == 1 else None)
        axes.locator_params(nbins=5)
        if number % COLUMNS:
            axes.set_ylabel("")
        if number + COLUMNS < len(images):
            axes.set_xlabel("")
