"""The posterior about its maximum: Laplace's approximation, draws, evidence, and values at the edges of their priors.

Laplace's approximation is normal, by the Gauss-Newton matrix. Draws are those of a model that is linear in the values,
between the ends of their priors. A fit knows the best latents x_best, their covariance C and the maps v(x) of the
priors. Near the end of a uniform prior a value hardly changes with its latent, and a posterior that is nearly normal in
the values is bent in the latents. So with u = (v - v_best) / (dv / dx), which is about x - x_best, and K = C^-1 - 1,
what the data say,

    -ln P(x) = x^2 / 2 - x_best u + u K u / 2 + constant.

At the best place the data's gradient is that of the prior, x_best. Priors are exact, and no draw lies outside of one.
Values that are linear in their latents (normal priors) are normal given the rest; the others are drawn by Hamiltonian
Monte Carlo (Neal 2011, arXiv:1206.1901), a chain for each draw, so that draws are independent. It takes no model.

The evidence is the density of the data, averaged over the priors, which are N(0, 1) (MacKay 2003, chapter 28):

    ln Z = ln L(x) - x^2 / 2 - 1/2 ln det(A),        A = J^T J + 1,

and for each spaxel with a separate continuum - 1/2 ln det(D^T D + 1), D by how much its coefficients change the
residuals: an integral without approximation, for the model is linear in them.

A prior with limits is flat in its latent where that is large: the value hardly changes, so that its slope, and with it
a standard deviation from derivatives, is near 0 whatever the data say. So the posterior is followed along the latent t,
by Laplace's approximation in the others, and the value has a limit or an interval:

    ln p(t) = -loss(t, x(t)) - 1/2 ln det A(t) + constant,

the others x(t) where the loss is lowest for this t, and A(t) = J^T J + 1 of them there (Tierney & Kadane 1986, J. Am.
Stat. Assoc. 81, 82).
"""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray
from scipy.interpolate import CubicHermiteSpline, CubicSpline, PchipInterpolator

from rubix_like.inference.described_trees import described_as
from rubix_like.inference.posterior.fit_model import Free, FreeParameter, Latent
from rubix_like.inference.posterior.free_parameters import declarations_of, settings_of
from rubix_like.inference.posterior.model_error import sandwich
from rubix_like.inference.posterior.posterior import (
    MOST_DENSE,
    Group,
    Posterior,
    SquaredLoss,
    group_of,
    is_dense,
    linear_of,
    models_at,
    normal_equations,
    over_starts,
    tangents_at,
    with_nuisance_information,
    with_scale_information,
)
from rubix_like.inference.posterior.priors import Isotropic, LogUniform, Uniform, is_limited
from rubix_like.inference.search.library_cells import LONGEST, Node, node_at
from rubix_like.runtime.notes import WARNING, Note

_NO_EFFECT = 1e-8
"""Information (of which the prior's is 1) below which the data say nothing."""


@dataclass(frozen=True)
class Laplace:
    """The latents are normal about `latent` with `covariance`; host arrays.

    `information`: that of the data, J^T J of their residuals; the prior's is 1 for each latent. `covariance` is the
    inverse of their sum, but for a model error, ages between the nodes of an SSP library, and errors that are inflated.
    """

    free: Free
    latent: Float[ndarray, " latent"]
    information: Float[ndarray, "latent latent"] = field(metadata=described_as("Gauss-Newton matrix of the data alone"))
    covariance: Float[ndarray, "latent latent"] = field(metadata=described_as("of the latents"))

    @property
    def sigma(self) -> Float[ndarray, " latent"]:
        """Standard deviations of the latents."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def own_latent(self) -> Float[ndarray, " latent"]:
        """The values' normal variables (`Free.own_normals`) at the maximum."""
        return np.asarray(self.free.own_normals(np.asarray(self.latent)))

    @property
    def own_covariance(self) -> Float[ndarray, "latent latent"]:
        """Covariance of the values' normal variables."""
        return self.free.mixing @ self.covariance @ self.free.mixing.T if self.free.correlated else self.covariance

    @property
    def own_sigma(self) -> Float[ndarray, " latent"]:
        """Standard deviations of the values' normal variables, of which that of the prior is 1."""
        return np.sqrt(np.diag(self.own_covariance))

    @property
    def correlation(self) -> Float[ndarray, "latent latent"]:
        """Correlation matrix of the values' normal variables."""
        return self.own_covariance / np.outer(self.own_sigma, self.own_sigma)

    def value_covariance(self) -> Float[ndarray, "latent latent"]:
        """Covariance of the values, in the order of `free.labels`, by the slopes of the priors' maps."""
        slope = self.free.slopes(self.latent)
        return self.own_covariance * np.outer(slope, slope)

    def sample(self, seed: int, count: int) -> Float[ndarray, "count latent"]:
        """Draws of the values, in the order of `free.labels`: of a model that is linear in the values, with the priors
        as they are (`drawn_latents`), so that none lies outside its prior."""
        return np.asarray(self.free.flat(drawn_latents(self.free, self.latent, self.covariance, seed, count)))

    def without_effect(self) -> Bool[ndarray, " latent"]:
        """Latents of which the data say nothing."""
        return np.diag(self.information) < _NO_EFFECT


def laplace(posterior: Posterior, latent: Latent) -> Laplace | str:
    """The approximation about a maximum of the posterior, or why there is none.

    With a model error the covariance is the maximum's (`model_error.sandwich`), not the inverse of the precision.
    """
    free, likelihood = posterior.free, posterior.likelihood
    if not is_dense(free.n_latent, likelihood.flux.size):
        return (
            f"the matrix of {free.n_latent} latents and {likelihood.flux.size} voxels is too large (up to "
            f"{MOST_DENSE} latents are possible); fit fewer numbers, or fewer wavelengths, to get uncertainties"
        )
    n_voxel = np.count_nonzero(np.asarray(likelihood.inverse_sigma))
    return laplace_from(posterior, latent, information(posterior, free, latent, np.int64(n_voxel)))


def laplace_from(
    posterior: Posterior, latent: Latent, matrix: Float[Array | ndarray, "latent latent"]
) -> Laplace | str:
    """The Laplace approximation from the information of the data that is known already."""
    result = from_information(posterior.free, latent, matrix)
    if isinstance(result, str) or posterior.likelihood.model_error is None:
        return result
    covariance = sandwich(posterior, latent)
    return dataclasses.replace(result, covariance=0.5 * (covariance + covariance.T))


def from_information(free: Free, latent: Latent, information: Float[Array | ndarray, "latent latent"]) -> Laplace | str:
    """The approximation about a maximum with this information of the data, or why there is none."""
    matrix = np.asarray(information, np.float64)
    if not np.isfinite(matrix).all():
        return "the derivatives of the model at the best values are not finite"
    precision = matrix + np.eye(len(matrix))
    scale = 1 / np.sqrt(np.diag(precision))
    covariance = np.linalg.inv(precision * np.outer(scale, scale)) * np.outer(scale, scale)
    return Laplace(free, np.asarray(latent), matrix, 0.5 * (covariance + covariance.T))


def inflated(laplace: Laplace | None, factor: float) -> Laplace | None:
    """The approximation with all standard deviations times a factor; its `information` stays that of the data."""
    if laplace is None or factor == 1:
        return laplace
    return dataclasses.replace(laplace, covariance=factor**2 * laplace.covariance)


def information(
    posterior: SquaredLoss, free: Free, latent: Latent, n_voxel: Int[Array | np.integer, ""]
) -> Float[Array, "latent latent"]:
    """J^T J of all residuals but the prior's; of the noise scale, and of a distribution of errors with its parameters,
    it is Fisher's information instead."""
    if isinstance(posterior, Posterior):
        normal = posterior.as_normal(latent)
        group = linear_of(normal, group_of(posterior, latent), tangents_at(posterior, latent)).matrix
        data = _of_data(group, free, latent, n_voxel)
        return with_nuisance_information(data, free, jnp.asarray(latent), posterior.likelihood)
    group = _matrices(posterior, np.asarray(latent)[None])
    return _of_data(group, free, latent, n_voxel)


@jax.jit
def _matrices(posterior: SquaredLoss, latent: Group) -> Float[Array, "start latent latent"]:
    return over_starts(lambda shared, at: normal_equations(shared, at)[0], posterior, latent)


@jax.jit
def _of_data(
    group: Float[Array, "start latent latent"], free: Free, latent: Latent, n_voxel: Array
) -> Float[Array, "latent latent"]:
    data = group[0] - jnp.eye(group.shape[1], dtype=group.dtype)
    return with_scale_information(data, free, latent, n_voxel)


_BENT = 0.02
"""Departure of a value's map from a straight line within `_REACH`, in standard deviations, from which it counts."""

_REACH = 4.0
_FURTHEST = 9.0
"""Normal variables up to which maps are tabulated: beyond is 1e-19 of a prior."""

_SPACING = 0.01

_ROUNDS, _TRAJECTORIES = 4, 12
"""Numbers of the chains; after each round but the last the steps are chosen anew."""

_STEP, _LEAST_ACCEPTED, _MOST_ACCEPTED = 0.35, 0.7, 0.9
_QUARTER = 0.5 * np.pi
"""Longest trajectory: a quarter of the period of a normal posterior."""

_MOST_TOGETHER = 64
"""Bent values up to which the covariance of the chains is measured; more have that of the approximation."""


def drawn_latents(
    free: Free, best: Float[ndarray, " latent"], covariance: Float[ndarray, "latent latent"], seed: int, count: int
) -> Float[ndarray, "count latent"]:
    """Independent draws of the latents; `covariance`: as of a model that is linear in these."""
    generator = np.random.default_rng(seed)
    bent = _bent(free, best, covariance)
    if not bent.any():
        return best + generator.standard_normal((count, len(best))) @ np.linalg.cholesky(covariance).T
    target = _Target.of(free, best, covariance, bent)
    chains = max(count, 4 * target.size) if target.size <= _MOST_TOGETHER else count
    latent = _chains(target, _first(target, chains, generator), generator)[:count]
    found = np.empty((count, len(best)))
    found[:, bent] = latent
    if not bent.all():  # the others are normal given these
        regression = np.linalg.solve(covariance[np.ix_(bent, bent)], covariance[np.ix_(bent, ~bent)])
        rest = covariance[np.ix_(~bent, ~bent)] - covariance[np.ix_(~bent, bent)] @ regression
        noise = generator.standard_normal((count, len(rest))) @ np.linalg.cholesky(rest).T
        found[:, ~bent] = best[~bent] + target.scaled(latent)[0] @ regression + noise
    return found


def _bent(
    free: Free, best: Float[ndarray, " latent"], covariance: Float[ndarray, "latent latent"]
) -> Bool[ndarray, " latent"]:
    """Latents whose maps are bent within the reach of the posterior, and those correlated with them in the prior."""
    normals = np.asarray(free.own_normals(best))
    mixing = free.mixing
    sigma = np.sqrt(np.diag(mixing @ covariance @ mixing.T))
    slope, middle = free.slopes(best), np.asarray(free.flat_of(normals))
    found = np.zeros(len(best), bool)
    for side in (-_REACH, -0.5 * _REACH, 0.5 * _REACH, _REACH):
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            scaled = (np.asarray(free.flat_of(normals + side * sigma)) - middle) / slope
        found |= np.abs(scaled - side * sigma) > _BENT * sigma
    found &= slope > 0
    return (np.abs(mixing) + np.abs(mixing.T)) @ found > 0 if free.correlated else found


@dataclass(frozen=True)
class _Target:
    """The density of the bent latents alone.

    `table`: cubic pieces (power, piece, bent) of u by the values' normal variables, from `-reach` on; `mixing`:
    these = mixing x; `unmixing`: its inverse; `of_data`: K, the rest being integrated over; `half`: of the
    approximation's covariance.
    """

    best: Float[ndarray, " bent"]
    mixing: Float[ndarray, "bent bent"]
    unmixing: Float[ndarray, "bent bent"]
    of_data: Float[ndarray, "bent bent"]
    half: Float[ndarray, "bent bent"]
    table: Float[ndarray, "power piece bent"]
    reach: float

    @classmethod
    def of(
        cls,
        free: Free,
        best: Float[ndarray, " latent"],
        covariance: Float[ndarray, "latent latent"],
        bent: Bool[ndarray, " latent"],
    ) -> "_Target":
        normals, inner = np.asarray(free.own_normals(best)), covariance[np.ix_(bent, bent)]
        reach = float(max(_FURTHEST, np.abs(normals).max() + 1))
        grid = np.linspace(-reach, reach, round(2 * reach / _SPACING) + 1)
        values = np.asarray(free.flat_of(np.tile(grid[:, None], len(best))))[:, bent]
        middle, slope = np.asarray(free.flat_of(normals))[bent], free.slopes(best)[bent]
        eigenvalues, axes = np.linalg.eigh(np.linalg.inv(inner) - np.eye(len(inner)))
        mixing = free.mixing[np.ix_(bent, bent)]
        return cls(
            best[bent],
            mixing,
            np.linalg.inv(mixing),
            (axes * np.maximum(eigenvalues, 0)) @ axes.T,
            np.linalg.cholesky(inner),
            CubicSpline(grid, (values - middle) / slope).c,
            reach,
        )

    @property
    def size(self) -> int:
        return len(self.best)

    def scaled(self, latent: Float[ndarray, "chain bent"]) -> tuple[ndarray, ndarray]:
        """u, unmixed like the latents, and the derivatives of the mixed one by the values' normal variables."""
        n_piece = self.table.shape[1]
        spacing = 2 * self.reach / n_piece
        place = latent @ self.mixing.T + self.reach
        piece = np.clip((place / spacing).astype(int), 0, n_piece - 1)
        cube, square, line, constant = self.table[:, piece, np.arange(self.size)]
        rest = place - piece * spacing
        value = ((cube * rest + square) * rest + line) * rest + constant
        return value @ self.unmixing.T, (3 * cube * rest + 2 * square) * rest + line

    def loss(self, latent: Float[ndarray, "chain bent"]) -> tuple[ndarray, ndarray]:
        """-ln P up to a constant, and its gradient."""
        scaled, slope = self.scaled(latent)
        pushed = scaled @ self.of_data
        loss = 0.5 * np.sum(latent**2, axis=1) - scaled @ self.best + 0.5 * np.sum(scaled * pushed, axis=1)
        by_own = (pushed - self.best) @ self.unmixing * slope
        return loss, latent + by_own @ self.mixing


def _first(target: _Target, chains: int, generator: np.random.Generator) -> Float[ndarray, "chain bent"]:
    """Starts of chains: normal in the values, or in the latents where that is outside a prior."""
    normal = generator.standard_normal((chains, target.size)) @ target.half.T
    grid = np.linspace(-target.reach, target.reach, target.table.shape[1] + 1)[:-1]
    pairs = zip((normal @ target.mixing.T).T, target.table[3].T, strict=True)
    normals = [np.interp(scaled, nodes, grid, left=np.nan, right=np.nan) for scaled, nodes in pairs]
    bent = np.stack(normals, axis=1) @ target.unmixing.T
    usable = np.asarray((np.isfinite(bent) & (np.abs(bent) < 0.5 * target.reach)).all(axis=1))
    return np.where(usable[:, None], bent, target.best + normal)


def _chains(
    target: _Target, latent: Float[ndarray, "chain bent"], generator: np.random.Generator
) -> Float[ndarray, "chain bent"]:
    half, step = target.half, _STEP
    for number in range(_ROUNDS):
        if number and target.size <= _MOST_TOGETHER:
            half = np.linalg.cholesky(np.atleast_2d(np.cov(latent, rowvar=False)))
        for _ in range(_TRAJECTORIES):
            length = _QUARTER * generator.uniform(0.3, 1)
            latent, accepted = _moved(target, latent, half, (length, step), generator)
            if number < _ROUNDS - 1:
                step *= 0.8 if accepted < _LEAST_ACCEPTED else 1.1 if accepted > _MOST_ACCEPTED else 1
    return latent


def _moved(
    target: _Target,
    latent: Float[ndarray, "chain bent"],
    half: Float[ndarray, "bent bent"],
    chosen: tuple[float, float],
    generator: np.random.Generator,
) -> tuple[Float[ndarray, "chain bent"], float]:
    """The end of one trajectory of each chain (leapfrog in coordinates in which `half` half^T is 1), and the share of
    them that is accepted; `chosen`: its length and the longest step."""
    count = int(np.ceil(chosen[0] / chosen[1]))
    step, place = chosen[0] / count, latent
    loss, slope = target.loss(place)
    momentum = generator.standard_normal(latent.shape)
    energy = loss + 0.5 * np.sum(momentum**2, axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        momentum = momentum - 0.5 * step * slope @ half
        for number in range(count):
            place = place + step * momentum @ half.T
            loss, slope = target.loss(np.nan_to_num(place))
            momentum = momentum - (step if number < count - 1 else 0.5 * step) * slope @ half
        change = energy - loss - 0.5 * np.sum(momentum**2, axis=1)
    accepted = np.asarray(np.log(generator.random(len(latent))) < change)
    return np.where(accepted[:, None], place, latent), float(accepted.mean())


@dataclass(frozen=True)
class Evidence:
    """ln Z of the data that were fitted, each voxel a density in (1e-20 erg/s/cm2/Angstrom)^-1.

    Only differences of models of the same voxels mean something: exp of that is the Bayes factor. `error`: standard
    deviation of ln Z by the sampler; NaN by Laplace's approximation, whose error is not known.
    """

    log_evidence: float = field(metadata=described_as("ln of the density of the fitted voxels, over the priors"))
    error: float = field(metadata=described_as("its standard deviation; NaN where it is not known"))
    method: str = field(metadata=described_as("Laplace, or the name of a sampler"))

    @property
    def sentence(self) -> str:
        """A line of a summary."""
        error = f" +- {self.error:.2g}" if np.isfinite(self.error) else ""
        return f"ln evidence {self.log_evidence:.8g}{error} ({self.method})"


def laplace_evidence(posterior: Posterior, laplace: Laplace | None, loss: float) -> Evidence | None:
    """The evidence by the Gauss-Newton matrix at the best latents, where the loss is known; None without a matrix, and
    for populations that are solved for, whose weights are not integrated over."""
    if laplace is None or solves_for_populations(posterior):
        return None
    precision = laplace.information + np.eye(len(laplace.latent))
    sign, log_determinant = np.linalg.slogdet(precision)
    if not sign > 0:
        return None
    found = normalisation_at(posterior, laplace.latent) - loss - 0.5 * float(log_determinant)
    return Evidence(found, float("nan"), "Laplace")


def solves_for_populations(posterior: Posterior) -> bool:
    """Whether the loss is that of the best weights of free-form populations, which is no density of the latents."""
    return posterior.forward.main.mixtures is not None


def normalisation_at(posterior: Posterior, latent: Float[ndarray, " latent"]) -> float:
    """The sum that makes minus the loss ln(likelihood) - latent^2 / 2, not to be traced. Continua D are integrated over
    at these latents: -1/2 ln det(D^T D + 1) of each spaxel."""
    likelihood, constant = posterior.likelihood, float(_constant(posterior, jnp.asarray(latent)))
    if likelihood.polynomial is None:
        return constant
    scale = posterior.noise_scale(jnp.asarray(latent))
    design = np.asarray(likelihood.design(models_at(posterior, latent).flux[0], scale), np.float64)
    normal = np.einsum("yxwi,yxwj->yxij", design, design, optimize=True) + np.eye(design.shape[-1])
    return constant - 0.5 * float(np.linalg.slogdet(normal)[1].sum())


@jax.jit
def _constant(posterior: Posterior, latent: Latent) -> Float[Array, ""]:
    return posterior.likelihood_at(latent).log_normalisation(posterior.noise_scale(latent))


NODES: int = 201
"""At which a posterior is kept."""

_DEEP = 8.0
"""Below the highest ln p the posterior is followed no further."""

_ROUGH = 10 * NODES
"""Places by which it is found how far that is."""

_FURTHEST_LATENT = 6.0
"""|latent| beyond which there is nothing of a prior."""

_MOST_NODES = 14
"""Largest number of nodes on each side of the best fit."""

_PART = 0.7
"""Distance of two nodes, in standard deviations."""

Row = tuple[Float[ndarray, " node"], Float[ndarray, " node"], float, float]
"""Latents, density, by how much the loss is lower elsewhere, and where."""


def normalised(at: Float[ndarray, " node"], log_density: Float[ndarray, " node"]) -> Float[ndarray, " node"]:
    """The density whose logarithm is known up to a constant."""
    density = np.exp(log_density - log_density.max())
    return density / np.trapezoid(density, at)


def follow(posterior: SquaredLoss, best: Float[ndarray, " latent"], index: int) -> Row:
    """The posterior along one latent, from the best fit to both sides, where there is something of it."""
    begin = node_at(posterior, best, index, float(best[index]))
    sides = [list(_walk(posterior, begin, index, way)) for way in (-1.0, 1.0)]
    nodes = sorted([begin, *sides[0], *sides[1]], key=lambda node: node.at)
    places, loss, slope, determinant = (
        np.array([getattr(node, name) for node in nodes]) for name in ("at", "loss", "slope", "log_determinant")
    )
    loss_between = CubicHermiteSpline(places, loss, slope)
    determinant_between = PchipInterpolator(places, determinant)

    def log_density(at: Float[ndarray, " node"]) -> Float[ndarray, " node"]:
        return -loss_between(at) - 0.5 * determinant_between(at)

    rough = np.linspace(places[0], places[-1], _ROUGH)
    known = log_density(rough)
    there = rough[known > known.max() - _DEEP]
    at = np.linspace(there[0], there[-1], NODES)
    lowest = min(nodes, key=lambda node: node.loss)
    return at, normalised(at, log_density(at)), begin.loss - lowest.loss, lowest.at


def _walk(posterior: SquaredLoss, begin: Node, index: int, way: float) -> Iterator[Node]:
    """Node by node in one direction, until there is nothing left of the posterior.

    A step is a part of the standard deviation there; uphill, half the way to where the loss is lowest, if that is more.
    """
    node, highest = begin, begin.log_density
    for _ in range(_MOST_NODES):
        uphill = max(-way * node.slope, 0.0) * node.sigma**2
        step = min(max(_PART * node.sigma, 0.5 * uphill), LONGEST)
        at = float(np.clip(node.at + way * step, -_FURTHEST_LATENT, _FURTHEST_LATENT))
        if at == node.at:
            return
        node = node_at(posterior, node.followed_to(at), index, at)
        if not np.isfinite(node.log_density):
            return
        yield node
        highest = max(highest, node.log_density)
        if highest - node.log_density > _DEEP:
            return


EDGE: float = 2.0
"""|latent| from which on a value is at the edge of its prior: 4.6 % of the prior lies there."""

FAR: float = 3.0
"""|latent| in place of `EDGE` for a prior without limits, or that fades away towards one: 0.3 % of it lies there."""

LIMIT: float = 0.95
"""Probability of a limit where none is asked for."""

MOST_FOLLOWED: int = 4
"""Values whose posterior is followed: those nearest to their edges."""

MOST_LATENTS: int = 100
"""Largest number of latents of a fit whose edges are followed: a step along a latent costs a step of the search."""

_KNOWN = 0.02
"""Standard deviation of a latent below which its normal approximation is right at an edge, too."""

_FADED = 0.5
"""A prior fades away towards an end that at |latent| = 2 is further away than this times the step from 1 to 2."""

_BEYOND = 1e-6
"""Step beyond an end of a prior, relative to the end, or to the prior's width where the end is 0."""

_OF_AXES = (0.0, 90.0, 180.0)
"""Inclinations (deg) beyond which the same ones come again, seen from the other side."""

_SAME_ANGLE, _TURN = 1e-3, 360.0
"""deg."""

_Which = Bool[ndarray | np.bool_, "..."]
"""Whether each value of a parameter is at an edge of its prior."""


class Reach(NamedTuple):
    """An interval of values, or a limit: `sign` "<" (up to `high`) or ">" (from `low` on), or "" of an interval."""

    sign: str
    low: float
    high: float

    def words(self, probability: float = LIMIT) -> str:
        """The limit in words, with its probability."""
        share = f"({100 * probability:g} %)"
        if self.sign:
            return f"{self.sign} {self.high if self.sign == '<' else self.low:.3g} {share}"
        size = max(abs(self.high), abs(self.low), np.finfo(float).tiny)
        digits = max(3, 2 - int(np.floor(np.log10(max((self.high - self.low) / size, 1e-9)))))
        return f"{self.low:.{digits}g} to {self.high:.{digits}g} {share}"


@dataclass(frozen=True, eq=False)
class Edges:
    """Posteriors of some latents: `index` in the order of the labels, the density `density` at the latents `latent`,
    rising.

    `lower_loss`: by how much the loss is lower elsewhere along the latent than at the best fit, and `lower_at` where.
    """

    index: Int[ndarray, " edge"] = field(
        metadata=described_as("places among the labels of the values at the edge of their priors")
    )
    latent: Float[ndarray, "edge node"] = field(
        metadata=described_as("latents at which the posterior of each is tabulated")
    )
    density: Float[ndarray, "edge node"] = field(metadata=described_as("its density there"))
    lower_loss: Float[ndarray, " edge"] = field(
        metadata=described_as("by how much the loss is lower elsewhere along the latent")
    )
    lower_at: Float[ndarray, " edge"] = field(metadata=described_as("at which latent that is"))

    @classmethod
    def none(cls) -> "Edges":
        """The edges of a fit without any."""
        nothing = np.zeros((0, NODES))
        return cls(np.zeros(0, np.int64), nothing, nothing, np.zeros(0), np.zeros(0))

    def quantile(self, number: int, share: float) -> float:
        """The latent below which this share of the posterior of one of them lies."""
        at, density = self.latent[number], self.density[number]
        cumulative = np.append(0.0, np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(at)))
        rising = np.append(True, np.diff(cumulative) > 0)
        return float(np.interp(share, cumulative[rising] / cumulative[-1], at[rising]))

    def reach(self, free: Free, number: int, probability: float) -> Reach:
        """The values that hold this probability: up to the prior's end where the posterior lies against it, else with
        as much below as above."""
        index = int(self.index[number])
        ends = ends_of(free, index)
        return reach_by(lambda share: _value(free, index, self.quantile(number, share)), ends, probability)


def check_probability(place: str, probability: float) -> None:
    """Raise ValueError for what is no probability, such as 68 of a percentage."""
    if not 0 < probability < 1:
        example = probability / 100 if 1 < probability < 100 else 0.95
        raise ValueError(f"{place}: expected a probability between 0 and 1, got {probability!r}; e.g. {example:g}")


def reach_by(quantile: Callable[[float], float], ends: tuple[float, float], probability: float) -> Reach:
    """The reach of a posterior with these quantiles, of a prior that lies between `ends`."""
    low, middle, high = (quantile(share) for share in (0.1587, 0.5, 0.8413))
    sign = sign_of(low, middle, high, ends)
    tail = (1 - probability) / (1 if sign else 2)
    first = ends[0] if sign == "<" else quantile(tail)
    return Reach(sign, first, ends[1] if sign == ">" else quantile(1 - tail))


def sign_of(low: float, middle: float, high: float, ends: tuple[float, float]) -> str:
    """Whether a posterior with these values at 16, 50 and 84 % lies against an end of its prior: "<" the lower one,
    ">" the upper one, "" neither. Against it: the end is nearer to the value on its side than the middle is."""
    gaps = low - ends[0], ends[1] - high
    if gaps[0] < middle - low and gaps[0] <= gaps[1]:
        return "<"
    return ">" if gaps[1] < high - middle else ""


def edges_of(posterior: SquaredLoss, free: Free, best: Float[ndarray, " latent"], laplace: Laplace | None) -> Edges:
    """The posterior of every value at an edge of its prior; of none where there is no approximation.

    It is followed where the normal approximation cannot be right, for up to `MOST_FOLLOWED` values; of others it is
    that approximation, in the latent, within the prior.
    """
    if laplace is None:
        return Edges.none()
    best = np.asarray(best, np.float64)
    found = at_edge(free, best)
    if not len(found):
        return Edges.none()
    doubtful = [index for index in found[np.argsort(-np.abs(best[found]))] if laplace.sigma[index] > _KNOWN]
    followed = doubtful[:MOST_FOLLOWED] if len(best) <= MOST_LATENTS else []
    rows = [
        follow(posterior, best, int(index))
        if index in followed
        else _normal(float(best[index]), float(laplace.sigma[index]))
        for index in found
    ]
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return Edges(found, *columns)


def at_edge(free: Free, latent: Float[ndarray, " latent"]) -> Int[ndarray, " edge"]:
    """Latents at an edge (`edges_from`) where the prior has a limit.

    The 0 of a log-normal prior is none: there a value changes with its latent as it does everywhere.
    """
    limited = np.concatenate([np.full(parameter.size, is_limited(parameter.prior)) for parameter in free.parameters])
    beyond = np.abs(latent) >= np.where(latent < 0, edges_from(free, -1), edges_from(free, 1))
    far = (int(index) for index in np.flatnonzero(limited & beyond))
    return np.array(
        [index for index in far if np.isfinite(_value(free, index, np.copysign(np.inf, latent[index])))], int
    )


def edges_from(free: Free, sign: int) -> Float[ndarray, " latent"]:
    """|latent| from which on each value is at the lower (-1) or upper (1) edge of its prior: `EDGE` where that is a
    limit against which a value can lie, else `FAR`."""
    return np.concatenate(
        [np.broadcast_to(_edge_from(parameter, sign), parameter.shape).ravel() for parameter in free.parameters]
    )


def _edge_from(parameter: FreeParameter, sign: int) -> Float[ndarray, "..."]:
    """|latent| from which on a value is at the lower (-1) or upper (1) edge of one parameter's prior.

    Whether a prior fades away is judged by distances in the value, or in its logarithm between ends above 0.
    """
    if isinstance(parameter.prior, Uniform | LogUniform | Isotropic):
        return np.asarray(EDGE)
    if not is_limited(parameter.prior):
        return np.asarray(FAR)
    far, inner, outer, end = (
        np.asarray(parameter.prior.value(np.full(parameter.shape, sign * at)), np.float64)
        for at in (-np.inf, 1.0, EDGE, np.inf)
    )
    if np.isfinite([far, end]).all() and np.all(np.minimum(far, end) > 0):
        inner, outer, end = np.log(inner), np.log(outer), np.log(end)
    return np.where(np.abs(end - outer) <= _FADED * np.abs(outer - inner), EDGE, FAR)


def ends_of(free: Free, index: int) -> tuple[float, float]:
    """The values between which a prior lies."""
    return _value(free, index, -np.inf), _value(free, index, np.inf)


def advice_at_edge(parameter: FreeParameter, below: _Which, above: _Which) -> str:
    """How a sentence on values at the lower, or the upper, edge of their prior ends: with the advice to widen it,
    unless nothing is possible beyond that end."""
    if np.any(below & ~_is_last(parameter, -1)) or np.any(above & ~_is_last(parameter, 1)):
        return "; widen it if it need not be there"
    return ", the end of what is possible"


def _is_last(parameter: FreeParameter, sign: int) -> _Which:
    """Whether beyond the lower (-1) or upper (1) end of a prior its parameter cannot be, or comes again."""
    if not is_limited(parameter.prior):
        return np.zeros(parameter.shape, bool)
    low, high = (
        np.asarray(parameter.prior.value(np.full(parameter.shape, at)), np.float64) for at in (-np.inf, np.inf)
    )
    end = high if sign > 0 else low
    last = np.full(parameter.shape, parameter.unit == "deg") & (high - low >= _TURN)
    if parameter.name == "observation.inclination" or isinstance(parameter.prior, Isotropic):
        last = last | np.any(np.abs(end[..., None] - np.array(_OF_AXES)) < _SAME_ANGLE, axis=-1)
    declared = declarations_of([parameter.name]).get(parameter.name)
    if declared is None or not np.isfinite(end).all():
        return last
    beyond = np.asarray(end + sign * _BEYOND * np.where(end == 0, high - low, np.abs(end)))
    return last | any(declared.fault(value.tolist()) is not None for value in settings_of(parameter.name, beyond))


def notes_on_edges(free: Free, edges: Edges, furthest: float) -> list[Note]:
    """Notes on false maxima: where along a latent the loss is lower by more than `furthest` than at the best fit."""
    return [
        Note(
            "search.false_maximum",
            f"the loss is lower by {gap:.3g} with {free.labels[index]} at {_value(free, int(index), at):.4g}: the "
            f"search has ended in a false maximum at the edge of its prior; begin there (fit.start), or with more "
            f"starts",
            WARNING,
        )
        for index, gap, at in zip(edges.index, edges.lower_loss, edges.lower_at, strict=True)
        if gap > furthest
    ]


def _value(free: Free, index: int, latent: float) -> float:
    for parameter in free.parameters:
        if index < parameter.size:
            return float(np.ravel(parameter.prior.value(np.full(parameter.shape, latent)))[index])
        index -= parameter.size
    raise IndexError(f"expected a place among {free.n_latent} latents, got one beyond")


def _normal(mean: float, sigma: float) -> Row:
    at = mean + sigma * np.linspace(-6, 6, NODES)
    return at, normalised(at, -0.5 * ((at - mean) / sigma) ** 2), 0.0, mean
