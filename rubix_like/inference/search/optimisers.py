"""The interface of optimisers: the state of a group of starts, and the step from one state to the next."""

from abc import abstractmethod
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rubix_like.inference.posterior.posterior import Latents, SquaredLoss


class Status(IntEnum):
    """State of a start: running, or why it ended."""

    RUNNING = 0
    CONVERGED = 1
    LOSS_NOT_FINITE = 2
    GRADIENT_NOT_FINITE = 3
    STALLED = 4
    STEPS_USED_UP = 5
    WAITING = 6
    DIVERGED = 7
    SATURATED = 8
    CREEPING = 9


REASONS: Mapping[Status, str] = {
    Status.RUNNING: "it is still running",
    Status.CONVERGED: "it converged",
    Status.LOSS_NOT_FINITE: "the loss is not a finite number where it starts",
    Status.GRADIENT_NOT_FINITE: "the derivatives of the residuals are not finite numbers, although the loss is one",
    Status.STALLED: "no step lowers the loss any more, however short, although it should: it is not smooth there",
    Status.STEPS_USED_UP: "it made as many steps as fit.optimiser.steps allows",
    Status.WAITING: "it has not begun",
    Status.DIVERGED: "a step led to where the loss is not a finite number; try levenberg_marquardt",
    Status.SATURATED: "it was given up at the limits of its priors, where no slope leads back, for another candidate",
    Status.CREEPING: "it was given up far above a better start, where its loss hardly fell, for another candidate",
}
"""Where a start is, in words."""

FAILED: frozenset[Status] = frozenset({Status.LOSS_NOT_FINITE, Status.GRADIENT_NOT_FINITE, Status.DIVERGED})
"""Ends that are no result."""

GIVEN_UP: frozenset[Status] = frozenset({Status.SATURATED, Status.CREEPING})
"""Ends of starts that could have gone on."""


class State(eqx.Module):
    """A group of starts, each at a step of its own: arrays, with the axis `start` first, that are all there is to know.

    `loss` and `gradient_norm` are those at `latent` (infinite before the first step); `n_step`: how many steps it has
    made, of which the first only computes what is at the start; `status`: a `Status`; `memory`: what else its
    optimiser needs to go on.
    """

    latent: Float[Array, "*start latent"]
    loss: Float[Array, "*start"]
    gradient_norm: Float[Array, "*start"]
    n_step: Int[Array, "*start"]
    status: Int[Array, "*start"]
    memory: Any

    @classmethod
    def begin(cls, latent: Latents, memory: Any) -> "State":
        """Starts that are about to run. No type of an array is weak, so that what follows is compiled once."""
        count = latent.shape[0]
        infinite = jnp.full(count, jnp.inf, latent.dtype)
        return cls(
            latent=latent,
            loss=infinite,
            gradient_norm=infinite,
            n_step=jnp.zeros(count, jnp.int32),
            status=jnp.full(count, int(Status.RUNNING), jnp.int32),
            memory=jax.tree.map(lambda leaf: leaf.astype(leaf.dtype), memory),
        )


class AbstractOptimiser(eqx.Module):
    """A way to minimise; a pytree of its numbers, that knows nothing of what is minimised."""

    @abstractmethod
    def init(self, latent: Latents) -> State:
        """The state of starts at these latents; nothing of the posterior is computed."""

    @abstractmethod
    def step(self, posterior: SquaredLoss, state: State) -> State:
        """Every running start a step further, the others as they are.

        Not to be traced: it runs programs that are compiled once for all groups of this size and data of these shapes.
        """


def chosen(pick: Array, these: Any, others: Any) -> Any:
    """For each start the one or the other of two pytrees of arrays with the axis `start` first."""

    def choose(one: Array, other: Array) -> Array:
        return jnp.where(pick.reshape(pick.shape + (1,) * (one.ndim - 1)), one.astype(other.dtype), other)

    return jax.tree.map(choose, these, others)


def status_after(
    first: Array, finite: Array, smooth: Array, converged: Array, stalled: Array, exhausted: Array
) -> Int[Array, ""]:
    """The status after a step, `first`: it was the start's own; the first fault that is found counts."""
    ends = (
        (~finite & first, Status.LOSS_NOT_FINITE),
        (~finite, Status.DIVERGED),
        (~smooth, Status.GRADIENT_NOT_FINITE),
        (converged, Status.CONVERGED),
        (stalled, Status.STALLED),
        (exhausted, Status.STEPS_USED_UP),
    )
    return jnp.select(
        [end for end, _ in ends], [jnp.int32(int(status)) for _, status in ends], jnp.int32(int(Status.RUNNING))
    )
