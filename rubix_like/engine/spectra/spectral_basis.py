"""A few basis spectra that stand for all templates of a library, to a stated accuracy."""

import itertools
from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float
from numpy import ndarray

_RANK_STEP = 8
"""The rank is a multiple of it where there are as many templates."""

_NOTHING = 1e-7
"""Singular values below this share of the largest are rounding (they come from a matrix of squares)."""


class Errors(NamedTuple):
    """Relative to a template's mean on the detector.

    `residual`: largest rms error of a template; `local_error`: largest error of a template in any bin; `flux_error`:
    largest error of a template's mean; `lowest`: lowest flux of any template, 0 where none is negative.
    """

    residual: float
    local_error: float
    flux_error: float
    lowest: float


class SpectralBasis(NamedTuple):
    """template k = sum_r coefficients[k, r] spectra[r].

    Row 0 of `spectra` is the templates' mean shape, with a mean of 1 over the window; the others have no integral over
    it, so that the light of each template in the window is exactly `coefficients[k, 0]` times the window's width.
    `residuals`: rms error of each template, in the view where it is largest.
    """

    spectra: Float[ndarray, "rank rest"]
    coefficients: Float[ndarray, "template rank"]
    errors: Errors
    residuals: Float[ndarray, " template"]


def find_basis(
    templates: Float[ndarray, "template rest"],
    rest_wavelength: Float[ndarray, " rest"],
    seen: Float[ndarray, "template bin"],
    tolerance: float,
    n_bin: tuple[int, ...] | None = None,
) -> SpectralBasis:
    """The smallest basis whose error on the detector is within `tolerance` for every template.

    Each template is divided by its mean; the templates' mean shape is split off as one basis vector; the rest, which
    has no integral, is decomposed by singular values. Errors are those of `seen`, the templates as the detector sees
    them (line spread and bins included), so that detail which it cannot resolve takes no vectors. The rank is the
    smallest (a multiple of 8) with an rms error <= tolerance and no flux below -tolerance, relative to each template's
    mean; at most as many as there are templates, which is exact. `seen` may hold several views side by side, of `n_bin`
    bins each: every one has to be within the tolerance of its own mean.
    """
    views = (seen.shape[1],) if n_bin is None else n_bin
    mean = _window_mean(templates, rest_wavelength)
    lit = mean > 0
    shape = np.divide(templates, mean[:, None], out=np.zeros_like(templates), where=lit[:, None])
    seen_shape = np.divide(seen, mean[:, None], out=np.zeros_like(seen), where=lit[:, None])
    center, seen_center = shape[lit].mean(axis=0), seen_shape[lit].mean(axis=0)
    level = seen_shape.mean(axis=1)
    scale = np.where(lit & (level > 0), 1.0 / np.where(level > 0, level, 1.0), 0.0)[:, None]
    rest, seen_rest = scale * (shape - center), scale * (seen_shape - seen_center)
    vectors, values = _principal(seen_rest)
    rank, errors, residuals = _rank(vectors * values, seen_rest, scale * seen_center, views, tolerance)
    chosen = vectors[:, :rank]
    basis = (chosen.T @ rest) / values[:rank, None]
    scores = chosen * values[:rank]
    per_mean = np.divide(scores, scale, out=np.zeros_like(scores), where=scale > 0)
    return SpectralBasis(
        spectra=np.concatenate([center[None, :], basis]),
        coefficients=mean[:, None] * np.concatenate([np.ones((len(mean), 1)), per_mean], axis=1),
        errors=errors,
        residuals=residuals,
    )


def _window_mean(
    templates: Float[ndarray, "template rest"], rest_wavelength: Float[ndarray, " rest"]
) -> Float[ndarray, " template"]:
    """Mean of each piecewise linear template over the window."""
    return np.trapezoid(templates, rest_wavelength, axis=1) / (rest_wavelength[-1] - rest_wavelength[0])


def _principal(rows: Float[ndarray, "template bin"]) -> tuple[ndarray, ndarray]:
    """Left singular vectors (template, n) and singular values, largest first, those of rounding left out."""
    squares, vectors = scipy.linalg.eigh(rows @ rows.T)
    values = np.sqrt(np.maximum(squares[::-1], 0.0))
    kept = values > _NOTHING * max(values[0], np.finfo(float).tiny)
    return vectors[:, ::-1][:, kept], values[kept]


def _rank(
    scores: Float[ndarray, "template n"],
    rows: Float[ndarray, "template bin"],
    center: Float[ndarray, "template bin"],
    views: tuple[int, ...],
    tolerance: float,
) -> tuple[int, Errors, Float[ndarray, " template"]]:
    """Vectors beside the mean that keep every template within the tolerance, and the errors that they leave."""
    most = scores.shape[1]
    left = (rows**2).sum(axis=1)[:, None] - np.cumsum(scores**2, axis=1)
    worst = np.sqrt(np.maximum(left, 0.0).max(axis=0, initial=0.0) / rows.shape[1])
    fitting = np.flatnonzero(worst <= tolerance)
    rank = _rounded(int(fitting[0]) + 1 if len(fitting) else most, most)
    while True:
        chosen = scores[:, :rank]
        vectors = (chosen / (chosen**2).sum(axis=0)).T @ rows
        errors, residuals = _errors(chosen @ vectors, rows, center, views)
        if rank == most or (errors.residual <= tolerance and errors.lowest >= -tolerance):
            return rank, errors, residuals
        rank = _rounded(rank + max(rank // 8, 1), most)


def _rounded(rank: int, most: int) -> int:
    """The next rank that makes, with the mean, a multiple of the step."""
    return min(most, -(-(rank + 1) // _RANK_STEP) * _RANK_STEP - 1)


def _errors(
    found: Float[ndarray, "template bin"],
    rows: Float[ndarray, "template bin"],
    center: Float[ndarray, "template bin"],
    views: tuple[int, ...],
) -> tuple[Errors, Float[ndarray, " template"]]:
    """The largest errors of any template in any view, relative to the template's mean there; the rms of each."""
    residuals, local, flux, lowest = np.zeros(len(rows)), 0.0, 0.0, 0.0
    edges = np.cumsum((0, *views))
    for first, last in itertools.pairwise(edges):
        view = slice(first, last)
        mean = (center[:, view] + rows[:, view]).mean(axis=1)
        lit = mean > 0
        error = (found[lit, view] - rows[lit, view]) / mean[lit, None]
        residuals[lit] = np.maximum(residuals[lit], np.sqrt((error**2).mean(axis=1)))
        local = max(local, float(np.abs(error).max(initial=0.0)))
        flux = max(flux, float(np.abs(error.mean(axis=1)).max(initial=0.0)))
        flux_density = (center[lit, view] + found[lit, view]) / mean[lit, None]
        lowest = min(lowest, float(flux_density.min(initial=0.0)))
    return Errors(float(residuals.max(initial=0.0)), local, flux, lowest), residuals
