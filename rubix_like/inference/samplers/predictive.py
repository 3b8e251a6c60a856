"""Posterior predictions: mean and variance cubes, p of discrepancies between data and model, and ln(likelihood) of each
point.

Posterior-predictive distribution: Gelman et al., Bayesian Data Analysis (3rd edition), chapter 6. Counts, means and
sums of squared deviations over rows of devices are merged as by Chan, Golub & LeVeque (1979, Stanford CS-79-773).

Of each draw a data set is drawn from the model's errors. A discrepancy T of the data from the model of a draw is
compared with that of the replicated data; p is the probability that the latter is at least as large (Gelman, Meng &
Stern 1996, Statistica Sinica 6, 733; section 6.3 of the book). With k of n draws it is estimated by (k + 1) / (n + 2),
its mean after a uniform prior (Laplace's rule of succession): n draws know no p below 1 / (n + 2), nor one of 0
(Phipson & Smyth 2010, Stat. Appl. Genet. Mol. Biol. 9, 39). p near 0: the data are further from the model than its
data would be; near 1: nearer.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, UInt32
from numpy import ndarray

from rubix_like.config.sections.fit import SamplingSettings
from rubix_like.cube.cube import Cube
from rubix_like.inference.best_fit import noise_variance, on_grid, set_alone
from rubix_like.inference.checks.misfit import AXES
from rubix_like.inference.checks.verdict import Scatter
from rubix_like.inference.described_trees import described_as
from rubix_like.inference.likelihoods.kinds import JointErrors
from rubix_like.inference.likelihoods.voxel_errors import (
    AbstractCorrelation,
    AbstractErrorDistribution,
    quadrature_nodes,
)
from rubix_like.inference.posterior.fit_model import Latent
from rubix_like.inference.posterior.posterior import (
    Likelihood,
    NoiseScale,
    Posterior,
    SquaredLoss,
    factor_of,
)
from rubix_like.inference.posterior.problem import Kernel, Placed, Problem, fetched, on_rows, placed
from rubix_like.runtime.mesh.mesh import SAMPLE_AXIS
from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.words import listed

DISCREPANCIES: tuple[str, ...] = (
    "chi^2",
    "correlation along y",
    "correlation along x",
    "correlation along wavelength",
    "light of the spaxels",
    "light of the bins",
    "largest residual",
)
"""Quantities that are compared: sums of squares of residuals in units of their standard deviations, of products of
neighbours, of squares of the residual light of each spaxel and of each bin, and the largest residual."""

UNLIKELY: float = 0.01
"""p, or 1 - p, below which a check is noted: fewer than 99 draws know none."""

_HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)

Voxels = Float[Array, "y x wave"]

Shapes = tuple[tuple[int, int, int], ...]
"""(y, x, wave) of each of several sets of data; empty: of one cube."""


class OfDraw(NamedTuple):
    """Discrepancies of the data and of replicated data from a draw's model, and ln(likelihood) of each point."""

    data: Float[Array, " discrepancy"]
    replicated: Float[Array, " discrepancy"]
    pointwise: Float[Array, "..."]


@dataclass(frozen=True, eq=False)
class Pointwise:
    """ln(likelihood) of every spaxel (all its voxels together: one number at its end) or of every voxel, at some draws
    of each chain; 0 where the data were not fitted."""

    values: Float[ndarray, "chain draw y x point"] = field(metadata=described_as("ln(likelihood), 0: not fitted"))
    draws: Int[ndarray, " draw"] = field(metadata=described_as("numbers of these draws in their chains, from 0"))

    @property
    def of_voxels(self) -> bool:
        """Whether there is a number for each voxel."""
        return self.values.shape[-1] > 1


def of_draw(
    posterior: Posterior,
    latent: Latent,
    key: UInt32[Array, "2"],
    model: Voxels,
    flux: Voxels,
    points: str | None,
    shapes: Shapes = (),
) -> tuple[OfDraw, ...]:
    """Checks of a draw for the one cube, or for each of several sets of data of these shapes, whose voxels lie in a
    row.

    `model`: its flux, `flux`: the same with the best continuum, `key`: a random key, `points`: "spaxels", "voxels", or
    None for none. To be called inside a trace.
    """
    scale, likelihood = posterior.noise_scale(latent), posterior.likelihood_at(latent)
    light = model * likelihood.inverse_sigma
    used = likelihood.inverse_sigma > 0
    residuals = likelihood.residuals(model, scale).voxels
    other = _replicated(likelihood, model, flux, scale, key)
    point = _log_densities(likelihood, flux, scale)
    parts = zip(*(_parts(voxels, shapes) for voxels in (residuals, other, used, light, point)), strict=True)
    found = []
    for (data, replicated, used, light, point), given in zip(parts, has_points(likelihood, len(shapes)), strict=True):
        if points is None or not given:
            pointwise = jnp.zeros((0,), point.dtype)
        else:
            pointwise = point if points == "voxels" else jnp.sum(point, axis=2, keepdims=True)
        found.append(OfDraw(discrepancies(data, used, light), discrepancies(replicated, used, light), pointwise))
    return tuple(found)


def _parts(row: Any, shapes: Shapes) -> list[Any]:
    """The voxels of each set of data; without shapes the one cube as it is."""
    if not shapes:
        return [row]
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    return [
        row[0, 0, end - math.prod(shape) : end].reshape(shape) for shape, end in zip(shapes, ends.tolist(), strict=True)
    ]


def discrepancies(residual: Voxels, used: Bool[Array, "y x wave"], light: Voxels) -> Float[Array, " discrepancy"]:
    """All of `DISCREPANCIES`, of residuals in units of their standard deviations; `light`: the model in units of sigma.

    T = sum r^2, sum of r_i r_j over neighbours along each axis, sums over spaxels and over bins of (l . r)^2 / (l . l),
    and the largest |r|.
    """
    residual, light = jnp.where(used, residual, 0), jnp.where(used, light, 0)
    pairs = [
        jnp.sum(jnp.moveaxis(residual, axis, 0)[1:] * jnp.moveaxis(residual, axis, 0)[:-1])
        for axis in range(residual.ndim)
    ]
    lights = []
    for over in ((2,), (0, 1)):
        square = jnp.sum(light**2, axis=over)
        along = jnp.sum(light * residual, axis=over) ** 2
        lights.append(jnp.sum(jnp.where(square > 0, along / jnp.where(square > 0, square, 1), 0)))
    return jnp.stack([jnp.sum(residual**2), *pairs, *lights, jnp.max(jnp.abs(residual))])


def _replicated(likelihood: Likelihood, model: Voxels, flux: Voxels, scale: NoiseScale, key: Array) -> Voxels:
    """Residuals of data drawn from the model with its errors."""
    normal = jax.random.normal(key, model.shape, model.dtype)
    if likelihood.polynomial is not None:
        used = likelihood.inverse_sigma > 0
        sigma = jnp.where(used, 1 / jnp.where(used, likelihood.inverse_sigma, 1), 0)
        data = flux + factor_of(scale) * sigma * normal
        return dataclasses.replace(likelihood, flux=data).residuals(model, scale).voxels
    if not isinstance(likelihood.errors, AbstractErrorDistribution):
        return normal
    nodes, weight = quadrature_nodes()
    share = jnp.cumsum(jnp.exp(likelihood.errors.log_density(nodes)) * weight)
    below = jax.scipy.special.ndtr(normal)
    drawn = jnp.interp(below, share / share[-1], nodes)
    return likelihood.errors.residuals(drawn, likelihood.flux, model, likelihood.inverse_sigma)


def _log_densities(likelihood: Likelihood, flux: Voxels, scale: NoiseScale) -> Voxels:
    """ln of the density of the data of each voxel, in (1e-20 erg/s/cm2/Angstrom)^-1, 0 where they are not fitted;
    independent errors."""
    weight = likelihood.inverse_sigma / factor_of(scale)
    used = weight > 0
    residual = (likelihood.flux - flux) * weight
    if isinstance(likelihood.errors, AbstractErrorDistribution):
        density = likelihood.errors.log_density(residual)
    else:
        density = -0.5 * residual**2 - _HALF_LOG_2PI
    return jnp.where(used, density + jnp.log(jnp.where(used, weight, 1)), 0)


def has_points(likelihood: Likelihood, n_set: int = 0) -> tuple[bool, ...]:
    """Whether the density of the data is a product of those of voxels: of each set of data, or of the one cube (0)."""
    errors = likelihood.errors
    of_sets = errors.sets if isinstance(errors, JointErrors) else (errors,) * max(n_set, 1)
    independent = (of_set is None or isinstance(of_set, AbstractErrorDistribution) for of_set in of_sets)
    return tuple(is_independent and likelihood.model_error is None for is_independent in independent)


def predictive_p(
    data: Float[ndarray, "draw discrepancy"],
    replicated: Float[ndarray, "draw discrepancy"],
    shape: tuple[int, ...],
) -> dict[str, float]:
    """p of each check: (k + 1) / (n + 2), k of n draws having replicated data at least as far from the model as the
    data: never 0 nor 1.

    `shape`: (y, x, wave) of the data; there are no neighbours along an axis of length 1.
    """
    further = np.asarray(replicated) >= np.asarray(data)
    shares = (np.sum(further, axis=0) + 1) / (len(further) + 2)
    alone = [f"correlation along {axis}" for axis, size in zip(AXES, shape, strict=True) if size == 1]
    found = dict(zip(DISCREPANCIES, map(float, shares), strict=True))
    return {name: p for name, p in found.items() if name not in alone}


def notes_on_checks(checks: Mapping[str, float]) -> list[Note]:
    """Warnings for checks with p below `UNLIKELY` (the data are too far from the model) or above 1 - `UNLIKELY` (too
    near)."""
    far = [f"{name} (p {p:.2g})" for name, p in checks.items() if p < UNLIKELY]
    near = [f"{name} (p {p:.2g})" for name, p in checks.items() if 1 - p < UNLIKELY]
    notes = []
    if far:
        text = (
            f"posterior-predictive checks: the data are further from the model than its own would be by {listed(far)}"
        )
        notes.append(Note("checks.too_far", text, WARNING))
    if near:
        text = f"posterior-predictive checks: the data are nearer to the model than its own would be by {listed(near)}"
        notes.append(Note("checks.too_near", f"{text}; their errors may be too large", WARNING))
    return notes


class Moments(eqx.Module):
    """Moments of some samples: their number, and pytrees of their mean and of the sum of squared deviations from it."""

    count: Float[Array | np.ndarray, ""]
    mean: Any
    square: Any

    @property
    def variance(self) -> Any:
        """Variance of the samples about their mean: the sum of squares divided by their number."""
        return jax.tree.map(lambda square: square / self.count, self.square)

    def with_sample(self, sample: Any) -> "Moments":
        """The moments with one more sample."""
        count = self.count + 1
        mean = jax.tree.map(lambda old, new: old + (new - old) / count, self.mean, sample)
        deviations = jax.tree.map(lambda new, old, now: (new - old) * (new - now), sample, self.mean, mean)
        return Moments(count, mean, jax.tree.map(jnp.add, self.square, deviations))

    def of_all_rows(self) -> "Moments":
        """The moments of all rows together; inside a `jax.shard_map` only."""
        count = lax.psum(self.count, SAMPLE_AXIS)
        mean = jax.tree.map(lambda row: lax.psum(self.count * row, SAMPLE_AXIS) / count, self.mean)

        def merged(square: Array, row: Array, together: Array) -> Array:
            return lax.psum(square + self.count * (row - together) ** 2, SAMPLE_AXIS)

        return Moments(count, mean, jax.tree.map(merged, self.square, self.mean, mean))


def moments_and_each(
    kernel: Kernel, mesh: Mesh, posterior: SquaredLoss, samples: Placed, *shared: Any
) -> tuple[Moments, Any]:
    """Moments over all samples of the first of two pytrees that `kernel(posterior, sample, *shared)` returns, and the
    second of every sample, small arrays that are kept with the axis `sample` first. To be called inside a jit.

    Each row of the mesh takes its own samples one after the other and holds two of the first pytrees; all devices get
    the moments of all. They are kept with 64 bits where JAX has them.
    """
    dtype = jax.dtypes.canonicalize_dtype(float)

    def on_each_device(
        posterior: SquaredLoss, real: Bool[Array | np.ndarray, " row"], row: Any, shared: Any
    ) -> tuple[Moments, Any]:
        def computed(sample: Any) -> tuple[Any, Any]:
            summed, each = kernel(posterior, sample, *shared)
            return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), summed), each

        def step(moments: Moments, item: tuple[Any, Any]) -> tuple[Moments, Any]:
            """The step for a draw; one that only fills a row up is not computed."""
            is_real, sample = item

            def added() -> tuple[Moments, Any]:
                summed, each = computed(sample)
                return moments.with_sample(summed), each

            return lax.cond(is_real, added, lambda: (moments, nothing[1]))

        shapes = jax.eval_shape(lambda: computed(jax.tree.map(lambda leaf: leaf[0], row)))
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        moments, each = lax.scan(step, Moments(jnp.zeros((), dtype), nothing[0], nothing[0]), (real, row))
        return moments.of_all_rows(), each

    specs = (PartitionSpec(), PartitionSpec(SAMPLE_AXIS))
    return on_rows(on_each_device, mesh, posterior, samples, shared, specs)


class Predicted(NamedTuple):
    """One draw: the model's flux with its best continuum, the noise scale, stars that the model cannot treat."""

    flux: Float[Array, "y x wave"]
    noise_scale: Float[Array, ""]
    n_fast: Float[Array, ""]
    n_not_finite: Float[Array, ""]


@dataclass(frozen=True, eq=False)
class Predictive:
    """The cubes `model`, `predictive` and `residual` of a SampleResult, how the data lie about the second, and how many
    stars the models of the draws could not treat, on average: too fast, not finite; `sets`: of several sets of data
    those of each, with `pointwise`, the cubes being those of the first cube."""

    model: Cube
    predictive: Cube
    residual: Cube
    scatter: Scatter
    n_fast: float
    n_not_finite: float
    checks: Mapping[str, float] = field(default_factory=dict)
    pointwise: Pointwise | None = None
    sets: Mapping[str, "Predictive"] = field(default_factory=dict)


_WITHIN = ("within_one", "within_two")


class DrawnModels(NamedTuple):
    """The models of some draws: their moments, and of each of them, (chain, draw, ...), of the one cube or of each of
    several sets of data; `draws`: their numbers."""

    moments: Moments
    each: tuple[OfDraw, ...]
    draws: Int[ndarray, " draw"]


def predict(problem: Problem, latent: Float[ndarray, "chain draw latent"], settings: SamplingSettings) -> Predictive:
    """Mean and variance over `settings.predictive` of the draws, evenly chosen from all chains (all of them where there
    are fewer), with the posterior-predictive checks and ln(likelihood) of each point.

    The variance of `predictive` is that of the model plus the data's times the mean square of the noise scale. That of
    a continuum's coefficients given the draw is not in it. A model error adds its offset and its variance.
    """
    drawn = models_of_draws(problem, latent, settings.predictive, settings.log_likelihood, settings.seed)
    if problem.first_cube is None:
        return _with_each(predictive_of(problem, drawn.moments), problem, drawn, 0, settings.log_likelihood)
    sets, (count, mean, square) = {}, (drawn.moments.count, drawn.moments.mean, drawn.moments.square)
    for number, data_set in enumerate(problem.sets):
        parts = (found._replace(flux=data_set.unpacked(found.flux)) for found in (mean, square))
        found = predictive_of(set_alone(problem, data_set), Moments(count, *parts))
        sets[data_set.name] = _with_each(found, problem, drawn, number, settings.log_likelihood)
    checks = {f"{check} of {name}": p for name, predicted in sets.items() for check, p in predicted.checks.items()}
    scatters = [predicted.scatter for predicted in sets.values()]
    n_voxels = [scatter.n_voxel for scatter in scatters]
    within = (np.average([getattr(scatter, name) for scatter in scatters], weights=n_voxels) for name in _WITHIN)
    scatter = Scatter(sum(n_voxels), sum(scatter.chi_square for scatter in scatters), *map(float, within))
    first = sets[problem.first_cube.name]
    return dataclasses.replace(first, scatter=scatter, sets=sets, checks=checks, pointwise=None)


def _with_each(found: Predictive, problem: Problem, drawn: DrawnModels, number: int, points: str | None) -> Predictive:
    """`found` with its `checks` and `pointwise`; `number`: of its set of data, 0 for the one cube."""
    likelihood, each = problem.posterior.likelihood, drawn.each[number]
    data, replicated = (np.asarray(rows).reshape(-1, rows.shape[-1]) for rows in (each.data, each.replicated))
    with_points = points is not None and has_points(likelihood, len(problem.sets))[number]
    # a plug-in's residuals need not have a distribution to draw from
    replicable = AbstractErrorDistribution | AbstractCorrelation | JointErrors | None
    can_replicate = isinstance(likelihood.errors, replicable)
    return dataclasses.replace(
        found,
        checks=predictive_p(data, replicated, found.model.flux.shape) if can_replicate else {},
        pointwise=Pointwise(np.asarray(each.pointwise), drawn.draws) if with_points else None,
    )


def models_of_draws(
    problem: Problem,
    latent: Float[ndarray, "chain draw latent"],
    count: int,
    points: str | None = None,
    seed: int = 0,
) -> DrawnModels:
    """The models of the chosen draws on the host, computed on the rows of the problem's mesh, one model for each."""
    mesh, n_chain = problem.posterior.forward.main.layout.mesh, latent.shape[0]
    draws = evenly(latent.shape[1], max(count // n_chain, 1))
    chosen = latent[:, draws].reshape(-1, latent.shape[2])
    keys = np.asarray(jax.random.split(jax.random.PRNGKey(seed), len(chosen)))
    shapes = tuple(data_set.shape for data_set in problem.sets)
    samples = placed((chosen, keys), mesh)
    moments, each = jax.device_get(_moments(problem.posterior, samples, points=points, shapes=shapes))
    rows = fetched(each, len(chosen))
    each = jax.tree.map(lambda leaf: leaf.reshape(n_chain, len(draws), *leaf.shape[1:]), rows)
    return DrawnModels(moments, each, draws)


def predictive_of(problem: Problem, moments: Moments) -> Predictive:
    """The cubes that these moments make, of one cube."""
    mean, variance = moments.mean, moments.variance
    scale_square = float(mean.noise_scale**2 + variance.noise_scale)
    model, spread = np.asarray(mean.flux), np.asarray(variance.flux)
    data_variance, model_error = noise_variance(problem), problem.posterior.likelihood.model_error
    noise = data_variance * scale_square
    flux, total = model, spread + noise
    if model_error is not None:  # in units of the data's sigma
        modes, strength = np.asarray(model_error.modes), np.asarray(model_error.strength)
        flux = flux + np.asarray(model_error.offset) * np.sqrt(data_variance)
        total = total + np.einsum("k,kyxw->yxw", strength, modes**2) * data_variance
    residual = on_grid(problem, "residual", problem.observed.flux - flux, noise, of_data=True)
    used = np.asarray(residual.mask) == 0
    square = np.asarray(residual.flux)[used] ** 2 / total[used]
    return Predictive(
        model=on_grid(problem, "model", model, spread),
        predictive=on_grid(problem, "predictive", flux, total, of_data=True),
        residual=residual,
        scatter=Scatter(len(square), float(square.sum()), float(np.mean(square < 1)), float(np.mean(square < 4))),
        n_fast=float(mean.n_fast),
        n_not_finite=float(mean.n_not_finite),
    )


def evenly(total: int, count: int) -> Int[ndarray, " chosen"]:
    """Numbers of `count` out of `total` things in a row, as far apart as possible; all where there are fewer."""
    count = min(count, total)
    return ((np.arange(count) + 0.5) * total / count).astype(np.int64)


@functools.partial(jax.jit, static_argnames=("points", "shapes"))
def _moments(
    posterior: Posterior, samples: Placed, *, points: str | None, shapes: Shapes
) -> tuple[Moments, tuple[OfDraw, ...]]:
    def predicted(
        posterior: Posterior, sample: tuple[Latent, UInt32[Array, "2"]]
    ) -> tuple[Predicted, tuple[OfDraw, ...]]:
        latent, key = sample
        scale, likelihood = posterior.noise_scale(latent), posterior.likelihood
        observed = posterior.observed(latent)
        model = observed.voxels.flux.astype(likelihood.flux.dtype)
        flux = model * likelihood.continuum(model, scale)
        counters = list(observed.counters.values())
        n_fast = sum(counter.n_beyond_velocity + counter.n_overflow for counter in counters)
        n_not_finite = sum(counter.n_not_finite for counter in counters)
        of_model = Predicted(
            flux, factor_of(scale), jnp.asarray(n_fast, flux.dtype), jnp.asarray(n_not_finite, flux.dtype)
        )
        return of_model, of_draw(posterior, latent, key, model, flux, points, shapes)

    return moments_and_each(predicted, posterior.forward.main.layout.mesh, posterior, samples)
