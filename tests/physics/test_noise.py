"""Noise: what is realised has the variance that is stated, follows its key, and needs no light in a spaxel."""

import functools

import equinox as eqx
import independent
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from observing import central_difference, configuration, galaxy_of, observe

from rubix_like import ConfigError, Pipeline, make_mesh

INSTRUMENT = {"fov": 10.0, "wavelength": {"start": 5000.0, "stop": 5250.0, "step": 1.25}}
GALAXY = galaxy_of([(0.0, 0.0, 0.0), (0.4, 0.3, 0.0)])


KINDS = {"target": {"signal_to_noise": 20.0}, "exposure": {"exposure": {"time": 900, "count": 2, "sky": "dark"}}}


@pytest.fixture(scope="module")
def clean():
    return observe(configuration(instrument=INSTRUMENT), GALAXY)


@functools.cache
def keeping_truth(kind, n_devices=1, fov=10.0):
    config = noisy_configuration(**KINDS[kind], instrument={"fov": fov}, keep_truth=True)
    return Pipeline.from_config(config, GALAXY, mesh=make_mesh(n_devices))


def noisy_configuration(seed=1, instrument=None, **noise):
    noise = noise or KINDS["target"]
    return configuration(instrument={**INSTRUMENT, **(instrument or {})}, noise={**noise, "seed": seed})


@pytest.mark.parametrize("kind", KINDS)
def test_variance_is_that_of_the_realised_noise(kind, clean):
    """chi^2 per voxel 1.00 over 5e5 voxels (its own scatter is 0.002), mean 0, no correlation of neighbours; the truth
    is the noiseless cube, whose brightest spaxel has the target. All but two of 2500 spaxels are dark, and noisy."""
    cube, noiseless = keeping_truth(kind)(GALAXY), np.asarray(clean.flux)
    np.testing.assert_allclose(np.asarray(cube.truth), noiseless, rtol=1e-12)
    flux, variance = np.asarray(cube.flux), np.asarray(cube.variance)
    normalised = (flux - noiseless) / np.sqrt(variance)
    assert normalised.size > 5e5
    assert np.mean(normalised**2) == pytest.approx(1.0, abs=0.01)
    assert np.mean(normalised) == pytest.approx(0.0, abs=0.005)
    for axis in range(3):
        neighbours = np.take(normalised, range(1, normalised.shape[axis]), axis)
        before = np.take(normalised, range(normalised.shape[axis] - 1), axis)
        assert np.mean(neighbours * before) == pytest.approx(0.0, abs=0.006)
    assert np.mean(normalised**4) == pytest.approx(3.0, abs=0.05)
    dark = noiseless.sum(axis=2) == 0
    assert dark.sum() == 2498
    assert np.all(np.abs(flux[dark].std(axis=1) / np.sqrt(variance[dark].mean()) - 1) < 0.3)
    assert np.all(np.asarray(cube.ivar) > 0)
    if kind == "target":
        brightest = noiseless.reshape(-1, noiseless.shape[2])[noiseless.sum(axis=2).argmax()]
        np.testing.assert_allclose(np.median(brightest) / np.sqrt(variance), 20.0, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_same_key_same_noise_other_key_other_noise(kind):
    """The seed makes the key; without `keep_truth` there is no truth."""
    pipeline = keeping_truth(kind)
    first, again = np.asarray(pipeline(GALAXY).flux), np.asarray(pipeline(GALAXY).flux)
    np.testing.assert_array_equal(first, again)
    by_key = [np.asarray(pipeline(GALAXY, key=jax.random.key(seed)).flux) for seed in (1, 2)]
    np.testing.assert_array_equal(by_key[0], first)
    assert np.all(by_key[1] != first)
    if kind == "target":
        seeded = observe(noisy_configuration(seed=2), GALAXY)
        np.testing.assert_array_equal(np.asarray(seeded.flux), by_key[1])
        assert seeded.truth is None


@pytest.mark.parametrize(
    ("n_devices", "kind"),
    [(8, "exposure"), *(pytest.param(*case, marks=pytest.mark.long) for case in ((8, "target"), (2, "exposure")))],
)
def test_noise_does_not_depend_on_the_devices(n_devices, kind):
    """Bit by bit where the flux is (dark spaxels); where its sum is rounded otherwise, to rounding."""
    one, many = (keeping_truth(kind, n, 2.0)(GALAXY) for n in (1, n_devices))
    dark = np.asarray(one.truth).sum(axis=2) == 0
    assert dark.sum() == 98
    peak = np.abs(np.asarray(one.flux)).max()
    np.testing.assert_allclose(np.asarray(many.flux), np.asarray(one.flux), rtol=0, atol=1e-12 * peak)
    if kind == "exposure":  # its variance in dark spaxels needs no sum over stars
        np.testing.assert_array_equal(np.asarray(many.flux)[dark], np.asarray(one.flux)[dark])
        np.testing.assert_array_equal(np.asarray(many.variance)[dark], np.asarray(one.variance)[dark])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_realisations_by_key(kind):
    """500 of them: mean and variance of every voxel are truth and STAT within Monte Carlo error."""
    small = {"fov": 1.0, "wavelength": {"start": 5000.0, "stop": 5020.0, "step": 1.25}}
    config = noisy_configuration(instrument=small, **KINDS[kind], keep_truth=True)
    pipeline = Pipeline.from_config(config, GALAXY, mesh=make_mesh(1))
    n = 500
    cubes = [pipeline(GALAXY, key=jax.random.key(number)) for number in range(n)]
    flux = np.stack([np.asarray(cube.flux) for cube in cubes])
    truth, variance = np.asarray(cubes[0].truth), np.asarray(cubes[0].variance)
    np.testing.assert_array_equal(truth, np.asarray(cubes[-1].truth))
    np.testing.assert_array_equal(variance, np.asarray(cubes[-1].variance))
    deviation = (flux.mean(axis=0) - truth) / np.sqrt(variance / n)
    assert np.abs(deviation).max() < 5
    assert np.mean(deviation**2) == pytest.approx(1.0, abs=5 * np.sqrt(2 / truth.size))
    realised = flux.var(axis=0, ddof=1) / variance
    assert np.abs(realised - 1).max() < 6 * np.sqrt(2 / n)
    assert realised.mean() == pytest.approx(1.0, abs=5 * np.sqrt(2 / n / truth.size))


FAINT = {"collecting_area": 1e-4, "throughput": 0.3, "read_noise": 3.0, "dark_current": 0.0}
"""A detector that no photon reaches in a second: all of its noise is that of the read-out, which is normal."""

NORMAL = {
    "ring": ({"signal_to_noise": 20.0, "wavelength": 5020.0, "width": 15.0, "radius": 0.4}, {}, None),
    "read-out": ({"exposure": {"time": 1.0, "sky": "none"}}, {"detector": FAINT}, None),
    "brightest, systematics": (
        {"signal_to_noise": 20.0},
        {"lsf": {"fwhm": 30.0}},
        {"flat_field": {"rms": 0.1, "correlation": 20.0}, "cosmic_rays": {"rate": 0.1, "strength": 10}},
    ),
}

NUMBERS = {
    "signal_to_noise": (lambda both: both[1].noise.signal_to_noise, 1e-3),
    "time": (lambda both: both[1].noise.exposure.time, 1e-4),
    "psf.fwhm": (lambda both: both[1].instrument.psf.fwhm, 1e-5),
    "inclination": (lambda both: both[1].observation.inclination, 1e-3),
    "initial_mass": (lambda both: both[0].stars.initial_mass, 1e5),
}


@pytest.mark.parametrize("kind", NORMAL)
def test_gradients_with_normal_noise_are_finite_differences_with_the_same_key(kind):
    """Of sums of squares of flux and of variance, with respect to the noise, the PSF, the inclination and a mass."""
    noise, instrument, systematics = NORMAL[kind]
    generator = np.random.default_rng(11)
    galaxy = galaxy_of(generator.normal(size=(5, 3)) * 0.3, initial_mass=generator.uniform(0.5, 2.0, 5) * 1e8)
    config = configuration(
        observation={"inclination": 50.0},
        instrument={
            "fov": 1.6,
            "wavelength": {"start": 5000.0, "stop": 5040.0, "step": 5.0},
            "psf": {"fwhm": 0.55},
            **instrument,
        },
        engine={"deposit": "tsc"},
        noise={**noise, "seed": 1},
        **({} if systematics is None else {"systematics": systematics}),
    )
    pipeline = Pipeline.from_config(config, galaxy, mesh=make_mesh(1))

    @jax.jit
    @functools.partial(jax.value_and_grad, has_aux=True)
    def weighted(both, weight):
        cube = pipeline(*both, key=jax.random.key(3))
        sums = jnp.stack([jnp.sum(part**2) for part in (cube.flux, cube.variance)])
        return sums @ weight, sums

    def sums(both):
        return np.asarray(weighted(both, jnp.ones(2))[0][1])

    both = galaxy, pipeline.parameters
    found, size = [weighted(both, weight)[1] for weight in jnp.eye(2)], sums(both)
    for name, (where, step) in NUMBERS.items():
        if (name == "signal_to_noise" and kind == "read-out") or (name == "time" and kind != "read-out"):
            continue
        slope = np.array([np.ravel(where(gradient))[0] for gradient in found])
        expected = central_difference(sums, both, where, step, (0,) * where(both).ndim)
        np.testing.assert_allclose(slope, expected, rtol=2e-5, atol=1e-9 * size.max(), err_msg=name)
        assert name not in ("signal_to_noise", "time") or np.all(slope < 0)


def test_derivatives_of_photon_noise_hold_it_in_units_of_its_deviation():
    """By numpy: of the flux F in the light of all stars 1 + (N - n) / 2n x N_source / n, with N and n from the cube."""
    small = {**INSTRUMENT, "fov": 1.0, "wavelength": {"start": 5000.0, "stop": 5020.0, "step": 1.25}}
    detector = {"collecting_area": 48.5, "throughput": 0.3, "read_noise": 0.0, "dark_current": 0.0}
    noise = {"exposure": {"time": 900, "sky": "none"}, "keep_truth": True}
    config = configuration(instrument={**small, "detector": detector}, noise=noise)
    pipeline = Pipeline.from_config(config, GALAXY, mesh=make_mesh(1))

    def observed(factor):
        cube = pipeline(eqx.tree_at(lambda g: g.stars.initial_mass, GALAXY, GALAXY.stars.initial_mass * factor))
        return cube.flux, cube.truth

    (drawn, truth), (found, _) = jax.tree.map(np.asarray, jax.jvp(observed, (1.0,), (1.0,)))
    lit = truth > 1e-3 * truth.max()  # without sky and read-out noise all electrons are the source's
    np.testing.assert_allclose(found[lit], (truth + 0.5 * (drawn - truth))[lit], rtol=1e-9)
    assert np.isfinite(found).all()


SQUARE = {**INSTRUMENT, "fov": 2.0}
PLACES = (np.arange(10) - 4.5) * 0.2
KPC = 1 / independent.arcsec_per_kpc(0.05, independent.luminosity_distance(0.05))


@functools.cache
def cube_of_stars(field_angle=0.0, offset=(0.3, -0.2), **target):
    """The cube of a star in the middle of every spaxel of 2 x 2 arcsec, heavier to the East, about the given centre."""
    x, y = (axis.ravel() for axis in np.meshgrid(PLACES, PLACES))
    position = np.stack([(x - offset[0]) * KPC, (y - offset[1]) * KPC, np.zeros(100)], axis=1)
    observation = {"offset": offset, "field_angle": field_angle}
    config = configuration(instrument=SQUARE, observation=observation, noise={**target, "keep_truth": True})
    return observe(config, galaxy_of(position, initial_mass=1e8 * (3 + x)))


@pytest.mark.parametrize("radius", [0.0, 0.5, 0.9])
def test_a_target_at_a_wavelength_and_a_radius(radius):
    """sigma = mean flux of the ring's spaxels within the window / target, computed from the noiseless cube."""
    cube = cube_of_stars(signal_to_noise=30.0, wavelength=5100.0, width=50.0, radius=radius)
    distance = np.hypot(PLACES[:, None] + 0.2, PLACES[None, ::-1] - 0.3)  # East is at small columns
    ring = np.abs(distance - radius) <= 0.2 * np.sqrt(0.5)
    assert ring.any()
    window = np.abs(np.asarray(cube.wavelength) - 5100) <= 25
    reference = np.asarray(cube.truth)[ring][:, window].mean()
    np.testing.assert_allclose(reference / np.sqrt(np.asarray(cube.variance)), 30.0, rtol=1e-10)
    words = (
        f"mean flux within 25 of 5100 Angstrom per voxel on the ring {radius:g} arcsec from the centre of the galaxy"
    )
    assert cube.meta["signal_to_noise_definition"].startswith(words)


def test_the_ring_turns_with_the_field():
    """The same galaxy, offset and all, in a field turned by 90 deg: the same spaxels in another order, one sigma."""
    target = {"signal_to_noise": 30.0, "wavelength": 5100.0, "width": 50.0, "radius": 0.5}
    sigma2 = [np.asarray(cube.variance)[0, 0, 0] for cube in (cube_of_stars(**target), cube_of_stars(90.0, **target))]
    assert sigma2[0] == pytest.approx(sigma2[1], rel=1e-6)


def test_a_target_at_a_wavelength_without_a_radius_and_the_other_way_round():
    cube = cube_of_stars(offset=(0.0, 0.0), signal_to_noise=10.0, wavelength="5200 Angstrom")
    truth = np.asarray(cube.truth)
    brightest = truth.reshape(100, -1)[truth.sum(axis=2).argmax()]
    window = np.abs(np.asarray(cube.wavelength) - 5200) <= 50
    np.testing.assert_allclose(np.sqrt(np.asarray(cube.variance)), brightest[window].mean() / 10, rtol=1e-10)
    cube = cube_of_stars(offset=(0.0, 0.0), signal_to_noise=10.0, radius=0.5)
    ring = np.abs(np.hypot(PLACES[:, None], PLACES[None, :]) - 0.5) <= 0.2 * np.sqrt(0.5)
    reference = np.median(np.asarray(cube.truth)[ring].mean(axis=0))
    np.testing.assert_allclose(np.sqrt(np.asarray(cube.variance)), reference / 10, rtol=1e-10)


@pytest.mark.parametrize(
    ("noise", "aperture", "words"),
    [
        ({"wavelength": 6000.0}, None, r"noise\.wavelength: expected a window .*5000-5250 Angstrom\), got 6000 \+- 50"),
        ({"wavelength": 5000.4, "width": 0.1}, None, r"noise\.wavelength: expected a window"),
        ({"radius": 20.0}, None, r"noise\.radius: expected a circle .*10 x 10 arcsec, got 20 arcsec"),
        ({"radius": 4.5}, {"shape": "circle", "size": "4 arcsec"}, "that runs through the aperture"),
    ],
)
def test_a_target_nowhere_in_the_cube_is_refused_at_planning(noise, aperture, words):
    config = noisy_configuration(signal_to_noise=5.0, instrument={"aperture": aperture}, **noise)
    with pytest.raises(ConfigError, match=words):
        Pipeline.from_config(config, GALAXY, mesh=make_mesh(1))


def test_without_noise_there_is_no_variance(clean):
    assert (clean.truth, clean.variance, clean.ivar) == (None, None, None)
