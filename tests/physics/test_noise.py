"""Noise: what is realised has the variance that is stated, follows its key, and needs no light in a spaxel."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from observing import configuration, galaxy_of, observe

from rubix_like import ConfigError, Pipeline, make_mesh

INSTRUMENT = {"fov": 10.0, "wavelength": {"start": 5000.0, "stop": 5250.0, "step": 1.25}}
GALAXY = galaxy_of([(0.0, 0.0, 0.0), (0.4, 0.3, 0.0)])


@pytest.fixture(scope="module")
def clean():
    return observe(configuration(instrument=INSTRUMENT), GALAXY)


KINDS = {"target": {"signal_to_noise": 20.0}, "exposure": {"exposure": {"time": 900, "count": 2, "sky": "dark"}}}


@pytest.fixture(scope="module")
def pipeline():
    return Pipeline.from_config(noisy_configuration(), GALAXY, mesh=make_mesh(1))


@pytest.fixture(scope="module", params=list(KINDS))
def either(request):
    """A pipeline with a target, then one with an exposure; both keep the truth."""
    config = noisy_configuration(**KINDS[request.param], keep_truth=True)
    return Pipeline.from_config(config, GALAXY, mesh=make_mesh(1))


def noisy_configuration(seed=1, instrument=None, **noise):
    noise = noise or KINDS["target"]
    return configuration(instrument={**INSTRUMENT, **(instrument or {})}, noise={**noise, "seed": seed})


def noise_of(cube, clean):
    return np.asarray(cube.flux) - np.asarray(clean.flux)


def test_variance_is_that_of_the_realised_noise(either, clean):
    """chi^2 per voxel 1.00 over 5e5 voxels (its own scatter is 0.002), mean 0, no correlation of neighbours."""
    cube = either(GALAXY)
    normalised = noise_of(cube, clean) / np.sqrt(np.asarray(cube.variance))
    assert normalised.size > 5e5
    assert np.mean(normalised**2) == pytest.approx(1.0, abs=0.01)
    assert np.mean(normalised) == pytest.approx(0.0, abs=0.005)
    for axis in range(3):
        neighbours = np.take(normalised, range(1, normalised.shape[axis]), axis)
        before = np.take(normalised, range(normalised.shape[axis] - 1), axis)
        assert np.mean(neighbours * before) == pytest.approx(0.0, abs=0.006)
    assert np.mean(normalised**4) == pytest.approx(3.0, abs=0.05)


def test_signal_to_noise_is_that_of_the_brightest_spaxel(pipeline, clean):
    flux = np.asarray(clean.flux)
    brightest = flux.reshape(-1, flux.shape[2])[flux.sum(axis=2).argmax()]
    variance = np.asarray(pipeline(GALAXY).variance)
    np.testing.assert_allclose(np.median(brightest) / np.sqrt(variance), 20.0, rtol=1e-12)


def test_same_key_same_noise_other_key_other_noise(either):
    first, again = np.asarray(either(GALAXY).flux), np.asarray(either(GALAXY).flux)
    np.testing.assert_array_equal(first, again)
    by_key = [np.asarray(either(GALAXY, key=jax.random.key(seed)).flux) for seed in (1, 2)]
    np.testing.assert_array_equal(by_key[0], first)
    other = by_key[1] - first
    assert np.all(other != 0)


def test_the_seed_makes_the_key(pipeline):
    seeded = observe(noisy_configuration(seed=2), GALAXY)
    by_key = pipeline(GALAXY, key=jax.random.key(2))
    np.testing.assert_array_equal(np.asarray(seeded.flux), np.asarray(by_key.flux))


@pytest.mark.parametrize(
    ("n_devices", "kind"),
    [(8, "exposure"), *(pytest.param(*own, marks=pytest.mark.long) for own in ((8, "target"), (2, "exposure")))],
)
def test_noise_does_not_depend_on_the_devices(n_devices, kind):
    """Bit by bit where the flux is (dark spaxels); where its sum is rounded otherwise, to rounding."""
    small = {"fov": 2.0}
    config = noisy_configuration(instrument=small, **KINDS[kind])
    one, many = (observe(config, GALAXY, n_devices=n) for n in (1, n_devices))
    dark = np.asarray(observe(configuration(instrument={**INSTRUMENT, **small}), GALAXY).flux).sum(axis=2) == 0
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
    "target": ({"signal_to_noise": 20.0}, {}, None),
    "ring": ({"signal_to_noise": 20.0, "wavelength": 5020.0, "width": 15.0, "radius": 0.4}, {}, None),
    "read-out": ({"exposure": {"time": 1.0, "sky": "none"}}, {"detector": FAINT}, None),
    "systematics": (
        {"signal_to_noise": 20.0},
        {"lsf": {"fwhm": 30.0}},
        {"flat_field": {"rms": 0.1, "correlation": 20.0}, "cosmic_rays": {"rate": 0.1, "strength": 10}},
    ),
}

NUMBERS = {
    "signal_to_noise": (lambda own: own[1].noise.signal_to_noise, 1e-3),
    "time": (lambda own: own[1].noise.exposure.time, 1e-4),
    "psf.fwhm": (lambda own: own[1].instrument.psf.fwhm, 1e-5),
    "inclination": (lambda own: own[1].observation.inclination, 1e-3),
    "initial_mass": (lambda own: own[0].stars.initial_mass, 1e5),
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
    sums = jax.jit(lambda own: jnp.stack([jnp.sum(part**2) for part in noisy(pipeline, own)]))
    both = galaxy, pipeline.parameters
    found, size = jax.jit(jax.jacrev(sums))(both), np.asarray(sums(both))
    for name, (where, step) in NUMBERS.items():
        if (name == "signal_to_noise" and kind == "read-out") or (name == "time" and kind != "read-out"):
            continue
        value = where(both)
        change = step * jnp.zeros_like(value).at[(0,) * value.ndim].set(1.0)
        up, down = (np.asarray(sums(eqx.tree_at(where, both, value + own))) for own in (change, -change))
        own = np.asarray(where(found)).reshape(2, -1)[:, 0]
        np.testing.assert_allclose(own, (up - down) / (2 * step), rtol=2e-5, atol=1e-9 * size.max(), err_msg=name)
        assert name not in ("signal_to_noise", "time") or np.all(own < 0)


def noisy(pipeline, both):
    cube = pipeline(*both, key=jax.random.key(3))
    return cube.flux, cube.variance


def test_derivatives_of_photon_noise_hold_it_in_units_of_its_deviation():
    """By numpy: of the flux F in the light of all stars 1 + (N - n) / 2n x N_source / n, with N and n from the cube."""
    small = {**INSTRUMENT, "fov": 1.0, "wavelength": {"start": 5000.0, "stop": 5020.0, "step": 1.25}}
    detector = {"collecting_area": 48.5, "throughput": 0.3, "read_noise": 0.0, "dark_current": 0.0}
    noise = {"exposure": {"time": 900, "sky": "none"}, "keep_truth": True}
    config = configuration(instrument={**small, "detector": detector}, noise=noise)
    pipeline = Pipeline.from_config(config, GALAXY, mesh=make_mesh(1))

    def flux(factor):
        return pipeline(eqx.tree_at(lambda g: g.stars.initial_mass, GALAXY, GALAXY.stars.initial_mass * factor)).flux

    cube = pipeline(GALAXY)
    truth, drawn = np.asarray(cube.truth), np.asarray(cube.flux)
    found = np.asarray(jax.jvp(flux, (1.0,), (1.0,))[1])
    lit = truth > 1e-3 * truth.max()  # without sky and read-out noise all electrons are the source's
    np.testing.assert_allclose(found[lit], (truth + 0.5 * (drawn - truth))[lit], rtol=1e-9)
    assert np.isfinite(found).all()


def test_truth_is_the_noiseless_cube(either, pipeline, clean):
    np.testing.assert_allclose(np.asarray(either(GALAXY).truth), np.asarray(clean.flux), rtol=1e-12)
    assert pipeline(GALAXY).truth is None
    assert clean.truth is None


def field_of_stars(offset):
    """A star in the middle of every spaxel of 2 x 2 arcsec, heavier to the East, about the given centre."""
    place = (np.arange(10) - 4.5) * 0.2
    x, y = (axis.ravel() for axis in np.meshgrid(place, place))
    config = configuration(instrument={**INSTRUMENT, "fov": 2.0}, observation={"offset": offset})
    plan = Pipeline.from_config(config, GALAXY, mesh=make_mesh(1))
    kpc = 1 / float(plan.tables.arcsec_per_kpc)
    position = np.stack([(x - offset[0]) * kpc, (y - offset[1]) * kpc, np.zeros(100)], axis=1)
    return x, y, galaxy_of(position, initial_mass=1e8 * (3 + x))


@pytest.mark.parametrize("offset", [(0.0, 0.0), (0.3, -0.2)])
@pytest.mark.parametrize("radius", [0.0, 0.5, 0.9])
def test_a_target_at_a_wavelength_and_a_radius(offset, radius):
    """sigma = mean flux of the ring's spaxels within the window / target, computed from the noiseless cube."""
    x, y, galaxy = field_of_stars(offset)
    target = {"signal_to_noise": 30.0, "wavelength": 5100.0, "width": 50.0, "radius": radius, "keep_truth": True}
    instrument = {**INSTRUMENT, "fov": 2.0}
    config = configuration(instrument=instrument, observation={"offset": offset}, noise=target)
    cube = observe(config, galaxy)
    distance = np.hypot(x - offset[0], y - offset[1]).reshape(10, 10)[:, ::-1]  # East is at small columns
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
    _, _, galaxy = field_of_stars((0.3, -0.2))
    target = {"signal_to_noise": 30.0, "radius": 0.5}
    instrument = {**INSTRUMENT, "fov": 2.0}
    sigma2 = [
        np.asarray(
            observe(
                configuration(
                    instrument=instrument, observation={"offset": (0.3, -0.2), "field_angle": angle}, noise=target
                ),
                galaxy,
            ).variance
        )[0, 0, 0]
        for angle in (0.0, 90.0)
    ]
    assert sigma2[0] == pytest.approx(sigma2[1], rel=1e-6)


def test_a_target_at_a_wavelength_without_a_radius_and_the_other_way_round():
    _, _, galaxy = field_of_stars((0.0, 0.0))
    instrument = {**INSTRUMENT, "fov": 2.0}
    at_wavelength = {"signal_to_noise": 10.0, "wavelength": "5200 Angstrom", "keep_truth": True}
    cube = observe(configuration(instrument=instrument, noise=at_wavelength), galaxy)
    truth = np.asarray(cube.truth)
    brightest = truth.reshape(100, -1)[truth.sum(axis=2).argmax()]
    window = np.abs(np.asarray(cube.wavelength) - 5200) <= 50
    np.testing.assert_allclose(np.sqrt(np.asarray(cube.variance)), brightest[window].mean() / 10, rtol=1e-10)
    at_radius = {"signal_to_noise": 10.0, "radius": 0.5, "keep_truth": True}
    cube = observe(configuration(instrument=instrument, noise=at_radius), galaxy)
    place = (np.arange(10) - 4.5) * 0.2
    ring = np.abs(np.hypot(place[:, None], place[None, :]) - 0.5) <= 0.2 * np.sqrt(0.5)
    reference = np.median(np.asarray(cube.truth)[ring].mean(axis=0))
    np.testing.assert_allclose(np.sqrt(np.asarray(cube.variance)), reference / 10, rtol=1e-10)


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        ({"wavelength": 6000.0}, r"noise\.wavelength: expected a window .*5000-5250 Angstrom\), got 6000 \+- 50"),
        ({"wavelength": 5000.4, "width": 0.1}, r"noise\.wavelength: expected a window"),
        ({"radius": 20.0}, r"noise\.radius: expected a circle .*10 x 10 arcsec, got 20 arcsec"),
    ],
)
def test_a_target_nowhere_in_the_cube_is_refused_at_planning(noise, words):
    config = noisy_configuration(signal_to_noise=5.0, **noise)
    with pytest.raises(ConfigError, match=words):
        Pipeline.from_config(config, GALAXY, mesh=make_mesh(1))


def test_a_ring_outside_the_aperture_is_refused_at_planning():
    config = noisy_configuration(
        signal_to_noise=5.0, radius=4.5, instrument={"aperture": {"shape": "circle", "size": "4 arcsec"}}
    )
    with pytest.raises(ConfigError, match="that runs through the aperture"):
        Pipeline.from_config(config, GALAXY, mesh=make_mesh(1))


def test_noise_does_not_vanish_where_spaxels_are_empty(pipeline, clean):
    """All but two of 2500 spaxels are dark here, and each of them is noisy."""
    dark = np.asarray(clean.flux).sum(axis=2) == 0
    assert dark.sum() == 2498
    cube = pipeline(GALAXY)
    scatter = np.asarray(cube.flux)[dark].std(axis=1) / np.sqrt(np.asarray(cube.variance)[dark].mean())
    assert np.all(np.abs(scatter - 1) < 0.3)
    assert np.all(np.asarray(cube.ivar) > 0)


def test_without_noise_there_is_no_variance(clean):
    assert clean.variance is None
    assert clean.ivar is None
    assert eqx.tree_at(lambda cube: cube.flux, clean, clean.flux).flux.min() >= 0
