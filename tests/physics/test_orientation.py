"""The sky frame: East to the left, receding major axis at the position angle, proper rotations only."""

import functools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from observing import configuration, galaxy_of, observe, random_rotation, ring_disc, turned
from small import white_light

from rubix_like import Pipeline, make_mesh

DEPOSIT = {"deposit": "tsc"}
TSC_VARIANCE = 0.25 * 0.2**2
"""What tsc adds to the second moments of an image, wherever the stars lie (arcsec^2); centroids are exact."""

CENTRE = {"ra": 150.0, "dec": 30.0}
FIELD = {"fov": 8.0, "wavelength": {"start": 5000.0, "stop": 5004.0, "step": 1.25}}


def sky_offsets(cube):
    """(East, North) in arcsec of every spaxel from the field's centre, by astropy."""
    n_y, n_x, _ = cube.flux.shape
    rows, columns = np.mgrid[:n_y, :n_x]
    ra, dec, _ = cube.wcs.pixel_to_world_values(columns, rows, 0)
    return (ra - CENTRE["ra"]) * np.cos(np.deg2rad(CENTRE["dec"])) * 3600, (dec - CENTRE["dec"]) * 3600


def moments(cube):
    """Velocity dipole (East, North) in arcsec km/s and second moments [[EE, EN], [EN, NN]] in arcsec^2, by light."""
    offsets = np.stack(sky_offsets(cube))
    light = white_light(cube)
    light = light / light.sum()
    velocity = np.where(light > 0, np.asarray(cube.mean_v_los), 0.0)
    second = np.einsum("yx,iyx,jyx->ij", light, offsets, offsets)
    return np.einsum("yx,iyx->i", light * velocity, offsets), second - TSC_VARIANCE * np.eye(2)


def angle_of(east, north):
    """From North through East, degrees."""
    return np.rad2deg(np.arctan2(east, north))


INPUTS = {"as it is": np.eye(3), "half a turn": np.diag([1.0, -1.0, -1.0])} | {
    seed: random_rotation(seed) for seed in range(2)
}
"""Rotations of the disc's arrays."""


@functools.cache
def pipeline_of(given):
    """The disc, its arrays turned, and a pipeline that aligns it."""
    disc = turned(ring_disc(), INPUTS[given])
    observation = {**CENTRE, "inclination": 60.0, "position_angle": 30.0, "align": "stars"}
    config = configuration(observation=observation, instrument=FIELD, engine=DEPOSIT)
    return disc, Pipeline.from_config(config, disc, mesh=make_mesh(1))


def disc_cube(inclination, position_angle, given):
    disc, pipeline = pipeline_of(given)
    angles = jnp.asarray(float(inclination)), jnp.asarray(float(position_angle))
    where = lambda p: (p.observation.inclination, p.observation.position_angle)  # noqa: E731
    return pipeline(disc, eqx.tree_at(where, pipeline.parameters, angles))


@pytest.mark.parametrize(
    ("observation", "offsets"),
    [({}, [(1.98, 0.0), (0.0, 1.98), (0.0, 0.0)]), ({"inclination": 0.0}, [(0.0, 1.98), (-1.98, 0.0), (0.0, 0.0)])],
)
def test_x_is_east_y_is_north_and_z_points_away(observation, offsets):
    """The star at x > 0 has the larger RA, the one at y > 0 the larger Dec, and one that moves along +z recedes; 2 kpc
    are 1.98 arcsec. Seen face-on x is the major axis at position angle 0."""
    config = configuration(observation={**CENTRE, **observation}, instrument=FIELD)
    cube = observe(config, galaxy_of(2 * np.eye(3), velocity=[-50.0, 100.0, 150.0]))
    lit = white_light(cube) > 0
    assert lit.sum() == 3
    velocity, places = np.asarray(cube.mean_v_los)[lit], np.stack(sky_offsets(cube), axis=-1)[lit]
    order = np.argsort(velocity)
    np.testing.assert_allclose(velocity[order], [-50.0, 100.0, 150.0], rtol=1e-12)
    np.testing.assert_allclose(places[order], offsets, atol=0.11)


@pytest.mark.parametrize(
    ("inclination", "position_angle"), [(60, 30), (30, 110), (75, 200), (45, 315), (60, 0), (120, 75)]
)
def test_receding_major_axis_lies_at_the_position_angle(inclination, position_angle):
    """Along the major axis v_los = speed sin(i) cos(angle): the dipole is <R> speed sin(i) / 2 in arcsec."""
    for seed in (0, 1):
        dipole, second = moments(disc_cube(inclination, position_angle, seed))
        assert (angle_of(*dipole) - position_angle + 180) % 360 - 180 == pytest.approx(0.0, abs=0.05)
        length = 0.9892393 * 1.75 * 200 * np.sin(np.deg2rad(inclination)) / 2
        assert np.linalg.norm(dipole) == pytest.approx(length, rel=2e-3)
        widths, axes = np.linalg.eigh(second)
        assert (angle_of(*axes[:, 1]) - position_angle + 90) % 180 - 90 == pytest.approx(0.0, abs=0.05)
        assert np.sqrt(widths[0] / widths[1]) == pytest.approx(abs(np.cos(np.deg2rad(inclination))), abs=2e-3)


def test_view_does_not_depend_on_the_axes_of_the_input():
    """Moments of an axisymmetric disc after any proper rotation of the input, half turns and none included."""
    expected, *others = (moments(disc_cube(60.0, 30.0, given)) for given in INPUTS)
    for dipole, second in others:
        np.testing.assert_allclose(dipole, expected[0], rtol=0, atol=1e-3 * np.abs(expected[0]).max())
        np.testing.assert_allclose(second, expected[1], rtol=0, atol=1e-3 * expected[1].max())


def test_face_on_disc_shows_no_velocity_and_is_round():
    cube = disc_cube(0.0, 0.0, 1)
    assert np.nanmax(np.abs(np.asarray(cube.mean_v_los))) < 1e-6
    _, second = moments(cube)
    np.testing.assert_allclose(second, second[0, 0] * np.eye(2), atol=2e-3 * second[0, 0])
