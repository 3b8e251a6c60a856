"""From starts drawn from the prior to the ends of all of them, step by step, and resumable after every step."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from rubix_like.inference.optimisers import REASONS, Status
from rubix_like.inference.problem import Problem


@dataclass(frozen=True)
class Snapshot:
    """A search after a step, in host arrays: enough to go on bit for bit.

    `start`: latents that each start begins with; `latent`, `loss`, `gradient_norm`, `n_step`, `status`: where each is
    now (`Status`); `trace_*`: the same after each of its steps (NaN where there was none yet); `trace_latent` is empty
    along its last axis where it would be too large; `slots`: the starts that are computed at present; `state`: the
    arrays of the optimiser's state for them.
    """

    start: Float[ndarray, "start latent"]
    latent: Float[ndarray, "start latent"]
    loss: Float[ndarray, " start"]
    gradient_norm: Float[ndarray, " start"]
    n_step: Int[ndarray, " start"]
    status: Int[ndarray, " start"]
    trace_loss: Float[ndarray, "start step"]
    trace_gradient_norm: Float[ndarray, "start step"]
    trace_latent: Float[ndarray, "start step _"]
    slots: Int[ndarray, " slot"]
    state: tuple[ndarray, ...]

    @property
    def finished(self) -> bool:
        """Whether all starts have ended."""
        return bool(np.all((self.status != Status.RUNNING) & (self.status != Status.WAITING)))

    @property
    def converged(self) -> ndarray:
        """Which of the starts have converged."""
        return self.status == Status.CONVERGED

    @property
    def best(self) -> int:
        """Number of the start with the lowest loss so far; those that failed do not count."""
        return int(np.nanargmin(np.where(np.isfinite(self.loss), self.loss, np.inf)))

    def reasons(self) -> tuple[str, ...]:
        """Where each of the starts is, in words."""
        return tuple(REASONS[Status(status)] for status in self.status)

    def arrays(self) -> dict[str, ndarray]:
        """Everything by name; `from_arrays` is its inverse."""
        raise NotImplementedError

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ndarray]) -> "Snapshot":
        """A snapshot of what `arrays` returned."""
        raise NotImplementedError


def search(problem: Problem, resume: Snapshot | None = None) -> Iterator[Snapshot]:
    """Yields a snapshot before the first step and after every step; in the last one all starts have ended.

    The starts are computed as many at once as the posterior's mesh has devices along "sample". A search resumed from
    any snapshot goes on as if it had not stopped. Raises ValueError where every start has failed, with the reasons.
    """
    raise NotImplementedError
