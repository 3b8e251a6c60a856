"""Training sets: thousands of cubes of random parameters from one compiled program, to files, a function or arrays."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy import ndarray

from rubix_like.arguments import check_setting_names, named_arguments, starts_anew
from rubix_like.config import RunConfig, load_config
from rubix_like.config.loading import ConfigSource
from rubix_like.config.sections.fit import FitSettings, SimulateSettings
from rubix_like.errors import ConfigError, expect_path
from rubix_like.galaxy.particles import Galaxy
from rubix_like.inference.checkpoint import claimed, versions_of
from rubix_like.inference.posterior.free_parameters import check_free
from rubix_like.inference.posterior.priors import section_of
from rubix_like.inference.request import Priors, as_section
from rubix_like.inference.simulation.parameter_draws import (
    DRAWS,
    AbstractDraws,
    GivenDraws,
    PriorDraws,
    named_in,
    read_draws,
    spanned_priors,
    words_for,
)
from rubix_like.inference.simulation.shards import Simulations, join_simulations
from rubix_like.inference.simulation.simulation_files import Manifest, open_folder, write_shard
from rubix_like.inference.simulation.simulator import (
    GalaxiesInTurn,
    Program,
    Simulated,
    SimulationModel,
    Simulator,
    Sizes,
    plan_simulations,
)
from rubix_like.runtime.arrays_on_disk import key_of
from rubix_like.runtime.memory import available_memory
from rubix_like.runtime.mesh.mesh import SAMPLE_AXIS
from rubix_like.runtime.progress import Progress, Report, progress_here
from rubix_like.runtime.registry import exits_as_errors
from rubix_like.runtime.words import counted, format_bytes

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
    """Simulations that are planned; `n_bytes`: what is kept of each."""

    request: SimulationRequest
    model: SimulationModel
    draws: AbstractDraws
    sizes: Sizes
    n_bytes: int

    def program(self, progress: Progress) -> Program:
        """Compile; ConfigError where a batch takes more memory than there is."""
        settings = self.request.settings
        key = jax.random.key(settings.seed)
        simulator = Simulator(self.model.forward, key, settings.particles == "new", settings.variance)
        with progress.step("compile", "compiling"):
            return Program(simulator, self.model.pipeline, self.draws.drawn(0, 1), self.sizes)

    def batches(self, program: Program, start: int, stop: int) -> Iterator[Simulations]:
        """The simulations `start` to `stop` (exclusive), on the devices; the next batch is computed meanwhile."""
        waiting: Simulated | None = None
        for first in range(start, stop, self.sizes.batch):
            following = program(first, self.draws.drawn(first, min(first + self.sizes.batch, stop)))
            if waiting is not None:
                yield self._made(program, first - self.sizes.batch, waiting)
            waiting = following
        if waiting is not None:
            yield self._made(program, stop - len(waiting.flux), waiting)

    def _made(self, program: Program, start: int, made: Simulated) -> Simulations:
        described = self.described(start, start + len(made.flux))
        program.check(start, described.parameters, made)
        return replace(described, flux=made.flux, variance=made.variance, truth=made.truth)

    def described(self, start: int, stop: int) -> Simulations:
        """Numbers and parameters, without cubes."""
        frame, source, number = self.model.pipeline.frame, self.model.forward.source, np.arange(start, stop)
        return Simulations(
            number=number,
            parameters=self.draws.drawn(start, stop),
            units={own.name: own.unit for own in self.model.free.parameters},
            galaxy=number % (source.n_galaxy if isinstance(source, GalaxiesInTurn) else 1),
            wavelength=frame.bins.wavelength,
            mask=np.asarray(frame.mask()),
        )

    def words(self, n_new: int, n_kept: int = 0) -> str:
        """What is done, for the screen."""
        kept = f" ({n_kept} are there already)" if n_kept else ""
        return f"simulating {counted(n_new, 'cube')} on {counted(self.model.pipeline.mesh.size, 'device')}{kept}"


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
    """
    check_setting_names(simulate, settings, SimulateSettings.model_fields)
    restart = starts_anew(restart, resume)
    if sink is not None and output is not None:
        raise ConfigError("simulate: expected sink or output, got both; leave one of them out")
    given = {"n": n, "seed": seed, "output": None if output is None else Path(expect_path(output, "output"))} | settings
    request = read_simulation_request(config, draws, priors, galaxies, given)
    progress = progress or progress_here(quiet)
    if output is None:
        work = _planned(request, progress)
        return _collected(work, progress) if sink is None else _handed_on(work, sink, progress)
    folder = request.settings.output.expanduser()
    with claimed(folder):
        return _written(_planned(request, progress), folder, progress, restart=restart, overwrite=overwrite)


def read_simulation_request(
    config: ConfigSource,
    draws: Mapping[str, Any] | None,
    priors: Priors | None,
    galaxies: Sequence[Galaxy] | None,
    given: Mapping[str, Any],
) -> SimulationRequest:
    """The settings of the configuration and of the call, joined and checked; nothing is read or computed."""
    if draws is not None and priors is not None:
        raise ConfigError("simulate: expected draws or priors, got both; leave one of them out")
    if galaxies is not None and not galaxies:
        raise ConfigError("galaxies: expected at least one galaxy, got none")
    keys = {name: value for name, value in given.items() if value is not None}
    checked_draws = None if draws is None else read_draws(draws)
    if checked_draws is not None:
        count = len(next(iter(checked_draws.values())))
        if "n" in keys and keys["n"] != count:
            raise ConfigError(f"n: expected the number of draws, {count}, got {keys['n']}; leave it out")
        keys["n"] = count
    chosen = spanned_priors(checked_draws) if checked_draws is not None else priors
    if chosen is not None:
        keys["free"] = {name: as_section(f"simulate.free.{name}", prior) for name, prior in chosen.items()}
    config = load_config(config, overrides={f"simulate.{name}": value for name, value in keys.items()})
    settings = config.simulate or SimulateSettings()
    place = DRAWS if checked_draws is not None else "fit.free" if settings.free is None else "simulate.free"
    free = settings.free if settings.free is not None else (config.fit or FitSettings()).free
    if not free:
        raise ConfigError(
            "simulate.free: expected at least one parameter with its prior, got none; e.g. "
            "simulate: {free: {observation.inclination: {uniform: [0 deg, 90 deg]}}}"
        )
    with named_in(place):
        check_free(free, with_noise=True)
    return SimulationRequest(
        load_config(config, overrides={"fit.free": free, "fit.noise_scale": None}),
        settings,
        checked_draws,
        galaxies,
        place,
    )


def _planned(request: SimulationRequest, progress: Progress) -> PlannedSimulations:
    """Plan the model of a request."""
    settings = request.settings
    with progress.step("plan", "planning the simulations") as report, named_in(request.place):
        model = plan_simulations(request.config, request.galaxies, report)
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


def _handed_on(work: PlannedSimulations, sink: Sink, progress: Progress) -> Simulations:
    """Every batch to the sink."""
    parts, n, program = [], work.request.settings.n, work.program(progress)
    with progress.step("run", work.words(n)) as report:
        for made in work.batches(program, 0, n):
            sink(made)
            parts.append(made.without_cubes())
            _tell(report, made, n)
    return join_simulations(parts)


def _collected(work: PlannedSimulations, progress: Progress) -> Simulations:
    """All simulations as arrays on the host."""
    n = work.request.settings.n
    needed, available = 2 * n * work.n_bytes, available_memory()
    if available is not None and needed > available:
        raise ConfigError(
            f"simulate.n: expected simulations that fit into memory ({format_bytes(available)}), got {n}, which take "
            f"{format_bytes(needed)}; give output=FOLDER or sink=FUNCTION, or make fewer"
        )
    parts, program = [], work.program(progress)
    with progress.step("run", work.words(n)) as report:
        for made in work.batches(program, 0, n):
            parts.append(_fetched(made))
            _tell(report, made, n)
    return join_simulations(parts)


def _fetched(made: Simulations) -> Simulations:
    """With cubes on the host."""
    cubes = {name: getattr(made, name) for name in ("flux", "variance", "truth")}
    return replace(made, **{name: None if own is None else np.asarray(own) for name, own in cubes.items()})


def _written(
    work: PlannedSimulations, folder: Path, progress: Progress, *, restart: bool, overwrite: bool
) -> Simulations:
    """All simulations into files; those that are there already are kept."""
    settings, model = work.request.settings, work.model
    forward = model.forward
    planned = forward.tables, forward.parameters
    given = isinstance(work.draws, GivenDraws)
    fingerprint = {
        "seed": str(settings.seed),
        "draws" if given else "free parameters or priors": work.draws.fingerprint(),
        "galaxy": key_of(*_leaves(forward.source)),
        "model": key_of(forward.plan, jax.tree.structure(planned), *_leaves(planned)),
        "simulate.particles or variance": repr((settings.particles, settings.variance)),
        "precision": str(jax.dtypes.canonicalize_dtype(float)),
        "version of the packages": repr(versions_of(*_MADE_BY)),
    }
    parameters = {
        own.name: {"unit": own.unit, "meaning": own.meaning, "prior": None if given else section_of(own.prior)}
        for own in model.free.parameters
    }
    config = work.request.config.to_yaml()
    manifest = Manifest(settings.n, work.sizes.shard, fingerprint, parameters, config, settings.files)
    missing = open_folder(folder, manifest, work.n_bytes, restart=restart, overwrite=overwrite)
    n_new = sum(stop - start for start, stop in map(manifest.ranges, missing))
    if missing:
        program = work.program(progress)
        with progress.step("run", work.words(n_new, manifest.n - n_new)) as report:
            for number in missing:
                parts = []
                for made in work.batches(program, *manifest.ranges(number)):
                    parts.append(_fetched(made))
                    _tell(report, made, manifest.n)
                made = join_simulations(parts)
                write_shard(made, manifest, folder, number)
    return replace(work.described(0, manifest.n), n_kept=manifest.n - n_new)


def _tell(report: Report, made: Simulations, total: int) -> None:
    report("cubes made", int(made.number[-1]) + 1, total)


def _leaves(tree: Any) -> list[ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
