"""Errors of two ages between the nodes of a library, where a posterior has kinks: mocks made by numpy.

    PYTHONPATH=tests/benchmarks python tests/benchmarks/fits/library_kinks.py [--mocks 200]

Two exponential discs on 8 x 8 spaxels, of popstar's spectra at Z = 0.02 and 0.008 from 4600 to 5600 Angstrom (100 bins,
linear between the ages of the library), S/N 30 in each spaxel's median bin. Six numbers are free: both masses (normal
priors of 0.5 in ln), ages (uniform from 8.9 to 10.1) and scale lengths (0.3 in ln). Truths are drawn from the priors,
noise is numpy's. The search is scipy's `least_squares`, begun at a draw from the priors, and goes on where
`lower_elsewhere` says. Pulls (best - true) / sigma are of the latents: by the curvature at the best place, and by the
spread over the cells of the library (`spread_along`, `with_spreads`).
"""

import argparse

import equinox as eqx
import h5py
import jax
import jax.numpy as jnp
import numpy as np
from foreign_cube import POPSTAR
from scipy.optimize import least_squares
from scipy.stats import norm

from rubix_like.inference.library_cells import lower_elsewhere, spread_along, with_spreads

AGES, METALS, RADII = (8.9, 10.1), (0.02, 0.008), (0.9, 0.6)
BINS = np.arange(4600.0, 5600.0, 10.0)
NAMES = ("mass 1", "age 1", "scale length 1", "mass 2", "age 2", "scale length 2")
MOST_ROUNDS = 4


def library():
    """log10 ages, and spectra (disc, age, bin)."""
    with h5py.File(POPSTAR) as file:
        age, wavelength = file["log_age"][()], file["rest_wavelength"][()]
        rows = [np.argmin(np.abs(file["metallicity"][()] - own)) for own in METALS]
        spectra = file["spectra"][()][rows].astype(float)
    return age, np.array([[np.interp(BINS, wavelength, own) for own in disc] for disc in spectra])


def radius():
    """kpc in the plane of discs at 60 deg, 0.3 kpc a spaxel."""
    y, x = np.mgrid[:8, :8] - 3.5
    return 0.3 * np.hypot(x, 2 * y).ravel()


def flux(latent, age, spectra, space):
    """(spaxel, bin) by numpy or jax.numpy (`space`)."""
    total = 0.0
    for number in range(2):
        mass, place, size = latent[3 * number : 3 * number + 3]
        own = AGES[0] + (AGES[1] - AGES[0]) * (norm.cdf(place) if space is np else jax.scipy.stats.norm.cdf(place))
        cell = space.clip(space.searchsorted(age, own) - 1, 0, len(age) - 2)
        share = (own - age[cell]) / (age[cell + 1] - age[cell])
        seen = (1 - share) * spectra[number][cell] + share * spectra[number][cell + 1]
        length = RADII[number] * space.exp(0.3 * size)
        light = space.exp(0.5 * mass - radius() / length) / length**2
        total = total + light[:, None] * seen[None, :]
    return total


class TwoDiscs(eqx.Module):
    """Residuals of a cube, and of the priors."""

    data: jax.Array
    error: jax.Array
    age: jax.Array
    spectra: jax.Array

    def residuals(self, latent):
        return (self.data - flux(latent, self.age, self.spectra, jnp)) / self.error, latent

    def loss(self, latent):
        return 0.5 * sum(jnp.sum(own**2) for own in self.residuals(latent))


@jax.jit
def residuals_of(own, latent):
    """In one row."""
    return jnp.concatenate([part.ravel() for part in own.residuals(latent)])


JACOBIAN = jax.jit(jax.jacfwd(residuals_of, argnums=1))


def search(own, begin, nodes):
    """(best place, covariance there by the curvature)."""
    best = begin
    for _ in range(MOST_ROUNDS):
        found = least_squares(
            lambda at: np.asarray(residuals_of(own, at)), best, lambda at: np.asarray(JACOBIAN(own, at))
        )
        best, other = found.x, lower_elsewhere(own, found.x, float(found.cost), nodes)
        if other is None:
            break
        best = other
    slopes = np.asarray(JACOBIAN(own, found.x))
    return found.x, np.linalg.inv(slopes.T @ slopes)


def main():
    """Pulls of all mocks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mocks", type=int, default=200)
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    age, spectra = library()
    inside = age[(age > AGES[0]) & (age < AGES[1])]
    edges = np.concatenate([[-6.0], norm.ppf((inside - AGES[0]) / (AGES[1] - AGES[0])), [6.0]])
    nodes, pulls = {1: edges, 4: edges}, []
    for number in range(given.mocks):
        random = np.random.default_rng([41, number])
        truth, begin = random.standard_normal((2, 6))
        clean = flux(truth, age, spectra, np)
        error = np.median(clean, axis=1, keepdims=True) / 30 * np.ones_like(clean)
        data = clean + error * random.standard_normal(clean.shape)
        own = TwoDiscs(*map(jnp.asarray, (data, error, age, spectra)))
        best, covariance = search(own, 0.3 * begin, nodes)
        sigma = np.sqrt(np.diag(covariance))
        spreads = [spread_along(own, best, index, edges, sigma[index]) for index in nodes]
        wider = with_spreads(covariance, [one for one in spreads if one is not None and one.factor > 1])
        pulls.append([(best - truth) / sigma, (best - truth) / np.sqrt(np.diag(wider))])
    pulls = np.array(pulls)
    print(f"{given.mocks} mocks\n| | scatter, largest by the curvature | over all cells | within 68, 95 % |")
    print("|---|---|---|---|")
    for number, name in enumerate(NAMES):
        before, after = np.abs(pulls[:, :, number]).T
        held = ", ".join(f"{100 * np.mean(after < norm.ppf(0.5 + level / 2)):.0f}" for level in (0.6827, 0.95))
        print(
            f"| {name} | {np.sqrt(np.mean(before**2)):.2f}, {before.max():.1f} | {np.sqrt(np.mean(after**2)):.2f}, "
            f"{after.max():.1f} | {held} |"
        )


if __name__ == "__main__":
    main()
