"""A few basis spectra that stand for all templates of a library, to a stated accuracy."""

import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float, Int
from numpy import ndarray

from rubix_like.engine.spectra.attenuation import FactoredDust, factored_dust, spread_a_v
from rubix_like.physics.templates import Layers

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
    bins each: every one has to be within the tolerance, relative to its mean.
    """
    views = (seen.shape[1],) if n_bin is None else n_bin
    mean = np.trapezoid(templates, rest_wavelength, axis=1) / (rest_wavelength[-1] - rest_wavelength[0])
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


_N_MORE = 3
"""A(V) at which templates are decomposed, beyond the number of functions of A(V)."""

_DUST_SHARE, _TEMPLATE_SHARE, _FIT_SHARE, _RANK_SHARE = 0.3, 0.4, 0.99, 0.75
"""Shares of the tolerance: for the functions of A(V), the templates without dust, their products, and these products'
basis."""

_IN_ALL = 1.05
"""Largest error of the basis; with that between velocity nodes, sqrt(1.05^2 + 0.55^2) = 1.19 of the tolerance."""

_DROP_SHARE = 0.3
"""Share of the tolerance below which the product of a function with a coefficient is left out."""

_EVERY = 4
"""One of so many templates is in the first sample of them."""

_N_ROUND = 3
"""How often templates are added to a sample before all of them are taken."""

_AT_ONCE = 32
"""Templates whose errors are computed at once, in a processor's cache."""

_TIGHTER = 0.85
_N_TRIES = 6
_LEAST = 1e-10
"""Products of functions and templates that add less than this (squared, relative) are rounding."""


class DustyBasis(NamedTuple):
    """template k behind A(V) = sum_q (sum_{r, s} f_r dust_free[k, s] reduction[(r, s), q]) spectra[q].

    `dust_free`: coefficients of the templates without dust, of which each function's products take the first `kept`;
    rows of `reduction` for others are 0 (`chosen` are those that are not); `residuals` (a_v, template): rms error of
    each template at each of the `a_v`, relative to its mean behind the dust, in the view where it is largest.
    """

    dust: FactoredDust
    dust_free: Float[ndarray, "template own"]
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
        return _places(self.kept, self.dust_free.shape[1])

    def coefficients(self, a_v: Float[ndarray, "a_v layer"]) -> Float[ndarray, "a_v template rank"]:
        """The templates' coefficients on the basis behind dust."""
        products = np.einsum("ar,ks->akrs", self.dust.at(a_v), self.dust_free)
        return products.reshape(len(a_v), len(self.dust_free), -1) @ self.reduction


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

    def of(self, chosen: Int[ndarray, " chosen"]) -> "Views":
        """The views of some of the templates."""
        return self._replace(templates=self.templates[chosen], seen=self.seen[chosen])

    def dims(self, a_v: Float[ndarray, "a_v layer"], *, at_rest: bool = False) -> Float[ndarray, "a_v wave"]:
        """The transmission of dust, 10^(-0.4 A), in the bins, or on the nodes of the rest frame."""
        assert self.layers is not None
        return 10.0 ** (-0.4 * (a_v @ self.layers(self.rest_wavelength if at_rest else self.wavelength)))


def find_dusty_basis(views: Views, largest: float, tolerance: float) -> DustyBasis:
    """The basis for A(V) from 0 to `largest`, whose rms error is about within the tolerance for every template.

    Every template at some A(V) is fitted, relative to its mean behind the dust, by the products of functions of A(V)
    with the templates' coefficients on a basis without dust, which is made finer until the errors are within their
    share of the tolerance. These products are then decomposed by singular values. The fit is that of a sample of the
    templates, the errors those of all of them; templates beyond the tolerance join the sample.
    """
    assert views.layers is not None
    relative, level = views.layers(views.wavelength), views.seen.mean(axis=1)
    scale = np.divide(1.0, level, out=np.zeros_like(level), where=level > 0)[:, None]
    views = views._replace(templates=views.templates * scale, seen=views.seen * scale)
    dust = factored_dust(relative, largest, _DUST_SHARE * tolerance)
    a_v = spread_a_v(largest, len(relative), len(dust.parts) + _N_MORE)
    behind = Behind(dust, a_v, dust.at(a_v), views.dims(a_v), views.dims(a_v, at_rest=True))
    every, sample = np.arange(len(views.templates)), _sample(views, _TEMPLATE_SHARE * tolerance)
    n_left = _N_ROUND
    while True:
        found = _for_all(views, behind, _from_sample(views.of(sample), behind, tolerance))
        worst = found.residuals.max(axis=0)
        if len(sample) == len(every) or worst.max() <= _IN_ALL * tolerance:
            return found._replace(dust_free=found.dust_free * level[:, None])
        more = np.union1d(sample, np.flatnonzero(worst > tolerance))
        sample = more if n_left > 0 and len(more) > len(sample) else every
        n_left -= 1


def _sample(views: Views, share: float) -> Int[ndarray, " chosen"]:
    """Templates, a few from everywhere, whose basis without dust stands for all of them within the share."""
    every = np.arange(len(views.templates))
    chosen, light = np.union1d(every[::_EVERY], every[-1:]), (views.seen**2).mean(axis=1)
    for _ in range(_N_ROUND):
        basis = _plain(views.of(chosen), share)[1]
        along = views.seen @ np.linalg.qr(basis.T)[0]
        left = light - (along**2).sum(axis=1) / views.seen.shape[1]
        poor = np.flatnonzero(left > share**2)
        if not len(poor):
            break
        chosen = np.union1d(chosen, poor)
    return chosen


def _plain(views: Views, share: float) -> tuple[SpectralBasis, Float[ndarray, "own bin"]]:
    """The basis of templates without dust, and its spectra in the views."""
    plain = find_basis(views.templates, views.rest_wavelength, views.seen, share, views.n_bin)
    return plain, _coefficients(views.seen.T, plain.coefficients.T).T


class Behind(NamedTuple):
    """The dust, A(V) at which templates are fitted, the functions of A(V) there, and the transmission there in the
    views' bins and on the nodes of the rest frame."""

    dust: FactoredDust
    a_v: Float[ndarray, "a_v layer"]
    functions: Float[ndarray, "a_v factor"]
    seen: Float[ndarray, "a_v bin"]
    at_rest: Float[ndarray, "a_v rest"]


class _Fit(NamedTuple):
    """A fit by products with the `dust_free` coefficients, of which each function's products take the first `kept`.

    `basis`: the spectra of the coefficients in the views; `white` combinations of the products (`_whitened`); the
    products in the views (`seen`) and at `rest`; `residual`: the largest error.
    """

    basis: Float[ndarray, "own bin"]
    dust_free: Float[ndarray, "template own"]
    kept: tuple[int, ...]
    white: Float[ndarray, "product n"]
    seen: Float[ndarray, "product bin"]
    rest: Float[ndarray, "product rest"]
    means: Float[ndarray, "a_v template"]
    residual: float


class _Sampled(NamedTuple):
    """The fit of a sample of the templates, and the basis as in `DustyBasis`, also as the views see it."""

    fit: _Fit
    reduction: Float[ndarray, "product rank"]
    spectra: Float[ndarray, "rank rest"]
    seen: Float[ndarray, "rank bin"]


class _Errors(NamedTuple):
    """Errors, named as in `DustyBasis`."""

    residuals: Float[ndarray, "a_v template"]
    local_error: float
    flux_error: float
    lowest: float


def _from_sample(views: Views, behind: Behind, tolerance: float) -> _Sampled:
    finer = 1.0
    fit = _fitted(views, behind, finer * tolerance)
    for _ in range(_N_TRIES):
        if fit.residual <= _FIT_SHARE * tolerance or fit.dust_free.shape[1] > len(fit.dust_free):
            break
        finer *= _TIGHTER
        fit = _fitted(views, behind, finer * tolerance)
    return _decomposed(views, behind, fit, tolerance)


def _for_all(views: Views, behind: Behind, found: _Sampled) -> DustyBasis:
    """The basis of a sample for all templates: their coefficients, by least squares in the views, and their errors."""
    fit = found.fit
    dust_free = _coefficients(views.seen, fit.basis)
    mixtures = _mixed(behind.functions, fit.kept, found.reduction)
    products = [(dust_free[:, : len(mixed)] @ mixed, found.seen) for mixed in mixtures]
    errors = _dusty_errors(views, behind, products, _means(views, behind))
    reduction = np.zeros((behind.functions.shape[1] * dust_free.shape[1], found.reduction.shape[1]))
    reduction[_places(fit.kept, dust_free.shape[1])] = found.reduction
    return DustyBasis(behind.dust, dust_free, fit.kept, reduction, found.spectra, behind.a_v, *errors)


def _fitted(views: Views, behind: Behind, tolerance: float) -> _Fit:
    """The fit by a basis without dust, and by as many of the products, as shares of a tolerance say."""
    plain, basis = _plain(views, _TEMPLATE_SHARE * tolerance)
    dust_free = _coefficients(views.seen, basis)
    means = _means(views, behind)
    size = np.sqrt((plain.spectra**2).mean(axis=1) / len(views.wavelength))
    kept = _kept(behind.functions, plain.coefficients, size, means, _DROP_SHARE * tolerance)
    normal, seen, rest = _equations(views, behind, dust_free, kept, means)
    white = _whitened(normal)
    mixtures = _mixed(behind.functions, kept, white @ (white.T @ seen))
    products = [(dust_free[:, : len(mixed)], mixed) for mixed in mixtures]
    residual = float(_dusty_errors(views, behind, products, means).residuals.max())
    return _Fit(basis, dust_free, kept, white, seen, rest, means, residual)


def _means(views: Views, behind: Behind) -> Float[ndarray, "a_v template"]:
    """Mean of each template behind the dust over all views."""
    return (views.seen @ behind.seen.T / views.seen.shape[1]).T


def _coefficients(rows: Float[ndarray, "row wave"], basis: Float[ndarray, "own wave"]) -> Float[ndarray, "row own"]:
    """Coefficients of the basis rows that come nearest to each row."""
    size = 1.0 / np.sqrt(np.maximum((basis**2).mean(axis=1), np.finfo(float).tiny))
    scaled = basis * size[:, None]
    return np.linalg.lstsq(scaled @ scaled.T, scaled @ rows.T, rcond=None)[0].T * size


def _kept(
    functions: Float[ndarray, "a_v factor"],
    coefficients: Float[ndarray, "template own"],
    size: Float[ndarray, " own"],
    means: Float[ndarray, "a_v template"],
    least: float,
) -> tuple[int, ...]:
    """How many of the coefficients on a basis without dust each function of A(V) is multiplied with: to the last whose
    product adds more than `least` to some template's rms flux; never more than the function before has. `size`: the
    rms flux that each coefficient adds."""
    added = np.zeros((functions.shape[1], len(size)))
    for function, mean in zip(functions, means, strict=True):
        lit = mean > 0
        largest = np.abs(coefficients[lit] / mean[lit, None]).max(axis=0, initial=0.0)
        added = np.maximum(added, np.abs(function)[:, None] * (largest * size)[None, :])
    last = [int(np.flatnonzero(amounts > least).max(initial=0)) + 1 for amounts in added]
    return tuple(int(number) for number in np.maximum.accumulate(last[::-1])[::-1])


def _equations(
    views: Views, behind: Behind, dust_free: Float[ndarray, "template own"], kept: tuple[int, ...], means: ndarray
) -> tuple[ndarray, ndarray, ndarray]:
    """Normal equations of the fit, over templates and A(V), each spectrum relative to its mean in the views: of the
    products among themselves, with the views, and with the rest frame."""
    n_product, parts = sum(kept), _parts(kept)
    normal = np.zeros((n_product, n_product))
    seen, rest = (np.zeros((n_product, rows.shape[1])) for rows in (views.seen, views.templates))
    for function, dim, dim_at_rest, mean in zip(behind.functions, behind.seen, behind.at_rest, means, strict=True):
        lit = mean > 0
        weighted = np.where(lit, 1.0 / np.where(lit, mean, 1.0) ** 2, 0.0)[:, None] * dust_free
        normal_here, seen_here = weighted.T @ dust_free, (weighted.T @ views.seen) * dim
        rest_here = (weighted.T @ views.templates) * dim_at_rest
        for factor, part in zip(function, parts, strict=True):
            number = part.stop - part.start
            seen[part] += factor * seen_here[:number]
            rest[part] += factor * rest_here[:number]
            for other_factor, other in zip(function, parts, strict=True):
                normal[part, other] += factor * other_factor * normal_here[:number, : other.stop - other.start]
    return normal, seen, rest


def _places(kept: tuple[int, ...], n_own: int) -> Int[ndarray, " kept"]:
    """Places of the kept products among all."""
    return np.concatenate([function * n_own + np.arange(number) for function, number in enumerate(kept)])


def _parts(kept: tuple[int, ...]) -> list[slice]:
    """The slice of each function's products among those that are kept."""
    return [slice(last - number, last) for number, last in zip(kept, itertools.accumulate(kept), strict=True)]


def _mixed(
    functions: Float[ndarray, "a_v factor"], kept: tuple[int, ...], rows: Float[ndarray, "product n"]
) -> Iterator[Float[ndarray, "own n"]]:
    """Rows that belong to products, summed over the functions at each A(V)."""
    for function in functions:
        mixed = np.zeros((kept[0], rows.shape[1]))
        for factor, number, part in zip(function, kept, _parts(kept), strict=True):
            mixed[:number] += factor * rows[part]
        yield mixed


def _whitened(normal: Float[ndarray, "product product"]) -> Float[ndarray, "product n"]:
    """Combinations of the products that are independent of each other, and of size 1 in the sum over all rows."""
    scale = 1.0 / np.sqrt(np.maximum(np.diag(normal), np.finfo(float).tiny))
    values, vectors = scipy.linalg.eigh(normal * scale[:, None] * scale[None, :])
    kept = values > _LEAST * values[-1]
    return scale[:, None] * vectors[:, kept] / np.sqrt(values[kept])


def _decomposed(views: Views, behind: Behind, fit: _Fit, tolerance: float) -> _Sampled:
    """The vectors of the products' spectra that keep every template within the tolerance, about an eighth more at a
    time."""
    spectra = fit.white.T @ fit.seen
    squares, left = scipy.linalg.eigh(spectra @ spectra.T)
    left, size = left[:, ::-1], np.sqrt(np.maximum(squares[::-1], 0.0))
    rank = _dusty_rank(fit, behind, fit.white @ left, size, tolerance)
    while True:
        reduction, found = fit.white @ left[:, :rank], left[:, :rank].T @ spectra
        mixtures = _mixed(behind.functions, fit.kept, reduction)
        products = [(fit.dust_free[:, : len(mixed)] @ mixed, found) for mixed in mixtures]
        worst = _dusty_errors(views, behind, products, fit.means).residuals.max()
        if rank == len(size) or worst <= _IN_ALL * tolerance:
            return _Sampled(fit, reduction, reduction.T @ fit.rest, found)
        rank = min(len(size), rank + max(1, rank // 64) * _RANK_STEP)


def _dusty_rank(
    fit: _Fit, behind: Behind, products: Float[ndarray, "product n"], size: Float[ndarray, " n"], tolerance: float
) -> int:
    """How many vectors leave no template more than its share of the tolerance (a multiple of 8)."""
    left = np.zeros(len(size) + 1)
    for mixed, mean in zip(_mixed(behind.functions, fit.kept, products), fit.means, strict=True):
        lit = mean > 0
        scores = (fit.dust_free[lit, : len(mixed)] @ mixed) * size / mean[lit, None]
        beyond = np.cumsum(scores[:, ::-1] ** 2, axis=1)[:, ::-1] / fit.seen.shape[1]
        left[:-1] = np.maximum(left[:-1], beyond.max(axis=0, initial=0.0))
    fitting = int(np.flatnonzero(np.sqrt(left) <= _RANK_SHARE * tolerance)[0])
    return min(len(size), max(_RANK_STEP, -(-fitting // _RANK_STEP) * _RANK_STEP))


def _dusty_errors(
    views: Views,
    behind: Behind,
    products: Iterable[tuple[Float[ndarray, "template n"], Float[ndarray, "n bin"]]],
    means: Float[ndarray, "a_v template"],
) -> _Errors:
    """Errors of products of coefficients and spectra, for each A(V); computed in 32 bits.

    Residuals are those of the view where they are largest.
    """
    residuals, worst = np.zeros(means.shape), np.zeros(3)
    seen, edges = views.seen.astype(np.float32), np.cumsum((0, *views.n_bin))
    for number, (dim, product) in enumerate(zip(behind.seen.astype(np.float32), products, strict=True)):
        coefficients, spectra = (factor.astype(np.float32) for factor in product)
        lit = np.flatnonzero(means[number] > 0)
        for chosen in np.array_split(lit, -(-len(lit) // _AT_ONCE)):
            true, model = seen[chosen] * dim, coefficients[chosen] @ spectra
            for first, last in itertools.pairwise(edges):
                rms, found = _errors_of(true[:, first:last], model[:, first:last])
                residuals[number, chosen] = np.maximum(residuals[number, chosen], rms)
                worst = np.maximum(worst, found)
    return _Errors(residuals, float(worst[0]), float(worst[1]), -float(worst[2]))


def _errors_of(
    true: Float[ndarray, "template bin"], model: Float[ndarray, "template bin"]
) -> tuple[Float[ndarray, " template"], Float[ndarray, " 3"]]:
    """Relative to each spectrum's mean, the rms error of each, and of all of them the largest error in a bin, the
    largest of the mean, and how far below 0 the flux goes."""
    mean = true.mean(axis=1)
    scale = np.divide(1.0, mean, out=np.zeros_like(mean), where=mean > 0)
    lowest = model.min(axis=1)
    error = np.subtract(model, true)
    rms = np.sqrt(np.einsum("ij,ij->i", error, error) / true.shape[1]) * scale
    local = np.maximum(error.max(axis=1), -error.min(axis=1)) * scale
    of_mean = np.abs(error.mean(axis=1)) * scale
    return rms, np.array([local.max(), of_mean.max(), max(0.0, -(lowest * scale).min())])
