"""Sums over particles that never are in memory all at once: slab by slab, each device for itself, then added up."""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jaxtyping import Array, PRNGKeyArray

from rubix_like.engine.basis import BasisPainter
from rubix_like.engine.painter import Sum
from rubix_like.forward.model import (
    Fields,
    Observed,
    Signature,
    add_up,
    finish,
    finish_fields,
    gathered,
    kinds_of_sums,
    observed_shardings,
    observed_specs,
    paint,
    sum_fields,
    table_specs,
)
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.planned_ranges import check_lengths_within_plan
from rubix_like.forward.sources.source import ReadsParticles, particles_of
from rubix_like.forward.tables import Plan, Tables
from rubix_like.galaxy.particles import Galaxy
from rubix_like.galaxy.slabs import place_slabs, read_ahead
from rubix_like.runtime.compiled_programs import held
from rubix_like.runtime.mesh.mesh import DATA_AXIS, DeviceLayout, replicated


class SlabView(NamedTuple):
    """What a pass needs beside the slabs: the parameters of a pointing, and the fields that earlier passes made."""

    parameters: Parameters
    fields: Fields


@dataclass(frozen=True)
class SlabPass:
    """One way through all slabs: what every device sums, and what is made of the sums of all devices."""

    words: str
    """What happens to stars, for the progress of a run."""
    done: str
    """What has happened to them."""
    readers: Callable[[Tables], Sequence[ReadsParticles]]
    """What is summed over particles."""
    sum: Callable[[Plan, Tables, SlabView, tuple[Any, ...]], Any]
    """A device's sums over the particles at hand."""
    kinds: Callable[[Tables, int], Sequence[Sum]]
    """How each of so many arrays of the sums is added up over the devices."""
    finish: Callable[[Plan, DeviceLayout, Tables, SlabView, Any, PRNGKeyArray | None], Any]
    """What each device makes of its sums, which are added up over the devices once."""
    specs: Callable[[DeviceLayout], Any]
    """The prefix of the tree of PartitionSpecs of what `finish` makes."""
    whole: Callable[[Plan, DeviceLayout, Any], Any]
    """The result of a pass with the parts of all devices joined."""
    shardings: Callable[[DeviceLayout], Any]
    """The prefix of the tree of shardings of what `whole` returns."""


def in_slabs(tables: Tables) -> Tables:
    """The tables with painters whose partials of several slabs are added up."""

    def added(node: Any) -> Any:
        return replace(node, in_slabs=True) if isinstance(node, BasisPainter) else node

    return jax.tree.map(added, tables, is_leaf=lambda node: isinstance(node, BasisPainter))


FIELD_PASS = SlabPass(
    words="summing the fields of",
    done="summed",
    readers=lambda tables: tables.fields,
    sum=lambda plan, tables, view, particles: sum_fields(plan, tables, view.parameters, particles),
    kinds=lambda _tables, n_leaf: (Sum.PARTICLES,) * n_leaf,
    finish=lambda plan, _layout, tables, view, sums, _key: finish_fields(plan, tables, view.parameters, sums),
    specs=lambda _layout: PartitionSpec(),
    whole=lambda _plan, _layout, made: made,
    shardings=lambda layout: replicated(layout.mesh),
)
"""The sums of all fields; it makes the fields, whole on every device."""

PAINTING_PASS = SlabPass(
    words="painting",
    done="painted",
    readers=lambda tables: tables.painted,
    sum=lambda plan, tables, view, particles: paint(plan, in_slabs(tables), *view, particles),
    kinds=kinds_of_sums,
    finish=lambda plan, layout, tables, view, sums, key: finish(
        plan, layout, in_slabs(tables), *view, add_up((layout,), (tables,), (sums,))[0], key
    ),
    specs=observed_specs,
    whole=gathered,
    shardings=observed_shardings,
)
"""The light of all sources, and the sums of the products; it makes the observed cube."""


def passes_of(tables: Tables) -> tuple[SlabPass, ...]:
    """The passes of a run, in order; the last one makes the cube."""
    return (FIELD_PASS, PAINTING_PASS) if tables.fields else (PAINTING_PASS,)


_WHOLE, _SPLIT = PartitionSpec(), PartitionSpec(DATA_AXIS)

Sums = tuple[Array, ...]
"""What the devices have summed so far: the arrays of their partial sums, one device's below the other's."""


@dataclass(frozen=True)
class SumsForm:
    """How the sums of all devices lie in one array each: those of (row, ...) as (device x row, ...), numbers as
    (device,).

    `structure`: of one device's; `shapes`: of its arrays on one device; `axes`: of the mesh along which they differ.
    """

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    axes: tuple[tuple[str, ...], ...]

    @classmethod
    def of(
        cls, one: SlabPass, plan: Plan, layout: DeviceLayout, tables: Tables, view: SlabView, slab: Galaxy
    ) -> "SumsForm":
        """The form of a pass; nothing is computed."""
        shardings = Signature.of(tables, slab).shardings(layout)
        own_tables, own_slab = jax.tree.map(
            lambda leaf, sharding: jax.ShapeDtypeStruct(sharding.shard_shape(leaf.shape), leaf.dtype),
            (tables, slab),
            shardings,
        )

        def of_slab(tables: Tables, view: SlabView, slab: Galaxy) -> Any:
            return one.sum(plan, tables, view, particles_of(one.readers(tables), slab))

        partial = jax.eval_shape(of_slab, own_tables, view, own_slab)
        leaves, structure = jax.tree.flatten(partial)
        of_bins = (Sum.BINS, Sum.EVERYTHING)
        axes = tuple(
            (DATA_AXIS, *(layout.painted.axes if kind in of_bins else ()))
            for kind in one.kinds(own_tables, len(leaves))
        )
        return cls(structure, tuple(leaf.shape for leaf in leaves), axes)

    @property
    def specs(self) -> tuple[PartitionSpec, ...]:
        """The PartitionSpec of every array."""
        return tuple(PartitionSpec(axes) for axes in self.axes)

    def empty(self, layout: DeviceLayout) -> Sums:
        """The arrays of all devices, at zero, in 64 bits."""
        return tuple(
            jnp.zeros((int(np.prod([layout.mesh.shape[axis] for axis in axes])) * rows, *columns), jnp.float64)
            for shape, axes in zip(self.shapes, self.axes, strict=True)
            for rows, *columns in [shape or (1,)]
        )

    def own(self, sums: Sums) -> Any:
        """The sums of the device that this runs on."""
        own = [leaf if shape else leaf[0] for leaf, shape in zip(sums, self.shapes, strict=True)]
        return jax.tree.unflatten(self.structure, own)


def add_slab(
    one: SlabPass,
    plan: Plan,
    layout: DeviceLayout,
    form: SumsForm,
    sums: Sums,
    tables: Tables,
    view: SlabView,
    slab: Galaxy,
) -> Sums:
    """The sums with those over one more slab: every device sums its own particles, without a collective."""

    def sum_and_add(sums: Sums, tables: Tables, view: SlabView, particles: tuple[Any, ...]) -> Sums:
        own = jax.tree.leaves(one.sum(plan, tables, view, particles))
        return tuple(total + jnp.atleast_1d(more).astype(total.dtype) for total, more in zip(sums, own, strict=True))

    return jax.shard_map(
        sum_and_add,
        mesh=layout.mesh,
        in_specs=(form.specs, table_specs(tables, layout), _WHOLE, _SPLIT),
        out_specs=form.specs,
    )(sums, tables, view, particles_of(one.readers(tables), slab))


def finish_sums(
    one: SlabPass,
    plan: Plan,
    layout: DeviceLayout,
    form: SumsForm,
    sums: Sums,
    tables: Tables,
    view: SlabView,
    key: PRNGKeyArray | None,
) -> Any:
    """The fields or the observed cube from the sums of every device, which are added up once."""

    def on_each_device(sums: Sums, tables: Tables, view: SlabView, key: Any) -> Any:
        return one.finish(plan, layout, tables, view, form.own(sums), key)

    made = jax.shard_map(
        on_each_device,
        mesh=layout.mesh,
        in_specs=(form.specs, table_specs(tables, layout), _WHOLE, _WHOLE),
        out_specs=one.specs(layout),
    )(sums, tables, view, key)
    return one.whole(plan, layout, made)


@dataclass(frozen=True)
class SlabPrograms:
    """The compiled functions of a pass over slabs.

    `start()`: sums at zero; `add(sums, tables, view, slab)`: with one more slab, in the place of the sums before;
    `rounded(sums)`: from 64 bits to the run's own precision; `finish(sums, tables, view, key)`: the fields or the cube.
    All but the last are called within `wide`.
    """

    start: Any
    add: Any
    rounded: Any
    finish: Any


@held
def slab_programs(
    one: SlabPass, plan: Plan, layout: DeviceLayout, form: SumsForm, signature: Signature
) -> SlabPrograms:
    """The functions under jit: tables and slabs lie as the spec trees say, sums device by device, all else whole.

    The sums are kept in 64 bits, so that thousands of slabs lose nothing. Held, so that pipelines with the same plan
    on the same mesh share what was compiled.
    """
    whole, split = replicated(layout.mesh), layout.shardings(form.specs)
    tables, particles = signature.shardings(layout)

    def rounded(sums: Sums) -> Sums:
        return tuple(leaf.astype(plan.dtype) for leaf in sums)

    return SlabPrograms(
        start=jax.jit(functools.partial(form.empty, layout), out_shardings=split),
        add=jax.jit(
            functools.partial(add_slab, one, plan, layout, form),
            in_shardings=(split, tables, whole, particles),
            out_shardings=split,
            donate_argnums=0,
        ),
        rounded=jax.jit(rounded, in_shardings=(split,), out_shardings=split),
        finish=jax.jit(
            functools.partial(finish_sums, one, plan, layout, form),
            in_shardings=(split, tables, whole, whole),
            out_shardings=one.shardings(layout),
        ),
    )


def wide() -> AbstractContextManager[Any]:
    """Where sums in 64 bits may pass through JAX, whatever the run's precision."""
    return jax.enable_x64(True)


def programs_for(
    one: SlabPass, plan: Plan, layout: DeviceLayout, tables: Tables, view: SlabView, slab: Galaxy
) -> SlabPrograms:
    """The programs for placed slabs with the columns of this one."""
    form = SumsForm.of(one, plan, layout, tables, view, slab)
    return slab_programs(one, plan, layout, form, Signature.of(tables, slab))


def compile_programs(
    plan: Plan, layout: DeviceLayout, tables: Tables, parameters: Parameters, key: PRNGKeyArray | None, slab: Galaxy
) -> tuple[SlabPrograms, ...]:
    """The programs of each pass for slabs like this one, compiled."""
    view, compiled = SlabView(parameters, {}), []
    for one in passes_of(tables):
        programs = programs_for(one, plan, layout, tables, view, slab)
        with wide():
            start = programs.start.lower().compile()
            sums = jax.eval_shape(programs.start)
            add = programs.add.lower(sums, tables, view, slab).compile()
            rounded = programs.rounded.lower(sums).compile()
            sums = jax.eval_shape(programs.rounded, sums)
        finish = programs.finish.lower(sums, tables, view, key)
        compiled.append(SlabPrograms(start, add, rounded, finish.compile()))
        view = SlabView(parameters, finish.out_info)
    return tuple(compiled)


def sum_slabs(
    one: SlabPass,
    plan: Plan,
    layout: DeviceLayout,
    tables: Tables,
    views: Sequence[SlabView],
    slabs: Iterable[Galaxy],
    programs: SlabPrograms | None = None,
    tell: Callable[[int], None] | None = None,
) -> tuple[SlabPrograms, list[Sums]]:
    """The sums of all placed slabs, for each view of them, in the plan's precision, and the programs that made them.

    A slab is summed to its end before the next one is asked for. `programs`: compiled ones, where all slabs have one
    size; `tell` is called with the number done.
    """
    sums: list[Sums] = []
    for number, slab in enumerate(slabs, start=1):
        programs = programs or programs_for(one, plan, layout, tables, views[0], slab)
        with wide():
            sums = sums or [programs.start() for _ in views]
            sums = [programs.add(own, tables, view, slab) for own, view in zip(sums, views, strict=True)]
        jax.block_until_ready(sums)
        if tell is not None:
            tell(number)
    if programs is None:
        raise ValueError("slabs: expected at least one, got none")
    with wide():
        return programs, [programs.rounded(own) for own in sums]


def observe_slabs(
    plan: Plan,
    layout: DeviceLayout,
    tables: Tables,
    parameters: Parameters,
    slabs: Iterable[Galaxy],
    key: PRNGKeyArray | None,
) -> Observed:
    """The whole way for a galaxy that comes in slabs: what `observe` makes of all of it at once.

    Raises ValueError for fields and slabs that can be gone through only once.
    """
    if tables.fields and iter(slabs) is slabs:
        raise ValueError(
            f"slabs: expected a list, or something else that begins anew each time it is gone through (the pipeline's "
            f"fields, {', '.join(plan.fields)}, take a pass of their own), got {type(slabs).__name__}"
        )

    def checked(slabs: Iterable[Galaxy]) -> Iterator[Galaxy]:
        for slab in slabs:
            check_lengths_within_plan(tables, slab)
            yield slab

    made: Any = {}
    for one in passes_of(tables):
        view = SlabView(parameters, made)
        placed = place_slabs(slabs, plan.dtype, layout.mesh, with_gas=tables.reads_gas)
        with read_ahead(checked(placed)) as coming:
            programs, (sums,) = sum_slabs(one, plan, layout, tables, (view,), coming)
        made = programs.finish(sums, tables, view, key)
    return made
