"""How devices are shared out: some starts of a fit, or samples, at once, each on as many devices as that leaves."""

import dataclasses

from rubix_like.inference.problem import Problem, for_samples


def models_at_once(n_device: int, n_model: int) -> int:
    """How many models are computed at the same time: all of them where that many can share the devices.

    A number that divides that of the devices, and the smallest with room for all models, so that none has to wait while
    each has as many devices as possible: what is not divided among the devices of a model, its cube, is computed once.
    """
    return min(count for count in range(1, n_device + 1) if n_device % count == 0 and count >= min(n_model, n_device))


def with_rows(problem: Problem, n_sample: int) -> Problem:
    """The problem whose devices compute `n_sample` models at once."""
    pipeline = for_samples(problem.pipeline, n_sample)
    forward = dataclasses.replace(problem.posterior.forward, tables=pipeline.tables, layout=pipeline.layout)
    posterior = dataclasses.replace(problem.posterior, forward=forward)
    return dataclasses.replace(problem, posterior=posterior, pipeline=pipeline)
