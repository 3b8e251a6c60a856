"""Compiled programs of the forward model, for particles that are there all at once and for those in slabs."""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rubix_like.forward.model import (
    Group,
    Observed,
    ParticlePass,
    PassInputs,
    Sums,
    SumsForm,
    add_slab,
    finish_sums,
    input_shardings,
    observe,
    observe_together,
    passes_of,
)
from rubix_like.forward.planned_ranges import check_lengths_within_plan
from rubix_like.forward.tables import Plan, Tables
from rubix_like.galaxy.galaxy_parts import place_slabs, read_ahead
from rubix_like.galaxy.particles import Galaxy
from rubix_like.runtime.compiled_programs import held
from rubix_like.runtime.mesh.mesh import DeviceLayout


class Signature(NamedTuple):
    """Structure and shapes of tables and a placed galaxy: all that a program is compiled for beside its group."""

    structure: Any
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, tables: Sequence[Tables], galaxy: Galaxy) -> "Signature":
        """The signature of these tables, one for each observation, and particles."""
        leaves, structure = jax.tree.flatten((tuple(tables), galaxy))
        return cls(structure, tuple(leaf.shape for leaf in leaves))

    def shardings(self, group: Group) -> tuple[Any, ...]:
        """The spec trees of tables, parameters, particles and keys."""
        arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in self.shapes]
        return input_shardings(group, *jax.tree.unflatten(self.structure, arrays))


@held
def compiled_observe(plan: Plan, layout: DeviceLayout, signature: Signature) -> Callable[..., Any]:
    """`observe` under one jit: tables and particles lie as the spec trees say, all else is whole on every device.

    Held, so that pipelines with the same plan on the same mesh share what was compiled.
    """
    (tables,), *others = signature.shardings(Group.of(plan, layout))
    return jax.jit(functools.partial(observe, plan, layout), in_shardings=(tables, *others))


@held
def compiled_together(group: Group, signature: Signature) -> Callable[..., Any]:
    """`observe_together` under one jit, held as `compiled_observe`."""
    return jax.jit(functools.partial(observe_together, group), in_shardings=signature.shardings(group))


@dataclass(frozen=True)
class SlabPrograms:
    """The compiled functions of a pass over slabs.

    `start()`: sums at zero; `add(sums, inputs, slab)`: with one more slab, in the place of the sums before;
    `rounded(sums)`: from 64 bits to the run's precision; `finish(sums, inputs)`: the fields or the cubes.
    All but the last are called within `wide`.
    """

    start: Any
    add: Any
    rounded: Any
    finish: Any


@held
def slab_programs(pass_: ParticlePass, group: Group, form: SumsForm, signature: Signature) -> SlabPrograms:
    """The functions under jit: tables and slabs lie as the spec trees say, sums device by device, all else whole.

    The sums are kept in 64 bits, so that thousands of slabs lose nothing. Held as `compiled_observe`.
    """
    split = group.layouts[0].shardings(form.specs)
    tables, whole, particles, _ = signature.shardings(group)
    inputs = PassInputs(tables, whole, whole, whole)

    def rounded(sums: Sums) -> Sums:
        return tuple(leaf.astype(group.plans[0].dtype) for leaf in sums)

    return SlabPrograms(
        start=jax.jit(functools.partial(form.empty, group.mesh), out_shardings=split),
        add=jax.jit(
            functools.partial(add_slab, pass_, group, form),
            in_shardings=(split, inputs, particles),
            out_shardings=split,
            donate_argnums=0,
        ),
        rounded=jax.jit(rounded, in_shardings=(split,), out_shardings=split),
        finish=jax.jit(
            functools.partial(finish_sums, pass_, group, form),
            in_shardings=(split, inputs),
            out_shardings=pass_.shardings(group),
        ),
    )


def wide() -> AbstractContextManager[Any]:
    """Context in which sums in 64 bits may pass through JAX, whatever the run's precision."""
    return jax.enable_x64(True)


def programs_for(pass_: ParticlePass, group: Group, inputs: PassInputs, slab: Galaxy) -> SlabPrograms:
    """The programs for placed slabs with the columns of this one."""
    return slab_programs(pass_, group, SumsForm.of(pass_, group, inputs, slab), Signature.of(inputs.tables, slab))


def compile_programs(group: Group, inputs: PassInputs, slab: Galaxy) -> tuple[SlabPrograms, ...]:
    """The programs of each pass for slabs like this one, compiled."""
    compiled = []
    for pass_ in passes_of(inputs.tables[0]):
        programs = programs_for(pass_, group, inputs, slab)
        with wide():
            start = programs.start.lower().compile()
            sums = jax.eval_shape(programs.start)
            add = programs.add.lower(sums, inputs, slab).compile()
            rounded = programs.rounded.lower(sums).compile()
            sums = jax.eval_shape(programs.rounded, sums)
        finish = programs.finish.lower(sums, inputs)
        compiled.append(SlabPrograms(start, add, rounded, finish.compile()))
        inputs = inputs._replace(fields=finish.out_info)
    return tuple(compiled)


def sum_slabs(
    pass_: ParticlePass,
    group: Group,
    views: Sequence[PassInputs],
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
        programs = programs or programs_for(pass_, group, views[0], slab)
        with wide():
            sums = sums or [programs.start() for _ in views]
            sums = [programs.add(total, inputs, slab) for total, inputs in zip(sums, views, strict=True)]
        jax.block_until_ready(sums)
        if tell is not None:
            tell(number)
    if programs is None:
        raise ValueError("slabs: expected at least one, got none")
    with wide():
        return programs, [programs.rounded(total) for total in sums]


def observe_slabs(group: Group, inputs: PassInputs, slabs: Iterable[Galaxy]) -> tuple[Observed, ...]:
    """The whole way for a galaxy that comes in slabs: what `observe_together` makes of all of it at once.

    Raises ValueError for fields and slabs that can be gone through only once.
    """
    plan, tables = group.plans[0], inputs.tables[0]
    if tables.fields and iter(slabs) is slabs:
        raise ValueError(
            f"slabs: expected a list, or something else that begins anew each time it is gone through (the pipeline's "
            f"fields, {', '.join(plan.fields)}, take a pass of their own), got {type(slabs).__name__}"
        )

    def checked(slabs: Iterable[Galaxy]) -> Iterator[Galaxy]:
        for slab in slabs:
            check_lengths_within_plan(tables, slab)
            yield slab

    result: Any = inputs.fields
    for pass_ in passes_of(tables):
        inputs = inputs._replace(fields=result)
        placed = place_slabs(slabs, plan.dtype, group.mesh, with_gas=tables.reads_gas)
        with read_ahead(checked(placed)) as coming:
            programs, (sums,) = sum_slabs(pass_, group, [inputs], coming)
        result = programs.finish(sums, inputs)
    return result
