"""Sums in chunks against numpy, their gradients, and float32's digits."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.runtime.mesh.mesh import UsedFirst, accumulate, chunk_counts


class Points(eqx.Module):
    value: Float[Array | ndarray, " particle"]
    weight: Float[Array | ndarray, " particle"]


def points(n, dtype="float64", value=None):
    value = np.random.default_rng(n).normal(size=n) if value is None else np.full(n, value)
    return Points(jnp.asarray(value, dtype), jnp.ones(n, dtype))


def total(particles, chunk, two_levels=True):
    """Sum of squares and number of particles."""

    def contribute(one):
        return (one.weight * one.value**2).sum(), one.weight.sum()

    zero = jnp.zeros((), particles.value.dtype)
    start = (zero, zero)
    return accumulate(contribute, lambda a, b: (a[0] + b[0], a[1] + b[1]), start, particles, chunk, two_levels)


@pytest.mark.parametrize("n", [1, 2, 7, 16, 17, 100, 1000, 4097])
@pytest.mark.parametrize("chunk", [1, 3, 64, 10**6])
def test_split_holds_all_particles_in_small_chunks(n, chunk):
    groups, per_group, size = chunk_counts(n, chunk)
    assert size <= chunk
    assert groups * per_group * size >= n
    assert groups * per_group * (size - 1) < n
    assert groups * per_group <= 1.5 * np.ceil(n / chunk) + 16
    assert max(groups, per_group) <= max(16, np.sqrt(np.ceil(n / chunk)) + 1)


@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_split_in_one_level(chunk):
    """One group, and no chunk without particles."""
    groups, n_chunks, size = chunk_counts(1000, chunk, two_levels=False)
    assert (groups, n_chunks) == (1, np.ceil(1000 / chunk))
    assert (n_chunks - 1) * size < 1000 <= n_chunks * size
    assert size <= chunk


@pytest.mark.parametrize(("n", "chunk"), [(1, 1), (1, 1000), (5, 7), (64, 4), (100, 7), (203, 1), (203, 1000)])
@pytest.mark.parametrize("two_levels", [True, False])
def test_sum_and_count_whatever_the_chunk(n, chunk, two_levels):
    particles = points(n)
    squares, count = jax.jit(total, static_argnums=(1, 2))(particles, chunk, two_levels)
    np.testing.assert_allclose(float(squares), (np.asarray(particles.value) ** 2).sum(), rtol=1e-13)
    assert float(count) == n


@pytest.mark.parametrize("chunk", [3, 7])
@pytest.mark.parametrize("two_levels", [True, False])
def test_gradient_is_that_of_the_plain_sum(chunk, two_levels):
    particles = points(203)
    gradient = jax.jit(jax.grad(lambda p: total(p, chunk, two_levels)[0]))(particles)
    np.testing.assert_allclose(np.asarray(gradient.value), 2 * np.asarray(particles.value), rtol=1e-13)


def test_float32_keeps_its_digits():
    """A million equal masses; in running order float32 loses more than 1e-4 of them."""
    particles = points(1_000_000, "float32", value=np.sqrt(0.1))
    exact = (np.asarray(particles.value, np.float64) ** 2).sum()
    squares, count = jax.jit(total, static_argnums=1)(particles, 1)
    assert abs(float(squares) / exact - 1) < 2e-5
    assert float(count) == 1_000_000
    running = np.cumsum(np.asarray(particles.value) ** 2, dtype=np.float32)[-1]
    assert abs(running / exact - 1) > 1e-4


def test_chunks_without_a_particle_in_use_are_passed_over():
    """25 of 203, of which one is padding: four chunks of 7 hold the others; sum and gradient are those of numpy."""
    particles, visited = points(203), []
    used = np.isin(np.arange(203), np.random.default_rng(1).permutation(203)[:25])
    padding = int(np.flatnonzero(used)[3])
    particles = eqx.tree_at(lambda p: p.weight, particles, particles.weight.at[padding].set(0.0))

    def squares(own):
        def contribute(one):
            jax.debug.callback(lambda weight: visited.append(float(weight)), one.weight.sum())
            return (one.weight * one.particles.value**2).sum()

        chosen = UsedFirst.of(own, jnp.asarray(used))
        return accumulate(contribute, jnp.add, jnp.zeros(()), chosen, 7, two_levels=False)

    counted = used & (np.arange(203) != padding)
    value = np.asarray(particles.value)
    assert float(jax.jit(squares)(particles)) == pytest.approx((value**2)[counted].sum(), rel=1e-13)
    jax.effects_barrier()
    assert sorted(visited) == [3.0, 7.0, 7.0, 7.0]
    gradient = jax.jit(jax.grad(squares))(particles)
    np.testing.assert_allclose(np.asarray(gradient.value), np.where(counted, 2 * value, 0.0), rtol=1e-13)
