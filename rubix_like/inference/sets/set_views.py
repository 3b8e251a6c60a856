"""One of several fitted sets as if it had been fitted alone: for its cubes, and what is said of it."""

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from rubix_like.cube.meta import SourceCounters
from rubix_like.inference.fit_cubes import Evaluated
from rubix_like.inference.fitted_set import FittedSet
from rubix_like.inference.posterior.likelihood import ModelError
from rubix_like.inference.posterior.problem import Problem


def sets_alone(problem: Problem) -> Iterator[tuple[FittedSet, Problem]]:
    """Each set with the problem of it alone, none of one cube: data, errors and grids, not the model."""
    for own in problem.sets:
        yield own, set_alone(problem, own)


def set_alone(problem: Problem, data_set: FittedSet) -> Problem:
    """The problem of one set alone, whose voxels are (y, x, wave)."""
    likelihood = problem.posterior.likelihood
    alone = dataclasses.replace(
        likelihood,
        flux=data_set.unpacked(likelihood.flux),
        inverse_sigma=data_set.unpacked(likelihood.inverse_sigma),
        errors=None,
        dependent=None if likelihood.dependent is None else data_set.unpacked(likelihood.dependent),
        model_error=None if likelihood.model_error is None else _part_of(likelihood.model_error, data_set),
    )
    return dataclasses.replace(
        problem,
        posterior=dataclasses.replace(problem.posterior, likelihood=alone),
        observed=data_set.observed,
        pipeline=data_set.seen,
        settings=data_set.settings,
        sets=(),
    )


def evaluated_for(problem: Problem, own: FittedSet, found: Evaluated) -> Evaluated:
    """What is said of a place, of one set alone."""
    return found._replace(
        flux=np.asarray(own.unpacked(found.flux)), counters=set_counters(problem, own, found.counters)
    )


def set_counters(problem: Problem, own: FittedSet, counters: Mapping[str, SourceCounters]) -> dict[str, SourceCounters]:
    """The counters of a set's sources, by their names."""
    sources = own.pipeline.plan.sources
    before = "" if own is problem.first_cube else f"{own.name}."
    return {name: counters[before + name] for name in sources if before + name in counters}


def _part_of(error: ModelError, data_set: FittedSet) -> ModelError:
    """The part of a model's particle noise in one set."""
    names = ("offset", "modes", "held_out")
    return dataclasses.replace(error, **{name: data_set.unpacked(getattr(error, name)) for name in names})
