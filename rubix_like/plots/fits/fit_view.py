"""Plain arrays for the pictures of a fit: data, model, steps of the starts, and the Laplace approximation."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.constants import SPEED_OF_LIGHT
from rubix_like.cube.bins import WavelengthBins
from rubix_like.plots.sky_offsets import SkyOffsets

LatentNodes = Float[ndarray, "#parameter node"]

LATENT_GRID: Float[ndarray, " node"] = np.linspace(-8.0, 8.0, 641)
"""Latents at which the priors' maps are tabulated: values of a parameter against its standard normal latent."""

_WELL_WITHIN = 12.0
"""Standard deviations about the middle of a parameter's distribution within which its map is tabulated more finely."""


def fine_nodes(latent: Float[ndarray, " parameter"], sigma: Float[ndarray, " parameter"]) -> LatentNodes:
    """LATENT_GRID and as many latents where a distribution is, however narrow, for each parameter in rising order."""
    near = latent[:, None] + sigma[:, None] * np.linspace(-_WELL_WITHIN, _WELL_WITHIN, LATENT_GRID.size)
    whole = np.broadcast_to(LATENT_GRID, near.shape)
    return np.sort(np.concatenate([whole, np.clip(near, LATENT_GRID[0], LATENT_GRID[-1])], axis=1), axis=1)


@dataclass(frozen=True, eq=False)
class Trace:
    """One start: its loss and the norm of the gradient after every step, and whether it converged."""

    loss: Float[ndarray, " step"]
    gradient_norm: Float[ndarray, " step"]
    converged: bool = True


@dataclass(frozen=True, eq=False)
class AtEdge:
    """A value at the edge of its prior: its limit or interval in `words`, and, where it is known, the density of its
    latent on `latent`, rising."""

    words: str
    latent: Float[ndarray, " node"] = field(default_factory=lambda: np.zeros(0))
    density: Float[ndarray, " node"] = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, eq=False)
class Inferred:
    """The Laplace approximation: a normal distribution of the latents, and each parameter's map to its value.

    | field | shape | meaning |
    |---|---|---|
    | labels, units | (parameter,) | dotted names with an index where they have several values; units |
    | latent, covariance | (parameter,), (parameter, parameter) | of the latents, whose prior is standard normal |
    | prior | (parameter, node) | values at the latents `nodes` |
    | truth | (parameter,) or None | the values that the data were made of (NaN: not known) |
    | nodes | (1 or parameter, node) | rising; by default LATENT_GRID |
    | limits | by parameter's number | of those at the edge of their prior, whose distribution is not normal |
    """

    labels: tuple[str, ...]
    units: tuple[str, ...]
    latent: Float[ndarray, " parameter"]
    covariance: Float[ndarray, "parameter parameter"]
    prior: Float[ndarray, "parameter node"]
    truth: Float[ndarray, " parameter"] | None = None
    nodes: LatentNodes = field(default_factory=lambda: LATENT_GRID[None])
    limits: Mapping[int, AtEdge] = field(default_factory=dict)

    @property
    def sigma(self) -> Float[ndarray, " parameter"]:
        """Standard deviations of the latents: 1 where the data say nothing."""
        return np.sqrt(np.diag(self.covariance))

    def value(self, parameter: int, latent: Float[ndarray, "..."] | float) -> Float[ndarray, "..."]:
        """Values of one parameter at latents."""
        return np.asarray(np.interp(latent, self._nodes(parameter), self.prior[parameter]))

    def true_latent(self) -> Float[ndarray, " parameter"]:
        """Latents of the truth; NaN where it is not known, or outside the prior."""
        if self.truth is None:
            return np.full(len(self.labels), np.nan)
        return np.array([_inverse(value, self._nodes(n), self.prior[n]) for n, value in enumerate(self.truth)])

    def pull(self) -> Float[ndarray, " parameter"]:
        """(latent - that of the truth) / sigma; NaN where the truth is not known."""
        return (self.latent - self.true_latent()) / self.sigma

    def _nodes(self, parameter: int) -> Float[ndarray, " node"]:
        return self.nodes[parameter % len(self.nodes)]


def _inverse(value: float, nodes: Float[ndarray, " node"], values: Float[ndarray, " node"]) -> float:
    """The latent of a value, between the nodes that differ (a prior with bounds is flat towards its ends)."""
    rising = np.append(True, np.diff(values) > 0)
    inside = values[0] <= value <= values[-1]
    return float(np.interp(value, values[rising], nodes[rising])) if inside else float("nan")


@dataclass(frozen=True, eq=False)
class FitView:
    """Data and model of a fit on one grid, the starts, and what is known of the parameters.

    `flux`, `model` (with the continuum's polynomial), `inverse_sigma` (0: left out of the fit): (y, x, wave), in
    1e-20 erg/s/cm2/Angstrom per spaxel and its inverse; `bins`: of the wavelengths; `velocity` (km/s): light-weighted
    mean of the model, None where it is not known.
    """

    title: str
    sky: SkyOffsets
    bins: WavelengthBins
    flux: Float[ndarray, "y x wave"]
    model: Float[ndarray, "y x wave"]
    inverse_sigma: Float[ndarray, "y x wave"]
    traces: tuple[Trace, ...] = ()
    inferred: Inferred | None = None
    velocity: Float[ndarray, "y x"] | None = None

    @property
    def used(self) -> ndarray:
        """Which voxels are fitted."""
        return self.inverse_sigma > 0

    @property
    def residual(self) -> Float[ndarray, "y x wave"]:
        """(data - model) / sigma; NaN where a voxel is left out."""
        return np.where(self.used, (np.where(self.used, self.flux, 0) - self.model) * self.inverse_sigma, np.nan)


def light(view: FitView, values: Float[ndarray, "y x wave"]) -> Float[ndarray, "y x"]:
    """Sum of values times bin width over the fitted voxels of every spaxel; NaN where there is none."""
    total = np.sum(np.where(view.used, values, 0) * np.diff(view.bins.edges), axis=2)
    return np.where(view.used.any(axis=2), total, np.nan)


def light_residual(view: FitView) -> Float[ndarray, "y x"]:
    """Light of the data minus that of the model, in units of its own sigma."""
    width = np.diff(view.bins.edges)
    sigma = np.where(view.used, 1 / np.where(view.used, view.inverse_sigma, 1), 0)
    return _ratio(light(view, view.flux) - light(view, view.model), np.sqrt(np.sum((sigma * width) ** 2, axis=2)))


def reduced_chi_square(view: FitView) -> Float[ndarray, "y x"]:
    """Mean over the fitted voxels of a spaxel of ((data - model) / sigma)^2."""
    return _ratio(np.nansum(view.residual**2, axis=2), view.used.sum(axis=2).astype(float))


def velocity_residual(view: FitView) -> tuple[Float[ndarray, "y x"], Float[ndarray, "y x"]]:
    """How much faster the data recede than the model (km/s), and its sigma, spaxel by spaxel, to first order.

    The shift dv and a factor that fit the residuals best: data - model = f model + dv dmodel/dv by least squares, with
    dmodel/dv = -(1 / c) dmodel / dln(wavelength). The spectra are per Angstrom; their factor 1 + v / c is in f.
    """
    slope = -np.gradient(view.model, np.log(view.bins.wavelength), axis=2) / SPEED_OF_LIGHT
    scaled = view.model * view.inverse_sigma
    shifted = slope * view.inverse_sigma
    residual = np.where(view.used, view.residual, 0)
    own, cross, both = (np.sum(a * b, axis=2) for a, b in ((scaled, scaled), (scaled, shifted), (shifted, shifted)))
    determinant = own * both - cross**2
    velocity = own * np.sum(shifted * residual, axis=2) - cross * np.sum(scaled * residual, axis=2)
    return _ratio(velocity, determinant), np.sqrt(_ratio(own, determinant))


def _ratio(above: Float[ndarray, "y x"], below: Float[ndarray, "y x"]) -> Float[ndarray, "y x"]:
    """The ratio of two images; NaN where the denominator is not positive."""
    return np.where(below > 0, above / np.where(below > 0, below, 1), np.nan)
