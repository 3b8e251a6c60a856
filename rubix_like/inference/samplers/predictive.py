"""What the draws predict: mean and variance of the model over the posterior, and of data like those that were fitted.

Posterior-predictive distribution: Gelman et al., Bayesian Data Analysis (3rd edition), chapter 6. Counts, means and
sums of squared deviations over rows of devices are merged as by Chan, Golub & LeVeque (1979, Stanford CS-79-773).
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
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
from rubix_like.inference.fit_cubes import noise_variance, on_grid, set_alone
from rubix_like.inference.fitted_set import FittedSet
from rubix_like.inference.posterior.device_rows import Kernel, Placed, fetched, on_rows, placed
from rubix_like.inference.posterior.free import Latent
from rubix_like.inference.posterior.likelihood import ModelError, factor_of
from rubix_like.inference.posterior.posterior import Posterior, SquaredLoss
from rubix_like.inference.posterior.problem import Problem
from rubix_like.inference.posterior.quality import Scatter
from rubix_like.inference.samplers.predictive_checks import (
    OfDraw,
    Pointwise,
    Shapes,
    can_replicate,
    has_points,
    of_draw,
    predictive_p,
)
from rubix_like.runtime.mesh.mesh import SAMPLE_AXIS


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
        mean = jax.tree.map(lambda own: lax.psum(self.count * own, SAMPLE_AXIS) / count, self.mean)

        def merged(square: Array, own: Array, together: Array) -> Array:
            return lax.psum(square + self.count * (own - together) ** 2, SAMPLE_AXIS)

        return Moments(count, mean, jax.tree.map(merged, self.square, self.mean, mean))


def moments_over_samples(kernel: Kernel, mesh: Mesh, posterior: SquaredLoss, samples: Placed, *shared: Any) -> Moments:
    """Moments of `kernel(posterior, sample, *shared)`, a pytree of arrays, over all samples; to be called inside a jit.

    Each row of the mesh takes its own samples one after the other and holds two such pytrees; all devices get the
    moments of all. They are kept with 64 bits where JAX has them.
    """

    def alone(posterior: SquaredLoss, sample: Any, *shared: Any) -> tuple[Any, None]:
        return kernel(posterior, sample, *shared), None

    return moments_and_each(alone, mesh, posterior, samples, *shared)[0]


def moments_and_each(
    kernel: Kernel, mesh: Mesh, posterior: SquaredLoss, samples: Placed, *shared: Any
) -> tuple[Moments, Any]:
    """The same of the first of two pytrees that the kernel returns, and the second of every sample, small arrays that
    are kept with the axis `sample` first."""
    dtype = jax.dtypes.canonicalize_dtype(float)

    def on_each_device(
        posterior: SquaredLoss, real: Bool[Array | np.ndarray, " own"], own: Any, shared: Any
    ) -> tuple[Moments, Any]:
        def made(sample: Any) -> tuple[Any, Any]:
            summed, each = kernel(posterior, sample, *shared)
            return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), summed), each

        def step(moments: Moments, item: tuple[Any, Any]) -> tuple[Moments, Any]:
            """What only fills a row up is not computed."""
            is_real, sample = item

            def added() -> tuple[Moments, Any]:
                summed, each = made(sample)
                return moments.with_sample(summed), each

            return lax.cond(is_real, added, lambda: (moments, nothing[1]))

        shapes = jax.eval_shape(lambda: made(jax.tree.map(lambda leaf: leaf[0], own)))
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        moments, each = lax.scan(step, Moments(jnp.zeros((), dtype), nothing[0], nothing[0]), (real, own))
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
    """What models of some draws say: their moments, and of each of them, (chain, draw, ...), of the one cube or of each
    of several sets of data; `draws`: their numbers."""

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
    sets = {
        data_set.name: _with_each(
            predictive_of_set(problem, data_set, drawn.moments), problem, drawn, number, settings.log_likelihood
        )
        for number, data_set in enumerate(problem.sets)
    }
    checks = {f"{check} of {name}": p for name, predicted in sets.items() for check, p in predicted.checks.items()}
    scatter = _together([predicted.scatter for predicted in sets.values()])
    first = sets[problem.first_cube.name]
    return dataclasses.replace(first, scatter=scatter, sets=sets, checks=checks, pointwise=None)


def _with_each(found: Predictive, problem: Problem, drawn: DrawnModels, number: int, points: str | None) -> Predictive:
    """The same with what single draws say of the one cube, or of the set of data with this number."""
    likelihood, each = problem.posterior.likelihood, drawn.each[number]
    data, replicated = (np.asarray(own).reshape(-1, own.shape[-1]) for own in (each.data, each.replicated))
    with_points = points is not None and has_points(likelihood, len(problem.sets))[number]
    return dataclasses.replace(
        found,
        checks=predictive_p(data, replicated, found.model.flux.shape) if can_replicate(likelihood) else {},
        pointwise=Pointwise(np.asarray(each.pointwise), drawn.draws) if with_points else None,
    )


def _together(scatters: Sequence[Scatter]) -> Scatter:
    """The scatter of the data of several sets about what is predicted."""
    count = [scatter.n_voxel for scatter in scatters]
    within = (np.average([getattr(scatter, name) for scatter in scatters], weights=count) for name in _WITHIN)
    return Scatter(sum(count), sum(scatter.chi_square for scatter in scatters), *map(float, within))


def predictive_of_set(problem: Problem, own: FittedSet, moments: Moments) -> Predictive:
    """The cubes that the moments make of one of several sets of data."""

    def part(found: Predicted) -> Predicted:
        return found._replace(flux=own.unpacked(found.flux))

    alone = Moments(moments.count, part(moments.mean), part(moments.square))
    return predictive_of(set_alone(problem, own), alone)


def models_of_draws(
    problem: Problem,
    latent: Float[ndarray, "chain draw latent"],
    count: int,
    points: str | None = None,
    seed: int = 0,
) -> DrawnModels:
    """What the chosen draws say, on the host; computed on the rows of the problem's mesh, one model for each."""
    mesh, n_chain = problem.posterior.forward.main.layout.mesh, latent.shape[0]
    draws = evenly(latent.shape[1], max(count // n_chain, 1))
    chosen = latent[:, draws].reshape(-1, latent.shape[2])
    keys = np.asarray(jax.random.split(jax.random.PRNGKey(seed), len(chosen)))
    shapes = tuple(own.shape for own in problem.sets)
    samples = placed((chosen, keys), mesh)
    moments, each = jax.device_get(_moments(problem.posterior, samples, points=points, shapes=shapes))
    rows = fetched(each, len(chosen))
    chains = (n_chain, len(draws))
    return DrawnModels(moments, jax.tree.map(lambda own: own.reshape(*chains, *own.shape[1:]), rows), draws)


def predictive_of(problem: Problem, moments: Moments) -> Predictive:
    """The cubes that these moments make, of one cube."""
    mean, variance = moments.mean, moments.variance
    scale_square = float(mean.noise_scale**2 + variance.noise_scale)
    model, spread = np.asarray(mean.flux), np.asarray(variance.flux)
    offset, extra = _of_model_error(problem.posterior.likelihood.model_error, np.sqrt(noise_variance(problem)))
    noise = noise_variance(problem) * scale_square
    flux, total = model + offset, spread + noise + extra
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
    kernel = functools.partial(_predicted, points=points, shapes=shapes)
    return moments_and_each(kernel, posterior.forward.main.layout.mesh, posterior, samples)


def _predicted(
    posterior: Posterior, sample: tuple[Latent, UInt32[Array, "2"]], points: str | None, shapes: Shapes
) -> tuple[Predicted, tuple[OfDraw, ...]]:
    """What one draw says; with its random key."""
    latent, key = sample
    scale, likelihood = posterior.noise_scale(latent), posterior.likelihood
    observed = posterior.observed(latent)
    model = observed.voxels.flux.astype(likelihood.flux.dtype)
    flux = model * likelihood.continuum(model, scale)
    counters = list(observed.counters.values())
    predicted = Predicted(
        flux,
        factor_of(scale),
        jnp.asarray(sum(own.n_beyond_velocity + own.n_overflow for own in counters), flux.dtype),
        jnp.asarray(sum(own.n_not_finite for own in counters), flux.dtype),
    )
    return predicted, of_draw(posterior, latent, key, model, flux, points, shapes)


def _of_model_error(
    model_error: ModelError | None, sigma: Float[ndarray, "y x wave"]
) -> tuple[Float[ndarray, "y x wave"], Float[ndarray, "y x wave"]]:
    """The terms that particle noise adds to the flux, and to its variance; both are kept in units of the data's
    sigma."""
    if model_error is None:
        return np.zeros_like(sigma), np.zeros_like(sigma)
    modes, strength = np.asarray(model_error.modes), np.asarray(model_error.strength)
    return np.asarray(model_error.offset) * sigma, np.einsum("k,kyxw->yxw", strength, modes**2) * sigma**2
