"""Several arms of a spectrograph, painted together by one program."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
from jax.sharding import Mesh

from rubix_like.config import RunConfig
from rubix_like.cube.cube import Cube
from rubix_like.engine.basis import BasisPainter, may_paint_together
from rubix_like.forward.census import Census
from rubix_like.forward.model import Group
from rubix_like.forward.pipeline import Pipeline
from rubix_like.forward.programs import Signature, compiled_together
from rubix_like.forward.resolved import Resolved
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo
from rubix_like.galaxy.placing import shard
from rubix_like.runtime.mesh.mesh import as_dtype


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
        their own), and of pipelines with several pointings."""
        first = pipelines[0]
        if any(own.pointings for own in pipelines):
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
        group = Group(tuple(own.plan for own in self.arms), tuple(own.layout for own in self.arms), self.together)
        return compiled_together(group, Signature.of(tables, placed))

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
    common = replace(tables, paint=sources, cube=(), products=())
    plan = replace(pipeline.plan, method="", n_wave=0)
    return common, pipeline.parameters, plan
