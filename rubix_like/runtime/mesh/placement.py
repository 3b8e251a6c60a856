"""Arrays of the host on a mesh that may span several processes, and back."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding

from rubix_like.errors import ConfigError
from rubix_like.runtime.mesh.mesh import DATA_AXIS
from rubix_like.runtime.processes.process_group import AbstractProcessGroup

Tree = TypeVar("Tree")


def put(tree: Tree, shardings: Any) -> Tree:
    """The arrays, the same in all processes, laid out as `shardings` (a tree of them, or one for all) says.

    On devices of this process alone it is `jax.device_put`, also under jit; over several processes each one gives its
    own devices their parts, and nothing is sent.
    """
    first = jax.tree.leaves(shardings)[0]
    if first.is_fully_addressable or any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree)):
        return jax.device_put(tree, shardings)
    if isinstance(shardings, NamedSharding):
        return jax.tree.map(lambda leaf: _put(leaf, shardings), tree)
    return jax.tree.map(_put, tree, shardings)


def _put(leaf: Any, sharding: NamedSharding) -> Any:
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return jax.device_put(leaf, sharding)  # there already
    if jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key):
        data = _put(jax.random.key_data(leaf), sharding)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    host = np.asarray(leaf)
    return jax.make_array_from_callback(host.shape, sharding, lambda part: host[part])


def own_copy(tree: Tree) -> Tree:
    """What every device of a mesh over several processes holds whole, as arrays of this process; all else as it is."""

    def copied(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array) or isinstance(leaf, Tracer) or leaf.is_fully_addressable:
            return leaf
        return leaf.addressable_data(0) if leaf.is_fully_replicated else leaf

    return jax.tree.map(copied, tree)


def check_process_mesh(mesh: Mesh, team: AbstractProcessGroup) -> int:
    """Rows of the mesh along "data" that are this process's; as many as every other's.

    Raises ConfigError unless each row lies on devices of one process, and every process has as many.
    """
    rows = mesh.devices.reshape(mesh.shape[DATA_AXIS], -1)
    owners = [{device.process_index for device in row} for row in rows]
    if any(len(owner) > 1 for owner in owners):
        raise ConfigError(
            f"devices.wave: expected a number that divides the devices of one process ({jax.local_device_count()}), "
            f"got {rows.shape[1]}"
        )
    counts = [owners.count({number}) for number in range(team.size)]
    if len(set(counts)) > 1:
        raise ConfigError(
            f"devices.data: expected equally many devices of every process, got {counts}; set devices.data: all, and "
            f"start every process with as many devices"
        )
    return counts[team.number]


def as_dtype(tree: Any, dtype: str) -> Any:
    """The pytree with every float array in `dtype`; other arrays as they are."""

    def convert(leaf: Any) -> Any:
        floating = jnp.issubdtype(jnp.result_type(leaf), jnp.floating)
        return jnp.asarray(leaf, dtype) if floating else jnp.asarray(leaf)

    return jax.tree.map(convert, tree)
