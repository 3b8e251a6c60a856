"""Compiled runs: the cubes of all pointings of particles that are in memory, or that come slab by slab."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.sharding import Mesh

from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import ShardedCube
from rubix_like.forward.arms import ArmPipelines
from rubix_like.forward.model import Observed
from rubix_like.forward.pipeline import Pipeline
from rubix_like.forward.streaming import (
    SlabCuts,
    SlabPass,
    SlabPrograms,
    SlabView,
    columns_of,
    compile_programs,
    passes_of,
    place_slabs,
    read_ahead,
    reads_gas,
    sum_slabs,
)
from rubix_like.galaxy.galaxy_parts import GalaxyParts
from rubix_like.galaxy.particles import Galaxy
from rubix_like.runs.particles_on_disk import BYTES_PER_STAR, GalaxyInSlabs, HeldGalaxy, Source
from rubix_like.runs.run_summary import emitters
from rubix_like.runtime.memory import MemoryNeed, device_bytes, memory_need, need_of
from rubix_like.runtime.mesh.mesh import DATA_AXIS, process_count
from rubix_like.runtime.processes.process_group import AbstractProcessGroup
from rubix_like.runtime.processes.shared_memory import least_memory
from rubix_like.runtime.progress import Progress
from rubix_like.runtime.words import counted

BYTES_PER_PLACED_STAR: int = 100
"""What a star takes on the devices, at most: as many columns as there are, in 64 bits."""

_SHARE_FOR_SUMS = 4
"""1 / n of the available memory: for the sums of several pointings, painted in one pass over the particles."""

View = tuple[str, Pipeline]
"""Words for a pointing (empty for the only one), and the pipeline for it."""


class AbstractObserver(ABC):
    """A compiled run of one pipeline."""

    @abstractmethod
    def cubes(self, pipeline: Pipeline, progress: Progress) -> Iterator[tuple[str, Cube | ShardedCube]]:
        """Words for every pointing (none for the only one) and its cube, finished when it is asked for; of a cube that
        is spread over several processes what this one has."""

    def begun(self, pipeline: Pipeline) -> "AbstractObserver":  # noqa: ARG002
        """The same, with the devices at work on the only cube where its particles are in memory."""
        return self

    @abstractmethod
    def need(self, pipeline: Pipeline, mask_and_writing_bytes: int) -> MemoryNeed:
        """The memory that a run takes."""

    @abstractmethod
    def words(self) -> str:
        """How the particles are painted, for `check`."""


def compile_observer(source: Source, pipeline: Pipeline) -> AbstractObserver:
    """Compile a run for where its particles are, placed; all processes of the source's team do."""
    if isinstance(source, GalaxyInSlabs):
        return SlabObserver.build(source, pipeline)
    compiled = pipeline.lower(source.galaxy).compile()
    return WholeObserver(source.galaxy, source.census.n_stars, compiled, source.team.size)


@dataclass(frozen=True)
class WholeObserver(AbstractObserver):
    """A compiled run of particles in memory, `n_stars` of them stars: `galaxy` is placed on the devices, of all
    processes; `first`: what the only cube will be, where it has begun."""

    galaxy: Galaxy
    n_stars: int
    compiled: Any
    n_process: int
    first: Any = None

    def cubes(self, pipeline: Pipeline, progress: Progress) -> Iterator[tuple[str, Cube | ShardedCube]]:
        """One computation per pointing, by all processes."""
        where, observed = f"{counted(pipeline.mesh.size, 'device')}{of_processes(pipeline.mesh)}", self.first
        for which, view in views_of(pipeline):
            painted = counted(self.n_stars, emitters(pipeline.frame.meta))
            with progress.step("run", f"painting {painted} on {where}{which}"):
                observed = self.compiled(*view.arguments(self.galaxy)) if observed is None else observed
                view.check_finite(jax.block_until_ready(observed), lambda: (self.galaxy,))
                cube = view.result(observed)
            observed = None
            yield which, cube

    def begun(self, pipeline: Pipeline) -> "WholeObserver":
        """Handed to the devices, but not waited for; several pointings wait."""
        if len(pipeline.pointings) > 1:
            return self
        ((_, view),) = views_of(pipeline)
        return replace(self, first=self.compiled(*view.arguments(self.galaxy)))

    def need(self, pipeline: Pipeline, mask_and_writing_bytes: int) -> MemoryNeed:
        """The memory that the compiled program needs."""
        return memory_need(self.compiled, pipeline.mesh, mask_and_writing_bytes)

    def words(self) -> str:
        """Words for the summary: the particles are in memory all at once."""
        return "all particles at once" + (
            f", each of {self.n_process} processes its share" if self.n_process > 1 else ""
        )


@dataclass(frozen=True)
class ArmObserver(AbstractObserver):
    """The arm with this `number` (from 0) of those that one compiled program observes together; the first call of
    `observe` observes all of them, later ones return what it found."""

    number: int
    n_stars: int
    compiled: Any
    observe: Callable[[], tuple[Observed, ...]]
    galaxy: Galaxy

    @classmethod
    def of_all(cls, source: HeldGalaxy, arms: ArmPipelines) -> "list[ArmObserver]":
        """Those of all arms, compiled for particles in memory that are placed."""
        compiled = arms.lower(source.galaxy).compile()
        observe = functools.cache(lambda: jax.block_until_ready(compiled(*arms.arguments(source.galaxy))))
        n_stars, galaxy = source.census.n_stars, source.galaxy
        return [cls(number, n_stars, compiled, observe, galaxy) for number in range(len(arms.arms))]

    def cubes(self, pipeline: Pipeline, progress: Progress) -> Iterator[tuple[str, Cube | ShardedCube]]:
        """The only cube: of the first arm after the painting of all, of the others from what was painted then."""
        painted = counted(self.n_stars, emitters(pipeline.frame.meta))
        painting = f"painting {painted} for all arms on {counted(pipeline.mesh.size, 'device')}"
        finishing = f"finishing the cube of {pipeline.frame.meta['instrument']}"
        with progress.step("run", finishing if self.number else painting):
            observed = self.observe()[self.number]
            pipeline.check_finite(observed, lambda: (self.galaxy,))
            cube = pipeline.result(observed)
        yield "", cube

    def need(self, pipeline: Pipeline, mask_and_writing_bytes: int) -> MemoryNeed:
        """The memory that the program of all arms needs."""
        return memory_need(self.compiled, pipeline.mesh, mask_and_writing_bytes)

    def words(self) -> str:
        """Words for the summary: the particles are in memory all at once, and painted once."""
        return "all particles at once, for all arms in one program"


@dataclass(frozen=True)
class SlabObserver(AbstractObserver):
    """A compiled run of particles that are read slab by slab, once for every `n_pass` pointings, and once more before
    that for fields.

    Each of `n_process` processes reads its own share in as many slabs; their sums are added up once, after the last
    slab. `programs` are those of each pass.
    """

    parts: GalaxyParts
    cuts: SlabCuts
    programs: tuple[SlabPrograms, ...]
    n_pass: int
    n_process: int

    @classmethod
    def build(cls, source: GalaxyInSlabs, pipeline: Pipeline) -> "SlabObserver":
        """Compiled for slabs of the size that all will have; raises ValueError where processes have other columns."""
        parts, team, tables = source.parts, source.team, pipeline.tables
        cuts = SlabCuts.of(parts, source.size, with_gas=reads_gas(tables), team=team)
        sample = team.each(lambda: cuts.sample(parts))
        check_columns(sample, team)
        (slab,) = _placed([sample], cuts, pipeline)
        parameters, key = pipeline.chosen()
        programs = compile_programs(pipeline.plan, pipeline.layout, tables, parameters, key, slab)
        largest = max(_result_bytes(own.add) for own in programs) + _field_bytes(programs)
        room = (least_memory(team) or 0) // _SHARE_FOR_SUMS // (largest * len(pipeline.mesh.local_devices))
        return cls(parts, cuts, programs, min(max(1, room), max(1, len(pipeline.pointings))), team.size)

    def cubes(self, pipeline: Pipeline, progress: Progress) -> Iterator[tuple[str, Cube | ShardedCube]]:
        """All passes over the slabs for as many pointings as there is room for, then the cube of each."""
        views = views_of(pipeline)
        for first in range(0, len(views), self.n_pass):
            own = views[first : first + self.n_pass]
            words = own[0][0] if len(own) == 1 else f" (pointings {first + 1} to {first + len(own)})"
            fields, sums = self._all_passes(pipeline, [view for _, view in own], progress, words)
            for which, view in own:
                with progress.step("run", f"finishing the cube{which}"):
                    parameters, key = view.chosen()
                    seen = SlabView(parameters, fields.pop(0))
                    observed = self.programs[-1].finish(sums.pop(0), view.tables, seen, key)
                    view.check_finite(jax.block_until_ready(observed), lambda: self._slabs(pipeline))
                    cube = view.result(observed)
                    del observed
                yield which, cube

    def _all_passes(
        self, pipeline: Pipeline, views: list[Pipeline], progress: Progress, words: str
    ) -> tuple[list[Any], list[Any]]:
        """The fields of some of the views, and the sums that their cubes are made of."""
        chosen = [view.chosen() for view in views]
        seen = [SlabView(parameters, {}) for parameters, _ in chosen]
        *before, painting = zip(passes_of(pipeline.tables), self.programs, strict=True)
        for one, programs in before:
            sums = self._pass(one, programs, pipeline, seen, progress, words)
            seen = [
                view._replace(fields=programs.finish(own, pipeline.tables, view, key))
                for own, view, (_, key) in zip(sums, seen, chosen, strict=True)
            ]
        return [view.fields for view in seen], self._pass(*painting, pipeline, seen, progress, words)

    def _pass(
        self,
        one: SlabPass,
        programs: SlabPrograms,
        pipeline: Pipeline,
        views: list[SlabView],
        progress: Progress,
        words: str,
    ) -> list[Any]:
        """The sums of all slabs for each of the views."""
        n_stars, n_slab = self.parts.n_stars, self.cuts.n_slab
        slabs, mesh = f"{counted(n_slab, 'slab')}{' each' if self.n_process > 1 else ''}", pipeline.mesh
        where = f"{counted(mesh.size, 'device')}{of_processes(mesh)}"
        label = f"{one.words} {counted(n_stars, 'star')} in {slabs} on {where}{words}"

        def tell(number: int) -> None:
            report(f"stars {one.done}", n_stars * number // n_slab, n_stars)

        with progress.step("run", label) as report, read_ahead(self._slabs(pipeline)) as slabs:
            plan, layout, tables = pipeline.plan, pipeline.layout, pipeline.tables
            _, sums = sum_slabs(one, plan, layout, tables, views, slabs, programs, tell)
            return sums

    def _slabs(self, pipeline: Pipeline) -> Iterator[Galaxy]:
        """All slabs, read and placed."""
        return _placed(self.cuts.read(self.parts), self.cuts, pipeline)

    def need(self, pipeline: Pipeline, mask_and_writing_bytes: int) -> MemoryNeed:
        """The pass that takes the most: its sums, one slab on the devices and the next one; then what it makes."""
        device = max(self._pass_bytes(own, pipeline) for own in self.programs)
        result = _result_bytes(self.programs[-1].finish)
        return need_of(device, result, pipeline.mesh, mask_and_writing_bytes, self.cuts.size * BYTES_PER_STAR)

    def _pass_bytes(self, programs: SlabPrograms, pipeline: Pipeline) -> int:
        """What a pass takes of each device, with the fields of the other pointings."""
        add, rounded, finish = programs.add, programs.rounded, programs.finish
        n_others, fields = self.n_pass - 1, (self.n_pass - 1) * _field_bytes(self.programs)
        n_own = pipeline.mesh.shape[DATA_AXIS] // self.n_process
        summing = device_bytes(add) + n_others * _result_bytes(add) + self.cuts.size * BYTES_PER_PLACED_STAR // n_own
        finishing = device_bytes(finish) + n_others * _result_bytes(rounded)
        return max(summing, self.n_pass * device_bytes(rounded), finishing) + fields

    def words(self) -> str:
        """How many slabs, and of what size."""
        share = "" if self.n_process == 1 else f"each of {self.n_process} processes its share, in "
        stars = counted(min(self.cuts.size, self.parts.n_stars), "star")
        if self.cuts.n_slab == 1:
            return f"{share}1 slab of {'at most ' if share else ''}{stars}"
        return f"{share}{self.cuts.n_slab} slabs of at most {stars}, each read while the one before is painted"


def _result_bytes(compiled: Any) -> int:
    return compiled.memory_analysis().output_size_in_bytes


def _field_bytes(programs: Sequence[SlabPrograms]) -> int:
    """What the fields of one pointing take of each device from their pass to the end of its painting."""
    return sum(_result_bytes(own.finish) for own in programs[:-1])


def views_of(pipeline: Pipeline) -> list[View]:
    """The pointings of a run, or its only field."""
    views = [(f" (pointing {pointing.name})", pipeline.at(pointing)) for pointing in pipeline.pointings]
    return views or [("", pipeline)]


def of_processes(mesh: Mesh) -> str:
    """`" of 2 processes"`, or nothing for one."""
    count = process_count(mesh)
    return f" of {count} processes" if count > 1 else ""


def check_columns(sample: Galaxy, team: AbstractProcessGroup) -> None:
    """Raise ValueError where the particles of some process have other columns: all compile the same."""
    found = team.exchange(lambda: columns_of(sample))
    different = [number for number, own in enumerate(found) if own != found[0]]
    if different:
        raise ValueError(
            f"galaxy: expected the columns of process 0 in every process, {found[0]}, got {found[different[0]]} in "
            f"process {different[0]}"
        )


def _placed(slabs: Iterable[Galaxy], cuts: SlabCuts, pipeline: Pipeline) -> Iterator[Galaxy]:
    """Slabs on the mesh, all of the same size."""
    return place_slabs(slabs, pipeline.plan.dtype, pipeline.mesh, with_gas=cuts.gas is not None, size=cuts.size)
