"""jax.grad of a scalar of the cube against central finite differences, and finite wherever a particle may be."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from observing import configuration, galaxy_of

from rubix_like import Galaxy, Pipeline, Stars, make_mesh, shard

N_STARS = 11
FIELDS = ("position", "velocity", "initial_mass", "log_age", "metallicity")
STEPS = {"position": 1e-5, "velocity": 1e-2, "initial_mass": 1e3, "log_age": 1e-6, "metallicity": 1e-8}
"""kpc, km/s, Msun, dex, mass fraction."""


def config(precision="float64", deposit="tsc", **observation):
    angles = {"inclination": 50.0, "position_angle": 20.0, "offset": [0.1, -0.07], "velocity_offset": 40.0}
    return configuration(
        observation={**angles, **observation},
        instrument={
            "fov": 2.0,
            "wavelength": {"start": 5000.0, "stop": 5300.0, "step": 10.0},
            "psf": {"fwhm": 0.55},
            "lsf": {"fwhm": 30.0},
        },
        engine={"precision": precision, "deposit": deposit, "velocity_range": 2000.0},
        ssp={"library": "popstar"},
    )


@pytest.fixture(scope="module")
def galaxy():
    generator = np.random.default_rng(11)
    return galaxy_of(
        generator.normal(size=(N_STARS, 3)) * 0.4,
        generator.normal(size=(N_STARS, 3)) * 150.0,
        initial_mass=generator.uniform(0.5, 2.0, size=N_STARS) * 1e8,
        log_age=generator.uniform(7.01, 10.0, size=N_STARS),
        metallicity=10 ** generator.uniform(-3.3, -1.4, size=N_STARS),
    )


@pytest.fixture(scope="module")
def pipeline(galaxy):
    return Pipeline.from_config(config(), galaxy, mesh=make_mesh(1))


def score(pipeline, galaxy, parameters):
    """A sum over all voxels with weights of both signs, about 1."""
    cube = pipeline(galaxy, parameters)
    weights = np.random.default_rng(3).normal(size=cube.flux.shape)
    return jnp.sum(cube.flux * jnp.asarray(weights, cube.flux.dtype)) / 1e6


def gradients(pipeline, galaxy, parameters=None):
    """Of the score, with respect to galaxy and parameters."""
    parameters = pipeline.parameters if parameters is None else parameters
    return jax.grad(lambda both: score(pipeline, *both))((galaxy, parameters))


@pytest.fixture(scope="module")
def gradient(pipeline, galaxy):
    return gradients(pipeline, galaxy)


def central_difference(function, value, index, step):
    up, down = (function(value.at[index].add(sign * step)) for sign in (1, -1))
    return float((up - down) / (2 * step))


def with_field(galaxy, name, value):
    return eqx.tree_at(lambda g: getattr(g.stars, name), galaxy, value)


@pytest.mark.parametrize("field", FIELDS)
def test_gradient_of_every_star_field_is_the_finite_difference(pipeline, galaxy, gradient, field):
    value, own = getattr(galaxy.stars, field), np.asarray(getattr(gradient[0].stars, field))
    scale = np.abs(own).max()
    assert scale > 0
    for star in range(0, N_STARS, 2):
        index = (star, star % 3) if value.ndim == 2 else (star,)
        expected = central_difference(
            lambda v: score(pipeline, with_field(galaxy, field, v), pipeline.parameters), value, index, STEPS[field]
        )
        assert own[index] == pytest.approx(expected, rel=1e-4, abs=1e-6 * scale)


PARAMETERS = {
    "inclination": (lambda p: p.observation.inclination, 1e-4),
    "position_angle": (lambda p: p.observation.position_angle, 1e-4),
    "offset": (lambda p: p.observation.offset, 1e-5),
    "velocity_offset": (lambda p: p.observation.velocity_offset, 1e-2),
    "psf.fwhm": (lambda p: p.instrument.psf.fwhm, 1e-5),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_gradient_of_every_parameter_is_the_finite_difference(pipeline, galaxy, gradient, name):
    where, step = PARAMETERS[name]
    value = where(pipeline.parameters)
    for index in [()] if value.ndim == 0 else [(0,), (1,)]:
        expected = central_difference(
            lambda v: score(pipeline, galaxy, eqx.tree_at(where, pipeline.parameters, v)), value, index, step
        )
        assert expected != 0
        assert float(where(gradient[1])[index]) == pytest.approx(expected, rel=1e-4)


def test_gradient_of_positions_with_cic(galaxy):
    pipeline = Pipeline.from_config(config(deposit="cic"), galaxy, mesh=make_mesh(1))
    own = np.asarray(jax.grad(lambda g: score(pipeline, g, pipeline.parameters))(galaxy).stars.position)
    for index in [(0, 0), (3, 1), (6, 2)]:
        expected = central_difference(
            lambda v: score(pipeline, with_field(galaxy, "position", v), pipeline.parameters),
            galaxy.stars.position,
            index,
            STEPS["position"],
        )
        assert own[index] == pytest.approx(expected, rel=1e-4)


def test_gradient_with_nearest_and_at_rest_is_finite(galaxy):
    """No gradient of positions with `nearest`, but no NaN either; nor at inclination 0."""
    pipeline = Pipeline.from_config(config(deposit="nearest", inclination=0.0), galaxy, mesh=make_mesh(1))
    own = gradients(pipeline, galaxy)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(own))
    np.testing.assert_array_equal(np.asarray(own[0].stars.position), 0.0)


def odd_galaxy():
    """Stars at places where a formula may break: outside, Z = 0, too young, too old, on nodes and borders, no mass."""
    position = np.zeros((12, 3))
    position[0] = [500.0, 0, 0]
    position[1] = [0, -1e6, 1e6]
    position[2] = [0.101, 0.2, 0]
    log_age = np.array([9.0, 9.0, 0.0, 5.0, 10.2, 10.3, 8.5, 8.123, 9.0, 7.0, 5.0, 9.0])
    metallicity = np.array([0.02, 0.02, 0.0, 0.0, 0.0001, 0.05, 0.9, 1e-30, 0.02, 0.004, 0.0, 0.02])
    velocity = np.zeros((12, 3))
    velocity[7] = [0, 0, 1500.0]
    mass = np.full(12, 1e8)
    mass[8] = 0.0
    return galaxy_of(position, velocity, mass, log_age, metallicity)


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("deposit", ["tsc", "nearest"])
def test_gradient_is_finite_wherever_a_particle_is(precision, deposit):
    galaxy = odd_galaxy()
    pipeline = Pipeline.from_config(config(precision, deposit), galaxy, mesh=make_mesh(1))
    stars, parameters = gradients(pipeline, galaxy)
    stars = stars.stars
    for leaf in jax.tree.leaves((stars, parameters)):
        assert np.isfinite(leaf).all()
    for name in FIELDS:
        np.testing.assert_array_equal(np.asarray(getattr(stars, name))[:2], 0.0)
    np.testing.assert_array_equal(np.asarray(stars.log_age)[[2, 4, 5]], 0.0)
    np.testing.assert_array_equal(np.asarray(stars.metallicity)[[2, 3, 6, 7]], 0.0)
    assert np.asarray(stars.initial_mass)[8] != 0


@pytest.mark.parametrize("n_stars", [3, 11])
def test_padding_and_sharding_do_not_change_the_gradient(galaxy, n_stars):
    """On 8 devices, with stars not divisible by 8 or fewer than devices: the last star is repeated as padding."""
    few = Galaxy(stars=Stars(**{n: None if v is None else v[:n_stars] for n, v in vars(galaxy.stars).items()}))
    one, eight = (Pipeline.from_config(config(), few, mesh=make_mesh(n)) for n in (1, 8))
    for first, second in zip(*(jax.tree.leaves(gradients(p, few)) for p in (one, eight)), strict=True):
        np.testing.assert_allclose(np.asarray(second), np.asarray(first), rtol=0, atol=1e-10 * np.abs(first).max())


def test_padding_has_no_gradient_of_its_own(galaxy):
    """A galaxy that was sharded beforehand: its rows of weight 0 get none, and the others what they got without."""
    pipeline = Pipeline.from_config(config(), galaxy, mesh=make_mesh(8))
    placed = shard(galaxy, pipeline.mesh)
    assert len(placed.stars.initial_mass) == 16
    own, bare = (gradients(pipeline, g)[0].stars for g in (placed, galaxy))
    for name in FIELDS:
        rows, expected = np.asarray(getattr(own, name)), np.asarray(getattr(bare, name))
        np.testing.assert_array_equal(rows[N_STARS:], 0.0)
        np.testing.assert_allclose(rows[:N_STARS], expected, rtol=0, atol=1e-10 * np.abs(expected).max())


def test_float32_gradient_is_close_to_float64(galaxy, gradient):
    pipeline = Pipeline.from_config(config("float32"), galaxy, mesh=make_mesh(1))
    rounded = gradients(pipeline, galaxy)
    for name in FIELDS:
        exact, own = (np.asarray(getattr(g[0].stars, name), dtype=np.float64) for g in (gradient, rounded))
        np.testing.assert_allclose(own, exact, rtol=0, atol=2e-3 * np.abs(exact).max())
    for name, (where, _) in PARAMETERS.items():
        np.testing.assert_allclose(
            np.asarray(where(rounded[1])), np.asarray(where(gradient[1])), rtol=5e-3, err_msg=name
        )
