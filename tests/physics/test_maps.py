"""Maps, velocity distributions and images, against sums in plain numpy on the same stars."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from astropy import units
from independent import (
    Particles,
    SpectrumTable,
    arcsec_per_kpc,
    flux_of_one_lsun,
    luminosity_distance,
    spaxel_coordinates,
)
from observing import configuration, galaxy_of, observe
from scipy.ndimage import convolve
from scipy.optimize import least_squares
from scipy.stats import norm
from speclite import filters

from rubix_like import Galaxy, Pipeline, Stars, load_config, load_ssp, make_mesh
from rubix_like.forward.products.bands import Band, BandTables, BandWeight
from rubix_like.physics.gauss_hermite import fit_gauss_hermite

REDSHIFT = 0.05
PIXEL = 0.2
SIDE = 9
STEP = 25.0
EDGES = np.array([4997.5, 5102.5])
"""Of the detector's bins, 5000-5100 by 5 Angstrom, in vacuum."""

FILTERS = ("sdss2010-g", "sdss2010-r")
WEIGHTS = ("light", "mass")


def stars_of(n=80, seed=5):
    """Stars within the middle 3 x 3 spaxels, with masses of their own now."""
    rng = np.random.default_rng(seed)
    half = 1.5 * PIXEL / arcsec_per_kpc(REDSHIFT, luminosity_distance(REDSHIFT))
    return Galaxy(
        stars=Stars(
            position=rng.uniform(-half, half, (n, 3)) * 0.999,
            velocity=rng.normal(0, 120, (n, 3)),
            initial_mass=rng.uniform(0.5, 2.0, n) * 1e8,
            log_age=rng.uniform(7.5, 10.1, n),
            metallicity=rng.uniform(0.004, 0.04, n),
            mass=rng.uniform(0.2, 0.5, n) * 1e8,
        )
    )


def settings(products=None, **engine):
    products = {"filters": list(FILTERS), "losvd": {"step": STEP, "fit_particles": 5}, **(products or {})}
    return configuration(
        instrument={
            "fov": SIDE * PIXEL,
            "wavelength": {"start": 5000.0, "stop": 5100.0, "step": 5.0, "medium": "vacuum"},
            "psf": {"fwhm": 0.3},
        },
        engine=engine,
        products=products,
    )


@functools.cache
def maps_of(n_devices=1, method="direct", deposit="nearest", precision="float64", **engine):
    config = settings(method=method, deposit=deposit, precision=precision, **engine)
    return observe(config, stars_of(), n_devices).maps


@functools.cache
def ssp_table():
    return SpectrumTable.of(load_ssp("popstar"))


def light_of(particles, edges=EDGES):
    """Light of every star between observed vacuum wavelengths, at the galaxy's redshift, 1e-20 erg/s/cm2."""
    factor = flux_of_one_lsun(luminosity_distance(REDSHIFT))
    table = ssp_table()
    light = [
        table.bin_light(table.spectrum(age, metallicity), edges, 1 + REDSHIFT)[0]
        for age, metallicity in zip(particles.log_age, particles.metallicity, strict=True)
    ]
    return np.array(light) * particles.mass * factor


def nearest(coordinate):
    return [(np.floor(coordinate + 0.5).astype(int), np.ones_like(coordinate))]


def cloud_in_cell(coordinate):
    low = np.floor(coordinate).astype(int)
    return [(low, 1 - (coordinate - low)), (low + 1, coordinate - low)]


def image_of(values, particles, sides=nearest):
    """Sum of `values` (particle, ...) per spaxel, in float64: (y, x, ...)."""
    column, row = spaxel_coordinates(
        particles, arcsec_per_kpc(REDSHIFT, luminosity_distance(REDSHIFT)), PIXEL, SIDE, SIDE
    )
    values = np.asarray(values)
    image = np.zeros((SIDE, SIDE, *values.shape[1:]))
    for x, x_weight in sides(column):
        for y, y_weight in sides(row):
            weight = (x_weight * y_weight).reshape(-1, *[1] * (values.ndim - 1))
            np.add.at(image, (y, x), weight * values)
    return image


@functools.cache
def point_spread(deposit):
    """The image of one star in the middle of the field."""
    without = load_config(settings(deposit=deposit), overrides={"products": None})
    image = np.asarray(observe(without, galaxy_of()).flux)[:, :, 0]
    return image / image.sum()


def blurred(image, deposit="nearest"):
    """Every plane of an image through the PSF."""
    planes = image.reshape(SIDE, SIDE, -1)
    kernel = point_spread(deposit)
    seen = [convolve(planes[:, :, k], kernel, mode="constant") for k in range(planes.shape[2])]
    return np.stack(seen, axis=2).reshape(image.shape)


def expected_maps(sides, through):
    """The maps by their names from sums of the stars, each image first put through `through` (identity or PSF)."""
    stars = stars_of().stars
    particles = Particles.of(stars)
    weights = {"light": light_of(particles), "mass": np.asarray(stars.mass)}
    velocity = particles.velocity[:, 2]
    age = 10 ** (particles.log_age - 9)

    def total(values):
        return through(image_of(values, particles, sides))

    found = {"number": total(np.ones_like(velocity)), "birth_mass": total(particles.mass)}
    for name, weight in weights.items():
        whole = total(weight)
        found[name] = whole
        with np.errstate(invalid="ignore", divide="ignore"):
            for quantity, values in (
                ("log_age", particles.log_age),
                ("age", age),
                ("metallicity", particles.metallicity),
            ):
                found[f"{quantity}_{name}"] = total(weight * values) / whole
            mean = total(weight * velocity) / whole
            square = total(weight * velocity**2) / whole
        found[f"v_{name}"] = mean
        found[f"sigma_{name}"] = np.sqrt(np.maximum(square - mean**2, 0))
    return found


SIDES = {"nearest": nearest, "cic": cloud_in_cell}


@pytest.mark.parametrize(
    ("method", "deposit", "precision", "tolerance"),
    [("direct", "nearest", "float64", 1e-9), ("direct", "cic", "float64", 1e-9), ("basis", "nearest", "float32", 2e-5)],
)
def test_every_map_is_the_sum_over_its_stars(method, deposit, precision, tolerance):
    """Before and after the PSF; velocities to the tolerance times 200 km/s."""
    maps = maps_of(method=method, deposit=deposit, precision=precision)
    for seen, through in (
        (maps.before, lambda image: image),
        (maps.after, functools.partial(blurred, deposit=deposit)),
    ):
        expected = expected_maps(SIDES[deposit], through)
        lit = np.all([expected[name] > 2e-6 * expected[name].max() for name in WEIGHTS], axis=0)
        for name, image in expected.items():
            there = np.isfinite(image) & lit
            found = np.asarray(getattr(seen, name))
            scale = 200 if name.startswith(("v_", "sigma_")) else np.abs(image[there]).max()
            loose = 30 if name.startswith("sigma_") else 1  # a root: of one star's rounding
            np.testing.assert_allclose(found[there], image[there], rtol=0, atol=loose * tolerance * scale, err_msg=name)


def test_means_are_nan_in_empty_spaxels_only():
    maps = maps_of()
    empty = np.asarray(maps.before.light) == 0
    assert empty.any()
    assert not empty.all()
    for name in ("v", "sigma", "log_age", "age", "metallicity"):
        for weight in WEIGHTS:
            np.testing.assert_array_equal(np.isnan(np.asarray(getattr(maps.before, f"{name}_{weight}"))), empty)
    np.testing.assert_array_equal(np.isnan(np.asarray(maps.before.magnitude[:, :, 0])), empty)


@pytest.mark.parametrize("which", ["before", "after"])
def test_the_velocity_distribution_is_the_light_at_each_velocity(which):
    """Linear weights on the bins; its integral is the light, its mean the mean velocity."""
    maps = maps_of()
    images = getattr(maps, which)
    losvd, velocity = np.asarray(images.losvd), np.asarray(maps.velocity)
    particles = Particles.of(stars_of().stars)
    place = particles.velocity[:, 2] / STEP + len(velocity) // 2
    low = np.floor(place).astype(int)
    spread = np.zeros((len(place), len(velocity)))
    spread[np.arange(len(place)), low] = 1 - (place - low)
    spread[np.arange(len(place)), low + 1] = place - low
    expected = image_of(light_of(particles)[:, None] * spread, particles) / STEP
    expected = expected if which == "before" else blurred(expected)
    np.testing.assert_allclose(losvd, expected, rtol=1e-9, atol=1e-9 * expected.max())
    light = np.asarray(images.light)
    np.testing.assert_allclose(losvd.sum(axis=2) * STEP, light, rtol=1e-12, atol=1e-9 * light.max())
    there = light > 1e-5 * light.max()
    mean = (losvd @ velocity)[there] * STEP / light[there]
    np.testing.assert_allclose(mean, np.asarray(images.v_light)[there], atol=1e-6)


def test_stars_beyond_the_limit_are_in_the_outermost_bins():
    config = settings({"filters": [], "losvd": {"step": STEP, "limit": 90.0}})
    maps = observe(config, galaxy_of(position=np.zeros((2, 3)), velocity=[-500.0, 95.0])).maps
    assert np.asarray(maps.velocity).tolist() == [-100.0, -75.0, -50.0, -25.0, 0.0, 25.0, 50.0, 75.0, 100.0]
    shares = np.asarray(maps.before.losvd).sum(axis=(0, 1))
    np.testing.assert_allclose(shares / shares.sum(), [0.5, 0, 0, 0, 0, 0, 0, 0.1, 0.4], atol=1e-12)


@functools.cache
def receding():
    """Stars without masses of now, in a galaxy that recedes at 3000 km/s, and their pipeline in 32 bits."""
    velocity = np.where(np.arange(40) % 2, 30.0, -30.0)
    config = configuration(
        observation={"velocity_offset": 3000.0}, engine={"precision": "float32"}, products={"losvd": None}
    )
    galaxy = galaxy_of(np.zeros((40, 3)), velocity, initial_mass=1e8)
    return galaxy, Pipeline.from_config(config, galaxy, mesh=make_mesh(1))


def test_dispersion_keeps_its_digits_in_float32_far_from_rest():
    """sigma = 30 km/s of a galaxy that recedes at 3000 km/s: second moments are taken about the galaxy's velocity."""
    galaxy, pipeline = receding()
    maps = pipeline(galaxy).maps
    assert float(np.nanmax(maps.after.sigma_light)) == pytest.approx(30.0, rel=1e-5)
    assert float(np.nanmax(maps.after.v_light)) == pytest.approx(3000.0, rel=1e-6)


def profile(velocity, v, sigma, h3, h4):
    """van der Marel & Franx (1993), eqs. 9 and 17, at unit gamma."""
    w = (velocity - v) / sigma
    third = (2 * np.sqrt(2) * w**3 - 3 * np.sqrt(2) * w) / np.sqrt(6)
    fourth = (4 * w**4 - 12 * w**2 + 3) / np.sqrt(24)
    return np.exp(-0.5 * w**2) / (sigma * np.sqrt(2 * np.pi)) * (1 + h3 * third + h4 * fourth)


def linearly_binned(density, fine, velocity):
    """A distribution on fine velocities, every part of it shared between the two bins around it."""
    step = velocity[1] - velocity[0]
    share = np.clip(1 - np.abs(fine[:, None] - velocity[None, :]) / step, 0, None)
    return density @ share * (fine[1] - fine[0]) / step


def test_gauss_hermite_fit_finds_what_an_analytic_distribution_was_made_of():
    """V and sigma to 0.01 km/s, h3 and h4 to 1e-4, with sigma from 1.2 steps up; not for no light."""
    velocity = np.arange(-1000.0, 1001.0, STEP)
    fine = np.arange(-1000.0, 1000.01, 0.5)
    truth = np.array([(v, s, h3, h4) for v in (-130, 7) for s in (30, 61, 150) for h3, h4 in ((0, 0), (0.12, -0.06))])
    losvd = np.stack([linearly_binned(profile(fine, *row), fine, velocity) for row in truth])
    found = np.array(fit_gauss_hermite(velocity, np.concatenate([3e5 * losvd, np.zeros((1, len(velocity)))])))
    assert np.isnan(found[:, -1]).all()
    errors = np.abs(found[:, :-1] - truth.T)
    assert errors[:2].max() < 0.02
    assert errors[2:].max() < 3e-4


def test_fit_of_stars_drawn_from_a_gaussian():
    """2000 stars at the quantiles of a Gaussian, in one spaxel: its V and sigma, and the moments; a star by itself has
    its velocity, and no fit."""
    place, velocity = np.zeros((2001, 3)), np.append(norm.ppf((np.arange(2000) + 0.5) / 2000, 40.0, 80.0), 130.0)
    place[-1] = 4 * PIXEL / arcsec_per_kpc(REDSHIFT, luminosity_distance(REDSHIFT))
    maps = observe(settings({"filters": []}), galaxy_of(place, velocity, initial_mass=1e6)).maps.fitted()
    names = ("v_light", "sigma_light", "v_fit", "sigma_fit", "h3", "h4")
    for images in (maps.before, maps.after):
        middle = {name: float(getattr(images, name)[SIDE // 2, SIDE // 2]) for name in names}
        assert middle["v_light"] == pytest.approx(40.0, abs=0.01)
        assert middle["sigma_light"] == pytest.approx(80.0, rel=0.002)
        assert middle["v_fit"] == pytest.approx(40.0, abs=0.1)
        assert middle["sigma_fit"] == pytest.approx(80.0, rel=0.005)
        assert middle["h3"] == pytest.approx(0.0, abs=0.002)
        assert middle["h4"] == pytest.approx(0.0, abs=0.005)
    assert np.isnan(np.asarray(maps.before.h3)).sum() == SIDE**2 - 1
    alone = np.asarray(maps.before.number) == 1
    assert alone.sum() == 1
    np.testing.assert_allclose(np.asarray(maps.before.v_light)[alone], 130.0, rtol=1e-9)
    np.testing.assert_allclose(np.asarray(maps.before.sigma_light)[alone], 0.0, atol=1e-3)


@functools.cache
def wide_cube(a_v=None):
    """Three stars in one spaxel, seen from 3600 to 7200 Angstrom, behind dust where `a_v` is given."""
    config = configuration(
        instrument={"fov": 0.6, "wavelength": {"start": 3600.0, "stop": 7200.0, "step": 2.0, "medium": "vacuum"}},
        products={"filters": list(FILTERS), "losvd": None, "band": "sdss2010-r"},
        **({} if a_v is None else {"dust": {"a_v": a_v, "curve": "cardelli"}}),
    )
    galaxy = galaxy_of(
        np.zeros((3, 3)), [-100.0, 0.0, 150.0], log_age=[7.0, 9.0, 10.0], metallicity=[0.004, 0.02, 0.03]
    )
    return observe(config, galaxy)


@pytest.mark.parametrize("a_v", [None, 1.5])
def test_magnitudes_are_those_of_the_cube_in_speclite(a_v):
    """AB magnitudes of the summed spectrum to 0.005, dust and all, and the flux in nJy to match."""
    cube = wide_cube(a_v)
    spectrum = np.asarray(cube.flux).sum(axis=(0, 1)) * 1e-20 * units.Unit("erg / (s cm2 Angstrom)")
    flux = np.asarray(cube.maps.after.flux).sum(axis=(0, 1))
    for number, name in enumerate(FILTERS):
        expected = filters.load_filter(name).get_ab_magnitude(spectrum, np.asarray(cube.wavelength) * units.AA)
        magnitude = float(np.nanmin(cube.maps.after.magnitude[:, :, number]))
        assert magnitude == pytest.approx(float(expected), abs=0.005)
        assert (flux[number] * units.nJy).to_value(units.ABmag) == pytest.approx(magnitude, abs=1e-3)


def test_light_in_a_band_is_the_flux_through_its_curve():
    cube = wide_cube()
    curve = filters.load_filter("sdss2010-r")
    response = np.interp(np.asarray(cube.wavelength), curve.wavelength, curve.response, left=0, right=0)
    expected = (np.asarray(cube.flux).sum(axis=(0, 1)) * response).sum() * 2.0
    assert float(np.asarray(cube.maps.before.light).sum()) == pytest.approx(expected, rel=2e-3)
    assert cube.maps.band == "sdss2010-r"


def test_a_screen_dims_the_bands_part_by_part():
    """Behind 10^(-0.4 A_V 5500 A / lambda) at A_V = 2, against an integral on a fine grid."""
    library = load_ssp("popstar")
    band = Band("wide", np.array([3500.0, 4000.0, 7500.0, 8000.0]), np.array([0.0, 1.0, 1.0, 0.0]))
    weight = BandWeight.nanojansky(band)
    tables = BandTables.build(library, REDSHIFT, [weight])
    seen = tables.through(10 ** (-0.8 * 5500.0 / jnp.asarray(tables.wavelength)))
    fine = np.linspace(3500, 8000, 90001)
    response = np.interp(fine, band.wavelength, band.response) * 10 ** (-0.8 * 5500.0 / fine)
    spectra = np.asarray(library.spectra).reshape(-1, len(library.rest_wavelength))
    for template in (0, 300, len(spectra) - 1):
        shifted = np.interp(fine / (1 + REDSHIFT), library.rest_wavelength, spectra[template]) / (1 + REDSHIFT)
        expected = weight.scale * np.trapezoid(response * fine * shifted, fine)
        assert float(seen[template, 0]) == pytest.approx(expected, rel=2e-4)


def test_a_flat_spectrum_has_its_flux_density_in_every_filter():
    """F_nu = 1 nJy is 1 nJy, by the definition of the band's flux."""
    curve = filters.load_filter("sdss2010-g")
    weight = BandWeight.nanojansky(Band("g", np.asarray(curve.wavelength), np.asarray(curve.response)))
    fine = np.linspace(curve.wavelength[0], curve.wavelength[-1], 200001)
    flux = (1 * units.nJy).to_value(
        units.Unit("1e-20 erg / (s cm2 Angstrom)"), equivalencies=units.spectral_density(fine * units.AA)
    )
    assert np.trapezoid(weight.at(fine) * flux, fine) == pytest.approx(1.0, rel=1e-6)


def test_mass_now_is_the_surviving_mass_where_the_galaxy_does_not_say():
    """With a library that knows it; without one it is the mass at birth, and a note says so."""
    galaxy, pipeline = receding()
    assert any("mass at birth" in note for note in pipeline.notes)
    assert float(pipeline(galaxy).maps.before.mass.sum()) == pytest.approx(4e9)
    surviving = jnp.full((pipeline.tables.products[0].axes.n_template, 1), 0.6, jnp.float32)
    knowing = eqx.tree_at(
        lambda p: p.tables.products[0].mass_now.surviving, pipeline, surviving, is_leaf=lambda leaf: leaf is None
    )
    assert float(knowing(galaxy).maps.before.mass.sum()) == pytest.approx(2.4e9)


@pytest.mark.usefixtures("optimised")
def test_products_change_nothing_in_the_cube_and_cost_nothing_without():
    galaxy, smaller = stars_of(), load_config(settings(), overrides={"instrument.fov": (SIDE - 2) * PIXEL})
    with_maps = observe(smaller, galaxy)
    pipeline = Pipeline.from_config(load_config(smaller, overrides={"products": None}), galaxy, mesh=make_mesh(1))
    cube = pipeline(galaxy)
    assert cube.maps is None
    assert pipeline.tables.products == ()
    np.testing.assert_array_equal(cube.flux, with_maps.flux)
    np.testing.assert_array_equal(cube.mean_v_los, with_maps.mean_v_los)


@pytest.mark.slow
def test_gradients_of_maps_are_those_of_finite_differences():
    """Of the mean velocities and ages after the PSF, with respect to velocities and ages; finite everywhere."""
    galaxy = stars_of(6)
    config = settings({"filters": ["sdss2010-r"]}, deposit="cic")
    pipeline = Pipeline.from_config(config, galaxy, mesh=make_mesh(1))
    weights = np.random.default_rng(2).normal(size=(4, SIDE, SIDE))

    def score(stars):
        images = pipeline(Galaxy(stars=stars)).maps.after
        maps = (images.v_light, images.sigma_mass / 10, images.age_light, images.flux[:, :, 0] / 1e3)
        return sum(jnp.where(jnp.isnan(image), 0, image * w).sum() for image, w in zip(maps, weights, strict=True))

    gradient = jax.jit(jax.grad(score))(galaxy.stars)
    for name, change in (("velocity", 1e-2), ("log_age", 1e-5), ("position", 1e-5)):
        slope = np.asarray(getattr(gradient, name))
        assert np.isfinite(slope).all()
        direction = np.random.default_rng(3).normal(size=slope.shape)
        ends = [
            float(
                score(
                    dataclasses.replace(galaxy.stars, **{name: getattr(galaxy.stars, name) + sign * change * direction})
                )
            )
            for sign in (1, -1)
        ]
        assert (slope * direction).sum() == pytest.approx((ends[0] - ends[1]) / (2 * change), rel=1e-4), name


@pytest.mark.parametrize("precision", [pytest.param("float32", marks=pytest.mark.long), "float64"])
def test_maps_of_eight_devices_are_those_of_one(precision):
    tolerance = {"float32": 1e-5, "float64": 1e-12}[precision]
    one, eight = maps_of(1, precision=precision), maps_of(8, precision=precision, chunk=4)
    for name in set(vars(one.after)) - {"fields", "lines"}:
        first, second = getattr(one.after, name), getattr(eight.after, name)
        if first is None or name.startswith(("sigma", "v_")):
            continue
        scale = np.nanmax(np.abs(np.asarray(first)))
        np.testing.assert_allclose(np.asarray(second), np.asarray(first), rtol=0, atol=tolerance * scale, err_msg=name)
    np.testing.assert_allclose(np.asarray(eight.after.v_light), np.asarray(one.after.v_light), atol=1e3 * tolerance)


def test_fits_of_a_hundred_stars_are_as_good_as_those_of_scipy():
    """Of spiky distributions, within the same limits: the sum of squares is that of an independent optimiser."""
    velocity = np.arange(-500.0, 501.0, STEP)
    rng = np.random.default_rng(8)
    place = rng.normal(20.0, 90.0, (12, 100)) / STEP + len(velocity) // 2
    low = np.floor(place).astype(int)
    losvd = np.zeros((12, len(velocity)))
    row = np.arange(12)[:, None]
    np.add.at(losvd, (row, low), (low + 1 - place) / (100 * STEP))
    np.add.at(losvd, (row, low + 1), (place - low) / (100 * STEP))
    fine = np.linspace(-1, 1, 41) * STEP
    triangle = (1 - np.abs(fine) / STEP) / (1 - np.abs(fine) / STEP).sum()

    def smeared(values):
        return sum(w * values[0] * profile(velocity + d, *values[1:]) for w, d in zip(triangle, fine, strict=True))

    limits = ([0, -500, 10, -0.3, -0.3], [10, 500, 1000, 0.3, 0.3])
    found = np.array(fit_gauss_hermite(velocity, losvd)).T
    for fitted, data in zip(found, losvd, strict=True):
        best = least_squares(
            lambda p, data=data: 1e3 * (smeared(p) - data), [1, 20, 90, 0, 0], bounds=limits, x_scale=limits[1]
        )
        assert np.isfinite(fitted).all()
        unit = smeared([1, *fitted])
        gamma = (unit @ data) / (unit @ unit)
        assert 1e6 * ((gamma * unit - data) ** 2).sum() == pytest.approx(2 * best.cost, rel=1e-3)
