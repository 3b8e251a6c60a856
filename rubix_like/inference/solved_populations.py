"""Populations that a fit has solved for by non-negative least squares inside the model: the strength of their prior,
and draws of their weights.
"""

import functools
from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.errors import ConfigError
from rubix_like.galaxy.components.smooth import SmoothGalaxy
from rubix_like.inference.populations.mixtures import Mixtures, Solved
from rubix_like.inference.populations.populations import Populations, solved_stars
from rubix_like.inference.populations.weight_draws import (
    Reduced,
    draw_by_ratios,
    draw_weights,
    neighbours_of,
    neighbours_together,
    without_pairs,
)
from rubix_like.inference.posterior.fit_model import AbstractForward, ComponentsSource, Forward, Latent
from rubix_like.inference.posterior.posterior import Posterior
from rubix_like.runtime.words import listed

_WARM, _DRAWS = 200, 600
"""Draws that are left out, and that are kept."""

_SEED = 1


def has_free_strength(forward: AbstractForward) -> bool:
    """Whether the strength of a prior is to be found from the data."""
    found = _mixtures_or_none(forward)
    return found is not None and not all(_held(found[1]))


def _mixtures_or_none(forward: AbstractForward) -> tuple[Mixtures, SmoothGalaxy] | None:
    """The mixtures by which a model solves for free-form populations, and its components."""
    if not isinstance(forward, Forward) or forward.mixtures is None or not isinstance(forward.source, ComponentsSource):
        return None
    return forward.mixtures, forward.source.base


def with_strength(posterior: Posterior, latent: Latent) -> Posterior:
    """The posterior with each free prior strength set to the median of its draws at these latents; strengths that the
    configuration gives stay."""
    mixtures, base = _mixtures_of(posterior)
    drawn = _drawn_strength(mixtures, _solved_at(posterior, jnp.asarray(latent)), jax.random.key(_SEED), _held(base))
    known = mixtures.strength
    strength = jax.device_put(jnp.median(drawn, axis=0).astype(known.dtype), known.sharding)
    return eqx.tree_at(lambda posterior: posterior.forward.mixtures.strength, posterior, strength)


def with_known_strength(posterior: Posterior, known: Mapping[str, Populations]) -> Posterior:
    """The model with the strengths of populations that are known, by the names of their components.

    Raises ConfigError where there is none of that name.
    """
    mixtures, base = _mixtures_of(posterior)
    names = [base.names[number] for number in mixtures.solved]
    missing = [name for name in names if name not in known]
    if missing:
        raise ConfigError(
            f"fitted: expected the result of a fit with the free-form populations of {listed(names)}, got "
            f"{listed(known) if known else 'none'}; fit again"
        )
    found = np.array([float(known[name].smoothness[0]) for name in names], mixtures.strength.dtype)
    strength = jax.device_put(found, mixtures.strength.sharding)
    return eqx.tree_at(lambda posterior: posterior.forward.mixtures.strength, posterior, strength)


def followed_by_weights(posterior: Posterior, latent: Latent) -> Float[ndarray, "vector y x wave"]:
    """A square root F of the hat matrix H = F F^T: the part of the noise that the solved weights fit away.

    In units of sigma; trace H is the effective number of weights. H = A (A^T A + S^T S)^-1 A^T; A: the templates of
    weights that are not 0, S: the rows of their smoothness prior with its strength. No vector without solved weights.
    """
    solving = _mixtures_or_none(posterior.forward)
    if solving is None:
        return np.zeros((0, *posterior.forward.shape))
    mixtures, _ = solving
    found = _solved_at(posterior, jnp.asarray(latent))
    free, size = np.asarray(found.free), found.problem.design.shape[0]
    stacked = np.concatenate([np.asarray(rows, np.float64) for rows in (found.problem.design, mixtures.rows)])[:, free]
    even = np.linalg.qr(stacked / np.linalg.norm(stacked, axis=0))[0]
    return (np.asarray(found.orthogonal, np.float64) @ even[:size]).T.reshape(-1, *mixtures.flux.shape)


def populations_at(posterior: Posterior, latent: Latent) -> dict[str, Populations]:
    """The populations solved for at these latents, by the names of their components, with draws of the weights."""
    solving = _mixtures_or_none(posterior.forward)
    if solving is None:
        return {}
    mixtures, base = solving
    solved = _solved_at(posterior, jnp.asarray(latent))
    best, ends = mixtures.parts(solved.weights), np.cumsum([len(table) for table in mixtures.coefficients])
    drawn = np.split(_drawn_weights(mixtures, base, solved), ends[:-1], axis=1)
    found = {}
    for place, (number, stars) in enumerate(solved_stars(base).items()):
        shape = len(stars.metallicities), len(stars.log_ages)
        mass = float(np.asarray(base.components[number].mass))
        found[base.names[number]] = Populations(
            labels=(base.names[number],),
            log_age=np.array(stars.log_ages),
            metallicity=np.array(stars.metallicities),
            mass=mass * np.asarray(best[place], np.float64).reshape(1, *shape),
            draws=mass * drawn[place].reshape(-1, 1, *shape),
            smoothness=np.asarray(mixtures.strength, np.float64)[place : place + 1],
            light_per_mass=_light(mixtures, place).reshape(shape),
        )
    return found


def _mixtures_of(posterior: Posterior) -> tuple[Mixtures, SmoothGalaxy]:
    solving = _mixtures_or_none(posterior.forward)
    if solving is None:
        raise ValueError("expected populations that are solved for, got none")
    return solving


def _held(base: SmoothGalaxy) -> tuple[bool, ...]:
    """Whether the strength of the smoothness prior is given, of each component that is solved for."""
    return tuple(stars.smoothness is not None for stars in solved_stars(base).values())


def _light(mixtures: Mixtures, place: int) -> ndarray:
    """Mean light of the nodes of one component, per weight."""
    return np.asarray(mixtures.coefficients[place][:, 0], np.float64)


def _drawn_weights(mixtures: Mixtures, base: SmoothGalaxy, solved: Solved) -> ndarray:
    """Draws of all weights, in 64 bits: by the prior on ratios, or the smoothness prior where its strength is given."""
    rows = np.asarray(_held(base))[list(mixtures.of_row)] * np.asarray(mixtures.strength)[list(mixtures.of_row)]
    arrays, first = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (solved.problem, solved.weights))
    with jax.enable_x64(True):
        design, target = Reduced(*map(jnp.asarray, arrays)).stacked(jnp.asarray(rows, jnp.float64))
        problem = Reduced(design, target, jnp.zeros((0, len(first))))
        found = []
        for place, stars in enumerate(solved_stars(base).values()):
            light, axes = _light(mixtures, place), (np.log10(stars.metallicities), np.array(stars.log_ages))
            is_held = stars.smoothness is not None
            found.append(without_pairs(len(light)) if is_held else neighbours_of(*axes, light))
        neighbours, key = jax.tree.map(jnp.asarray, neighbours_together(found)), jax.random.key(_SEED)
        return np.asarray(_drawn_by_ratios(problem, jnp.asarray(first), neighbours, key))


_drawn_by_ratios = jax.jit(functools.partial(draw_by_ratios, n_warm=_WARM, n_draw=_DRAWS))


@functools.partial(jax.jit, static_argnames="held")
def _drawn_strength(mixtures: Mixtures, solved: Solved, key: Array, held: tuple[bool, ...]) -> Array:
    groups = jnp.asarray(mixtures.of_row, jnp.int32)
    first = solved.weights
    return draw_weights(solved.problem, first, mixtures.strength, groups, key, _WARM, _DRAWS, held=held).strength


@jax.jit
def _solved_at(posterior: Posterior, latent: Latent) -> Solved:
    forward = posterior.forward
    if not isinstance(forward, Forward):
        raise ValueError("expected the model of one cube, got that of several data sets")
    return forward.solved(posterior.named_values(latent))
