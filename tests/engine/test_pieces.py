"""Particles in pieces, the wanted ones first: numpy's selection, its sums and their slopes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rubix_like.engine.kernels.kernel import Pieces

N = 150
RNG = np.random.default_rng(8)
VALUES = RNG.normal(size=(N, 2))
WANTED = {
    "some": RNG.random(N) < 0.3,
    "none": np.zeros(N, bool),
    "all": np.ones(N, bool),
    "the last": np.arange(N) == N - 1,
}


def cut(values, wanted):
    return Pieces.of(values, wanted, 32)


def squares(values, wanted):
    """The sum of the squares of the wanted values; a piece without any would add nan."""

    def add(total, piece):
        return total + jnp.where(jnp.any(piece != 0), (piece**2).sum(axis=0), jnp.nan)

    return cut(values, wanted).added(jnp.zeros(2), add)


@pytest.mark.parametrize("case", WANTED)
def test_wanted_particles_come_first_in_their_own_order(case):
    wanted = WANTED[case]
    pieces = jax.jit(cut)(jnp.asarray(VALUES), jnp.asarray(wanted))
    expected = np.zeros((160, 2))
    expected[: wanted.sum()] = VALUES[wanted]
    np.testing.assert_array_equal(pieces.particles.reshape(160, 2), expected)
    np.testing.assert_array_equal(pieces.filled, np.arange(0, 160, 32) < wanted.sum())


def test_particles_that_fit_into_one_piece_stay_as_they_are():
    pieces = Pieces.of(jnp.asarray(VALUES), jnp.asarray(WANTED["some"]), N)
    assert pieces.filled is None
    np.testing.assert_array_equal(pieces.particles, VALUES)


def test_pieces_without_a_particle_are_passed_over_and_have_no_slope():
    wanted, values = np.stack(list(WANTED.values())), jnp.asarray(VALUES)
    found = np.stack([jax.jit(squares)(values, jnp.asarray(own)) for own in wanted])
    np.testing.assert_allclose(found, wanted @ VALUES**2, rtol=1e-12)
    slope = jax.jit(jax.grad(lambda values: squares(values, jnp.asarray(wanted[0])).sum()))(values)
    np.testing.assert_allclose(slope, 2 * VALUES * wanted[0][:, None], rtol=1e-12)


def test_many_selections_at_once():
    wanted = np.stack(list(WANTED.values()))

    def total(own):
        return cut(jnp.asarray(VALUES), own).added(jnp.zeros(2), lambda total, piece: total + piece.sum(axis=0))

    np.testing.assert_allclose(jax.jit(jax.vmap(total))(jnp.asarray(wanted)), wanted @ VALUES, rtol=0, atol=1e-12)
