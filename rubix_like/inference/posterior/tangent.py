"""The two programs of a fit that hold the whole model: its flux, and its flux with the slopes by the latents.

Everything else is made from what they return, by programs of the size of the likelihood: the loss, its normal
equations, the misfit, effects of parameters, models with other draws. Both serve all data, errors and draws.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.inference.posterior.fit_model import Forward
from rubix_like.inference.posterior.free import Free, Latent
from rubix_like.inference.posterior.posterior import Group, Posterior
from rubix_like.inference.posterior.start_groups import group_of, over_starts


class Modelled(NamedTuple):
    """Flux (1e-20 erg/s/cm2/Angstrom) of models, without the continuum's polynomial, and their particles' counters."""

    flux: Float[Array | ndarray, "*start y x wave"]
    counters: Any


class Tangent(eqx.Module):
    """Flux (1e-20 erg/s/cm2/Angstrom) of models, without the continuum's polynomial, and its slopes by the latents.

    Models of parts of the particles add up, and so do their tangents, whatever the likelihood does with the sum.
    """

    flux: Float[Array, "*start y x wave"]
    slopes: Float[Array, "*start latent y x wave"]

    def plus(self, other: "Tangent") -> "Tangent":
        """The sum of two, of the same latents."""
        return _sum(self, other)

    def over(self, count: int) -> "Tangent":
        """The tangent divided by a number."""
        return _quotient(self, float(count))


@jax.jit
def models(forward: Forward, free: Free, latent: Group) -> Modelled:
    """The model of every start."""
    return over_starts(_model, (forward, free), latent)


@jax.jit
def tangents(forward: Forward, free: Free, latent: Group) -> Tangent:
    """The tangent of the model of every start; the slopes one after the other, which takes less time and memory."""
    return over_starts(_tangent, (forward, free), latent)


def models_at(posterior: Posterior, latent: Latent) -> Modelled:
    """The models of the group of one place (`group_of`)."""
    return models(posterior.forward, posterior.free, group_of(posterior, latent))


def tangents_at(posterior: Posterior, latent: Latent) -> Tangent:
    """The tangents of the group of one place (`group_of`)."""
    return tangents(posterior.forward, posterior.free, group_of(posterior, latent))


def _model(own: tuple[Forward, Free], latent: Latent) -> Modelled:
    forward, free = own
    observed = forward.observed(free.values(latent))
    return Modelled(observed.voxels.flux.astype(_dtype()), observed.counters)


def _tangent(own: tuple[Forward, Free], latent: Latent) -> Tangent:
    flux, along = jax.linearize(lambda at: _model(own, at).flux, latent)
    return Tangent(flux, lax.map(along, jnp.eye(latent.shape[0], dtype=latent.dtype)))


def _dtype() -> Any:
    return jax.dtypes.canonicalize_dtype(float)


@jax.jit
def _sum(one: Tangent, other: Tangent) -> Tangent:
    return jax.tree.map(jnp.add, one, other)


@jax.jit
def _quotient(tangent: Tangent, count: Array) -> Tangent:
    return jax.tree.map(lambda leaf: leaf / count, tangent)
