"""The interface of optimisers: the state of a group of starts, and the step from one state to the next."""

from abc import abstractmethod
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
from jaxtyping import Array, Float, Int

from rubix_like.config.fit import OptimiserSettings
from rubix_like.inference.free import Latent

Latents = Float[Array, "start latent"]


@runtime_checkable
class SquaredLoss(Protocol):
    """What is minimised: half the squared sum of residuals that depend on a vector of latents; a pytree."""

    def residuals(self, latent: Latent) -> Any:
        """A pytree of residuals."""

    def loss(self, latent: Latent) -> Float[Array, ""]:
        """Half their squared sum."""
        ...


class Status(IntEnum):
    """What a start is at."""

    RUNNING = 0
    CONVERGED = 1
    LOSS_NOT_FINITE = 2
    GRADIENT_NOT_FINITE = 3
    STALLED = 4
    STEPS_USED_UP = 5
    WAITING = 6


REASONS: Mapping[Status, str] = {
    Status.RUNNING: "is still running",
    Status.CONVERGED: "converged: a step changes the loss by less than fit.optimiser.tolerance",
    Status.LOSS_NOT_FINITE: "the loss is not finite where it starts: the model or the data give NaN or infinity there",
    Status.GRADIENT_NOT_FINITE: "the derivatives of the residuals are not finite, although the loss is",
    Status.STALLED: "no step lowers the loss any more, however short, although its gradient is not zero",
    Status.STEPS_USED_UP: "not converged after all steps of fit.optimiser.steps",
    Status.WAITING: "has not begun",
}
"""Why a start has ended, in words."""


class State(eqx.Module):
    """A group of starts, each at its own step: arrays only, with the axis `start` first, that are all there is to know.

    `status`: a `Status`; `n_step`: losses at trial latents that were computed, the start's own among them; `memory`:
    whatever else the optimiser needs to go on.
    """

    latent: Latents
    loss: Float[Array, " start"]
    gradient_norm: Float[Array, " start"]
    n_step: Int[Array, " start"]
    status: Int[Array, " start"]
    memory: Any

    @property
    def running(self) -> Array:
        """Which of them have not ended."""
        return self.status == Status.RUNNING


class AbstractOptimiser(eqx.Module):
    """A way to minimise; a pytree of its numbers, and nothing of what is minimised."""

    @abstractmethod
    def init(self, latent: Latents) -> State:
        """The state of starts at these latents before anything was computed; cheap."""

    @abstractmethod
    def step(self, posterior: SquaredLoss, state: State) -> State:
        """Every running start a step further; the others as they are.

        Not to be traced: it compiles what it needs, once for all groups of this size and all data of these shapes.
        """


def make_optimiser(settings: OptimiserSettings, n_latent: int, n_residual: int) -> AbstractOptimiser:
    """The optimiser of the settings that suits the size of the problem; ValueError where its package is missing."""
    raise NotImplementedError
