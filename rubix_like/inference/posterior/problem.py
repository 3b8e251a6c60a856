"""A posed problem: the posterior of free parameters, the data sets with their pipelines, and its models on devices.

A mesh ("sample", "data") has rows that each compute separate samples: each row is a group of devices that share the
particles of one model at a time. Rows never wait for one another, so that chains may make steps of any number.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float
from numpy import ndarray

from rubix_like.config.sections.fit import FitSettings
from rubix_like.cube.observed import ObservedCube
from rubix_like.forward.cube_header import Header
from rubix_like.forward.model import table_specs
from rubix_like.forward.pipeline import Pipeline
from rubix_like.galaxy.galaxy_model import AbstractGalaxyModel
from rubix_like.galaxy.particles import Galaxy
from rubix_like.inference.posterior.fit_model import (
    ComponentsSource,
    Latent,
    SyntheticSource,
)
from rubix_like.inference.posterior.posterior import Posterior, on_mesh
from rubix_like.runtime.mesh.mesh import DATA_AXIS, SAMPLE_AXIS, DeviceLayout, put, replicated

Given = Galaxy | SyntheticSource | ComponentsSource | AbstractGalaxyModel
"""What can be given in Python in place of a configuration's galaxy."""


@dataclass(frozen=True, eq=False)
class FittedSet:
    """A set of data of a fit. The voxels of several lie in one row, one set after the other; those of the one cube of a
    fit, which has no name, are (y, x, wave).

    | field | |
    |---|---|
    | name, kind | what it is called; cube, image, spectrum or fibres |
    | observed | the data: (y, x, wave), of an image (y, x, 1), of a spectrum (1, 1, wave), of fibres (fibre, 1, wave) |
    | pipeline | that of the model's cube: of an image at all wavelengths of its band, of a spectrum on its aperture |
    | frame | axes, mask and header on the data's grid |
    | settings | those of a fit of this set alone |
    | first | place of its first voxel among those of all sets |
    | places | of fibres: (East, North) in arcsec of each |
    """

    name: str
    kind: str
    observed: ObservedCube
    pipeline: Pipeline
    frame: Header
    settings: FitSettings
    first: int
    places: Float[ndarray, "fibre 2"] | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """(y, x, wave) of the data."""
        return self.observed.shape

    @property
    def place(self) -> slice:
        """The slice of its voxels in the row of those of all sets."""
        return slice(self.first, self.first + int(np.prod(self.shape)))

    def unpacked(self, row: Any) -> Any:
        """Its voxels (..., y, x, wave) among those of all sets, which lie in a row (..., 1, 1, voxel)."""
        return row if not self.name else row[..., 0, 0, self.place].reshape((*row.shape[:-3], *self.shape))

    @property
    def alone(self) -> "FittedSet":
        """The set as the one cube of a fit, whose pipeline has the data's axes."""
        seen = dataclasses.replace(self.pipeline, frame=self.frame)
        return dataclasses.replace(self, name="", pipeline=seen, first=0)


@dataclass(frozen=True)
class Problem:
    """A problem that is ready to be fitted or sampled.

    | field | |
    |---|---|
    | posterior | the model, its free parameters with priors, the likelihood of all data |
    | data | the data sets with their pipelines (without noise), at least one: the one cube of a fit has no name |
    | settings | of the fit, with the priors of nuisances |
    | notes | on data and model |
    | start | latents at which the first start begins; None: drawn from the prior like the others |
    | first | number of the data set that stands for all: the first cube |
    """

    posterior: Posterior
    data: tuple[FittedSet, ...]
    settings: FitSettings
    notes: tuple[str, ...]
    start: Latent | None = None
    first: int = 0

    @property
    def observed(self) -> ObservedCube:
        """The data of the first cube."""
        return self.data[self.first].observed

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline of the first cube."""
        return self.data[self.first].pipeline

    @property
    def sets(self) -> tuple[FittedSet, ...]:
        """Several data sets, which have names; none of one cube."""
        return tuple(data_set for data_set in self.data if data_set.name)

    @property
    def first_cube(self) -> FittedSet | None:
        """The set whose data and pipeline stand for all; None of one cube."""
        return self.data[self.first] if self.sets else None

    def shown(self, row: Any) -> Any:
        """The voxels (..., y, x, wave) of the first cube among those of all data, for pictures and guesses."""
        return self.data[self.first].unpacked(row)


def variance_of(observed: ObservedCube, settings: FitSettings) -> ndarray:
    """Variance of every voxel: the data's, or where they have none that of `fit.sigma`."""
    return np.full(observed.shape, (settings.sigma or 0.0) ** 2) if observed.variance is None else observed.variance


def for_samples(pipeline: Pipeline, n_sample: int) -> Pipeline:
    """The pipeline on a mesh ("sample", "data") of the same devices, for `n_sample` models at once."""
    devices = pipeline.mesh.devices.reshape(-1)
    if len(devices) % n_sample:
        raise ValueError(f"expected a number of samples that divides {len(devices)} devices, got {n_sample}")
    shape = (n_sample, len(devices) // n_sample)
    mesh = Mesh(devices.reshape(shape), (SAMPLE_AXIS, DATA_AXIS), axis_types=(AxisType.Auto,) * 2)
    layout = DeviceLayout.build(mesh, pipeline.plan.n_wave, sharded=False)
    tables = put(pipeline.tables, layout.shardings(table_specs(pipeline.tables, layout)))
    return dataclasses.replace(pipeline, tables=tables, layout=layout)


Kernel = Callable[..., Any]
"""(model, one sample's pytree, *shared) -> pytree of arrays."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Placed:
    """Arrays with the axis `sample` first, filled up to a multiple of the rows; `real`: which are no filling."""

    tree: Any
    real: Bool[Array | np.ndarray, " sample"]


def over_samples(kernel: Kernel, mesh: Mesh, model: Any, samples: Placed, *shared: Any, at_once: int = 1) -> Any:
    """`kernel(model, sample, *shared)` for every sample, each row of the mesh its share; to be called inside a jit.

    `model`: a posterior, or another pytree that is whole on every device. `samples`: what `placed` makes; all arrays
    that are returned have the axis `sample` first, as long as theirs. `at_once`: how many samples a row computes at the
    same time (accelerators like several; each takes memory).
    """

    def on_each_device(model: Any, real: Bool[Array | np.ndarray, " share"], share: Any, shared: Any) -> Any:
        once = jax.jit(kernel, inline=True)  # traced for its shapes, and not again for what it makes

        def compute(item: tuple[Any, Any]) -> Any:
            is_real, sample = item  # one that only fills a row up is not computed
            shapes = jax.eval_shape(once, model, sample, *shared)
            nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
            return lax.cond(is_real, lambda: once(model, sample, *shared), lambda: nothing)

        return lax.map(compute, (real, share), batch_size=min(at_once, len(real)) if at_once > 1 else None)

    return on_rows(on_each_device, mesh, model, samples, shared, PartitionSpec(SAMPLE_AXIS))


def on_rows(on_each_device: Callable[..., Any], mesh: Mesh, model: Any, samples: Placed, shared: Any, made: Any) -> Any:
    """`on_each_device(model, real, share, shared)` on all devices of a mesh, with the samples of their rows; `made`:
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
    data = tuple(
        dataclasses.replace(data_set, pipeline=for_samples(data_set.pipeline, n_sample)) for data_set in problem.data
    )
    layouts = [(data_set.pipeline.tables, data_set.pipeline.layout) for data_set in data]
    forward = problem.posterior.forward.laid_out(layouts)
    posterior = dataclasses.replace(problem.posterior, forward=forward)
    mesh = data[problem.first].pipeline.mesh
    return dataclasses.replace(problem, posterior=on_mesh(posterior, mesh), data=data)
