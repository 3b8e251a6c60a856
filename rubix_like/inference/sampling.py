"""A whole sampling: configuration and data in, draws from the posterior and what they predict out, and the files."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from rubix_like.cube.cube import Cube
from rubix_like.errors import ConfigError
from rubix_like.forward.pipeline import Pipeline
from rubix_like.galaxy.galaxy_model import AbstractGalaxyModel
from rubix_like.galaxy.particles import Galaxy
from rubix_like.inference.best_fit import BestFit, describe_best, evaluate, over_cells, quality_of, with_values
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
from rubix_like.inference.checks.finite_points import Discreteness, measure_discreteness, notes_on_discreteness
from rubix_like.inference.checks.laplace import Evidence, from_information, normalisation_at, solves_for_populations
from rubix_like.inference.checks.notes import ELSEWHERE, notes_on_search, notes_on_silence
from rubix_like.inference.checks.verdict import Quality
from rubix_like.inference.fitting import (
    add_model_error,
    chooses_points,
    device_count,
    find_best,
    forget_searches,
    like_fitted,
    note_on_points,
    points_of,
    pose_request,
    with_effects_checked,
    with_points,
)
from rubix_like.inference.posterior.device_rows import models_at_once, with_rows
from rubix_like.inference.posterior.fit_model import ComponentsSource, Free, SyntheticSource
from rubix_like.inference.posterior.problem import Given, Problem
from rubix_like.inference.request import Data, Priors, Request, one_galaxy, read_request
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
from rubix_like.inference.solved_populations import has_free_strength, with_known_strength
from rubix_like.runtime.arrays_on_disk import key_of
from rubix_like.runtime.compiled_programs import programs_kept
from rubix_like.runtime.files.file_names import with_addition
from rubix_like.runtime.files.separate_files import check_separate
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
    files = ResultFiles.of_samples(default_output(request.settings))
    read = request.files(config_or_pipeline, **{"result of the fit": request.settings.output, "fitted": fitted})
    check_separate(files.places(request.sets), read, "fit.sampling.output")
    files.check()
    check_results(
        SAMPLES, files.result, files.cubes_of(request.sets), request.config, "fit.sampling.output", overwrite=overwrite
    )
    with claimed(files.result, *files.places(request.sets)), programs_kept():
        return _sample(request, sampler, fitted, galaxy, progress, files, restart=restart)


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
    """Pose, find the best fit, draw, describe, write."""
    kind = request.settings.likelihood.kind
    if kind != "gaussian" and not sampler.is_chain and sampler.is_approximate:
        raise ConfigError(
            f"fit.sampling.method: expected a sampler of chains, such as nuts, for errors distributed as '{kind}', got "
            f"{request.settings.sampling.method}"
        )
    n_group = _groups(request, sampler)
    given = FitResult.read(fitted) if isinstance(fitted, str | Path) else fitted
    if given is not None and galaxy is None:
        request = like_fitted(request, given)
    problem = pose_request(request, galaxy, progress, None if files is None else files.check)
    _check_same_priors(problem, given)
    if given is None:
        problem = with_effects_checked(problem, progress)
    own = {what: kept for what, kept in fingerprint_of(problem).items() if what != "devices"}
    settings = sampler.settings
    chosen = settings.model_dump(include={"method", "seed"}) | {
        f"{settings.section_name}.{name}": value for name, value in settings.section.model_dump().items()
    }
    fingerprint = own | {
        "best fit to begin at (fitted)": key_of(None if given is None else np.asarray(given.latent)),
        "model error": repr(problem.settings.model_error),
        "layout of the draws": str(_LAYOUT),
        "version of the packages": repr(versions("arviz", *sampler.packages)),
        **{f"fit.sampling.{name}": repr(value) for name, value in chosen.items()},
    }
    if files is not None and restart:
        forget_searches(files.checkpoints)
    searches, place = (Searches(), None) if files is None else (files.searches, files.draws)
    begun = None if place is None else load_checkpoint(place, fingerprint, sampler.read)
    if place is None or begun is None:
        request, problem, best, notes = _best(request, problem, galaxy, given, searches, progress)
    else:
        request, problem, best, notes = _as_begun(request, problem, galaxy, given, begun, searches, place, progress)
    points = points_of(request)

    def keep(state: Any) -> None:
        if place is not None:
            save(place, state, fingerprint, notes, points)

    problem, about = _about_best(with_rows(problem, n_group), best, given, progress)
    result = _drawn(problem, sampler, best, about, begun, request.config, notes, keep, progress)
    result = _with_origin(result, given)
    if files is not None:
        with progress.step("write", f"writing {files.result}"):
            files.write(result)
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
    searches: Searches,
    progress: Progress,
) -> tuple[Request, Problem, Float[ndarray, " latent"], Sequence[str]]:
    """The best fit, looked for, or that of a result; with the model error there, and notes on the search."""
    if fitted is None:
        request, problem, found, *_ = find_best(request, problem, galaxy, searches, progress)
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
    searches: Searches,
    place: Path,
    progress: Progress,
) -> tuple[Request, Problem, Float[ndarray, " latent"], Sequence[str]]:
    """The best fit of a sampling that goes on: with as many quadrature points as its search ended with, and with the
    strength of the populations' prior to which the first search led, which is in its checkpoint."""
    notes = kept_notes(place)
    if fitted is not None:
        return request, _at_fitted(problem, fitted, progress), begun.best, notes
    if has_free_strength(problem.posterior.forward):
        request, problem, *_ = find_best(request, problem, galaxy, searches, progress)
        return request, problem, begun.best, notes
    points = kept_points(place) if chooses_points(request) else None
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


_NOT_INFLATED = (
    "fit.inflate_sigma does nothing to draws: they are those of the posterior with the errors of the data; free "
    "fit.noise_scale to sample their size"
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
    cubes = dict(
        zip(("model", "predictive", "residual"), _with_values(predicted, problem.posterior.free, values), strict=True)
    )
    of_problem = [*diagnosis.notes_on_precision(), *([_NOT_INFLATED] if problem.settings.inflate_sigma else [])]
    of_problem += [*problem.notes, *problem.pipeline.notes]
    said = notes_on_sampling(sampler, problem.posterior.free, sampled, diagnostics)
    of_models = (
        *notes_on_checks(predicted.checks),
        *_on_points(predicted, problem),
        *_on_particles(predicted, problem),
    )
    of_draws = [*_on_best(sampled, found.quality), *[*sampled.notes, *said, *of_models]]

    def of_set(kind: str, own: Predictive) -> SetResult:
        model, predictive, residual = _with_values(own, problem.posterior.free, values)
        return SetResult(kind, model, residual, predictive, own.pointwise)

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
        evidence=_evidence(problem, sampler, sampled, found, np.asarray(best)),
        checks=predicted.checks,
        pointwise=predicted.pointwise,
        scatter=predicted.scatter,
        **cubes,
        config=config.to_yaml(),
        versions=versions("arviz", *sampler.packages),
        notes=tuple(dict.fromkeys((*of_problem, *notes, *of_draws))),
        sets={data_set.name: of_set(data_set.kind, predicted.sets[data_set.name]) for data_set in problem.sets},
    )


def _evidence(
    problem: Problem, sampler: AbstractSampler, sampled: Sampled, found: BestFit, best: Float[ndarray, " latent"]
) -> Evidence | None:
    """The sampler's evidence, with the constant of the likelihood; where it gives none, that about the best fit."""
    if sampled.log_evidence is None or solves_for_populations(problem.posterior):
        return found.evidence
    value, error = sampled.log_evidence
    return Evidence(value + normalisation_at(problem.posterior, best), error, sampler.title)


def _with_values(predicted: Predictive, free: Free, values: Float[ndarray, "chain draw latent"]) -> Iterator[Cube]:
    """The cubes with the mean and the standard deviation of each number in their headers."""
    flat = values.reshape(-1, values.shape[-1])
    cubes = (predicted.model, predicted.predictive, predicted.residual)
    return (with_values(cube, free, flat.mean(axis=0), flat.std(axis=0)) for cube in cubes)


def _on_points(predicted: Predictive, problem: Problem) -> list[str]:
    """A note on sets of data whose points have no likelihoods of their own."""
    without = [name for name, predictive in predicted.sets.items() if predictive.pointwise is None]
    if not without or problem.settings.sampling.log_likelihood is None:
        return []
    return [
        f"ln(likelihood) of single {problem.settings.sampling.log_likelihood} is left out for {listed(without)}, whose "
        f"errors are correlated: to_arviz() has no group log_likelihood"
    ]


def _on_best(sampled: Sampled, quality: Quality) -> list[str]:
    """Notes on draws that fit better than the best fit, and of variational ones that fit too badly: draws from a normal
    posterior have losses half the number of latents above the lowest, on average."""
    lower = quality.loss - float(np.min(sampled.statistics["loss"]))
    expected = 0.5 * sampled.latent.shape[2]
    excess = float(np.mean(sampled.statistics["loss"])) - quality.loss
    approximate = not sampled.is_chain and find_sampler(sampled.method).is_approximate
    if approximate and excess > 2 * expected + _FAR_EXCESS:
        return [
            f"the mean loss of the draws is {excess:.3g} above that of the best fit, where about {expected:.3g} is "
            f"expected: the approximation has missed the posterior; take fit.sampling.method nuts, or wider priors"
        ]
    if not lower > diagnosis.ELSEWHERE:
        return []
    return [
        f"a draw has a loss lower by {lower:.3g} than the best fit, which is not the maximum of the posterior; raise "
        f"fit.starts or fit.candidates, and sample again"
    ]


def _on_particles(predicted: Predictive, problem: Problem) -> list[str]:
    """Notes on stars that the models of the draws cannot treat."""
    notes = []
    if predicted.n_fast:
        notes.append(
            f"in the models of the draws {predicted.n_fast:.3g} stars, on average, are faster than the model is made "
            f"for ({float(problem.pipeline.velocity_limit):.0f} km/s), and it is wrong for them; raise "
            f"engine.velocity_range and sample again"
        )
    if predicted.n_not_finite:
        notes.append(f"in the models of the draws {predicted.n_not_finite:.3g} stars, on average, are not finite")
    return notes
