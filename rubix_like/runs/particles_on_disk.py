"""The place of a run's particles: all in memory, or in the file, to be read slab by slab; of a team, each one's share.

All processes of a team must want the same, and be connected.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from rubix_like.arguments import named_arguments
from rubix_like.config import RunConfig
from rubix_like.config.loading import check_one_observation
from rubix_like.errors import ConfigError
from rubix_like.forward.census import Census, CensusRules, count_particles, take_census
from rubix_like.forward.pipeline import Pipeline
from rubix_like.forward.planning import mesh_of
from rubix_like.forward.resolved import Resolved, resolve
from rubix_like.galaxy.galaxy_parts import GalaxyParts, SlabCuts, read_ahead
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo
from rubix_like.galaxy.placing import shard_local
from rubix_like.readers.galaxy_loading import has_more_stars, load, needs_all_stars, open_galaxy
from rubix_like.runs.run_files import output_files
from rubix_like.runtime.mesh.mesh import put, replicated, rows_of_process
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup, least_memory
from rubix_like.runtime.progress import Progress, Report

BYTES_PER_STAR: int = 400
"""What a star takes on the host while it is read and placed: at most 16 columns of 8 bytes, three times over."""

LARGEST_SLAB: int = 1 << 22
"""Stars in a slab beyond which nothing gets faster."""

_SMALLEST_SLAB = 1 << 16
_MOST_AT_ONCE, _MOST_IN_SLABS = 2, 8
"""Shares of the available memory, 1 / n: for particles that are held all at once, and for two slabs."""


@dataclass(frozen=True)
class HeldGalaxy:
    """Particles in memory: all, or of a team those of this process's share. `census` is that of all."""

    galaxy: Galaxy
    info: GalaxyInfo
    census: Census
    team: AbstractProcessGroup

    def placed(self, pipeline: Pipeline) -> "HeldGalaxy":
        """The particles on the pipeline's devices; of a team, those of each process on its devices."""
        if self.team.size == 1:
            return replace(self, galaxy=pipeline.arguments(self.galaxy)[2])
        share = jax.tree.map(lambda leaf: np.asarray(leaf, pipeline.plan.dtype), self.galaxy)
        return replace(self, galaxy=shard_local(share, pipeline.mesh, self.team))

    def counted(self, rules: Sequence[CensusRules], report: Report) -> list[Census]:  # noqa: ARG002
        """The census of each of several observations."""
        return count_particles(rules, [self.galaxy], self.team)


@dataclass(frozen=True)
class GalaxyInSlabs:
    """Particles of which each process of the team reads at most `size` stars at a time; what planning needs of all of
    them is in `census`."""

    parts: GalaxyParts
    census: Census
    size: int
    team: AbstractProcessGroup

    @property
    def info(self) -> GalaxyInfo:
        """The facts about the galaxy beside its particles."""
        return self.parts.info

    def placed(self, pipeline: Pipeline) -> "GalaxyInSlabs":  # noqa: ARG002
        """They are placed slab by slab."""
        return self

    def counted(self, rules: Sequence[CensusRules], report: Report) -> list[Census]:
        """The census of each of several observations, in one pass over the slabs."""
        with_gas = any(rule.weight is not None for rule in rules)
        cuts = SlabCuts.of(self.parts, self.size, with_gas=with_gas, team=self.team)
        with read_ahead(_counted(self.parts, cuts, report)) as slabs:
            return count_particles(rules, slabs, self.team)


Source = HeldGalaxy | GalaxyInSlabs


def serves(source: Source, config: RunConfig, census: Census) -> bool:
    """Whether an observation with this census can use particles that were opened for another one: it smooths nothing,
    or they have smoothing lengths."""
    is_sparse = census.crowding is not None and census.crowding.is_sparse
    return bool(source.info.smoothing_length) or not (is_sparse or config.engine.deposit == "smoothed")


def open_source(
    config: RunConfig, resolved: Resolved, files: ExitStack, report: Report, team: AbstractProcessGroup = SINGLE
) -> Source:
    """The particles of a run, as `engine.slab` asks for, in the same way in all processes; open files are left to
    `files`.

    Raises as `load` and `open_galaxy`.
    """
    slab, memory = config.engine.slab, least_memory(team)
    most = None if memory is None else team.size * (memory // _MOST_AT_ONCE // BYTES_PER_STAR)

    def surely_fits() -> bool:
        """Also where nobody can tell, or all stars must be in memory."""
        return most is None or needs_all_stars(config) or not has_more_stars(config, most)

    if slab == "all" or (slab == "auto" and all(team.exchange(surely_fits))):
        return hold_galaxy(config, resolved, report, team)
    parts = files.enter_context(open_galaxy(config, report, team, resolved.library))
    if slab == "auto" and parts.n_stars <= (most or 0):  # few of many were selected
        return _held(config, resolved, parts, team)
    in_memory = (memory or 0) // _MOST_IN_SLABS // (2 * BYTES_PER_STAR)
    size = min(max(in_memory, _SMALLEST_SLAB), LARGEST_SLAB) if slab == "auto" else slab
    rules = CensusRules.build(config, resolved)
    cuts = SlabCuts.of(parts, size, with_gas=rules.weight is not None, team=team)
    with read_ahead(_counted(parts, cuts, report)) as slabs:
        (census,) = count_particles([rules], slabs, team)
    return GalaxyInSlabs(parts, census, size, team)


def hold_galaxy(
    config: RunConfig, resolved: Resolved, report: Report, team: AbstractProcessGroup = SINGLE
) -> HeldGalaxy:
    """The particles of a run in memory, of a team each process's share, whatever `engine.slab` says; raises as
    `open_source`."""
    if team.size > 1:
        with open_galaxy(config, report, team, resolved.library) as parts:
            return _held(config, resolved, parts, team)
    galaxy, info = load(config, report, resolved.library)
    return HeldGalaxy(galaxy, info, take_census(config, resolved, [galaxy]), team)


def _held(config: RunConfig, resolved: Resolved, parts: GalaxyParts, team: AbstractProcessGroup) -> HeldGalaxy:
    """Read this process's share. With automatic smoothing every process reads the whole galaxy, because lengths depend
    on all stars."""

    def read() -> Galaxy:
        gas = parts.read_gas(*team.share(parts.n_gas)) if parts.n_gas else None
        return Galaxy(stars=parts.read_stars(*team.share(parts.n_stars)), gas=gas)

    share, info = team.each(read), parts.info
    census = take_census(config, resolved, [share], team)
    if census.crowding is None or not census.crowding.is_sparse or info.smoothing_length:
        return HeldGalaxy(share, info, census, team)
    galaxy, info = team.each(lambda: load(config, library=resolved.library))

    def cut(particles: Any) -> Any:
        start, stop = team.share(len(particles.position))
        return jax.tree.map(lambda leaf: leaf[start:stop], particles)

    share = Galaxy(stars=cut(galaxy.stars), gas=None if galaxy.gas is None else cut(galaxy.gas))
    return HeldGalaxy(share, info, take_census(config, resolved, [share], team), team)


def _counted(parts: GalaxyParts, cuts: SlabCuts, report: Report) -> Iterator[Galaxy]:
    """The slabs, reported when they are counted."""
    done, (first, last) = 0, cuts.stars
    for slab in cuts.read(parts):
        done += len(slab.stars.initial_mass)
        yield slab
        report("stars counted", done, last - first)


def agreed(load: Callable[[], RunConfig], team: AbstractProcessGroup) -> RunConfig:
    """The configuration that `load` gives in every process; raises ValueError where they differ."""
    config = team.each(load)
    texts = team.exchange(config.to_yaml)
    different = [number for number, text in enumerate(texts) if text != texts[0]]
    if different:
        raise ValueError(
            f"expected the same configuration in every process, got another one in process "
            f"{', '.join(map(str, different))} than in process 0; start all with the same file and options"
        )
    return config


def check_together(config: RunConfig, team: AbstractProcessGroup) -> None:
    """Raise ConfigError for what several processes cannot do together, before anything is read."""
    if team.size == 1:
        return
    if config.devices.is_sharded and any(file.is_mosaic for file in output_files(config, config.output.path)):
        raise ConfigError(
            "observation.mosaic: expected false where each process has a part of the cubes (devices.output: sharded); "
            "make it from the files of the pointings (rubix_like.make_mosaic)"
        )
    mesh = mesh_of(config.devices)
    team.exchange(lambda: rows_of_process(mesh, team))


@named_arguments
def plan_share(
    config: RunConfig, progress: Progress, team: AbstractProcessGroup
) -> tuple[Galaxy, GalaxyInfo, Pipeline]:
    """The galaxy of all processes on the mesh, of which this one read its share, and the pipeline planned for it.

    For user code, such as gradients: all particles are in memory, whatever `engine.slab` says.
    """
    check_one_observation(config, "plan_share")
    check_together(config, team)
    with progress.step("load", loading_words(team)) as report:
        resolved = team.each(lambda: resolve(config))
        source = hold_galaxy(config, resolved, report, team)
    with progress.step("plan", "planning the run"):
        pipeline = Pipeline.from_config(config, info=source.info, census=source.census, resolved=resolved)
        connect_devices(pipeline.mesh, team)
        placed = source.placed(pipeline).galaxy
    return placed, source.info, pipeline


def loading_words(team: AbstractProcessGroup) -> str:
    """The name of the step of reading."""
    return "loading the galaxy" + (f", each of {team.size} processes its share" if team.size > 1 else "")


def connect_devices(mesh: Mesh, team: AbstractProcessGroup) -> None:
    """Make the connections between the devices now, while all processes are at the same place.

    On CPUs they must be made within 30 s (JAX 0.10); later the processes may be as far apart as they are.
    """
    if team.size == 1:
        return
    team.exchange(lambda: None)
    names = mesh.axis_names
    groups = chain.from_iterable(combinations(names, n) for n in range(1, len(names) + 1))
    for axes in groups:
        one = put(jnp.ones(()), replicated(mesh))
        total = jax.shard_map(
            functools.partial(lax.psum, axis_name=axes), mesh=mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec()
        )
        jax.block_until_ready(jax.jit(total)(one))
