"""Assemble the result of sampling: values, diagnostics, predictions and notes."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.config import RunConfig
from rubix_like.cube.cube import Cube
from rubix_like.inference.best_fit import BestFit
from rubix_like.inference.checkpoint import versions
from rubix_like.inference.checks import notes_after as diagnosis
from rubix_like.inference.checks.evidence import Evidence, normalisation_at, solves_for_populations
from rubix_like.inference.fit_cubes import with_values
from rubix_like.inference.posterior.free import Free
from rubix_like.inference.posterior.problem import Problem
from rubix_like.inference.posterior.quality import Quality
from rubix_like.inference.results.sample_result import SampleResult, flat_values
from rubix_like.inference.results.set_result import SetResult
from rubix_like.inference.samplers.convergence import Convergence, convergence_of, notes_on_sampling, trouble_of_chains
from rubix_like.inference.samplers.predictive import Predictive, predict
from rubix_like.inference.samplers.predictive_checks import notes_on_checks
from rubix_like.inference.samplers.samplers import AbstractSampler, Sampled, find_sampler
from rubix_like.runtime.words import listed

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
    of_draws = [*_on_best(sampled, found.quality), *_on_draws(problem, sampler, sampled, diagnostics, predicted)]
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
        sets=_set_results(problem, predicted, values),
    )


def _set_results(
    problem: Problem, predicted: Predictive, values: Float[ndarray, "chain draw latent"]
) -> dict[str, SetResult]:
    """Results of several sets of data, by name."""

    def of_set(kind: str, own: Predictive) -> SetResult:
        model, predictive, residual = _with_values(own, problem.posterior.free, values)
        return SetResult(kind, model, residual, predictive, own.pointwise)

    return {own.name: of_set(own.kind, predicted.sets[own.name]) for own in problem.sets}


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
    return (with_values(own, free, flat.mean(axis=0), flat.std(axis=0)) for own in cubes)


def _on_draws(
    problem: Problem, sampler: AbstractSampler, sampled: Sampled, found: Convergence, predicted: Predictive
) -> list[str]:
    """Notes on the draws and on their models."""
    said = notes_on_sampling(sampler, problem.posterior.free, sampled, found)
    of_models = (
        *notes_on_checks(predicted.checks),
        *_on_points(predicted, problem),
        *_on_particles(predicted, problem),
    )
    return [*sampled.notes, *said, *of_models]


def _on_points(predicted: Predictive, problem: Problem) -> list[str]:
    """A note on sets of data whose points have no likelihoods of their own."""
    without = [name for name, own in predicted.sets.items() if own.pointwise is None]
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
