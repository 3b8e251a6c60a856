"""The compiled program: from the number and the parameters of a simulation to its cube, many at a time."""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray

from rubix_like.config.sections.dust import DUST_COLUMN
from rubix_like.cube.meta import SourceCounters
from rubix_like.engine.painter import check_counters
from rubix_like.forward.fields.dust_column import check_dust
from rubix_like.forward.not_finite import Model, count_not_finite, explain_not_finite
from rubix_like.forward.pipeline import Pipeline
from rubix_like.galaxy.particles import Galaxy
from rubix_like.inference.posterior.device_rows import Placed, everywhere, over_samples, placed
from rubix_like.inference.posterior.fit_model import AbstractParticleSource, Forward, HeldSource, SyntheticSource
from rubix_like.inference.posterior.free import Values
from rubix_like.inference.simulation.parameter_draws import Values as DrawnValues
from rubix_like.runtime.compiled_programs import held
from rubix_like.runtime.memory import check_memory, memory_need
from rubix_like.runtime.mesh.mesh import SAMPLE_AXIS, as_dtype, own_copy

_NOISE, _PARTICLES = 0, 1
"""What the keys of a simulation are for."""

_LEAST = 2
"""Simulations of a device in one call, filling included: XLA unrolls a loop of one, which changes its rounding."""


class GalaxiesInTurn(AbstractParticleSource):
    """Given galaxies, padded to one size, one after the other: simulation i has number i modulo how many there are.

    `held`: every array has the axis galaxy first; `alignment`: the rotation of each (None: they are not aligned).
    """

    held: Galaxy
    alignment: Float[Array | np.ndarray, "galaxy 3 3"] | None

    @property
    def n_galaxy(self) -> int:
        """How many galaxies there are."""
        return len(self.held.stars.position)

    def galaxy(self, values: Values) -> Galaxy:
        """The first one."""
        return self.alone(jnp.zeros((), jnp.int32)).galaxy(values)

    def of_host(self, values: Values) -> Galaxy:
        """The first one, of which nothing has to be compiled."""
        return HeldSource(jax.tree.map(lambda leaf: np.asarray(leaf)[0], self.held)).galaxy(values)

    def alone(self, index: Int[Array, ""]) -> HeldSource:
        """One of them."""
        return HeldSource(jax.tree.map(lambda leaf: jnp.asarray(leaf)[index], self.held))


class Simulated(NamedTuple):
    """What is made of one simulation, or with one more axis in front of many: (y, x, wave)."""

    flux: Float[Array, "*n y x wave"]
    variance: Float[Array, "*n y x wave"] | None
    truth: Float[Array, "*n y x wave"] | None
    counters: dict[str, SourceCounters]


class Simulator(eqx.Module):
    """The model of all simulations; a pytree, to be passed to jitted functions as an argument.

    `key`: that of the whole set; `new_particles`: whether each has random numbers of its own for the particles of a
    synthetic galaxy; `variance`: whether that of the noise is kept.
    """

    forward: Forward
    key: PRNGKeyArray
    new_particles: bool = eqx.field(static=True)
    variance: bool = eqx.field(static=True)

    def __call__(self, number: Int[Array, ""], values: Values) -> Simulated:
        """The cube of one simulation; all its random numbers come from the key and the number."""
        forward, key = self.model_of(number)
        observed = forward.observed(values, key)
        voxels = observed.voxels
        return Simulated(voxels.flux, voxels.variance if self.variance else None, voxels.truth, observed.counters)

    def model_of(self, number: Int[Array, ""]) -> tuple[Forward, PRNGKeyArray]:
        """The model with the particles of one simulation, and the key of its noise."""
        key = jax.random.fold_in(self.key, number)
        return self._forward(number, jax.random.fold_in(key, _PARTICLES)), jax.random.fold_in(key, _NOISE)

    def _forward(self, number: Int[Array, ""], key: PRNGKeyArray) -> Forward:
        """The model with the particles of one simulation."""
        forward, source = self.forward, self.forward.source
        if isinstance(source, GalaxiesInTurn):
            index = number % source.n_galaxy
            rotation = None if source.alignment is None else jnp.asarray(source.alignment)[index]
            tables = dataclasses.replace(forward.tables, alignment=rotation)
            return dataclasses.replace(forward, source=source.alone(index), tables=tables)
        if isinstance(source, SyntheticSource) and self.new_particles:
            source = as_dtype(source, forward.plan.dtype)
            source = dataclasses.replace(source, draws=source.draws.anew(key))
        return dataclasses.replace(forward, source=source)


class Sizes(NamedTuple):
    """How the work is cut: simulations in one call of the program, at the same time on a device, in a file."""

    batch: int
    at_once: int
    shard: int


class Program:
    """A simulator that is compiled for batches of one size on all devices of a mesh."""

    def __init__(self, simulator: Simulator, pipeline: Pipeline, example: DrawnValues, sizes: Sizes) -> None:
        """Compile; ConfigError where a batch takes more memory than there is. `example`: values of any simulations."""
        self.pipeline, self.mesh, self.sizes = pipeline, pipeline.mesh, sizes
        self.simulator = everywhere(simulator, self.mesh)
        samples = self._placed(0, {name: values[:1] for name, values in example.items()})
        leaves, structure = jax.tree.flatten((self.simulator, samples.tree, samples.real))
        arrays = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding) for leaf in leaves)
        self.compiled = _compiled(structure, arrays, self.mesh, sizes.at_once)
        check_memory(memory_need(self.compiled, self.mesh, 0), self.mesh)

    def __call__(self, start: int, values: DrawnValues) -> Simulated:
        """The simulations from number `start` on, as many as there are values: arrays on the devices, at once."""
        count = _count(values)
        samples = self._placed(start, values)
        made = self.compiled(self.simulator, samples.tree, samples.real)
        return made if len(made.flux) == count else jax.tree.map(lambda leaf: leaf[:count], made)

    def check(self, start: int, values: DrawnValues, made: Simulated) -> None:
        """Wait for simulations; ValueError for NaN or inf in cubes, and for particles that a cube is wrong for."""
        frame, voxels = self.pipeline.frame, (made.flux, made.variance, made.truth)
        bad = np.flatnonzero(count_not_finite(frame, voxels, None, made.counters))
        if len(bad):
            forward, key = self.simulator.model_of(jnp.asarray(start + bad[0], jnp.int32))
            galaxy, parameters = forward.at({name: row[bad[0]] for name, row in values.items()})
            model = Model(forward.plan, forward.layout, forward.tables, parameters, key)
            why = explain_not_finite(model, lambda: (galaxy,), frame.meta.get("ssp_library"))
            raise ValueError(f"simulation {start + bad[0]}: expected finite numbers, got NaN or inf: {why}")
        limits = {
            name: own_copy(source.painter.velocity_limit)
            for name, source in zip(self.pipeline.plan.sources, self.pipeline.tables.paint, strict=True)
        }
        totals = jax.tree.map(lambda leaf: np.asarray(leaf).sum(axis=0), jax.device_get(made.counters))
        try:
            for name, limit in limits.items():
                check_counters(totals[name], name, limit)
            if DUST_COLUMN in totals:
                check_dust(totals[DUST_COLUMN])
        except ValueError as error:
            last = start + len(made.flux) - 1
            raise ValueError(
                f"simulations {start} to {last}: {error}; with other settings all cubes change: restart=True, or "
                f"another folder"
            ) from error

    def _placed(self, start: int, values: DrawnValues) -> Placed:
        n_row = self.mesh.shape[SAMPLE_AXIS]
        numbers = np.arange(start, start + _count(values), dtype=np.int32)
        return placed((numbers, dict(values)), self.mesh, max(self.sizes.batch, _LEAST * n_row))


def _count(values: DrawnValues) -> int:
    return len(next(iter(values.values())))


@held
def _compiled(structure: Any, arrays: tuple[Any, ...], mesh: Mesh, at_once: int) -> Any:
    """Every simulation of a batch, each device its own: compiled for arguments like these, and held."""

    def simulate_batch(simulator: Simulator, tree: Any, real: Any) -> Simulated:
        return over_samples(_simulate_sample, mesh, simulator, Placed(tree, real), at_once=at_once)

    return jax.jit(simulate_batch).lower(*jax.tree.unflatten(structure, arrays)).compile()


def _simulate_sample(simulator: Simulator, sample: tuple[Any, Any]) -> Simulated:
    return simulator(*sample)
