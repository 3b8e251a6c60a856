"""A whole sampling: configuration and data in, draws from the posterior and what they predict out, and the files."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.arguments import check_setting_names, named_arguments, starts_anew
from rubix_like.config import RunConfig
from rubix_like.config.loading import ConfigSource
from rubix_like.config.sections.fit import FitSettings
from rubix_like.errors import ConfigError
from rubix_like.forward.pipeline import Pipeline
from rubix_like.galaxy.galaxy_model import AbstractGalaxyModel
from rubix_like.galaxy.particles import Galaxy
from rubix_like.inference.best_fit import BestFit, describe_best, over_cells
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
from rubix_like.inference.checks.discreteness import Discreteness, measure_discreteness, notes_on_discreteness
from rubix_like.inference.checks.laplace import from_information
from rubix_like.inference.checks.notes_after import ELSEWHERE, notes_on_search, notes_on_silence
from rubix_like.inference.finer_points import chooses_points, like_fitted, note_on_points, points_of, with_points
from rubix_like.inference.fit_cubes import evaluate, quality_of
from rubix_like.inference.fitting import (
    Checkpoints,
    add_model_error,
    device_count,
    find_best,
    forget_searches,
    pose_request,
    with_effects_checked,
)
from rubix_like.inference.posterior.device_rows import models_at_once, with_rows
from rubix_like.inference.posterior.fit_model import ComponentsSource, SyntheticSource
from rubix_like.inference.posterior.problem import Given, Problem
from rubix_like.inference.posterior.quality import Quality
from rubix_like.inference.request import Data, Priors, Request, one_galaxy, read_request
from rubix_like.inference.results.fit_result import FitResult
from rubix_like.inference.results.result_places import check_places, check_results, write_in_order
from rubix_like.inference.results.sample_result import SampleResult
from rubix_like.inference.results.set_result import cubes_of_sets, places_of_sets
from rubix_like.inference.sample_assembly import make_sample_result
from rubix_like.inference.samplers.samplers import AbstractSampler, make_sampler
from rubix_like.inference.solved_populations import has_free_strength, with_known_strength
from rubix_like.runtime.arrays_on_disk import key_of
from rubix_like.runtime.compiled_programs import programs_kept
from rubix_like.runtime.files.outputs import check_separate, own_name, with_addition
from rubix_like.runtime.files.writers import SAMPLES
from rubix_like.runtime.progress import Progress, progress_here
from rubix_like.runtime.registry import exits_as_errors
from rubix_like.runtime.words import listed

_SAME = 1e-4
"""Part of a loss by which it may differ between a fit's numbers of 32 bits and others of 64."""

_LAYOUT = 3
"""Layout of a sampler's checkpoint; 2: with the state of any kernel; 3: with the number of quadrature points."""

Fitted = FitResult | str | Path
"""The result of a fit, or its file."""


@dataclass(frozen=True)
class SampleFiles:
    """The files of a sampling: its result, the cubes of the model and of what is predicted, and the checkpoints of the
    search, of that with the model error, of that with more quadrature points, and of the sampler."""

    result: Path
    model: Path
    predictive: Path
    first_search: Path
    second_search: Path
    finer_search: Path
    checkpoint: Path

    @classmethod
    def beside(cls, output: Path) -> "SampleFiles":
        """fit_samples.h5, fit_samples_model.fits, ..._predictive.fits, and the checkpoints under names of their own."""
        output = output.expanduser()
        cubes = (with_addition(output, own).with_suffix(".fits") for own in ("_model", "_predictive"))
        purposes = ("search.npz", "search-2.npz", "search-finer.npz", "checkpoint.npz")
        return cls(output, *cubes, *(own_name(output, purpose) for purpose in purposes))

    @property
    def searches(self) -> Checkpoints:
        """The checkpoints of the searches."""
        return Checkpoints(self.first_search, self.second_search, self.finer_search)

    def places(self, sets: Iterable[str] | None) -> tuple[Path, ...]:
        """All files, and those of the cubes of several sets of data (None: one cube)."""
        return (*dataclasses.astuple(self), *places_of_sets(sets, (self.model, self.predictive)))

    def cubes(self, sets: Iterable[str] | None) -> tuple[Path, ...]:
        """Those of the cubes alone."""
        return (self.model, self.predictive, *places_of_sets(sets, (self.model, self.predictive)))

    def check(self, shape: tuple[int, int, int] = (0, 0, 0)) -> None:
        """Raise OSError where they could not be written after a sampling of a cube of this shape."""
        check_places(dataclasses.astuple(self), self.model, shape)


def default_output(settings: FitSettings) -> Path:
    """Where the result goes: beside that of the fit, where the settings do not say."""
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
    restart = starts_anew(restart, resume)
    given, galaxy = dict(settings), one_galaxy(galaxy, model)
    given |= {f"sampling.{name}": value for name, value in (sampling or {}).items()}
    if output is not None:
        given["sampling.output"] = Path(output)
    request = read_request(config_or_pipeline, data, free, None, given, galaxy)
    sampler, progress = make_sampler(request.settings.sampling), progress or progress_here(quiet)
    if output is None:
        with programs_kept():
            return _sample(request, sampler, fitted, galaxy, progress, None, restart=True)
    files = SampleFiles.beside(default_output(request.settings))
    read = request.files(config_or_pipeline, **{"result of the fit": request.settings.output, "fitted": fitted})
    check_separate(files.places(request.sets), read, "fit.sampling.output")
    files.check()
    check_results(
        SAMPLES, files.result, files.cubes(request.sets), request.config, "fit.sampling.output", overwrite=overwrite
    )
    with claimed(files.result, *files.places(request.sets)), programs_kept():
        return _sample(request, sampler, fitted, galaxy, progress, files, restart=restart)


def _sample(
    request: Request,
    sampler: AbstractSampler,
    fitted: Fitted | None,
    galaxy: Given | None,
    progress: Progress,
    files: SampleFiles | None,
    *,
    restart: bool,
) -> SampleResult:
    """Pose, find the best fit, draw, describe, write."""
    _check_likelihood(request, sampler)
    n_group = _groups(request, sampler)
    given = FitResult.read(fitted) if isinstance(fitted, str | Path) else fitted
    if given is not None and galaxy is None:
        request = like_fitted(request, given)
    problem = pose_request(request, galaxy, progress, None if files is None else files.check)
    _check_same_priors(problem, given)
    if given is None:
        problem = with_effects_checked(problem, progress)
    fingerprint = _fingerprint(problem, sampler, given)
    if files is not None and restart:
        forget_searches((*files.searches.files, files.checkpoint))
    begun = None if files is None else load_checkpoint(files.checkpoint, fingerprint, sampler.read)
    if begun is None:
        request, problem, best, notes = _best(request, problem, galaxy, given, files, progress)
    else:
        request, problem, best, notes = _as_begun(request, problem, galaxy, given, begun, files, progress)
    keep = _keeping(fingerprint, files, notes, points_of(request))
    problem, about = _about_best(with_rows(problem, n_group), best, given, progress)
    result = _drawn(problem, sampler, best, about, begun, request.config, notes, keep, progress)
    result = _with_origin(result, given)
    if files is not None:
        with progress.step("write", f"writing {files.result}"):
            cubes = {files.model: result.model, files.predictive: result.predictive}
            cubes |= cubes_of_sets(result.sets, {"model": files.model, "predictive": files.predictive})
            write_in_order(result, files.result, cubes, (*files.searches.files, files.checkpoint))
    return result


class _About(NamedTuple):
    """The posterior about the best values, and how far finite draws move them."""

    found: BestFit
    grain: Discreteness | str | None


def _about_best(
    problem: Problem, best: Float[ndarray, " latent"], given: FitResult | None, progress: Progress
) -> tuple[Problem, _About]:
    """The surroundings of the best values, and the problem with notes on it: as a given result has them, where it is of
    this model and these data, else measured."""
    known = None
    if given is not None:
        with progress.step("compile", "compiling the model"):
            known = _best_of(problem, given)
        if known is None:
            problem = with_effects_checked(problem, progress)
    with progress.step("uncertainties", "the posterior about the best values") as report:
        found = describe_best(problem, best) if known is None else known
        grain = None if given is None or known is None else _grain_of(problem, given)
        grain = measure_discreteness(problem, found.laplace, report) if grain is None else grain
    return problem, _About(found, grain)


def _best_of(problem: Problem, given: FitResult) -> BestFit | None:
    """The best fit with the information matrix and the verdict of a result; None unless its loss is the same here."""
    if given.laplace is None or problem.settings.model_error is not None:
        return None
    evaluated = evaluate(problem.posterior, given.latent)
    quality = quality_of(problem, evaluated, given.quality.n_solved)
    approximation = from_information(problem.posterior.free, given.latent, given.laplace.information)
    approximation, notes = over_cells(problem.posterior, approximation)
    found = BestFit(evaluated, quality, approximation, given.verdict, given.evidence, notes)
    return found if _same_loss(quality, given.quality) else None


def _grain_of(problem: Problem, given: FitResult) -> Discreteness | None:
    """The shift by finite draws that a result holds, where it was measured by as many draws as are asked for."""
    asked, found = problem.settings.discreteness, given.discreteness
    if asked is None or found is None or found.n_compared != asked.times * found.n_draws:
        return None
    return found


def _same_loss(here: Quality, there: Quality) -> bool:
    """Whether two losses of the same latents are those of the same model and data."""
    return abs(here.loss - there.loss) <= ELSEWHERE + _SAME * abs(there.loss)


def _drawn(
    problem: Problem,
    sampler: AbstractSampler,
    best: Float[ndarray, " latent"],
    about: _About,
    begun: Any,
    config: RunConfig,
    notes: Sequence[str],
    keep: Callable[[Any], None],
    progress: Progress,
) -> SampleResult:
    """Draw from the best fit, or resume, up to the result."""
    found, grain = about
    normal = found.laplace
    again = "" if begun is None else ", going on after {1} of {2}".format(*sampler.progress(begun))
    with progress.step("sample", f"sampling by {sampler.settings.method}{again}") as report:
        states = sampler.run(problem.posterior, problem.pipeline.mesh, best, normal, begun)
        end = advance(states, keep, lambda state: report(*sampler.progress(state)))
    with progress.step("predict", "models of the draws"):
        said = [*notes, *(() if normal is None else notes_on_silence(normal))]
        said += notes_on_discreteness(grain, held=False)
        return make_sample_result(problem, sampler, sampler.sampled(end), best, found, config, notes=said)


def _fingerprint(problem: Problem, sampler: AbstractSampler, fitted: FitResult | None) -> dict[str, str]:
    """A fingerprint of everything that the draws depend on; devices are not among it: the draws are the same on all."""
    own = {what: kept for what, kept in fingerprint_of(problem).items() if what != "devices"}
    settings = sampler.settings
    chosen = settings.model_dump(include={"method", "seed"}) | {
        f"{settings.section_name}.{name}": value for name, value in settings.section.model_dump().items()
    }
    return own | {
        "best fit to begin at (fitted)": key_of(None if fitted is None else np.asarray(fitted.latent)),
        "model error": repr(problem.settings.model_error),
        "layout of the draws": str(_LAYOUT),
        "version of the packages": repr(versions("arviz", *sampler.packages)),
        **{f"fit.sampling.{name}": repr(value) for name, value in chosen.items()},
    }


def _keeping(
    fingerprint: Mapping[str, str], files: SampleFiles | None, notes: Sequence[str], points: int | None
) -> Callable[[Any], None]:
    """What keeps the states of a sampler, where there are files."""

    def keep(state: Any) -> None:
        if files is not None:
            save(files.checkpoint, state, fingerprint, notes, points)

    return keep


def _check_same_priors(problem: Problem, fitted: FitResult | None) -> None:
    """Raise ConfigError for the result of a fit of other parameters, or with other priors."""
    if fitted is None:
        return
    own, other = problem.posterior.free, fitted.free
    if own.labels != other.labels or not eqx.tree_equal(own, other):
        raise ConfigError(
            f"fitted: expected the result of a fit with the parameters and priors of this one, {listed(own.labels)}, "
            f"got {listed(other.labels)}{'' if own.labels != other.labels else ' with other priors'}; fit again"
        )


def _best(
    request: Request,
    problem: Problem,
    galaxy: Given | None,
    fitted: FitResult | None,
    files: SampleFiles | None,
    progress: Progress,
) -> tuple[Request, Problem, Float[ndarray, " latent"], Sequence[str]]:
    """The best fit, looked for, or that of a result; with the model error there, and notes on the search."""
    if fitted is None:
        places = Checkpoints() if files is None else files.searches
        request, problem, found, *_ = find_best(request, problem, galaxy, places, progress)
        best, noted = found.latent[found.best], note_on_points(problem.notes)
        return request, problem, best, [*noted, *notes_on_search(problem.posterior.free, found, best, None)]
    problem = _at_fitted(problem, fitted, progress)
    notes = notes_on_search(fitted.free, fitted.starts, fitted.latent, fitted.laplace)
    return request, problem, fitted.latent, notes


def _as_begun(
    request: Request,
    problem: Problem,
    galaxy: Given | None,
    fitted: FitResult | None,
    begun: Any,
    files: SampleFiles | None,
    progress: Progress,
) -> tuple[Request, Problem, Float[ndarray, " latent"], Sequence[str]]:
    """The same of a sampling that goes on: with as many quadrature points as its search ended with, and with the
    strength of the populations' prior to which the first search led, which is in its checkpoint."""
    notes = () if files is None else kept_notes(files.checkpoint)
    if fitted is not None:
        return request, _at_fitted(problem, fitted, progress), begun.best, notes
    if files is not None and has_free_strength(problem.posterior.forward):
        request, problem, *_ = find_best(request, problem, galaxy, files.searches, progress)
        return request, problem, begun.best, notes
    points = None if files is None or not chooses_points(request) else kept_points(files.checkpoint)
    if points is not None:
        request = with_points(request, points)
        finer = pose_request(request, None, progress, None)
        problem = dataclasses.replace(finer, notes=tuple(dict.fromkeys((*finer.notes, *problem.notes))))
    return request, add_model_error(problem, begun.best, progress), begun.best, notes


def _at_fitted(problem: Problem, fitted: FitResult, progress: Progress) -> Problem:
    """The problem with the model error at the best values of a result, or with the strengths that it has found for the
    smoothness prior of populations."""
    if has_free_strength(problem.posterior.forward):
        return dataclasses.replace(problem, posterior=with_known_strength(problem.posterior, fitted.populations))
    return add_model_error(problem, fitted.latent, progress)


def _with_origin(result: SampleResult, fitted: FitResult | None) -> SampleResult:
    """The result with a note where the best fit is that of other data, or of another model."""
    if fitted is None:
        return result
    if _same_loss(result.quality, fitted.quality):
        return result
    note = (
        f"the best values of `fitted` have a loss of {result.quality.loss:.6g} here, and had {fitted.quality.loss:.6g} "
        f"there: the data or the model are not those of that fit, and its best values need not be the best ones here; "
        f"fit again"
    )
    return dataclasses.replace(result, notes=(*result.notes, note))


def _check_likelihood(request: Request, sampler: AbstractSampler) -> None:
    """Raise ConfigError for a variational sampler of errors that are not normal: it takes J^T J for Fisher's
    information."""
    kind = request.settings.likelihood.kind
    if kind != "gaussian" and not sampler.is_chain and sampler.is_approximate:
        raise ConfigError(
            f"fit.sampling.method: expected a sampler of chains, such as nuts, for errors distributed as '{kind}', got "
            f"{request.settings.sampling.method}"
        )


def _groups(request: Request, sampler: AbstractSampler) -> int:
    """Rows of the mesh; ConfigError where the devices cannot be shared out so."""
    groups, n_device = request.settings.sampling.groups, device_count(request.model)
    if groups is None:
        return models_at_once(n_device, sampler.n_sample)
    if n_device % groups:
        raise ConfigError(
            f"fit.sampling.groups: expected a number that divides the {n_device} devices, got {groups}; "
            f"null chooses one"
        )
    return groups
