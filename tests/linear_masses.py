"""A fit that is linear in what is free: masses of three stars with normal priors, and its evidence by numpy alone."""

import functools
from dataclasses import replace

import numpy as np
import scipy.stats
from small import few_stars, mock_data, muse

from rubix_like import Pipeline, load_config

SHAPE = (3, 3, 21)
MEAN, SPREAD = 1e6, 1.5e5
"""Of the priors of the masses, Msun."""

CONFIG = {
    "observation": {"redshift": 0.05, "inclination": 0, "position_angle": 0, "velocity_offset": 0},
    "instrument": muse(5000, 5200, fov="0.6 arcsec"),
    "engine": {"method": "direct", "precision": "float64", "velocity_range": 400},
    "devices": {"data": 1},
    "fit": {"free": {"stars.initial_mass": {"normal": [MEAN, SPREAD]}}, "starts": 1, "candidates": 1},
}


@functools.cache
def galaxy():
    """Three stars, each of the priors' mean mass."""
    return with_masses(np.full(3, MEAN))


def with_masses(masses):
    """The stars with these masses."""
    stars = few_stars(3, 0.1)
    return replace(stars, stars=replace(stars.stars, initial_mass=np.asarray(masses, float)))


@functools.cache
def columns():
    """(voxel, star): the flux of each star at its mean mass, one cube after the other."""
    changed = load_config(CONFIG, overrides={"noise": None})
    pipeline = Pipeline.from_config(changed, galaxy())
    cubes = [pipeline(with_masses(np.where(np.arange(3) == own, MEAN, 1e-3 * MEAN))).flux for own in range(3)]
    rows = np.stack([np.asarray(cube).ravel() for cube in cubes], axis=1)
    mixing = np.where(np.eye(3) == 1, 1.0, 1e-3)
    return rows @ np.linalg.inv(mixing)


@functools.cache
def data(factor=1.0, seed=4):
    """A mock with masses drawn from the priors; its noise is `factor` times what it says."""
    generator, sigma = np.random.default_rng(seed), 0.1 * columns().sum(axis=1).mean()
    masses = 1 + SPREAD / MEAN * generator.standard_normal(3)
    flux = columns() @ masses + factor * sigma * generator.standard_normal(len(columns()))
    variance = np.full(SHAPE, sigma**2)
    return replace(mock_data(SHAPE), flux=flux.reshape(SHAPE), variance=variance)


def posterior_by_numpy(cube):
    """Mean and covariance of the masses (Msun), and ln of the evidence: ln N(data; M 1, sigma^2 + s^2 M M^T)."""
    flux, sigma = cube.flux.ravel(), np.sqrt(cube.variance.ravel()[0])
    design = columns() * SPREAD / MEAN
    precision = design.T @ design / sigma**2 + np.eye(3)
    latent = np.linalg.solve(precision, design.T @ (flux - columns().sum(axis=1)) / sigma**2)
    covariance = sigma**2 * np.eye(len(flux)) + design @ design.T
    evidence = scipy.stats.multivariate_normal(columns().sum(axis=1), covariance).logpdf(flux)
    return MEAN + SPREAD * latent, SPREAD**2 * np.linalg.inv(precision), float(evidence)
