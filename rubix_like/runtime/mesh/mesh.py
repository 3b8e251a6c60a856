"""Particles on a mesh of devices: the mesh, the spec tree, padding, placement."""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from rubix_like.arguments import named_arguments
from rubix_like.errors import ConfigError, expect_count

DATA_AXIS = "data"
"""Mesh axis along which the particles lie."""

WAVE_AXIS = "wave"
"""Mesh axis along which the detector's bins are painted apart; the particles are the same all along it."""

SAMPLE_AXIS = "sample"
"""Mesh axis along which several models are computed at once (starts of a fit); one model is the same all along it."""

_SIZES_PER_OCTAVE = 8


@named_arguments
def make_mesh(n_devices: int | None = None, wave: int = 1) -> Mesh:
    """A mesh over the first devices of the run: `n_devices` along "data" (None: as many as there are), `wave` along
    "wave" (1: there is no such axis).

    Raises ConfigError for more devices than there are.
    """
    expect_count(wave, "wave")
    if n_devices is not None:
        expect_count(n_devices, "n_devices")
    devices = jax.devices()
    if wave > len(devices):
        raise ConfigError(f"wave, devices.wave: expected 1 to {len(devices)} (the devices of this run), got {wave}")
    count = len(devices) // wave if n_devices is None else n_devices
    if not 1 <= count * wave <= len(devices):
        each = "the devices of this run" if wave == 1 else f"{len(devices)} devices over devices.wave, {wave}"
        raise ConfigError(
            f"n_devices, devices.data: expected 'all' or 1 to {len(devices) // wave} ({each}), got "
            f"{'all' if n_devices is None else n_devices}; in Python rl.make_mesh() takes all"
        )
    return mesh_of_shape({DATA_AXIS: count} if wave == 1 else {DATA_AXIS: count, WAVE_AXIS: wave})


def mesh_of_shape(shape: Mapping[str, int]) -> Mesh:
    """A mesh over the first devices of the run, with so many along each axis; raises ConfigError where there are
    fewer."""
    devices, needed = jax.devices(), prod(shape.values())
    if needed > len(devices):
        raise ConfigError(
            f"devices: expected {needed}, for which the run was planned, got {len(devices)} here; plan it anew from "
            f"its configuration"
        )
    names, sizes = tuple(shape), tuple(shape.values())
    return jax.make_mesh(sizes, names, axis_types=(AxisType.Auto,) * len(names), devices=devices[:needed])


def check_mesh(mesh: Mesh) -> None:
    """Raise ConfigError unless the mesh's axes are "data", or "data" and "wave"."""
    names = tuple(name for name in mesh.axis_names if name != SAMPLE_AXIS)
    if names not in {(DATA_AXIS,), (DATA_AXIS, WAVE_AXIS)}:
        raise ConfigError(
            f"mesh: expected the axis '{DATA_AXIS}', with or without '{WAVE_AXIS}' after and '{SAMPLE_AXIS}' before "
            f"it, got {mesh.axis_names}; make it with rubix_like.make_mesh(n)"
        )


def process_count(mesh: Mesh) -> int:
    """How many processes the devices of a mesh belong to."""
    return len({device.process_index for device in mesh.devices.flat})


def replicated(mesh: Mesh) -> NamedSharding:
    """The sharding of whatever every device holds whole: tables, parameters, bin edges, the cube."""
    return NamedSharding(mesh, PartitionSpec())


def varying(tree: Any, *like: Any) -> Any:
    """Arrays that are the same on all devices, as the start of a sum of what differs from one to the next, or as what a
    `lax.cond` over such parts reads: `jax.vmap` turns its choice into one of numbers, which then differ.

    They are marked as different along every mesh axis along which an array of `like` is. Outside `jax.shard_map`
    nothing differs. What is no array stays as it is.
    """
    axes = [axis for axis in (DATA_AXIS, WAVE_AXIS) if any(axis in _varies(leaf) for leaf in jax.tree.leaves(like))]

    def mark(leaf: Any) -> Any:
        return lax.pcast(leaf, tuple(axis for axis in axes if axis not in _varies(leaf)), to="varying")

    return jax.tree.map(lambda leaf: mark(leaf) if eqx.is_array(leaf) else leaf, tree)


def where_wanted(wanted: Any, function: Callable[[Any], Any], operand: Any, *like: Any) -> Any:
    """`function(operand)` where `wanted`, else zeros of its shapes, which differ from device to device as `like`."""

    def zeros(operand: Any) -> Any:
        shapes = jax.eval_shape(function, operand)
        return varying(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes), operand, *like)

    return lax.cond(wanted, function, zeros, operand)


def _varies(leaf: Any) -> frozenset[str]:
    """Mesh axes along which an array differs from device to device."""
    return jax.typeof(leaf).manual_axis_type.varying


def size_class(n_particles: int, n_devices: int) -> int:
    """The smallest size of the ladder that holds `n_particles`, a multiple of `n_devices`.

    Eight sizes per octave (at most 12.5 % more than needed), so that galaxies of about the same size share one
    compilation.
    """
    per_device = max(1, -(-n_particles // n_devices))
    step = 1 << max(0, per_device.bit_length() - _SIZES_PER_OCTAVE.bit_length())
    return -(-per_device // step) * step * n_devices


def pad_particles(particles: Any, size: int) -> Any:
    """Every array with `size` rows: the last row is repeated, with a weight of 0 and cut off from differentiation."""

    def pad(leaf: Any) -> Any:
        missing = size - leaf.shape[0]
        if missing == 0:
            return leaf
        last = lax.stop_gradient(leaf[-1:])
        return jnp.concatenate([leaf, jnp.broadcast_to(last, (missing, *leaf.shape[1:]))])

    n_particles = len(jax.tree.leaves(particles)[0])
    if size == n_particles:
        return particles
    padded = jax.tree.map(pad, particles)
    weight = jnp.where(jnp.arange(size) < n_particles, padded.weight, jnp.zeros_like(padded.weight))
    return eqx.tree_at(lambda p: p.weight, padded, weight)


def pad_on_host(particles: Any, size: int, dtype: str | None = None) -> Any:
    """Host arrays with `size` rows in `dtype` (None: that of positions): those that are missing are like the last one,
    with a weight of 0.

    Where there is none at all they are 1 in everything: no number is broken, no logarithm infinite.
    """
    n_particles = len(particles.position)
    dtype = dtype or str(np.asarray(particles.position).dtype)

    def pad(leaf: Any) -> np.ndarray:
        values = np.empty((size, *np.shape(leaf)[1:]), dtype)
        values[:n_particles] = leaf
        values[n_particles:] = values[n_particles - 1] if n_particles else 1
        return values

    weight = np.ones(n_particles) if particles.weight is None else particles.weight
    padded = jax.tree.map(pad, eqx.tree_at(lambda p: p.weight, particles, weight, is_leaf=lambda leaf: leaf is None))
    padded.weight[n_particles:] = 0
    return padded
