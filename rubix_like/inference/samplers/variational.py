"""Variational inference over devices: geoVI through NIFTy, on the posterior that is fitted.

Samples are drawn about a mean by the metric there; the mean is moved to where their mean loss is lowest, which is where
the Kullback-Leibler divergence of the samples' distribution from the posterior is; and so on until it rests. The keys
are the same in every iteration, so that the mean has somewhere to rest; the draws that are the result have
other keys.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, UInt32
from numpy import ndarray

from rubix_like.config.sections.fit import SamplingSettings, VariationalSettings
from rubix_like.inference.checks.uncertainties import Laplace
from rubix_like.inference.posterior.fit_model import Latent
from rubix_like.inference.posterior.posterior import Posterior, SquaredLoss, is_dense
from rubix_like.inference.posterior.problem import Placed, everywhere, fetched, over_samples, placed
from rubix_like.inference.samplers.nifty_geometry import (
    Drawn,
    Expansion,
    Slopes,
    data_residuals,
    draw,
    minimum,
    quiet,
)
from rubix_like.inference.samplers.samplers import AbstractSampler, Sampled
from rubix_like.runtime.mesh.mesh import SAMPLE_AXIS, replicated
from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.words import percent

_ACCURACY = 0.4
"""Power of the smallest step of numbers of the model's precision: 5e-7 and 2e-3 standard deviations."""

_PART = 0.3
"""Share of the tolerance below which a movement of the mean ends an iteration."""

_INACCURATE = 0.01
"""Standard deviations by which a sample may miss its equation."""

_WRONG, _FEW = 0.1, 0.05
"""Standard deviations by which samples miss their equation where they are doubtful, and the share of all from which on
the verdict says so."""


class GeoVISampler(AbstractSampler):
    """Geometric variational inference: samples about a mean that is moved."""

    title: ClassVar[str] = "geoVI"
    section_type: ClassVar[type[VariationalSettings]] = VariationalSettings
    is_chain: ClassVar[bool] = False
    packages: ClassVar[tuple[str, ...]] = ("nifty",)

    @property
    def n_sample(self) -> int:
        """The samples by which the mean is found."""
        return self.settings.section.samples

    def read(self, arrays: Mapping[str, ndarray]) -> "VariationalState":
        """A state from the arrays of a checkpoint."""
        return VariationalState.from_arrays(arrays)

    def run(
        self,
        posterior: SquaredLoss,
        mesh: Mesh,
        best: Float[ndarray, " latent"],
        laplace: Laplace | None,  # noqa: ARG002 (its metric is that of every mean)
        begun: "VariationalState | None",
    ) -> Iterator["VariationalState"]:
        """Find the mean from the best fit, then make the draws."""
        return run_variational(posterior, mesh, self.settings, best if begun is None else begun.best, begun)

    def progress(self, state: "VariationalState") -> tuple[str, int, int]:
        """The mean's last movement, then the draws."""
        if not state.n_done and not state.converged:
            moved = f", moved by {state.shift[-1]:.2g} sigma" if len(state.shift) else ""
            return f"looking for the mean{moved}, iteration", state.n_iteration, self.settings.section.iterations
        return "draws", state.n_done, int(state.n_draw)

    def sampled(self, state: "VariationalState") -> Sampled:
        """The draws as one chain."""
        return Sampled(
            method=self.settings.method,
            latent=state.latent[None],
            statistics={"loss": state.loss[None]},
            keys=state.draw_keys,
            notes=state.notes,
            trouble=state.trouble,
        )

    def notes(self, sampled: Sampled) -> list[Note]:
        """Notes for every user of such draws."""
        return [
            Note(
                "variational.approximate",
                f"the {sampled.n_draw} draws are {self.title}'s: they come from an approximation of the posterior "
                f"about one of its maxima, which tends to be too narrow; compare with method nuts where it matters",
            ),
        ]


class Group(NamedTuple):
    """Samples: latents, by how many standard deviations each misses the equation that defines it, losses."""

    latent: Float[ndarray, "draw latent"]
    error: Float[ndarray, " draw"]
    loss: Float[ndarray, " draw"]


@dataclass(frozen=True)
class VariationalState:
    """Everything that is known after a step; enough to go on bit for bit.

    `keys`: of all pairs of mirrored samples, those for the mean first. `means`: where the samples were drawn about, the
    best fit first; `kl`: the mean loss of the samples about each of them once it had been moved to the next, and
    `shift` by how much, in standard deviations of the samples (largest of all latents). `latent`, `error`, `loss`: the
    draws about the last mean.
    """

    keys: UInt32[ndarray, "pair 2"]
    means: Float[ndarray, "mean latent"]
    kl: Float[ndarray, " iteration"]
    shift: Float[ndarray, " iteration"]
    latent: Float[ndarray, "draw latent"]
    error: Float[ndarray, " draw"]
    loss: Float[ndarray, " draw"]
    n_draw: Int[ndarray, ""]
    tolerance: Float[ndarray, ""]

    @classmethod
    def begin(cls, settings: SamplingSettings, best_latent: Float[ndarray, " latent"]) -> "VariationalState":
        """Before the first iteration: the keys are split here, and nowhere else."""
        section = settings.section
        n_pair = (section.samples + section.draws) // 2
        start, none = np.asarray(best_latent)[None], np.zeros(0, np.asarray(best_latent).dtype)
        return cls(
            keys=np.asarray(jax.random.split(jax.random.PRNGKey(settings.seed), n_pair)),
            means=start,
            kl=none,
            shift=none,
            latent=start[:0],
            error=none,
            loss=none,
            n_draw=np.array(section.draws),
            tolerance=np.array(section.tolerance),
        )

    @property
    def mean(self) -> Float[ndarray, " latent"]:
        """The place about which samples are drawn now."""
        return self.means[-1]

    @property
    def best(self) -> Float[ndarray, " latent"]:
        """The best fit, about which the first samples were drawn."""
        return self.means[0]

    @property
    def draw_keys(self) -> UInt32[ndarray, "draw 2"]:
        """The key of each draw; mirrored ones have the same."""
        return np.repeat(self.keys[len(self.keys) - int(self.n_draw) // 2 :], 2, axis=0)

    @property
    def n_iteration(self) -> int:
        """How often the mean has been moved."""
        return len(self.kl)

    @property
    def n_done(self) -> int:
        """Number of draws."""
        return len(self.latent)

    @property
    def finished(self) -> bool:
        """Whether all draws have been made."""
        return self.n_done == int(self.n_draw)

    @property
    def n_ended(self) -> int:
        """Stages that are over: the search for the mean, the draws."""
        return int(self.n_done > 0) + int(self.finished)

    @property
    def converged(self) -> bool:
        """Whether the mean was moved by less than the tolerance at last."""
        return bool(len(self.shift)) and bool(self.shift[-1] < self.tolerance)

    def with_rows(self, **rows: Any) -> "VariationalState":
        """The state with more rows at the ends of some of its arrays."""
        longer = {name: np.concatenate([getattr(self, name), added]) for name, added in rows.items()}
        return dataclasses.replace(self, **longer)

    @property
    def notes(self) -> tuple[Note, ...]:
        """Notes for a reader of the result, once it is finished."""
        notes = []
        if not self.converged:
            notes.append(
                Note(
                    "variational.not_converged",
                    f"variational inference: the mean has not converged after {self.n_iteration} iterations: it moved "
                    f"by {self.shift[-1]:.3g} standard deviations in the last one (fit.sampling.variational.tolerance "
                    f"{float(self.tolerance):g}); allow more iterations, or more samples",
                    WARNING,
                )
            )
        poor = int(np.count_nonzero(~(self.error <= _INACCURATE)))
        if poor:
            notes.append(
                Note(
                    "variational.inaccurate",
                    f"variational inference: {poor} of {self.n_done} samples miss geoVI's equation by more than "
                    f"{_INACCURATE:g} standard deviations: the posterior is strongly curved there; compare with NUTS",
                    WARNING,
                )
            )
        lost = int(np.count_nonzero(~np.isfinite(self.loss)))
        if lost:
            notes.append(
                Note(
                    "variational.not_finite",
                    f"variational inference: the loss of {lost} of {self.n_done} samples is not a finite number",
                    WARNING,
                )
            )
        return tuple(notes)

    @property
    def trouble(self) -> str:
        """Why the draws may not be those of the posterior; empty where nothing is known against them."""
        share = float(np.mean(~(self.error <= _WRONG))) if self.n_done else 0.0
        if share > _FEW:
            return (
                f"the draws are doubtful ({percent(share)} of them miss their equation by more than "
                f"{_WRONG:g} sigma; compare with method nuts)"
            )
        return "" if self.converged else "the mean of the draws has not converged"

    def arrays(self) -> dict[str, ndarray]:
        """Everything by name; `from_arrays` is the inverse."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ndarray]) -> "VariationalState":
        """The state of what `arrays` returned; KeyError where something is missing."""
        return cls(**{field.name: arrays[field.name] for field in dataclasses.fields(cls)})


def run_variational(
    posterior: SquaredLoss,
    mesh: Mesh,
    settings: SamplingSettings,
    best_latent: Float[ndarray, " latent"],
    resume: VariationalState | None = None,
) -> Iterator[VariationalState]:
    """Yields the state before the first step, after every iteration, and then after every group of draws.

    The last one is finished. The mesh has the axes "sample" and "data". Resumed from any of its states it goes on as if
    it had not stopped; on another mesh, too, but for rounding.
    Raises ConfigError where NIFTy is missing, ValueError where the posterior is not finite about the best fit.
    """
    state = VariationalState.begin(settings, best_latent)
    if resume is not None:
        section = settings.section
        same = np.array_equal(resume.keys, state.keys) and np.array_equal(resume.means[0], state.mean)
        if not (same and int(resume.n_draw) == section.draws and float(resume.tolerance) == section.tolerance):
            raise ValueError(
                f"fit.sampling: expected to go on from the same best fit with {section.samples} samples, "
                f"{section.draws} draws, the tolerance {section.tolerance:g} and the seed {settings.seed}, "
                f"got a state of a run that differs; use the settings it was begun with, or start anew"
            )
        state = resume
    yield state
    whole_posterior, size = everywhere(posterior, mesh), _group_size(settings, mesh)
    while state.n_iteration < settings.section.iterations and not state.converged:
        state = _iterated(whole_posterior, mesh, settings, state)
        yield state
    if state.finished:
        return
    expansion = _expanded(whole_posterior, mesh, state.mean)
    while not state.finished:
        begin = (settings.section.samples + state.n_done) // 2
        group = _sampled(whole_posterior, mesh, settings, expansion, state.keys[begin : begin + size // 2])
        state = state.with_rows(**group._asdict())
        yield state


def _group_size(settings: SamplingSettings, mesh: Mesh) -> int:
    """How many samples are drawn at a time: no row is idle, and both halves of every pair are there."""
    size = max(settings.section.samples, mesh.shape[SAMPLE_AXIS])
    return size + size % 2


def _iterated(
    posterior: SquaredLoss, mesh: Mesh, settings: SamplingSettings, state: VariationalState
) -> VariationalState:
    """Samples about the mean, and the mean moved to where they resemble the posterior most."""
    expansion = _expanded(posterior, mesh, state.mean)
    samples = _sampled(posterior, mesh, settings, expansion, state.keys[: settings.section.samples // 2])
    n_not_finite = int(np.count_nonzero(~np.isfinite(samples.loss)))
    if n_not_finite:
        raise ValueError(
            f"fit.sampling: expected a finite loss of every sample, got none of {n_not_finite} of "
            f"{len(samples.loss)}; narrow the priors of fit.free to where the model is defined, or use NUTS"
        )
    ways = placed(samples.latent - state.mean, mesh, _group_size(settings, mesh))
    with quiet():
        found = minimum(
            lambda mean: _mean_loss(posterior, mesh, ways, mean, at_once=settings.at_once),
            lambda mean, tangents: _mean_metric(posterior, mesh, ways, mean, tangents, at_once=settings.at_once),
            expansion,
            0.5 * (_PART * settings.section.tolerance) ** 2,
        )
    mean, kl = (np.asarray(number, np.float64) for number in found)
    sigma = np.sqrt(np.mean((samples.latent - state.mean) ** 2, axis=0))
    shift, dtype = np.max(np.abs(mean - state.mean) / sigma, keepdims=True), state.kl.dtype
    return state.with_rows(means=mean[None], kl=kl[None].astype(dtype), shift=shift.astype(dtype))


def _expanded(posterior: SquaredLoss, mesh: Mesh, mean: Float[ndarray, " latent"]) -> Expansion:
    """The posterior about a mean; its derivatives are spread over the rows as samples are."""
    centre = everywhere(jnp.asarray(mean), mesh)
    n_residual = jax.eval_shape(data_residuals, posterior, centre).shape[0]
    units = placed(np.eye(len(mean)), mesh) if is_dense(len(mean), n_residual) else None
    expansion = _expand(posterior, mesh, centre, placed(np.zeros(1), mesh), units)
    if not all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(expansion)):
        raise ValueError(
            "fit.sampling: expected residuals and derivatives that are finite numbers at "
            f"{np.array2string(mean, precision=4, threshold=12)} (latents), got others; narrow the priors of fit.free "
            "to where the model is defined"
        )
    return expansion


@functools.partial(jax.jit, static_argnames="mesh")
def _expand(posterior: SquaredLoss, mesh: Mesh, centre: Latent, once: Placed, units: Placed | None) -> Expansion:
    def values(posterior: SquaredLoss, _: Array, centre: Latent) -> Array:
        return data_residuals(posterior, centre)

    def column(posterior: SquaredLoss, unit: Latent, centre: Latent) -> Array:
        return jax.jvp(lambda latent: data_residuals(posterior, latent), (centre,), (unit,))[1]

    def whole(array: Array) -> Array:
        return lax.with_sharding_constraint(array, replicated(mesh))

    residuals = whole(over_samples(values, mesh, posterior, once, centre)[0])
    if units is None:
        return Expansion(centre, residuals, None)
    columns = whole(over_samples(column, mesh, posterior, units, centre)[: len(centre)])
    factor = jnp.linalg.cholesky(columns @ columns.T + jnp.eye(len(centre), dtype=centre.dtype))
    return Expansion(centre, residuals, Slopes(columns, factor))


def _sampled(
    posterior: SquaredLoss,
    mesh: Mesh,
    settings: SamplingSettings,
    expansion: Expansion,
    keys: UInt32[ndarray, "pair 2"],
) -> Group:
    """Samples about the centre of an expansion, two mirrored ones for every key."""
    signs = np.tile([1.0, -1.0], len(keys)).astype(expansion.centre.dtype)
    items = placed((np.repeat(keys, 2, axis=0), signs), mesh, _group_size(settings, mesh))
    dtype = posterior.forward.main.plan.dtype if isinstance(posterior, Posterior) else expansion.centre.dtype
    tolerance = everywhere(jnp.asarray(float(jnp.finfo(dtype).eps) ** _ACCURACY, expansion.centre.dtype), mesh)
    with quiet():
        drawn = _draw(posterior, mesh, items, expansion, tolerance, at_once=settings.at_once)
    drawn = jax.tree.map(lambda leaf: leaf.astype(np.float64), fetched(drawn, len(signs)))
    return Group(np.asarray(expansion.centre, np.float64) + drawn.way, drawn.error, drawn.loss)


@functools.partial(jax.jit, static_argnames=("mesh", "at_once"))
def _draw(
    posterior: SquaredLoss,
    mesh: Mesh,
    items: Placed,
    expansion: Expansion,
    tolerance: Float[Array, ""],
    *,
    at_once: int,
) -> Drawn:
    def kernel(posterior: SquaredLoss, item: Any, expansion: Expansion, tolerance: Float[Array, ""]) -> Drawn:
        key, sign = item
        return draw(posterior, key, sign, expansion, tolerance)

    return over_samples(kernel, mesh, posterior, items, expansion, tolerance, at_once=at_once)


@functools.partial(jax.jit, static_argnames=("mesh", "at_once"))
def _mean_loss(
    posterior: SquaredLoss, mesh: Mesh, ways: Placed, mean: Latent, *, at_once: int
) -> tuple[Float[Array, ""], Latent]:
    """Mean loss of the samples, and its gradient."""

    def kernel(posterior: SquaredLoss, way: Latent, mean: Latent) -> tuple[Float[Array, ""], Latent]:
        return jax.value_and_grad(posterior.loss)(mean + way)

    return _mean(over_samples(kernel, mesh, posterior, ways, mean, at_once=at_once), ways)


@functools.partial(jax.jit, static_argnames=("mesh", "at_once"))
def _mean_metric(
    posterior: SquaredLoss, mesh: Mesh, ways: Placed, mean: Latent, tangents: Latent, *, at_once: int
) -> Latent:
    """The samples' metrics times a vector."""

    def kernel(posterior: SquaredLoss, way: Latent, mean: Latent, tangents: Latent) -> Latent:
        coordinates = functools.partial(data_residuals, posterior)
        changes = jax.jvp(coordinates, (mean + way,), (tangents,))[1]
        return jax.vjp(coordinates, mean + way)[1](changes)[0] + tangents

    return _mean(over_samples(kernel, mesh, posterior, ways, mean, tangents, at_once=at_once), ways)


def _mean(of_each: Any, samples: Placed) -> Any:
    """Over the real ones; the others are zero."""
    return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0) / jnp.sum(samples.real, dtype=leaf.dtype), of_each)
