"""jax.grad of a scalar of the cube against central finite differences, and finite wherever a particle may be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from observing import central_difference, configuration, galaxy_of

from rubix_like import Galaxy, Pipeline, Stars, make_mesh, shard

N_STARS = 11
FIELDS = ("position", "velocity", "initial_mass", "log_age", "metallicity")
STEPS = {"position": 1e-5, "velocity": 1e-2, "initial_mass": 1e3, "log_age": 1e-6, "metallicity": 1e-8}
"""kpc, km/s, Msun, dex, mass fraction."""


BARE = {"psf": None, "lsf": None}
BLURRED = {"psf": {"fwhm": 0.55}, "lsf": {"fwhm": 30.0}}


def config(precision="float64", deposit="tsc", inclination=50.0, **instrument):
    return configuration(
        observation={
            "inclination": inclination,
            "position_angle": 20.0,
            "offset": [0.1, -0.07],
            "velocity_offset": 40.0,
        },
        instrument={
            "fov": 2.0,
            "wavelength": {"start": 5000.0, "stop": 5300.0, "step": 10.0},
            **BLURRED,
            **instrument,
        },
        engine={"precision": precision, "deposit": deposit, "velocity_range": 2000.0},
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


@jax.jit
def valued(pipeline, both):
    """The score, and its gradient with respect to galaxy and parameters."""
    return jax.value_and_grad(lambda both: score(pipeline, *both))(both)


def gradients(pipeline, galaxy):
    return valued(pipeline, (galaxy, pipeline.parameters))[1]


@pytest.fixture(scope="module")
def gradient(pipeline, galaxy):
    return gradients(pipeline, galaxy)


def difference(pipeline, galaxy, where, index, step):
    """By a number of (galaxy, parameters)."""
    both = galaxy, pipeline.parameters
    return float(central_difference(lambda both: valued(pipeline, both)[0], both, where, step, index))


@pytest.mark.parametrize("field", FIELDS)
def test_gradient_of_every_star_field_is_the_finite_difference(pipeline, galaxy, gradient, field):
    where = lambda both: getattr(both[0].stars, field)  # noqa: E731
    slope = np.asarray(where(gradient))
    scale = np.abs(slope).max()
    assert scale > 0
    for star in range(0, N_STARS, 2):
        index = (star, star % 3) if slope.ndim == 2 else (star,)
        expected = difference(pipeline, galaxy, where, index, STEPS[field])
        assert slope[index] == pytest.approx(expected, rel=1e-4, abs=1e-6 * scale)


PARAMETERS = {
    "inclination": (lambda p: p.observation.inclination, 1e-4),
    "position_angle": (lambda p: p.observation.position_angle, 1e-4),
    "offset": (lambda p: p.observation.offset, 1e-5),
    "velocity_offset": (lambda p: p.observation.velocity_offset, 1e-2),
    "psf.fwhm": (lambda p: p.instrument.psf.fwhm, 1e-5),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_gradient_of_every_parameter_is_the_finite_difference(pipeline, galaxy, gradient, name):
    of_parameters, step = PARAMETERS[name]
    where = lambda both: of_parameters(both[1])  # noqa: E731
    for index in np.ndindex(where(gradient).shape):
        expected = difference(pipeline, galaxy, where, index, step)
        assert expected != 0
        assert float(where(gradient)[index]) == pytest.approx(expected, rel=1e-4)


def test_gradient_of_positions_with_cic(galaxy):
    pipeline = Pipeline.from_config(config(deposit="cic", **BARE), galaxy, mesh=make_mesh(1))
    where = lambda both: both[0].stars.position  # noqa: E731
    slope = np.asarray(where(gradients(pipeline, galaxy)))
    for index in [(0, 0), (3, 1), (6, 2)]:
        expected = difference(pipeline, galaxy, where, index, STEPS["position"])
        assert slope[index] == pytest.approx(expected, rel=1e-4)


def odd_galaxy():
    """Stars at places where a formula may break: outside, Z = 0, too young, too old, on nodes and borders, no mass."""
    position = np.zeros((N_STARS, 3))
    position[0] = [500.0, 0, 0]
    position[1] = [0, -1e6, 1e6]
    position[2] = [0.101, 0.2, 0]
    log_age = np.array([9.0, 9.0, 0.0, 5.0, 10.2, 10.3, 8.5, 8.123, 9.0, 7.0, 5.0])
    metallicity = np.array([0.02, 0.02, 0.0, 0.0, 0.0001, 0.05, 0.9, 1e-30, 0.02, 0.004, 0.0])
    velocity = np.zeros((N_STARS, 3))
    velocity[7] = [0, 0, 1500.0]
    mass = np.full(N_STARS, 1e8)
    mass[8] = 0.0
    return galaxy_of(position, velocity, mass, log_age, metallicity)


def assert_finite_and_zero_where_nothing_depends(pipeline):
    galaxy, parameters = gradients(pipeline, odd_galaxy())
    stars = galaxy.stars
    for leaf in jax.tree.leaves((stars, parameters)):
        assert np.isfinite(leaf).all()
    for name in FIELDS:
        np.testing.assert_array_equal(np.asarray(getattr(stars, name))[:2], 0.0)
    np.testing.assert_array_equal(np.asarray(stars.log_age)[[2, 4, 5]], 0.0)
    np.testing.assert_array_equal(np.asarray(stars.metallicity)[[2, 3, 6, 7]], 0.0)
    assert np.asarray(stars.initial_mass)[8] != 0


def test_gradient_is_finite_wherever_a_particle_is(pipeline):
    """Outside the field everything is 0; beyond the library its age and metallicity."""
    assert_finite_and_zero_where_nothing_depends(pipeline)


def test_gradient_with_nearest_is_finite_and_none_for_positions(galaxy):
    """Face-on, too, where the formulas of the rotation have their zeros."""
    pipeline = Pipeline.from_config(config(deposit="nearest", inclination=0.0, **BARE), galaxy, mesh=make_mesh(1))
    assert_finite_and_zero_where_nothing_depends(pipeline)
    np.testing.assert_array_equal(np.asarray(gradients(pipeline, galaxy)[0].stars.position), 0.0)


def test_float32_gradient_is_close_to_float64_and_as_finite(galaxy, gradient):
    pipeline = Pipeline.from_config(config("float32"), galaxy, mesh=make_mesh(1))
    rounded = gradients(pipeline, galaxy)
    for name in FIELDS:
        exact, found = (np.asarray(getattr(g[0].stars, name), dtype=np.float64) for g in (gradient, rounded))
        np.testing.assert_allclose(found, exact, rtol=0, atol=2e-3 * np.abs(exact).max())
    for name, (where, _) in PARAMETERS.items():
        found, exact = np.asarray(where(rounded[1])), np.asarray(where(gradient[1]))
        np.testing.assert_allclose(found, exact, rtol=5e-3, err_msg=name)
    assert_finite_and_zero_where_nothing_depends(pipeline)


def assert_same_stars(found, expected, n_stars):
    for name in FIELDS:
        rows, wanted = (np.asarray(getattr(stars, name)) for stars in (found, expected))
        np.testing.assert_allclose(rows[:n_stars], wanted[:n_stars], rtol=0, atol=1e-10 * np.abs(wanted).max())


@pytest.mark.long
def test_padding_and_sharding_do_not_change_the_gradient(galaxy, gradient):
    """8 devices, 11 stars, sharded and padded to 16 rows beforehand: the padding gets no gradient."""
    pipeline = Pipeline.from_config(config(), galaxy, mesh=make_mesh(8))
    placed = shard(galaxy, pipeline.mesh)
    assert len(placed.stars.initial_mass) == 16
    found, parameters = gradients(pipeline, placed)
    assert_same_stars(found.stars, gradient[0].stars, N_STARS)
    for name in FIELDS:
        np.testing.assert_array_equal(np.asarray(getattr(found.stars, name))[N_STARS:], 0.0)
    for leaf, expected in zip(*(jax.tree.leaves(p) for p in (parameters, gradient[1])), strict=True):
        np.testing.assert_allclose(np.asarray(leaf), np.asarray(expected), rtol=1e-9)


@pytest.mark.slow
def test_fewer_stars_than_devices_have_the_same_gradient(galaxy, gradient):
    """3 stars on 8 devices: light is a sum over stars, so a star's gradient does not depend on the others."""
    few = Galaxy(stars=Stars(**{n: None if v is None else v[:3] for n, v in vars(galaxy.stars).items()}))
    pipeline = Pipeline.from_config(config(), few, mesh=make_mesh(8))
    assert_same_stars(gradients(pipeline, few)[0].stars, gradient[0].stars, 3)
