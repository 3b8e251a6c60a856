"""Mock IFU datacubes from simulated galaxies: fast, sharded over devices, differentiable.

A public name is imported when it is first used, so that `import rubix_like` takes no time.
"""

from typing import TYPE_CHECKING, Any

from rubix_like.errors import ConfigError
from rubix_like.runtime.places import found_at
from rubix_like.version import __version__

if TYPE_CHECKING:
    from rubix_like.config import RunConfig, load_config
    from rubix_like.cube.cube import Cube
    from rubix_like.cube.files.cube_files import load_cube
    from rubix_like.cube.maps import Maps
    from rubix_like.cube.meta import Counters
    from rubix_like.cube.mosaic import make_mosaic
    from rubix_like.cube.observed import ObservedCube, read_observed
    from rubix_like.cube.views.imaging import lines
    from rubix_like.forward.parameters import Parameters
    from rubix_like.forward.pipeline import Pipeline
    from rubix_like.forward.tables import Plan, Tables
    from rubix_like.galaxy.particles import Galaxy, GalaxyInfo, Gas, Stars
    from rubix_like.galaxy.placing import particle_shardings, shard, shard_local
    from rubix_like.galaxy.scene import Scene
    from rubix_like.galaxy.synthetic import SyntheticGalaxy
    from rubix_like.galaxy.validation import validate
    from rubix_like.inference.fitting import fit, sample
    from rubix_like.inference.log_posterior import LogPosterior, log_posterior
    from rubix_like.inference.results.results import FitResult, SampleResult
    from rubix_like.inference.simulation.simulation_files import load_simulations
    from rubix_like.inference.simulation.training_sets import simulate, simulate_observations
    from rubix_like.instrument.instrument import Instrument, load_instrument
    from rubix_like.instrument.pointing import Pointing
    from rubix_like.nebular import load_nebular
    from rubix_like.readers.galaxy_loading import load_galaxy, load_galaxy_info, open_galaxy
    from rubix_like.runs.batch.catalogue import run_catalogue
    from rubix_like.runs.known_names import (
        list_configs,
        list_executors,
        list_fields,
        list_instruments,
        list_kernels,
        list_libraries,
        list_lines,
        list_notes,
        list_pipelines,
        list_products,
        list_readers,
        list_samplers,
        list_stages,
    )
    from rubix_like.runs.run import run
    from rubix_like.runtime.mesh.mesh import make_mesh
    from rubix_like.runtime.notes import Note
    from rubix_like.runtime.processes.jax_processes import join_processes
    from rubix_like.ssp import SSPLibrary, load_ssp

__all__ = [
    "ConfigError",
    "Counters",
    "Cube",
    "FitResult",
    "Galaxy",
    "GalaxyInfo",
    "Gas",
    "Instrument",
    "LogPosterior",
    "Maps",
    "Note",
    "ObservedCube",
    "Parameters",
    "Pipeline",
    "Plan",
    "Pointing",
    "RunConfig",
    "SSPLibrary",
    "SampleResult",
    "Scene",
    "Stars",
    "SyntheticGalaxy",
    "Tables",
    "__version__",
    "fit",
    "join_processes",
    "lines",
    "list_configs",
    "list_executors",
    "list_fields",
    "list_instruments",
    "list_kernels",
    "list_libraries",
    "list_lines",
    "list_notes",
    "list_pipelines",
    "list_products",
    "list_readers",
    "list_samplers",
    "list_stages",
    "load_config",
    "load_cube",
    "load_galaxy",
    "load_galaxy_info",
    "load_instrument",
    "load_nebular",
    "load_simulations",
    "load_ssp",
    "log_posterior",
    "make_mesh",
    "make_mosaic",
    "open_galaxy",
    "particle_shardings",
    "read_observed",
    "run",
    "run_catalogue",
    "sample",
    "shard",
    "shard_local",
    "simulate",
    "simulate_observations",
    "validate",
]

_PLACES: dict[str, str] = {
    "Counters": "rubix_like.cube.meta:Counters",
    "Cube": "rubix_like.cube.cube:Cube",
    "FitResult": "rubix_like.inference.results.results:FitResult",
    "Galaxy": "rubix_like.galaxy.particles:Galaxy",
    "GalaxyInfo": "rubix_like.galaxy.particles:GalaxyInfo",
    "Gas": "rubix_like.galaxy.particles:Gas",
    "Instrument": "rubix_like.instrument.instrument:Instrument",
    "LogPosterior": "rubix_like.inference.log_posterior:LogPosterior",
    "Maps": "rubix_like.cube.maps:Maps",
    "Note": "rubix_like.runtime.notes:Note",
    "ObservedCube": "rubix_like.cube.observed.observed_cube:ObservedCube",
    "Parameters": "rubix_like.forward.parameters:Parameters",
    "Pipeline": "rubix_like.forward.pipeline:Pipeline",
    "Plan": "rubix_like.forward.tables:Plan",
    "Pointing": "rubix_like.instrument.pointing:Pointing",
    "RunConfig": "rubix_like.config.run_config:RunConfig",
    "SSPLibrary": "rubix_like.ssp.library:SSPLibrary",
    "SampleResult": "rubix_like.inference.results.results:SampleResult",
    "Scene": "rubix_like.galaxy.scene:Scene",
    "Stars": "rubix_like.galaxy.particles:Stars",
    "SyntheticGalaxy": "rubix_like.galaxy.synthetic:SyntheticGalaxy",
    "Tables": "rubix_like.forward.tables:Tables",
    "fit": "rubix_like.inference.fitting:fit",
    "join_processes": "rubix_like.runtime.processes.jax_processes:join_processes",
    "lines": "rubix_like.cube.views.imaging:lines",
    "load_config": "rubix_like.config.loading:load_config",
    "load_cube": "rubix_like.cube.files.cube_files:load_cube",
    "load_galaxy": "rubix_like.readers.galaxy_loading:load_galaxy",
    "load_galaxy_info": "rubix_like.readers.galaxy_loading:load_galaxy_info",
    "load_instrument": "rubix_like.instrument.instrument:load_instrument",
    "load_nebular": "rubix_like.nebular.table_formats:load_nebular",
    "load_simulations": "rubix_like.inference.simulation.simulation_files:load_simulations",
    "load_ssp": "rubix_like.ssp.library:load_ssp",
    "log_posterior": "rubix_like.inference.log_posterior:log_posterior",
    "make_mesh": "rubix_like.runtime.mesh.mesh:make_mesh",
    "make_mosaic": "rubix_like.cube.mosaic:make_mosaic",
    "open_galaxy": "rubix_like.readers.galaxy_loading:open_galaxy",
    "particle_shardings": "rubix_like.galaxy.placing:particle_shardings",
    "read_observed": "rubix_like.cube.observed.reading_observed:read_observed",
    "run": "rubix_like.runs.run:run",
    "run_catalogue": "rubix_like.runs.batch.catalogue:run_catalogue",
    "sample": "rubix_like.inference.fitting:sample",
    "shard": "rubix_like.galaxy.placing:shard",
    "shard_local": "rubix_like.galaxy.placing:shard_local",
    "simulate": "rubix_like.inference.simulation.training_sets:simulate",
    "simulate_observations": "rubix_like.inference.simulation.training_sets:simulate_observations",
    "validate": "rubix_like.galaxy.validation:validate",
}
"""Public name -> where it is, as `module:attribute`."""

_PLACES |= {name: f"rubix_like.runs.known_names:{name}" for name in __all__ if name.startswith("list_")}


def __getattr__(name: str) -> Any:
    """Import a public name (PEP 562)."""
    if name not in _PLACES:
        raise AttributeError(f"module 'rubix_like' has no attribute '{name}'")
    value = globals()[name] = found_at(_PLACES[name])
    return value


def __dir__() -> list[str]:
    return list(__all__)
