"""The one program of a fit that holds the whole model: its flux, and as many of its slopes by the latents as are asked.

Everything else is made from what it returns, by programs of the size of the likelihood: the loss, its normal equations,
the misfit, effects of parameters, models with other draws. It serves all data, errors and draws. Where there is no room
for slopes, a second program gives the flux alone.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from rubix_like.inference.posterior.fit_model import AbstractForward
from rubix_like.inference.posterior.free import Free, Latent
from rubix_like.inference.posterior.posterior import Group, Posterior
from rubix_like.inference.posterior.start_groups import group_of, over_starts

_ROOM = 2.5e8
"""Bytes of slopes for which room is made also where none is asked for."""


class Modelled(NamedTuple):
    """Flux (1e-20 erg/s/cm2/Angstrom) of models, without the continuum's polynomial, their particles' counters, and
    the residuals of the smoothness prior where populations are solved for (`free_form`)."""

    flux: Float[Array, "*start y x wave"]
    counters: Any
    roughness: Float[Array, "*start difference"] | None = None


class Tangent(eqx.Module):
    """Flux (1e-20 erg/s/cm2/Angstrom) of models, without the continuum's polynomial, and its slopes by the latents.

    Models of parts of the particles add up, and so do their tangents, whatever the likelihood does with the sum.
    """

    flux: Float[Array, "*start y x wave"]
    slopes: Float[Array, "*start latent y x wave"]
    roughness: Float[Array, "*start difference"] | None = None
    roughness_slopes: Float[Array, "*start latent difference"] | None = None


def models(forward: AbstractForward, free: Free, latent: Group) -> Modelled:
    """The model of every start; not to be traced."""
    if 8.0 * free.n_latent * np.prod(forward.shape) > _ROOM:
        return flux_alone(forward, free, latent)
    return linearised(forward, free, latent, np.int32(0))[0]


def tangents(forward: AbstractForward, free: Free, latent: Group) -> Tangent:
    """The tangent of the model of every start; not to be traced."""
    modelled, slopes = linearised(forward, free, latent, np.int32(free.n_latent))
    return Tangent(modelled.flux, slopes[0], modelled.roughness, slopes[1])


def mean_tangent(parts: Iterable[Tangent]) -> Tangent:
    """The mean of tangents at the same latents, which lies where they do; by numpy, without a program. One part at a
    time is in memory."""
    total, places, count = [], [], 0
    for count, part in enumerate(parts, start=1):
        leaves = jax.tree.leaves(part)
        if count == 1:
            total, places = [np.array(leaf) for leaf in leaves], [leaf.sharding for leaf in leaves]
            continue
        for own, leaf in zip(total, leaves, strict=True):
            np.add(own, np.asarray(leaf), out=own)
    if not count:
        raise ValueError("expected at least one tangent, got none")
    return Tangent(*(jax.device_put(own / count, place) for own, place in zip(total, places, strict=True)))


@jax.jit
def linearised(
    forward: AbstractForward, free: Free, latent: Group, n_slope: Int[Array | np.integer, ""]
) -> tuple[Modelled, Any]:
    """The model of every start and its first `n_slope` slopes, the others 0; one slope after the other, which takes
    less time and memory. Without slopes it takes no longer than the model alone. Slopes: of the flux, and of the
    roughness (or None)."""
    return over_starts(_linearised, (forward, free, n_slope), latent)


@jax.jit
def flux_alone(forward: AbstractForward, free: Free, latent: Group) -> Modelled:
    """The model of every start."""
    return over_starts(_model, (forward, free), latent)


def models_at(posterior: Posterior, latent: Latent) -> Modelled:
    """The models of the group of one place (`group_of`)."""
    return models(posterior.forward, posterior.free, group_of(posterior, latent))


def tangents_at(posterior: Posterior, latent: Latent) -> Tangent:
    """The tangents of the group of one place (`group_of`)."""
    return tangents(posterior.forward, posterior.free, group_of(posterior, latent))


def _model(own: tuple[AbstractForward, Free], latent: Latent) -> Modelled:
    forward, free = own
    observed, roughness = forward.modelled(free.values(latent))
    return Modelled(observed.voxels.flux.astype(jax.dtypes.canonicalize_dtype(float)), observed.counters, roughness)


def _linearised(own: tuple[AbstractForward, Free, Array], latent: Latent) -> tuple[Modelled, Any]:
    forward, free, n_slope = own

    def model(at: Latent) -> tuple[tuple[Array, Array | None], Any]:
        made = _model((forward, free), at)
        return (made.flux, made.roughness), made.counters

    (flux, roughness), along, counters = jax.linearize(model, latent, has_aux=True)
    unit = jnp.eye(latent.shape[0], dtype=latent.dtype)

    def add(number: Array, slopes: Any) -> Any:
        return jax.tree.map(lambda every, one: every.at[number].set(one), slopes, along(unit[number]))

    none = jax.tree.map(lambda leaf: jnp.zeros((latent.shape[0], *leaf.shape), leaf.dtype), (flux, roughness))
    return Modelled(flux, counters, roughness), lax.fori_loop(0, n_slope, add, none)
