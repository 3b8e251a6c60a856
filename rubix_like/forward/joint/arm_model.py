"""The forward model of several arms of a spectrograph under one jit: their particles are painted together."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.sharding import PartitionSpec
from jaxtyping import PRNGKeyArray

from rubix_like.cube.meta import SourceCounters
from rubix_like.engine.basis import BasisPainter, paint_together
from rubix_like.forward.model import (
    Fields,
    Observed,
    Partial,
    Particles,
    Signature,
    add_up,
    finish,
    finish_fields,
    gathered,
    look_of,
    observed_shardings,
    observed_specs,
    shining_of,
    sum_fields,
    table_specs,
)
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.tables import Plan, Tables
from rubix_like.galaxy.particles import Galaxy
from rubix_like.runtime.compiled_programs import held
from rubix_like.runtime.mesh.device_layout import DeviceLayout
from rubix_like.runtime.mesh.mesh import DATA_AXIS, replicated

_Painted = list[tuple[Any, SourceCounters]]
"""Of each arm what it paints of a source's particles, and their counters."""


def _paint_source(
    plan: Plan,
    tables: Sequence[Tables],
    parameters: Parameters,
    fields: Fields,
    number: int,
    particles: Any,
    *,
    together: bool,
) -> _Painted:
    """One source for all arms: its particles gone through once, or once for each arm."""
    sources = [own.paint[number] for own in tables]
    painters = [source.painter_for(parameters) for source in sources]
    looks = [look_of(tables[0], parameters, fields, *own) for own in zip(sources, painters, strict=True)]
    shining, grid = shining_of(sources[0], particles), tables[0].grid
    if together:
        alike = [own for own in painters if isinstance(own, BasisPainter)]
        return list(paint_together(alike, looks[0], shining, grid, plan.chunk))
    return [painter.paint(look, shining, grid, plan.chunk) for painter, look in zip(painters, looks, strict=True)]


def paint_arms(
    plan: Plan,
    together: Sequence[bool],
    tables: Sequence[Tables],
    parameters: Parameters,
    fields: Fields,
    particles: tuple[Any, ...],
) -> list[Partial]:
    """Each arm's sums over the particles at hand; `together`: which sources' particles are gone through once."""
    sums = [
        _paint_source(plan, tables, parameters, fields, number, own, together=together[number])
        for number, own in enumerate(particles)
    ]
    return [
        Partial(tuple(light for light, _ in own), tuple(counters for _, counters in own), None, None, (), None)
        for own in zip(*sums, strict=True)
    ]


def _observe_share(
    plans: Sequence[Plan],
    layouts: Sequence[DeviceLayout],
    together: Sequence[bool],
    tables: Sequence[Tables],
    parameters: Sequence[Parameters],
    particles: Particles,
    keys: Sequence[Any],
) -> tuple[Observed, ...]:
    """What every device does with its share of the particles: as `observe_share`, with the fields and the painting of
    all arms in common."""
    plan, first, own = plans[0], tables[0], parameters[0]
    fields = finish_fields(plan, first, own, sum_fields(plan, first, own, particles.fields))
    partials = paint_arms(plan, together, tables, own, fields, particles.sources)
    arms = zip(plans, layouts, tables, parameters, partials, keys, strict=True)
    return tuple(
        finish(plan, layout, arm, numbers, fields, add_up(layout, arm, partial), key)
        for plan, layout, arm, numbers, partial, key in arms
    )


def observe_arms(
    plans: Sequence[Plan],
    layouts: Sequence[DeviceLayout],
    together: Sequence[bool],
    tables: Sequence[Tables],
    parameters: Sequence[Parameters],
    galaxy: Galaxy,
    keys: Sequence[PRNGKeyArray | None],
) -> tuple[Observed, ...]:
    """What `observe` makes for each of the arms, whose layouts are on one mesh."""
    whole, split = PartitionSpec(), PartitionSpec(DATA_AXIS)
    observed = jax.shard_map(
        functools.partial(_observe_share, plans, layouts, together),
        mesh=layouts[0].mesh,
        in_specs=(tuple(map(table_specs, tables, layouts)), whole, split, whole),
        out_specs=tuple(map(observed_specs, layouts)),
    )(tables, parameters, Particles.of(tables[0], galaxy), keys)
    made = tuple(map(gathered, plans, layouts, observed))
    return lax.with_sharding_constraint(made, tuple(map(observed_shardings, layouts)))


@held
def compiled_arms(
    plans: tuple[Plan, ...],
    layouts: tuple[DeviceLayout, ...],
    together: tuple[bool, ...],
    signatures: tuple[Signature, ...],
) -> Callable[..., Any]:
    """`observe_arms` under one jit, held as `compiled_observe`."""
    whole = replicated(layouts[0].mesh)
    shardings = [own.shardings(layout) for own, layout in zip(signatures, layouts, strict=True)]
    tables, particles = tuple(arm for arm, _ in shardings), shardings[0][1]
    observe = functools.partial(observe_arms, plans, layouts, together)
    return jax.jit(observe, in_shardings=(tables, whole, particles, whole))
