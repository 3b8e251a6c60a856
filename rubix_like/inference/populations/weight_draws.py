"""Draws of non-negative weights and of the strength of their smoothness prior, from their exact posterior."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

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
    is_own = (groups[None, :] == jnp.arange(n_group, dtype=jnp.int32)[:, None]).astype(matrix.dtype)
    penalties = jnp.einsum("gd,di,dj->gij", is_own, problem.smoothness, problem.smoothness)
    n_weight = (jnp.diagonal(penalties, axis1=1, axis2=2) > 0).sum(axis=1).astype(matrix.dtype)
    low, high = (jnp.log(strength) + sign * jnp.log(10.0) * _WIDEST for sign in (-1, 1))
    is_held = jnp.asarray(held or (False,) * n_group)

    def step(now: tuple[Array, Array], key: PRNGKeyArray) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        weights, own = now
        of_weights, of_strength = jax.random.split(key)
        weights = trajectory(matrix + jnp.tensordot(own, penalties, 1), vector, weights, of_weights)
        rate = 0.5 * jnp.einsum("i,gij,j->g", weights, penalties, weights)
        log_gamma = jax.random.loggamma(of_strength, 0.5 * n_weight, dtype=own.dtype)
        drawn = jnp.exp(jnp.clip(log_gamma - jnp.log(rate), low, high))
        return (now := (weights, jnp.where(is_held, own, drawn))), now

    off_the_wall = 1e-6 * jnp.maximum(first.max(), jnp.finfo(first.dtype).tiny)
    begin = (jnp.maximum(first, off_the_wall), strength)
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
