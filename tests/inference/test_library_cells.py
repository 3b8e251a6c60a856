"""Values between the nodes of a library, where the model has kinks: against sums and best fits by numpy."""

import dataclasses

import equinox as eqx
import foreign_cube
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from foreign_stars import read_library, star_spectra

from rubix_like import ObservedCube, fit
from rubix_like.extend import Footprint, WavelengthBins, read_table, write_table
from rubix_like.inference.search import search
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


FIRST, STEP, N_BIN, REDSHIFT, METALLICITY = 4001.0, 2.0, 120, 0.02, 0.02
EDGES = FIRST + STEP * (np.arange(N_BIN + 1) - 0.5)
TRUE_AGE, SIGNAL_TO_NOISE, JITTER, SEED = 9.4, 30.0, 0.02, 0


def write_jittered(path):
    """popstar with spectra that scatter from age to age."""
    table = read_table(foreign_cube.POPSTAR)
    spectra = np.asarray(table.spectra)
    scatter = 1 + JITTER * np.random.default_rng(SEED).standard_normal(spectra.shape)
    write_table(dataclasses.replace(table, spectra=(spectra * scatter).astype(spectra.dtype)), path)
    return path


def profile(library, ages, flux, sigma):
    """-ln(posterior) along the age, the mass at its best, but for a constant; and the best log10 masses."""
    at = np.full(len(ages), np.log10(METALLICITY))
    seen = star_spectra(library, EDGES, REDSHIFT, 0 * at, 1e10 + 0 * at, ages, at)
    scale = (seen @ flux) / (seen**2).sum(axis=1)
    loss = 0.5 * ((flux - scale[:, None] * seen) ** 2).sum(axis=1) / sigma**2
    return loss, 10 + np.log10(scale)


def compact_cube(flux, sigma):
    """Everything in the middle of 3 x 3 spaxels."""
    cube = np.zeros((3, 3, N_BIN))
    cube[1, 1] = flux
    return ObservedCube(
        flux=cube,
        variance=np.full(cube.shape, sigma**2),
        used=np.ones(cube.shape, bool),
        bins=WavelengthBins(FIRST, STEP, N_BIN, "linear", "vacuum"),
        footprint=Footprint.of((3, 3), 0.5),
        source="numpy",
    )


@pytest.mark.slow(15)
def test_a_fit_leaves_the_cell_that_it_is_caught_in(tmp_path, monkeypatch):
    """The start lies in a valley of numpy's losses that is not the deepest. One start is one start: it stays there."""
    path = write_jittered(tmp_path / "jittered.h5")
    library = read_library(path, *(EDGES[[0, -1]] / (1 + REDSHIFT)))
    clean = star_spectra(library, EDGES, REDSHIFT, *np.array([[0.0], [1e10], [TRUE_AGE], [np.log10(METALLICITY)]]))[0]
    sigma = float(np.median(clean)) / SIGNAL_TO_NOISE
    flux = clean + sigma * np.random.default_rng(SEED).standard_normal(N_BIN)
    ages = np.arange(9.0, 9.8, 0.001)
    loss, mass = profile(library, ages, flux, sigma)
    valleys = 1 + np.flatnonzero((loss[1:-1] < loss[:-2]) & (loss[1:-1] <= loss[2:]))
    deepest, other = valleys[np.argsort(loss[valleys])][:2]
    assert loss[other] - loss[deepest] > 1
    config = {
        "galaxy": {
            "reader": "components",
            "components": [
                {
                    "name": "core",
                    "mass": "1e10 Msun",
                    "light": {"profile": "point"},
                    "dispersion": "1 km/s",
                    "population": {"log_age": 9.4, "metallicity": METALLICITY},
                }
            ],
        },
        "ssp": {"library": str(path)},
        "observation": {"redshift": REDSHIFT, "align": "none"},
        "instrument": {"name": "manga", "fov": "1.5 arcsec", "aperture": None, "psf": None, "lsf": None},
        "engine": {"deposit": "cic"},
        "devices": {"data": 1},
        "fit": {
            "free": {
                "galaxy.core.mass": {"log_normal": ["1e10 Msun", 1.0]},
                "galaxy.core.population.log_age": {"uniform": [8.5, 10.1]},
            },
            "start": {"galaxy.core.population.log_age": float(ages[other]), "galaxy.core.mass": 10 ** mass[other]},
            "starts": 2,
            "candidates": 1,
        },
    }
    found = fit(config, compact_cube(flux, sigma))
    assert found.values["galaxy.core.population.log_age"] == pytest.approx(ages[deepest], abs=0.003)
    assert found.values["galaxy.core.mass"] == pytest.approx(10 ** mass[deepest], rel=0.01)
    assert len(found.starts.loss) > 2
    alone = fit(config, compact_cube(flux, sigma), starts=1)
    assert len(alone.starts.loss) == 1
    assert any("no other maximum was looked for" in note for note in alone.notes)
    monkeypatch.setattr(search, "lower_elsewhere", lambda *_: None)
    for caught in (alone, fit(config, compact_cube(flux, sigma))):
        assert caught.values["galaxy.core.population.log_age"] == pytest.approx(ages[other], abs=0.003)
