"""Plain arrays for the pictures of posterior samples: draws, diagnostics and predictions."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.linalg import solve_triangular
from scipy.ndimage import gaussian_filter, map_coordinates

from rubix_like.plots.fits.fit_view import FitView, Inferred, light

CONTOURS: tuple[float, ...] = tuple(1 - float(np.exp(-0.5 * radius**2)) for radius in (1, 2))
"""Shares of the draws within the contours of two numbers, 39 % and 86 %: of a normal distribution 1 and 2 sigma."""

_FEWEST = 20
"""Number of draws from which contours are made."""

_MOST_CELLS = 400
"""Largest number of cells of the grid of a density, along each axis."""

_ROUNDEST = 1e-9
"""Added to the unit variances of numbers that determine each other."""


@dataclass(frozen=True, eq=False)
class Corner:
    """The numbers that are drawn pair by pair, draws in a row.

    | field | shape | meaning |
    |---|---|---|
    | drawn | | mean and covariance of the draws' latents, and the maps to values |
    | laplace | | the Gaussian approximation of the same latents; None without one |
    | latent, values | (draw, number) | |
    | within | (number, number) | covariance of the latents within the chains |
    | diverging | (draw,) | whether the trajectory left the posterior's energy |
    """

    drawn: Inferred
    laplace: Inferred | None
    latent: Float[ndarray, "draw number"]
    values: Float[ndarray, "draw number"]
    within: Float[ndarray, "number number"]
    diverging: Bool[ndarray, " draw"]


@dataclass(frozen=True, eq=False)
class Followed:
    """One number draw by draw: its name, unit and values, R-hat and effective sample sizes (NaN: there are none)."""

    name: str
    unit: str
    values: Float[ndarray, "chain draw"]
    r_hat: float = float("nan")
    ess_bulk: float = float("nan")
    ess_tail: float = float("nan")


@dataclass(frozen=True, eq=False)
class SampleView:
    """What is drawn: numbers pair by pair; numbers draw by draw (none: the draws are no chains); what is predicted.

    `cubes`: the data and what is predicted, sigma being the data's times the noise scale; `model_sigma` and
    `predicted_sigma` (y, x, wave): standard deviations of the model over the posterior, and of data as predicted.
    """

    title: str
    corner: Corner
    followed: tuple[Followed, ...]
    diverging: Bool[ndarray, "chain draw"]
    cubes: FitView
    model_sigma: Float[ndarray, "y x wave"]
    predicted_sigma: Float[ndarray, "y x wave"]


@dataclass(frozen=True, eq=False)
class Density:
    """Density of draws of two latents: `height` on cells with the middles `latent`, and the heights that contours
    have."""

    latent: Float[ndarray, "2 i j"]
    height: Float[ndarray, "i j"]
    levels: tuple[float, ...]


def density_of(
    latent: Float[ndarray, "draw 2"], within: Float[ndarray, "2 2"], shares: tuple[float, ...] = CONTOURS
) -> Density | None:
    """The smoothed histogram of draws, and the heights above which these shares of them lie; None of too few draws.

    It is made in coordinates in which draws within a chain have unit variance and no correlation, with a normal kernel
    of the width n^(-1/6) (Scott 1992, Multivariate Density Estimation, section 6.3): thin ellipses stay thin.
    """
    sigma = np.sqrt(np.diag(within))
    if len(latent) < _FEWEST or not (np.isfinite(latent).all() and (sigma > 0).all()):
        return None
    scaled = within / np.outer(sigma, sigma) + _ROUNDEST * np.eye(2)
    factor = sigma[:, None] * np.linalg.cholesky(scaled)
    mean = latent.mean(axis=0)
    white = solve_triangular(factor, (latent - mean).T, lower=True)
    width = len(latent) ** (-1 / 6)
    edges = [_edges(values, width) for values in white]
    counts = np.histogram2d(*white, bins=edges)[0]
    steps = np.array([nodes[1] - nodes[0] for nodes in edges])
    height = gaussian_filter(counts, width / steps, mode="constant")
    first = np.array([nodes[0] for nodes in edges])
    at_draws = map_coordinates(height, (white - first[:, None]) / steps[:, None] - 0.5, order=1, mode="nearest")
    levels = np.quantile(at_draws, [1 - share for share in shares])
    middles = np.meshgrid(*[(nodes[1:] + nodes[:-1]) / 2 for nodes in edges], indexing="ij")
    return Density(
        mean[:, None, None] + np.einsum("ab,bij->aij", factor, np.stack(middles)), height, tuple(map(float, levels))
    )


def _edges(white: Float[ndarray, " draw"], width: float) -> Float[ndarray, " edge"]:
    """Cells of a third of the kernel's width, four widths beyond the outermost draws."""
    low, high = white.min() - 4 * width, white.max() + 4 * width
    return np.linspace(low, high, min(int(np.ceil((high - low) / (width / 3))), _MOST_CELLS) + 1)


def evenly_chosen(count: int, most: int) -> Int[ndarray, " chosen"]:
    """Numbers of at most `most` out of `count` things in a row, at even distances."""
    return np.arange(0, count, max(-(-count // most), 1))


@dataclass(frozen=True, eq=False)
class Summed:
    """Spectra of all fitted voxels, bin by bin (NaN where there is none): sums, and the sigma of the noise.

    `model_sigma` is an upper limit, that of spaxels which err together (Minkowski's inequality: the sigma of a sum is
    at most the sum of the sigmas); so is `extra_sigma`, of all that is predicted beside the noise.
    """

    flux: Float[ndarray, " wave"]
    model: Float[ndarray, " wave"]
    noise_sigma: Float[ndarray, " wave"]
    model_sigma: Float[ndarray, " wave"]
    extra_sigma: Float[ndarray, " wave"]


def summed(view: SampleView) -> Summed:
    """Spectra of data and predictions summed over the spaxels."""
    cubes = view.cubes
    used = cubes.used

    def total(values: Float[ndarray, "y x wave"]) -> Float[ndarray, " wave"]:
        return np.where(used.any(axis=(0, 1)), np.sum(np.where(used, values, 0), axis=(0, 1)), np.nan)

    noise = 1 / np.where(used, cubes.inverse_sigma, 1)
    extra = np.sqrt(np.maximum(view.predicted_sigma**2 - noise**2, 0))
    sums = [total(values) for values in (cubes.flux, cubes.model, noise**2, view.model_sigma, extra)]
    return Summed(sums[0], sums[1], np.sqrt(sums[2]), sums[3], sums[4])


def model_light_sigma(view: SampleView) -> Float[ndarray, "y x"]:
    """Sigma of the model's white light over that of the data's noise: an upper limit, of bins that err together."""
    cubes = view.cubes
    inverse = np.where(cubes.used, cubes.inverse_sigma, np.inf)
    noise = np.sqrt(np.sum((np.diff(cubes.bins.edges) / inverse) ** 2, axis=2))
    return light(cubes, view.model_sigma) / np.where(noise > 0, noise, np.nan)
