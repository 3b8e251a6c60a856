"""Poisson numbers from normal ones, at a cost independent of the expected number."""

import jax.numpy as jnp
from jax import lax
from jax.scipy.special import gammaln, ndtr
from jaxtyping import Array, Float

FEW: float = 10.0
"""Expected number below which the distribution is summed up term by term."""

_MOST = 60
"""Terms of that sum: an expected 10 exceeds it with a probability of 1e-27."""


def poisson_quantile(normal: Float[Array, "*voxel"], expected: Float[Array, "*voxel"]) -> Float[Array, "*voxel"]:
    """The Poisson number with mean `expected` (>= 0) at the quantile where the standard normal has `normal`.

    Of normally distributed `normal` it is Poisson distributed. Where 10 or more are expected, the quantile function's
    expansion in powers of expected^(-1/2) is rounded down (Giles 2016, ACM Trans. Math. Softw. 42, 7), which moves
    1.8e-4 of the probability to other numbers and changes the variance by 1.5e-4 at 10; at 50 both are below 2e-5.
    Where fewer are expected, the distribution is summed up.
    """
    many = _quantile_of_many(normal, jnp.maximum(expected, FEW))
    few = expected < FEW
    return lax.cond(
        jnp.any(few), lambda: jnp.where(few, _quantile_of_few(normal, jnp.minimum(expected, FEW)), many), lambda: many
    )


def poisson_noise(normal: Float[Array, "*voxel"], expected: Float[Array, "*voxel"]) -> Float[Array, "*voxel"]:
    """The number of `poisson_quantile` less its mean, with a derivative in `expected`.

    The number is a step function of its mean n. The derivative is that of sqrt(n) e where e, the noise in units of its
    standard deviation, is held: e / (2 sqrt(n)), and 0 where nothing is expected. It is the slope of the number over
    many electrons, to a relative 1 / n, and its mean over draws is that of the noise, 0.
    """
    held = lax.stop_gradient(expected)
    noise = poisson_quantile(lax.stop_gradient(normal), held) - held
    some = held > 0
    ratio = jnp.where(some, expected / jnp.where(some, held, jnp.ones_like(held)), jnp.ones_like(held))
    return noise * jnp.sqrt(ratio)


def _quantile_of_many(normal: Float[Array, "*voxel"], expected: Float[Array, "*voxel"]) -> Float[Array, "*voxel"]:
    root = jnp.sqrt(expected)
    square = normal**2
    first = normal * (2 + square) / 72
    second = (-16 + square * (7 + 3 * square)) / 810
    shift = (2 + square) / 6 - first / root + second / expected
    return jnp.maximum(jnp.floor(expected + root * normal + shift), jnp.zeros_like(expected))


def _quantile_of_few(normal: Float[Array, "*voxel"], expected: Float[Array, "*voxel"]) -> Float[Array, "*voxel"]:
    """How many k have P(number > k) > P(normal); summed from the rare end, so that small probabilities keep digits."""
    beyond = ndtr(-normal)
    log_expected = jnp.log(expected)

    def add(step: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
        survival, number = sums
        k = jnp.asarray(_MOST - step, expected.dtype)
        survival = survival + jnp.exp(k * log_expected - expected - gammaln(k + 1))
        return survival, number + (beyond < survival).astype(expected.dtype)

    start = (jnp.zeros_like(expected), jnp.zeros_like(expected))
    return lax.fori_loop(0, _MOST, add, start)[1]
