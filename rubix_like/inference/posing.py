"""The posterior of a request: its data are read, its model is planned."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rubix_like.forward.pipeline import Pipeline
from rubix_like.galaxy.validation import implausible_notes
from rubix_like.inference.posterior.problem import Given, Problem, check_plausible, pose
from rubix_like.inference.request import Request
from rubix_like.inference.sets.pose_sets import pose_sets
from rubix_like.runtime.progress import Progress


def posed(
    request: Request,
    galaxy: Given | None,
    progress: Progress,
    n_start: int,
    check: Callable[[tuple[int, int, int]], None] | None = None,
) -> Problem:
    """The problem of a request, for as many starts at once: of one cube, or of several sets of data.

    `check`: what the shape of the largest cube must pass before.
    """
    if request.sets is None or isinstance(request.model, Pipeline):
        with progress.step("load", "reading the data"):
            observed = request.read()
        if check is not None:
            check(observed.shape)
        with progress.step("plan", "planning the model") as report:
            problem = pose(request.model, observed, request.settings, galaxy, n_start, report)
            return _with_judged_galaxy(problem, request)
    with progress.step("load", "reading the data"):
        sets = request.read_sets()
    if check is not None:
        check(max((own.observed.shape for own in sets), key=np.prod))
    with progress.step("plan", "planning the models") as report:
        problem = pose_sets(request.model, sets, request.settings, galaxy, n_start, report)
        return _with_judged_galaxy(problem, request)


def _with_judged_galaxy(problem: Problem, request: Request) -> Problem:
    """The problem with notes on numbers that no galaxy has; raises ValueError unless the settings accept them.

    A model may be at rest: its velocity dispersion is not judged.
    """
    galaxy = problem.posterior.forward.source.of_host({})
    found = implausible_notes(galaxy, is_at_rest=True)
    check_plausible(found, "the galaxy", request.settings)
    return replace(problem, notes=tuple(dict.fromkeys((*problem.notes, *found))))
