"""The residuals of a fit, and their distribution if its model is true: sums for tests, and parts of the data.

The residuals r of a model that is true, in units of their standard deviations (whitened, as the likelihood has them),
are normal with the covariance

    C = 1 - J A^-1 J^T - S - W + U U^T / n,        A = J^T J + 1,

J their derivatives by the latents, whose priors are N(0, 1): what is fitted follows a part of the noise. S is the same
of the coefficients of a polynomial, S = D (D^T D + 1)^-1 D^T in each spaxel; W of the weights of populations
that are solved for, of which J has nothing. U: n deviations of models with other base
draws, of which the weights of a `fit.model_error` know nothing, less what the fit follows of them. A sum of products
T = r^T K r has the mean tr(K C) and the variance 2 tr(K C K C), which is not larger than 2 tr(K^2) without U. Here K
takes all voxels (chi^2), neighbours along an axis, the light of each spaxel and of each bin, the velocity and the line
width of each spaxel, or neighbours in maps of these three and in the spectrum of the light.

Smooth tests (Neyman 1937, Skand. Aktuarietidskr. 20, 149) look for what changes slowly over the data, however little of
it is in each voxel: with a few smooth templates Q (the light, or a shape of the lines, times polynomials),
T = (Q r)^T (Q C Q^T)^-1 Q r has chi^2's distribution. Templates that the fit follows are left out. Of many ranges of
bins, the largest (q^T r)^2 / (q^T C q) is judged by its probability times their number.

The residuals and their derivatives come from a program. The sums are made once in a fit, by numpy: to compile a program
for them would take longer.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray
from scipy.linalg import solve_triangular

from rubix_like.inference.checks.regions import DataPlaces, Region, ResidualCube, lengths_of_ranges, regions_of
from rubix_like.inference.likelihoods.voxel_errors import (
    AbstractErrorDistribution,
    information_of_location,
    normal_scores,
)
from rubix_like.inference.posterior.fit_model import Latent
from rubix_like.inference.posterior.posterior import (
    Modelled,
    Posterior,
    Tangent,
    columns_at,
    factor_of,
    models_at,
    nuisance_places,
    tangents_at,
    with_nuisance_information,
    with_scale_information,
)
from rubix_like.inference.posterior.problem import FittedSet

HALVES: tuple[tuple[str, str], ...] = (
    ("left", "right"),
    ("lower", "upper"),
    ("brighter", "fainter"),
    ("bluer", "redder"),
)
"""Both halves of the data for each way to split them: by columns, rows and light of the spaxels, and by bins.

Splits in which neighbours are on different sides (a checkerboard, every second bin) are not among them: there both
halves see the same error of a model."""


class Splits(NamedTuple):
    """Names of both halves of each split of the data, and the voxels of every half, both of one after the other."""

    pairs: tuple[tuple[str, str], ...]
    masks: Sequence[Float[ndarray, "y x wave"]]


def halves_of(light: Float[ndarray, "y x wave"]) -> Splits:
    """Halves that hold the same sum of squares of `light`, the model in units of the data's sigma."""
    square = np.asarray(light, np.float64) ** 2
    image, spectrum = square.sum(axis=2), square.sum(axis=(0, 1))
    y, x = np.meshgrid(*[np.arange(size, dtype=float) for size in image.shape], indexing="ij")
    halves = [_first_half(order, image)[:, :, None] for order in (x, y, -image)]
    halves.append(_first_half(np.arange(len(spectrum), dtype=float), spectrum)[None, None])
    return Splits(
        HALVES, [np.broadcast_to(mask, light.shape).astype(light.dtype) for half in halves for mask in (half, 1 - half)]
    )


def _first_half(order: Float[ndarray, "..."], weight: Float[ndarray, "..."]) -> Float[ndarray, "..."]:
    """1 where the order is low, so that half of the weight is there; places of one order stay together."""
    values, group = np.unique(order, return_inverse=True)
    total = np.bincount(group.ravel(), weight.ravel(), minlength=len(values))
    before = np.cumsum(total) - 0.5 * total
    return (before < 0.5 * total.sum())[group.reshape(order.shape)].astype(float)


AXES: tuple[str, ...] = ("y", "x", "wavelength")
"""Names of a cube's axes, in their order."""

_NOTHING = 1e-10
"""Part of the square of a shape, below which there is nothing of it but rounding."""

SHAPES: tuple[str, ...] = ("velocities", "line widths")
"""Names of the first and the second derivative of a spectrum along wavelength, by what changes it so."""

Voxels = Float[ndarray, "y x wave"]
Vectors = Float[ndarray, "vector y x wave"]
Others = Float[ndarray, "draw y x wave"]
Design = Float[ndarray, "y x wave degree"]


class TestSum(NamedTuple):
    """The sum of one test, its mean and variance if the model is true, how many terms it has, and which part of the
    variance is that of particle noise."""

    value: Float[ndarray, "*test"] | float
    mean: Float[ndarray, "*test"] | float
    variance: Float[ndarray, "*test"] | float
    size: Float[ndarray, "*test"] | float
    of_particles: Float[ndarray, "*test"] | float = 0.0

    @property
    def ratio(self) -> float:
        """The sum over what is expected; 1 where nothing is."""
        return 1.0 if float(self.mean) <= 0 else float(self.value) / float(self.mean)


class DataHalf(NamedTuple):
    """A part of the data: J^T J and J^T r of its residuals (and of the coefficients that they leave), J^T U."""

    matrix: Float[ndarray, "*half latent latent"]
    gradient: Float[ndarray, "*half latent"]
    other_draws: Float[ndarray, "*half latent draw"]


class ResidualStatistics(NamedTuple):
    """Sums of the residuals for the tests, and what parts of the data say; `agreeing`: pairs of the same sign;
    `information`: that of all data on the latents, without the prior's; `squares` and `maps`: sums of squares, and of
    products of neighbours, of what is left in every spaxel of each of some shapes of spectra, by the test's name;
    `smooth`: chi^2 along smooth templates; `ranges`: the largest square of the sum over a range of bins; `sets`: of
    several sets of data each alone; `pairs`: names of both halves of each split; `left_out`: names of the regions
    without which `halves` has sums, after those of all halves."""

    chi_square: TestSum
    neighbours: TestSum
    agreeing: Float[ndarray, " axis"]
    spaxels: TestSum
    bins: TestSum
    whole: DataHalf | None
    halves: DataHalf | None
    information: Float[ndarray, "latent latent"] | None = None
    sets: Mapping[str, "ResidualStatistics"] = MappingProxyType({})
    pairs: tuple[tuple[str, str], ...] = HALVES
    squares: Mapping[str, TestSum] | None = None
    maps: Mapping[str, TestSum] | None = None
    smooth: Mapping[str, TestSum] = MappingProxyType({})
    ranges: Mapping[str, TestSum] = MappingProxyType({})
    left: ResidualCube | None = None
    left_out: tuple[str, ...] = ()


Tests = Callable[[Any, Any, Any, Any, Any, Any], ResidualStatistics]
"""A function that makes the sums, as `sums_of_tests` does."""

Locate = Callable[[ResidualStatistics], Sequence[Region]]
"""A function that finds regions to leave out."""


class _Linear(NamedTuple):
    """Arrays of the device, or of the host.

    | field | shape | |
    |---|---|---|
    | residuals, columns | `Residuals` | the residuals, and their derivatives with the axis `latent` first |
    | design | (y, x, wave, degree) or None | by how much each coefficient of the continua lowers the residuals |
    | others | (draw, y, x, wave) | deviations with other base draws |
    | of_scale | (latent, latent) | the information of the noise scale, 0 elsewhere |
    | pull | (y, x, wave) or None | what the gradient is made of, where it is not the residuals |

    The residuals of a distribution of errors are its normal scores (`normal_scores`), and `pull` its slopes.
    """

    residuals: Any
    columns: Any
    design: Any
    others: Any
    of_scale: Any
    pull: Any = None


@np.errstate(all="ignore")
def measure_misfit(
    posterior: Posterior,
    latent: Latent,
    light: Float[Array | ndarray, "y x wave"],
    splits: Splits,
    tests: Tests | None = None,
    followed: Vectors | None = None,
    locate: Locate | None = None,
) -> ResidualStatistics:
    """The sums of all tests, with the derivatives of the residuals; `light`: the model in units of sigma; `tests`: what
    makes them (None: `sums_of_tests`); `followed`: F of W = F F^T; `locate`: what finds regions to leave out. Not to be
    traced."""
    normal, free = posterior.as_normal(jnp.asarray(latent)), posterior.free
    linear = jax.tree.map(np.asarray, _linear(normal, latent, tangents_at(posterior, latent)))
    linear = _of_distribution(linear, posterior, latent)
    light, slopes, others = np.asarray(light), linear.columns.voxels, linear.others
    whole = _half(linear, np.ones(light.shape, slopes.dtype))
    information = np.array(whole.matrix)
    for place in nuisance_places(free):
        information[place, :] = information[:, place] = linear.of_scale[:, place]
    precision = information + np.eye(len(slopes), dtype=slopes.dtype)
    scale = np.sqrt(np.diagonal(precision))
    try:
        lower = np.linalg.cholesky(precision / np.outer(scale, scale))
    except np.linalg.LinAlgError:
        lower = np.full_like(precision, np.nan)
    even = slopes.reshape(len(slopes), -1) / scale[:, None]
    fitted = solve_triangular(lower, even, lower=True, check_finite=False).reshape(slopes.shape)
    if followed is not None and len(followed):
        fitted = np.concatenate([fitted, followed.astype(fitted.dtype)])
    others = others - np.tensordot(products_of(fitted, others), fitted, axes=(0, 0))
    inverse_sigma = np.asarray(posterior.likelihood.inverse_sigma)
    sums = (tests or sums_of_tests)(linear.residuals.voxels, inverse_sigma, light, fitted, others, linear.design)
    regions = () if locate is None else locate(sums)
    parts = [_half(linear, mask) for mask in (*splits.masks, *(1 - region.voxels for region in regions))]
    halves = DataHalf(*map(np.stack, zip(*parts, strict=True))) if parts else None
    names = tuple(region.name for region in regions)
    return sums._replace(whole=whole, halves=halves, information=information, pairs=splits.pairs, left_out=names)


def _of_distribution(linear: _Linear, posterior: Posterior, latent: Latent) -> _Linear:
    """Linear residuals with the normal scores of a distribution of errors, and its slopes in units of their scatter."""
    errors, likelihood = posterior.likelihood_at(jnp.asarray(latent)).errors, posterior.likelihood
    if not isinstance(errors, AbstractErrorDistribution):
        return linear
    root = float(jnp.sqrt(information_of_location(errors)))
    used = np.asarray(likelihood.inverse_sigma) > 0
    residual = linear.residuals.voxels / root
    scores = np.where(used, normal_scores(errors, residual), 0.0)
    slope = jax.grad(lambda values: jnp.sum(errors.log_density(values)))(jnp.asarray(residual))
    pull = np.where(used, (-np.asarray(slope)) / root, 0.0)
    of_scale = with_nuisance_information(jnp.asarray(linear.of_scale), posterior.free, jnp.asarray(latent), likelihood)
    residuals = linear.residuals._replace(voxels=scores)
    return linear._replace(residuals=residuals, pull=pull, of_scale=np.asarray(of_scale))


@jax.jit
def _linear(posterior: Posterior, latent: Latent, group: Tangent) -> _Linear:
    likelihood, noise_scale = posterior.likelihood, posterior.noise_scale(latent)
    tangent = jax.tree.map(lambda leaf: leaf[0], group)
    residuals, columns = columns_at(posterior, latent, tangent)
    design = None if likelihood.polynomial is None else likelihood.design(tangent.flux, noise_scale)
    others = jnp.zeros((0, *likelihood.flux.shape), columns.voxels.dtype)
    if likelihood.model_error is not None:
        model_error, factor = likelihood.model_error, factor_of(noise_scale)
        others = jax.vmap(lambda error: model_error.whiten(error / factor, factor))(model_error.held_out)
    empty = jnp.zeros((latent.shape[0], latent.shape[0]), columns.voxels.dtype)
    n_voxel = jnp.sum(likelihood.inverse_sigma > 0)
    return _Linear(residuals, columns, design, others, with_scale_information(empty, posterior.free, latent, n_voxel))


def products_of(first: Float[ndarray, "n y x wave"], second: Float[ndarray, "m y x wave"]) -> Float[ndarray, "n m"]:
    """Products of all pairs, summed over the voxels."""
    flat = [vectors.reshape(len(vectors), math.prod(vectors.shape[1:])) for vectors in (first, second)]
    return flat[0] @ flat[1].T


@np.errstate(all="ignore")
def measure_misfit_roughly(
    posterior: Posterior,
    latent: Latent,
    light: Float[Array | ndarray, "y x wave"],
    n_free: Float[Array | ndarray, ""],
    tests: Tests | None = None,
) -> ResidualStatistics:
    """The sums where the derivatives are too large to be kept: chi^2 less nothing, correlations that may be up to the
    number of what is fitted, so that less is found than there is. Not to be traced."""
    voxels = np.asarray(_voxels(posterior, latent, models_at(posterior, latent)))
    inverse_sigma, nothing = np.asarray(posterior.likelihood.inverse_sigma), np.zeros((0, *voxels.shape), voxels.dtype)
    sums = (tests or sums_of_tests)(voxels, inverse_sigma, np.asarray(light), nothing, nothing, None)

    def with_highest(sums: ResidualStatistics) -> ResidualStatistics:
        """The sums with the largest correlations that a fit of so many numbers can leave."""
        maps = {name: pairs._replace(mean=np.minimum(n_free, pairs.size)) for name, pairs in (sums.maps or {}).items()}
        neighbours = sums.neighbours._replace(mean=np.minimum(n_free, sums.neighbours.size))
        return sums._replace(neighbours=neighbours, maps=maps)

    return with_highest(sums)._replace(sets={name: with_highest(of_set) for name, of_set in sums.sets.items()})


@jax.jit
def _voxels(posterior: Posterior, latent: Latent, group: Modelled) -> Float[Array, "y x wave"]:
    return posterior.residuals_of(group.flux[0], latent).voxels


def _half(linear: _Linear, mask: Voxels) -> DataHalf:
    """Sums over the voxels in a mask. Coefficients of a polynomial are those that fit best to these alone: with r + J d
    - D g and c + C d + g of voxels and coefficients, the best g is taken out (Schur's complement)."""
    residuals, columns, design = linear.residuals, linear.columns, linear.design
    slopes = columns.voxels * mask
    matrix = products_of(slopes, columns.voxels)
    pull = residuals.voxels if linear.pull is None else linear.pull
    gradient = slopes.reshape(len(slopes), -1) @ pull.reshape(-1)
    along = products_of(slopes, linear.others)
    if design is None or columns.coefficients is None or residuals.coefficients is None:
        return DataHalf(matrix, gradient, along)
    masked = design * mask[..., None]
    normal = np.einsum("yxwi,yxwj->yxij", masked, design, optimize=True) + np.eye(design.shape[-1], dtype=design.dtype)
    change = columns.coefficients - np.einsum("yxwi,nyxw->nyxi", masked, columns.voxels, optimize=True)
    left = residuals.coefficients - np.einsum("yxwi,yxw->yxi", masked, residuals.voxels)
    solved = np.linalg.solve(normal, np.moveaxis(change, 0, -1))
    matrix += np.einsum("nyxi,myxi->nm", columns.coefficients, columns.coefficients)
    gradient += np.einsum("nyxi,yxi->n", columns.coefficients, residuals.coefficients)
    return DataHalf(
        matrix - np.einsum("nyxi,yxim->nm", change, solved), gradient - np.einsum("yxi,yxin->n", left, solved), along
    )


class _Whitened(NamedTuple):
    """Residuals, and the parts of their covariance C: the vectors that the fit follows (of J A^-1 J^T and W), U, D, and
    D (D^T D + 1)^-1."""

    voxels: Voxels
    fitted: Vectors
    others: Others
    design: Design | None
    smoother: Design | None


def sums_of_tests(
    voxels: Voxels,
    inverse_sigma: Voxels,
    light: Voxels,
    fitted: Vectors,
    others: Others,
    design: Design | None,
) -> ResidualStatistics:
    """The sums of all tests of residuals; `fitted`: L^-1 J with L L^T = A (and what weights follow), `light`: the model
    in units of sigma, whose inverse is 0 for voxels that are not fitted; halves are left out."""
    real = (inverse_sigma > 0).astype(voxels.dtype)
    variance, smoother = real - np.sum(fitted**2, axis=0), None
    if design is not None:
        square = np.einsum("yxwi,yxwj->yxij", design, design, optimize=True)
        normal = square + np.eye(design.shape[-1], dtype=design.dtype)
        smoother = np.swapaxes(np.linalg.solve(normal, np.swapaxes(design, 2, 3)), 2, 3)
        variance = variance - np.einsum("yxwi,yxwi->yxw", design, smoother)
    data = _Whitened(voxels, fitted, others, design, smoother)
    neighbours = [_neighbours(axis, data, real) for axis in (-3, -2, -1)]
    products = products_of(others, others)
    left = np.maximum(np.sum(variance), 0.0)
    chi_square = TestSum(np.sum(voxels**2), left, 2 * left, np.sum(real))
    light = light * real
    shapes = {"light": light, **dict(zip(SHAPES, line_shapes(light, inverse_sigma), strict=True))}
    squares = {f"{name} of the spaxels": _collapsed(data, shapes[name], (2,)) for name in SHAPES}
    squares["sums of the bins"] = _collapsed(data, real, (0, 1))
    maps = {f"map of the {name}": _neighbours_left(data, shape, (2,)) for name, shape in shapes.items()}
    maps["spectrum of the light"] = _neighbours_left(data, light, (0, 1))
    bins = np.polynomial.legendre.legvander(np.linspace(-1, 1, light.shape[2]), min(_DEGREES, light.shape[2]) - 1)
    slow_maps, smooth = _slow_maps(np.sum(light**2, axis=2)), dict[str, TestSum]()
    for name, template in {"sums": real, **shapes}.items():
        smooth[f"smooth map of the {name}"] = _along(data, template, slow_maps[..., None], (2,))
        smooth[f"smooth spectrum of the {name}"] = _along(data, template, bins.T[:, None, None, :], (0, 1))
    return ResidualStatistics(
        chi_square=with_others(chi_square, products, products),
        neighbours=TestSum(*(np.stack(column) for column in zip(*[sums for sums, _ in neighbours], strict=True))),
        agreeing=np.stack([agreeing for _, agreeing in neighbours]),
        spaxels=_collapsed(data, light, (2,)),
        bins=_collapsed(data, light, (0, 1)),
        whole=None,
        halves=None,
        squares=squares,
        maps=maps,
        smooth={name: sums for name, sums in smooth.items() if sums.size > 0},
        ranges={
            f"{name} of a range of bins": _largest_of_ranges(data, template)
            for name, template in (("sum", real), ("light", light))
        },
        left=ResidualCube(voxels, np.maximum(variance + np.sum(others**2, axis=0) / max(len(others), 1), 0.0)),
    )


def line_shapes(light: Voxels, inverse_sigma: Voxels) -> Float[ndarray, "shape y x wave"]:
    """The first-order change of the model where its spectra are shifted, and widened: their first and second
    derivatives along the bins, in units of sigma, each less its part along the light and the ones before."""
    used = inverse_sigma > 0
    light = np.where(used, light, 0.0)
    flux = _without_gaps(np.divide(light, inverse_sigma, out=np.zeros_like(light), where=used), used)
    shapes, left, right = [light], flux[:, :, :-2], flux[:, :, 2:]
    for change in (0.5 * (right - left), right - 2 * flux[:, :, 1:-1] + left):  # central differences
        shape = np.zeros_like(flux)
        shape[:, :, 1:-1] = change
        shape = size = shape * inverse_sigma
        for before in shapes:
            square = np.sum(before**2, axis=2, keepdims=True)
            along = np.sum(shape * before, axis=2, keepdims=True) / np.where(square > 0, square, 1.0)
            shape = shape - along * before
        some = np.sum(shape**2, axis=2, keepdims=True) > _NOTHING * np.sum(size**2, axis=2, keepdims=True)
        shapes.append(np.where(some, shape, 0.0))
    return np.stack(shapes[1:])


def _without_gaps(flux: Voxels, used: ndarray) -> Voxels:
    """Spectra in which bins that are not used lie on lines between those that are."""
    flux, bins = np.array(flux), np.arange(flux.shape[2])
    for y, x in np.argwhere(used.any(axis=2) & ~used.all(axis=2)):
        known = used[y, x]
        flux[y, x] = np.interp(bins, bins[known], flux[y, x, known])
    return flux


def _unit(template: Voxels, over: tuple[int, ...]) -> tuple[Voxels, Float[ndarray, "_ _ _"]]:
    """The template with a unit sum of squares over these axes, and where (1) there is any of it."""
    norm = np.sqrt(np.sum(template**2, axis=over, keepdims=True))
    some = norm > 0
    return np.where(some, template / np.where(some, norm, 1.0), 0.0), some.astype(template.dtype)


def _neighbours_left(data: _Whitened, template: Voxels, over: tuple[int, ...]) -> TestSum:
    """Products of neighbouring spaxels along both axes (`over` bins), or bins (`over` spaxels), of what is left of a
    template in each of them."""
    weight, some = _unit(template, over)
    below = tuple(axis + 1 for axis in over)
    left = _Whitened(
        np.sum(weight * data.voxels, axis=over, keepdims=True),
        np.sum(weight * data.fitted, axis=below, keepdims=True),
        np.sum(weight * data.others, axis=below, keepdims=True),
        None,
        None,
    )
    if over == (2,):
        along_both = [_neighbours(axis, left, some)[0] for axis in (-3, -2)]
        return TestSum(*(np.sum(column) for column in zip(*along_both, strict=True)))
    if data.design is not None and data.smoother is not None:  # the coefficients of all spaxels as those of one
        design, smoother = (
            np.moveaxis(weight[..., None] * part, 2, 0).reshape(1, 1, part.shape[2], -1)
            for part in (data.design, data.smoother)
        )
        left = left._replace(design=design, smoother=smoother)
    return _neighbours(-1, left, some)[0]


_DEGREES = 8
"""Polynomials along the bins of the smooth test of the light's spectrum."""

_ALONG_PLACE, _ALONG_LIGHT = 2, 3
"""Highest powers of a spaxel's place, and of its rank by light, in smooth tests of maps."""

_FOLLOWED = 0.1
"""Variance of a template of unit length, if the model is true, below which the fit follows it."""


def _largest_of_ranges(data: _Whitened, template: Voxels) -> TestSum:
    """The largest square, over its variance, of the residuals along a template in a range of bins, of as many ranges as
    there are terms. Continua of single spaxels would make the variance smaller."""
    template = template.astype(np.float64)
    some = np.sum(template**2, axis=(0, 1)) > 0
    sums = []
    for vectors in (
        (template**2)[None],
        (template * data.voxels)[None],
        template * data.fitted,
        template * data.others,
    ):
        spectra = np.sum(vectors, axis=(1, 2))[:, some]
        sums.append(np.cumsum(np.concatenate([np.zeros((len(spectra), 1)), spectra], axis=1), axis=1))
    largest, count = 0.0, 0
    for length in lengths_of_ranges(int(some.sum())):
        square, residual, followed, deviations = (before[:, length:] - before[:, :-length] for before in sums)
        variance = square[0] - np.sum(followed**2, axis=0) + np.sum(deviations**2, axis=0) / max(len(deviations), 1)
        known = variance > _FOLLOWED * square[0]
        largest = max(largest, float(np.max(residual[0, known] ** 2 / variance[known], initial=0.0)))
        count += int(known.sum())
    return TestSum(largest, 1.0, 2.0, float(count))


def _slow_maps(square: Float[ndarray, "y x"]) -> Float[ndarray, "factor y x"]:
    """Polynomials of a spaxel's place in an image and of its rank by light, so that steps of the rank hold the same sum
    of squares."""
    order = np.argsort(square, axis=None)
    rank = np.empty(square.size)
    rank[order] = np.cumsum(square.ravel()[order]) / max(float(square.sum()), 1e-300)
    factors = [*np.polynomial.legendre.legvander(2 * rank.reshape(square.shape) - 1, _ALONG_LIGHT).transpose(2, 0, 1)]
    if min(square.shape) > 1:
        y, x = np.meshgrid(*[np.linspace(-1, 1, size) for size in square.shape], indexing="ij")
        powers = [(i, total - i) for total in range(1, _ALONG_PLACE + 1) for i in range(total + 1)]
        factors += [x**i * y**j for i, j in powers]
    return np.stack(factors)


def _along(
    data: _Whitened, template: Voxels, factors: Float[ndarray, "factor _ _ _"], over: tuple[int, ...]
) -> TestSum:
    """chi^2 of the residuals along a template times each of some factors, which are constant along the axes `over`,
    without combinations that the fit follows; NaN where residuals or derivatives are not finite."""
    template = template.astype(np.float64)  # combinations that are none but for rounding are found by their size
    below = tuple(axis + 1 for axis in over)
    residual, followed, deviations = (
        products_of(factors, np.sum(template * vectors, axis=below, keepdims=True))
        for vectors in (data.voxels[None], data.fitted, data.others)
    )
    gram = products_of(factors * np.sum(template**2, axis=over, keepdims=True), factors)
    covariance = gram - followed @ followed.T + deviations @ deviations.T / max(len(data.others), 1)
    if data.design is not None and data.smoother is not None:
        parts = [
            np.einsum("kyxw,yxw,yxwi->kyxi", factors, template, part, optimize=True)
            if over == (0, 1)
            else np.einsum("kyxw,yxi->kyxi", factors, np.einsum("yxw,yxwi->yxi", template, part))
            for part in (data.design, data.smoother)
        ]
        covariance = covariance - np.einsum("kyxi,lyxi->kl", *parts, optimize=True)
    if not (np.isfinite(residual).all() and np.isfinite(covariance).all()):
        return TestSum(float("nan"), 1.0, 2.0, 1.0)
    square, axes = np.linalg.eigh(gram)
    some = square > _NOTHING * max(float(square.max()), 1e-300)
    even = axes[:, some] / np.sqrt(square[some])
    variance, directions = np.linalg.eigh(even.T @ covariance @ even)
    left = variance > _FOLLOWED
    value = float(np.sum((directions.T @ even.T @ residual[:, 0])[left] ** 2 / variance[left]))
    degrees = float(np.sum(left))
    return TestSum(value, degrees, 2 * degrees, degrees)


def with_others(sums: TestSum, products: Float[ndarray, "draw draw"], identity: Float[ndarray, "draw draw"]) -> TestSum:
    """The sums with what particle noise adds: `products` = U^T K U, `identity` = U^T U, not less than U^T K^2 U; its
    error, that of a mean over the draws, is in the variance."""
    count = max(products.shape[0], 1)
    diagonal = np.diagonal(products)
    mean = np.sum(diagonal) / count
    spread = np.sum((diagonal - mean) ** 2) / count**2
    extra = 4 * np.trace(identity) / count + 2 * np.sum(products**2) / count**2 + spread
    return sums._replace(mean=sums.mean + mean, variance=sums.variance + extra, of_particles=extra)


def _neighbours(axis: int, data: _Whitened, real: Voxels) -> tuple[TestSum, Any]:
    """Products of neighbours along an axis (counted from the last), and how many pairs have the same sign.

    The variance is that of residuals which are independent and as likely positive as negative, whatever their size,
    sum of r_i^2 r_j^2, but at least that of residuals of unit variance.
    """

    def first(array: ndarray, along: int = axis) -> ndarray:
        return np.moveaxis(np.moveaxis(array, along, 0)[:-1], 0, along)

    def second(array: ndarray, along: int = axis) -> ndarray:
        return np.moveaxis(np.moveaxis(array, along, 0)[1:], 0, along)

    pairs = first(real) * second(real)
    product = first(data.voxels) * second(data.voxels) * pairs
    followed = np.einsum("nyxw,nyxw,yxw->", first(data.fitted), second(data.fitted), pairs)
    if axis == -1 and data.design is not None and data.smoother is not None:
        followed += np.einsum("yxwi,yxwi->", first(data.design, -2), second(data.smoother, -2))
    crossed = products_of(first(data.others) * pairs, second(data.others))
    count = np.sum(pairs)
    sums = TestSum(np.sum(product), -followed, np.maximum(np.sum(product**2), count), count)
    sums = with_others(sums, 0.5 * (crossed + crossed.T), products_of(data.others, data.others))
    return sums, np.sum(product > 0, dtype=product.dtype)


def _collapsed(data: _Whitened, light: Voxels, over: tuple[int, ...]) -> TestSum:
    """Squares of the residual light of every spaxel (`over` bins) or bin (`over` spaxels), each of unit variance: the
    sum of residuals times a weight, the model's light divided by the root of its sum of squares."""
    weight, some = _unit(light, over)
    light_left = np.sum(weight * data.voxels, axis=over)
    fitted, others = (
        np.sum(weight * vectors, axis=tuple(axis + 1 for axis in over)).reshape(len(vectors), light_left.size)
        for vectors in (data.fitted, data.others)
    )
    count, followed = np.sum(some, dtype=data.voxels.dtype), np.sum(fitted**2)
    mean, variance = count - followed, 2 * (count - 2 * followed + np.sum((fitted @ fitted.T) ** 2))
    if data.design is not None and data.smoother is not None:
        if over == (2,):
            design, smoother = (np.sum(weight[..., None] * part, axis=2) for part in (data.design, data.smoother))
            mean -= np.sum(design * smoother)
        else:
            mean -= np.sum(weight[..., None] ** 2 * data.design * data.smoother)
    products = others @ others.T
    return with_others(TestSum(np.sum(light_left**2), np.maximum(mean, 0.0), variance, count), products, products)


def splits_of_sets(sets: Sequence[FittedSet], light: Voxels) -> Splits:
    """Each set and the others (of two the first alone), and the halves of each set by the light of its model (in
    units of sigma)."""
    compared = sets if len(sets) > 2 else sets[:-1]
    other = sets[1].name if len(sets) == 2 else "all others"
    parts = [(data_set, np.ones(data_set.shape), (data_set.name, other)) for data_set in compared]
    for data_set in sets:
        halves = halves_of(data_set.unpacked(light))
        for part, pair in zip(halves.masks[::2], halves.pairs, strict=True):
            if 0 < part.sum() < part.size:
                parts.append((data_set, part, (f"{pair[0]} half of {data_set.name}", "all else")))
    rows = [_in_row(data_set, part, light.size) for data_set, part, _ in parts]
    return Splits(tuple(pair for *_, pair in parts), [mask for row in rows for mask in (row, 1 - row)])


def _in_row(data_set: FittedSet, part: Voxels, size: int) -> Float[ndarray, "1 1 voxel"]:
    """The voxels of one set in the row of those of all, 0 elsewhere."""
    row = np.zeros((1, 1, size))
    row[0, 0, data_set.place] = part.reshape(-1)
    return row


def regions_of_cube(sums: ResidualStatistics, light: Voxels, field: DataPlaces) -> list[Region]:
    """The regions of a cube where residuals stand out (`regions_of`)."""
    return [] if sums.left is None else regions_of(sums.left, light, field)


def regions_of_sets(
    sets: Sequence[FittedSet], sums: ResidualStatistics, light: Voxels, places: Mapping[str, DataPlaces]
) -> list[Region]:
    """The regions where residuals stand out (`regions_of`) in each of several sets."""
    return [
        Region(f"{region.name} of {data_set.name}", _in_row(data_set, region.voxels, light.size))
        for data_set in sets
        for region in regions_of_cube(sums.sets[data_set.name], data_set.unpacked(light), places[data_set.name])
    ]


def sums_of_sets(
    sets: Sequence[FittedSet],
    voxels: Voxels,
    inverse_sigma: Voxels,
    light: Voxels,
    fitted: Vectors,
    others: Others,
    design: Design | None,
) -> ResidualStatistics:
    """chi^2 of all voxels, and all sums of each set, as `sums_of_tests` makes them."""
    del design  # sets have no continua of single spaxels
    alone = dict[str, ResidualStatistics]()
    for data_set in sets:
        unpacked = data_set.unpacked
        alone[data_set.name] = sums_of_tests(
            unpacked(voxels), unpacked(inverse_sigma), unpacked(light), unpacked(fitted), unpacked(others), None
        )
    real = (inverse_sigma > 0).astype(voxels.dtype)
    left, products = np.maximum(np.sum(real) - np.sum(fitted**2), 0.0), products_of(others, others)
    chi_square = with_others(TestSum(np.sum(voxels**2), left, 2 * left, np.sum(real)), products, products)
    nothing, none = TestSum(0.0, 0.0, 0.0, 0.0), np.zeros(len(AXES))
    return ResidualStatistics(
        chi_square, TestSum(none, none, none, none, none), none, nothing, nothing, None, None, sets=alone
    )
