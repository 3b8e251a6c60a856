"""A few basis spectra that stand for all templates of a library behind any dust of a curve, to a stated accuracy."""

import itertools
from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float
from numpy import ndarray

from rubix_like.engine.spectra.spectral_basis import find_basis
from rubix_like.physics.attenuation import FactoredDust, factored_dust
from rubix_like.physics.templates import Curve

_N_MORE = 3
"""A(V) at which templates are decomposed, beyond the number of functions of A(V)."""

_DUST_SHARE, _TEMPLATE_SHARE, _RANK_SHARE = 0.3, 0.75, 0.7
"""Shares of the tolerance: for the functions of A(V), the templates without dust, and the basis of their products."""

_TIGHTER = 0.7
_N_TRIES = 4
_RANK_STEP = 8
_LEAST = 1e-10
"""Products of functions and templates that add less than this (squared, relative) are rounding."""


class DustyBasis(NamedTuple):
    """template k behind A(V) = sum_q (sum_{r, s} f_r own[k, s] reduction[(r, s), q]) spectra[q].

    `own`: coefficients of the templates without dust; `residuals` (a_v, template): rms error of each template at each
    of the `a_v`, relative to its mean behind the dust, in the view where it is largest.
    """

    dust: FactoredDust
    own: Float[ndarray, "template own"]
    reduction: Float[ndarray, "product rank"]
    spectra: Float[ndarray, "rank rest"]
    a_v: Float[ndarray, " a_v"]
    residuals: Float[ndarray, "a_v template"]
    local_error: float
    flux_error: float
    lowest: float

    def coefficients(self, a_v: Float[ndarray, " a_v"]) -> Float[ndarray, "a_v template rank"]:
        """The templates' coefficients on the basis behind dust."""
        products = np.einsum("ar,ks->akrs", self.dust.at(a_v), self.own)
        return products.reshape(len(a_v), len(self.own), -1) @ self.reduction


class Views(NamedTuple):
    """Templates in the rest frame, and `seen` by the detector at some velocities, side by side, `n_bin` bins each.

    `wavelength`: vacuum Angstrom at rest that each bin sees; `attenuation`: A / A(V) of the dust (None: no dust).
    """

    templates: Float[ndarray, "template rest"]
    rest_wavelength: Float[ndarray, " rest"]
    seen: Float[ndarray, "template bin"]
    wavelength: Float[ndarray, " bin"]
    n_bin: tuple[int, ...]
    attenuation: Curve | None

    def dim(self, a_v: float, *, at_rest: bool = False) -> Float[ndarray, " wave"]:
        """What dust lets through, 10^(-0.4 A), in the bins, or on the nodes of the rest frame."""
        assert self.attenuation is not None
        return 10.0 ** (-0.4 * a_v * self.attenuation(self.rest_wavelength if at_rest else self.wavelength))


def find_dusty_basis(views: Views, largest: float, tolerance: float) -> DustyBasis:
    """The basis for A(V) from 0 to `largest`, whose rms error is about within the tolerance for every template.

    Every template at some A(V) is fitted, relative to its mean behind the dust, by the products of functions of A(V)
    with the templates' coefficients on a basis without dust; what these products add is then decomposed by singular
    values. The basis without dust is made finer until the errors are within the tolerance.
    """
    assert views.attenuation is not None
    dust = factored_dust(views.attenuation(views.wavelength), largest, _DUST_SHARE * tolerance)
    share, found = _TEMPLATE_SHARE, None
    for _ in range(_N_TRIES):
        plain = find_basis(views.templates, views.rest_wavelength, views.seen, share * tolerance, views.n_bin)
        found = _decomposed(views, dust, plain.coefficients, largest, tolerance)
        if found.residuals.max() <= tolerance or plain.coefficients.shape[1] > len(views.templates):
            break
        share *= _TIGHTER
    assert found is not None
    return found


class _Fit(NamedTuple):
    """Normal equations of the fit: of the products among themselves, with the views, and with the rest frame."""

    normal: Float[ndarray, "product product"]
    seen: Float[ndarray, "product bin"]
    rest: Float[ndarray, "product rest"]
    means: Float[ndarray, "a_v template"]


def _decomposed(
    views: Views, dust: FactoredDust, own: Float[ndarray, "template own"], largest: float, tolerance: float
) -> DustyBasis:
    a_v = np.linspace(0.0, largest, dust.parts.shape[0] + _N_MORE)
    functions = dust.at(a_v)
    fit = _fitted(views, a_v, functions, own)
    scale = 1.0 / np.sqrt(np.maximum(np.diag(fit.normal), np.finfo(float).tiny))
    values, vectors = scipy.linalg.eigh(fit.normal * scale[:, None] * scale[None, :])
    kept = values > _LEAST * values[-1]
    white = scale[:, None] * vectors[:, kept] / np.sqrt(values[kept])
    spectra = white.T @ fit.seen
    squares, left = scipy.linalg.eigh(spectra @ spectra.T)
    left, size = left[:, ::-1], np.sqrt(np.maximum(squares[::-1], 0.0))
    rank = _rank(white @ left, size, spectra.shape[1], functions, own, fit.means, tolerance)
    while True:
        reduction, found = white @ left[:, :rank], left[:, :rank].T @ spectra
        errors = _errors(views, a_v, functions, own, reduction, found, fit.means)
        if rank == len(size) or errors[0].max() <= tolerance:
            break
        rank = min(len(size), rank + _RANK_STEP)
    return DustyBasis(dust, own, reduction, reduction.T @ fit.rest, a_v, *errors)


def _fitted(
    views: Views,
    a_v: Float[ndarray, " a_v"],
    functions: Float[ndarray, "a_v factor"],
    own: Float[ndarray, "template own"],
) -> _Fit:
    """Sums over templates and A(V), each spectrum relative to its mean in the views."""
    n_own = own.shape[1]
    size = functions.shape[1] * n_own
    normal = np.zeros((size, size))
    seen, rest = np.zeros((size, views.seen.shape[1])), np.zeros((size, views.templates.shape[1]))
    means = np.zeros((len(a_v), len(own)))
    for number, (mag, function) in enumerate(zip(a_v, functions, strict=True)):
        dim = views.dim(mag)
        means[number] = views.seen @ dim / len(dim)
        lit = means[number] > 0
        weighted = np.where(lit, 1.0 / np.where(lit, means[number], 1.0) ** 2, 0.0)[:, None] * own
        normal += np.kron(np.outer(function, function), weighted.T @ own)
        seen += np.kron(function[:, None], (weighted.T @ views.seen) * dim)
        rest += np.kron(function[:, None], (weighted.T @ views.templates) * views.dim(mag, at_rest=True))
    return _Fit(normal, seen, rest, means)


def _rank(
    products: Float[ndarray, "product n"],
    size: Float[ndarray, " n"],
    n_bin: int,
    functions: Float[ndarray, "a_v factor"],
    own: Float[ndarray, "template own"],
    means: Float[ndarray, "a_v template"],
    tolerance: float,
) -> int:
    """How many vectors leave no template more than its share of the tolerance (a multiple of 8)."""
    left = np.zeros(len(size) + 1)
    for function, mean in zip(functions, means, strict=True):
        mixed = np.einsum("r,rsn->sn", function, products.reshape(len(function), own.shape[1], -1))
        lit = mean > 0
        scores = (own[lit] @ mixed) * size / mean[lit, None]
        beyond = np.cumsum(scores[:, ::-1] ** 2, axis=1)[:, ::-1] / n_bin
        left[:-1] = np.maximum(left[:-1], beyond.max(axis=0, initial=0.0))
    fitting = int(np.flatnonzero(np.sqrt(left) <= _RANK_SHARE * tolerance)[0])
    return min(len(size), max(_RANK_STEP, -(-fitting // _RANK_STEP) * _RANK_STEP))


def _errors(
    views: Views,
    a_v: Float[ndarray, " a_v"],
    functions: Float[ndarray, "a_v factor"],
    own: Float[ndarray, "template own"],
    reduction: Float[ndarray, "product rank"],
    found: Float[ndarray, "rank bin"],
    means: Float[ndarray, "a_v template"],
) -> tuple[Float[ndarray, "a_v template"], float, float, float]:
    """Residuals in the view where they are largest, largest errors in a bin and of a mean, and the lowest flux."""
    residuals, local, flux, lowest = np.zeros(means.shape), 0.0, 0.0, 0.0
    edges = np.cumsum((0, *views.n_bin))
    for number, (mag, function) in enumerate(zip(a_v, functions, strict=True)):
        mixed = np.einsum("r,rsq->sq", function, reduction.reshape(len(function), own.shape[1], -1))
        lit = means[number] > 0
        coefficients = own[lit] @ mixed
        dim = views.dim(mag)
        for first, last in itertools.pairwise(edges):
            true = views.seen[lit, first:last] * dim[first:last]
            mean = true.mean(axis=1, keepdims=True)
            scale = np.divide(1.0, mean, out=np.zeros_like(mean), where=mean > 0)
            spectra = scale * (coefficients @ found[:, first:last])
            error = spectra - scale * true
            residuals[number, lit] = np.maximum(residuals[number, lit], np.sqrt((error**2).mean(axis=1)))
            local = max(local, float(np.abs(error).max(initial=0.0)))
            flux = max(flux, float(np.abs(error.mean(axis=1)).max(initial=0.0)))
            lowest = min(lowest, float(spectra.min(initial=0.0)))
    return residuals, local, flux, lowest
