"""Mock IFU datacubes from simulated galaxies: fast, sharded over devices, differentiable."""

from rubix_like.cli.catalogue_command import run_catalogue
from rubix_like.config import RunConfig, load_config
from rubix_like.cube.cube import Cube
from rubix_like.cube.maps import Maps
from rubix_like.cube.meta import Counters
from rubix_like.cube.mosaic import make_mosaic
from rubix_like.cube.observed import ObservedCube, read_observed
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.pipeline import Pipeline
from rubix_like.forward.tables import Plan, Tables
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo, Gas, Stars
from rubix_like.galaxy.placing import particle_shardings, shard, shard_local
from rubix_like.galaxy.scene import Scene
from rubix_like.galaxy.synthetic import SyntheticGalaxy
from rubix_like.galaxy.validation import validate
from rubix_like.inference.fitting import fit
from rubix_like.inference.results.fit_result import FitResult
from rubix_like.inference.results.sample_result import SampleResult
from rubix_like.inference.sampling import sample
from rubix_like.instrument.instrument import Instrument, load_instrument
from rubix_like.instrument.pointing import Pointing
from rubix_like.readers.loading import load_galaxy, load_galaxy_info, open_galaxy
from rubix_like.runs.run import run
from rubix_like.runtime.mesh.mesh import make_mesh
from rubix_like.runtime.processes.joining import join_processes
from rubix_like.ssp import SSPLibrary, load_ssp
from rubix_like.version import __version__

__all__ = [
    "ConfigError",
    "Counters",
    "Cube",
    "FitResult",
    "Galaxy",
    "GalaxyInfo",
    "Gas",
    "Instrument",
    "Maps",
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
    "load_config",
    "load_galaxy",
    "load_galaxy_info",
    "load_instrument",
    "load_ssp",
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
    "validate",
]
