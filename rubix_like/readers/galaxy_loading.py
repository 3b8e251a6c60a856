"""The galaxy of a run, whole or part by part: read, completed, checked."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from rubix_like.config import RunConfig, load_config
from rubix_like.config.loading import ConfigSource
from rubix_like.config.plug_ins import reader_names
from rubix_like.config.run_config import Reader
from rubix_like.errors import ConfigError
from rubix_like.galaxy.galaxy_parts import CountingReader, GalaxyInMemory, GalaxyParts, SlabReader
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo
from rubix_like.galaxy.validation import validate
from rubix_like.readers.birth_mass import MISSING, fill_initial_mass, without_birth_mass
from rubix_like.readers.checked_parts import CheckedParts, check_smoothing_of_parts
from rubix_like.readers.smoothing_lengths import choose_smoothing_lengths
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup
from rubix_like.runtime.progress import Report, silent
from rubix_like.ssp.library import SSPLibrary, load_ssp


def load(run: RunConfig, report: Report = silent, library: SSPLibrary | None = None) -> tuple[Galaxy, GalaxyInfo]:
    """Read the galaxy of a run and check it (`validate`).

    Where the file has no birth masses (NaN of the reader) they are the current mass over the surviving fraction of the
    run's SSP library, or taken equal when the library has none; `GalaxyInfo.initial_mass` says which. Smoothing lengths
    that the run needs and the file has not are estimated (`choose_smoothing_lengths`). `report` is called with the
    number of rows read; `library` is the run's (None: read where it is needed). Raises ConfigError for settings,
    FileNotFoundError, OSError or ValueError for data.
    """
    reader = _reader(run)
    galaxy, info = reader.load(report) if isinstance(reader, SlabReader) else reader.load()
    galaxy, info = choose_smoothing_lengths(galaxy, info, run)
    galaxy, lacking = without_birth_mass(galaxy)
    galaxy = validate(galaxy, info.universe_age)
    if lacking.any():
        galaxy, info = fill_initial_mass(galaxy, info, lacking, library or load_ssp(run))
    return galaxy, info


@contextmanager
def open_galaxy(
    config: ConfigSource,
    report: Report | None = None,
    team: AbstractProcessGroup = SINGLE,
    library: SSPLibrary | None = None,
) -> Iterator[GalaxyParts]:
    """The galaxy of a run, to be read part by part: the parts together are what `load` gives.

    With `n_stars`, `read_stars(start, stop)`, `n_gas`, `read_gas(start, stop)` and `info`. Of a file only what is asked
    for is read, after passes that select particles and find the galaxy's frame (docs/big-files.md), in which each
    process of the `team` reads its own share; a process that then asks for no more than `team.share(n_stars)` of the
    stars never reads others. Other readers hold the whole galaxy, in every process. `library` is the run's SSP library
    (None: read where birth masses are missing). Raises as `load`, and ConfigError where smoothing lengths would have to
    be estimated from the neighbours, for which all stars are needed at once.
    """
    run = load_config(config)
    reader = _reader(run)
    if not isinstance(reader, SlabReader):
        yield team.each(lambda: GalaxyInMemory(*load(run, library=library)))
        return
    check_smoothing_of_parts(run)
    with reader.open_galaxy(report or silent, team) as parts:
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


def load_galaxy(config: ConfigSource) -> Galaxy:
    """The particles of a run's galaxy (see `load`); `config` is a RunConfig or what `load_config` accepts."""
    return load(load_config(config))[0]


def load_galaxy_info(config: ConfigSource) -> GalaxyInfo:
    """What is known of a run's galaxy beside its particles (see `load_galaxy`)."""
    return load(load_config(config))[1]
