"""What a cube shows at a glance: against images and spectra of known moments and velocities, and the latents of it."""

import jax
import numpy as np
import pytest
from astropy.constants import c
from free_numbers import free_of

from rubix_like.extend import Footprint
from rubix_like.inference.search.guesses import (
    Pose,
    Surroundings,
    guesses,
    inclination_of,
    moments,
    places,
    scale_length_of,
    shift_of,
    shifts,
    sketch_of,
)
from rubix_like.inference.search.search import other_side, with_both_sides

SCALE = 0.5
WAVELENGTH = np.arange(4800.0, 5400.0, 3.0)
LINES = ((4861.0, 0.4), (4959.0, 0.2), (5007.0, 0.3), (5175.0, 0.5), (5270.0, 0.3))


def spectrum(velocity):
    """A sloping continuum with absorption lines of 2.5 A, receding; one row for each velocity."""
    rest = WAVELENGTH / (1 + np.asarray(velocity)[..., None] / c.to_value("km/s"))
    lines = sum(depth * np.exp(-0.5 * ((rest - centre) / 2.5) ** 2) for centre, depth in LINES)
    return (1 + rest / 5000) * (1 - lines)


def axes_of(angle):
    """(major, minor) as (East, North)."""
    a = np.deg2rad(angle)
    return np.array([np.sin(a), np.cos(a)]), np.array([-np.cos(a), np.sin(a)])


def disc(shape, angle, tilt, scale_length, centre=(0.0, 0.0), rotation=100.0, psf=0.0):
    """(flux, sigma) of a thin exponential disc in rotation 2 / pi arctan(R / 0.5), seen through a Gaussian.

    (East, North) of a spaxel are written out here: columns run to the West, rows to the North.
    """
    fine = 5
    row, column = np.indices((shape[0] * fine, shape[1] * fine))
    east = -(column - (shape[1] * fine - 1) / 2) * SCALE / fine - centre[0]
    north = (row - (shape[0] * fine - 1) / 2) * SCALE / fine - centre[1]
    major, minor = axes_of(angle)
    along = east * major[0] + north * major[1]
    across = (east * minor[0] + north * minor[1]) / np.cos(np.deg2rad(tilt))
    radius = np.hypot(along, across)
    light = np.exp(-radius / scale_length)
    if psf:
        wave = [2 * np.pi * np.fft.fftfreq(n, SCALE / fine) for n in light.shape]
        blur = np.exp(-0.5 * psf**2 * (wave[0][:, None] ** 2 + wave[1][None, :] ** 2))
        light = np.fft.ifft2(np.fft.fft2(light) * blur).real
    speed = rotation * np.sin(np.deg2rad(tilt)) * 2 / np.pi * np.arctan(radius / 0.5) * along / np.maximum(radius, 1e-9)

    def binned(image):
        return image.reshape(shape[0], fine, shape[1], fine).sum(axis=(1, 3))

    image = binned(light)
    velocity = binned(light * speed) / image
    return image[:, :, None] * spectrum(velocity), image


@pytest.mark.parametrize(("angle", "long", "short"), [(30.0, 1.5, 0.8), (-50.0, 2.0, 1.0), (10.0, 1.2, 1.1)])
def test_moments_are_those_of_a_gaussian(angle, long, short):
    """Also where the field ends at 1.7 of its standard deviations."""
    place = places(Footprint(14, 16, SCALE), 0.0)
    major, minor = axes_of(angle)
    offset = place - [0.4, -0.7]
    image = 7 * np.exp(-0.5 * ((offset @ major / long) ** 2 + (offset @ minor / short) ** 2))
    centre, covariance = moments(image, place, SCALE)
    expected = long**2 * np.outer(major, major) + short**2 * np.outer(minor, minor)
    np.testing.assert_allclose(centre, [0.4, -0.7], atol=0.03)
    np.testing.assert_allclose(covariance, expected, atol=0.04 * long**2)


def test_places_of_a_turned_field():
    """+y at 30 deg: (sin 30, cos 30) is up; columns run the other way than x."""
    place = places(Footprint(3, 3, 2.0), 30.0).reshape(3, 3, 2)
    np.testing.assert_allclose(place[2, 1], 2 * np.array([0.5, np.sqrt(0.75)]), atol=1e-12)
    np.testing.assert_allclose(place[1, 0], 2 * np.array([np.sqrt(0.75), -0.5]), atol=1e-12)
    np.testing.assert_allclose(place[1, 1], 0, atol=1e-12)


def test_shifts_are_velocities_and_their_errors_the_scatter():
    velocity = np.array([-310.0, -40.0, 0.0, 25.0, 480.0])
    template, weight = spectrum(0.0), np.full(len(WAVELENGTH), 1 / 0.02**2)
    found, error = shifts(spectrum(velocity), template, weight, WAVELENGTH)
    np.testing.assert_allclose(found, velocity, atol=2.0)
    noise = 0.02 * np.random.default_rng(1).standard_normal((400, len(WAVELENGTH)))
    scattered, error = shifts(spectrum(50.0) + noise, template, weight, WAVELENGTH)
    assert np.median(error) == pytest.approx(np.std(scattered), rel=0.2)
    assert np.mean(scattered) == pytest.approx(50, abs=2)


def test_bins_without_weight_and_too_few_bins_say_nothing():
    weight = np.where((WAVELENGTH > 5000) & (WAVELENGTH < 5015), 0.0, 1.0)
    wrong = spectrum(60.0) + np.where(weight == 0, 1e3, 0.0)
    np.testing.assert_allclose(shifts(wrong[None], spectrum(0.0), weight, WAVELENGTH)[0], 60, atol=3)
    few = np.where(WAVELENGTH < 4830, 1.0, 0.0)
    velocity, error = shifts(spectrum(60.0)[None], spectrum(0.0), few, WAVELENGTH)
    assert np.isnan(velocity).all()
    assert np.isinf(error).all()


@pytest.mark.parametrize(("angle", "tilt", "turn"), [(30.0, 60.0, 0.0), (-130.0, 45.0, 0.0), (100.0, 50.0, 40.0)])
def test_sketch_of_a_disc(angle, tilt, turn):
    """Centre, axis, receding side, size and inclination, through a PSF; `turn`: position angle of +y."""
    flux, image = disc((24, 24), angle - turn, tilt, 1.5, centre=(0.5, -0.3), psf=0.8)
    sigma = np.full(flux.shape, image.max() / 50)
    flux = flux + sigma * np.random.default_rng(3).standard_normal(flux.shape)
    sketch = sketch_of(flux, 1 / sigma, WAVELENGTH, Footprint(24, 24, SCALE), turn)
    a = np.deg2rad(turn)
    centre = [0.5 * np.cos(a) - 0.3 * np.sin(a), -0.5 * np.sin(a) - 0.3 * np.cos(a)]
    np.testing.assert_allclose(sketch.centre, centre, atol=0.1)
    assert abs((sketch.axis_angle - angle + 90) % 180 - 90) < 5
    assert abs((sketch.receding_angle - angle + 180) % 360 - 180) < 10
    around = Surroundings(arcsec_per_kpc=1.2, psf_sigma=0.8, systemic=0.0)
    assert scale_length_of(sketch, around) == pytest.approx(1.5 / 1.2, rel=0.15)
    assert inclination_of(sketch, around) == pytest.approx(tilt, abs=6)
    assert 0.3 < sketch.rotation / (100 * np.sin(np.deg2rad(tilt))) < 1
    assert shift_of(sketch, spectrum(-70.0), WAVELENGTH) == pytest.approx(70, abs=5)


def test_nothing_is_said_of_the_rotation_of_noise():
    flux, image = disc((12, 12), 30.0, 60.0, 1.5, rotation=0.0)
    sigma = np.full(flux.shape, image.max() / 3)
    said = []
    for seed in range(30):
        noisy = flux + sigma * np.random.default_rng(seed).standard_normal(flux.shape)
        said.append(np.isfinite(sketch_of(noisy, 1 / sigma, WAVELENGTH, Footprint(12, 12, SCALE)).receding_angle))
    assert np.sum(said) <= 3


FREE = free_of(
    ("observation.inclination", {"uniform": [20, 80]}, (), "deg"),
    ("observation.position_angle", {"uniform": [-60, 120]}, (), "deg"),
    ("observation.offset", {"normal": [0, 2]}, (2,), "arcsec"),
    ("observation.velocity_offset", {"normal": [0, 50]}, (), "km/s"),
    ("galaxy.disc_scale_length", {"log_uniform": [0.5, 6]}, (), "kpc"),
    ("galaxy.rotation_velocity", {"uniform": [50, 350]}, (), "km/s"),
    ("galaxy.stellar_mass", {"log_normal": [1e10, 0.3]}, (), "Msun"),
)


def guessed(angle=210.0, tilt=60.0, count=400, **settings):
    flux, image = disc((24, 24), angle, tilt, 1.5, centre=(0.5, -0.3), psf=0.8, **settings)
    sketch = sketch_of(flux, np.full(flux.shape, 50 / image.max()), WAVELENGTH, Footprint(24, 24, SCALE))
    latent = guesses(sketch, Surroundings(1.2, 0.8, 70.0), FREE, np.random.default_rng(1), count)
    return latent, values_of(FREE, latent)


def values_of(free, latent):
    """By their names, a row for each draw."""
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(free.values))(latent))


def test_guesses_lie_about_the_truth_well_inside_the_priors():
    latent, values = guessed()
    by_sketch = np.arange(len(latent)) % 4 != 3
    assert np.abs(latent[by_sketch]).max() <= 2.0 + 1e-12
    assert np.abs(latent[~by_sketch]).max() > 2.0, "every fourth is a draw from the prior"

    def column(name):
        return values[name][by_sketch]

    truth = {"observation.inclination": 60, "observation.velocity_offset": 70, "galaxy.disc_scale_length": 1.25}
    for name, true in truth.items():
        assert np.percentile(column(name), 2) < true < np.percentile(column(name), 98), name
    np.testing.assert_allclose(np.median(column("observation.offset"), axis=0), [0.5, -0.3], atol=0.1)
    assert (
        np.percentile(column("galaxy.rotation_velocity"), 5)
        < 100
        < np.percentile(column("galaxy.rotation_velocity"), 95)
    )


def test_both_ends_of_an_axis_are_tried_where_the_prior_has_them():
    """Of a disc that recedes at 210 deg a prior from -60 to 120 deg has only the other end, 30 deg."""
    _, values = guessed(angle=210.0)
    angles = values["observation.position_angle"]
    assert np.mean(np.abs(angles - 30) < 30) > 0.6
    wide = free_of(("observation.position_angle", {"uniform": [0, 360]}, (), "deg"))
    flux, image = disc((24, 24), 210.0, 60.0, 1.5)
    for ratio, least, most in [(50, 0.02, 0.3), (0.5, 0.3, 0.7)]:
        sketch = sketch_of(flux, np.full(flux.shape, ratio / image.max()), WAVELENGTH, Footprint(24, 24, SCALE))
        latent = guesses(sketch, Surroundings(1.2, 0.0, 0.0), wide, np.random.default_rng(1), 400)
        found = values_of(wide, latent)["observation.position_angle"]
        assert least < np.mean(np.abs(found - 30) < 30) < most
        assert np.mean(np.abs(found - 210) < 30) > least
        assert sketch.certainty > 50 if ratio == 50 else sketch.certainty < 10


def test_what_a_cube_does_not_show_is_drawn_from_its_prior():
    latent, _ = guessed()
    mass = latent[np.arange(len(latent)) % 4 != 3, -1]
    assert abs(mass.mean()) < 0.2
    assert 0.7 < mass.std() < 1.0
    dark, sigma = np.zeros((6, 6, len(WAVELENGTH))), np.ones((6, 6, len(WAVELENGTH)))
    unknown = sketch_of(dark, sigma, WAVELENGTH, Footprint(6, 6, SCALE))
    assert np.isnan(unknown.receding_angle)
    assert np.isfinite([*unknown.centre, unknown.major, unknown.minor]).all()
    alone = sketch_of(spectrum(0.0)[None, None], sigma[:1, :1], WAVELENGTH, Footprint(1, 1, SCALE))
    assert np.isnan(alone.receding_angle), "a spaxel has no sides; without a warning, which is an error here"
    drawn = guesses(unknown, Surroundings(1.2, 0.8, np.nan), FREE, np.random.default_rng(1), 50)
    assert np.isfinite(drawn).all()


COMPONENTS = {
    "galaxy.disc.light.scale_length": {"log_uniform": [0.3, 6]},
    "galaxy.bulge.light.effective_radius": {"log_uniform": [0.3, 6]},
    "galaxy.ring.light.radius": {"log_uniform": [0.3, 6]},
    "galaxy.disc.rotation.velocity": {"uniform": [-300, 300]},
    "galaxy.bulge.rotation.velocity": {"uniform": [-300, -10]},
}


def component_guesses(pose, names=tuple(COMPONENTS), angle=None, count=400):
    """Values guessed of a disc that recedes at 210 deg, East and North of the centre by (0.5, -0.3) arcsec, and which
    of them go by the sketch."""
    parameters = [(name, COMPONENTS[name]) for name in names]
    if angle is not None:
        parameters.append((angle, {"uniform": [0, 360]}, (), "deg"))
        parameters.append(("galaxy.disc.center", {"normal": [0, 2]}, (2,), "arcsec"))
    free = free_of(*parameters)
    flux, image = disc((24, 24), 210.0, 60.0, 1.5, centre=(0.5, -0.3), psf=0.8)
    sketch = sketch_of(flux, np.full(flux.shape, 50 / image.max()), WAVELENGTH, Footprint(24, 24, SCALE))
    latent = guesses(sketch, Surroundings(1.2, 0.8, 0.0, pose), free, np.random.default_rng(1), count)
    values = values_of(free, latent)
    return {name: rows[np.arange(count) % 4 != 3] for name, rows in values.items()}


def test_components_are_guessed_by_what_the_cube_shows():
    """The lengths are in the ratios of the exponential disc's: R_e 1.678 R_d, a ring's radius 1.1615 R_d; the speed of
    a disc at a given angle has the sign for which the side seen recedes, in three of four guesses."""
    for angle, sign in ((200.0, 1), (20.0, -1)):
        values = component_guesses(Pose(60.0, angle))
        assert np.median(values["galaxy.disc.light.scale_length"]) == pytest.approx(1.25, rel=0.15)
        assert np.median(values["galaxy.bulge.light.effective_radius"]) == pytest.approx(1.678 * 1.25, rel=0.15)
        assert np.median(values["galaxy.ring.light.radius"]) == pytest.approx(1.1615 * 1.25, rel=0.15)
        speed = values["galaxy.disc.rotation.velocity"] * sign
        assert 0.65 < np.mean(speed > 0) < 0.85
        assert np.percentile(speed[speed > 0], 5) < 100 < np.percentile(speed[speed > 0], 95)
        assert (values["galaxy.bulge.rotation.velocity"] < 0).all()
    own = {"disc": 180.0}
    turned = component_guesses(Pose(60.0, 20.0, own_angles=own))["galaxy.disc.rotation.velocity"]
    assert np.mean(turned > 0) > 0.65


def test_a_components_own_angles_and_centre_are_what_the_observations_leave():
    """An observation at 30 deg whose centre is held 0.2 arcsec to the East."""
    names = ("galaxy.disc.light.scale_length", "galaxy.disc.rotation.velocity")
    values = component_guesses(Pose(60.0, 30.0, (0.2, 0.0)), names, "galaxy.disc.position_angle")
    assert np.mean(np.abs(values["galaxy.disc.position_angle"] - 180) < 30) > 0.65
    np.testing.assert_allclose(np.median(values["galaxy.disc.center"], axis=0), [0.3, -0.3], atol=0.1)


SIDES = {
    "angle": (("observation.position_angle", {"uniform": [0, 360]}, (), "deg"), 230.0, 50.0),
    "speed": (("galaxy.disc.rotation.velocity", {"normal": [0, 200]}, (), "km/s"), 120.0, -120.0),
    "narrow angle": (("observation.position_angle", {"uniform": [180, 300]}, (), "deg"), 230.0, None),
    "one sign": (("galaxy.disc.rotation.velocity", {"uniform": [10, 300]}, (), "km/s"), 120.0, None),
}


@pytest.mark.parametrize("kind", SIDES)
def test_the_other_side_of_a_galaxy(kind):
    """By the angle, or the sign of the speed; nowhere if the prior has none."""
    parameter, here, there = SIDES[kind]
    free = free_of(parameter)
    latent = np.ravel(free.latent({parameter[0]: here}))
    found = other_side(free, latent)
    if there is None:
        assert found is None
        return
    assert float(free.values(found)[parameter[0]]) == pytest.approx(there)
    rows = np.stack([latent, latent + 0.01, found, latent])
    chosen = with_both_sides(free, rows[[0, 1]], rows, 2)
    np.testing.assert_array_equal(chosen, rows[[0, 2]])
    np.testing.assert_array_equal(with_both_sides(free, rows[[0, 2]], rows, 2), rows[[0, 2]])
