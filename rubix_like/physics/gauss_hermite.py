"""Gauss-Hermite fits to velocity distributions (van der Marel & Franx 1993, ApJ 407, 525), on the host in float64."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

LARGEST_MOMENT: float = 0.3
"""Limit of |h3| and |h4|; beyond, the series is far from being a distribution."""

_ITERATIONS = 100
_CONVERGED = 1e-11
_STUCK = 1e12
_SPAXELS_AT_ONCE = 2048
_LEAST_SIGMA = 0.5

Velocities = Float[ndarray, " velocity"]
Distributions = Float[ndarray, "spaxel velocity"]
Parameters = Float[ndarray, "spaxel 5"]
"""gamma, V, ln sigma, h3, h4 of each distribution."""

Slopes = Float[ndarray, "spaxel velocity 5"]
"""Derivatives with respect to the parameters."""

_SMEARING = ((-np.sqrt(0.4), 5 / 24), (0.0, 7 / 12), (np.sqrt(0.4), 5 / 24))
"""Offsets (in steps) and weights: to degree 5 the moments of the triangle that linear weights spread stars over."""


class GaussHermite(NamedTuple):
    """V and sigma in km/s, h3, h4, one of each per distribution; NaN where there is no fit."""

    v: Float[ndarray, " spaxel"]
    sigma: Float[ndarray, " spaxel"]
    h3: Float[ndarray, " spaxel"]
    h4: Float[ndarray, " spaxel"]


def fit_gauss_hermite(velocity: Velocities, losvd: Distributions) -> GaussHermite:
    """Least-squares fits of a line profile to distributions on uniform velocity bins (km/s).

    L(v) = gamma / (sigma sqrt(2 pi)) exp(-w^2 / 2) [1 + h3 H3(w) + h4 H4(w)], w = (v - V) / sigma, with
    H3 = (2 sqrt(2) w^3 - 3 sqrt(2) w) / sqrt(6) and H4 = (4 w^4 - 12 w^2 + 3) / sqrt(24); all five vary at once,
    |h3| and |h4| up to 0.3. The profile is spread as the linear weights of the bins spread stars, so that sigma is
    that of the stars. NaN where there is no light, where sigma is below half a step, and where no minimum was found.
    """
    step = float(velocity[1] - velocity[0])
    result = np.full((len(losvd), 4), np.nan)
    for first in range(0, len(losvd), _SPAXELS_AT_ONCE):
        block = np.asarray(losvd[first : first + _SPAXELS_AT_ONCE], dtype=np.float64)
        total = block.sum(axis=1) * step
        lit = np.flatnonzero(np.isfinite(total) & (total > 0))
        if lit.size:
            result[first + lit] = _fit(np.asarray(velocity, np.float64), block[lit] / total[lit, None])
    return GaussHermite(*result.T)


def _fit(velocity: Velocities, data: Distributions) -> Float[ndarray, "spaxel 4"]:
    """Levenberg-Marquardt for all distributions (of unit area) side by side: (V, sigma, h3, h4)."""
    width, zero = velocity[1] - velocity[0], np.zeros(len(data))
    mean = data @ velocity * width
    variance = (data * (velocity[None, :] - mean[:, None]) ** 2).sum(axis=1) * width
    sigma = np.sqrt(np.maximum(variance - width**2 / 6, (0.5 * width) ** 2))
    parameters = np.stack([zero + 1, mean, np.log(sigma), zero, zero], axis=1)  # a Gaussian with these moments
    model, jacobian = _model(velocity, parameters)
    residual = data - model
    cost, scale = (residual**2).sum(axis=1), (data**2).sum(axis=1)
    damping, going = np.full(len(data), 1e-3), np.ones(len(data), dtype=bool)
    for _ in range(_ITERATIONS):
        rows = np.flatnonzero(going)
        if not rows.size:
            break
        free = _free(velocity, parameters[rows], jacobian[rows], residual[rows])
        step = _step(jacobian[rows] * free[:, None, :], residual[rows], damping[rows])
        tried = _limited(velocity, parameters[rows] + step)
        model, slopes = _model(velocity, tried)
        left = data[rows] - model
        gained = cost[rows] - (left**2).sum(axis=1)
        better = gained >= 0
        taken = rows[better]
        parameters[taken], residual[taken], jacobian[taken] = tried[better], left[better], slopes[better]
        cost[taken] -= gained[better]
        damping[rows] *= np.where(better, 0.2, 5.0)
        going[rows] = ~(better & (gained <= _CONVERGED * scale[rows])) & (damping[rows] < _STUCK)
    sigma = np.exp(parameters[:, 2])
    fitted = np.stack([parameters[:, 1], sigma, parameters[:, 3], parameters[:, 4]], axis=1)
    bad = going | (sigma < _LEAST_SIGMA * width)
    return np.where(bad[:, None], np.nan, fitted)


def _free(
    velocity: Velocities,
    parameters: Parameters,
    jacobian: Slopes,
    residual: Distributions,
) -> Bool[ndarray, "spaxel 5"]:
    """Which parameters can take a step: all but those at a limit that the fit pulls beyond it."""
    pull = np.einsum("svi,sv->si", jacobian, residual)
    beyond = parameters + 1e-9 * np.sign(pull)
    return np.abs(_limited(velocity, beyond) - parameters) > 0


def _limited(velocity: Velocities, parameters: Parameters) -> Parameters:
    """Parameters within what a fit may reach."""
    step, width = velocity[1] - velocity[0], velocity[-1] - velocity[0]
    lowest = [0.0, velocity[0], np.log(0.1 * step), -LARGEST_MOMENT, -LARGEST_MOMENT]
    highest = [10.0, velocity[-1], np.log(width), LARGEST_MOMENT, LARGEST_MOMENT]
    return np.clip(parameters, lowest, highest)


def _step(
    jacobian: Slopes,
    residual: Distributions,
    damping: Float[ndarray, " spaxel"],
) -> Parameters:
    """The step of Levenberg and Marquardt, damped by the diagonal."""
    normal = np.einsum("svi,svj->sij", jacobian, jacobian)
    diagonal = np.einsum("sii->si", normal)
    least = 1e-12 * diagonal.max(axis=1, keepdims=True) + np.finfo(float).tiny
    normal = normal + np.eye(5) * (damping[:, None] * diagonal + least)[:, :, None]
    slope = np.einsum("svi,sv->si", jacobian, residual)
    return np.linalg.solve(normal, slope[:, :, None])[:, :, 0]


def _model(velocity: Velocities, parameters: Parameters) -> tuple[Distributions, Slopes]:
    """The profile on the bins, and its derivatives with respect to gamma, V, ln sigma, h3, h4."""
    step = velocity[1] - velocity[0]
    parts = [(weight, _profile(velocity + offset * step, parameters)) for offset, weight in _SMEARING]
    values = np.sum([weight * profile for weight, (profile, _) in parts], axis=0)
    return values, np.sum([weight * jacobian for weight, (_, jacobian) in parts], axis=0)


def _profile(velocity: Velocities, parameters: Parameters) -> tuple[Distributions, Slopes]:
    """The profile at velocities, and its derivatives."""
    gamma, v, log_sigma, h3, h4 = (column[:, None] for column in parameters.T)
    sigma = np.exp(log_sigma)
    w = (velocity[None, :] - v) / sigma
    gaussian = np.exp(-0.5 * w**2) / (sigma * np.sqrt(2 * np.pi))
    hermite3 = (2 * w**3 - 3 * w) / np.sqrt(3)
    hermite4 = (4 * w**4 - 12 * w**2 + 3) / np.sqrt(24)
    series = 1 + h3 * hermite3 + h4 * hermite4
    slope = h3 * (6 * w**2 - 3) / np.sqrt(3) + h4 * (16 * w**3 - 24 * w) / np.sqrt(24) - w * series
    values, along = gamma * gaussian * series, gamma * gaussian * slope
    derivatives = (gaussian * series, -along / sigma, -values - along * w, gamma * gaussian * hermite3)
    return values, np.stack([*derivatives, gamma * gaussian * hermite4], axis=2)
