"""Deposit `smoothed`: light, centroid and width of a star are what its smoothing length says."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm
from small import muse, white_light

from rubix_like import ConfigError, Galaxy, Pipeline, Stars, load_config, make_mesh
from rubix_like.engine.smoothing import DEPOSIT_SIGMA, LayerGrid, WidthClasses
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.extend import Footprint

ARCSEC_PER_KPC = 0.9892393
PIXEL = 0.2
SIGMA = 0.2739


def configuration(**changes):
    return load_config(
        {
            "observation": {"redshift": 0.05, "align": "none"},
            "instrument": muse(5000, 5020, "10 Angstrom", fov="9 arcsec"),
            "engine": {
                "method": "direct",
                "precision": "float64",
                "deposit": "smoothed",
                "smoothing": {"largest": "0.9 arcsec"},
            },
        },
        changes,
    )


def galaxy_of(position, sigma):
    """Stars at `position` (N, 3) kpc whose widths on the sky are `sigma` (N,) arcsec."""
    position = np.asarray(position, dtype=float)
    n = len(position)
    return Galaxy(
        Stars(
            position=position,
            velocity=np.random.default_rng(1).normal(0, 60, (n, 3)),
            initial_mass=np.full(n, 1e7),
            log_age=np.full(n, 9.5),
            metallicity=np.full(n, 0.02),
            smoothing_length=np.broadcast_to(np.asarray(sigma, dtype=float), n) / SIGMA / ARCSEC_PER_KPC,
        )
    )


def moments(light):
    rows, columns = (np.arange(n) - (n - 1) / 2 for n in light.shape)
    total = light.sum()
    x, y = light.sum(axis=0) @ columns / total, light.sum(axis=1) @ rows / total
    return total, (x, y), (light.sum(axis=0) @ (columns - x) ** 2 / total, light.sum(axis=1) @ (rows - y) ** 2 / total)


PAIR = [(0.1, -0.23, 0.0), (0.13, -0.21, 0.0)]


@functools.cache
def pipeline_for(widest):
    """Planned for stars up to this width (arcsec), on one device."""
    return Pipeline.from_config(configuration(), galaxy_of(PAIR, widest), mesh=make_mesh(1))


@functools.cache
def light_of_points():
    """Of the same stars without width."""
    config = configuration(**{"engine.deposit": "tsc"})
    return white_light(Pipeline.from_config(config, mesh=make_mesh(1))(galaxy_of(PAIR, 0.1))).sum()


@pytest.mark.parametrize(
    ("sigma", "widest"), [(0.02, 0.02), (0.1, 0.9), (0.17, 0.9), (0.3, 0.9), (0.55, 0.9), (0.9, 0.9)]
)
def test_a_star_is_as_wide_as_its_smoothing_length(sigma, widest):
    """Its width and the spaxel's box exactly (to the 0.1 % of light cut off), but never below half a spaxel, that of
    the deposit."""
    total, centre, variances = moments(white_light(pipeline_for(widest)(galaxy_of(PAIR, sigma))))
    assert total == pytest.approx(light_of_points(), rel=1e-6)
    expected = np.array([-0.115, -0.22]) * ARCSEC_PER_KPC / PIXEL
    np.testing.assert_allclose(centre, expected, atol=1e-3)
    spread = np.array([0.015, 0.01]) * ARCSEC_PER_KPC / PIXEL
    expected = np.sqrt(max(sigma**2 + PIXEL**2 / 12, (DEPOSIT_SIGMA * PIXEL) ** 2))
    np.testing.assert_allclose(np.sqrt(variances - spread**2) * PIXEL, expected, rtol=0.01)


def flux_of(deposit, method, precision, n_devices=1):
    """Of 50 stars of all widths that are all well inside."""
    rng = np.random.default_rng(2)
    galaxy = galaxy_of(rng.uniform(-0.5, 0.5, (50, 3)), 10 ** rng.uniform(-2, -0.05, 50))
    config = configuration(**{"engine.deposit": deposit, "engine.method": method, "engine.precision": precision})
    return np.asarray(Pipeline.from_config(config, galaxy, mesh=make_mesh(n_devices))(galaxy).flux)


def test_light_is_kept_to_rounding_by_basis():
    """Whatever the widths of the stars, in 32 bits."""
    cubes = (flux_of(deposit, "basis", "float32") for deposit in ("smoothed", "nearest"))
    smoothed, nearest = (cube.sum(axis=(0, 1), dtype=np.float64) for cube in cubes)
    np.testing.assert_allclose(smoothed, nearest, rtol=1e-6)


def test_light_from_outside_the_field_shines_in():
    """As in a larger field."""
    galaxy = galaxy_of([(5.1, 0.3, 0.0), (0.0, 0.0, 0.0)], 0.7)
    wider = Pipeline.from_config(configuration(**{"instrument.fov": 13}), galaxy_of(PAIR, 0.9), mesh=make_mesh(1))
    small, large = (white_light(pipeline(galaxy)) for pipeline in (pipeline_for(0.9), wider))
    np.testing.assert_allclose(small, large[10:-10, 10:-10], rtol=1e-9, atol=1e-12 * large.max())
    assert small[:, :5].sum() > 0


@pytest.mark.parametrize("method", [pytest.param("direct", marks=pytest.mark.slow), "basis"])
def test_gradients_are_finite_differences(method):
    """Of positions and smoothing lengths."""
    rng = np.random.default_rng(3)
    galaxy = galaxy_of(rng.uniform(-2, 2, (12, 3)), rng.uniform(0.12, 0.8, 12))
    config = configuration(**{"engine.method": method, "instrument.fov": "5 arcsec"})
    pipeline = Pipeline.from_config(config, galaxy, mesh=make_mesh(1))
    weights = jnp.asarray(rng.normal(size=(25, 25, 3)))

    @jax.jit
    @jax.value_and_grad
    def weighted(stars):
        return (pipeline(Galaxy(stars)).flux * weights).sum()

    _, gradient = weighted(galaxy.stars)
    for name, index in (
        ("position", (0, 0)),
        ("position", (5, 1)),
        ("smoothing_length", (3,)),
        ("smoothing_length", (7,)),
    ):
        values = {field: np.array(value) for field, value in vars(galaxy.stars).items() if value is not None}
        sides = []
        for sign in (1, -1):
            values[name][index] += sign * 1e-5
            sides.append(float(weighted(Stars(**values))[0]))
            values[name][index] -= sign * 1e-5
        found = float(np.asarray(getattr(gradient, name))[index])
        assert found == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-5, abs=1e-8 * abs(sides[0]))
        assert found != 0


def test_any_number_of_devices_gives_the_same():
    one, eight = (flux_of("smoothed", "direct", "float64", n) for n in (1, 8))
    np.testing.assert_allclose(one, eight, rtol=1e-10, atol=1e-12 * one.max())


def test_too_wide_stars_are_limited_and_said():
    galaxy = galaxy_of([(0, 0, 0), (0, 0, 0)], [0.3, 5.0])
    pipeline = Pipeline.from_config(configuration(), galaxy)
    words = "1 star is smoothed with a sigma of 0.9 arcsec instead of up to 5 arcsec"
    assert any(words in note for note in pipeline.notes)
    widths = pipeline.tables.grid.widths
    assert float(widths.sigma[-1]) * PIXEL == pytest.approx(np.sqrt(0.9**2 + PIXEL**2 / 12))


PLACE = np.array([[0.1, -0.23, 0.0]])


@functools.cache
def pipeline_with_psf():
    config = configuration(**{"instrument.psf": {"fwhm": 0.5}})
    return Pipeline.from_config(config, galaxy_of(PLACE, 0.3), mesh=make_mesh(1))


def classes_of(*sigma):
    return WidthClasses(np.array(sigma), np.asarray(1.0), np.asarray(0.0), LayerGrid.of_classes(sigma))


shares_of = eqx.filter_jit(WidthClasses.shares)


@pytest.mark.parametrize("sigma", [0.05, 0.12, 0.3])
def test_a_star_with_a_psf_has_both_widths_before_the_box(sigma):
    """Smoothed with `sigma` and seen with a PSF of 0.5 arcsec (2.5 spaxels): the Gaussian of the summed variances,
    integrated over spaxels, wherever in one the star lies; to the 12 % that a star between two classes is too peaked,
    less what the PSF smooths of it."""
    light = white_light(pipeline_with_psf()(galaxy_of(PLACE, sigma)))
    width = np.hypot(sigma, 0.5 / np.sqrt(8 * np.log(2)))
    x, y = -0.1 * ARCSEC_PER_KPC, -0.23 * ARCSEC_PER_KPC
    edges = (np.arange(46) - 22.5) * PIXEL
    expected = np.outer(np.diff(norm.cdf(edges, y, width)), np.diff(norm.cdf(edges, x, width)))
    np.testing.assert_allclose(light / light.sum(), expected, atol=0.02 * expected.max())
    _, _, variances = moments(light)
    np.testing.assert_allclose(np.sqrt(variances) * PIXEL, np.sqrt(width**2 + PIXEL**2 / 12), rtol=0.005)


@pytest.mark.parametrize(("added", "allowed"), [(0.03, 0.045), (0.25, 0.15), (0.5, 0.075), (0.75, 0.04)])
def test_a_class_little_wider_than_the_deposit_is_a_gaussian_too(added, allowed):
    """Its image at any place against the deposit's weights, a quadratic B-spline, convolved with a Gaussian of the
    variance in between by numpy. What remains is that a spaxel is too coarse for either, and a PSF smooths it away."""
    grid = SpaxelGrid(Footprint(15, 15, 1.0), "smoothed", classes_of(0.5, np.sqrt(0.25 + added)))
    length = jnp.asarray([np.sqrt(0.25 + added)])
    fine = (np.arange(4001) - 2000) / 200
    spline = np.where(abs(fine) < 0.5, 0.75 - fine**2, 0.5 * np.clip(1.5 - abs(fine), 0.0, None) ** 2)
    wider = np.convolve(spline, norm.pdf(fine, 0.0, np.sqrt(added)), mode="same") / 200
    for place in np.linspace(-0.5, 0.5, 11):
        found = image_of(grid, jnp.asarray([[-place, place, 0.0]]), length)
        expected = np.interp(np.arange(-3, 4) - place, fine, wider)
        expected = np.outer(expected, expected)
        assert np.abs(found - expected).max() < allowed * expected.max()


together = eqx.filter_jit(WidthClasses.together)


@eqx.filter_jit
def image_of(grid, position, length):
    """What a star of this width looks like."""
    index, weight = grid.weights(position, length)
    return grid.images(jnp.zeros((grid.n_spaxel, 1)).at[index[0], 0].add(weight[0]))[:, :, 0]


@pytest.mark.parametrize(("sigma", "n_step"), [(2.0, 1), (2.9, 2), (4.0, 2), (5.7, 4), (12.0, 8)])
def test_a_class_on_a_coarser_grid_is_a_gaussian(sigma, n_step):
    """Wherever its star lies, to 1 % of the peak, with its light and width and place exactly; as many cells as the
    class needs, not more."""
    classes = classes_of(sigma)
    assert classes.grids[0].n_step == n_step
    side = 2 * int(4.2 * sigma) + 21
    grid = SpaxelGrid(Footprint(side, side, 1.0).painted(classes.reach), "smoothed", classes)
    assert grid.n_spaxel <= ((side + 2 * classes.reach) / n_step + 2) ** 2
    for place in ((0.0, 0.0), (0.3, -2.4), (-5.5, 1.7)):
        found = np.asarray(image_of(grid, jnp.asarray([[-place[0], place[1], 0.0]]), jnp.asarray([sigma])))
        light, centre, variances = moments(found)
        assert light == pytest.approx(1.0, rel=1e-6)
        np.testing.assert_allclose(centre, place, atol=1e-3 * sigma)
        np.testing.assert_allclose(np.sqrt(variances), sigma, rtol=5e-3)
        edges, width = np.arange(side + 1) - side / 2, np.sqrt(sigma**2 - 1 / 12)
        expected = np.outer(*(np.diff(norm.cdf(edges, centre, width)) for centre in reversed(place)))
        assert np.abs(found - expected).max() < 1e-2 * expected.max()


def test_even_light_stays_even_on_every_layer():
    """Of a Gaussian sampled at the places of a coarse grid nothing is seen."""
    classes = classes_of(0.5, 1.42, 2.0, 4.0, 11.4)
    inner = (30, 26)
    starts = classes.starts(inner)
    for number, grid in enumerate(classes.grid_of_each()):
        columns = np.zeros((starts[-1], 1))
        columns[starts[number] : starts[number + 1]] = grid.n_step**2
        image = np.asarray(together(classes, jnp.asarray(columns), inner))
        np.testing.assert_allclose(image, 1.0, rtol=2e-3 if grid.n_step > 1 else 1e-12)


def test_stars_without_widths_are_refused():
    stars = vars(galaxy_of([(0, 0, 0)], 0.3).stars)
    bare = Galaxy(Stars(**{**stars, "smoothing_length": None}))
    with pytest.raises(ConfigError, match=r"engine.deposit: expected stars with a smoothing_length .* got none"):
        Pipeline.from_config(configuration(), bare)
    with pytest.raises(ConfigError, match="got no galaxy"):
        Pipeline.from_config(configuration())
    with pytest.raises(ValueError, match=r"stars\.smoothing_length: expected one per particle"):
        pipeline_for(0.9)(bare)


def test_shares_keep_light_and_variance():
    classes = classes_of(0.5, 0.7, 1.0, 1.4)
    sigma = np.array([0.1, 0.5, 0.6, 0.7, 0.99, 1.2, 1.4, 3.0])
    layer, share = (np.asarray(part) for part in shares_of(classes, jnp.asarray(sigma)))
    np.testing.assert_allclose(share.sum(axis=1), 1.0)
    assert (share >= 0).all()
    variance = (share * np.asarray(classes.sigma)[layer] ** 2).sum(axis=1)
    np.testing.assert_allclose(variance, np.clip(sigma, 0.5, 1.4) ** 2, rtol=1e-12)
    one = classes_of(0.5)
    layer, share = (np.asarray(part) for part in shares_of(one, jnp.asarray(sigma)))
    assert (layer == 0).all()
    np.testing.assert_allclose(share.sum(axis=1), 1.0)
