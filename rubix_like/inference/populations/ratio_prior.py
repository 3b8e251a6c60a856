"""A prior on the ratios of light between neighbouring ages and metallicities, and draws of weights with it."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy import ndarray

from rubix_like.inference.populations.smoothness import light_density
from rubix_like.inference.populations.weight_draws import Reduced, trajectory

_BETWEEN = 3
"""Steps from one draw that is kept to the next."""

_BEGUN, _DARKEST = 1e-3, 1e-10
_LEAST_PRECISION, _MOST_PRECISION = 1e-8, 1e20
"""Limits of the light per dex of a node, at the beginning and later, and of 1 / its variance, in units of the mean."""


class Neighbours(NamedTuple):
    """Which weights stand side by side on the grid of age and metallicity, and the light per dex of a unit of each.

    `pairs`: numbers of the weights; `power`: the exponent of each weight's light in the prior, see `draw_by_ratios`.
    """

    pairs: Int[Array | ndarray, "pair 2"]
    density: Float[Array | ndarray, " weight"]
    power: Float[Array | ndarray, " weight"]


def neighbours_of(
    log_metallicity: Float[ndarray, " metal"], log_age: Float[ndarray, " age"], light: Float[ndarray, " weight"]
) -> Neighbours:
    """Neighbours on one grid, metallicity first and age fastest; `light` of each template per weight, of which ratios
    matter."""
    number = np.arange(len(light)).reshape(len(log_metallicity), len(log_age))
    along = [(number[:, :-1], number[:, 1:]), (number[:-1], number[1:])]
    pairs = np.concatenate([np.stack([one.ravel(), other.ravel()], axis=1) for one, other in along])
    count = np.bincount(pairs.ravel(), minlength=len(light))
    power = np.maximum(0.5 * count - 1, 0.0)
    return Neighbours(pairs.astype(np.int32), light_density(log_metallicity, log_age, light), power)


def neighbours_together(grids: Sequence[Neighbours]) -> Neighbours:
    """Neighbours on several grids, whose weights follow one another."""
    first = np.cumsum([0] + [len(own.density) for own in grids])
    pairs = [own.pairs + begin for own, begin in zip(grids, first, strict=False)]
    density, power = (np.concatenate([own[field] for own in grids]) for field in (1, 2))
    return Neighbours(np.concatenate(pairs).astype(np.int32), density, power)


def without_pairs(n_weight: int) -> Neighbours:
    """No neighbours, for weights to which this prior does not apply."""
    return Neighbours(np.zeros((0, 2), np.int32), np.ones(n_weight), np.zeros(n_weight))


def draw_by_ratios(
    problem: Reduced,
    first: Float[Array, " weight"],
    neighbours: Neighbours,
    key: PRNGKeyArray,
    n_warm: int,
    n_draw: int,
) -> Float[Array, "draw weight"]:
    """Draws of the weights w >= 0 from exp(-|design w - target|^2 / 2) times

        prod_i x_i^power_i  prod_pairs 1 / (x_i + x_j),    x the light per dex.

    With power = (pairs of the node) / 2 - 1 this is prod_pairs sech(d_ij / 2), d the differences of ln x: the ratio of
    the light of two neighbours is distributed as the square of a half-Cauchy number, 1 in the median, within a factor
    of 15 in 68 % of cases, and larger than R with a probability that falls as R^-1/2. A history may then be smooth,
    sharp, or dark but for a few nodes. At the ends of a single row power is 0, where this would be negative.

    Steps of Gibbs' sampler are exact: 1 / (x_i + x_j) is the integral of exp(-v (x_i + x_j)) over v, which is drawn;
    exp(-x_i sum v) a mixture of normal distributions whose variances are exponential (as in the Bayesian lasso, Park &
    Casella 2008); x_i^power a slice, a lower wall for x_i. A normal distribution between walls is left (`trajectory`).
    The first `n_warm` draws are left out; a few steps lie between one draw and the next.
    """
    density, tiny = jnp.asarray(neighbours.density, first.dtype), jnp.finfo(first.dtype).tiny
    unit = density / jnp.maximum(jnp.mean(first * density), tiny)
    design = problem.design / unit[None, :]
    power, pairs = jnp.asarray(neighbours.power, first.dtype), jnp.asarray(neighbours.pairs, jnp.int32)
    posterior = _Posterior(design.T @ design, design.T @ problem.target, pairs, power)

    def draw(light: Array, key: PRNGKeyArray) -> tuple[Array, Array]:
        light, _ = lax.scan(posterior.step, light, jax.random.split(key, _BETWEEN))
        return light, light

    _, light = lax.scan(draw, jnp.maximum(first * unit, _BEGUN), jax.random.split(key, n_warm + n_draw))
    return light[n_warm:] / unit[None, :]


class _Posterior(NamedTuple):
    """The posterior of the light per dex of all nodes: exp(-x matrix x / 2 + vector x) times the prior."""

    matrix: Float[Array, "weight weight"]
    vector: Float[Array, " weight"]
    pairs: Int[Array, "pair 2"]
    power: Float[Array, " weight"]

    def step(self, light: Float[Array, " weight"], key: PRNGKeyArray) -> tuple[Float[Array, " weight"], None]:
        """One step of Gibbs' sampler."""
        of_pairs, of_precision, of_walls, of_light = jax.random.split(key, 4)
        one, other = self.pairs.T
        tie = jax.random.exponential(of_pairs, one.shape, light.dtype) / (light[one] + light[other])
        rate = jnp.zeros_like(light).at[one].add(tie).at[other].add(tie)
        precision = jnp.clip(_inverse_gaussian(rate, light, of_precision), _LEAST_PRECISION, _MOST_PRECISION)
        root = jax.random.uniform(of_walls, light.shape, light.dtype) ** (
            1 / jnp.where(self.power > 0, self.power, 1.0)
        )
        wall = jnp.where(self.power > 0, light * root, 0.0)
        whole = self.matrix + jnp.diag(jnp.where(rate > 0, precision, 0.0))
        above = trajectory(whole, self.vector - whole @ wall, light - wall, of_light)
        return jnp.maximum(wall + above, _DARKEST), None


def _inverse_gaussian(rate: Float[Array, " n"], light: Float[Array, " n"], key: PRNGKeyArray) -> Float[Array, " n"]:
    """Numbers of the inverse-Gaussian distribution of mean rate / light and shape rate^2, by the roots of a quadratic
    equation (Michael, Schucany & Haas 1976): 1 / variance of the normal distributions whose mixture is exp(-rate x)."""
    of_size, of_choice = jax.random.split(key)
    least = jnp.finfo(rate.dtype).tiny
    ratio = jax.random.normal(of_size, rate.shape, rate.dtype) ** 2 / jnp.maximum(2 * rate * light, least)
    larger = 1 + ratio + jnp.sqrt(ratio * (ratio + 2))
    is_smaller = jax.random.uniform(of_choice, rate.shape, rate.dtype) * (1 + 1 / larger) <= 1
    return rate / light * jnp.where(is_smaller, 1 / larger, larger)
