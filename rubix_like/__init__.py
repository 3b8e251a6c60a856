"""Mock IFU datacubes from simulated galaxies: fast, sharded over devices, differentiable."""

from rubix_like.catalogue.command import run_catalogue
from rubix_like.config import RunConfig, load_config
from rubix_like.cube import Cube
from rubix_like.errors import ConfigError
from rubix_like.galaxy import Galaxy, GalaxyInfo, Gas, Stars
from rubix_like.inference.fitting import fit
from rubix_like.inference.result import FitResult
from rubix_like.inference.sample_result import SampleResult
from rubix_like.inference.sampling import sample
from rubix_like.instrument import Instrument, load_instrument
from rubix_like.maps import Maps
from rubix_like.meta import Counters
from rubix_like.mosaic import make_mosaic
from rubix_like.observed import ObservedCube, read_observed
from rubix_like.parameters import Parameters
from rubix_like.pipeline import Pipeline
from rubix_like.placing import particle_shardings, shard, shard_local
from rubix_like.pointing import Pointing
from rubix_like.processes import join_processes
from rubix_like.readers.loading import load_galaxy, load_galaxy_info, open_galaxy
from rubix_like.run import run
from rubix_like.scene import Scene
from rubix_like.sharding import make_mesh
from rubix_like.ssp import SSPLibrary, load_ssp
from rubix_like.synthetic import SyntheticGalaxy
from rubix_like.tables import Plan, Tables
from rubix_like.validation import validate
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
