"""Several arms of a spectrograph, painted together by one program."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
from jax import lax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import PRNGKeyArray

from rubix_like.config import RunConfig
from rubix_like.cube.cube import Cube
from rubix_like.cube.meta import SourceCounters
from rubix_like.engine.basis import BasisPainter, may_paint_together, paint_together
from rubix_like.forward.census import Census
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
from rubix_like.forward.pipeline import Pipeline
from rubix_like.forward.resolved import Resolved
from rubix_like.forward.tables import Plan, Tables
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo
from rubix_like.galaxy.placing import shard
from rubix_like.runtime.compiled_programs import held
from rubix_like.runtime.mesh.mesh import DATA_AXIS, DeviceLayout, as_dtype, replicated

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
        Partial(tuple(light for light, _ in own), tuple(counters for _, counters in own), ())
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


class ArmPipelines(eqx.Module):
    """A function from a galaxy to the cubes of all arms.

    All that the particles pass before they are painted is the arms' in common. Of the sources that are painted
    `together` the particles are gone through once, onto the basis spectra of all arms; those of other sources once for
    each arm. Each arm's detector, PSF, noise and cube are its own.
    """

    arms: tuple[Pipeline, ...]
    together: tuple[bool, ...] = eqx.field(static=True)

    @classmethod
    def plan(
        cls,
        configs: Sequence[RunConfig],
        resolved: Sequence[Resolved],
        census: Sequence[Census],
        info: GalaxyInfo | None = None,
        mesh: Mesh | None = None,
    ) -> "ArmPipelines | None":
        """The pipelines of arms, planned for the particles of their censuses; None where one program cannot observe
        them: see `of`.

        The velocity nodes of each source are as close in all arms as in the one that needs the closest, so that they
        are the same.
        """

        def planned(config: RunConfig, objects: Resolved, taken: Census) -> Pipeline:
            return Pipeline.from_config(config, mesh=mesh, info=info, census=taken, resolved=objects)

        pipelines = list(map(planned, configs, resolved, census))
        names, steps = pipelines[0].plan.sources, [_velocity_steps(pipeline) for pipeline in pipelines]
        finest = {name: min(arm[name] for arm in steps) for name in names if all(name in arm for arm in steps)}
        for number, arm in enumerate(steps):
            if any(arm[name] > step for name, step in finest.items()):
                closer = replace(resolved[number], velocity_steps=finest)
                pipelines[number] = planned(configs[number], closer, census[number])
        return cls.of(pipelines)

    @classmethod
    def of(cls, pipelines: Sequence[Pipeline]) -> "ArmPipelines | None":
        """These pipelines; None where their particles are not seen alike (on other grids, because of another reach of
        the PSF, or by other parameters) or no source's are painted together (all by method `direct`, or behind dust of
        their own), and of pipelines with maps or several pointings."""
        first = pipelines[0]
        if any(own.frame.products is not None or own.pointings for own in pipelines):
            return None
        common = [_in_common(own) for own in pipelines]
        if any(own.mesh != first.mesh for own in pipelines) or not all(
            eqx.tree_equal(common[0], own) for own in common
        ):
            return None
        sources = zip(*(own.tables.paint for own in pipelines), strict=True)
        together = tuple(may_paint_together([one.painter for one in own]) for own in sources)
        return cls(tuple(pipelines), together) if any(together) else None

    def __call__(self, galaxy: Galaxy) -> tuple[Cube, ...]:
        """The cube of each arm; the same as those of the pipelines to rounding. Raises as a call of them."""
        arguments = self.arguments(galaxy)
        observed = self.compiled(*arguments)(*arguments)
        return tuple(arm.to_cube(own) for arm, own in zip(self.arms, observed, strict=True))

    def arguments(self, galaxy: Galaxy) -> tuple[Any, ...]:
        """What the compiled function takes: tables, parameters, the galaxy placed on the mesh, noise keys."""
        first = self.arms[0]
        chosen, keys = zip(*(own.chosen() for own in self.arms), strict=True)
        placed = shard(as_dtype(galaxy, first.plan.dtype), first.mesh)
        return tuple(own.tables for own in self.arms), chosen, placed, keys

    def compiled(self, tables: Any, parameters: Any, placed: Galaxy, keys: Any) -> Any:  # noqa: ARG002
        """The compiled function for such `arguments`."""
        plans, layouts = tuple(own.plan for own in self.arms), tuple(own.layout for own in self.arms)
        return compiled_arms(plans, layouts, self.together, tuple(Signature.of(own, placed) for own in tables))

    def lower(self, galaxy: Galaxy) -> Any:
        """The lowered computation for a galaxy of this size."""
        arguments = self.arguments(galaxy)
        return self.compiled(*arguments).lower(*arguments)


def _velocity_steps(pipeline: Pipeline) -> dict[str, float]:
    """Distance between the velocity nodes (km/s) of each source that method `basis` paints."""
    sources = zip(pipeline.plan.sources, pipeline.tables.paint, strict=True)
    return {
        name: float(source.painter.nodes.step) for name, source in sources if isinstance(source.painter, BasisPainter)
    }


def _in_common(pipeline: Pipeline) -> Any:
    """The parts of a pipeline that must be equal in all arms: all that particles pass before a painter sees them."""
    tables = pipeline.tables
    sources = tuple(eqx.tree_at(lambda own: own.painter, source, None) for source in tables.paint)
    common = replace(tables, paint=sources, cube=())
    plan = replace(pipeline.plan, method="", n_wave=0)
    return common, pipeline.parameters, plan
