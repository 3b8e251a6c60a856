"""A prior on the ratios of light between neighbouring ages and metallicities, and draws of weights with it."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray
from numpy import ndarray
from scipy.linalg import block_diag

from rubix_like.inference.populations.smoothness import light_density
from rubix_like.inference.populations.weight_draws import Reduced, trajectory

_BETWEEN = 3
"""Steps from one draw that is kept to the next."""

_BEGUN, _DARKEST = 1e-3, 1e-10
_LEAST_PRECISION, _MOST_PRECISION = 1e-8, 1e20
"""Limits of the light per dex of a node, at the beginning and later, and of 1 / its variance, in units of the mean."""


class Neighbours(NamedTuple):
    """Which sums of weights stand side by side on the grid of age and metallicity, and the light per dex of a unit of
    each weight.

    `ties`: a row for each pair of neighbours, 1 for the weights of either, whose light is compared.
    """

    ties: Float[Array | ndarray, "tie weight"]
    density: Float[Array | ndarray, " weight"]


def neighbours_of(
    log_metallicity: Float[ndarray, " metal"], log_age: Float[ndarray, " age"], light: Float[ndarray, " weight"]
) -> Neighbours:
    """Of one grid, metallicity first and age fastest; `light` of each template per weight, of which ratios matter.

    Neighbours are ages, each with all of its metallicities, and the metallicities of one age.
    """
    own = np.eye(len(light)).reshape(len(log_metallicity), len(log_age), len(light))
    ages = own.sum(axis=0)
    ties = np.concatenate([ages[:-1] + ages[1:], (own[:-1] + own[1:]).reshape(-1, len(light))])
    return Neighbours(ties, light_density(log_metallicity, log_age, light))


def neighbours_together(grids: Sequence[Neighbours]) -> Neighbours:
    """Of several grids, whose weights follow one another."""
    return Neighbours(block_diag(*(own.ties for own in grids)), np.concatenate([own.density for own in grids]))


def without_ties(n_weight: int) -> Neighbours:
    """Of weights to which this prior does not apply."""
    return Neighbours(np.zeros((0, n_weight)), np.ones(n_weight))


def draw_by_ratios(
    problem: Reduced,
    first: Float[Array, " weight"],
    neighbours: Neighbours,
    key: PRNGKeyArray,
    n_warm: int,
    n_draw: int,
) -> Float[Array, "draw weight"]:
    """Draws of the weights w >= 0 from exp(-|design w - target|^2 / 2) times

        prod_ages 1 / (X_a + X_a+1)  prod_metallicities 1 / (x_az + x_az+1),    x the light per dex, X_a = sum_z x_az.

    Of the light of all metallicities of an age this makes prod sech(d / 2), d the differences of ln X between ages: the
    ratio of two neighbours is distributed as the square of a half-Cauchy number, 1 in the median, within a factor of 15
    in 68 % of cases, and larger than R with a probability that falls as R^-1/2, and so does the ratio of two
    metallicities of an age. A history may then be smooth, sharp, or dark but for a few ages, however many metallicities
    there are. (At both ends of ages and of metallicities X and x have the power 0, where the product of sech has
    -1/2, which is infinite at 0.)

    Steps of Gibbs' sampler are exact: 1 / (X + Y) is the integral of exp(-v (X + Y)) over v, which is drawn; exp(-x_i
    sum v) a mixture of normal distributions whose variances are exponential (as in the Bayesian lasso, Park & Casella
    2008). A normal distribution between walls is left (`trajectory`). The first `n_warm` draws are left out; a few
    steps lie between one draw and the next.
    """
    density, tiny = jnp.asarray(neighbours.density, first.dtype), jnp.finfo(first.dtype).tiny
    unit = density / jnp.maximum(jnp.mean(first * density), tiny)
    design = problem.design / unit[None, :]
    ties = jnp.asarray(neighbours.ties, first.dtype)
    posterior = _Posterior(design.T @ design, design.T @ problem.target, ties)

    def draw(light: Array, key: PRNGKeyArray) -> tuple[Array, Array]:
        light, _ = lax.scan(posterior.step, light, jax.random.split(key, _BETWEEN))
        return light, light

    _, light = lax.scan(draw, jnp.maximum(first * unit, _BEGUN), jax.random.split(key, n_warm + n_draw))
    return light[n_warm:] / unit[None, :]


class _Posterior(NamedTuple):
    """Of the light per dex of all nodes: exp(-x matrix x / 2 + vector x) times the prior."""

    matrix: Float[Array, "weight weight"]
    vector: Float[Array, " weight"]
    ties: Float[Array, "tie weight"]

    def step(self, light: Float[Array, " weight"], key: PRNGKeyArray) -> tuple[Float[Array, " weight"], None]:
        """One step of Gibbs' sampler."""
        of_ties, of_precision, of_light = jax.random.split(key, 3)
        tie = jax.random.exponential(of_ties, self.ties.shape[:1], light.dtype) / (self.ties @ light)
        rate = tie @ self.ties
        precision = jnp.clip(_inverse_gaussian(rate, light, of_precision), _LEAST_PRECISION, _MOST_PRECISION)
        whole = self.matrix + jnp.diag(jnp.where(rate > 0, precision, 0.0))
        return jnp.maximum(trajectory(whole, self.vector, light, of_light), _DARKEST), None


def _inverse_gaussian(rate: Float[Array, " n"], light: Float[Array, " n"], key: PRNGKeyArray) -> Float[Array, " n"]:
    """Numbers of the inverse-Gaussian distribution of mean rate / light and shape rate^2, by the roots of a quadratic
    equation (Michael, Schucany & Haas 1976): 1 / variance of the normal distributions whose mixture is exp(-rate x)."""
    of_size, of_choice = jax.random.split(key)
    least = jnp.finfo(rate.dtype).tiny
    ratio = jax.random.normal(of_size, rate.shape, rate.dtype) ** 2 / jnp.maximum(2 * rate * light, least)
    larger = 1 + ratio + jnp.sqrt(ratio * (ratio + 2))
    is_smaller = jax.random.uniform(of_choice, rate.shape, rate.dtype) * (1 + 1 / larger) <= 1
    return rate / light * jnp.where(is_smaller, 1 / larger, larger)
