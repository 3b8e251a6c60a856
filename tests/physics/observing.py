"""Small galaxies, instruments and libraries for the physics tests."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from scipy.spatial.transform import Rotation
from small import mock_data, muse

from rubix_like import Galaxy, Pipeline, Stars, fit, load_config, make_mesh
from rubix_like.extend import SSPTable, write_table

INSTRUMENT = muse(5000.0, 5100.0, 1.25, fov=1.0, pixel_scale=0.2)


def configuration(*, instrument=None, observation=None, engine=None, **sections):
    """A run on arrays in float64 at redshift 0.05 with a small MUSE; sections are changed key by key."""
    return load_config(
        {
            "observation": {"redshift": 0.05, "align": "none", **(observation or {})},
            "instrument": {**INSTRUMENT, **(instrument or {})},
            "engine": {"method": "direct", "precision": "float64", **(engine or {})},
            **sections,
        }
    )


def observe(config, galaxy, n_devices=1, **arguments):
    """The cube of a galaxy, planned from it."""
    return Pipeline.from_config(config, galaxy, mesh=make_mesh(n_devices))(galaxy, **arguments)


def galaxy_of(position=((0, 0, 0),), velocity=0.0, initial_mass=1e10, log_age=9.0, metallicity=0.02):
    """Stars at `position` (N, 3) kpc; everything else is broadcast to them (a number for `velocity` is v_z)."""
    position = np.asarray(position, dtype=np.float64)
    n = len(position)
    velocity = np.asarray(velocity, dtype=np.float64)
    if velocity.ndim < 2:
        velocity = np.stack([np.zeros(n), np.zeros(n), np.broadcast_to(velocity, n)], axis=1)
    scalars = (np.broadcast_to(np.float64(x), n) for x in (initial_mass, log_age, metallicity))
    return Galaxy(stars=Stars(*(jnp.asarray(x) for x in (position, velocity, *scalars))))


def turned(galaxy, rotation):
    """The galaxy with positions and velocities rotated."""
    stars = vars(galaxy.stars)
    vectors = {name: jnp.asarray(np.asarray(stars[name]) @ rotation.T) for name in ("position", "velocity")}
    return Galaxy(stars=Stars(**{**stars, **vectors}))


def ring_disc(radii=(0.5, 1.0, 1.5, 2.0, 2.5, 3.0), per_ring=64, speed=200.0, height=0.01):
    """Rings in the x-y plane (kpc) that turn about +z, in two sheets, the same after a turn of 360/64 deg."""
    angle = 2 * np.pi * np.arange(per_ring) / per_ring
    around = np.stack([np.cos(angle), np.sin(angle), np.zeros(per_ring)], axis=1)
    along = np.stack([-np.sin(angle), np.cos(angle), np.zeros(per_ring)], axis=1)
    sheets = [radius * around + [0, 0, z] for radius in radii for z in (-height, height)]
    return galaxy_of(np.concatenate(sheets), np.tile(speed * along, (len(sheets), 1)), initial_mass=1e6)


def random_rotation(seed):
    return Rotation.random(random_state=seed).as_matrix()


def write_library(path, rest_wavelength, spectrum, fwhm=1e-3, medium="vacuum"):
    """An SSP file with the same spectrum (Lsun/A/Msun) at two ages and two metallicities; returns ssp settings."""
    rest_wavelength = np.asarray(rest_wavelength, dtype=np.float64)
    table = SSPTable(
        name="test",
        medium=medium,
        imf="none",
        solar_metallicity=0.02,
        citation="none",
        licence="none",
        source="a test",
        spectra=np.broadcast_to(np.float32(spectrum), (2, 2, rest_wavelength.size)),
        log_age=np.array([6.0, 10.0]),
        metallicity=np.array([0.001, 0.05]),
        rest_wavelength=rest_wavelength,
        fwhm=np.broadcast_to(np.float64(fwhm), rest_wavelength.shape),
    )
    write_table(table, path)
    return {"library": str(path)}


def check_fit(config, flux, stars, truth):
    """Of this flux with noise of 0.1 % of its mean: the fitted numbers are within 4 sigma of the truth, and residuals
    as large as the noise."""
    sigma = 1e-3 * flux.mean()
    noisy = flux + sigma * np.random.default_rng(2).standard_normal(flux.shape)
    data = dataclasses.replace(mock_data(flux.shape), flux=noisy, variance=np.full(flux.shape, sigma**2))
    result = fit(config, data, galaxy=stars)
    assert result.converged
    for name, value in truth.items():
        assert 0 < result.sigma[name] < 30
        assert abs(float(result.values[name]) - value) < 4 * float(result.sigma[name]), name
    assert 0.8 < result.quality.reduced < 1.2


def central_difference(function, tree, where, step, index=()):
    """The slope of a function of a tree along one number of the leaf at `where`."""
    leaf = jnp.asarray(where(tree))
    up, down = (np.asarray(function(eqx.tree_at(where, tree, leaf.at[index].add(change)))) for change in (step, -step))
    return (up - down) / (2 * step)


def gaussian(wavelength, centre, sigma):
    """A line of unit integral."""
    return np.exp(-0.5 * ((wavelength - centre) / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi))
