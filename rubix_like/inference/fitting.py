"""A whole fit: configuration and data in, the best values and what they are worth out, and the files of both."""

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.arguments import check_setting_names, named_arguments, starts_anew
from rubix_like.config import RunConfig
from rubix_like.config.loading import ConfigSource
from rubix_like.config.sections.fit import FitSettings
from rubix_like.cube.cube import Cube
from rubix_like.forward.pipeline import Pipeline
from rubix_like.galaxy.galaxy_model import AbstractGalaxyModel
from rubix_like.galaxy.particles import Galaxy
from rubix_like.inference.best_fit import BestFit, describe_best, edges_at
from rubix_like.inference.checkpoint import advance, claimed, fingerprint_of, load_checkpoint, save, versions
from rubix_like.inference.checks import notes_after as diagnosis
from rubix_like.inference.checks.discreteness import (
    Discreteness,
    measure_discreteness,
    notes_on_discreteness,
    with_discreteness,
)
from rubix_like.inference.checks.edges import Edges, notes_on_edges
from rubix_like.inference.checks.laplace import inflated
from rubix_like.inference.checks.quadrature_error import QuadratureError, measure_quadrature, notes_on_quadrature
from rubix_like.inference.finer_points import Finer, chooses_points, finer_request
from rubix_like.inference.fit_cubes import Evaluated, cubes_of, with_values
from rubix_like.inference.populations.histories import Populations, notes_on_masses
from rubix_like.inference.populations.planned_mixtures import with_solved_weights
from rubix_like.inference.posing import posed
from rubix_like.inference.posterior.checks_before import check_effects, check_start
from rubix_like.inference.posterior.device_rows import models_at_once
from rubix_like.inference.posterior.fit_model import ComponentsSource, SyntheticSource
from rubix_like.inference.posterior.model_error import with_model_error
from rubix_like.inference.posterior.problem import Given, Problem
from rubix_like.inference.request import Data, Priors, Request, one_galaxy, read_request
from rubix_like.inference.results.fit_result import FitResult
from rubix_like.inference.results.result_places import check_places, check_results, write_in_order
from rubix_like.inference.results.set_result import SetResult, cubes_of_sets, places_of_sets
from rubix_like.inference.search.library_cells import CellsSeen
from rubix_like.inference.search.optimisers import Status
from rubix_like.inference.search.search import search
from rubix_like.inference.search.search_state import SearchState
from rubix_like.inference.sets.set_views import evaluated_for, sets_alone
from rubix_like.inference.solved_populations import has_free_strength, populations_at, with_strength
from rubix_like.runtime.compiled_programs import programs_kept
from rubix_like.runtime.files.outputs import check_separate, own_name, with_addition
from rubix_like.runtime.files.writers import FIT
from rubix_like.runtime.progress import Progress, Report, progress_here
from rubix_like.runtime.registry import exits_as_errors
from rubix_like.runtime.words import counted

FIRST_STEP: str = "first step"
"""Among the processor times of a fit's progress: from the end of `compile` to the end of the first step."""


_CHECKPOINTS = ("checkpoint.npz", "checkpoint-2.npz", "checkpoint-finer.npz")


class Checkpoints(NamedTuple):
    """Files of the search, of that with the model error, and of that with more quadrature points; None: none are
    left."""

    first: Path | None = None
    second: Path | None = None
    finer: Path | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """Those that there are."""
        return tuple(file for file in self if file is not None)


class Best(NamedTuple):
    """The end of a search: the request and the problem that it was of, the cells of the SSP library that were seen, and
    the error of the quadrature there, where it was measured."""

    request: Request
    problem: Problem
    found: SearchState
    cells: CellsSeen
    error: QuadratureError | None = None


@dataclass(frozen=True)
class FitFiles:
    """The files of a fit: its result, the cubes of the model and of the residuals, and the checkpoints of its search,
    of that with the model error, and of that with more quadrature points."""

    result: Path
    model: Path
    residual: Path
    checkpoint: Path
    second_checkpoint: Path
    finer_checkpoint: Path

    @classmethod
    def beside(cls, output: Path) -> "FitFiles":
        """fit.h5, fit_model.fits, fit_residual.fits, .fit.h5.rubix-like-checkpoint.npz, ...-checkpoint-2.npz and
        ...-checkpoint-finer.npz."""
        output = output.expanduser()
        model, residual = (with_addition(output, addition).with_suffix(".fits") for addition in ("_model", "_residual"))
        checkpoints = (own_name(output, purpose) for purpose in _CHECKPOINTS)
        return cls(output, model, residual, *checkpoints)

    @property
    def checkpoints(self) -> Checkpoints:
        """Checkpoints of the searches."""
        return Checkpoints(self.checkpoint, self.second_checkpoint, self.finer_checkpoint)

    def places(self, sets: Iterable[str] | None) -> tuple[Path, ...]:
        """All files, and those of the cubes of several sets of data (None: one cube)."""
        return (*dataclasses.astuple(self), *places_of_sets(sets, (self.model, self.residual)))

    def cubes(self, sets: Iterable[str] | None) -> tuple[Path, ...]:
        """Paths of the cubes alone."""
        return (self.model, self.residual, *places_of_sets(sets, (self.model, self.residual)))

    def check(self, shape: tuple[int, int, int] = (0, 0, 0)) -> None:
        """Raise OSError where they could not be written after a fit of a cube of this shape."""
        check_places(dataclasses.astuple(self), self.model, shape)


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
    Compiled programs are kept on disk, as those of the command are, unless JAX has a cache of its own.
    The steps are shown in a notebook and on a terminal; `quiet=True` shows nothing, `quiet=False` shows them also in
    the log of a job; a `progress` takes them in place of `quiet`.
    Raises ConfigError, ValueError or OSError for settings, data or places that cannot be used.
    """
    check_setting_names(fit, settings, FitSettings.model_fields)
    restart = starts_anew(restart, resume)
    galaxy = one_galaxy(galaxy, model)
    request = read_request(config_or_pipeline, data, free, output, settings, galaxy)
    progress = progress or progress_here(quiet)
    if output is None:
        with programs_kept():
            return _fit(request, galaxy, progress, None, restart=True)
    files = FitFiles.beside(request.settings.output)
    check_separate(files.places(request.sets), request.files(config_or_pipeline), "fit.output")
    files.check()
    check_results(FIT, files.result, files.cubes(request.sets), request.config, "fit.output", overwrite=overwrite)
    with claimed(files.result, *files.places(request.sets)), programs_kept():
        return _fit(request, galaxy, progress, files, restart=restart)


def _fit(
    request: Request,
    galaxy: Given | None,
    progress: Progress,
    files: FitFiles | None,
    *,
    restart: bool,
) -> FitResult:
    """Pose the problem, search for the best fit, describe it and write it."""
    problem = pose_request(request, galaxy, progress, None if files is None else files.check)
    problem = with_effects_checked(problem, progress)
    places = Checkpoints() if files is None else files.checkpoints
    if restart:
        forget_searches(places.files)
    best = find_best(request, problem, galaxy, places, progress)
    with progress.step("uncertainties", "uncertainties of the best values") as report:
        result = make_result(best, report)
    if files is not None:
        with progress.step("write", f"writing {files.result}"):
            cubes = {files.model: result.model, files.residual: result.residual}
            cubes |= cubes_of_sets(result.sets, {"model": files.model, "residual": files.residual})
            write_in_order(result, files.result, cubes, files.checkpoints.files)
    return result


def pose_request(
    request: Request,
    galaxy: Given | None,
    progress: Progress,
    check: Callable[[tuple[int, int, int]], None] | None,
) -> Problem:
    """The problem of a request, its model planned; `check`: what the shape of the data's cube must pass before."""
    n_start = models_at_once(device_count(request.model), request.settings.starts)
    return posed(request, galaxy, progress, n_start, check)


def forget_searches(places: Iterable[Path]) -> None:
    """Remove checkpoints of what is not to go on."""
    for place in places:
        place.unlink(missing_ok=True)


def find_best(
    request: Request, problem: Problem, galaxy: Given | None, places: Checkpoints, progress: Progress
) -> Best:
    """The end of the search, of one with more quadrature points where the data ask for them, and with a model error of
    one that takes account of it. Searches that have checkpoints go on."""
    if places.first is not None and not places.first.exists():
        forget_searches(places.files)
    found, cells = _search(problem, places.first, progress)
    chosen = galaxy is None and chooses_points(request)
    error = measure_quadrature(problem, found.latent[found.best]) if chosen else None
    best = Best(request, problem, found, cells, error)
    finer = None if error is None else finer_request(request, error, found)
    if finer is not None:
        best = _search_finer(finer, best, places, progress)
    last = best.problem
    if last.settings.model_error is None and not has_free_strength(last.posterior.forward):
        return best
    problem = _with_notes_on(last, best.found)
    problem = add_model_error(problem, best.found.latent[best.found.best], progress)
    return Best(best.request, problem, *_search(problem, places.second, progress))


def _search_finer(finer: Finer, coarse: Best, places: Checkpoints, progress: Progress) -> Best:
    """The search with more points, from where the first one ended, whose cells of the SSP library serve it."""
    settings = finer.request.settings.model_copy(update={"starts": len(finer.starts), "start": {}})
    request = dataclasses.replace(finer.request, settings=settings)
    problem = pose_request(request, None, progress, None)
    known = (note for note in _with_notes_on(coarse.problem, coarse.found).notes if note not in problem.notes)
    problem = dataclasses.replace(problem, notes=(*problem.notes, *known, finer.note))
    found, _ = _search(problem, places.finer, progress, finer.starts)
    coarse.cells.hold(np.asarray(coarse.found.latent[coarse.found.best], np.float64))
    return Best(finer.request, problem, found, coarse.cells)


def _with_notes_on(problem: Problem, found: SearchState) -> Problem:
    """The problem with notes on a search that another one follows."""
    notes = diagnosis.notes_on_search(problem.posterior.free, found, found.latent[found.best], None)
    return dataclasses.replace(problem, notes=(*problem.notes, *notes))


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
    problem: Problem,
    place: Path | None,
    progress: Progress,
    starts: Float[ndarray, "start latent"] | None = None,
) -> tuple[SearchState, CellsSeen]:
    """The search's end, and the cells of the SSP library that were seen; with a place for them it leaves checkpoints,
    and goes on from one that is there."""

    def forget(snapshot: SearchState) -> None:
        """Keep nothing: there is no place for checkpoints."""

    begun, keep = None, forget
    if place is not None:
        fingerprint = fingerprint_of(problem)
        begun = load_checkpoint(place, fingerprint, SearchState.from_arrays)

        def keep(snapshot: SearchState) -> None:
            save(place, snapshot, fingerprint)

    again = "" if begun is None else f", going on after {counted(int(begun.n_step.sum()), 'step')}"
    with progress.step("fit", f"fitting {counted(problem.posterior.free.n_latent, 'number')}{again}") as report:
        cells = CellsSeen()
        steps = _timed(search(problem, begun, starts, cells), progress)
        try:
            return advance(steps, keep, _seen_by(report, problem.settings.optimiser.steps)), cells
        except ValueError:  # nothing came of any start: another try needs other settings
            if place is not None:
                place.unlink(missing_ok=True)
            raise


def _timed(steps: Iterator[SearchState], progress: Progress) -> Iterator[SearchState]:
    """The snapshots, unchanged; the processor time up to the first step, that of choosing the starts with it, is
    kept."""
    begun = time.process_time()
    for number, snapshot in enumerate(steps):
        if number == 1:
            progress.processor.setdefault(FIRST_STEP, time.process_time() - begun)
        yield snapshot


def _seen_by(report: Report, most: int) -> Callable[[SearchState], None]:
    """Tells of the best of the starts that are computed at present."""

    def see(snapshot: SearchState) -> None:
        running = np.flatnonzero(snapshot.status == Status.RUNNING)
        if not len(running):
            return
        best = running[np.argmin(snapshot.loss[running])]
        others = f" and {len(running) - 1} others" if len(running) > 1 else ""
        what = f"start {best + 1}{others} of {len(snapshot.loss)}, {snapshot.n_ended} ended, "
        what += f"loss {snapshot.loss[best]:.7g}, |gradient| {snapshot.gradient_norm[best]:.2g}, step"
        report(what, int(snapshot.n_step[best]), most)

    return see


def make_result(end: Best, report: Report) -> FitResult:
    """The result of a fit: all that is known about the best end of a search."""
    problem, found = end.problem, end.found
    free, best = problem.posterior.free, found.latent[found.best]
    error = end.error or measure_quadrature(problem, best)
    troubles = (diagnosis.trouble_of(found), "" if error is None else error.trouble)
    described = describe_best(problem, best, " and ".join(filter(None, troubles)), end.cells)
    edges = edges_at(problem, best, described.laplace)
    grain = measure_discreteness(problem, described.laplace, report)
    factor = inflation_of(problem, described)
    normal, covariance = with_discreteness(inflated(described.laplace, factor), grain)
    sigma = np.full(free.n_latent, np.nan) if covariance is None else np.sqrt(np.diag(covariance))
    sigma[edges.index] = np.nan
    evaluated = described.evaluated
    populations, galaxy = _populations(problem, best, evaluated.galaxy)
    (model, residual), sets = _result_cubes(problem, evaluated, np.asarray(free.flat(best)), sigma)
    return FitResult(
        free=free,
        values=free.split(np.asarray(free.flat(best))),
        sigma=free.split(sigma),
        covariance=covariance,
        latent=best,
        laplace=normal,
        discreteness=grain if isinstance(grain, Discreteness) else None,
        quality=described.quality,
        verdict=described.verdict,
        edges=edges,
        starts=found.closed(),
        model=model,
        residual=residual,
        parameters=evaluated.parameters,
        galaxy=galaxy,
        populations=populations,
        config=end.request.config.to_yaml(),
        versions=versions(),
        notes=(*_notes(problem, found, described, edges, grain, error), *notes_on_masses(populations)),
        sets=sets,
        evidence=described.evidence,
        inflation=factor,
    )


def inflation_of(problem: Problem, best: BestFit) -> float:
    """The root of chi^2 per degree of freedom where it is above 1 and `fit.inflate_sigma` asks for it; else 1."""
    reduced = best.quality.reduced
    return float(np.sqrt(reduced)) if problem.settings.inflate_sigma and reduced > 1 else 1.0


def _populations(
    problem: Problem, best: ndarray, galaxy: Galaxy | None
) -> tuple[dict[str, Populations], Galaxy | None]:
    """The populations that were solved for, and the particles with them."""
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
    """The model and the residuals, of the one cube or of the first one, and those of each of several sets of data, with
    the values in their headers."""

    def with_headers(alone: Problem, found: Evaluated) -> Iterator[Cube]:
        return (with_values(cube, problem.posterior.free, values, sigma) for cube in cubes_of(alone, found))

    sets = dict[str, SetResult]()
    for data_set, alone in sets_alone(problem):
        model, residual = with_headers(alone, evaluated_for(problem, data_set, evaluated))
        sets[data_set.name] = SetResult(data_set.kind, model, residual)
    if problem.first_cube is None:
        return with_headers(problem, evaluated), sets
    first = sets[problem.first_cube.name]
    return (first.model, first.residual), sets


def _notes(
    problem: Problem,
    found: SearchState,
    described: BestFit,
    edges: Edges,
    grain: Discreteness | str | None,
    error: QuadratureError | None,
) -> tuple[str, ...]:
    """Notes that a reader should know before the numbers are used, each once."""
    free, best = problem.posterior.free, found.latent[found.best]
    n_voxel = problem.posterior.likelihood.flux.size
    notes = [
        *diagnosis.notes_on_precision(),
        *problem.notes,
        *problem.pipeline.notes,
        *diagnosis.notes_on_size(problem.settings.optimiser.name, free.n_latent, n_voxel),
        *diagnosis.notes_on_search(free, found, best, described.laplace),
        *diagnosis.notes_on_values(free, best, described.approximation),
        *described.notes,
        *notes_on_edges(free, edges, diagnosis.ELSEWHERE),
        *notes_on_discreteness(grain),
        *notes_on_quadrature(error),
        *diagnosis.notes_on_particles(described.evaluated.counters, float(problem.pipeline.velocity_limit)),
    ]
    return tuple(dict.fromkeys(notes))


def device_count(model: RunConfig | Pipeline) -> int:
    """Devices that a model is computed on."""
    if isinstance(model, Pipeline):
        return model.mesh.size
    return jax.device_count() if model.devices.data == "all" else model.devices.data
