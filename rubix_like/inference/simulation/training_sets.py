"""Training sets: thousands of cubes of random parameters from one compiled program, to files, a function or arrays.

The model is planned once for all their random parameters.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy import ndarray

from rubix_like.arguments import check_setting_names, named_arguments, starts_anew
from rubix_like.config import RunConfig, load_config
from rubix_like.config.loading import ConfigSource, check_one_observation, naming_observation
from rubix_like.config.sections.dust import DUST_COLUMN
from rubix_like.config.sections.fit import FitSettings, SimulateSettings
from rubix_like.cube.meta import SourceCounters
from rubix_like.engine.painter import check_counters
from rubix_like.errors import ConfigError, expect_path
from rubix_like.forward.fields.dust_column import check_dust
from rubix_like.forward.not_finite import Model, count_not_finite, explain_not_finite
from rubix_like.forward.pipeline import Pipeline, parameters_by_name, separate_observations
from rubix_like.galaxy.particles import Galaxy
from rubix_like.inference.checkpoint import claimed, host_leaves, versions_of
from rubix_like.inference.given_galaxies import GalaxiesInTurn
from rubix_like.inference.posing import PosedModel, pose_model
from rubix_like.inference.posterior.fit_model import (
    GALAXY,
    STARS,
    Forward,
    Free,
    FreeParameter,
    SyntheticSource,
    Values,
)
from rubix_like.inference.posterior.free_parameters import check_free, read_correlated
from rubix_like.inference.posterior.priors import Priors, as_sections, section_of
from rubix_like.inference.posterior.problem import Placed, everywhere, over_samples, placed
from rubix_like.inference.simulation.parameter_draws import (
    DRAWS,
    AbstractDraws,
    GivenDraws,
    ObservationDraws,
    PriorDraws,
    named_in,
    read_draws,
    spanned_priors,
    words_for,
)
from rubix_like.inference.simulation.parameter_draws import Values as DrawnValues
from rubix_like.inference.simulation.simulation_files import (
    CUBES,
    Manifest,
    Simulations,
    join_simulations,
    make_folder_of_sets,
    open_folder,
    write_shard,
)
from rubix_like.runtime.arrays_on_disk import key_of
from rubix_like.runtime.compiled_programs import held
from rubix_like.runtime.memory import available_memory, check_memory, memory_need
from rubix_like.runtime.mesh.mesh import SAMPLE_AXIS, as_dtype, own_copy
from rubix_like.runtime.progress import Progress, Report, progress_here
from rubix_like.runtime.registry import exits_as_errors
from rubix_like.runtime.words import counted, format_bytes

_NOISE, _PARTICLES = 0, 1
"""Numbers folded into the key of a simulation, for its noise and its particles."""

_LEAST = 2
"""Simulations of a device in one call, filling included: XLA unrolls a loop of one, which changes its rounding."""


class Simulated(NamedTuple):
    """The arrays of one simulation, or with one more axis in front of many: (y, x, wave)."""

    flux: Float[Array, "*n y x wave"]
    variance: Float[Array, "*n y x wave"] | None
    truth: Float[Array, "*n y x wave"] | None
    counters: dict[str, SourceCounters]


class Simulator(eqx.Module):
    """The model of all simulations; a pytree, to be passed to jitted functions as an argument.

    `key`: that of the whole set; `observation`: the number of one of several, each with independent noise;
    `new_particles`: whether each has separate random numbers for the particles of a synthetic galaxy; `variance`:
    whether that of the noise is kept.
    """

    forward: Forward
    key: PRNGKeyArray
    observation: int = eqx.field(static=True)
    new_particles: bool = eqx.field(static=True)
    variance: bool = eqx.field(static=True)

    def __call__(self, number: Int[Array, ""], values: Values) -> Simulated:
        """The cube of one simulation; all its random numbers come from the key and the number."""
        forward, key = self.model_of(number)
        observed = forward.observed(values, key)
        voxels = observed.voxels
        return Simulated(voxels.flux, voxels.variance if self.variance else None, voxels.truth, observed.counters)

    def model_of(self, number: Int[Array, ""]) -> tuple[Forward, PRNGKeyArray]:
        """The model with the particles of one simulation, and the key of its noise."""
        key = jax.random.fold_in(self.key, number)
        noise_key = jax.random.fold_in(key, _NOISE)
        if self.observation:
            noise_key = jax.random.fold_in(noise_key, self.observation)
        forward, source = self.forward, self.forward.source
        if isinstance(source, GalaxiesInTurn):
            index = number % source.n_galaxy
            rotation = None if source.alignment is None else jnp.asarray(source.alignment)[index]
            tables = replace(forward.tables, alignment=rotation)
            return replace(forward, source=source.alone(index), tables=tables), noise_key
        if isinstance(source, SyntheticSource) and self.new_particles:
            source = as_dtype(source, forward.plan.dtype)
            source = replace(source, draws=source.draws.anew(jax.random.fold_in(key, _PARTICLES)))
        return replace(forward, source=source), noise_key


class Sizes(NamedTuple):
    """How the work is cut: simulations in one call of the program, at the same time on a device, in a file."""

    batch: int
    at_once: int
    shard: int


class Program:
    """A simulator that is compiled for batches of one size on all devices of a mesh."""

    def __init__(self, simulator: Simulator, pipeline: Pipeline, example: DrawnValues, sizes: Sizes) -> None:
        """Compile; ConfigError where a batch takes more memory than there is. `example`: values of any simulations."""
        self.pipeline, self.mesh, self.sizes = pipeline, pipeline.mesh, sizes
        self.simulator = everywhere(simulator, self.mesh)
        samples = self._placed(0, {name: values[:1] for name, values in example.items()})
        leaves, structure = jax.tree.flatten((self.simulator, samples.tree, samples.real))
        arrays = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding) for leaf in leaves)
        self.compiled = _compiled(structure, arrays, self.mesh, sizes.at_once)
        check_memory(memory_need(self.compiled, self.mesh, 0), self.mesh)

    def __call__(self, start: int, values: DrawnValues) -> Simulated:
        """The simulations from number `start` on, as many as there are values: arrays on the devices, at once."""
        count = _count(values)
        samples = self._placed(start, values)
        simulated = self.compiled(self.simulator, samples.tree, samples.real)
        return simulated if len(simulated.flux) == count else jax.tree.map(lambda leaf: leaf[:count], simulated)

    def check(self, start: int, values: DrawnValues, simulated: Simulated) -> None:
        """Wait for simulations; ValueError for NaN or inf in cubes, and for particles that a cube is wrong for."""
        frame, voxels = self.pipeline.frame, (simulated.flux, simulated.variance, simulated.truth)
        bad = np.flatnonzero(count_not_finite(frame, voxels, None, simulated.counters))
        if len(bad):
            forward, key = self.simulator.model_of(jnp.asarray(start + bad[0], jnp.int32))
            galaxy, parameters = forward.at({name: row[bad[0]] for name, row in values.items()})
            model = Model(forward.plan, forward.layout, forward.tables, parameters, key)
            why = explain_not_finite(model, lambda: (galaxy,), frame.meta.get("ssp_library"))
            raise ValueError(f"simulation {start + bad[0]}: expected finite numbers, got NaN or inf: {why}")
        totals = jax.tree.map(lambda leaf: np.asarray(leaf).sum(axis=0), jax.device_get(simulated.counters))
        try:
            for name, source in zip(self.pipeline.plan.sources, self.pipeline.tables.paint, strict=True):
                check_counters(totals[name], name, own_copy(source.painter.velocity_limit))
            if DUST_COLUMN in totals:
                check_dust(totals[DUST_COLUMN])
        except ValueError as error:
            last = start + len(simulated.flux) - 1
            raise ValueError(
                f"simulations {start} to {last}: {error}; with other settings all cubes change: restart=True, or "
                f"another folder"
            ) from error

    def _placed(self, start: int, values: DrawnValues) -> Placed:
        n_row = self.mesh.shape[SAMPLE_AXIS]
        numbers = np.arange(start, start + _count(values), dtype=np.int32)
        return placed((numbers, dict(values)), self.mesh, max(self.sizes.batch, _LEAST * n_row))


def _count(values: DrawnValues) -> int:
    return len(next(iter(values.values())))


@held
def _compiled(structure: Any, arrays: tuple[Any, ...], mesh: Mesh, at_once: int) -> Any:
    """Every simulation of a batch, each device a share of them: compiled for arguments like these, and held."""

    def simulate_batch(simulator: Simulator, tree: Any, real: Any) -> Simulated:
        return over_samples(
            lambda simulator, sample: simulator(*sample), mesh, simulator, Placed(tree, real), at_once=at_once
        )

    return jax.jit(simulate_batch).lower(*jax.tree.unflatten(structure, arrays)).compile()


Sink = Callable[[Simulations], object]
"""Gets every batch, with arrays on the devices, as soon as it is computed, in the order of the numbers."""

_MADE_BY = ("rubix_like", "jax", "jaxlib", "numpy")
"""Packages that the numbers come from."""

_BATCH_BYTES, _SHARD_BYTES = 1 << 27, 1 << 28
_MOST_IN_A_BATCH, _MOST_IN_A_SHARD = 256, 4096


@dataclass(frozen=True, eq=False)
class SimulationRequest:
    """Simulations as they were asked for, checked; `draws`: the parameters, where they are given; `place`: where the
    priors are given."""

    config: RunConfig
    settings: SimulateSettings
    draws: Mapping[str, ndarray] | None
    galaxies: Sequence[Galaxy] | None
    place: str


@dataclass(frozen=True, eq=False)
class PlannedSimulations:
    """Simulations that are planned; `n_bytes`: what is kept of each; `name`, `observation`: the name and the number of
    one of several."""

    request: SimulationRequest
    model: PosedModel
    draws: AbstractDraws
    sizes: Sizes
    n_bytes: int
    name: str = ""
    observation: int = 0

    def program(self, progress: Progress) -> Program:
        """Compile; ConfigError where a batch takes more memory than there is."""
        settings = self.request.settings
        key = jax.random.key(settings.seed)
        is_new = settings.particles == "new"
        simulator = Simulator(self.model.forward, key, self.observation, is_new, settings.variance)
        with progress.step("compile", f"compiling{_of(self.name)}"):
            return Program(simulator, self.model.pipeline, self.draws.drawn(0, 1), self.sizes)

    def batches(self, program: Program, start: int, stop: int) -> Iterator[Simulations]:
        """The simulations `start` to `stop` (exclusive), on the devices; the next batch is computed meanwhile."""
        waiting: Simulated | None = None
        for first in (*range(start, stop, self.sizes.batch), stop):
            following = None
            if first < stop:
                following = program(first, self.draws.drawn(first, min(first + self.sizes.batch, stop)))
            if waiting is not None:
                described = self.described(first - len(waiting.flux), first)
                program.check(int(described.number[0]), described.parameters, waiting)
                yield replace(described, flux=waiting.flux, variance=waiting.variance, truth=waiting.truth)
            waiting = following

    def described(self, start: int, stop: int) -> Simulations:
        """Numbers and parameters, without cubes."""
        frame, source, number = self.model.pipeline.frame, self.model.forward.source, np.arange(start, stop)
        x, y = frame.footprint.centres()
        return Simulations(
            number=number,
            parameters=self.draws.drawn(start, stop),
            units={parameter.name: parameter.unit for parameter in self.model.free.parameters},
            galaxy=number % (source.n_galaxy if isinstance(source, GalaxiesInTurn) else 1),
            wavelength=frame.bins.wavelength,
            mask=np.asarray(frame.mask()),
            x=x,
            y=y,
        )

    def words(self, n_new: int, n_kept: int = 0) -> str:
        """The words for the screen."""
        kept = f" ({n_kept} are there already)" if n_kept else ""
        devices = counted(self.model.pipeline.mesh.size, "device")
        return f"simulating {counted(n_new, 'cube')}{_of(self.name)} on {devices}{kept}"


@named_arguments
@exits_as_errors()
def simulate(
    config: ConfigSource,
    draws: Mapping[str, Any] | None = None,
    priors: Priors | None = None,
    n: int | None = None,
    seed: int | None = None,
    *,
    galaxies: Sequence[Galaxy] | None = None,
    sink: Sink | None = None,
    output: str | Path | None = None,
    resume: bool | None = None,
    restart: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    quiet: bool | None = None,
    **settings: Any,
) -> Simulations:
    """Cubes of random parameters from one compiled program, on all devices: a training set.

    The parameters are drawn from `priors` (as `free` of a fit; those of the noise may be among them), or they are
    `draws`: arrays by name with one row per cube, in the unit of the parameter. Without either the priors are those of
    `simulate.free`, or of `fit.free`. `galaxies` are observed in turn instead of the configuration's; `settings` stand
    for other keys of the section `simulate`. Cube number i depends on the seed and on i alone, whatever is computed
    with it and on whichever device.

    With `output` the cubes go into files of that folder, and a call that was ended goes on when it is called again;
    with `sink` every batch goes to that function; else all are returned. `restart=True` starts anew (`resume=False`
    until version 0.4); a set of another configuration is replaced only with it or with `overwrite`. `progress` and
    `quiet` as in `fit`. Raises ConfigError, ValueError or OSError for settings, galaxies or places that cannot be used.
    Several observations are for `simulate_observations`.
    """
    check_setting_names(simulate, settings, SimulateSettings.model_fields)
    restart = starts_anew(restart, resume, output)
    if sink is not None and output is not None:
        raise ConfigError("simulate: expected sink or output, got both; leave one of them out")
    checked = load_config(config)
    _check_not_joined(checked)
    check_one_observation(checked, "a training set", "rubix_like.simulate_observations")
    given = {"n": n, "seed": seed, "output": None if output is None else Path(expect_path(output, "output"))} | settings
    request = read_simulation_request(config, draws, priors, galaxies, given)
    progress = progress or progress_here(quiet)
    if output is None:
        work = _planned(request, progress)
        if sink is None:
            _check_room([work])
            return _in_memory(work, _fetched, progress)

        def hand_on(batch: Simulations) -> Simulations:
            sink(batch)
            return batch.without_cubes()

        return _in_memory(work, hand_on, progress)
    folder = request.settings.output.expanduser()
    with claimed(folder):
        work = _planned(request, progress)
        return _written(work, folder, progress, *_opened(work, folder, restart=restart, overwrite=overwrite))


@named_arguments
@exits_as_errors()
def simulate_observations(
    config: ConfigSource,
    draws: Mapping[str, Any] | None = None,
    priors: Priors | None = None,
    n: int | None = None,
    seed: int | None = None,
    *,
    galaxies: Sequence[Galaxy] | None = None,
    output: str | Path | None = None,
    restart: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    quiet: bool | None = None,
    **settings: Any,
) -> dict[str, Simulations]:
    """A training set of each of several `observations`, or arms apart, by name: simulation i of each shows the same
    galaxy with the same parameters, and independent noise.

    A name such as `observation.inclination` holds for all observations that have it. `observations.NAME.KEY` holds for
    one; parameters of an instrument, noise or systematic errors must be given so. With `output` each set goes into a
    folder of its name there, which `load_simulations` reads; else all are returned. The other arguments are those of
    `simulate`. Raises as `simulate`, before any cube is computed.
    """
    check_setting_names(simulate_observations, settings, SimulateSettings.model_fields)
    progress, chosen = progress or progress_here(quiet), load_config(config)
    given = {"n": n, "seed": seed} | settings
    works = _planned_together(chosen, draws, priors, galaxies, given, progress)
    if output is None:
        _check_room(list(works.values()))
        return {name: _in_memory(work, _fetched, progress) for name, work in works.items()}
    folder = Path(expect_path(output, "output")).expanduser()
    with claimed(folder):
        make_folder_of_sets(folder)
        opened = {
            name: _opened(work, folder / name, restart=restart, overwrite=overwrite) for name, work in works.items()
        }
        return {name: _written(works.pop(name), folder / name, progress, *opened[name]) for name in opened}


def _planned_together(
    config: RunConfig,
    draws: Mapping[str, Any] | None,
    priors: Priors | None,
    galaxies: Sequence[Galaxy] | None,
    given: Mapping[str, Any],
    progress: Progress,
) -> dict[str, PlannedSimulations]:
    """The simulations of each observation, by name, of the same draws."""
    _check_not_joined(config)
    several = separate_observations(config)
    if not several:
        raise ConfigError("observations: expected some by name, got null; use rubix_like.simulate, for one observation")
    _check_given_once(draws, priors)
    fit, section = config.fit or FitSettings(), config.simulate or SimulateSettings()
    free: Mapping[str, Any] = fit.free if section.free is None else section.free
    if draws is not None or priors is not None:
        free = draws or priors or {}
    of_all = {name for name in free if name.startswith((GALAXY, STARS))}
    known = {name: {*run.numbers(), *of_all} for name, (_, run) in several.items()}
    names = parameters_by_name(known, {name: name for name in free})
    _check_shares(free, names)
    works = dict[str, PlannedSimulations]()
    for name, (observation, run) in several.items():
        values = {key: free[full] for key, full in names[name].items()}
        groups = _groups_of(fit, names[name])
        alone = load_config(run, overrides={"simulate.free": None} | ({"fit.correlated": groups} if config.fit else {}))
        with naming_observation(observation):
            drawn_or_given = (None, values) if draws is None else (values, None)
            request = read_simulation_request(alone, *drawn_or_given, galaxies, given)
            works[name] = replace(_planned(request, progress, name), name=name, observation=len(works))
    lengths = {name: work.request.settings.n for name, work in works.items()}
    if len(set(lengths.values())) > 1:
        rows = ", ".join(f"{count} for {name}" for name, count in lengths.items())
        raise ConfigError(f"draws: expected as many rows for each observation, got {rows}")
    if draws is not None:
        return works
    parameters = dict[str, FreeParameter]()
    for name, work in works.items():
        for parameter in work.model.free.parameters:
            full = names[name][parameter.name]
            parameters[full] = replace(parameter, name=full)
    every = tuple(parameters[full] for full in free)
    seed = next(iter(works.values())).request.settings.seed
    drawn = PriorDraws(Free(every, read_correlated(fit.correlated, every)), seed)
    return {name: replace(work, draws=ObservationDraws(drawn, names[name])) for name, work in works.items()}


def _check_shares(free: Mapping[str, Any], names: Mapping[str, Mapping[str, str]]) -> None:
    """Raise ConfigError for a parameter that is no observation's, and for an observation that has none; `names`: of
    each observation, by its names."""
    taken = set[str]()
    for name, by_key in names.items():
        taken |= set(by_key.values())
        if not by_key:
            raise ConfigError(
                f"simulate.free: expected a parameter that the observation {name} has, too, got only "
                f"{', '.join(free) or 'none'}; add one that holds for all, e.g. observation.inclination"
            )
    again = [full for full in free if full not in taken]
    if again:
        raise ConfigError(
            f"simulate.free.{again[0]}: expected it once for each observation, got it again for all; leave it out"
        )


def _check_given_once(draws: Mapping[str, Any] | None, priors: Priors | None) -> None:
    if draws is not None and priors is not None:
        raise ConfigError("simulate: expected draws or priors, got both; leave one of them out")


def _check_not_joined(config: RunConfig) -> None:
    if config.instrument.join and config.observations is None:
        raise ConfigError(
            "instrument.join: expected false for training sets, got true; there is a set for each arm, by "
            "rubix_like.simulate_observations"
        )


def _groups_of(fit: FitSettings, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """The correlated priors of the parameters that an observation has, by its names."""
    own_names = {full: key for key, full in names.items()}
    return [
        {**group.model_dump(), "parameters": [own_names[full] for full in group.parameters]}
        for group in fit.correlated
        if all(full in own_names for full in group.parameters)
    ]


def read_simulation_request(
    config: ConfigSource,
    draws: Mapping[str, Any] | None,
    priors: Priors | None,
    galaxies: Sequence[Galaxy] | None,
    given: Mapping[str, Any],
) -> SimulationRequest:
    """The settings of the configuration and of the call, joined and checked; nothing is read or computed."""
    _check_given_once(draws, priors)
    if galaxies is not None and not galaxies:
        raise ConfigError("galaxies: expected at least one galaxy, got none")
    keys = {name: value for name, value in given.items() if value is not None}
    checked_draws = None if draws is None else read_draws(draws)
    if checked_draws is not None:
        count, priors = _count(checked_draws), spanned_priors(checked_draws)
        if "n" in keys and keys["n"] != count:
            raise ConfigError(f"n: expected the number of draws, {count}, got {keys['n']}; leave it out")
        keys["n"] = count
    if priors is not None:
        keys["free"] = as_sections("simulate.free", priors)
    config = load_config(config, overrides={f"simulate.{name}": value for name, value in keys.items()})
    settings = config.simulate or SimulateSettings()
    place, free = "simulate.free", settings.free
    if free is None:
        place, free = "fit.free", (config.fit or FitSettings()).free
    if checked_draws is not None:
        place = DRAWS
    if not free:
        raise ConfigError(
            "simulate.free: expected at least one parameter with its prior, got none; e.g. "
            "simulate: {free: {observation.inclination: {uniform: [0 deg, 90 deg]}}}"
        )
    with named_in(place):
        check_free(free, with_noise=True)
    of_fit = load_config(config, overrides={"fit.free": free, "fit.noise_scale": None})
    return SimulationRequest(of_fit, settings, checked_draws, galaxies, place)


def _of(name: str) -> str:
    return f" of {name}" if name else ""


def _planned(request: SimulationRequest, progress: Progress, name: str = "") -> PlannedSimulations:
    """Plan the model of a request."""
    settings = request.settings
    with progress.step("plan", f"planning the simulations{_of(name)}") as report, named_in(request.place):
        model = pose_model(request.config, request.galaxies, report)
    for note in model.notes:
        logging.getLogger("rubix_like").warning(words_for(request.place, note))
    draws = GivenDraws(request.draws) if request.draws is not None else PriorDraws(model.free, settings.seed)
    frame, plan, noise = model.pipeline.frame, model.pipeline.plan, request.config.noise
    n_array = 1 + (noise is not None and request.settings.variance) + request.config.keeps_truth
    n_bytes = frame.n_y * frame.n_x * plan.n_wave * np.dtype(plan.dtype).itemsize * n_array
    n_row = model.pipeline.mesh.shape[SAMPLE_AXIS]
    batch = settings.batch or min(max(_BATCH_BYTES // n_bytes, 1), _MOST_IN_A_BATCH)
    batch = min(-(-batch // n_row) * n_row if settings.batch is None else batch, settings.n)
    shard = settings.shard or min(max(_SHARD_BYTES // n_bytes, 1), _MOST_IN_A_SHARD)
    return PlannedSimulations(request, model, draws, Sizes(batch, settings.at_once, shard), n_bytes)


def _check_room(works: Sequence[PlannedSimulations]) -> None:
    """Raise ConfigError where all simulations do not fit into memory."""
    n = works[0].request.settings.n
    needed, available = 2 * n * sum(work.n_bytes for work in works), available_memory()
    if available is not None and needed > available:
        raise ConfigError(
            f"simulate.n: expected simulations that fit into memory ({format_bytes(available)}), got {n}, which take "
            f"{format_bytes(needed)}; give output=FOLDER or sink=FUNCTION, or make fewer"
        )


def _in_memory(work: PlannedSimulations, take: Callable[[Simulations], Simulations], progress: Progress) -> Simulations:
    """All simulations, without files; `take`: what is kept of a batch."""
    n, program = work.request.settings.n, work.program(progress)
    with progress.step("run", work.words(n)) as report:
        return _joined(work, program, (0, n), take, report)


def _joined(
    work: PlannedSimulations,
    program: Any,
    ends: tuple[int, int],
    take: Callable[[Simulations], Simulations],
    report: Report,
) -> Simulations:
    """The simulations between two numbers, batch by batch."""
    parts = []
    for batch in work.batches(program, *ends):
        parts.append(take(batch))
        report("cubes made", int(batch.number[-1]) + 1, work.request.settings.n)
    return join_simulations(parts)


def _fetched(batch: Simulations) -> Simulations:
    """With cubes on the host."""
    cubes = {name: getattr(batch, name) for name in CUBES}
    return replace(batch, **{name: None if cube is None else np.asarray(cube) for name, cube in cubes.items()})


def _opened(work: PlannedSimulations, folder: Path, *, restart: bool, overwrite: bool) -> tuple[Manifest, list[int]]:
    """Make the folder ready: its manifest, and the numbers of the files that are missing."""
    settings, model, forward = work.request.settings, work.model, work.model.forward
    planned = forward.tables, forward.parameters
    given = isinstance(work.draws, GivenDraws)
    fingerprint = {
        "seed": str(settings.seed),
        "draws" if given else "free parameters or priors": work.draws.fingerprint(),
        "galaxy": key_of(*host_leaves(forward.source)),
        "model": key_of(forward.plan, jax.tree.structure(planned), *host_leaves(planned)),
        "simulate.particles or variance": repr((settings.particles, settings.variance)),
        "precision": str(jax.dtypes.canonicalize_dtype(float)),
        "version of the packages": repr(versions_of(*_MADE_BY)),
    }
    if work.observation:
        fingerprint["place of the observation among all"] = str(work.observation)
    parameters = {
        parameter.name: {
            "unit": parameter.unit,
            "meaning": parameter.meaning,
            "prior": None if given else section_of(parameter.prior),
        }
        for parameter in model.free.parameters
    }
    config = work.request.config.to_yaml()
    manifest = Manifest(settings.n, work.sizes.shard, fingerprint, parameters, config, settings.files)
    return manifest, open_folder(folder, manifest, work.n_bytes, restart=restart, overwrite=overwrite)


def _written(
    work: PlannedSimulations, folder: Path, progress: Progress, manifest: Manifest, missing: Sequence[int]
) -> Simulations:
    """All simulations into files; those that are there already are kept."""
    n_new = sum(stop - start for start, stop in map(manifest.ranges, missing))
    if missing:
        program = work.program(progress)
        with progress.step("run", work.words(n_new, manifest.n - n_new)) as report:
            for number in missing:
                shard = _joined(work, program, manifest.ranges(number), _fetched, report)
                write_shard(shard, manifest, folder, number)
    return replace(work.described(0, manifest.n), n_kept=manifest.n - n_new)
