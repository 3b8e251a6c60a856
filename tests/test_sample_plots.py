"""Pictures of samples: the numbers that are drawn, and the files that appear."""

import functools
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure
from scipy.special import ndtr
from test_cube import make_cube

from rubix_like.cli import main
from rubix_like.cube import NOT_FITTED
from rubix_like.errors import ConfigError
from rubix_like.inference.convergence import Convergence
from rubix_like.inference.free import Free, FreeParameter
from rubix_like.inference.laplace import Laplace
from rubix_like.inference.priors import LogNormal, Normal, Uniform
from rubix_like.inference.quality import Quality, Scatter
from rubix_like.inference.sample_result import SampleResult, values_of
from rubix_like.plots.fit_parameters import MOST_PAIRED, contour
from rubix_like.plots.sample_corner import draw_corner
from rubix_like.plots.sample_predictive import banded_spectra, draw_predictive, predictive_images
from rubix_like.plots.sample_result import MOST_FOLLOWED, sample_drawings, sample_view, save_sample_pictures
from rubix_like.plots.sample_trace import draw_followed
from rubix_like.plots.sample_view import CONTOURS, density_of, evenly_chosen

N_DRAW = 400
N_CHAIN = 2

PARAMETERS = (
    FreeParameter(Uniform(20.0, 80.0), "observation.inclination", (), "deg"),
    FreeParameter(Normal(0.0, 0.5), "observation.offset", (2,), "arcsec"),
    FreeParameter(LogNormal(1e10, 0.3), "galaxy.stellar_mass", (), "Msun"),
)


def latents(n_latent, scale):
    """Draws of correlated latents, the first of them with a tail."""
    random = np.random.default_rng(4)
    draws = random.standard_normal((N_CHAIN, N_DRAW, n_latent))
    draws[..., 1] = 0.9 * draws[..., 0] + 0.3 * draws[..., 1]
    draws[..., 0] += 0.4 * draws[..., 0] ** 2
    return scale * draws + 0.2


def make_result(parameters=PARAMETERS, scale=0.05, method="nuts"):
    """Draws of which nothing was computed; the second voxel of one spaxel was left out."""
    free = Free(parameters)
    latent = latents(free.n_latent, scale)
    latent = latent if method == "nuts" else latent[:1]
    random = np.random.default_rng(5)
    diverging = np.zeros(latent.shape[:2], bool)
    diverging[0, [3, 70]] = True
    loss = 0.5 * np.sum(((latent - 0.2) / scale) ** 2, axis=2)
    statistics = {"loss": loss, "diverging": diverging} if method == "nuts" else {"loss": loss}
    covariance = scale**2 * np.eye(free.n_latent)
    best = np.full(free.n_latent, 0.2)
    mask = np.zeros((3, 5, 4), np.int32)
    mask[1, 2, 3] = NOT_FITTED
    plain = make_cube(mask=np.zeros((3, 5, 4), np.int32))
    flux = 100.0 + np.arange(60.0).reshape(3, 5, 4)
    model = replace(plain, flux=flux, variance=np.full((3, 5, 4), 9.0))
    numbers = np.arange(free.n_latent, dtype=float)
    return SampleResult(
        free=free,
        method=method,
        latent=latent,
        values=values_of(free, latent),
        statistics=statistics,
        step_size=np.full(N_CHAIN, 0.5) if method == "nuts" else None,
        keys=np.zeros((N_CHAIN, 2), np.uint32),
        diagnostics=Convergence(1 + numbers / 1000, 700 - numbers, 600 - numbers, np.ones(len(latent))),
        best=best,
        laplace=Laplace(free, best, np.linalg.inv(covariance) - np.eye(free.n_latent), covariance),
        quality=Quality(12.0, 59, free.n_latent, 8.0),
        scatter=Scatter(59, 50.0, 0.7, 0.95),
        model=model,
        predictive=replace(model, variance=np.full((3, 5, 4), 25.0), mask=mask),
        residual=replace(
            model, flux=4.0 * random.standard_normal((3, 5, 4)), variance=np.full((3, 5, 4), 16.0), mask=mask
        ),
        config="",
        versions={},
    )
