"""Values between the nodes of a library, where the model has kinks: against sums over a grid by numpy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from rubix_like.inference.search.library_cells import Spread, cells_near, spread_over, with_spreads

NODES = np.linspace(-2.0, 2.0, 21)
"""Latents of the ages of a library."""


class Aged(eqx.Module):
    """A spectrum that is linear between those of the nodes, of a mass exp(latent 1), with normal noise."""

    spectra: jax.Array
    data: jax.Array

    def residuals(self, latent):
        number = jnp.clip(jnp.searchsorted(jnp.asarray(NODES), latent[0]) - 1, 0, len(NODES) - 2)
        share = (latent[0] - jnp.asarray(NODES)[number]) / (NODES[1] - NODES[0])
        seen = (1 - share) * self.spectra[number] + share * self.spectra[number + 1]
        return self.data - jnp.exp(latent[1]) * seen, latent

    def loss(self, latent):
        return 0.5 * sum(jnp.sum(own**2) for own in self.residuals(latent))


LOSS = jax.jit(lambda own, latent: own.loss(latent))


def aged(seed):
    """Smooth spectra with a jitter from age to age, as libraries have; the true age lies between two nodes."""
    random, place = np.random.default_rng(seed), np.linspace(-1, 1, 60)
    smooth = 20 * np.exp(-0.15 * NODES[:, None] * place) * np.exp(-0.5 * NODES[:, None])
    spectra = smooth * (1 + 0.02 * random.standard_normal(smooth.shape))
    true = random.uniform(-1, 1)
    seen = np.array([np.interp(true, NODES, own) for own in spectra.T])
    return Aged(jnp.asarray(spectra), jnp.asarray(seen + random.standard_normal(60)))


def on_grid(own):
    """Places along the age, and the posterior's share at each, the mass summed over."""
    age, mass = np.linspace(-3, 3, 1201), np.linspace(-2, 2, 401)
    number = np.clip(np.searchsorted(NODES, age) - 1, 0, len(NODES) - 2)
    share = ((age - NODES[number]) / (NODES[1] - NODES[0]))[:, None]
    spectra, data = np.asarray(own.spectra), np.asarray(own.data)
    seen = (1 - share) * spectra[number] + share * spectra[number + 1]
    scale = np.exp(mass)
    square = data @ data - 2 * (seen @ data)[:, None] * scale + (seen**2).sum(axis=1)[:, None] * scale**2
    log_density = -0.5 * (square + age[:, None] ** 2 + mass**2)
    density = np.exp(log_density - log_density.max())
    return age, density.sum(axis=1) / density.sum()


@pytest.mark.parametrize("seed", range(2))
def test_the_spread_over_cells_is_that_of_a_grid(seed):
    """The mean square distance from a local maximum, and 95 % of the posterior."""
    own = aged(seed)
    age, share = on_grid(own)
    begin = np.array([age[np.argmax(share)], 0.0])
    best = scipy.optimize.minimize(lambda at: float(LOSS(own, jnp.asarray(at))), begin, method="Nelder-Mead").x
    edges = np.concatenate([[-6.0], NODES, [6.0]])
    cells = cells_near(own, best, {0: edges})[0]
    found = spread_over(cells, 0, best[0], 1.0)
    assert found.factor == pytest.approx(np.sqrt(share @ (age - best[0]) ** 2), rel=0.15)
    expected = np.interp([0.025, 0.975], np.cumsum(share), age)
    np.testing.assert_allclose(found.ends, expected, atol=0.5 * found.factor)
    assert len(cells) > 3


def test_only_the_wider_value_and_what_follows_it_change():
    """The distribution of the others given it stays: regression and conditional covariance by numpy."""
    root = np.random.default_rng(5).normal(size=(3, 3))
    covariance = root @ root.T
    wider = with_spreads(covariance, [Spread(1, 1.5, (-1.0, 1.0))])
    assert wider[1, 1] == pytest.approx(2.25 * covariance[1, 1])
    for own in (covariance, wider):
        others = [0, 2]
        regression = own[others, 1] / own[1, 1]
        np.testing.assert_allclose(regression, covariance[others, 1] / covariance[1, 1])
        rest = own[np.ix_(others, others)] - np.outer(regression, own[1, others])
        np.testing.assert_allclose(
            rest,
            covariance[np.ix_(others, others)]
            - np.outer(covariance[others, 1], covariance[1, others]) / covariance[1, 1],
        )
