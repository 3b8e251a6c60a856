"""The galaxies of a catalogue on their devices: read, counted and placed once for all their views."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import jax
import numpy as np
from jax.sharding import Mesh

from rubix_like.config import RunConfig
from rubix_like.forward.census import take_census
from rubix_like.forward.pipeline import planned_alike
from rubix_like.forward.planning import mesh_of
from rubix_like.forward.resolved import Resolved, resolve
from rubix_like.galaxy.placing import pad_galaxy_on_host
from rubix_like.instrument.crowding import AUTO
from rubix_like.runs.batch.entries import Entry
from rubix_like.runs.particles_on_disk import HeldGalaxy, Source, open_source
from rubix_like.runs.run import Prepared, plan_and_compile, turned
from rubix_like.runtime.progress import Progress, silent


@dataclass
class LoadedGalaxy:
    """A galaxy that several views share: on the host or, from its first view on, on the devices of its worker, with
    its open files, and what its census was taken for, resolved; the run of the view before."""

    source: Source
    files: ExitStack
    resolved: Resolved
    counted: RunConfig
    prepared: Prepared | None = None

    def serves(self, config: RunConfig) -> bool:
        """Whether a view can be planned with it: a galaxy in slabs is not counted again, and one that was read without
        smoothing lengths is not smoothed."""
        if self.counted == _counted(config):
            return True
        return isinstance(self.source, HeldGalaxy) and not self._lacks_lengths(config, self.source)

    def _lacks_lengths(self, config: RunConfig, source: HeldGalaxy) -> bool:
        """Whether `engine.deposit: auto` stands for smoothed in a view, but did not when the galaxy was read."""
        if config.engine.deposit != AUTO or source.info.smoothing_length:
            return False
        census = take_census(config, resolve(config), [source.galaxy])
        return census.crowding is not None and census.crowding.is_sparse


def device_groups(groups: Sequence[tuple[Entry, ...]]) -> list[Mesh]:
    """The devices in groups as large as `devices` asks for, no more groups than there are galaxies."""
    devices = groups[0][0].config.devices if groups else None
    if devices is None:
        return []
    first = mesh_of(devices)
    every = jax.devices()
    n_groups = min(len(every) // first.size, len(groups))
    blocks = np.array(every[: n_groups * first.size], dtype=object).reshape(n_groups, *first.devices.shape)
    return [Mesh(block, first.axis_names, axis_types=first.axis_types) for block in blocks]


def load_for(entry: Entry, mesh: Mesh) -> LoadedGalaxy:
    """The particles of an entry; those that are held in memory are padded, so that nothing is compiled for it."""
    resolved = resolve(entry.config)
    with ExitStack() as files:
        source = open_source(entry.config, resolved, files, silent)
        if isinstance(source, HeldGalaxy):
            source = replace(source, galaxy=pad_galaxy_on_host(jax.tree.map(np.asarray, source.galaxy), mesh))
        return LoadedGalaxy(source, files.pop_all(), resolved, _counted(entry.config))


def _counted(config: RunConfig) -> RunConfig:
    """A configuration without what a census of its galaxy does not depend on: how far it is turned, where it lies."""
    observation = config.observation
    turned = (observation.inclination, observation.position_angle) != (None, None)
    angle = 0.0 if turned else None
    same = {"inclination": angle, "position_angle": angle, "ra": 0.0, "dec": 0.0, "offset": (0.0, 0.0)}
    same |= {"field_angle": None, "pointings": None, "mosaic": True}
    return config.model_copy(
        update={"observation": observation.model_copy(update=same), "noise": None, "systematics": None}
    )


def prepare_view(entry: Entry, loaded: LoadedGalaxy, mesh: Mesh) -> Prepared:
    """The run of one view; the first one places the galaxy on the devices; where it counts otherwise, it is
    counted again. Of a view that differs from the one before in angles alone nothing is planned anew."""
    config, source = entry.config, loaded.source
    if loaded.prepared is not None and planned_alike(loaded.prepared.config, config):
        return turned(loaded.prepared, config, entry.path)
    if isinstance(source, HeldGalaxy) and loaded.counted != _counted(config):
        resolved = resolve(config)
        source = replace(source, census=take_census(config, resolved, [source.galaxy]))
        loaded.source, loaded.resolved, loaded.counted = source, resolved, _counted(config)  # also where planning fails
    prepared = plan_and_compile(config, loaded.resolved, source, Progress(), entry.path, mesh)
    loaded.source, loaded.prepared = prepared.source or source, prepared
    return prepared
