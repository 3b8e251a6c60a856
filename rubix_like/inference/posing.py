"""The posterior of a request: its data are read, its model is planned."""

from collections.abc import Callable

import numpy as np

from rubix_like.forward.pipeline import Pipeline
from rubix_like.inference.posterior.problem import Given, Problem, pose
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
            return pose(request.model, observed, request.settings, galaxy, n_start, report)
    with progress.step("load", "reading the data"):
        sets = request.read_sets()
    if check is not None:
        check(max((own.observed.shape for own in sets), key=np.prod))
    with progress.step("plan", "planning the models") as report:
        return pose_sets(request.model, sets, request.settings, galaxy, n_start, report)
