"""What a run by several processes does otherwise: each reads its own share of the particles, and all plan alike."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from rubix_like.census import take_census
from rubix_like.config import RunConfig
from rubix_like.cube import Cube
from rubix_like.cube_parts import CubeParts
from rubix_like.errors import ConfigError
from rubix_like.galaxy import Galaxy, GalaxyInfo
from rubix_like.memory import MemoryNeed, memory_need
from rubix_like.observers import AbstractObserver, views_of
from rubix_like.output import output_files
from rubix_like.pipeline import Pipeline
from rubix_like.placement import put, shard_local
from rubix_like.progress import Progress
from rubix_like.readers import open_galaxy
from rubix_like.sharding import make_mesh, replicated
from rubix_like.ssp import load_ssp
from rubix_like.team import AbstractTeam


def agreed(load: Callable[[], RunConfig], team: AbstractTeam) -> RunConfig:
    """The configuration that `load` gives in every process; raises ValueError where they differ."""
    config = team.each(load)
    texts = team.exchange(config.to_yaml)
    different = [number for number, own in enumerate(texts) if own != texts[0]]
    if different:
        raise ValueError(
            f"expected the same configuration in every process, got another one in process "
            f"{', '.join(map(str, different))} than in process 0; start all with the same file and options"
        )
    return config


def plan_share(config: RunConfig, progress: Progress, team: AbstractTeam) -> tuple[Galaxy, GalaxyInfo, Pipeline]:
    """The galaxy of all processes on the mesh, of which this one read its share, and the pipeline planned for it."""
    if config.devices.is_sharded and output_files(config, config.output.path)[-1].is_mosaic:
        raise ConfigError(
            "observation.mosaic: expected false where each process has a part of the cubes (devices.output: sharded); "
            "make it from the files of the pointings (rubix_like.make_mosaic)"
        )
    if isinstance(config.engine.slab, int):
        raise ConfigError(
            f"engine.slab: expected all or auto with several processes, each of which holds its share, got "
            f"{config.engine.slab}"
        )
    mesh = make_mesh(None if config.devices.data == "all" else config.devices.data, config.devices.wave)
    with (
        progress.step("load", f"loading the galaxy, each of {team.size} processes its share") as report,
        open_galaxy(config, report, team) as parts,
    ):
        own = team.each(lambda: _read_share(parts, team))
        info, n_gas = parts.info, parts.n_gas
    with progress.step("plan", "planning the run"):
        library = load_ssp(config)
        census = take_census(config, library, [own.stars], n_gas, team)
        pipeline = Pipeline.from_config(config, mesh=mesh, info=info, census=census)
        placed = shard_local(jax.tree.map(lambda leaf: np.asarray(leaf, config.engine.precision), own), mesh, team)
        connect_devices(mesh, team)
    return placed, info, pipeline


@dataclass(frozen=True)
class ShareObserver(AbstractObserver):
    """Of particles that lie in all processes, `n_stars` in all; `galaxy` is placed on the devices of all."""

    galaxy: Galaxy
    n_stars: int
    team: AbstractTeam
    compiled: Any

    def cubes(self, pipeline: Pipeline, progress: Progress) -> Iterator[tuple[str, Cube | CubeParts]]:
        """One computation per pointing, by all processes; of a sharded cube each has the bins of its devices."""
        where = f"{pipeline.mesh.size} device(s) of {self.team.size} processes"
        for which, view in views_of(pipeline):
            with progress.step("run", f"painting {self.n_stars} stars on {where}{which}"):
                observed = jax.block_until_ready(self.compiled(*view.arguments(self.galaxy)))
                cube = view.result(observed)
            yield which, cube

    def need(self, pipeline: Pipeline, mask_and_writing_bytes: int) -> MemoryNeed:
        """As compiled."""
        return memory_need(self.compiled, pipeline.mesh, mask_and_writing_bytes)

    def words(self) -> str:
        """All at once."""
        return f"all at once, each of {self.team.size} processes its share"


def prepare_share(
    config: RunConfig, progress: Progress, team: AbstractTeam
) -> tuple[GalaxyInfo, Pipeline, ShareObserver]:
    """What is known of the galaxy, the pipeline, and the run of all processes, compiled."""
    if isinstance(config.engine.slab, int):
        raise ConfigError(
            f"engine.slab: expected 'auto' or 'all' for a run by several processes, each of which holds its share of "
            f"the stars, got {config.engine.slab}; start more processes, or a single one"
        )
    galaxy, info, pipeline = plan_share(config, progress, team)
    with progress.step("compile", "compiling"):
        compiled = pipeline.lower(galaxy).compile()
        team.exchange(lambda: None)
    return info, pipeline, ShareObserver(galaxy, info.n_stars, team, compiled)


def _read_share(parts: Any, team: AbstractTeam) -> Galaxy:
    """The stars and gas of this process."""
    gas = parts.read_gas(*team.share(parts.n_gas)) if parts.n_gas else None
    return Galaxy(stars=parts.read_stars(*team.share(parts.n_stars)), gas=gas)


def connect_devices(mesh: Mesh, team: AbstractTeam) -> None:
    """Make the connections between the devices now, while all processes are at the same place.

    On CPUs they must be made within 30 s (JAX 0.10); later the processes may be as far apart as they are.
    """
    team.exchange(lambda: None)
    names = mesh.axis_names
    groups = chain.from_iterable(combinations(names, n) for n in range(1, len(names) + 1))
    for axes in groups:
        one = put(jnp.ones(()), replicated(mesh))
        total = jax.shard_map(
            functools.partial(lax.psum, axis_name=axes), mesh=mesh, in_specs=PartitionSpec(), out_specs=PartitionSpec()
        )
        jax.block_until_ready(jax.jit(total)(one))
