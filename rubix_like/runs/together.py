"""What a run by several processes does otherwise: all must want the same, and be connected."""

import functools
from collections.abc import Callable
from itertools import chain, combinations

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from rubix_like.arguments import named_arguments
from rubix_like.config import RunConfig
from rubix_like.errors import ConfigError
from rubix_like.forward.pipeline import Pipeline
from rubix_like.forward.planning import mesh_of
from rubix_like.forward.resolved import resolve
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo
from rubix_like.runs.particles_on_disk import hold_galaxy
from rubix_like.runs.run_files import output_files
from rubix_like.runtime.mesh.mesh import check_process_mesh, put, replicated
from rubix_like.runtime.processes.process_group import AbstractProcessGroup
from rubix_like.runtime.progress import Progress


def agreed(load: Callable[[], RunConfig], team: AbstractProcessGroup) -> RunConfig:
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


def check_together(config: RunConfig, team: AbstractProcessGroup) -> None:
    """Raise ConfigError for what several processes cannot do together, before anything is read."""
    if team.size == 1:
        return
    if config.devices.is_sharded and output_files(config, config.output.path)[-1].is_mosaic:
        raise ConfigError(
            "observation.mosaic: expected false where each process has a part of the cubes (devices.output: sharded); "
            "make it from the files of the pointings (rubix_like.make_mosaic)"
        )
    mesh = mesh_of(config.devices)
    team.exchange(lambda: check_process_mesh(mesh, team))


@named_arguments
def plan_share(
    config: RunConfig, progress: Progress, team: AbstractProcessGroup
) -> tuple[Galaxy, GalaxyInfo, Pipeline]:
    """The galaxy of all processes on the mesh, of which this one read its share, and the pipeline planned for it.

    For work of one's own, such as gradients: all particles are in memory, whatever `engine.slab` says.
    """
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
    """What the step of reading is called."""
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
