"""A galaxy on a mesh of devices: padded to a size class, its particles split along "data"."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from rubix_like.arguments import named_arguments
from rubix_like.errors import ConfigError
from rubix_like.galaxy.particles import Galaxy, Gas, Stars
from rubix_like.runtime.mesh.mesh import (
    DATA_AXIS,
    is_traced,
    pad_on_host,
    pad_particles,
    process_count,
    rows_of_process,
    size_class,
)
from rubix_like.runtime.processes.process_group import AbstractProcessGroup


@named_arguments
def particle_shardings(galaxy: Galaxy, mesh: Mesh | AbstractMesh) -> Galaxy:
    """The spec tree: a Galaxy that holds, for every array of `galaxy`, its NamedSharding (particles along "data")."""
    return jax.tree.map(lambda leaf: _sharding(leaf, mesh), galaxy)


def _sharding(leaf: Any, mesh: Mesh | AbstractMesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec(DATA_AXIS, *(None,) * (np.ndim(leaf) - 1)))


def pad_galaxy_on_host(galaxy: Galaxy, mesh: Mesh) -> Galaxy:
    """The galaxy padded as `shard` does it, by numpy, so that nothing is compiled for its number of particles."""

    def padded(particles: Any) -> Any:
        return pad_on_host(particles, size_class(len(particles.position), mesh.shape[DATA_AXIS]))

    has_gas = galaxy.gas is not None and len(galaxy.gas.position) > 0
    return Galaxy(stars=padded(galaxy.stars), gas=padded(galaxy.gas) if has_gas else None)


@named_arguments
def shard(galaxy: Galaxy, mesh: Mesh | AbstractMesh) -> Galaxy:
    """The galaxy placed on the mesh: padded to a size class with particles of weight 0, particles split along "data".

    The caller's galaxy is not changed. Works on concrete arrays and inside jit, grad and vmap (also over galaxies: of a
    tracer the particles' axis is constrained, since a placement of the array behind it would cut the first one).
    """
    if DATA_AXIS not in mesh.axis_names:
        raise ConfigError(
            f"mesh: expected an axis '{DATA_AXIS}' (rl.make_mesh() makes such a mesh), got {mesh.axis_names}"
        )
    shape = np.shape(galaxy.stars.initial_mass)
    if len(shape) != 1:
        raise ConfigError(
            f"galaxy: expected one galaxy, with columns over its particles, got stars.initial_mass of shape {shape}; "
            f"map over several with jax.vmap"
        )
    n_devices = mesh.shape[DATA_AXIS]
    placed = galaxy if _fits(galaxy, n_devices) else _padded_galaxy(galaxy, n_devices)
    place = lax.with_sharding_constraint if is_traced(placed) else jax.device_put
    return place(placed, particle_shardings(placed, mesh))


def own_share(galaxy: Galaxy, mesh: Mesh) -> Galaxy:
    """The particles that `shard` would place on this device, of a galaxy that every device has whole.

    Inside a `jax.shard_map` over the mesh only.
    """
    n_devices = mesh.shape[DATA_AXIS]

    def part(leaf: Any) -> Any:
        size = leaf.shape[0] // n_devices
        return lax.dynamic_slice_in_dim(leaf, lax.axis_index(DATA_AXIS) * size, size)

    return jax.tree.map(part, _padded_galaxy(galaxy, n_devices))


def _fits(galaxy: Galaxy, n_devices: int) -> bool:
    """Whether the galaxy is padded already, as one that was placed before."""
    kinds = [galaxy.stars] if galaxy.gas is None else [galaxy.stars, galaxy.gas]
    return all(
        kind.weight is not None and len(kind.position) == size_class(len(kind.position), n_devices) > 0
        for kind in kinds
    )


@functools.partial(jax.jit, static_argnames="n_devices")
def _padded_galaxy(galaxy: Galaxy, n_devices: int) -> Galaxy:
    """Stars and gas with weights, padded: one compiled call, since a dozen small ones take longer than painting."""
    has_gas = galaxy.gas is not None and len(galaxy.gas.position) > 0
    return Galaxy(stars=_place(galaxy.stars, n_devices), gas=_place(galaxy.gas, n_devices) if has_gas else None)


@named_arguments
def shard_local(galaxy: Galaxy, mesh: Mesh, team: AbstractProcessGroup) -> Galaxy:
    """Place a galaxy on a mesh over several processes, given each one's own share: its particles go to its devices.

    `galaxy`: this process's stars and gas, host arrays; a share may be empty. Each is padded to the size class of the
    largest, with weight 0, so that all are of one size. Raises ValueError where no process has stars, or where they
    have different fields.
    """
    rows = team.each(lambda: rows_of_process(mesh, team))
    stars = _placed(galaxy.stars, Stars, rows, mesh, team)
    if stars is None:
        raise ValueError("galaxy.stars: expected at least one star, got none")
    return Galaxy(stars=stars, gas=_placed(galaxy.gas, Gas, rows, mesh, team))


def _placed(share: Any, kind: Callable[..., Any], rows: int, mesh: Mesh, team: AbstractProcessGroup) -> Any:
    """One kind of particles, each process's padded to the largest share; None where no process has any.

    Kinds are placed one after the other, so that one padded copy lies on the host at a time.
    """
    columns = {} if share is None else vars(share)
    arrays = {name: np.asarray(array) for name, array in columns.items() if array is not None}
    count = len(arrays["position"]) if arrays else 0
    layout = {name: (array.shape[1:], str(array.dtype)) for name, array in arrays.items()}
    answers = [answer for answer in team.exchange(lambda: (count, layout)) if answer[0]]
    if not answers:
        return None
    fields = answers[0][1]
    if any(answer[1] != fields for answer in answers):
        raise ValueError(
            f"galaxy: expected the same fields and types in every process's share, got "
            f"{' / '.join(str(answer[1]) for answer in answers)}"
        )
    size = size_class(max(n for n, _ in answers), rows)
    none = {name: np.zeros((0, *shape), dtype) for name, (shape, dtype) in fields.items()}
    return place_rows(pad_on_host(kind(**(arrays if count else none)), size), mesh)


def place_rows(share: Any, mesh: Mesh) -> Any:
    """All particles along "data", where each process gives a share of one size in host arrays.

    A process's particles are put on its devices, and nothing is sent.
    """
    n_process = process_count(mesh)

    def place(array: np.ndarray) -> jax.Array:
        shape = (len(array) * n_process, *array.shape[1:])
        return jax.make_array_from_process_local_data(_sharding(array, mesh), array, shape)

    return jax.tree.map(place, share)


def _place(particles: Any, n_devices: int) -> Any:
    """One kind of particles with a weight, padded to its size class."""
    n_particles = len(particles.position)
    if n_particles == 0:
        raise ValueError("galaxy.stars: expected at least one star, got none")
    if particles.weight is None:
        weight = jnp.ones_like(particles.position[:, 0])
        particles = eqx.tree_at(lambda p: p.weight, particles, weight, is_leaf=lambda leaf: leaf is None)
    return pad_particles(particles, size_class(n_particles, n_devices))
