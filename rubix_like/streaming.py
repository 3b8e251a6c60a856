"""Sums over particles that never are in memory all at once: slab by slab, each device for itself, added up at the end."""

import functools
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PRNGKeyArray

from rubix_like.cube import Counters
from rubix_like.galaxy import Galaxy
from rubix_like.model import Partial, finish, paint
from rubix_like.parameters import Parameters
from rubix_like.sharding import DATA_AXIS, particle_shardings, replicated
from rubix_like.slabs import paints_gas, place_slabs, read_ahead
from rubix_like.stages.base import PaintedCube
from rubix_like.tables import Plan, Tables

_WHOLE, _SPLIT = PartitionSpec(), PartitionSpec(DATA_AXIS)


class SlabSums(eqx.Module):
    """What every device has painted so far: a `Partial` whose arrays lie one device's below the other's.

    An array of (row, ...) is one of (device x row, ...) over the mesh, a number one of (device,); `numbers` says which
    of the leaves are numbers. While slabs are added they are in 64 bits, so that thousands of slabs lose nothing.
    """

    partial: Partial
    numbers: tuple[bool, ...] = eqx.field(static=True)

    @classmethod
    def lay(cls, partial: Partial, dtype: Any) -> "SlabSums":
        """A device's own partial, as its part of the whole."""
        leaves, structure = jax.tree.flatten(partial)
        laid = [jnp.atleast_1d(leaf).astype(dtype) for leaf in leaves]
        return cls(jax.tree.unflatten(structure, laid), tuple(leaf.ndim == 0 for leaf in leaves))

    def own(self) -> Partial:
        """The partial of the device that this runs on."""
        leaves, structure = jax.tree.flatten(self.partial)
        own = [leaf[0] if number else leaf for leaf, number in zip(leaves, self.numbers, strict=True)]
        return jax.tree.unflatten(structure, own)


def paint_slab(
    plan: Plan, mesh: Mesh, tables: Tables, parameters: Parameters, slab: Galaxy, dtype: Any = jnp.float64
) -> SlabSums:
    """Every device's sums over its own particles of one slab, for itself."""

    def paint_own(tables: Tables, parameters: Parameters, particles: tuple[Any, ...]) -> SlabSums:
        return SlabSums.lay(paint(plan, tables, parameters, particles), dtype)

    particles = tuple(component.particles(slab) for component in tables.paint)
    each = jax.shard_map(paint_own, mesh=mesh, in_specs=(_WHOLE, _WHOLE, _SPLIT), out_specs=_SPLIT)
    return each(tables, parameters, particles)


def add_slab(
    plan: Plan, mesh: Mesh, sums: SlabSums, tables: Tables, parameters: Parameters, slab: Galaxy
) -> SlabSums:
    """The sums with one more slab: no device hears of another."""
    return jax.tree.map(jnp.add, sums, paint_slab(plan, mesh, tables, parameters, slab))


def finish_sums(
    plan: Plan, mesh: Mesh, sums: SlabSums, tables: Tables, parameters: Parameters, key: PRNGKeyArray | None
) -> tuple[PaintedCube, Counters]:
    """From the sums of all devices to the observed cube: one psum, then `finish`."""

    def add_up(sums: SlabSums) -> Partial:
        return lax.psum(sums.own(), DATA_AXIS)

    partial = jax.shard_map(add_up, mesh=mesh, in_specs=_SPLIT, out_specs=_WHOLE)(sums)
    return finish(plan, tables, parameters, partial, key)


@dataclass(frozen=True)
class SlabPrograms:
    """The compiled functions of a run by slabs, for slabs of one size; what they take first is used up by `add`.

    `start(tables, parameters, slab)`: sums at zero; `add(sums, tables, parameters, slab)`: with one more slab;
    `rounded(sums)`: in the run's own precision; `finish(sums, tables, parameters, key)`: the cube and the counters.
    """

    start: Callable[..., SlabSums]
    add: Callable[..., SlabSums]
    rounded: Callable[..., SlabSums]
    finish: Callable[..., tuple[PaintedCube, Counters]]


@functools.lru_cache(maxsize=128)
def slab_programs(plan: Plan, mesh: Mesh, spec_leaves: tuple[Any, ...], structure: Any) -> SlabPrograms:
    """The functions under jit: slabs lie as the spec tree says, sums device by device, all else whole on every device.

    Cached, so that pipelines with the same plan on the same mesh share what was compiled. What has 64 bits is called
    within `wide`.
    """
    whole, split = replicated(mesh), NamedSharding(mesh, _SPLIT)
    particles = jax.tree.unflatten(structure, spec_leaves)

    def start(tables: Tables, parameters: Parameters, slab: Galaxy) -> SlabSums:
        shapes = jax.eval_shape(functools.partial(paint_slab, plan, mesh), tables, parameters, slab)
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def rounded(sums: SlabSums) -> SlabSums:
        return jax.tree.map(lambda leaf: leaf.astype(plan.dtype), sums)

    return SlabPrograms(
        start=jax.jit(start, in_shardings=(whole, whole, particles), out_shardings=split),
        add=jax.jit(
            functools.partial(add_slab, plan, mesh),
            in_shardings=(split, whole, whole, particles),
            out_shardings=split,
            donate_argnums=0,
        ),
        rounded=jax.jit(rounded, in_shardings=split, out_shardings=split),
        finish=jax.jit(
            functools.partial(finish_sums, plan, mesh), in_shardings=(split, whole, whole, whole), out_shardings=whole
        ),
    )


def wide() -> AbstractContextManager[Any]:
    """Where sums in 64 bits may pass through JAX, whatever the run's precision."""
    return jax.enable_x64(True)


def programs_for(plan: Plan, mesh: Mesh, slab: Galaxy) -> SlabPrograms:
    """The programs for placed slabs with the columns of this one."""
    shardings, structure = jax.tree.flatten(particle_shardings(slab, mesh))
    return slab_programs(plan, mesh, tuple(shardings), structure)


def observe_slabs(
    plan: Plan, mesh: Mesh, tables: Tables, parameters: Parameters, slabs: Iterable[Galaxy], key: PRNGKeyArray | None
) -> tuple[PaintedCube, Counters]:
    """The whole way for a galaxy that comes in slabs: what `observe` makes of all of it at once."""
    placed = place_slabs(slabs, plan.dtype, mesh, with_gas=paints_gas(tables.paint))
    with read_ahead(placed) as coming:
        programs, (sums,) = paint_slabs(plan, mesh, tables, (parameters,), coming)
    return programs.finish(sums, tables, parameters, key)


def paint_slabs(
    plan: Plan,
    mesh: Mesh,
    tables: Tables,
    views: Sequence[Parameters],
    slabs: Iterable[Galaxy],
    programs: SlabPrograms | None = None,
) -> tuple[SlabPrograms, tuple[SlabSums, ...]]:
    """The sums of all placed slabs, for each view of them, in the plan's precision, and the programs that made them.

    A slab is let go before the next one is asked for. `programs`: compiled ones, for slabs of one size.
    """
    sums: list[SlabSums] = []
    for slab in slabs:
        if programs is None:
            programs = programs_for(plan, mesh, slab)
        with wide():
            sums = sums or [programs.start(tables, view, slab) for view in views]
            for number, view in enumerate(views):
                sums[number] = programs.add(sums[number], tables, view, slab)
        jax.block_until_ready(sums)
    if programs is None:
        raise ValueError("slabs: expected at least one, got none")
    with wide():
        return programs, tuple(programs.rounded(own) for own in sums)
