"""Groups of starts on the mesh of a model, one on each share of the devices: what is compiled for one serves all."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Float
from numpy import ndarray

from rubix_like.galaxy.synthetic import BaseDraws
from rubix_like.inference.posterior.free import Latent
from rubix_like.inference.posterior.posterior import Group, Posterior, SquaredLoss
from rubix_like.runtime.mesh.mesh import SAMPLE_AXIS, replicated


def over_starts(function: Callable[..., Any], posterior: Any, *arrays: Any) -> Any:
    """`function(posterior, *arrays of one start)` for every start, each start on its share of the devices.

    `posterior`: any pytree that all starts share.
    """
    if jax.tree.leaves(arrays)[0].shape[0] == 1:
        alone = function(posterior, *jax.tree.map(lambda array: array[0], arrays))
        return jax.tree.map(lambda array: array[None], alone)
    axes = (None, *(0 for _ in arrays))
    return jax.vmap(function, in_axes=axes, spmd_axis_name=SAMPLE_AXIS)(posterior, *arrays)


def group_of(posterior: SquaredLoss, latent: Latent) -> Group:
    """One place as a group of starts; of a model as many copies as its mesh computes at once, as in a search."""
    row = np.asarray(latent)[None]
    if not isinstance(posterior, Posterior):
        return row
    mesh = posterior.forward.main.layout.mesh
    return placed_starts(np.repeat(row, mesh.shape.get(SAMPLE_AXIS, 1), axis=0), mesh)


def placed_starts(rows: Float[ndarray, "start latent"], mesh: Mesh) -> Group:
    """Group of as many starts as a mesh has rows along "sample", each on its own; whole where it has none."""
    spec = PartitionSpec(SAMPLE_AXIS) if SAMPLE_AXIS in mesh.shape else PartitionSpec()
    return jax.device_put(rows, NamedSharding(mesh, spec))


def on_mesh(posterior: SquaredLoss, mesh: Mesh) -> Any:
    """The posterior with its arrays on a mesh: where they lie already, or whole on every device.

    Priors stay on the host, where they are looked at between steps.
    """
    if isinstance(posterior, Posterior):
        placed = [_placed(own, mesh) for own in (posterior.forward, posterior.likelihood)]
        return dataclasses.replace(posterior, forward=placed[0], likelihood=placed[1])
    return _placed(posterior, mesh)


def with_draws(posterior: Posterior, draws: BaseDraws) -> Posterior:
    """The posterior of the same synthetic galaxy, made of other draws, which lie where its own do."""
    other = eqx.tree_at(lambda own: own.forward.source.draws, posterior, draws)
    return on_mesh(other, posterior.forward.main.layout.mesh)


def _placed(tree: Any, mesh: Mesh) -> Any:
    return jax.device_put(tree, jax.tree.map(lambda leaf: _kept_or_replicated(leaf, mesh), tree))


def _kept_or_replicated(leaf: Any, mesh: Mesh) -> jax.sharding.Sharding:
    """The sharding of an array as it lies already if that is on the mesh, or whole on every device."""
    sharding = getattr(leaf, "sharding", None)
    return sharding if isinstance(sharding, NamedSharding) and sharding.mesh == mesh else replicated(mesh)
