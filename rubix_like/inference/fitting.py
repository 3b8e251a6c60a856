"""Whole fits and samplings: configuration and data in, results and their files out.

A fit gives the best values and what they are worth; a sampling begins there, and gives draws from the posterior and
what they predict. A second search has more quadrature points of smooth components, where those that were chosen are too
few.
"""

import dataclasses
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.arguments import check_setting_names, named_arguments, starts_anew
from rubix_like.config import RunConfig, load_config
from rubix_like.config.loading import ConfigSource
from rubix_like.config.readers.components import ComponentsReader
from rubix_like.config.sections.fit import FitSettings, SamplingSettings
from rubix_like.config.yaml_files import parse_yaml
from rubix_like.cube.cube import Cube
from rubix_like.errors import ConfigError, nearest_words
from rubix_like.forward.pipeline import Pipeline
from rubix_like.galaxy.galaxy_model import AbstractGalaxyModel
from rubix_like.galaxy.particles import Galaxy
from rubix_like.inference.best_fit import (
    BestFit,
    Evaluated,
    cubes_of,
    describe_best,
    evaluate,
    over_cells,
    quality_of,
    set_alone,
    with_values,
)
from rubix_like.inference.checkpoint import (
    advance,
    claimed,
    fingerprint_of,
    kept_notes,
    kept_points,
    load_checkpoint,
    save,
    versions,
)
from rubix_like.inference.checks import notes as diagnosis
from rubix_like.inference.checks.finite_points import (
    AT_FIRST,
    MOST_PARTS,
    MOST_TIMES,
    Discreteness,
    QuadratureError,
    in_parts,
    measure_discreteness,
    measure_quadrature,
    notes_on_discreteness,
    parts_wanted,
    with_discreteness,
)
from rubix_like.inference.checks.notes import (
    ELSEWHERE,
    check_effects,
    check_start,
    notes_on_search,
    notes_on_silence,
)
from rubix_like.inference.checks.uncertainties import (
    Edges,
    Evidence,
    edges_of,
    from_information,
    inflated,
    normalisation_at,
    notes_on_edges,
    solves_for_populations,
)
from rubix_like.inference.checks.verdict import Quality
from rubix_like.inference.populations.populations import Populations, notes_on_masses, with_solved_weights
from rubix_like.inference.posing import pose
from rubix_like.inference.posterior.fit_model import ComponentsSource, Free, SyntheticSource
from rubix_like.inference.posterior.model_error import with_model_error
from rubix_like.inference.posterior.posterior import Posterior, group_of, losses_at
from rubix_like.inference.posterior.priors import Priors
from rubix_like.inference.posterior.problem import Given, Problem, models_at_once, with_rows
from rubix_like.inference.request import Data, Request, one_galaxy, read_request
from rubix_like.inference.results.results import (
    FitResult,
    ResultFiles,
    SampleResult,
    Searches,
    SetResult,
    check_results,
    flat_values,
)
from rubix_like.inference.samplers.convergence import convergence_of, notes_on_sampling, trouble_of_chains
from rubix_like.inference.samplers.predictive import Predictive, notes_on_checks, predict
from rubix_like.inference.samplers.samplers import AbstractSampler, Sampled, find_sampler, make_sampler
from rubix_like.inference.search.library_cells import CellsSeen
from rubix_like.inference.search.optimisers import Status
from rubix_like.inference.search.search import search
from rubix_like.inference.search.search_state import AS_LIKELY, SearchState
from rubix_like.inference.solved_populations import (
    has_free_strength,
    populations_at,
    with_known_strength,
    with_strength,
)
from rubix_like.runtime.arrays_on_disk import key_of
from rubix_like.runtime.compiled_programs import programs_kept
from rubix_like.runtime.files.outputs import check_separate, with_addition
from rubix_like.runtime.files.writers import FIT, SAMPLES
from rubix_like.runtime.notes import WARNING, Note, as_notes
from rubix_like.runtime.progress import Progress, progress_here, silent
from rubix_like.runtime.registry import exits_as_errors
from rubix_like.runtime.words import counted, listed

_APART = 0.02
"""Difference of a latent, in its prior's standard deviations, from which on two ends of starts are two places."""


def chooses_points(request: Request) -> bool:
    """Whether the numbers of points are ours to choose: those of a configuration's components that says none."""
    config = request.model
    return (
        isinstance(config, RunConfig) and isinstance(config.galaxy, ComponentsReader) and config.galaxy.points is None
    )


def begun_with_few(request: Request, galaxy: Given | None) -> Request:
    """The request as its search begins: with few quadrature points where none are set; more are added at the end."""
    return with_points(request, AT_FIRST) if galaxy is None and chooses_points(request) else request


def points_of(config: RunConfig) -> int | None:
    """The number of points of every component, where the configuration has one."""
    return config.galaxy.points if isinstance(config.galaxy, ComponentsReader) else None


def with_points(request: Request, number: int) -> Request:
    """The request with so many points of every component."""
    if isinstance(request.model, Pipeline) or not isinstance(request.config.galaxy, ComponentsReader):
        raise TypeError("expected a configuration of components, got another galaxy")
    galaxy = request.config.galaxy.model_copy(update={"points": number})
    config = request.config.model_copy(update={"galaxy": galaxy})
    return dataclasses.replace(request, config=config, model=config)


def like_fitted(request: Request, fitted: FitResult) -> Request:
    """The request with as many points as the fit that it begins at ended with."""
    if not chooses_points(request):
        return request
    points = points_of(load_config(parse_yaml(fitted.config, "the configuration of `fitted`")))
    return request if points is None else with_points(request, points)


def places_of(found: SearchState, unsure: float = 0.0) -> Float[ndarray, "start latent"]:
    """Places where starts ended that fit almost as well as the best one, which is the first; each place once.
    `unsure`: by how much losses may be off."""
    near = np.flatnonzero(found.converged & (found.loss - found.loss[found.best] <= AS_LIKELY + unsure))
    places = [found.latent[found.best]]
    for number in near[np.argsort(found.loss[near])]:
        latent = found.latent[number]
        if all(np.abs(latent - place).max() > _APART for place in places):
            places.append(latent)
    return np.stack(places)


FIRST_STEP: str = "first step"
"""Among the processor times of a fit's progress: from the end of `compile` to the end of the first step."""


class Best(NamedTuple):
    """The end of a search: the request and the problem that it was of, the cells of the SSP library that were seen, and
    the error of the quadrature there, where it was measured."""

    request: Request
    problem: Problem
    found: SearchState
    cells: CellsSeen
    error: QuadratureError | None = None

    @property
    def latent(self) -> Float[ndarray, " latent"]:
        """The best latents."""
        return self.found.latent[self.found.best]


class SearchInterrupted(KeyboardInterrupt):
    """A search that was interrupted: at which step, and the best place so far, where there is one."""

    def __init__(self, words: str, best: Best | None) -> None:
        KeyboardInterrupt.__init__(self, words)
        self.best = best


@named_arguments
@exits_as_errors()
def fit(
    config_or_pipeline: ConfigSource | Pipeline,
    data: Data | None = None,
    free: Priors | None = None,
    *,
    galaxy: Galaxy | SyntheticSource | ComponentsSource | None = None,
    model: AbstractGalaxyModel | None = None,
    output: str | Path | None = None,
    resume: bool | None = None,
    restart: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    quiet: bool | None = None,
    **settings: Any,
) -> FitResult:
    """Maximise the posterior of free parameters given an observed cube: the best values with their covariance.

    `data` and `free` stand for those of the configuration's section `fit`, `settings` for any others of it (windows,
    polynomial, noise_scale, optimiser, starts, ...). A pipeline must be on the data's grid, and its `galaxy` be given.
    With `output` the result goes into that file (.h5), model and residuals beside it, and so do checkpoints, from which
    a fit that was ended goes on when it is called again; `restart=True` starts anew (`resume=False` until version
    0.4). A file there of another configuration or program is replaced only with `overwrite`. Switch 64-bit numbers on
    in JAX.
    Compiled programs are kept on disk, as those of the command are, unless JAX has a cache already.
    The steps are shown in a notebook and on a terminal; `quiet=True` shows nothing, `quiet=False` shows them also in
    the log of a job; a `progress` takes them in place of `quiet`.
    Raises ConfigError, ValueError or OSError for settings, data or places that cannot be used.
    """
    check_setting_names(fit, settings, FitSettings.model_fields)
    restart = starts_anew(restart, resume, output)
    galaxy = one_galaxy(galaxy, model)
    request = read_request(config_or_pipeline, data, free, output, settings, galaxy)
    progress = progress or progress_here(quiet)
    if output is None:
        with programs_kept():
            return _fit(request, galaxy, progress, None, restart=True)
    files = ResultFiles.of_fit(request.settings.output)
    check_separate(files.places(request.sets), request.files(config_or_pipeline), "fit.output")
    files.check()
    name = request.config.output.configuration
    check_results(FIT, files.result, files.cubes_of(request.sets), name, "fit.output", overwrite=overwrite)
    with claimed(files.result, *files.places(request.sets)), programs_kept():
        return _fit(request, galaxy, progress, files, restart=restart)


def _fit(
    request: Request,
    galaxy: Given | None,
    progress: Progress,
    files: ResultFiles | None,
    *,
    restart: bool,
) -> FitResult:
    """Pose, search, describe, write; an interrupted search leaves its checkpoints, and the best fit so far."""
    problem = pose_request(begun_with_few(request, galaxy), galaxy, progress, None if files is None else files.check)
    problem = with_effects_checked(problem, progress)
    places = Searches() if files is None else files.searches
    if restart:
        forget_searches(places.files)
    try:
        best = find_best(request, problem, galaxy, places, progress)
        result = make_result(best, progress)
    except SearchInterrupted as stop:
        raise KeyboardInterrupt(_left_behind(stop, files, progress)) from None
    except KeyboardInterrupt:
        if not any(place.exists() for place in places.files):
            raise
        words = "the fit stopped; its search is kept, and the same command goes on from there"
        raise KeyboardInterrupt(words) from None
    if files is not None:
        with progress.step("write", f"writing {files.result}"):
            files.write(result)
    return result


def _left_behind(stop: SearchInterrupted, files: ResultFiles | None, progress: Progress) -> str:
    """Write the best fit of a search that was interrupted, where it has files; the sentence on where it stopped and
    what goes on. A second interruption leaves the checkpoint alone."""
    if files is None:
        return str(stop)
    words = "the same command goes on from there"
    if stop.best is None:
        return f"{stop}; {words}"
    try:
        is_finished = int(Status.INTERRUPTED) not in FitResult.read(files.result).starts.status
    except (FileNotFoundError, ValueError):
        is_finished = False
    if is_finished:
        return f"{stop}; {files.result} still has the result of before, and {words}"
    progress.tell(f"{stop}; the best fit so far is being written (interrupt again to leave that out)")
    try:
        files.write(make_result(stop.best, progress), goes_on=True)
    except KeyboardInterrupt:
        return f"{stop}; {words}"
    return f"{stop}; the best fit so far is in {files.result}, and {words}"


def pose_request(
    request: Request,
    galaxy: Given | None,
    progress: Progress,
    check: Callable[[tuple[int, int, int]], None] | None,
) -> Problem:
    """The problem of a request, its model planned; `check`: what the shape of the data's cube must pass before."""
    n_start = models_at_once(device_count(request.model), request.settings.starts)
    return pose(request, galaxy, progress, n_start, check)


def forget_searches(places: Iterable[Path]) -> None:
    """Remove checkpoints of what is not to go on."""
    for place in places:
        place.unlink(missing_ok=True)


def find_best(request: Request, problem: Problem, galaxy: Given | None, places: Searches, progress: Progress) -> Best:
    """The end of the search, of one with more quadrature points where the data ask for them, and with a model error of
    one that takes account of it. Searches that have checkpoints go on."""
    if places.first is not None and not places.first.exists():
        forget_searches(places.files)
    best = _search(begun_with_few(request, galaxy), problem, places.first, progress)
    if galaxy is None and chooses_points(request):
        best = _with_enough_points(best, places, progress)
    last = best.problem
    if last.settings.model_error is None and not has_free_strength(last.posterior.forward):
        return best
    notes = notes_on_search(last.posterior.free, best.found, best.latent, None)
    problem = dataclasses.replace(last, notes=(*last.notes, *notes))
    problem = add_model_error(problem, best.latent, progress)
    return _search(best.request, problem, places.second, progress)


def _with_enough_points(best: Best, places: Searches, progress: Progress) -> Best:
    """The end of the search with as many quadrature points as the data need: of the one with few, or of one with more
    from where that ended, until they err by less than is allowed at its end."""
    best, n_part = _with_error(best, progress), 1
    coarse = best
    while best.error is not None and best.error.wanted is not None and n_part < MOST_TIMES:
        n_part *= 2
        if n_part == 2:
            with progress.step("quadrature", "number of quadrature points that the data need"):
                n_part = parts_wanted(coarse.problem, coarse.latent)
        best = _with_error(_search_finer(n_part, coarse, best, places, progress), progress)
    return best


def _with_error(best: Best, progress: Progress) -> Best:
    with progress.step("quadrature", "error of the quadrature points"):
        return best._replace(error=measure_quadrature(best.problem, best.latent))


def _search_finer(n_part: int, coarse: Best, last: Best, places: Searches, progress: Progress) -> Best:
    """The search with more points, from where the last one ended; the first search's cells of the library serve it."""
    if coarse.error is None:
        raise ValueError("expected the error of the first search's points, got none")
    points = AT_FIRST * n_part
    request = with_points(coarse.request, points)
    text = (
        f"the quadrature points chosen at first ({coarse.error.points}) erred by {coarse.error.largest:.2g} of the "
        f"noise at the best fit; the fit was repeated from there with galaxy.points: {points}"
    )
    note = Note("quadrature.more_points", text)
    problem = coarse.problem
    if n_part > MOST_PARTS or solves_for_populations(problem.posterior):  # weights of parts do not add up
        problem = pose_request(request, None, progress, None)
    else:
        problem = dataclasses.replace(problem, posterior=in_parts(problem.posterior, n_part))
    if places.finer is not None and places.finer.exists() and kept_points(places.finer) != points:
        places.finer.unlink()
    starts, others = _finer_places(problem.posterior, last.found)
    known = (before for before in coarse.problem.notes if before not in problem.notes)
    settings = problem.settings.model_copy(update={"starts": len(starts), "start": {}})
    problem = dataclasses.replace(problem, settings=settings, start=None, notes=(*problem.notes, *known, note))
    try:
        further = _search(request, problem, places.finer, progress, starts, points).found
    except SearchInterrupted as stop:
        if stop.best is not None:
            raise
        words = f"the fit stopped before its first step with {points} quadrature points"
        reached = last.found.with_status({last.found.best: Status.INTERRUPTED})
        raise SearchInterrupted(words, last._replace(found=reached)) from None
    change = float(further.trace_loss[0, 0] - last.found.loss[last.found.best])
    found = last.found.continued_by(further, change, others)
    coarse.cells.hold(np.asarray(coarse.latent, np.float64))
    return Best(request, problem, found, coarse.cells)


def _finer_places(
    posterior: Posterior, found: SearchState
) -> tuple[Float[ndarray, "start latent"], list[tuple[Float[ndarray, " latent"], float]]]:
    """Places where a search with more points begins: those of the last one whose losses, with these points, are almost
    as low as that at the best, give or take by how much that has changed; and other places with their losses."""

    def loss(latent: Float[ndarray, " latent"]) -> float:
        return float(np.asarray(losses_at(posterior, group_of(posterior, latent)))[0])

    best = found.latent[found.best]
    lowest = loss(best)
    change = abs(lowest - float(found.loss[found.best]))
    others = sorted(((loss(other), other) for other in places_of(found, 2 * change)[1:]), key=lambda pair: pair[0])
    highest = lowest + AS_LIKELY + change
    starts = np.stack([best, *(latent for found_loss, latent in others if found_loss <= highest)])
    return starts, [(latent, found_loss) for found_loss, latent in others if found_loss > highest]


def add_model_error(problem: Problem, best: ndarray, progress: Progress) -> Problem:
    """The problem with what the model's particle noise does about the best fit, where the settings ask for it, or with
    the strength of the smoothness prior of populations that the data ask for."""
    posterior = problem.posterior
    if has_free_strength(posterior.forward):
        with progress.step("smoothness", "strength of the smoothness prior of the populations"):
            posterior = with_strength(posterior, jnp.asarray(best))
        settings = problem.settings.model_copy(update={"starts": 1})
        return dataclasses.replace(problem, posterior=posterior, start=jnp.asarray(best), settings=settings)
    if problem.settings.model_error is None:
        return problem
    with progress.step("model error", f"{problem.settings.model_error.draws} models with other base draws"):
        return with_model_error(problem, jnp.asarray(best))


def with_effects_checked(problem: Problem, progress: Progress) -> Problem:
    """The problem with notes on values without effect; raises ConfigError or ValueError where a search is in vain.

    The programs that hold the whole model are compiled here, or found on disk.
    """
    with progress.step("compile", "compiling the model") as report:
        notes = check_effects(problem.posterior, report)
        if problem.start is not None:
            check_start(problem.posterior, problem.start)
    return dataclasses.replace(problem, notes=(*problem.notes, *notes))


def _search(
    request: Request,
    problem: Problem,
    place: Path | None,
    progress: Progress,
    starts: Float[ndarray, "start latent"] | None = None,
    points: int | None = None,
) -> Best:
    """The search's end, with the cells of the SSP library that were seen; with a place for them it leaves checkpoints,
    and goes on from one that is there. `points`: more quadrature points than at first."""
    fingerprint = {} if place is None else fingerprint_of(problem)
    begun = None if place is None else load_checkpoint(place, fingerprint, SearchState.from_arrays)

    def keep(snapshot: SearchState) -> None:
        if place is not None:
            save(place, snapshot, fingerprint, points=points)

    cells, report = CellsSeen(), silent
    latest: deque[SearchState] = deque(maxlen=1)

    def look(what: str, done: int, total: int) -> None:
        report(what, done, total)

    def see(snapshot: SearchState) -> None:
        latest.append(snapshot)
        running = np.flatnonzero(snapshot.status == Status.RUNNING)
        if len(running):
            best = running[np.argmin(snapshot.loss[running])]
            others = f" and {len(running) - 1} others" if len(running) > 1 else ""
            what = f"start {best + 1}{others} of {len(snapshot.loss)}, {snapshot.n_ended} ended, "
            what += f"loss {snapshot.loss[best]:.7g}, |gradient| {snapshot.gradient_norm[best]:.2g}, step"
            report(what, int(snapshot.n_step[best]), problem.settings.optimiser.steps)

    steps = _timed(search(problem, begun, starts, cells, look), progress)
    if begun is None and starts is None:
        with progress.step("starts", f"choosing {counted(problem.settings.starts, 'start')}") as report:
            steps = itertools.chain([next(steps)], steps)
    again = "" if begun is None else f", going on after {counted(int(begun.n_step.sum()), 'step')}"
    finer = "" if points is None else f" with {points} quadrature points"
    count = counted(problem.posterior.free.n_latent, "number")
    with progress.step("fit", f"fitting {count}{finer}{again}") as report:
        try:
            return Best(request, problem, advance(steps, keep, see), cells)
        except ValueError:  # nothing came of any start: another try needs other settings
            forget_searches([] if place is None else [place])
            raise
        except (KeyboardInterrupt, SystemExit) as error:
            if not latest:
                raise
            found, words = latest[0], "the fit stopped before its first step"
            if (found.n_step > 0).any():
                last = int(np.flatnonzero(found.n_step > 0)[-1])
                words = (
                    f"the fit stopped after step {found.n_step[last]} of start {last + 1} of {len(found.loss)} (lowest "
                    f"loss {found.loss.min():.7g})"
                )
            if isinstance(error, SystemExit):
                progress.tell(words + ("" if place is None else "; the same command goes on from there"))
                raise
            running = np.flatnonzero(found.status == Status.RUNNING)
            found = found.with_status(dict.fromkeys(running.tolist(), Status.INTERRUPTED))
            best = Best(request, problem, found, cells) if np.isfinite(found.loss[found.best]) else None
            raise SearchInterrupted(words, best) from None


def _timed(steps: Iterator[SearchState], progress: Progress) -> Iterator[SearchState]:
    """The snapshots, unchanged; keeps the processor time up to the first step, with that of choosing the starts."""
    begun = time.process_time()
    for number, snapshot in enumerate(steps):
        if number == 1:
            progress.processor.setdefault(FIRST_STEP, time.process_time() - begun)
        yield snapshot


def make_result(end: Best, progress: Progress) -> FitResult:
    """The result of a fit: all that is known about the best end of a search."""
    if end.error is None and isinstance(end.problem.posterior.forward.source, ComponentsSource):
        end = _with_error(end, progress)
    problem, best, error = end.problem, end.latent, end.error
    free = problem.posterior.free
    with progress.step("uncertainties", "uncertainties of the best values") as report:
        troubles = (diagnosis.trouble_of(end.found), "" if error is None else error.trouble)
        described = describe_best(problem, best, " and ".join(filter(None, troubles)), end.cells)
        edges = edges_of(problem.posterior, free, best, described.laplace)
        grain = measure_discreteness(problem, described.laplace, report)
        reduced = described.quality.reduced
        factor = float(np.sqrt(reduced)) if problem.settings.inflate_sigma and reduced > 1 else 1.0
        normal, covariance = with_discreteness(inflated(described.laplace, factor), grain)
        sigma = np.full(free.n_latent, np.nan) if covariance is None else np.sqrt(np.diag(covariance))
        sigma[edges.index] = np.nan
        values = np.asarray(free.flat(best))
        populations, galaxy = _populations(problem, best, described.evaluated.galaxy)
        (model, residual), sets = _result_cubes(problem, described.evaluated, values, sigma)
        return FitResult(
            free=free,
            values=free.split(values),
            sigma=free.split(sigma),
            covariance=covariance,
            latent=best,
            laplace=normal,
            discreteness=grain if isinstance(grain, Discreteness) else None,
            quality=described.quality,
            verdict=described.verdict,
            edges=edges,
            starts=dataclasses.replace(end.found, slots=np.zeros(0, np.int64), state=(), reserve=np.zeros((0, 0))),
            model=model,
            residual=residual,
            parameters=described.evaluated.parameters,
            galaxy=galaxy,
            populations=populations,
            config=end.request.config.to_yaml(),
            versions=versions(),
            notes=(*_notes(end, described, edges, grain), *notes_on_masses(populations)),
            sets=sets,
            evidence=described.evidence,
            inflation=factor,
        )


def _populations(
    problem: Problem, best: ndarray, galaxy: Galaxy | None
) -> tuple[dict[str, Populations], Galaxy | None]:
    posterior = problem.posterior
    source = posterior.forward.source
    found = populations_at(posterior, jnp.asarray(best))
    if not found or galaxy is None or not isinstance(source, ComponentsSource):
        return found, galaxy
    source = dataclasses.replace(source, base=with_solved_weights(source.base, found))
    posterior = dataclasses.replace(posterior, forward=dataclasses.replace(posterior.forward, source=source))
    return found, posterior.of_host(np.asarray(best))[0]


def _result_cubes(
    problem: Problem, evaluated: Evaluated, values: ndarray, sigma: ndarray
) -> tuple[Iterable[Cube], dict[str, SetResult]]:
    """Model and residuals of the one or first cube, and of each set of data, with the values in their headers."""

    def with_headers(alone: Problem, found: Evaluated) -> Iterator[Cube]:
        return (with_values(cube, problem.posterior.free, values, sigma) for cube in cubes_of(alone, found))

    sets = dict[str, SetResult]()
    for data_set in problem.sets:
        before = "" if data_set is problem.first_cube else f"{data_set.name}."
        names = [name for name in data_set.pipeline.plan.sources if before + name in evaluated.counters]
        counters = {name: evaluated.counters[before + name] for name in names}
        seen = evaluated._replace(flux=np.asarray(data_set.unpacked(evaluated.flux)), counters=counters)
        model, residual = with_headers(set_alone(problem, data_set), seen)
        sets[data_set.name] = SetResult(data_set.kind, model, residual)
    if problem.first_cube is None:
        return with_headers(problem, evaluated), sets
    first = sets[problem.first_cube.name]
    return (first.model, first.residual), sets


def _notes(end: Best, described: BestFit, edges: Edges, grain: Discreteness | str | None) -> tuple[str, ...]:
    problem, found, error = end.problem, end.found, end.error
    free, best = problem.posterior.free, end.latent
    n_voxel = problem.posterior.likelihood.flux.size
    notes = [
        *diagnosis.notes_on_precision(),
        *problem.notes,
        *problem.pipeline.notes,
        *diagnosis.notes_on_size(problem.settings.optimiser.name, free.n_latent, n_voxel),
        *diagnosis.notes_on_search(free, found, best, described.laplace),
        *diagnosis.notes_on_one_start(end.request.settings.starts, len(found.loss)),
        *diagnosis.notes_on_values(free, best, described.approximation),
        *described.notes,
        *notes_on_edges(free, edges, diagnosis.ELSEWHERE),
        *notes_on_discreteness(grain),
        *([] if error is None else [error.note]),
        *diagnosis.notes_on_particles(described.evaluated.counters, float(problem.pipeline.velocity_limit)),
    ]
    return tuple(dict.fromkeys(notes))


def device_count(model: RunConfig | Pipeline) -> int:
    """Devices that a model is computed on."""
    if isinstance(model, Pipeline):
        return model.mesh.size
    return jax.device_count() if model.devices.data == "all" else model.devices.data


_SAME = 1e-4
"""Part of a loss by which it may differ between a fit's numbers of 32 bits and others of 64."""

_LAYOUT = 3
"""Layout of a sampler's checkpoint; 2: with the state of any kernel; 3: with the number of quadrature points."""

Fitted = FitResult | str | Path
"""The result of a fit, or its file."""


def default_output(settings: FitSettings) -> Path:
    """The file of the result: beside that of the fit, where the settings do not say."""
    return settings.sampling.output or with_addition(settings.output, "_samples")


@named_arguments
@exits_as_errors()
def sample(
    config_or_pipeline: ConfigSource | Pipeline,
    data: Data | None = None,
    free: Priors | None = None,
    *,
    sampling: Mapping[str, Any] | None = None,
    fitted: Fitted | None = None,
    galaxy: Galaxy | SyntheticSource | ComponentsSource | None = None,
    model: AbstractGalaxyModel | None = None,
    output: str | Path | None = None,
    resume: bool | None = None,
    restart: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    quiet: bool | None = None,
    **settings: Any,
) -> SampleResult:
    """Draw from the posterior of free parameters given an observed cube, on all devices.

    As `fit`, whose arguments it takes: the best fit is looked for first (or is that of `fitted`), and there the sampler
    begins. `sampling` stands for keys of `fit.sampling` (method, nuts, variational, seed, ...), e.g.
    `{"nuts": {"chains": 8}}`. With `output` the result goes into that file (.h5), the cubes beside it, and so do
    checkpoints, from which a sampling that was ended goes on when it is called again, on any number of devices;
    `restart=True` starts anew (`resume=False` until version 0.4). A file there of another configuration or program is
    replaced only with `overwrite`.
    Switch 64-bit numbers on in JAX. With `engine.precision: float64` the same seed gives the same draws on any devices.
    `progress` and `quiet` as in `fit`.
    Raises ConfigError, ValueError or OSError for settings, data or places that cannot be used.
    """
    check_setting_names(sample, settings, FitSettings.model_fields)
    _check_sampling_names(settings)
    restart = starts_anew(restart, resume, output)
    given, galaxy = dict(settings), one_galaxy(galaxy, model)
    given |= {f"sampling.{name}": value for name, value in (sampling or {}).items()}
    if output is not None:
        given["sampling.output"] = Path(output)
    request = read_request(config_or_pipeline, data, free, None, given, galaxy)
    sampler, progress = make_sampler(request.settings.sampling), progress or progress_here(quiet)
    if output is None:
        with programs_kept():
            return _sample(request, sampler, fitted, galaxy, progress, None, restart=True)
    files = ResultFiles.of_samples(default_output(request.settings))
    read = request.files(config_or_pipeline, **{"result of the fit": request.settings.output, "fitted": fitted})
    check_separate(files.places(request.sets), read, "fit.sampling.output")
    files.check()
    name = request.config.output.configuration
    check_results(SAMPLES, files.result, files.cubes_of(request.sets), name, "fit.sampling.output", overwrite=overwrite)
    with claimed(files.result, *files.places(request.sets)), programs_kept():
        try:
            return _sample(request, sampler, fitted, galaxy, progress, files, restart=restart)
        except SearchInterrupted as stop:
            raise KeyboardInterrupt(f"{stop}; the same command goes on from there") from None


def _check_sampling_names(settings: Iterable[str]) -> None:
    places = {key: f"{{{key!r}: ...}}" for key in SamplingSettings.model_fields}
    for section, keys in SamplingSettings.sections().items():
        places[section] = f"{{{section!r}: {{...}}}}"
        for key in keys.model_fields:
            places.setdefault(key, f"{{{section!r}: {{{key!r}: ...}}}}")
    for name in set(settings) - set(FitSettings.model_fields):
        near = nearest_words(name, places, 1, 0.8)
        if near:
            raise ConfigError(f"{name}: unknown argument of sample; give it as sampling={places[near[0]]}")


def _sample(
    request: Request,
    sampler: AbstractSampler,
    fitted: Fitted | None,
    galaxy: Given | None,
    progress: Progress,
    files: ResultFiles | None,
    *,
    restart: bool,
) -> SampleResult:
    kind = request.settings.likelihood.kind
    if kind != "gaussian" and not sampler.is_chain and sampler.is_approximate:
        raise ConfigError(
            f"fit.sampling.method: expected a sampler of chains, such as nuts, for errors distributed as '{kind}', got "
            f"{request.settings.sampling.method}"
        )
    n_device, n_group = device_count(request.model), request.settings.sampling.groups
    if n_group is None:
        n_group = models_at_once(n_device, sampler.n_sample)
    elif n_device % n_group:
        raise ConfigError(
            f"fit.sampling.groups: expected a number that divides the {n_device} devices, got {n_group}; "
            f"null chooses one"
        )
    given = FitResult.read(fitted) if isinstance(fitted, str | Path) else fitted
    if given is not None and galaxy is None:
        request = like_fitted(request, given)
    begun_so = begun_with_few(request, galaxy) if given is None else request
    problem = pose_request(begun_so, galaxy, progress, None if files is None else files.check)
    _check_same_priors(problem, given)
    if given is None:
        problem = with_effects_checked(problem, progress)
    settings = sampler.settings
    keys = settings.model_dump(include={"method", "seed"}) | {
        f"{settings.section_name}.{name}": value for name, value in settings.section.model_dump().items()
    }
    fingerprint = {what: kept for what, kept in fingerprint_of(problem).items() if what != "devices"} | {
        "best fit to begin at (fitted)": key_of(None if given is None else np.asarray(given.latent)),
        "model error": repr(problem.settings.model_error),
        "layout of the draws": str(_LAYOUT),
        "version of the packages": repr(versions("arviz", *sampler.packages)),
        **{f"fit.sampling.{name}": repr(value) for name, value in keys.items()},
    }
    if files is not None and restart:
        forget_searches(files.checkpoints)
    place = None if files is None else files.draws
    begun = None if place is None else load_checkpoint(place, fingerprint, sampler.read)
    request, problem, best, notes = _at_best(request, problem, galaxy, given, begun, files, progress)
    points = points_of(request.config)

    def keep(state: Any) -> None:
        if place is not None:
            save(place, state, fingerprint, notes, points)

    problem, found, grain = _about_best(with_rows(problem, n_group), best, given, progress)
    again = "" if begun is None else ", going on after {1} of {2}".format(*sampler.progress(begun))
    with progress.step("sample", f"sampling by {settings.method}{again}") as report:
        states = sampler.run(problem.posterior, problem.pipeline.mesh, best, found.laplace, begun)
        end = advance(states, keep, lambda state: report(*sampler.progress(state)))
    with progress.step("predict", "models of the draws"):
        notes = [*notes, *(() if found.laplace is None else notes_on_silence(found.laplace))]
        notes += notes_on_discreteness(grain, held=False)
        result = make_sample_result(problem, sampler, sampler.sampled(end), best, found, request.config, notes=notes)
    if given is not None and not _same_loss(result.quality, given.quality):
        text = (
            f"the best values of `fitted` have a loss of {result.quality.loss:.6g} here, and had "
            f"{given.quality.loss:.6g} there: the data or the model are not those of that fit, and its best values "
            f"need not be the best ones here; fit again"
        )
        note = Note("sampling.other_fit", text, WARNING)
        result = dataclasses.replace(result, notes=(*result.notes, note))
    if files is not None:
        with progress.step("write", f"writing {files.result}"):
            files.write(result)
    return result


def _about_best(
    problem: Problem, best: Float[ndarray, " latent"], given: FitResult | None, progress: Progress
) -> tuple[Problem, BestFit, Discreteness | str | None]:
    """The surroundings of the best values and how far finite draws move them, as a given result has them where its loss
    is the same here, else measured; with the problem, which gets notes on values without effect."""
    found = grain = None
    if given is not None:
        posterior, settings = problem.posterior, problem.settings
        with progress.step("compile", "compiling the model"):
            if given.laplace is not None and settings.model_error is None:
                evaluated = evaluate(posterior, given.latent)
                quality = quality_of(problem, evaluated, given.quality.n_solved)
                known = from_information(posterior.free, given.latent, given.laplace.information)
                normal, notes = over_cells(posterior, known)
                found = BestFit(evaluated, quality, normal, given.verdict, given.evidence, notes)
        if found is None or not _same_loss(found.quality, given.quality):
            found, problem = None, with_effects_checked(problem, progress)
        elif given.discreteness is not None and settings.discreteness is not None:
            known_grain = given.discreteness
            is_alike = known_grain.n_compared == settings.discreteness.times * known_grain.n_draws
            grain = known_grain if is_alike else None
    with progress.step("uncertainties", "the posterior about the best values") as report:
        found = found or describe_best(problem, best)
        grain = grain or measure_discreteness(problem, found.laplace, report)
    return problem, found, grain


def _same_loss(here: Quality, there: Quality) -> bool:
    return abs(here.loss - there.loss) <= ELSEWHERE + _SAME * abs(there.loss)


def _check_same_priors(problem: Problem, fitted: FitResult | None) -> None:
    if fitted is None:
        return
    free, other = problem.posterior.free, fitted.free
    if free.labels != other.labels or not eqx.tree_equal(free, other):
        raise ConfigError(
            f"fitted: expected the result of a fit with the parameters and priors of this one, {listed(free.labels)}, "
            f"got {listed(other.labels)}{'' if free.labels != other.labels else ' with other priors'}; fit again"
        )


def _at_best(
    request: Request,
    problem: Problem,
    galaxy: Given | None,
    fitted: FitResult | None,
    begun: Any,
    files: ResultFiles | None,
    progress: Progress,
) -> tuple[Request, Problem, Float[ndarray, " latent"], Sequence[str]]:
    """The request and the problem at the best fit, its latents, and notes on the search.

    The best fit is looked for, or that of a result. A sampling that goes on (`begun`) has as many quadrature points as
    its search ended with, and the strength of the populations' prior to which the first search led.
    """
    place = None if begun is None or files is None else files.draws
    kept = [] if place is None else kept_notes(place)
    is_strength_free = has_free_strength(problem.posterior.forward)
    if fitted is not None:
        best = fitted.latent
        if is_strength_free:
            posterior = with_known_strength(problem.posterior, fitted.populations)
            problem = dataclasses.replace(problem, posterior=posterior)
        else:
            problem = add_model_error(problem, best, progress)
        if begun is None:
            return request, problem, best, notes_on_search(fitted.free, fitted.starts, best, fitted.laplace)
    elif begun is None or is_strength_free:
        request, problem, found, *_ = find_best(
            request, problem, galaxy, Searches() if files is None else files.searches, progress
        )
        if begun is None:
            best = found.latent[found.best]
            notes = [note for note in as_notes(problem.notes) if note.key == "quadrature.more_points"]
            problem = _in_one_part(request, problem, progress)
            return request, problem, best, [*notes, *notes_on_search(problem.posterior.free, found, best, None)]
    else:
        points = kept_points(place) if place is not None and chooses_points(request) else None
        if points is not None:
            request = with_points(request, points)
            problem = _in_one_part(request, problem, progress, points)
        problem = add_model_error(problem, begun.best, progress)
    return request, problem, begun.best, kept


def _in_one_part(request: Request, problem: Problem, progress: Progress, points: int = 0) -> Problem:
    """The problem posed with all its quadrature points, or so many, together, as samplers trace it."""
    source = problem.posterior.forward.source
    if not isinstance(source, ComponentsSource) or not (source.more or points > max(source.numbers)):
        return problem
    whole = pose_request(request, None, progress, None)
    return dataclasses.replace(whole, notes=tuple(dict.fromkeys((*whole.notes, *problem.notes))))


_NOT_INFLATED = Note(
    "sampling.not_inflated",
    "fit.inflate_sigma does nothing to draws: they are those of the posterior with the errors of the data; free "
    "fit.noise_scale to sample their size",
    WARNING,
)

_FAR_EXCESS = 10.0
"""Excess of the mean loss over twice the expected one from which on an approximation is called wrong."""


def make_sample_result(
    problem: Problem,
    sampler: AbstractSampler,
    sampled: Sampled,
    best: Float[ndarray, " latent"],
    found: BestFit,
    config: RunConfig,
    *,
    notes: Sequence[str] = (),
) -> SampleResult:
    """A whole result from draws; `best`, `found`: the best fit that they began at, with its `notes`."""
    free, values = problem.posterior.free, flat_values(problem.posterior.free, sampled.latent)
    diagnostics = convergence_of(sampled, values)
    predicted = predict(problem, sampled.latent, problem.settings.sampling)
    before = [*diagnosis.notes_on_precision(), *([_NOT_INFLATED] if problem.settings.inflate_sigma else [])]
    before += [*problem.notes, *problem.pipeline.notes, *notes]
    notes = (
        *before,
        *_on_best(sampled, found.quality),
        *sampled.notes,
        *notes_on_sampling(sampler, free, sampled, diagnostics),
        *notes_on_checks(predicted.checks),
        *_on_predictions(predicted, problem),
    )
    evidence = found.evidence
    if sampled.log_evidence is not None and not solves_for_populations(problem.posterior):
        value, error = sampled.log_evidence
        evidence = Evidence(value + normalisation_at(problem.posterior, np.asarray(best)), error, sampler.title)
    sets = dict[str, SetResult]()
    for data_set in problem.sets:
        of_set = predicted.sets[data_set.name]
        model, predictive, residual = _with_values(of_set, free, values)
        sets[data_set.name] = SetResult(data_set.kind, model, residual, predictive, of_set.pointwise)
    model, predictive, residual = _with_values(predicted, free, values)
    return SampleResult(
        free=free,
        method=sampled.method,
        latent=sampled.latent,
        values=free.split(values),
        statistics=dict(sampled.statistics),
        step_size=sampled.step_size,
        keys=sampled.keys,
        diagnostics=diagnostics,
        best=np.asarray(best),
        laplace=found.laplace,
        quality=found.quality,
        verdict=dataclasses.replace(found.verdict, trouble=trouble_of_chains(diagnostics) or sampled.trouble),
        evidence=evidence,
        checks=predicted.checks,
        pointwise=predicted.pointwise,
        scatter=predicted.scatter,
        model=model,
        predictive=predictive,
        residual=residual,
        config=config.to_yaml(),
        versions=versions("arviz", *sampler.packages),
        notes=tuple(dict.fromkeys(notes)),
        sets=sets,
    )


def _with_values(predicted: Predictive, free: Free, values: Float[ndarray, "chain draw latent"]) -> Iterator[Cube]:
    """The cubes with the mean and the standard deviation of each number in their headers."""
    flat = values.reshape(-1, values.shape[-1])
    cubes = (predicted.model, predicted.predictive, predicted.residual)
    return (with_values(cube, free, flat.mean(axis=0), flat.std(axis=0)) for cube in cubes)


def _on_predictions(predicted: Predictive, problem: Problem) -> list[Note]:
    """Notes on sets of data whose points have no separate likelihoods, and on stars that models cannot treat."""
    notes, points = [], problem.settings.sampling.log_likelihood
    without = [name for name, predictive in predicted.sets.items() if predictive.pointwise is None]
    if without and points is not None:
        text = (
            f"ln(likelihood) of single {points} is left out for {listed(without)}, whose errors are correlated: "
            f"to_arviz() has no group log_likelihood"
        )
        notes.append(Note("sampling.no_pointwise", text))
    if predicted.n_fast:
        text = (
            f"in the models of the draws {predicted.n_fast:.3g} stars, on average, are faster than the model is made "
            f"for ({float(problem.pipeline.velocity_limit):.0f} km/s), and it is wrong for them; raise "
            f"engine.velocity_range and sample again"
        )
        notes.append(Note("fit.fast_particles", text, WARNING))
    if predicted.n_not_finite:
        text = f"in the models of the draws {predicted.n_not_finite:.3g} stars, on average, are not finite"
        notes.append(Note("fit.not_finite", text, WARNING))
    return notes


def _on_best(sampled: Sampled, quality: Quality) -> list[Note]:
    """Notes on draws that fit better than the best fit, and of variational ones that fit too badly: draws from a normal
    posterior have losses half the number of latents above the lowest, on average."""
    lower = quality.loss - float(np.min(sampled.statistics["loss"]))
    expected = 0.5 * sampled.latent.shape[2]
    excess = float(np.mean(sampled.statistics["loss"])) - quality.loss
    approximate = not sampled.is_chain and find_sampler(sampled.method).is_approximate
    if approximate and excess > 2 * expected + _FAR_EXCESS:
        text = (
            f"the mean loss of the draws is {excess:.3g} above that of the best fit, where about {expected:.3g} is "
            f"expected: the approximation has missed the posterior; take fit.sampling.method nuts, or wider priors"
        )
        return [Note("variational.missed", text, WARNING)]
    if not lower > diagnosis.ELSEWHERE:
        return []
    text = (
        f"a draw has a loss lower by {lower:.3g} than the best fit, which is not the maximum of the posterior; raise "
        f"fit.starts or fit.candidates, and sample again"
    )
    return [Note("sampling.better_draw", text, WARNING)]
