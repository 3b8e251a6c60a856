"""Where a run's particles are: all in memory, or in the file, to be read slab by slab."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

from jax.sharding import Mesh

from rubix_like.census import Census, take_census
from rubix_like.config import RunConfig
from rubix_like.galaxy import Galaxy, GalaxyInfo, Stars
from rubix_like.memory import available_memory
from rubix_like.pipeline import Pipeline
from rubix_like.progress import Report
from rubix_like.readers import has_more_stars, load, open_galaxy
from rubix_like.readers.parts import GalaxyParts, needs_all_stars
from rubix_like.slabs import SlabCuts, read_ahead
from rubix_like.ssp import load_ssp

BYTES_PER_STAR: int = 400
"""What a star takes on the host while it is read and placed: at most 16 columns of 8 bytes, three times over."""

LARGEST_SLAB: int = 1 << 22
"""Stars in a slab beyond which nothing gets faster."""

_SMALLEST_SLAB = 1 << 16
_MOST_AT_ONCE, _MOST_IN_SLABS = 2, 8
"""Shares of the available memory, 1 / n: for particles that are held all at once, and for two slabs."""


@dataclass(frozen=True)
class WholeGalaxy:
    """Particles in memory."""

    galaxy: Galaxy
    info: GalaxyInfo
    census: Census | None = None

    def plan(self, config: RunConfig, mesh: Mesh | None = None) -> Pipeline:
        """The pipeline for these particles."""
        return Pipeline.from_config(config, None if self.census else self.galaxy, mesh, self.info, self.census)

    def placed(self, pipeline: Pipeline) -> "WholeGalaxy":
        """The particles on the pipeline's devices."""
        return replace(self, galaxy=pipeline.arguments(self.galaxy)[2])


@dataclass(frozen=True)
class GalaxyInSlabs:
    """Particles of which at most `size` stars are read at a time; what planning needs of all of them is in `census`."""

    parts: GalaxyParts
    census: Census
    size: int

    @property
    def info(self) -> GalaxyInfo:
        """What is known of the galaxy beside its particles."""
        return self.parts.info

    def plan(self, config: RunConfig, mesh: Mesh | None = None) -> Pipeline:
        """The pipeline for these particles."""
        return Pipeline.from_config(config, mesh=mesh, info=self.info, census=self.census)

    def placed(self, pipeline: Pipeline) -> "GalaxyInSlabs":  # noqa: ARG002
        """They are placed slab by slab."""
        return self


Source = WholeGalaxy | GalaxyInSlabs


def open_source(config: RunConfig, files: ExitStack, report: Report) -> Source:
    """The particles of a run, as `engine.slab` asks for; open files are left to `files`.

    Raises as `load` and `open_galaxy`.
    """
    slab = config.engine.slab
    if slab == "all" or (slab == "auto" and _surely_fits(config)):
        return WholeGalaxy(*load(config, report))
    parts = files.enter_context(open_galaxy(config, report))
    if slab == "auto" and parts.n_stars <= (_most_stars() or 0):  # few of many were selected
        gas = parts.read_gas(0, parts.n_gas)
        return WholeGalaxy(Galaxy(parts.read_stars(0, parts.n_stars), gas), parts.info)
    size = _automatic_size() if slab == "auto" else slab
    cuts = SlabCuts.of(parts, size, with_gas=False)
    with read_ahead(_counted(parts, cuts, report)) as slabs:
        census = take_census(config, load_ssp(config), slabs, parts.n_gas)
    return GalaxyInSlabs(parts, census, size)


def _surely_fits(config: RunConfig) -> bool:
    """Whether all particles of the file, selected or not, can be in memory; also where nobody can tell, or all must."""
    limit = _most_stars()
    return limit is None or needs_all_stars(config) or not has_more_stars(config, limit)


def _most_stars() -> int | None:
    """How many stars can be in memory; None where that is not known."""
    available = available_memory()
    return None if available is None else available // _MOST_AT_ONCE // BYTES_PER_STAR


def _automatic_size() -> int:
    """Stars of a slab such that two of them take a small part of the memory."""
    stars = (available_memory() or 0) // _MOST_IN_SLABS // (2 * BYTES_PER_STAR)
    return min(max(stars, _SMALLEST_SLAB), LARGEST_SLAB)


def _counted(parts: GalaxyParts, cuts: SlabCuts, report: Report) -> Iterator[Stars]:
    """The stars of the slabs."""
    done = 0
    for slab in cuts.read(parts):
        done += len(slab.stars.initial_mass)
        yield slab.stars
        report("stars counted", done, parts.n_stars)
