"""An exponential disc within its own dust: attenuation at four inclinations, and a bulge seen through the disc."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from astropy import units
from double_exponential import Disc, transmission
from dust_extinction.parameter_averages import CCM89
from independent import arcsec_per_kpc, luminosity_distance, sky_rotation
from kernel_columns import exact_columns
from observing import configuration, galaxy_of, write_library
from scipy.integrate import quad
from scipy.spatial import cKDTree
from scipy.special import gammainc

from rubix_like import Galaxy, Gas, Pipeline, make_mesh

REACH, TAU, N, OPACITY = 6.0, 2.0, 4096, 4.9
STARS, DUST = Disc(1.0, 0.2, REACH), Disc(1.2, 0.12, REACH)
INCLINATIONS = (0.0, 45.0, 65.0, 80.0)
MAG = 2.5 / np.log(10)


def test_the_integral_is_the_published_formula():
    """Face-on, stars and dust alike: (1 - exp(-tau)) / tau in every column (Disney, Davies & Phillipps 1989)."""
    for tau in (0.5, 5.0):
        light = quad(lambda r, tau=tau: r * (1 - np.exp(-tau * np.exp(-r))) / tau, 0, REACH)[0] / gammainc(2, REACH)
        assert transmission(STARS, STARS, tau, 0.0, 24, 100, 201) == pytest.approx(light, rel=2e-4)


@pytest.fixture(scope="module")
def observed(tmp_path_factory):
    """`observed(chosen, inclination, opacity)`: the light of these stars of `both` in B and V (y, x), and k in both."""
    flat = write_library(tmp_path_factory.mktemp("flat") / "flat.h5", np.linspace(4000, 6000, 41), np.ones(41))
    config = configuration(
        ssp=flat,
        dust={"kind": "particles", "cells": 128},
        instrument={"fov": 14.0, "pixel_scale": 1.0, "wavelength": {"start": 4550, "stop": 5850, "step": 100}},
        observation={"position_angle": 90.0, "inclination": 1.0},
        products={"losvd": None},
    )
    galaxy = both()
    pipeline = Pipeline.from_config(config, galaxy, mesh=make_mesh(1))

    def of(chosen, inclination, opacity=OPACITY):
        parameters = eqx.tree_at(
            lambda p: (p.observation.inclination, p.dust.opacity),
            pipeline.parameters,
            (jnp.asarray(inclination), jnp.asarray(opacity)),
        )
        mass = jnp.where(jnp.asarray(chosen), 1e6, 0.0)
        cube = pipeline(eqx.tree_at(lambda g: g.stars.initial_mass, galaxy, mass), parameters)
        rest = np.asarray(cube.wavelength) / 1.05
        bands = [np.argmin(np.abs(rest - own)) for own in (4400, 5500)]
        light = np.moveaxis(np.asarray(cube.flux, dtype=float)[:, :, bands], 2, 0)
        return light, CCM89(Rv=3.1)(rest[bands] * units.AA)

    return of


def both():
    """Stars of the disc, then those of the bulge, and dust of the gas."""
    rng = np.random.default_rng(1)
    bulge = rng.normal(0, 0.6, (N // 2, 3))
    gas = DUST.particles(2 * N, seed=2)
    dust = DUST.mass(TAU * MAG / OPACITY * 1e6)
    gas = Gas(
        position=gas,
        velocity=np.zeros_like(gas),
        mass=np.full(len(gas), 1e6),
        dust_mass=np.full(len(gas), dust / len(gas)),
        smoothing_length=cKDTree(gas).query(gas, k=25)[0][:, -1],
    )
    stars = np.concatenate([STARS.particles(N, seed=1), bulge, -bulge])
    return Galaxy(stars=galaxy_of(stars, initial_mass=1e6).stars, gas=gas)


IS_DISC = np.arange(2 * N) < N


@pytest.mark.slow(6)
def test_attenuation_rises_with_inclination(observed):
    """The light of the whole disc in V against the integral: within 0.02 mag."""
    (_, bare), (_, relative) = observed(IS_DISC, INCLINATIONS[0], 0.0)
    lost, expected = [], []
    for inclination in INCLINATIONS:
        (_, light), _ = observed(IS_DISC, inclination)
        lost.append(-2.5 * np.log10(light.sum() / bare.sum()))
        through = transmission(STARS, DUST, TAU * relative, inclination, 24, 160, 301)
        expected.append(-2.5 * np.log10(through))
    assert (np.diff(lost) > 0.05).all()
    np.testing.assert_allclose(lost, expected, atol=0.02)


@pytest.mark.slow(3)
def test_the_bulge_is_redder_behind_the_disc(observed):
    """Stars beyond the disc's plane, and the half of the image where the disc is nearer than the bulge.

    Their colours B - V are those of the kernels' columns to 0.01 mag.
    """
    inclination, galaxy = 65.0, both()
    turn = sky_rotation(inclination, 90.0).T
    stars, gas = np.asarray(galaxy.stars.position) @ turn, galaxy.gas.position @ turn
    away = np.array([0.0, 0.0, 1.0]) @ turn
    beyond = stars @ away * away[2] > 0
    a_v = OPACITY * 1e-6 * exact_columns(stars, gas, galaxy.gas.dust_mass, galaxy.gas.smoothing_length)
    seen = [[observed(own & ~IS_DISC, inclination, depth) for depth in (OPACITY, 0.0)] for own in (beyond, ~beyond)]
    relative = seen[0][0][1]
    behind, before = (np.stack([light for light, _ in own]) for own in seen)

    def excess(images, chosen, rows=slice(None)):
        dimmed, bare = images[:, :, rows].sum(axis=(2, 3))
        through = np.mean(10 ** (-0.4 * a_v[chosen & ~IS_DISC, None] * relative), axis=0)
        colour, expected = (-2.5 * np.log10(own[0] / own[1]) for own in (dimmed / bare, through))
        assert colour == pytest.approx(expected, abs=0.01)
        return colour

    assert excess(behind, beyond) > excess(before, ~beyond) + 0.1
    south = stars[:, 1] < 0
    assert gas[gas[:, 1] < 0, 2].mean() < 0
    assert excess(behind + before, south, slice(7)) > excess(behind + before, ~south, slice(7, None)) + 0.1


@pytest.mark.slow(3)
def test_lines_behind_a_slab():
    """Ha / Hb of gas behind a sheet of gas in A(V) = 1, 2, 3, to 0.3 %; those of gas in front of it are untouched."""
    step, scale = 0.125, arcsec_per_kpc(0.05, luminosity_distance(0.05))
    plane = np.arange(-21, 22) * step
    sheet = np.stack(np.meshgrid(plane, plane, [-1.0]), axis=-1).reshape(-1, 3)
    place = np.concatenate([[[0.0, 0.0, 3.0], [0.0, 1.0, -3.0]], sheet]) / scale
    is_source = np.arange(len(place)) < 2
    gas = Gas(
        position=place,
        velocity=np.zeros_like(place),
        mass=np.full(len(place), 1e9),
        star_formation_rate=is_source * 1.0,
        dust_mass=np.where(is_source, 0.0, (1e3 * step / scale) ** 2),
        smoothing_length=np.full(len(place), 8 * step / scale),
    )
    config = configuration(
        pipeline="lines",
        lines={"wavelengths": ["Ha", "Hb"], "weight": "star_formation_rate", "velocity_dispersion": 20.0},
        instrument={"pixel_scale": 1.0, "fov": 5.0, "wavelength": {"start": 5000, "stop": 7000, "step": 2.5}},
        dust={"kind": "particles", "cells": 40, "opacity": 1.0},
    )
    galaxy = Galaxy(stars=galaxy_of().stars, gas=gas)
    pipeline = Pipeline.from_config(config, galaxy, mesh=make_mesh(1))
    for a_v, expected in zip((1.0, 2.0, 3.0), (1.3755, 1.8924, 2.6029), strict=True):
        cube = pipeline(galaxy, eqx.tree_at(lambda p: p.dust.opacity, pipeline.parameters, jnp.asarray(a_v)))
        red = np.asarray(cube.wavelength) > 6000
        light = np.asarray(cube.flux)
        behind, front = (light[row, 2, red].sum() / light[row, 2, ~red].sum() for row in (2, 3))
        assert behind == pytest.approx(expected, rel=3e-3)
        assert front == pytest.approx(1.0, rel=1e-6)
        assert light[2, 2].sum() < 0.5 * light[3, 2].sum()
