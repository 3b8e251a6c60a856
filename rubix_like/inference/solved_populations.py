"""Populations that a fit has solved for: the strength of their prior, and draws of their weights."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from rubix_like.galaxy.components.smooth import SmoothGalaxy
from rubix_like.inference.populations.histories import Populations
from rubix_like.inference.populations.mixtures import Mixtures, Solved
from rubix_like.inference.populations.planned_mixtures import stars_of
from rubix_like.inference.populations.weight_draws import Draws, draw_weights
from rubix_like.inference.posterior.fit_model import AbstractForward, ComponentsSource, Forward
from rubix_like.inference.posterior.free import Latent
from rubix_like.inference.posterior.posterior import Posterior

_WARM, _DRAWS = 200, 600
"""Draws of weights and strengths that are left out, and that are kept."""

_SEED = 1


def has_free_strength(forward: AbstractForward) -> bool:
    """Whether the strength of a prior is to be found from the data."""
    found = _solving(forward)
    stars = () if found is None else map(stars_of, found[1].components)
    return any(own is not None and own.smoothness is None for own in stars)


def _solving(forward: AbstractForward) -> tuple[Mixtures, SmoothGalaxy] | None:
    """What a model with free-form populations solves for them by, and its components."""
    if not isinstance(forward, Forward) or forward.mixtures is None or not isinstance(forward.source, ComponentsSource):
        return None
    return forward.mixtures, forward.source.base


def with_strength(posterior: Posterior, latent: Latent) -> Posterior:
    """The model with the strengths of which half of the draws at these latents are higher; those given stay."""
    found = drawn_weights(posterior, latent)
    solving = _solving(posterior.forward)
    assert solving is not None
    known = solving[0].strength
    strength = jax.device_put(jnp.median(found.strength, axis=0).astype(known.dtype), known.sharding)
    return eqx.tree_at(lambda own: own.forward.mixtures.strength, posterior, strength)


def populations_at(posterior: Posterior, latent: Latent) -> dict[str, Populations]:
    """The populations that are solved for at these latents by the names of their components, with draws of the weights
    and strengths."""
    solving = _solving(posterior.forward)
    if solving is None:
        return {}
    mixtures, base = solving
    solved = _solved(posterior, jnp.asarray(latent))
    draws = drawn_weights(posterior, latent)
    best, drawn = mixtures.parts(solved.weights), mixtures.parts(draws.weights)
    found = {}
    for place, number in enumerate(mixtures.solved):
        stars = stars_of(base.components[number])
        assert stars is not None
        shape = len(stars.metallicities), len(stars.log_ages)
        mass = float(np.asarray(base.components[number].mass))
        coefficients = np.asarray(mixtures.coefficients[place])
        found[base.names[number]] = Populations(
            labels=(base.names[number],),
            log_age=np.array(stars.log_ages),
            metallicity=np.array(stars.metallicities),
            mass=mass * np.asarray(best[place], np.float64).reshape(1, *shape),
            draws=mass * np.asarray(drawn[place], np.float64).reshape(-1, 1, *shape),
            smoothness=np.asarray(draws.strength, np.float64)[:, place : place + 1],
            light_per_mass=np.asarray(coefficients[:, 0], np.float64).reshape(shape),
        )
    return found


def drawn_weights(posterior: Posterior, latent: Latent) -> Draws:
    """Draws of all weights, and of the strength for each component, at these latents."""
    solving = _solving(posterior.forward)
    if solving is None:
        raise ValueError("expected populations that are solved for, got none")
    mixtures, base = solving
    solved = _solved(posterior, jnp.asarray(latent))
    stars = [stars_of(own) for own in base.components]
    held = tuple(own.smoothness is not None for own in stars if own is not None)
    return _drawn(mixtures, solved, jax.random.key(_SEED), held)


@eqx.filter_jit
def _drawn(mixtures: Mixtures, solved: Solved, key: Array, held: tuple[bool, ...]) -> Draws:
    groups = jnp.asarray(mixtures.of_row, jnp.int32)
    return draw_weights(solved.problem, solved.weights, mixtures.strength, groups, key, _WARM, _DRAWS, held=held)


@jax.jit
def _solved(posterior: Posterior, latent: Latent) -> Solved:
    return posterior.solved(latent)
