"""The axes of galaxies that are known, with far stars, wild velocities and spins at an angle, against numpy."""

import dataclasses
from functools import cache

import numpy as np
import pytest
from observing import ring_disc
from scipy.spatial.transform import Rotation

from rubix_like import Galaxy, Pipeline, Stars, load_config
from rubix_like.galaxy.alignment import StarSample, align
from rubix_like.physics.centering import Radius
from rubix_like.runs.run_summary import alignment_lines

TWO, Z = Radius(2.0), np.array([0.0, 0.0, 1.0])


def disc(n=4000, seed=0, tilt=0.0, flattening=0.3):
    """Position, velocity, mass of an oblate disc about z that turns about an axis `tilt` deg from z, towards x."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=(n, 3))
    position = direction / np.linalg.norm(direction, axis=1)[:, None] * rng.exponential(2.0, (n, 1))
    position = position * [1.0, 1.0, flattening]
    pole = np.array([np.sin(np.deg2rad(tilt)), 0.0, np.cos(np.deg2rad(tilt))])
    around = np.cross(pole, position)
    velocity = 150.0 * around / np.linalg.norm(around, axis=1)[:, None] + rng.normal(size=(n, 3)) * 30
    return position, velocity, rng.uniform(1e5, 2e5, n)


def with_far_stars(stars):
    """Ten more, out to hundreds of half-mass radii, in one plane through the pole, that fly by: as of a real snapshot,
    in which ten of 125,000 stars hold 72 % of sum m r^2."""
    position, velocity, mass = stars
    rng = np.random.default_rng(9)
    far = rng.normal(size=(10, 3)) * [3.0, 300.0, 800.0]
    fast = rng.normal(size=(10, 3)) * 400.0
    return np.concatenate([position, far]), np.concatenate([velocity, fast]), np.append(mass, np.full(10, mass.mean()))


def aligned(stars, by="stars", radius=TWO):
    position, velocity, mass = stars
    return align(by, radius, StarSample.of(Stars(position, velocity, mass, np.zeros_like(mass), np.zeros_like(mass))))


def degrees_between(one, two):
    """Of two directions, with their signs."""
    return np.rad2deg(np.arctan2(np.linalg.norm(np.cross(one, two)), one @ two))


def spin_within(stars, radius):
    position, velocity, mass = (values[np.linalg.norm(stars[0], axis=1) <= radius] for values in stars)
    velocity = velocity - np.average(velocity, axis=0, weights=mass)
    total = np.sum([m * np.cross(x, v) for x, v, m in zip(position, velocity, mass, strict=True)], axis=0)
    return total / np.linalg.norm(total)


def half_mass_radius(stars):
    radius = np.linalg.norm(stars[0], axis=1)
    order = np.argsort(radius)
    return radius[order][np.searchsorted(np.cumsum(stars[2][order]), stars[2].sum() / 2)]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("seed", range(3))
def test_the_pole_of_a_disc_is_found_with_its_sign_however_it_is_turned(seed, sign):
    """Also beside ten far stars, by which the short axis of sum m r r^T is more than 60 deg off."""
    position, velocity, mass = with_far_stars(disc(seed=seed))
    second = position.T @ (mass[:, None] * position)
    assert abs(np.linalg.eigh(second)[1][:, 0] @ Z) < 0.5
    turn = Rotation.random(rng=seed).as_matrix()
    found = aligned((position @ turn.T, sign * velocity @ turn.T, mass))
    assert degrees_between(found.rotation @ turn @ Z, sign * Z) < 1.0
    np.testing.assert_allclose(found.rotation @ found.rotation.T, np.eye(3), atol=1e-14)
    assert np.linalg.det(found.rotation) == pytest.approx(1.0, abs=1e-13)
    assert found.ratios == (pytest.approx(1.0, abs=0.06), pytest.approx(0.3, abs=0.02))
    assert found.angle < 2.0
    assert found.notes == ()


def test_a_turned_copy_and_another_order_have_the_same_axes():
    stars = disc()
    order, turn = np.random.default_rng(1).permutation(4000), Rotation.random(rng=4).as_matrix()
    first = aligned(stars)
    shuffled = aligned(tuple(values[order] for values in stars))
    np.testing.assert_array_equal(shuffled.rotation, first.rotation)
    other = aligned((stars[0] @ turn.T, stars[1] @ turn.T, stars[2]))
    np.testing.assert_allclose(other.rotation @ turn @ first.rotation.T @ Z, Z, atol=1e-8)
    assert other.meta == pytest.approx(first.meta, rel=1e-8)


def test_a_disc_face_on_or_upside_down():
    """Nothing to do for the first; half a turn, not a mirror, for the others."""
    stars = ring_disc().stars
    position, velocity, mass = (np.asarray(x) for x in (stars.position, stars.velocity, stars.initial_mass))
    for start in (np.eye(3), np.diag([1.0, -1.0, -1.0]), np.diag([-1.0, 1.0, -1.0])):
        rotation = aligned((position @ start, velocity @ start, mass)).rotation
        assert np.linalg.det(rotation) == pytest.approx(1.0, abs=1e-12)
        np.testing.assert_allclose(rotation @ start @ Z, Z, atol=1e-12)
        if start[2, 2] == 1:
            np.testing.assert_allclose(rotation, start, atol=1e-12)


@pytest.mark.parametrize("tilt", [10.0, 50.0, 80.0, 120.0])
def test_a_spin_at_an_angle(tilt):
    """`stars` takes the short axis on the side of the spin, `angular_momentum` the spin; where they are more than 20
    deg apart it is noted, in each of the two."""
    stars = disc(tilt=tilt)
    radius = 2 * half_mass_radius(stars)
    spin = spin_within(stars, radius)
    apart = min(degrees_between(spin, Z), 180 - degrees_between(spin, Z))
    by_stars, by_spin = aligned(stars), aligned(stars, "angular_momentum")
    assert degrees_between(by_stars.rotation[2], np.sign(spin @ Z) * Z) < 1.5
    assert degrees_between(by_spin.rotation[2], spin) < 1e-6
    for found, words in ((by_stars, "those of the shape only"), (by_spin, "those of the rotation only")):
        assert found.radius == pytest.approx(radius, rel=1e-12)
        assert found.angle == pytest.approx(apart, abs=4.0)
        assert found.ratios[1] == pytest.approx(0.3, abs=0.02)
        assert [words in note for note in found.notes] == ([True] if apart > 20 else [])
    assert apart > 20 or tilt == 10.0


@pytest.mark.parametrize("by", ["stars", "angular_momentum"])
def test_a_wild_velocity_turns_nothing(by):
    position, velocity, mass = disc(tilt=30.0)
    before = aligned((position, velocity, mass), by)
    velocity[np.argmin(np.abs(np.linalg.norm(position, axis=1) - 2.0))] = [0.0, 1e6, 0.0]
    after = aligned((position, velocity, mass), by)
    assert degrees_between(after.rotation[2], before.rotation[2]) < 0.1
    assert after.angle == pytest.approx(before.angle, abs=0.1)


def test_the_radius_says_which_stars():
    """A small disc about z within a large, heavier one about x; and the galaxy's motion as a whole does not matter."""
    small, large = disc(seed=1), disc(seed=2)
    onto_x = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])
    large = (300 * large[0] @ onto_x.T, large[1] @ onto_x.T, 3 * large[2])
    stars = tuple(np.concatenate(pair) for pair in zip(small, large, strict=True))
    for by in ("stars", "angular_momentum"):
        for velocity in (stars[1], stars[1] + [500.0, -300.0, 800.0]):
            moving = (stars[0], velocity, stars[2])
            near, far = aligned(moving, by, Radius(4.0, in_kpc=True)), aligned(moving, by, TWO)
            assert degrees_between(near.rotation[2], Z) < 3.0
            assert degrees_between(far.rotation[2], [1.0, 0.0, 0.0]) < 3.0
        assert near.radius == 4.0
        assert far.radius == pytest.approx(2 * half_mass_radius(stars), rel=1e-12)


def round_cloud():
    """The same in every direction of the axes, to the last digit; it turns about (1, 1, 1)."""
    position, _, _ = disc(n=60, flattening=1.0)
    orders = [(0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 2, 1), (2, 1, 0), (1, 0, 2)]
    signs = np.stack(np.meshgrid([1, -1], [1, -1], [1, -1]), axis=-1).reshape(-1, 3)
    position = np.concatenate([position[:, order] * sign for order in orders for sign in signs])
    return position, np.cross(np.full(3, 40.0), position), np.ones(len(position))


def test_a_round_galaxy_is_aligned_by_its_spin_and_says_so():
    position, velocity, mass = round_cloud()
    found = aligned((position, velocity, mass))
    assert degrees_between(found.rotation[2], np.ones(3)) < 1e-5
    assert "too round, or too few, to have a short axis (b/a 1.00, c/a 1.00" in found.notes[0]
    with pytest.raises(ValueError, match="expected a galaxy with a short axis or an angular momentum, got "):
        aligned((position, 0 * velocity, mass))
    drawn = disc(flattening=1.0, tilt=60.0)
    found = aligned(drawn)
    assert degrees_between(found.rotation[2], spin_within(drawn, found.radius)) < 2.0
    at_rest = aligned((drawn[0], 0 * drawn[1], drawn[2]))
    assert at_rest.angle is None
    assert "is known to about" in at_rest.notes[0]


@pytest.mark.parametrize(
    "position",
    [np.ones((1, 3)), np.zeros((5, 3)), np.eye(3)[:2], np.outer(np.arange(6.0), [1.0, 2.0, 3.0])],
    ids=["one star", "all at the centre", "two stars", "on one line"],
)
def test_no_short_axis_is_refused(position):
    stars = (position, np.zeros_like(position), np.ones(len(position)))
    with pytest.raises(ValueError, match=r"observation.align: expected a galaxy with a short axis.*use 'align: none'"):
        aligned(stars)
    with pytest.raises(ValueError, match=r"expected stars that rotate for 'angular_momentum', got .* 'align: none'"):
        aligned(stars, "angular_momentum")


def test_two_stars_that_circle_each_other_have_a_spin():
    stars = (np.array([[1.0, 0, 0], [-1.0, 0, 0]]), np.array([[0, 0, 5.0], [0, 0, -5.0]]), np.ones(2))
    found = aligned(stars, "angular_momentum")
    np.testing.assert_allclose(found.rotation[2], [0.0, -1.0, 0.0], atol=1e-12)
    assert (found.ratios, found.angle) == (None, None)


def test_single_precision_is_added_up_in_double():
    stars = tuple(values.astype(np.float32) for values in disc())
    expected = aligned(tuple(values.astype(np.float64) for values in stars))
    np.testing.assert_array_equal(aligned(stars).rotation, expected.rotation)
    assert expected.rotation.dtype == np.float64


@cache
def galaxy(tilt):
    position, velocity, mass = disc(n=500, tilt=tilt)
    return Galaxy(stars=Stars(position, velocity, mass, np.full(500, 9.5), np.full(500, 0.02), mass=np.full(500, 1e5)))


@pytest.mark.parametrize(("by", "tilt"), [("stars", 70.0), ("angular_momentum", 70.0), ("none", 70.0)])
def test_header_summary_and_notes(by, tilt):
    """Of a galaxy given as arrays; the masses are those of now."""
    config = load_config(
        {
            "observation": {"redshift": 0.05, "align": by, "align_radius": 1.5, "inclination": 30},
            "instrument": {"name": "muse", "fov": 1.0, "wavelength": {"start": 5000, "stop": 5010}, "psf": None},
            "engine": {"method": "direct"},
        }
    )
    pipeline = Pipeline.from_config(config, galaxy(tilt))
    meta, stars = pipeline.frame.meta, galaxy(tilt).stars
    noted = [note for note in pipeline.notes if "deg from their angular momentum" in note]
    if by == "none":
        assert not {"align_radius", "align_angle"} & set(meta)
        assert alignment_lines(meta) == noted == []
        return
    radius = 1.5 * half_mass_radius((stars.position, stars.velocity, stars.mass))
    assert meta["align_radius"] == pytest.approx(radius, rel=1e-12)
    assert meta["axis_ratio_c_a"] == pytest.approx(0.3, abs=0.06)
    spin = spin_within((stars.position, stars.velocity, stars.mass), radius)
    assert meta["align_angle"] == pytest.approx(degrees_between(spin, Z), abs=6.0)
    name = "short axis" if by == "stars" else "angular momentum"
    (line,) = alignment_lines(meta)
    assert line.startswith(f"Alignment: by the {name} of the stars within {radius:.3g} kpc: b/a ")
    assert line.endswith(f"short axis {meta['align_angle']:.1f} deg from their angular momentum")
    assert len(noted) == 1
    assert list(noted) == [value for key, value in meta.items() if key.startswith("note_") and value in noted]
    assert meta["align"] == by


def test_a_star_without_mass_now_has_that_of_its_birth():
    stars = galaxy(5.0).stars
    heavy = dataclasses.replace(stars, mass=None)
    assert align("stars", TWO, StarSample.of(heavy)).radius == pytest.approx(
        2 * half_mass_radius((stars.position, stars.velocity, stars.initial_mass)), rel=1e-12
    )
