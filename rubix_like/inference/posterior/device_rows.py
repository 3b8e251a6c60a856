"""Samples over devices: a mesh ("sample", "data") whose rows each compute samples of their own.

Each row is a group of devices that share the particles of one model at a time; rows never wait for one another, so that
chains may make steps of any number.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool

from rubix_like.inference.posterior.posterior import Posterior, on_mesh
from rubix_like.inference.posterior.problem import Problem, for_samples
from rubix_like.runtime.mesh.mesh import SAMPLE_AXIS, replicated

Kernel = Callable[..., Any]
"""(model, one sample's pytree, *shared) -> pytree of arrays."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Placed:
    """Arrays with the axis `sample` first, filled up to a multiple of the rows; `real`: which are no filling."""

    tree: Any
    real: Bool[Array | np.ndarray, " sample"]


def over_samples(kernel: Kernel, mesh: Mesh, model: Any, samples: Placed, *shared: Any, at_once: int = 1) -> Any:
    """`kernel(model, sample, *shared)` for every sample, each row of the mesh its own; to be called inside a jit.

    `model`: a posterior, or another pytree that is whole on every device. `samples`: what `placed` makes; all arrays
    that are returned have the axis `sample` first, as long as theirs. `at_once`: how many samples a row computes at the
    same time (accelerators like several; each takes memory).
    """

    def on_each_device(model: Any, real: Bool[Array | np.ndarray, " own"], own: Any, shared: Any) -> Any:
        once = jax.jit(kernel, inline=True)  # traced for its shapes, and not again for what it makes

        def one(item: tuple[Any, Any]) -> Any:
            """The result for a sample; one that only fills a row up is not computed."""
            is_real, sample = item
            made = jax.eval_shape(once, model, sample, *shared)
            nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), made)
            return lax.cond(is_real, lambda: once(model, sample, *shared), lambda: nothing)

        if at_once > 1:
            return lax.map(one, (real, own), batch_size=min(at_once, len(real)))
        return lax.map(one, (real, own))

    return on_rows(on_each_device, mesh, model, samples, shared, PartitionSpec(SAMPLE_AXIS))


def on_rows(on_each_device: Callable[..., Any], mesh: Mesh, model: Any, samples: Placed, shared: Any, made: Any) -> Any:
    """`on_each_device(model, real, own, shared)` on all devices of a mesh, with the samples of their rows; `made`:
    how what is returned is cut."""
    along, whole = PartitionSpec(SAMPLE_AXIS), PartitionSpec()
    specs = (whole, along, along, whole)
    program = jax.shard_map(on_each_device, mesh=mesh, in_specs=specs, out_specs=made, check_vma=False)
    if isinstance(model, Posterior):
        model = dataclasses.replace(model, forward=dataclasses.replace(model.forward, on_device=True))
    return program(model, samples.real, samples.tree, shared)


def placed(tree: Any, mesh: Mesh, least: int = 0) -> Placed:
    """Host arrays with the axis `sample` first, cut along the rows of a mesh; the last sample fills the rows up.

    `least`: as many samples at least are made room for, so that groups of several sizes share one compiled program.
    """
    count = len(jax.tree.leaves(tree)[0])
    size = max(count, least)
    missing = size + -size % mesh.shape[SAMPLE_AXIS] - count
    along = NamedSharding(mesh, PartitionSpec(SAMPLE_AXIS))

    def filled(leaf: Any) -> np.ndarray:
        leaf = np.asarray(leaf)
        return np.concatenate([leaf, np.repeat(leaf[-1:], missing, axis=0)])

    real = np.arange(count + missing) < count
    return jax.device_put(Placed(jax.tree.map(filled, tree), real), along)


def fetched(tree: Any, count: int) -> Any:
    """The first `count` samples of a pytree as host arrays."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:count], tree)


def everywhere(tree: Any, mesh: Mesh) -> Any:
    """The pytree, whole on every device of the mesh."""
    return jax.device_put(tree, replicated(mesh))


def models_at_once(n_device: int, n_model: int) -> int:
    """How many models are computed at the same time: all of them where that many can share the devices.

    A number that divides that of the devices, and the smallest with room for all models, so that none has to wait while
    each has as many devices as possible: what is not divided among the devices of a model, its cube, is computed once.
    """
    return min(count for count in range(1, n_device + 1) if n_device % count == 0 and count >= min(n_model, n_device))


def with_rows(problem: Problem, n_sample: int) -> Problem:
    """The problem whose devices compute `n_sample` models at once."""
    pipelines = [for_samples(pipeline, n_sample) for pipeline in problem.pipelines]
    forward = problem.posterior.forward.laid_out([(pipeline.tables, pipeline.layout) for pipeline in pipelines])
    posterior = dataclasses.replace(problem.posterior, forward=forward)
    place = [pipeline is problem.pipeline for pipeline in problem.pipelines].index(True)
    sets = tuple(
        data_set.on(pipeline) for data_set, pipeline in zip(problem.sets, pipelines, strict=bool(problem.sets))
    )
    problem = dataclasses.replace(problem, posterior=posterior, pipeline=pipelines[place], sets=sets)
    return dataclasses.replace(problem, posterior=on_mesh(problem.posterior, problem.pipeline.mesh))
