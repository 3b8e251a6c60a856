"""The sky frame: East to the left, receding major axis at the position angle, proper rotations only."""

import jax.numpy as jnp
import numpy as np
import pytest
from observing import configuration, galaxy_of, observe, random_rotation, ring_disc, turned
from small import white_light

from rubix_like import Stars
from rubix_like.galaxy.alignment import StarSample, align
from rubix_like.galaxy.radius import Radius
from rubix_like.galaxy.scene import rotate
from rubix_like.physics.rotations import sky_rotation

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


def disc_cube(inclination, position_angle, rotation=None):
    disc = ring_disc() if rotation is None else turned(ring_disc(), rotation)
    angles = {"inclination": inclination, "position_angle": position_angle}
    config = configuration(observation={**CENTRE, **angles, "align": "stars"}, instrument=FIELD, engine=DEPOSIT)
    return observe(config, disc)


def test_z_points_away_from_the_observer_at_inclination_0():
    """A star that moves along +Z recedes, and one at +Z is seen at the centre."""
    config = configuration(observation={**CENTRE, "inclination": 0.0}, instrument=FIELD)
    cube = observe(config, galaxy_of([(0.0, 0.0, 2.0)], velocity=150.0))
    lit = white_light(cube) > 0
    assert np.asarray(cube.mean_v_los)[lit] == pytest.approx(150.0)
    offsets = [axis[lit] for axis in sky_offsets(cube)]
    assert np.hypot(*offsets) == pytest.approx(0.0, abs=0.15)


@pytest.mark.parametrize(("position", "axis"), [((2.0, 0, 0), 0), ((0, 2.0, 0), 1)])
def test_x_is_east_and_y_is_north(position, axis):
    """The star at x > 0 has the larger RA, the one at y > 0 the larger Dec; 2 kpc are 1.98 arcsec."""
    config = configuration(observation=CENTRE, instrument=FIELD)
    lit = np.argwhere(white_light(observe(config, galaxy_of([position]))) > 0)
    assert lit.shape == (1, 2)
    offset = [offsets[tuple(lit[0])] for offsets in sky_offsets(observe(config, galaxy_of()))]
    assert offset[axis] == pytest.approx(1.98, abs=0.11)
    assert offset[1 - axis] == pytest.approx(0.0, abs=0.11)


def test_z_points_away():
    """A star that moves along +z recedes."""
    velocity = np.asarray(observe(configuration(), galaxy_of(velocity=300.0)).mean_v_los)
    assert np.nanmax(velocity) == pytest.approx(300.0, rel=1e-12)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("inclination", "position_angle"), [(60, 30), (30, 110), (75, 200), (45, 315), (60, 0), (120, 75)]
)
def test_receding_major_axis_lies_at_the_position_angle(inclination, position_angle, seed):
    dipole, second = moments(disc_cube(inclination, position_angle, random_rotation(seed)))
    assert (angle_of(*dipole) - position_angle + 180) % 360 - 180 == pytest.approx(0.0, abs=0.05)
    widths, axes = np.linalg.eigh(second)
    assert (angle_of(*axes[:, 1]) - position_angle + 90) % 180 - 90 == pytest.approx(0.0, abs=0.05)
    assert np.sqrt(widths[0] / widths[1]) == pytest.approx(abs(np.cos(np.deg2rad(inclination))), abs=2e-3)


def test_view_does_not_depend_on_the_axes_of_the_input():
    """Moments of an axisymmetric disc after any proper rotation of the input, half turns and none included."""
    expected = moments(disc_cube(60.0, 30.0))
    for rotation in (*(random_rotation(seed) for seed in range(3)), np.diag([1.0, -1.0, -1.0])):
        dipole, second = moments(disc_cube(60.0, 30.0, rotation))
        np.testing.assert_allclose(dipole, expected[0], rtol=0, atol=1e-3 * np.abs(expected[0]).max())
        np.testing.assert_allclose(second, expected[1], rtol=0, atol=1e-3 * expected[1].max())


def test_rotation_speed_is_projected_by_the_inclination():
    """Along the major axis v_los = speed sin(i) cos(angle): the dipole is <R> speed sin(i) / 2 in arcsec."""
    dipole, _ = moments(disc_cube(60.0, 30.0, random_rotation(4)))
    assert np.linalg.norm(dipole) == pytest.approx(0.9892393 * 1.75 * 200 * np.sin(np.pi / 3) / 2, rel=2e-3)


def body_axes(position, velocity, mass):
    stars = Stars(position, velocity, mass, np.zeros_like(mass), np.zeros_like(mass))
    return align("stars", Radius(2.0), StarSample.of(stars)).rotation


@pytest.mark.parametrize("seed", range(5))
def test_alignment_is_a_proper_rotation_to_the_body_axes(seed):
    """Of an ellipsoid with a star for a star in every octant, whose axes are those of any tensor."""
    generator = np.random.default_rng(seed)
    octants = np.stack(np.meshgrid([1, -1], [1, -1], [1, -1]), axis=-1).reshape(-1, 1, 3)
    body = (octants * generator.normal(size=(1, 100, 3)) * [3.0, 2.0, 0.5]).reshape(-1, 3)
    velocity = 50 * np.cross([0.1, 0.0, 1.0], body) + generator.normal(size=(800, 3)) * 10
    turn = random_rotation(seed)
    rotation = body_axes(body @ turn.T, velocity @ turn.T, np.ones(800))
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-14)
    assert np.linalg.det(rotation) == pytest.approx(1.0, abs=1e-14)
    found, moving = body @ turn.T @ rotation.T, velocity @ turn.T @ rotation.T
    second = np.einsum("pi,pj->ij", found, found)
    np.testing.assert_allclose(second[2, :2], 0.0, atol=1e-10 * second[0, 0])
    assert second[2, 2] == pytest.approx(np.linalg.eigvalsh(second)[0], rel=1e-12)
    assert np.cross(found, moving).sum(axis=0)[2] > 0


@pytest.mark.parametrize(("inclination", "position_angle"), [(0, 0), (60, 30), (90, 200), (135, 300), (180, 10)])
def test_sky_rotation_is_proper_and_puts_the_axes_where_it_says(inclination, position_angle):
    rotation = np.asarray(sky_rotation(jnp.asarray(float(inclination)), jnp.asarray(float(position_angle))))
    i, pa = np.deg2rad([inclination, position_angle])
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-15)
    assert np.linalg.det(rotation) == pytest.approx(1.0, abs=1e-14)
    np.testing.assert_allclose(rotation @ [1, 0, 0], [np.sin(pa), np.cos(pa), 0], atol=1e-15)
    assert (rotation @ [0, 0, 1])[2] == pytest.approx(np.cos(i), abs=1e-15)


def test_face_on_disc_shows_no_velocity_and_is_round():
    cube = disc_cube(0.0, 0.0, random_rotation(7))
    velocity = np.asarray(cube.mean_v_los)
    assert np.nanmax(np.abs(velocity)) < 1e-6
    _, second = moments(cube)
    np.testing.assert_allclose(second, second[0, 0] * np.eye(2), atol=2e-3 * second[0, 0])


@pytest.mark.parametrize(
    ("start", "expected"),
    [(np.eye(3), np.eye(3)), (np.diag([1.0, -1.0, -1.0]), None), (np.diag([-1.0, 1.0, -1.0]), None)],
)
def test_alignment_of_a_disc_face_on_or_upside_down(start, expected):
    """Nothing to do for the first; half a turn, not a mirror, for the others."""
    disc = turned(ring_disc(), start).stars
    position, velocity, mass = (np.asarray(x) for x in (disc.position, disc.velocity, disc.initial_mass))
    rotation = body_axes(position, velocity, mass)
    assert np.linalg.det(rotation) == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(rotation @ start @ [0, 0, 1], [0, 0, 1], atol=1e-12)
    if expected is not None:
        np.testing.assert_allclose(rotation, expected, atol=1e-12)


def test_particles_are_turned_by_rotation_times_vector():
    """Lengths stay, and columns of the rotation are where the axes go."""
    rotation, vectors = random_rotation(3), np.random.default_rng(0).normal(size=(20, 3))
    moved = np.asarray(rotate(jnp.asarray(vectors), jnp.asarray(rotation)))
    np.testing.assert_allclose(np.linalg.norm(moved, axis=1), np.linalg.norm(vectors, axis=1), rtol=1e-13)
    np.testing.assert_allclose(moved, sum(np.outer(vectors[:, k], rotation[:, k]) for k in range(3)), atol=1e-14)
