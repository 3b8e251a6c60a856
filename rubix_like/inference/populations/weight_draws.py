"""Draws of non-negative weights of populations with a prior on smoothness, or on ratios between neighbouring nodes."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy import ndarray

_BOUNCES_PER_WEIGHT = 40
"""Most reflections of one trajectory for each weight; a longer one is refused, as its reverse would be."""

_TURN = 2 * jnp.pi
_AT_ONCE = 1e-9
"""Radians: a wall that is reached sooner is the one that was just left."""

_WIDEST = 8.0
"""Decades on either side of the first strength that it is kept within."""


class Reduced(NamedTuple):
    """A linear problem: the likelihood exp(-|design w - target|^2 / 2) of weights w >= 0 with the prior
    exp(-strength |smoothness w|^2 / 2)."""

    design: Float[Array, "row weight"]
    target: Float[Array, " row"]
    smoothness: Float[Array, "difference weight"]

    def stacked(self, strength: Float[Array, "*difference"]) -> tuple[Float[Array, "row weight"], Float[Array, " row"]]:
        """Design and target of one least-squares problem for a given strength, of all or of every difference."""
        none = jnp.zeros(self.smoothness.shape[0], self.target.dtype)
        rows = jnp.sqrt(strength).reshape(-1, 1) * self.smoothness
        return jnp.concatenate([self.design, rows]), jnp.concatenate([self.target, none])


class Draws(NamedTuple):
    """Draws of the weights, and of the strength of each group with them."""

    weights: Float[Array, "draw weight"]
    strength: Float[Array, "draw group"]


class _Moving(NamedTuple):
    weights: Float[Array, " weight"]
    velocity: Float[Array, " weight"]
    left: Float[Array, ""]
    number: Int[Array, ""]


def draw_weights(
    problem: Reduced,
    first: Float[Array, " weight"],
    strength: Float[Array, " group"],
    groups: Int[Array, " difference"],
    key: PRNGKeyArray,
    n_warm: int,
    n_draw: int,
    *,
    held: tuple[bool, ...] | None = None,
) -> Draws:
    """Draws of weights and strengths in turn (Gibbs), after `n_warm` that are left out; begun at the `first` weights.

    Weights given the strengths are normal, cut at 0: by exact Hamiltonian trajectories between these walls (Pakman &
    Paninski 2014, J. Comput. Graph. Stat. 23, 518). The strength of a group of n weights given these has Gamma's
    distribution of shape n / 2 and rate |S w|^2 / 2, for a prior that is flat in its logarithm: the share of a normal
    distribution about 0 that is not cut off does not depend on its width, so this is exact, too. `groups`: of which
    group each difference is; `held`: groups whose strength stays as given.
    """
    matrix, vector = problem.design.T @ problem.design, problem.design.T @ problem.target
    n_group = strength.shape[0]
    is_of_group = (groups[None, :] == jnp.arange(n_group, dtype=jnp.int32)[:, None]).astype(matrix.dtype)
    penalties = jnp.einsum("gd,di,dj->gij", is_of_group, problem.smoothness, problem.smoothness)
    n_weight = (jnp.diagonal(penalties, axis1=1, axis2=2) > 0).sum(axis=1).astype(matrix.dtype)
    low, high = (jnp.log(strength) + sign * jnp.log(10.0) * _WIDEST for sign in (-1, 1))
    is_held = jnp.asarray(held or (False,) * n_group)

    def step(now: tuple[Array, Array], key: PRNGKeyArray) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        weights, strength = now
        of_weights, of_strength = jax.random.split(key)
        weights = trajectory(matrix + jnp.tensordot(strength, penalties, 1), vector, weights, of_weights)
        rate = 0.5 * jnp.einsum("i,gij,j->g", weights, penalties, weights)
        log_gamma = jax.random.loggamma(of_strength, 0.5 * n_weight, dtype=strength.dtype)
        drawn = jnp.exp(jnp.clip(log_gamma - jnp.log(rate), low, high))
        return (now := (weights, jnp.where(is_held, strength, drawn))), now

    least_weight = 1e-6 * jnp.maximum(first.max(), jnp.finfo(first.dtype).tiny)
    begin = (jnp.maximum(first, least_weight), strength)
    _, (weights, strengths) = lax.scan(step, begin, jax.random.split(key, n_warm + n_draw))
    return Draws(weights[n_warm:], strengths[n_warm:])


def trajectory(
    precision: Float[Array, "weight weight"], vector: Float[Array, " weight"], weights: Array, key: PRNGKeyArray
) -> Float[Array, " weight"]:
    """A quarter of a turn of w(t) = mean + (w - mean) cos t + v sin t, with v normal of the same covariance, reflected
    where a weight becomes 0."""
    scale = 1 / jnp.sqrt(jnp.diagonal(precision))
    rounding = 10 * len(scale) * jnp.finfo(precision.dtype).eps
    even = precision * scale[:, None] * scale[None, :] + rounding * jnp.eye(len(scale), dtype=precision.dtype)
    lower = jnp.linalg.cholesky(even)
    half = jax.scipy.linalg.solve_triangular(lower, jnp.diag(scale), lower=True)
    covariance = half.T @ half
    mean = covariance @ vector
    velocity = half.T @ jax.random.normal(key, weights.shape, weights.dtype)
    number = jnp.arange(len(scale), dtype=jnp.int32)

    def move(now: _Moving) -> _Moving:
        offset = now.weights - mean
        reach = jnp.hypot(offset, now.velocity)
        reaches = reach > jnp.abs(mean)
        angle = jnp.arctan2(now.velocity, offset) + jnp.arccos(jnp.clip(-mean / jnp.where(reaches, reach, 1), -1, 1))
        time = jnp.mod(angle, _TURN)
        time = jnp.where(reaches & (time > _AT_ONCE), time, _TURN)
        wall = jnp.argmin(time).astype(jnp.int32)
        hits = time[wall] < now.left
        length = jnp.minimum(time[wall], now.left)
        place = mean + offset * jnp.cos(length) + now.velocity * jnp.sin(length)
        velocity = now.velocity * jnp.cos(length) - offset * jnp.sin(length)
        turned = velocity - 2 * velocity[wall] / covariance[wall, wall] * covariance[:, wall]
        place = jnp.where(hits & (number == wall), 0.0, jnp.maximum(place, 0.0))
        return _Moving(place, jnp.where(hits, turned, velocity), now.left - length, now.number + 1)

    most = _BOUNCES_PER_WEIGHT * len(scale)
    quarter = jnp.asarray(0.25 * _TURN, weights.dtype)
    begin = _Moving(weights, velocity, quarter, jnp.zeros((), jnp.int32))
    end = lax.while_loop(lambda now: (now.left > 0) & (now.number < most), move, begin)
    return jnp.where(end.left > 0, weights, end.weights)


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
    """Neighbours on one grid, metallicity first, age fastest; `light` of each template per weight (ratios matter)."""
    number = np.arange(len(light)).reshape(len(log_metallicity), len(log_age))
    along = [(number[:, :-1], number[:, 1:]), (number[:-1], number[1:])]
    pairs = np.concatenate([np.stack([left.ravel(), right.ravel()], axis=1) for left, right in along])
    count = np.bincount(pairs.ravel(), minlength=len(light))
    power = np.maximum(0.5 * count - 1, 0.0)
    return Neighbours(pairs.astype(np.int32), light_density(log_metallicity, log_age, light), power)


def neighbours_together(grids: Sequence[Neighbours]) -> Neighbours:
    """Neighbours on several grids, whose weights follow one another."""
    first = np.cumsum([0] + [len(grid.density) for grid in grids])
    pairs = [grid.pairs + begin for grid, begin in zip(grids, first, strict=False)]
    density, power = (np.concatenate([grid[field] for grid in grids]) for field in (1, 2))
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
    matrix, vector = design.T @ design, design.T @ problem.target
    first_of, second_of = pairs.T

    def step(light: Array, key: PRNGKeyArray) -> tuple[Array, None]:
        of_pairs, of_precision, of_walls, of_light = jax.random.split(key, 4)
        tie = jax.random.exponential(of_pairs, first_of.shape, light.dtype) / (light[first_of] + light[second_of])
        rate = jnp.zeros_like(light).at[first_of].add(tie).at[second_of].add(tie)
        precision = jnp.clip(_inverse_gaussian(rate, light, of_precision), _LEAST_PRECISION, _MOST_PRECISION)
        root = jax.random.uniform(of_walls, light.shape, light.dtype) ** (1 / jnp.where(power > 0, power, 1.0))
        wall = jnp.where(power > 0, light * root, 0.0)
        whole = matrix + jnp.diag(jnp.where(rate > 0, precision, 0.0))
        above = trajectory(whole, vector - whole @ wall, light - wall, of_light)
        return jnp.maximum(wall + above, _DARKEST), None

    def draw(light: Array, key: PRNGKeyArray) -> tuple[Array, Array]:
        light, _ = lax.scan(step, light, jax.random.split(key, _BETWEEN))
        return light, light

    _, light = lax.scan(draw, jnp.maximum(first * unit, _BEGUN), jax.random.split(key, n_warm + n_draw))
    return light[n_warm:] / unit[None, :]


def _inverse_gaussian(rate: Float[Array, " n"], light: Float[Array, " n"], key: PRNGKeyArray) -> Float[Array, " n"]:
    """Numbers of the inverse-Gaussian distribution of mean rate / light and shape rate^2, by the roots of a quadratic
    equation (Michael, Schucany & Haas 1976): 1 / variance of the normal distributions whose mixture is exp(-rate x)."""
    of_size, of_choice = jax.random.split(key)
    least = jnp.finfo(rate.dtype).tiny
    ratio = jax.random.normal(of_size, rate.shape, rate.dtype) ** 2 / jnp.maximum(2 * rate * light, least)
    larger = 1 + ratio + jnp.sqrt(ratio * (ratio + 2))
    is_smaller = jax.random.uniform(of_choice, rate.shape, rate.dtype) * (1 + 1 / larger) <= 1
    return rate / light * jnp.where(is_smaller, 1 / larger, larger)


PROPER: float = 1e-3
"""Share of the weights' squares in the penalty, which makes the prior a proper one."""


def smoothness_rows(
    log_metallicity: Float[ndarray, " metal"],
    log_age: Float[ndarray, " age"],
    light: Float[ndarray, " weight"],
) -> Float[ndarray, "row weight"]:
    """S of the prior exp(-strength |S w|^2 / 2), w the weights by mass, metallicity first and age fastest.

    Rows are second differences of the light per dex along both axes (first ones where an axis has two nodes), as the
    regularisation of pPXF (Cappellari 2017, MNRAS 466, 798, sect. 3.5) has for templates that are normalised each, and
    sqrt(`PROPER`) times every weight's light, without which a plane of weights of any size would be as good as none.
    `light`: of each template per mass, of which only ratios matter. A prior on masses themselves would be far too wide
    for young stars and too narrow for old ones, whose mass-to-light ratios differ by hundreds.
    """
    n_metal, n_age = len(log_metallicity), len(log_age)
    density = np.diag(light_density(log_metallicity, log_age, light))
    along_age = np.kron(np.eye(n_metal), _differences(n_age))
    along_metal = np.kron(_differences(n_metal), np.eye(n_age))
    return np.concatenate([along_age, along_metal, np.sqrt(PROPER) * np.eye(n_metal * n_age)]) @ density


def light_density(
    log_metallicity: Float[ndarray, " metal"], log_age: Float[ndarray, " age"], light: Float[ndarray, " weight"]
) -> Float[ndarray, " weight"]:
    """Light per dex of age and metallicity of a unit of each weight, over the means of light and of cells."""
    share = np.outer(_widths(log_metallicity), _widths(log_age))
    return light / light.mean() / share.reshape(-1)


def _differences(number: int) -> Float[ndarray, "row node"]:
    """Second differences of neighbouring nodes; first ones of two, none of one."""
    return np.diff(np.eye(number), n=min(2, number - 1), axis=0) if number > 1 else np.zeros((0, 1))


def _widths(nodes: Float[ndarray, " node"]) -> Float[ndarray, " node"]:
    """The part of the axis that belongs to each node, over the mean of all."""
    if len(nodes) == 1:
        return np.ones(1)
    widths = np.gradient(nodes)
    return widths / widths.mean()
