"""What the residuals of a fit would be if its model were true, and what they are: sums for tests, and half the data.

The residuals r of a model that is true, in units of their standard deviations (whitened, as the likelihood has them),
are normal with the covariance

    C = 1 - J A^-1 J^T - S + U U^T / n,        A = J^T J + 1,

J their derivatives by the latents, whose priors are N(0, 1): what is fitted follows a part of the noise. S is the same
of the coefficients of a polynomial, S = D (D^T D + 1)^-1 D^T in each spaxel. U: n deviations of models with other base
draws, of which the weights of a `fit.model_error` know nothing, less what the fit follows of them. A sum of products
T = r^T K r has the mean tr(K C) and the variance 2 tr(K C K C), which is not larger than 2 tr(K^2) without U. Here K
takes all voxels (chi^2), neighbours along an axis, or the light of each spaxel and of each bin.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.inference.posterior.free import Latent
from rubix_like.inference.posterior.likelihood import Residuals, factor_of, with_scale_information
from rubix_like.inference.posterior.linearise import columns_at
from rubix_like.inference.posterior.posterior import Posterior
from rubix_like.inference.posterior.tangent import Modelled, Tangent, models_at, tangents_at

AXES: tuple[str, ...] = ("y", "x", "wavelength")
"""Names of a cube's axes, in their order."""

HALVES: tuple[tuple[str, str], ...] = (
    ("left", "right"),
    ("lower", "upper"),
    ("brighter", "fainter"),
    ("bluer", "redder"),
)
"""Both halves of the data for each way to split them: by columns, rows and light of the spaxels, and by bins.

Splits in which neighbours are on different sides (a checkerboard, every second bin) are not among them: there both
halves see the same error of a model."""

Vectors = Float[Array, "vector y x wave"]
Others = Float[Array, "draw y x wave"]


class Halves(NamedTuple):
    """Spaxels and bins of every half (1: in it), in the order of `HALVES`, both halves of one after the other."""

    spaxels: Float[Array | ndarray, "half y x"]
    bins: Float[Array | ndarray, "half wave"]


class Sums(NamedTuple):
    """The sum of one test, its mean and variance if the model is true, how many terms it has, and which part of the
    variance is that of particle noise."""

    value: Float[Array, "*test"] | float
    mean: Float[Array, "*test"] | float
    variance: Float[Array, "*test"] | float
    size: Float[Array, "*test"] | float
    of_particles: Float[Array, "*test"] | float = 0.0


class Half(NamedTuple):
    """Half of the data: J^T J and J^T r of its residuals (and of the coefficients that they leave), J^T U."""

    matrix: Float[Array, "*half latent latent"]
    gradient: Float[Array, "*half latent"]
    other_draws: Float[Array, "*half latent draw"]


class Residue(NamedTuple):
    """Sums of the residuals for the tests, and what halves of the data say; `agreeing`: pairs of the same sign;
    `information`: that of all data on the latents, without the prior's."""

    chi_square: Sums
    neighbours: Sums
    agreeing: Float[Array, " axis"]
    spaxels: Sums
    bins: Sums
    whole: Half | None
    halves: Half | None
    information: Float[Array, "latent latent"] | None = None


def halves_of(light: Float[ndarray, "y x wave"]) -> Halves:
    """Halves that hold the same sum of squares of `light`, the model in units of the data's sigma."""
    square = np.asarray(light, np.float64) ** 2
    image, spectrum = square.sum(axis=2), square.sum(axis=(0, 1))
    place = np.meshgrid(*[np.arange(own, dtype=float) for own in image.shape], indexing="ij")
    first = [_first_half(order, image) for order in (place[1], place[0], -image)]
    everywhere, always = np.ones_like(image), np.ones_like(spectrum)
    bluer = _first_half(np.arange(len(spectrum), dtype=float), spectrum)
    spaxels = [half for own in first for half in (own, 1 - own)] + [everywhere] * 2
    bins = [always] * (2 * len(first)) + [bluer, 1 - bluer]
    return Halves(np.stack(spaxels), np.stack(bins))


def _first_half(order: Float[ndarray, "..."], weight: Float[ndarray, "..."]) -> Float[ndarray, "..."]:
    """1 where the order is low, so that half of the weight is there; places of one order stay together."""
    values, group = np.unique(order, return_inverse=True)
    total = np.bincount(group.ravel(), weight.ravel(), minlength=len(values))
    before = np.cumsum(total) - 0.5 * total
    return (before < 0.5 * total.sum())[group.reshape(order.shape)].astype(float)


def measure_misfit(
    posterior: Posterior, latent: Latent, light: Float[Array | ndarray, "y x wave"], halves: Halves
) -> Residue:
    """All sums, with the derivatives of the residuals; `light`: the model in units of sigma. Not to be traced."""
    return _misfit(posterior, latent, tangents_at(posterior, latent), light, halves)


@jax.jit
def _misfit(
    posterior: Posterior, latent: Latent, group: Tangent, light: Float[Array, "y x wave"], halves: Halves
) -> Residue:
    """The same from the tangents of the model there."""
    likelihood, noise_scale = posterior.likelihood, posterior.noise_scale(latent)
    tangent = jax.tree.map(lambda leaf: leaf[0], group)
    residuals, columns = columns_at(posterior, latent, tangent)
    slopes, size = columns.voxels, latent.shape[0]
    design = None if likelihood.polynomial is None else likelihood.design(tangent.flux, noise_scale)
    others = jnp.zeros((0, *likelihood.flux.shape), slopes.dtype)
    if likelihood.model_error is not None:
        model_error, own_scale = likelihood.model_error, factor_of(noise_scale)
        others = jax.vmap(lambda own: model_error.whiten(own / own_scale, own_scale))(model_error.held_out)

    def half(mask: tuple[Array, Array]) -> Half:
        own = mask[0][:, :, None] * mask[1][None, None]
        return _half(residuals, columns, design, others, own)

    everything = (jnp.ones(light.shape[:2], slopes.dtype), jnp.ones(light.shape[2], slopes.dtype))
    whole = half(everything)
    n_voxel = jnp.sum(likelihood.inverse_sigma > 0)
    information = with_scale_information(whole.matrix, posterior.free, latent, n_voxel)
    precision = information + jnp.eye(size, dtype=slopes.dtype)
    scale = jnp.sqrt(jnp.diagonal(precision))
    lower = jnp.linalg.cholesky(precision / (scale[:, None] * scale[None, :]))
    even = slopes.reshape(size, -1) / scale[:, None]
    fitted = jax.scipy.linalg.solve_triangular(lower, even, lower=True).reshape(slopes.shape)
    others = others - jnp.einsum("nyxw,nk->kyxw", fitted, jnp.einsum("nyxw,kyxw->nk", fitted, others))
    sums = _tests(residuals.voxels, likelihood.inverse_sigma > 0, light, fitted, others, design)
    return sums._replace(whole=whole, halves=lax.map(half, tuple(halves)), information=information)


def measure_misfit_roughly(
    posterior: Posterior, latent: Latent, light: Float[Array | ndarray, "y x wave"], n_free: Float[Array | ndarray, ""]
) -> Residue:
    """The sums where the derivatives are too large to be kept: chi^2 less nothing, correlations that may be up to the
    number of what is fitted, so that less is found than there is. Not to be traced."""
    return _rough_misfit(posterior, latent, models_at(posterior, latent), light, n_free)


@jax.jit
def _rough_misfit(
    posterior: Posterior, latent: Latent, group: Modelled, light: Float[Array, "y x wave"], n_free: Float[Array, ""]
) -> Residue:
    likelihood = posterior.likelihood
    voxels = posterior.residuals_of(group.flux[0], latent).voxels
    nothing = jnp.zeros((0, *voxels.shape), voxels.dtype)
    sums = _tests(voxels, likelihood.inverse_sigma > 0, light, nothing, nothing, None)
    highest = jnp.minimum(n_free, sums.neighbours.size)
    return sums._replace(neighbours=sums.neighbours._replace(mean=highest))


def _half(residuals: Residuals, columns: Residuals, design: Array | None, others: Others, mask: Array) -> Half:
    """Of the voxels in a mask. Coefficients of a polynomial are those that fit best to these alone: with r + J d - D g
    and c + C d + g of voxels and coefficients, the best g is taken out (Schur's complement)."""
    slopes = columns.voxels * mask[None]
    matrix = jnp.einsum("nyxw,myxw->nm", slopes, columns.voxels)
    gradient = jnp.einsum("nyxw,yxw->n", slopes, residuals.voxels)
    along = jnp.einsum("nyxw,kyxw->nk", slopes, others)
    if design is None or columns.coefficients is None or residuals.coefficients is None:
        return Half(matrix, gradient, along)
    own = design * mask[..., None]
    normal = jnp.einsum("yxwi,yxwj->yxij", own, design) + jnp.eye(design.shape[-1], dtype=design.dtype)[None, None]
    change = columns.coefficients - jnp.einsum("yxwi,nyxw->nyxi", own, columns.voxels)
    left = residuals.coefficients - jnp.einsum("yxwi,yxw->yxi", own, residuals.voxels)
    solved = jnp.linalg.solve(normal, jnp.moveaxis(change, 0, -1))
    matrix += jnp.einsum("nyxi,myxi->nm", columns.coefficients, columns.coefficients)
    gradient += jnp.einsum("nyxi,yxi->n", columns.coefficients, residuals.coefficients)
    return Half(
        matrix - jnp.einsum("nyxi,yxim->nm", change, solved), gradient - jnp.einsum("yxi,yxin->n", left, solved), along
    )


def _tests(
    voxels: Float[Array, "y x wave"],
    used: Array,
    light: Float[Array, "y x wave"],
    fitted: Vectors,
    others: Others,
    design: Float[Array, "y x wave degree"] | None,
) -> Residue:
    """`fitted`: L^-1 J with L L^T = A."""
    real = used.astype(voxels.dtype)
    smooth = None if design is None else _smooth(design)
    neighbours = [_neighbours(axis, voxels, real, fitted, others, design, smooth) for axis in (-3, -2, -1)]
    count = jnp.sum(real)
    followed = jnp.sum(fitted**2) + (0.0 if smooth is None else jnp.einsum("yxwi,yxwi->", design, smooth))
    products = jnp.einsum("kyxw,lyxw->kl", others, others)
    left = jnp.maximum(count - followed, 0.0)
    chi_square = Sums(jnp.sum(voxels**2), left, 2 * left, count)
    return Residue(
        chi_square=_with_others(chi_square, products, products),
        neighbours=Sums(*(jnp.stack(own) for own in zip(*[sums for sums, _ in neighbours], strict=True))),
        agreeing=jnp.stack([own for _, own in neighbours]),
        spaxels=_collapsed(voxels, light * real, (2,), fitted, others, design, smooth),
        bins=_collapsed(voxels, light * real, (0, 1), fitted, others, design, smooth),
        whole=None,
        halves=None,
    )


def _smooth(design: Float[Array, "y x wave degree"]) -> Float[Array, "y x wave degree"]:
    """D (D^T D + 1)^-1 of every spaxel."""
    normal = jnp.einsum("yxwi,yxwj->yxij", design, design) + jnp.eye(design.shape[-1], dtype=design.dtype)[None, None]
    return jnp.swapaxes(jnp.linalg.solve(normal, jnp.swapaxes(design, 2, 3)), 2, 3)


def _with_others(sums: Sums, products: Float[Array, "draw draw"], identity: Float[Array, "draw draw"]) -> Sums:
    """With what particle noise adds: `products` = U^T K U, `identity` = U^T U, not less than U^T K^2 U; its own error,
    that of a mean over the draws, is in the variance."""
    count = max(products.shape[0], 1)
    diagonal = jnp.diagonal(products)
    mean = jnp.sum(diagonal) / count
    spread = jnp.sum((diagonal - mean) ** 2) / count**2
    extra = 4 * jnp.trace(identity) / count + 2 * jnp.sum(products**2) / count**2 + spread
    return sums._replace(mean=sums.mean + mean, variance=sums.variance + extra, of_particles=extra)


def _neighbours(
    axis: int,
    voxels: Float[Array, "y x wave"],
    real: Float[Array, "y x wave"],
    fitted: Vectors,
    others: Others,
    design: Array | None,
    smooth: Array | None,
) -> tuple[Sums, Float[Array, ""]]:
    """Products of neighbours along an axis (counted from the last), and how many pairs have the same sign.

    The variance is that of residuals which are independent and as likely positive as negative, whatever their size,
    sum of r_i^2 r_j^2, but at least that of residuals of unit variance.
    """

    def first(array: Array, along: int = axis) -> Array:
        return lax.slice_in_dim(array, 0, -1, axis=along)

    def second(array: Array, along: int = axis) -> Array:
        return lax.slice_in_dim(array, 1, None, axis=along)

    pairs = first(real) * second(real)
    product = first(voxels) * second(voxels) * pairs
    followed = jnp.sum(jnp.sum(first(fitted) * second(fitted), axis=0) * pairs)
    if axis == -1 and design is not None and smooth is not None:
        followed += jnp.einsum("yxwi,yxwi->", first(design, -2), second(smooth, -2))
    crossed = jnp.einsum("kyxw,lyxw->kl", first(others) * pairs[None], second(others))
    identity = jnp.einsum("kyxw,lyxw->kl", others, others)
    count = jnp.sum(pairs)
    sums = Sums(jnp.sum(product), -followed, jnp.maximum(jnp.sum(product**2), count), count)
    return _with_others(sums, 0.5 * (crossed + crossed.T), identity), jnp.sum(product > 0, dtype=product.dtype)


def _collapsed(
    voxels: Float[Array, "y x wave"],
    light: Float[Array, "y x wave"],
    over: tuple[int, ...],
    fitted: Vectors,
    others: Others,
    design: Array | None,
    smooth: Array | None,
) -> Sums:
    """Squares of the residual light of every spaxel (`over` bins) or bin (`over` spaxels), each of unit variance: the
    sum of residuals times a weight, the model's light divided by the root of its sum of squares."""
    norm = jnp.sqrt(jnp.sum(light**2, axis=over, keepdims=True))
    weight = jnp.where(norm > 0, light / jnp.where(norm > 0, norm, 1), 0.0)
    below = tuple(own + 1 for own in over)
    seen = (jnp.sum(weight * voxels, axis=over)).reshape(-1)
    size = seen.shape[0]
    own_fitted, own_others = (
        jnp.sum(weight[None] * vectors, axis=below).reshape(vectors.shape[0], size) for vectors in (fitted, others)
    )
    followed, square = jnp.sum(own_fitted**2), jnp.sum((own_fitted @ own_fitted.T) ** 2)
    count = jnp.sum(norm > 0, dtype=voxels.dtype)
    mean, variance = count - followed, 2 * (count - 2 * followed + square)
    if design is not None and smooth is not None:
        parts = [jnp.sum(weight[..., None] * own, axis=over) for own in (design, smooth)]
        mean -= jnp.sum(parts[0] * parts[1]) if over == (2,) else jnp.sum(weight[..., None] ** 2 * design * smooth)
    products = own_others @ own_others.T
    return _with_others(Sums(jnp.sum(seen**2), jnp.maximum(mean, 0.0), variance, count), products, products)
