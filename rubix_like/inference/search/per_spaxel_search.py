"""Where to begin a fit of stars: each spaxel's for itself, by differential evolution of draws from the prior.

Every spaxel's spectrum depends, but for the light of its neighbours, on the stars in it alone. So one model tries as
many spectra as there are spaxels: of many draws of all stars, those of each spaxel are compared, mixed and kept by
themselves. That crosses the kinks and minima along ages and metallicities, at which a descent ends.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int
from numpy import ndarray

from rubix_like.config.sections.fit import FitSettings
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.forward.model import scene_before_fields
from rubix_like.inference.posterior.fit_model import STARS, Forward, HeldSource
from rubix_like.inference.posterior.free import Latent
from rubix_like.inference.posterior.linearise import over_starts
from rubix_like.inference.posterior.posterior import Posterior
from rubix_like.runtime.mesh.mesh import SAMPLE_AXIS

MASS: str = STARS + "initial_mass"
"""The light of a spaxel is proportional to the masses of its stars."""

FEWEST: int = 4
"""Members that one step of the evolution needs."""

_FARTHEST = 6.0
"""Largest latent to which a mass is scaled."""

_LENGTHS = (0.4, 1.0)
"""Shortest and longest part of the difference of two members that is added to a third."""

_CROSSED = 0.9
"""Part of the latents that a trial has from other members."""


class Patches(eqx.Module):
    """Which spaxel every latent belongs to, from 0, row by row; their number for stars outside the field.

    `owner` is -1 for latents that are of no star; `count`: one more than the number of spaxels.
    """

    spaxel: Int[Array, " star"]
    owner: Int[Array, " latent"]
    count: int = eqx.field(static=True)


class Trials(NamedTuple):
    """Latents, and each patch's part of the loss there."""

    latent: Float[ndarray, "member latent"]
    loss: Float[ndarray, "member patch"]


def evolved(
    posterior: Posterior, settings: FitSettings, mesh: Mesh, drawn: Float[ndarray, "candidate latent"]
) -> Float[ndarray, "start latent"]:
    """One start from every `settings.candidates` of the draws; none where no parameter of stars is free.

    Parameters that are not of stars are those of the draw with the lowest loss.
    """
    patches = patches_of(posterior, jnp.asarray(drawn[0])) if len(drawn) else None
    if patches is None or settings.candidates < FEWEST or settings.generations == 0:
        return drawn[:0]
    n_slot, sharding = mesh.shape[SAMPLE_AXIS], NamedSharding(mesh, PartitionSpec(None, SAMPLE_AXIS))

    def evaluate(latent: Float[ndarray, "member latent"]) -> Trials:
        filled = np.concatenate([latent, np.repeat(latent[-1:], -len(latent) % n_slot, axis=0)])
        groups = jax.device_put(filled.reshape(-1, n_slot, latent.shape[1]), sharding)
        found = _scaled_groups(posterior, patches, groups)
        return Trials(*(np.asarray(own).reshape(len(filled), -1)[: len(latent)] for own in found))

    populations = drawn.reshape(-1, settings.candidates, drawn.shape[1])
    owner, count = np.asarray(patches.owner), patches.count
    generators = (np.random.default_rng([settings.seed, number]) for number in range(len(populations)))
    ends = [
        evolve(evaluate, owner, count, population, settings.generations, generator)
        for population, generator in zip(populations, generators, strict=True)
    ]
    return np.stack(ends)


def evolve(
    evaluate: Callable[[Float[ndarray, "member latent"]], Trials],
    owner: Int[ndarray, " latent"],
    count: int,
    population: Float[ndarray, "member latent"],
    generations: int,
    generator: np.random.Generator,
) -> Float[ndarray, " latent"]:
    """The best of every patch after differential evolution of each for itself.

    A trial is x1 + F (x2 - x3) of three other members; where it has a lower loss it takes the member's place
    (Storn & Price 1997, J. Global Optim. 11, 341, DE/rand/1/bin).
    """
    members, loss = evaluate(population)
    of_star, own = owner >= 0, np.maximum(owner, 0)
    members = np.where(of_star, members, members[np.argmin(loss.sum(axis=1))])
    members, loss = evaluate(members)
    n_member, column = len(members), np.arange(len(owner))
    itself = 2 * np.eye(n_member)[:, :, None]
    for _ in range(generations):
        others = np.argsort(generator.random((n_member, n_member, count)) + itself, axis=1)[:, :3, own]
        one, two, three = (members[others[:, number], column] for number in range(3))
        length = generator.uniform(*_LENGTHS, (n_member, count))[:, own]
        crossed = of_star & (generator.random(members.shape) < _CROSSED)
        trial, trial_loss = evaluate(np.where(crossed, one + length * (two - three), members))
        better = trial_loss < loss
        members = np.where(better[:, own] & of_star, trial, members)
        loss = np.where(better, trial_loss, loss)
    return members[np.argmin(loss, axis=0)[own], column]


def patches_of(posterior: Posterior, latent: Latent) -> Patches | None:
    """Where the stars are for these latents; None where no parameter of stars is free."""
    free, forward = posterior.free, posterior.forward
    if not (isinstance(forward, Forward) and isinstance(forward.source, HeldSource) and free.has(STARS)):
        return None
    spaxel = _spaxels(posterior, latent)
    owners = [
        jnp.repeat(spaxel, own.size // len(spaxel)) if own.name.startswith(STARS) else jnp.full(own.size, -1, jnp.int32)
        for own in free.parameters
    ]
    return Patches(spaxel, jnp.concatenate(owners), forward.tables.footprint.n_element + 1)


@jax.jit
def _spaxels(posterior: Posterior, latent: Latent) -> Int[Array, " star"]:
    """Flat index of the spaxel whose middle is nearest to each star."""
    forward = posterior.forward.main
    galaxy, parameters = posterior.at(latent)
    scene = scene_before_fields(forward.tables, parameters, "stars", galaxy.stars)
    return SpaxelGrid(forward.tables.footprint, "nearest").weights(scene.position)[0][:, 0]


@jax.jit
def _scaled_groups(
    posterior: Posterior, patches: Patches, groups: Float[Array, "group start latent"]
) -> tuple[Float[Array, "group start latent"], Float[Array, "group start patch"]]:
    """`scaled` for groups of as many latents as are computed at once."""
    return lax.map(lambda group: over_starts(lambda own, at: scaled(own, patches, at), posterior, group), groups)


def scaled(
    posterior: Posterior, patches: Patches, latent: Float[Array, " latent"]
) -> tuple[Float[Array, " latent"], Float[Array, " patch"]]:
    """The latents with the masses of each patch's stars scaled to fit best, and each patch's part of the loss then.

    The part of a patch is half of chi^2 in its spaxel and half the squares of its stars' latents.
    """
    likelihood = dataclasses.replace(posterior.likelihood, model_error=None)
    model = posterior.model(latent).astype(latent.dtype)
    if MASS in posterior.free.names:
        latent, factor = _best_masses(posterior, patches, latent, model)
        model = model * factor[:-1].reshape(model.shape[:2])[:, :, None]
    residuals = dataclasses.replace(posterior, likelihood=likelihood).residuals_of(model, latent)
    square = jnp.sum(residuals.voxels**2, axis=2)
    if residuals.coefficients is not None:
        square = square + jnp.sum(residuals.coefficients**2, axis=2)
    prior = jax.ops.segment_sum(latent**2, patches.owner, patches.count)
    loss = 0.5 * (prior + jnp.append(square.reshape(-1), 0.0))
    return latent, jnp.where(jnp.isfinite(loss), loss, jnp.inf)


def _best_masses(
    posterior: Posterior, patches: Patches, latent: Float[Array, " latent"], model: Float[Array, "y x wave"]
) -> tuple[Float[Array, " latent"], Float[Array, " patch"]]:
    """Candidates with every patch's masses times the factor of least chi^2, and the factors: 1 where the prior has no
    such."""
    free, likelihood = posterior.free, posterior.likelihood
    weight = likelihood.inverse_sigma**2
    own = jnp.sum(model * model * weight, axis=2)
    best = jnp.sum(model * likelihood.flux * weight, axis=2) / jnp.where(own > 0, own, 1.0)
    factor = jnp.append(jnp.where(best > 0, best, 1.0).reshape(-1), 1.0)
    prior, place = free.parameters[free.names.index(MASS)].prior, free.places[MASS]
    old = latent[place]
    new = prior.latent(prior.value(old) * factor[patches.spaxel])
    outside = (~(jnp.abs(new) < _FARTHEST)).astype(jnp.int32)
    kept = jax.ops.segment_max(outside, patches.spaxel, patches.count) > 0
    new = jnp.where(kept[patches.spaxel], old, new)
    return latent.at[place].set(new), jnp.where(kept, 1.0, factor)
