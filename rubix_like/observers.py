"""Compiled runs: the cubes of all pointings of particles that are in memory, or that come slab by slab."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from rubix_like.cube import Cube
from rubix_like.galaxy import Galaxy
from rubix_like.memory import MemoryNeed, available_memory, format_bytes, host_need, memory_need
from rubix_like.pipeline import Pipeline
from rubix_like.progress import Progress
from rubix_like.slabs import SlabCuts, paints_gas, place_slabs, read_ahead
from rubix_like.source import BYTES_PER_STAR, GalaxyInSlabs, Source, WholeGalaxy
from rubix_like.streaming import SlabPrograms, compile_programs, paint_slabs

_SHARE_FOR_SUMS = 4
"""1 / n of the available memory: for the sums of several pointings, painted in one pass over the particles."""

View = tuple[str, Pipeline]
"""Words for a pointing (empty for the only one), and the pipeline for it."""


class AbstractObserver(ABC):
    """A compiled run of one pipeline."""

    @abstractmethod
    def cubes(self, pipeline: Pipeline, progress: Progress) -> Iterator[Cube]:
        """The cube of every pointing, or the only one, each finished when it is asked for."""

    @abstractmethod
    def need(self, pipeline: Pipeline, mask_and_file_bytes: int) -> MemoryNeed:
        """The memory that a run takes."""

    @abstractmethod
    def words(self) -> str:
        """How the particles are painted, for `check`."""


def compile_observer(source: Source, pipeline: Pipeline) -> AbstractObserver:
    """Compile a run for where its particles are."""
    if isinstance(source, WholeGalaxy):
        return WholeObserver(source.galaxy, pipeline.lower(source.galaxy).compile())
    return SlabObserver.build(source, pipeline)


@dataclass(frozen=True)
class WholeObserver(AbstractObserver):
    """Of particles in memory."""

    galaxy: Galaxy
    compiled: Any

    def cubes(self, pipeline: Pipeline, progress: Progress) -> Iterator[Cube]:
        """One computation per pointing."""
        galaxy = pipeline.arguments(self.galaxy)[2]
        n_stars, n_device = len(self.galaxy.stars.initial_mass), pipeline.mesh.size
        for which, view in _views(pipeline):
            with progress.step("run", f"painting {n_stars} stars on {n_device} device(s){which}"):
                cube = view.to_cube(*jax.block_until_ready(self.compiled(*view.arguments(galaxy))))
            yield cube

    def need(self, pipeline: Pipeline, mask_and_file_bytes: int) -> MemoryNeed:
        """As compiled."""
        return memory_need(self.compiled, pipeline.mesh, mask_and_file_bytes)

    def words(self) -> str:
        """All at once."""
        return "all particles in memory"


@dataclass(frozen=True)
class SlabObserver(AbstractObserver):
    """Of particles that are read slab by slab, once for every `n_pass` pointings."""

    source: GalaxyInSlabs
    cuts: SlabCuts
    programs: SlabPrograms
    n_pass: int

    @classmethod
    def build(cls, source: GalaxyInSlabs, pipeline: Pipeline) -> "SlabObserver":
        """Compile for slabs of the size that all will have."""
        cuts = SlabCuts.of(source.parts, source.size, with_gas=paints_gas(pipeline.tables.paint))
        _, parameters, _, key = pipeline.arguments(...)

    def cubes(self, pipeline: Pipeline, progress: Progress) -> Iterator[Cube]:
        """A pass over all slabs for as many pointings as there is room for, then their cubes."""

