"""Minimisation by the gradient of the loss, by the library optax: L-BFGS."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
from numpy import ndarray

from rubix_like.inference.posterior.posterior import Latents, SquaredLoss
from rubix_like.inference.posterior.start_groups import over_starts
from rubix_like.inference.search.optimisers import AbstractOptimiser, State, Status, chosen, status_after
from rubix_like.runtime.optional_packages import import_optional

_CALM_STEPS = 3
"""After how many steps on end that change the loss by less than the tolerance a start has converged."""

_PURPOSE = "fit.optimiser.name: lbfgs"


class GradientMemory(eqx.Module):
    """`trial`: where the loss is computed next; `inner`: optax's own state; `calm`: steps on end with little change."""

    trial: Float[Array, "*start latent"]
    inner: Any
    calm: Int[Array, "*start"]


class GradientDescent(AbstractOptimiser):
    """L-BFGS, which searches along a line for the length of its steps."""

    tolerance: Float[Array | ndarray, ""]
    steps: Int[Array | ndarray, ""]

    def init(self, latent: Latents) -> State:
        """Every start's own latents are its first trial."""
        inner = jax.vmap(_lbfgs().init)(latent)
        return State.begin(latent, GradientMemory(latent, inner, jnp.zeros(latent.shape[0], jnp.int32)))

    def step(self, posterior: SquaredLoss, state: State) -> State:
        """As many gradients as the search along a line needs."""
        return _step(self, posterior, state)


def _lbfgs() -> Any:
    return import_optional("optax", _PURPOSE).lbfgs()


@jax.jit
def _step(optimiser: GradientDescent, posterior: SquaredLoss, state: State) -> State:
    """Every running start a step further."""
    stepped = over_starts(lambda posterior, own: _stepped(optimiser, posterior, own), posterior, state)
    return chosen(state.status == int(Status.RUNNING), stepped, state)


def _stepped(optimiser: GradientDescent, posterior: SquaredLoss, own: State) -> State:
    optax = import_optional("optax", _PURPOSE)
    latent, inner = own.memory.trial, own.memory.inner
    loss, gradient = optax.value_and_grad_from_state(posterior.loss)(latent, state=inner)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        update, inner = _lbfgs().update(gradient, inner, latent, value=loss, grad=gradient, value_fn=posterior.loss)
    trial = latent + jnp.asarray(update)
    calm = jnp.where(jnp.abs(loss - own.loss) < optimiser.tolerance, own.memory.calm + 1, 0)
    status = status_after(
        first=own.n_step == 0,
        finite=jnp.isfinite(loss),
        smooth=jnp.isfinite(trial).all(),
        converged=calm >= _CALM_STEPS,
        stalled=jnp.zeros((), bool),
        exhausted=own.n_step >= optimiser.steps,
    )
    return State(
        latent=latent,
        loss=jnp.asarray(loss),
        gradient_norm=jnp.linalg.norm(jnp.asarray(gradient)),
        n_step=own.n_step + 1,
        status=status,
        memory=GradientMemory(trial, inner, calm),
    )
