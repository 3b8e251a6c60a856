"""The galaxy of a run, whole or part by part: read, completed, checked."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np

from rubix_like.arguments import named_arguments, returned
from rubix_like.config import RunConfig, load_config, load_pipeline
from rubix_like.config.loading import ConfigSource
from rubix_like.config.plug_ins import reader_names
from rubix_like.config.readers.components import ComponentsReader
from rubix_like.config.run_config import Reader
from rubix_like.config.yaml_files import SUFFIXES
from rubix_like.errors import ConfigError
from rubix_like.galaxy.galaxy_parts import CountingReader, GalaxyInMemory, GalaxyParts, SlabReader
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo, Gas, Stars
from rubix_like.galaxy.validation import implausible_notes, validate, validate_gas, validate_stars
from rubix_like.instrument.crowding import AUTO, Crowding, choose_deposit
from rubix_like.physics.cosmology import arcsec_per_kpc, observed_distance
from rubix_like.readers.birth_mass import MISSING, fill_initial_mass, with_birth_mass_origin, without_birth_mass
from rubix_like.readers.smoothing_lengths import choose_smoothing_lengths, smoothing_choice
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup
from rubix_like.runtime.progress import Report, silent
from rubix_like.runtime.registry import exits_as_errors
from rubix_like.ssp.library import SSPLibrary, load_ssp


@dataclass(frozen=True)
class CheckedParts:
    """Parts from a file, each validated and its birth masses completed by the surviving fractions of `library`."""

    parts: GalaxyParts
    library: SSPLibrary | None
    info: GalaxyInfo
    run: RunConfig

    @staticmethod
    def from_parts(parts: GalaxyParts, library: SSPLibrary | None, run: RunConfig) -> "CheckedParts":
        """The parts of the run's galaxy; `library`: None where the file has all birth masses."""
        stored = smoothing_choice(run)[0] == "file"
        info = replace(parts.info, smoothing_length="file") if stored else parts.info
        if library is not None:
            info = with_birth_mass_origin(info, library, info.initial_mass.removeprefix(MISSING))
        return CheckedParts(parts, library, info, run)

    @property
    def n_stars(self) -> int:
        """Number of stars."""
        return self.parts.n_stars

    @property
    def n_gas(self) -> int:
        """Number of gas particles."""
        return self.parts.n_gas

    def read_stars(self, start: int, stop: int) -> Stars:
        """The stars `start` to `stop` (exclusive); ConfigError where asked-for smoothing lengths are missing."""
        galaxy, _ = choose_smoothing_lengths(Galaxy(stars=self.parts.read_stars(start, stop)), self.info, self.run)
        galaxy, lacking = without_birth_mass(galaxy)
        galaxy = Galaxy(stars=validate_stars(galaxy.stars, self.info.universe_age))
        if self.library is not None and lacking.any():
            galaxy, _ = fill_initial_mass(galaxy, self.info, lacking, self.library)
        return galaxy.stars

    def read_gas(self, start: int, stop: int) -> Gas | None:
        """The gas particles `start` to `stop` (exclusive); None where the galaxy has none."""
        gas = self.parts.read_gas(start, stop)
        return None if gas is None else validate_gas(gas)


def needs_all_stars(run: RunConfig) -> bool:
    """Whether smoothing lengths of the stars may depend on all of them."""
    choice, _ = smoothing_choice(run)
    return choice == "neighbours" or (choice == "auto" and run.engine.deposit == "smoothed")


def check_smoothing_of_parts(run: RunConfig) -> None:
    """Raise ConfigError where smoothing lengths of the stars depend on all of them."""
    if needs_all_stars(run):
        choice, _ = smoothing_choice(run)
        raise ConfigError(
            f"galaxy.smoothing_length: expected 'file' for a galaxy that is read part by part, got '{choice}': "
            f"distances to neighbours need all stars at once"
        )


@exits_as_errors()
def load(run: RunConfig, report: Report = silent, library: SSPLibrary | None = None) -> tuple[Galaxy, GalaxyInfo]:
    """Read the galaxy of a run and check it (`validate`).

    Where the file has no birth masses (NaN of the reader) they are the current mass over the surviving fraction of the
    run's SSP library, or taken equal when the library has none; `GalaxyInfo.initial_mass` says which. Smoothing lengths
    that the run needs and the file has not are estimated (`choose_smoothing_lengths`). `report` is called with the
    number of rows read; `library` is the run's (None: read where it is needed). Raises ConfigError for settings,
    FileNotFoundError, OSError or ValueError for data.
    """
    reader = _reader(run)
    if isinstance(reader, ComponentsReader):
        galaxy, info = reader.load(run)
    else:
        found = reader.load(report) if isinstance(reader, SlabReader) else reader.load()
        call = f"reader '{getattr(reader, 'reader', type(reader).__name__)}': `load`"
        galaxy, info = returned(found, [Galaxy, GalaxyInfo], call, "a pair (Galaxy, GalaxyInfo)")
    galaxy, info = choose_smoothing_lengths(galaxy, info, with_deposit(run, galaxy.stars))
    galaxy, lacking = without_birth_mass(galaxy)
    galaxy = validate(galaxy, info.universe_age)
    if lacking.any():
        galaxy, info = fill_initial_mass(galaxy, info, lacking, library or load_ssp(run))
    return galaxy, info


def with_deposit(run: RunConfig, stars: Stars) -> RunConfig:
    """The run with the deposit that `engine.deposit: auto` stands for, with lengths wherever it needs them."""
    if run.engine.deposit != AUTO:
        return run
    observation, pipeline = run.observation, load_pipeline(run.pipeline)
    distance = observed_distance(observation.cosmology, observation.redshift, observation.distance)
    scale = arcsec_per_kpc(distance, observation.redshift)
    crowding = Crowding.of(np.asarray(stars.position), run, pipeline, scale)
    deposit = choose_deposit(run, pipeline, crowding, 0).deposit
    return run.model_copy(update={"engine": run.engine.model_copy(update={"deposit": deposit})})


@dataclass(frozen=True)
class UnopenedGalaxy:
    """The context manager that `open_galaxy` gives; its members before the `with` block say how it is used."""

    manager: AbstractContextManager[GalaxyParts]

    def __enter__(self) -> GalaxyParts:
        """Open the galaxy."""
        return self.manager.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        """Close its file."""
        return self.manager.__exit__(*error)

    def _refuse(self) -> NoReturn:
        raise ConfigError(
            "open_galaxy: expected a with block, got a galaxy that is not open; write "
            "`with rl.open_galaxy(config) as parts:` and take parts.n_stars, parts.read_stars(0, 10) and so on inside"
        )

    n_stars = n_gas = info = read_stars = read_gas = property(_refuse)


@named_arguments
def open_galaxy(
    config: ConfigSource,
    report: Report | None = None,
    team: AbstractProcessGroup = SINGLE,
    library: SSPLibrary | None = None,
) -> UnopenedGalaxy:
    """The galaxy of a run, to be read part by part in a `with` block (`with rl.open_galaxy(config) as parts:`).

    The parts together are what `load` gives, without smoothing lengths where these depend on all stars
    (`engine.deposit: auto`).

    With `n_stars`, `read_stars(start, stop)`, `n_gas`, `read_gas(start, stop)` and `info`. Of a file only what is asked
    for is read, after passes that select particles and find the galaxy's frame (docs/big-files.md), in which each
    process of the `team` reads its own share; a process that then asks for no more than `team.share(n_stars)` of the
    stars never reads others. Other readers hold the whole galaxy, in every process. `library` is the run's SSP library
    (None: read where birth masses are missing). Raises as `load`, and ConfigError where smoothing lengths would have to
    be estimated from the neighbours, for which all stars are needed at once.
    """
    return UnopenedGalaxy(_opened(config, report or silent, team, library))


@contextmanager
def _opened(
    config: ConfigSource, report: Report, team: AbstractProcessGroup, library: SSPLibrary | None
) -> Iterator[GalaxyParts]:
    run = load_config(config)
    reader = _reader(run)
    if not isinstance(reader, SlabReader):
        yield team.each(lambda: GalaxyInMemory(*load(run, library=library)))
        return
    check_smoothing_of_parts(run)
    with reader.open_galaxy(report, team) as parts:
        lacking = parts.info.initial_mass.startswith(MISSING)
        yield CheckedParts.from_parts(parts, team.each(lambda: library or load_ssp(run)) if lacking else None, run)


def has_more_stars(run: RunConfig, limit: int) -> bool:
    """Whether the file of a run has more than `limit` stars, selected or not; False where its reader cannot tell."""
    reader = _reader(run)
    return isinstance(reader, CountingReader) and reader.has_more_stars(limit)


def _reader(run: RunConfig) -> Reader:
    if run.galaxy is None:
        known = ", ".join(reader_names())
        raise ConfigError(f"galaxy: this configuration has none; add 'galaxy: {{reader: ...}}' (readers: {known})")
    return cast(Reader, run.galaxy)


@named_arguments
def load_galaxy(source: ConfigSource) -> Galaxy:
    """The particles of a run's galaxy, or of a simulation's file (see `load`).

    `source` is a RunConfig, what `load_config` accepts, or the path of a file of particles, which is recognised as
    `rubix-like inspect` does it; birth masses that such a file lacks are those of `popstar`. A path that ends in
    .yaml or .yml is a configuration.
    """
    return load(_run_of(source))[0]


@named_arguments
def load_galaxy_info(source: ConfigSource) -> GalaxyInfo:
    """What is known of a galaxy beside its particles; `source` as in `load_galaxy`."""
    run = _run_of(source)
    galaxy, info = load(run)
    found = implausible_notes(galaxy, is_at_rest=run.is_at_rest)
    return replace(info, notes=(*info.notes, *found))


def _run_of(source: ConfigSource) -> RunConfig:
    """The configuration of a run, or one for a file of particles."""
    if not isinstance(source, str | Path) or Path(source).suffix in SUFFIXES:
        return load_config(source)
    path = Path(source)
    if not path.suffix and not path.exists():
        return load_config(source)
    return load_config("quickstart", overrides={"galaxy": {"path": str(path)}, "engine.deposit": "nearest"})
