"""Compiled programs of a run, each for observations that are painted together, of particles in memory or in slabs."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import jax
from jax.sharding import Mesh

from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import ShardedCube
from rubix_like.forward.model import Observed, ParticlePass, PassInputs, Sums, passes_of
from rubix_like.forward.pipeline import ONLY, Pipeline, PipelineGroup, view_of, views_of
from rubix_like.forward.programs import SlabPrograms, compile_programs, sum_slabs
from rubix_like.galaxy.galaxy_parts import GalaxyParts, SlabCuts, columns_of, place_slabs, read_ahead
from rubix_like.galaxy.particles import Galaxy
from rubix_like.runs.particles_on_disk import BYTES_PER_STAR, GalaxyInSlabs, Source
from rubix_like.runs.run_summary import emitters
from rubix_like.runtime.memory import MemoryNeed, device_bytes, memory_need, need_of
from rubix_like.runtime.mesh.mesh import DATA_AXIS, process_count
from rubix_like.runtime.processes.process_group import AbstractProcessGroup, least_memory
from rubix_like.runtime.progress import Progress
from rubix_like.runtime.words import counted

BYTES_PER_PLACED_STAR: int = 100
"""What a star takes on the devices, at most: as many columns as there are, in 64 bits."""

_SHARE_FOR_SUMS = 4
"""1 / n of the available memory: for the sums of several pointings, painted in one pass over the particles."""


@dataclass
class AbstractProgram(ABC):
    """Compiled programs of the `pipelines` of observations that are painted together, by each of `n_process` processes;
    they serve other pipelines with the same plans, too (`replace`, after which nothing waits).

    `waiting`: what they made of the last `pointing` (from 0), by the number of the observation, until it is asked for.
    """

    pipelines: tuple[Pipeline, ...]
    n_process: int
    pointing: int = field(init=False, default=-1)
    waiting: dict[int, Observed] = field(init=False, default_factory=dict)

    def begun(self) -> "AbstractProgram":
        """A copy whose devices have begun to paint; itself for slabs and several pointings."""
        return self

    @contextmanager
    def observing(self, number: int, pointing: int, progress: Progress) -> Iterator[Observed]:
        """The outcome of one observation at a pointing, in a step that is shown; the first one has all painted."""
        which = self.words_of(pointing)
        of_group = f" of {self.pipelines[number].name}" if len(self.pipelines) > 1 else ""
        label = f"finishing the cube{of_group}{which}"
        is_painted = self.pointing == pointing and number in self.waiting
        if not is_painted:
            label = self.painting(pointing, progress) or label
        with progress.step("run", label):
            if not is_painted:
                self.pointing, self.waiting = pointing, dict(enumerate(self.observed(pointing)))
            yield self.waiting.pop(number)

    @abstractmethod
    def painting(self, pointing: int, progress: Progress) -> str:
        """Do what has separate steps before `observed`; words for the step of `observed`, empty where it finishes the
        cubes."""

    @abstractmethod
    def observed(self, pointing: int) -> Sequence[Observed]:
        """The outcome of each observation at a pointing."""

    @abstractmethod
    def particles(self) -> Iterable[Galaxy]:
        """The particles on the devices, whole or in slabs."""

    @abstractmethod
    def need(self, mask_and_writing_bytes: int) -> MemoryNeed:
        """The memory that a run takes."""

    @abstractmethod
    def words(self) -> str:
        """How the particles are painted, for `check`."""

    @property
    def _mesh(self) -> Mesh:
        return self.pipelines[0].mesh

    @property
    def _for_whom(self) -> str:
        """`" for 2 observations"`, `" for muse"`, or nothing for one without a name."""
        first, *others = self.pipelines
        if others:
            return f" for {len(self.pipelines)} observations"
        return "" if first.name == ONLY else f" for {first.name}"

    @property
    def _in_one_program(self) -> str:
        return f",{self._for_whom} in one program" if len(self.pipelines) > 1 else ""

    def words_of(self, pointing: int) -> str:
        """Words for a pointing, empty for the only field."""
        pointings = self.pipelines[0].pointings
        return f" (pointing {pointings[pointing].name})" if pointings else ""


@dataclass(frozen=True)
class Observer:
    """The observation with this `number` (from 0) of those of a program."""

    program: AbstractProgram
    number: int = 0

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline of the observation."""
        return self.program.pipelines[self.number]

    def cubes(self, progress: Progress) -> Iterator[tuple[str, Cube | ShardedCube]]:
        """Words for every pointing (none for the only one) and its cube, finished when it is asked for; of a cube that
        is spread over several processes what this one has."""
        for pointing, (view,) in enumerate(views_of([self.pipeline])):
            with self.program.observing(self.number, pointing, progress) as observed:
                view.check_finite(jax.block_until_ready(observed), self.program.particles)
                cube = view.result(observed)
                del observed
            yield self.program.words_of(pointing), cube

    def begun(self) -> "Observer":
        """A copy whose devices have begun to paint; itself for slabs and several pointings."""
        program = self.program.begun()
        return self if program is self.program else replace(self, program=program)


def compile_program(source: Source, pipelines: Sequence[Pipeline]) -> AbstractProgram:
    """Compile for where the particles are, placed; all processes of the source's team do."""
    if isinstance(source, GalaxyInSlabs):
        return SlabProgram.build(source, pipelines)
    compiled = PipelineGroup(pipelines).lower(source.galaxy).compile()
    return HeldProgram(tuple(pipelines), source.team.size, source.galaxy, source.census.n_stars, compiled)


@dataclass
class HeldProgram(AbstractProgram):
    """The program of particles in memory, `n_stars` of them stars: `galaxy` is placed on the devices, of all
    processes."""

    galaxy: Galaxy
    n_stars: int
    compiled: Any

    def begun(self) -> "HeldProgram":
        """Handed to the devices, but not waited for; several pointings wait."""
        if len(self.pipelines[0].pointings) > 1:
            return self
        begun = replace(self)
        begun.pointing, begun.waiting = 0, dict(enumerate(self.observed(0)))
        return begun

    def painting(self, pointing: int, progress: Progress) -> str:  # noqa: ARG002
        """Painting is the step itself."""
        painted = counted(self.n_stars, emitters(self.pipelines[0].frame.meta))
        where = f"{counted(self._mesh.size, 'device')}{of_processes(self._mesh)}"
        return f"painting {painted}{self._for_whom} on {where}{self.words_of(pointing)}"

    def observed(self, pointing: int) -> Sequence[Observed]:
        """One computation, by all processes."""
        return PipelineGroup(view_of(self.pipelines, pointing)).observed(self.galaxy, self.compiled)

    def particles(self) -> Iterable[Galaxy]:
        """All of them."""
        return (self.galaxy,)

    def need(self, mask_and_writing_bytes: int) -> MemoryNeed:
        """The memory that the compiled program needs."""
        return memory_need(self.compiled, self._mesh, mask_and_writing_bytes)

    def words(self) -> str:
        """Words for the summary: the particles are in memory all at once."""
        share = f", each of {self.n_process} processes its share" if self.n_process > 1 else ""
        return f"all particles at once{share}{self._in_one_program}"


@dataclass
class SlabProgram(AbstractProgram):
    """The programs of particles that are read slab by slab, once for every `n_pass` pointings, and once more before
    that for fields.

    Each process reads its share in as many slabs; their sums are added up once, after the last slab. `programs` are
    those of each pass; `summed`: what the cubes of a pointing are made of, by pointing.
    """

    parts: GalaxyParts
    cuts: SlabCuts
    programs: tuple[SlabPrograms, ...]
    n_pass: int
    summed: dict[int, tuple[Sums, PassInputs]] = field(init=False, default_factory=dict)

    @classmethod
    def build(cls, source: GalaxyInSlabs, pipelines: Sequence[Pipeline]) -> "SlabProgram":
        """Compiled for slabs of the size that all will have; raises ValueError where processes have other columns."""
        parts, team, first = source.parts, source.team, pipelines[0]
        cuts = SlabCuts.of(parts, source.size, with_gas=first.tables.reads_gas, team=team)
        sample = team.each(lambda: cuts.sample(parts))
        check_columns(sample, team)
        (slab,) = _placed([sample], cuts, first)
        together = PipelineGroup(pipelines)
        programs = compile_programs(together.group, together.inputs(), slab)
        largest = max(_result_bytes(program.add) for program in programs) + _field_bytes(programs)
        room = (least_memory(team) or 0) // _SHARE_FOR_SUMS // (largest * len(first.mesh.local_devices))
        n_pass = min(max(1, room), max(1, len(first.pointings)))
        return cls(tuple(pipelines), team.size, parts, cuts, programs, n_pass)

    def painting(self, pointing: int, progress: Progress) -> str:
        """All passes over the slabs for as many pointings as there is room for."""
        if pointing not in self.summed:
            last = min(pointing + self.n_pass, max(1, len(self.pipelines[0].pointings)))
            views = [PipelineGroup(view_of(self.pipelines, number)) for number in range(pointing, last)]
            words = f" (pointings {pointing + 1} to {last})" if len(views) > 1 else self.words_of(pointing)
            self.summed = dict(enumerate(self._all_passes(views, progress, words), start=pointing))
        return ""

    def observed(self, pointing: int) -> Sequence[Observed]:
        """The sums of all slabs and processes, finished."""
        return self.programs[-1].finish(*self.summed.pop(pointing))

    def _all_passes(
        self, views: Sequence[PipelineGroup], progress: Progress, words: str
    ) -> Iterator[tuple[Sums, PassInputs]]:
        """The sums that the cubes of each view are made of, and what the last pass reads, with the view's fields."""
        inputs = [view.inputs() for view in views]
        *before, painting = zip(passes_of(inputs[0].tables[0]), self.programs, strict=True)
        for pass_, programs in before:
            sums = self._pass(pass_, programs, inputs, progress, words)
            inputs = [
                view._replace(fields=programs.finish(total, view)) for total, view in zip(sums, inputs, strict=True)
            ]
        return zip(self._pass(*painting, inputs, progress, words), inputs, strict=True)

    def _pass(
        self, pass_: ParticlePass, programs: SlabPrograms, views: list[PassInputs], progress: Progress, words: str
    ) -> list[Sums]:
        n_stars, n_slab, mesh = self.parts.n_stars, self.cuts.n_slab, self._mesh
        slabs = f"{counted(n_slab, 'slab')}{' each' if self.n_process > 1 else ''}"
        where = f"{counted(mesh.size, 'device')}{of_processes(mesh)}"
        label = f"{pass_.words} {counted(n_stars, 'star')}{self._for_whom} in {slabs} on {where}{words}"

        def tell(number: int) -> None:
            report(f"stars {pass_.done}", n_stars * number // n_slab, n_stars)

        with progress.step("run", label) as report, read_ahead(iter(self.particles())) as placed:
            return sum_slabs(pass_, PipelineGroup(self.pipelines).group, views, placed, programs, tell)[1]

    def particles(self) -> Iterable[Galaxy]:
        """All slabs, read and placed."""
        return _placed(self.cuts.read(self.parts), self.cuts, self.pipelines[0])

    def need(self, mask_and_writing_bytes: int) -> MemoryNeed:
        """The pass that takes the most: its sums, one slab on the devices and the next one; then what it makes."""
        device = max(map(self._pass_bytes, self.programs))
        result = _result_bytes(self.programs[-1].finish)
        return need_of(device, result, self._mesh, mask_and_writing_bytes, self.cuts.size * BYTES_PER_STAR)

    def _pass_bytes(self, programs: SlabPrograms) -> int:
        """The bytes that a pass takes of each device, with the fields of the other pointings."""
        add, rounded, finish = programs.add, programs.rounded, programs.finish
        n_others, fields = self.n_pass - 1, (self.n_pass - 1) * _field_bytes(self.programs)
        n_here = self._mesh.shape[DATA_AXIS] // self.n_process
        summing = device_bytes(add) + n_others * _result_bytes(add) + self.cuts.size * BYTES_PER_PLACED_STAR // n_here
        finishing = device_bytes(finish) + n_others * _result_bytes(rounded)
        return max(summing, self.n_pass * device_bytes(rounded), finishing) + fields

    def words(self) -> str:
        """How many slabs, and of what size."""
        share = "" if self.n_process == 1 else f"each of {self.n_process} processes its share, in "
        stars = counted(min(self.cuts.size, self.parts.n_stars), "star")
        if self.cuts.n_slab == 1:
            return f"{share}1 slab of {'at most ' if share else ''}{stars}{self._in_one_program}"
        slabs = f"{self.cuts.n_slab} slabs of at most {stars}, each read while the one before is painted"
        return f"{share}{slabs}{self._in_one_program}"


def _result_bytes(compiled: Any) -> int:
    return compiled.memory_analysis().output_size_in_bytes


def _field_bytes(programs: Sequence[SlabPrograms]) -> int:
    """The bytes that the fields of one pointing take of each device from their pass to the end of its painting."""
    return sum(_result_bytes(program.finish) for program in programs[:-1])


def of_processes(mesh: Mesh) -> str:
    """`" of 2 processes"`, or nothing for one."""
    count = process_count(mesh)
    return f" of {count} processes" if count > 1 else ""


def check_columns(sample: Galaxy, team: AbstractProcessGroup) -> None:
    """Raise ValueError where the particles of some process have other columns: all compile the same."""
    found = team.exchange(lambda: columns_of(sample))
    for number, columns in enumerate(found):
        if columns != found[0]:
            raise ValueError(
                f"galaxy: expected the columns of process 0 in every process, {found[0]}, got {columns} in process "
                f"{number}"
            )


def _placed(slabs: Iterable[Galaxy], cuts: SlabCuts, pipeline: Pipeline) -> Iterator[Galaxy]:
    return place_slabs(slabs, pipeline.plan.dtype, pipeline.mesh, with_gas=cuts.gas is not None, size=cuts.size)
