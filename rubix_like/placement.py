"""Arrays of the host on a mesh that may span several processes, and back."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding

from rubix_like.errors import ConfigError
from rubix_like.galaxy import Galaxy, Gas, Stars
from rubix_like.sharding import DATA_AXIS, pad_on_host, particle_shardings, process_count, size_class
from rubix_like.team import AbstractTeam

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


def check_process_mesh(mesh: Mesh, team: AbstractTeam) -> int:
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


def shard_local(galaxy: Galaxy, mesh: Mesh, team: AbstractTeam) -> Galaxy:
    """The galaxy of which every process has its own share, placed on the mesh: a process's particles on its devices.

    `galaxy`: this process's stars and gas, host arrays; a share may be empty. Each is padded to the size class of the
    largest, with weight 0, so that all are of one size. Raises ValueError where no process has stars, or where they
    have different fields.
    """
    rows = team.each(lambda: check_process_mesh(mesh, team))
    stars = _placed(galaxy.stars, Stars, rows, mesh, team)
    if stars is None:
        raise ValueError("galaxy.stars: expected at least one star, got none")
    return Galaxy(stars=stars, gas=_placed(galaxy.gas, Gas, rows, mesh, team))


def _placed(own: Any, kind: Callable[..., Any], rows: int, mesh: Mesh, team: AbstractTeam) -> Any:
    """One kind of particles of all processes; None where there are none."""
    arrays = {} if own is None else {name: np.asarray(array) for name, array in vars(own).items() if array is not None}
    n_own = len(arrays["position"]) if arrays else 0
    layout = {name: (array.shape[1:], str(array.dtype)) for name, array in arrays.items()}
    answers = [answer for answer in team.exchange(lambda: (n_own, layout)) if answer[0]]
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
    return place_rows(pad_on_host(kind(**(arrays if n_own else none)), size), mesh)


def place_rows(own: Any, mesh: Mesh) -> Any:
    """Host arrays of this process's particles, as many in every process, as those of all along "data".

    Each process's are put on its own devices, and nothing is sent.
    """
    n_process = process_count(mesh)

    def place(array: np.ndarray, sharding: NamedSharding) -> jax.Array:
        return jax.make_array_from_process_local_data(sharding, array, (len(array) * n_process, *array.shape[1:]))

    return jax.tree.map(place, own, particle_shardings(own, mesh))
