"""A few basis spectra that stand for all templates of a library behind any dust of a curve, to a stated accuracy."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float, Int
from numpy import ndarray

from rubix_like.engine.spectra.attenuation import FactoredDust, factored_dust, spread_a_v
from rubix_like.engine.spectra.spectral_basis import SpectralBasis, find_basis
from rubix_like.physics.templates import Layers

_N_MORE = 3
"""A(V) at which templates are decomposed, beyond the number of functions of A(V)."""

_DUST_SHARE, _TEMPLATE_SHARE, _FIT_SHARE, _RANK_SHARE = 0.3, 0.55, 0.97, 0.75
"""Shares of the tolerance: for the functions of A(V), the templates without dust, their products, and these products'
basis."""

_IN_ALL = 1.05
"""Largest error of the basis; with that between velocity nodes, sqrt(1.05^2 + 0.55^2) = 1.19 of the tolerance."""

_DROP_SHARE = 0.4
"""Share of the tolerance below which the product of a function with a coefficient is left out."""

_TIGHTER = 0.85
_N_TRIES = 6
_RANK_STEP = 8
_LEAST = 1e-10
"""Products of functions and templates that add less than this (squared, relative) are rounding."""


class DustyBasis(NamedTuple):
    """template k behind A(V) = sum_q (sum_{r, s} f_r own[k, s] reduction[(r, s), q]) spectra[q].

    `own`: coefficients of the templates without dust, of which each function's products take the first `kept`; rows of
    `reduction` for others are 0 (`chosen` are those that are not); `residuals` (a_v, template): rms error of each
    template at each of the `a_v`, relative to its mean behind the dust, in the view where it is largest.
    """

    dust: FactoredDust
    own: Float[ndarray, "template own"]
    kept: tuple[int, ...]
    reduction: Float[ndarray, "product rank"]
    spectra: Float[ndarray, "rank rest"]
    a_v: Float[ndarray, "a_v layer"]
    residuals: Float[ndarray, "a_v template"]
    local_error: float
    flux_error: float
    lowest: float

    @property
    def chosen(self) -> Int[ndarray, " kept"]:
        """The products that are kept."""
        return _places(self.kept, self.own.shape[1])

    def coefficients(self, a_v: Float[ndarray, "a_v layer"]) -> Float[ndarray, "a_v template rank"]:
        """The templates' coefficients on the basis behind dust."""
        products = np.einsum("ar,ks->akrs", self.dust.at(a_v), self.own)
        return products.reshape(len(a_v), len(self.own), -1) @ self.reduction


class Views(NamedTuple):
    """Templates in the rest frame, and `seen` by the detector at some velocities, side by side, `n_bin` bins each.

    `wavelength`: vacuum Angstrom at rest that each bin sees; `layers`: A / A(V) of layers of dust (None: no dust).
    """

    templates: Float[ndarray, "template rest"]
    rest_wavelength: Float[ndarray, " rest"]
    seen: Float[ndarray, "template bin"]
    wavelength: Float[ndarray, " bin"]
    n_bin: tuple[int, ...]
    layers: Layers | None

    def dims(self, a_v: Float[ndarray, "a_v layer"], *, at_rest: bool = False) -> Float[ndarray, "a_v wave"]:
        """What dust lets through, 10^(-0.4 A), in the bins, or on the nodes of the rest frame."""
        assert self.layers is not None
        return 10.0 ** (-0.4 * (a_v @ self.layers(self.rest_wavelength if at_rest else self.wavelength)))


def find_dusty_basis(views: Views, largest: float, tolerance: float) -> DustyBasis:
    """The basis for A(V) from 0 to `largest`, whose rms error is about within the tolerance for every template.

    Every template at some A(V) is fitted, relative to its mean behind the dust, by the products of functions of A(V)
    with the templates' coefficients on a basis without dust, which is made finer until the errors are within their
    share of the tolerance. What these products add is then decomposed by singular values.
    """
    assert views.layers is not None
    relative = views.layers(views.wavelength)
    dust = factored_dust(relative, largest, _DUST_SHARE * tolerance)
    a_v = spread_a_v(largest, len(relative), len(dust.parts) + _N_MORE)
    finer = 1.0
    found = _tried(views, dust, a_v, finer * tolerance)
    for _ in range(_N_TRIES):
        if found.residual <= _FIT_SHARE * tolerance or found.own.shape[1] > len(found.own):
            break
        finer *= _TIGHTER
        found = _tried(views, dust, a_v, finer * tolerance)
    return _decomposed(views, dust, found, tolerance)


class _Fit(NamedTuple):
    """Normal equations of the fit: of the products among themselves, with the views, and with the rest frame."""

    normal: Float[ndarray, "product product"]
    seen: Float[ndarray, "product bin"]
    rest: Float[ndarray, "product rest"]
    means: Float[ndarray, "a_v template"]
    a_v: Float[ndarray, "a_v layer"]


class _Tried(NamedTuple):
    """A fit by products: of which coefficients, how many of them, its equations, `white` combinations of the products
    (`_whitened`), and the largest error."""

    own: Float[ndarray, "template own"]
    kept: tuple[int, ...]
    fit: _Fit
    white: Float[ndarray, "product n"]
    residual: float


def _tried(views: Views, dust: FactoredDust, a_v: Float[ndarray, "a_v layer"], tolerance: float) -> _Tried:
    """The fit by a basis without dust, and by as many of the products, as shares of a tolerance say."""
    share, functions = _TEMPLATE_SHARE * tolerance, dust.at(a_v)
    plain = find_basis(views.templates, views.rest_wavelength, views.seen, share, views.n_bin)
    own = plain.coefficients
    fit = _fitted(views, a_v, functions, own)
    kept = _kept(fit, functions, plain, len(views.wavelength), _DROP_SHARE * tolerance)
    chosen = _places(kept, own.shape[1])
    independent = _whitened(fit.normal[np.ix_(chosen, chosen)])
    white = np.zeros((len(fit.normal), independent.shape[1]))
    white[chosen] = independent
    spectra = (white @ (white.T @ fit.seen)).reshape(len(dust.parts), own.shape[1], -1)
    errors = _errors(views, a_v, [(own, np.tensordot(function, spectra, 1)) for function in functions], fit.means)
    return _Tried(own, kept, fit, white, float(errors.residuals.max()))


class _Errors(NamedTuple):
    """As in `DustyBasis`."""

    residuals: Float[ndarray, "a_v template"]
    local_error: float
    flux_error: float
    lowest: float


def _kept(
    fit: _Fit, functions: Float[ndarray, "a_v factor"], plain: SpectralBasis, n_bin: int, least: float
) -> tuple[int, ...]:
    """How many of the coefficients on the `plain` basis each function of A(V) is multiplied with: to the last whose
    product adds more than `least` to some template's rms flux; never more than the function before has."""
    size = np.sqrt((plain.spectra**2).mean(axis=1) / n_bin)
    added = np.zeros((functions.shape[1], len(size)))
    for function, mean in zip(functions, fit.means, strict=True):
        lit = mean > 0
        largest = np.abs(plain.coefficients[lit] / mean[lit, None]).max(axis=0, initial=0.0)
        added = np.maximum(added, np.abs(function)[:, None] * (largest * size)[None, :])
    last = [int(np.flatnonzero(own > least).max(initial=0)) + 1 for own in added]
    return tuple(int(number) for number in np.maximum.accumulate(last[::-1])[::-1])


def _places(kept: tuple[int, ...], n_own: int) -> Int[ndarray, " kept"]:
    """Where the products that are kept lie among all."""
    return np.concatenate([number * n_own + np.arange(own) for number, own in enumerate(kept)])


def _whitened(normal: Float[ndarray, "product product"]) -> Float[ndarray, "product n"]:
    """Combinations of the products that are independent of each other, and of size 1 in the sum over all rows."""
    scale = 1.0 / np.sqrt(np.maximum(np.diag(normal), np.finfo(float).tiny))
    values, vectors = scipy.linalg.eigh(normal * scale[:, None] * scale[None, :])
    kept = values > _LEAST * values[-1]
    return scale[:, None] * vectors[:, kept] / np.sqrt(values[kept])


def _decomposed(views: Views, dust: FactoredDust, tried: _Tried, tolerance: float) -> DustyBasis:
    """As many vectors of the products' spectra as keep every template within the tolerance, about an eighth more at a
    time."""
    own, kept, fit, white, _ = tried
    spectra = white.T @ fit.seen
    squares, left = scipy.linalg.eigh(spectra @ spectra.T)
    left, size = left[:, ::-1], np.sqrt(np.maximum(squares[::-1], 0.0))
    functions = dust.at(fit.a_v)
    rank = _rank(white @ left, size, spectra.shape[1], functions, own, fit.means, tolerance)
    while True:
        reduction, found = white @ left[:, :rank], left[:, :rank].T @ spectra
        products = reduction.reshape(functions.shape[1], own.shape[1], -1)
        made = [(own @ np.tensordot(function, products, 1), found) for function in functions]
        errors = _errors(views, fit.a_v, made, fit.means)
        if rank == len(size) or errors.residuals.max() <= _IN_ALL * tolerance:
            return DustyBasis(dust, own, kept, reduction, reduction.T @ fit.rest, fit.a_v, *errors)
        rank = min(len(size), rank + max(1, rank // 64) * _RANK_STEP)


def _fitted(
    views: Views,
    a_v: Float[ndarray, "a_v layer"],
    functions: Float[ndarray, "a_v factor"],
    own: Float[ndarray, "template own"],
) -> _Fit:
    """Sums over templates and A(V), each spectrum relative to its mean in the views."""
    n_own = own.shape[1]
    size = functions.shape[1] * n_own
    normal = np.zeros((size, size))
    seen, rest = np.zeros((size, views.seen.shape[1])), np.zeros((size, views.templates.shape[1]))
    means = np.zeros((len(a_v), len(own)))
    dims = zip(functions, views.dims(a_v), views.dims(a_v, at_rest=True), strict=True)
    for number, (function, dim, dim_at_rest) in enumerate(dims):
        means[number] = views.seen @ dim / len(dim)
        lit = means[number] > 0
        weighted = np.where(lit, 1.0 / np.where(lit, means[number], 1.0) ** 2, 0.0)[:, None] * own
        normal += np.kron(np.outer(function, function), weighted.T @ own)
        seen += np.kron(function[:, None], (weighted.T @ views.seen) * dim)
        rest += np.kron(function[:, None], (weighted.T @ views.templates) * dim_at_rest)
    return _Fit(normal, seen, rest, means, a_v)


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
    a_v: Float[ndarray, "a_v layer"],
    made: Sequence[tuple[Float[ndarray, "template n"], Float[ndarray, "n bin"]]],
    means: Float[ndarray, "a_v template"],
) -> _Errors:
    """Errors of spectra that are made as coefficients times spectra, for each A(V); computed in 32 bits.

    Residuals are those of the view where they are largest.
    """
    residuals, local, flux, lowest = np.zeros(means.shape), 0.0, 0.0, 0.0
    for number, (dim, (coefficients, spectra)) in enumerate(zip(views.dims(a_v), made, strict=True)):
        lit = means[number] > 0
        per_mean = (1.0 / means[number, lit])[:, None]
        true = ((views.seen[lit] * per_mean) * dim).astype(np.float32)
        found = (coefficients[lit] * per_mean).astype(np.float32) @ spectra.astype(np.float32)
        for first, last in itertools.pairwise(np.cumsum((0, *views.n_bin))):
            own, model = true[:, first:last], found[:, first:last]
            mean = own.mean(axis=1, keepdims=True)
            scale = np.divide(1.0, mean, out=np.zeros_like(mean), where=mean > 0)
            error = scale * (model - own)
            residuals[number, lit] = np.maximum(residuals[number, lit], np.sqrt((error**2).mean(axis=1)))
            local = max(local, float(np.abs(error).max(initial=0.0)))
            flux = max(flux, float(np.abs(error.mean(axis=1)).max(initial=0.0)))
            lowest = min(lowest, float((scale * model).min(initial=0.0)))
    return _Errors(residuals, local, flux, lowest)
