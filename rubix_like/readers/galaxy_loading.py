"""The galaxy of a run, whole or part by part: read, completed, checked."""

import dataclasses
import importlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, cast

import jax
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy import ndarray

from rubix_like.arguments import named_arguments, plug_in_named, returned
from rubix_like.config import RunConfig, load_config, load_pipeline
from rubix_like.config.loading import ConfigSource, check_one_observation
from rubix_like.config.plug_ins import reader_names
from rubix_like.config.readers.components import ComponentsReader
from rubix_like.config.readers.snapshot import NEIGHBOURS, SmoothingChoice
from rubix_like.config.run_config import Reader
from rubix_like.config.yaml_files import SUFFIXES
from rubix_like.errors import ConfigError
from rubix_like.galaxy.galaxy_parts import CountingReader, GalaxyInMemory, GalaxyParts, SlabReader
from rubix_like.galaxy.limits import require
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo, Gas, Stars
from rubix_like.galaxy.validation import implausible_notes, validate, validate_gas, validate_stars
from rubix_like.instrument.crowding import AUTO, Crowding, choose_deposit
from rubix_like.physics.centering import half_mass_radius
from rubix_like.physics.cosmology import arcsec_per_kpc, observed_distance
from rubix_like.runtime.notes import Note
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup
from rubix_like.runtime.progress import Report, silent
from rubix_like.runtime.registry import exits_as_errors
from rubix_like.ssp.library import SSPLibrary, load_ssp

Lacking = Bool[np.ndarray, " particle"]


def without_birth_mass(galaxy: Galaxy) -> tuple[Galaxy, Lacking]:
    """The galaxy with current masses where birth masses are unknown (NaN), and which stars those are."""
    stars = galaxy.stars
    lacking = np.isnan(np.asarray(stars.initial_mass))
    if stars.mass is None or not lacking.any():
        return galaxy, np.zeros_like(lacking)
    mass = np.where(lacking, np.asarray(stars.mass), np.asarray(stars.initial_mass))
    return _with(galaxy, initial_mass=_leaf(mass)), lacking


def fill_initial_mass(
    galaxy: Galaxy, info: GalaxyInfo, lacking: Lacking, library: SSPLibrary
) -> tuple[Galaxy, GalaxyInfo]:
    """Birth masses (Msun) of the stars `lacking` them, whose `initial_mass` is the current mass m: m / f(age, Z).

    f is the surviving fraction, bilinear in (log10 age, log10 Z) and clamped to the library's grid; without one, both
    masses are equal.
    """
    info = with_birth_mass_origin(info, library, share_of(int(np.count_nonzero(lacking)), lacking.size))
    if library.surviving_fraction is None:
        return galaxy, info
    stars = galaxy.stars
    log_age, metallicity = np.asarray(stars.log_age)[lacking], np.asarray(stars.metallicity)[lacking]
    birth = np.array(stars.initial_mass, dtype=np.float64)
    birth[lacking] /= surviving_fraction(library, log_age, metallicity)
    return _with(galaxy, initial_mass=_leaf(birth)), info


MISSING: str = "missing"
"""What `GalaxyInfo.initial_mass` is where birth masses are to be filled in, followed by `share_of` the stars."""


def _with(galaxy: Galaxy, **columns: Any) -> Galaxy:
    """The galaxy with these columns of its stars."""
    return Galaxy(stars=dataclasses.replace(galaxy.stars, **columns), gas=galaxy.gas)


def _leaf(values: Float[np.ndarray, " particle"]) -> Float[Array, " particle"]:
    return jax.device_put(np.array(values, jax.dtypes.canonicalize_dtype(float)))


def share_of(n_lacking: int, n_stars: int) -> str:
    """How many stars lack birth masses, in words that follow others; none where all of them do."""
    return "" if n_lacking == n_stars else f"; {n_lacking} of {n_stars} stars"


def with_birth_mass_origin(info: GalaxyInfo, library: SSPLibrary, share: str) -> GalaxyInfo:
    """Return the info with the origin of birth masses, also as a note; `share` says how many stars lack them."""
    text = f"current mass over the surviving fraction of {library.name}"
    if library.surviving_fraction is None:
        text = f"taken equal to the current mass ({library.name} has no surviving fractions)"
    note = Note("galaxy.birth_mass", f"the file has no birth masses{' of some stars' if share else ''}: {text}{share}")
    return dataclasses.replace(info, initial_mass=text + share, notes=(*info.notes, note))


def surviving_fraction(
    library: SSPLibrary, log_age: Float[np.ndarray, " particle"], metallicity: Float[np.ndarray, " particle"]
) -> Float[np.ndarray, " particle"]:
    """Mass now (remnants included) over mass at birth, bilinear in (log10 age, log10 Z), clamped to the grid."""
    table = np.asarray(library.surviving_fraction, dtype=np.float64)
    log_metallicity = np.log10(np.maximum(np.asarray(metallicity, dtype=np.float64), 1e-30))
    row, z = _place(np.log10(np.asarray(library.metallicity)), log_metallicity)
    column, t = _place(np.asarray(library.log_age), np.asarray(log_age, dtype=np.float64))
    next_row, next_column = np.minimum(row + 1, table.shape[0] - 1), np.minimum(column + 1, table.shape[1] - 1)
    low = (1 - t) * table[row, column] + t * table[row, next_column]
    high = (1 - t) * table[next_row, column] + t * table[next_row, next_column]
    return (1 - z) * low + z * high


def _place(
    nodes: Float[np.ndarray, " node"], values: Float[np.ndarray, " particle"]
) -> tuple[np.ndarray, Float[np.ndarray, " particle"]]:
    """Index of the node at or below each value, clamped, and the fraction of the way to the next."""
    place = np.interp(values, nodes, np.arange(nodes.size, dtype=np.float64))
    left = np.minimum(place.astype(np.int64), max(nodes.size - 2, 0))
    return left, place - left


def smoothing_choice(run: RunConfig) -> tuple[SmoothingChoice, int]:
    """`galaxy.smoothing_length` and `galaxy.neighbours`, or their defaults for a reader without these keys."""
    return getattr(run.galaxy, "smoothing_length", "auto"), getattr(run.galaxy, "neighbours", NEIGHBOURS)


def neighbour_distance(position: Float[ndarray, "particle 3"], number: int) -> Float[ndarray, " particle"]:
    """Distance from each particle to its `number`-th nearest other particle, in the unit of `position`.

    The radius that holds `number` neighbours is the support radius of a smoothing kernel with that many. With fewer
    particles it is the distance to the farthest of them, 0 for a single one.
    """
    order = min(number, len(position) - 1)
    if order < 1:
        return np.zeros(len(position))
    spatial = importlib.import_module("scipy.spatial")  # slow: only where neighbours are looked for
    tree = spatial.KDTree(position)
    along = tree.indices  # neighbours one after the other, which is twice as fast
    neighbour = order + 1  # the nearest one is the particle itself
    distance, _ = tree.query(position[along], k=[neighbour], workers=-1)  # pyright: ignore[reportArgumentType]
    lengths = np.empty(len(position))
    lengths[along] = distance[:, 0]
    return lengths


def choose_smoothing_lengths(galaxy: Galaxy, info: GalaxyInfo, run: RunConfig) -> tuple[Galaxy, GalaxyInfo]:
    """The galaxy with smoothing lengths (kpc) as `galaxy.smoothing_length` and the run's deposit ask for.

    auto: those of the file, and for stars without one the distance to the neighbour; that of all stars where the file's
    median is larger than their half-mass radius, since such kernels blur the whole galaxy. Nothing is computed for a
    run that does not smooth; lengths that some stars lack are then left out, and of a part of a galaxy with
    `engine.deposit: auto` all of them, since they may not be usable. Raises ConfigError where the file
    was asked for and has none.
    """
    (choice, number), deposit = smoothing_choice(run), run.engine.deposit
    stars = galaxy.stars
    stored = stars.smoothing_length
    lacking = np.ones(len(stars.initial_mass), dtype=bool) if stored is None else np.isnan(np.asarray(stored))
    if choice == "file" and lacking.any():
        raise ConfigError(
            f"galaxy.smoothing_length: expected smoothing lengths of all stars in {info.source} for 'file', but "
            f"{np.count_nonzero(lacking)} of {lacking.size} have none; set it to auto or neighbours"
        )
    if choice == "auto" and deposit != "smoothed":
        return _with(galaxy, smoothing_length=None if lacking.any() or deposit == AUTO else stored), info
    reason = _unusable(stars) if choice == "auto" else ""
    if choice == "neighbours" or reason:
        lacking = np.ones_like(lacking)
    if not lacking.any():
        return galaxy, dataclasses.replace(info, smoothing_length="file")
    most = lacking.size - 1
    capped = f" (galaxy.neighbours: {number} is more than there are)" if number > most else ""
    words = f"distance to neighbour {min(number, most)}{capped}; {np.count_nonzero(lacking)} of {lacking.size} stars"
    note = Note(
        "galaxy.smoothing_length", f"smoothing lengths of stars are estimated, {reason or 'not from the file'}: {words}"
    )
    info = dataclasses.replace(info, smoothing_length=words, notes=(*info.notes, note))
    return _with(galaxy, smoothing_length=_estimated(stars, lacking, number)), info


def with_neighbour_lengths(galaxy: Galaxy, number: int) -> Galaxy:
    """The galaxy with the distance of each star to its `number`-th neighbour as smoothing length."""
    lacking = np.ones(len(galaxy.stars.initial_mass), dtype=bool)
    return _with(galaxy, smoothing_length=_estimated(galaxy.stars, lacking, number))


def _estimated(stars: Stars, lacking: Bool[ndarray, " particle"], number: int) -> Float[Array, " particle"]:
    """Distances to neighbours for the stars lacking a length, among all stars."""
    position = np.asarray(stars.position, dtype=np.float64)
    remedy = "leave these particles out or repair the file"
    require(np.isfinite(position), position, "stars.position", "finite values", remedy)
    lengths = neighbour_distance(position, number)
    if stars.smoothing_length is not None:
        lengths = np.where(lacking, lengths, np.asarray(stars.smoothing_length))
    return _leaf(lengths)


def _unusable(stars: Stars) -> str:
    """Why the file's smoothing lengths cannot be used; empty where they can, or where there are none."""
    stored = np.full(1, np.nan) if stars.smoothing_length is None else np.asarray(stars.smoothing_length)
    known = stored[~np.isnan(stored)]
    mass = np.nan_to_num(np.asarray(stars.initial_mass if stars.mass is None else stars.mass, dtype=np.float64))
    if not known.size or not mass.sum() > 0:
        return ""
    median = float(np.median(known))
    half = half_mass_radius(np.asarray(stars.position, dtype=np.float64), mass)
    if median <= half:
        return ""
    return f"as the file's median, {median:.3g} kpc, is above the half-mass radius of {half:.3g} kpc"


@dataclass(frozen=True)
class CheckedParts:
    """Parts from a file, each validated and its birth masses completed by the surviving fractions of `library`.

    `library` is None where the file has all birth masses.
    """

    parts: GalaxyParts
    library: SSPLibrary | None
    info: GalaxyInfo
    run: RunConfig

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
        call = f"reader '{getattr(reader, 'reader', type(reader).__name__)}': `load`"
        with plug_in_named(call, reader):
            found = reader.load(report) if isinstance(reader, SlabReader) else reader.load()
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
    crowding = Crowding.of(np.asarray(stars.position), run.instrument, pipeline, scale)
    deposit = choose_deposit(run.engine, run.instrument, pipeline, crowding, 0).deposit
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
    if needs_all_stars(run):
        raise ConfigError(
            f"galaxy.smoothing_length: expected 'file' for a galaxy that is read part by part, got "
            f"'{smoothing_choice(run)[0]}': distances to neighbours need all stars at once"
        )
    with reader.open_galaxy(report, team) as parts:
        info = parts.info
        if smoothing_choice(run)[0] == "file":
            info = replace(info, smoothing_length="file")
        if not info.initial_mass.startswith(MISSING):
            yield CheckedParts(parts, None, info, run)
            return
        library = team.each(lambda: library or load_ssp(run))
        info = with_birth_mass_origin(info, library, info.initial_mass.removeprefix(MISSING))
        yield CheckedParts(parts, library, info, run)


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
    """The description of a galaxy beside its particles; `source` as in `load_galaxy`."""
    run = _run_of(source)
    galaxy, info = load(run)
    found = implausible_notes(galaxy, is_at_rest=run.is_at_rest)
    return replace(info, notes=(*info.notes, *found))


def _run_of(source: ConfigSource) -> RunConfig:
    path = Path(source) if isinstance(source, str | Path) else Path()
    if not isinstance(source, str | Path) or path.suffix in SUFFIXES or not (path.suffix or path.exists()):
        run = load_config(source)
        if isinstance(run.galaxy, ComponentsReader) and run.observations is not None:
            check_one_observation(run, "a galaxy of smooth components, whose points follow the instrument")
        return run
    return load_config("quickstart", overrides={"galaxy": {"path": str(path)}, "engine.deposit": "nearest"})
