"""Device meshes: making them, laying arrays and the detector's bins out on them, padding particles, and summing over
chunks of particles.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Num

from rubix_like.arguments import named_arguments
from rubix_like.errors import ConfigError, expect_count
from rubix_like.runtime.mesh.bin_split import WHOLE, BinSplit
from rubix_like.runtime.processes.process_group import AbstractProcessGroup

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
    """Raise ConfigError unless the mesh's axes are "data", optionally with "wave" after it and "sample" before it
    (where "sample" stands is not checked)."""
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
    """Mark arrays as device-varying (`lax.pcast`) along those of the axes "data" and "wave" along which `like` varies.

    Inside `jax.shard_map`, `lax.scan` needs this of start values, and `lax.cond` of what its branches return and, under
    `jax.vmap`, of operands. Outside `jax.shard_map` nothing varies. What is no array stays as it is.
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


@dataclass(frozen=True)
class DeviceLayout:
    """The detector's bins on the devices of a mesh.

    `painted`: while particles are painted, parts along "wave"; `split`: once they are added up, the same parts or
    finer ones, along "data", too; `gathered`: every device gets the whole cube in the end.
    """

    mesh: Mesh
    painted: BinSplit
    split: BinSplit
    gathered: bool

    @classmethod
    def build(cls, mesh: Mesh, n_wave: int, *, sharded: bool, shared: bool = False) -> "DeviceLayout":
        """`sharded`: every device ends with its own part of the cube; `shared`: the work after the sum over "data"
        is divided among its devices, too."""
        n_data, n_part = mesh.shape[DATA_AXIS], mesh.shape.get(WAVE_AXIS, 1)
        parts = (WAVE_AXIS,) if n_part > 1 else ()
        axes = (*parts, DATA_AXIS) if sharded or shared else parts
        n_shard = n_part * (n_data if sharded or shared else 1)
        split = BinSplit(n_wave, n_shard, axes) if axes else WHOLE
        painted = BinSplit(split.n_padded, n_part, parts) if parts else WHOLE
        return cls(mesh, painted, split, gathered=not sharded)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle keeps of devices, which are those of a process, only their number along each axis."""
        return _unpickled, (dict(self.mesh.shape), self.painted, self.split, self.gathered)

    @property
    def n_data(self) -> int:
        """Devices along "data"."""
        return self.mesh.shape[DATA_AXIS]

    @property
    def scatters(self) -> bool:
        """Whether what is added up along "data" is kept in parts there."""
        return DATA_AXIS in self.split.axes

    def own_bins(self, painted: Num[Array, "... part"]) -> Num[Array, "... own"]:
        """The bins that are finished here, of an array over those that are painted here."""
        if not self.scatters:
            return painted
        start = lax.axis_index(DATA_AXIS) * self.split.n_own
        return lax.dynamic_slice_in_dim(painted, start, self.split.n_own, axis=painted.ndim - 1)

    def shardings(self, specs: Any) -> Any:
        """The tree of shardings for a tree of PartitionSpecs."""
        return jax.tree.map(
            lambda spec: NamedSharding(self.mesh, spec), specs, is_leaf=lambda leaf: isinstance(leaf, PartitionSpec)
        )


def _unpickled(shape: dict[str, int], painted: BinSplit, split: BinSplit, gathered: bool) -> DeviceLayout:
    """The layout on the first devices of this process; raises ConfigError where there are fewer."""
    return DeviceLayout(mesh_of_shape(shape), painted, split, gathered)


Tree = TypeVar("Tree")


def put(tree: Tree, shardings: Any) -> Tree:
    """The arrays, the same in all processes, laid out as `shardings` (a tree of them, or one for all) says.

    On devices of this process alone it is `jax.device_put`, also under jit; over several processes each one gives its
    devices their parts, and nothing is sent.
    """
    first = jax.tree.leaves(shardings)[0]
    if first.is_fully_addressable or is_traced(tree):
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


def is_traced(tree: Any) -> bool:
    """Whether any leaf is traced: inside of jit, grad or vmap."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))


def own_copy(tree: Tree) -> Tree:
    """This process's copy of every array replicated over several processes; other leaves unchanged."""

    def copied(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array) or isinstance(leaf, Tracer) or leaf.is_fully_addressable:
            return leaf
        return leaf.addressable_data(0) if leaf.is_fully_replicated else leaf

    return jax.tree.map(copied, tree)


def rows_of_process(mesh: Mesh, team: AbstractProcessGroup) -> int:
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


_SMALL = 16


class UsedFirst(eqx.Module):
    """Particles in an order in which those in use come first; `accumulate` passes over the chunks after them.

    All arrays keep their sizes, so that nothing is compiled for how many are in use.
    """

    particles: Any

    @classmethod
    def of(cls, particles: Any, used: Bool[Array, " particle"]) -> "UsedFirst":
        """The particles that are `used` and no padding, in their order, then the first of them with a weight of 0."""
        used, size = used & (particles.weight > 0), len(used)
        place = jnp.nonzero(used, size=size, fill_value=0)[0].astype(jnp.int32)
        in_use = jnp.arange(size, dtype=jnp.int32) < used.sum(dtype=jnp.int32)
        place = jnp.where(in_use, place, place[0])
        chosen = jax.tree.map(lambda leaf: leaf[place], particles)
        weight = jnp.where(in_use, chosen.weight, jnp.zeros_like(chosen.weight))
        return cls(eqx.tree_at(lambda p: p.weight, chosen, weight))

    @property
    def weight(self) -> Any:
        """(particle,), 0 after those in use."""
        return self.particles.weight


def chunk_counts(n_particles: int, chunk: int, two_levels: bool = True) -> tuple[int, int, int]:
    """(groups, chunks per group, particles per chunk), nearly equal, with at most `chunk` particles per chunk."""
    n_chunks = max(1, -(-n_particles // chunk))
    per_group = math.isqrt(n_chunks - 1) + 1 if two_levels and n_chunks > _SMALL else n_chunks
    groups = -(-n_chunks // per_group)
    return groups, per_group, -(-n_particles // (groups * per_group))


def accumulate(
    contribute: Callable[[Any], Any],
    add: Callable[[Any, Any], Any],
    empty: Any,
    particles: Any,
    chunk: int,
    two_levels: bool = True,
) -> Any:
    """add(... add(empty, contribute(chunk 1)) ...), summed per group of about sqrt(n) chunks first.

    In running order, float32 loses 1e-4 of the total of 1e7 equal masses and 4e-3 in a crowded spaxel; sums in 64 bits
    need no groups (`two_levels` False). Groups are joined by plain `+`, so `empty` must be zero. `contribute` and `add`
    are recomputed in the backward pass, and `add` must be linear, so that no sum is kept for it: nothing is kept per
    particle but the particles. Chunks without a particle in use (`UsedFirst`) take no time.
    """
    n_particles = len(jax.tree.leaves(particles)[0])
    groups, per_group, size = chunk_counts(n_particles, chunk, two_levels)
    padded = pad_particles(particles, groups * per_group * size)
    chunks = jax.tree.map(lambda leaf: leaf.reshape(groups, per_group, size, *leaf.shape[1:]), padded)

    has_idle = isinstance(particles, UsedFirst) and groups * per_group > 1

    def add_one(partial: Any, one: Any) -> Any:
        return add(partial, contribute(one))

    @jax.checkpoint
    def add_chunk(partial: Any, one: Any) -> tuple[Any, None]:
        if has_idle:
            return lax.cond(one.weight[0] > 0, add_one, lambda partial, _: partial, partial, one), None
        return add_one(partial, one), None

    def add_group(total: Any, group: Any) -> tuple[Any, None]:
        partial, _ = lax.scan(add_chunk, empty, group)
        return jax.tree.map(jnp.add, total, partial), None

    if groups == 1:
        return lax.scan(add_chunk, empty, jax.tree.map(lambda leaf: leaf[0], chunks))[0]
    return lax.scan(add_group, empty, chunks)[0]
