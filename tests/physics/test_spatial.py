"""PSF, aperture and deposit: flux and centroids are kept, widths add in quadrature, light from outside shines in."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from independent import moffat_in_spaxels
from observing import central_difference, configuration, galaxy_of, observe
from scipy.stats import norm
from small import white_light

from rubix_like import Pipeline, make_mesh

BINS = {"start": 5000.0, "stop": 5005.0, "step": 1.25}
ARCSEC_PER_KPC = 0.9892393
PIXEL = 0.2
N = 60
"""Stars of every galaxy, so that each program is compiled once."""

PSFS = {
    "none": None,
    "narrow": {"fwhm": 0.15, "enclosed": 0.99999},
    "wide": {"fwhm": 1.6, "enclosed": 0.99999},
    "moffat": {"kind": "moffat", "fwhm": 0.8, "beta": 2.5},
    "chromatic": {"kind": "moffat", "wavelength": [4990, 5010], "fwhm": [1.2, 0.6], "beta": 3.0},
    "gaussians": {
        "kind": "gaussians",
        "components": [{"fwhm": 0.6, "fraction": 0.7}, {"fwhm": 1.5, "fraction": 0.3}],
    },
}


@functools.cache
def pipeline_of(psf, fov, deposit="nearest", aperture=None, n_devices=1):
    """Of a field of this side (arcsec); an aperture is a circle of this diameter."""
    aperture = None if aperture is None else {"shape": "circle", "size": aperture}
    config = configuration(
        instrument={"fov": fov, "wavelength": BINS, "psf": PSFS[psf], "aperture": aperture},
        engine={"deposit": deposit},
    )
    return Pipeline.from_config(config, mesh=make_mesh(n_devices))


def at(*places):
    """Stars at (East, North) spaxels from the field's centre, as many and as bright at each place."""
    kpc = PIXEL / ARCSEC_PER_KPC * np.array([(*place, 0.0) for place in places])
    return galaxy_of(np.repeat(kpc, N // len(places), axis=0))


@functools.cache
def patch():
    """Stars, half of which are outside of a field of 3 arcsec."""
    return galaxy_of(np.random.default_rng(5).normal(size=(N, 3)))


def light_of(psf, fov, galaxy, parameters=None):
    pipeline = pipeline_of(psf, fov)
    return white_light(pipeline(galaxy) if parameters is None else pipeline(galaxy, parameters))


def moments(light):
    """Centroid (column, row) from the field's centre and the variances along columns and rows, in spaxels."""
    rows, columns = (np.arange(n) - (n - 1) / 2 for n in light.shape)
    total = light.sum()
    x, y = light.sum(axis=0) @ columns / total, light.sum(axis=1) @ rows / total
    return (x, y), (light.sum(axis=0) @ (columns - x) ** 2 / total, light.sum(axis=1) @ (rows - y) ** 2 / total)


@pytest.mark.parametrize(("fwhm", "planned"), [(0.15, "narrow"), (0.3, "wide"), (0.8, "wide"), (1.6, "wide")])
def test_points_are_as_wide_as_the_psf(fwhm, planned):
    """From narrower than a spaxel to eight of them, the Gaussian integrated over spaxels; all light is in the field."""
    where = lambda p: p.instrument.psf.fwhm  # noqa: E731
    parameters = eqx.tree_at(where, pipeline_of(planned, 15.0).parameters, jnp.asarray(fwhm))
    light = light_of(planned, 15.0, at((0, 0), (5, -3)), parameters)
    along = [
        np.diff(norm.cdf((np.arange(76) - 37.5 - middle) * PIXEL, 0.0, fwhm / np.sqrt(8 * np.log(2))))
        for middle in (0, -5, -3)
    ]
    expected = 0.5 * (np.outer(along[0], along[0]) + np.outer(along[2], along[1]))
    np.testing.assert_allclose(light / light.sum(), expected, atol=0.5e-4 * along[0].max() ** 2)
    np.testing.assert_allclose(moments(light)[0], (-2.5, -1.5), atol=1e-9)
    assert light.sum() == pytest.approx(light_of("none", 5.0, at((0, 0))).sum(), rel=1e-6)


def test_aperture_masks_after_the_psf():
    """Stars outside the circle still light its inside; outside there is no flux, and bit 2."""
    bare, masked = (pipeline_of("wide", 15.0, aperture=size)(patch()) for size in (None, 3.0))
    centres = (np.arange(75) - 37) * PIXEL
    inside = np.hypot(*np.meshgrid(centres, centres)) <= 1.5
    np.testing.assert_allclose(
        np.asarray(masked.flux), np.where(inside[:, :, None], np.asarray(bare.flux), 0.0), rtol=1e-12
    )
    np.testing.assert_array_equal(np.asarray(masked.mask), np.where(inside, 0, 2)[:, :, None] * np.ones(5, dtype=int))


@pytest.mark.parametrize(("deposit", "variance"), [("nearest", None), ("cic", None), ("tsc", 0.25)])
def test_deposit_keeps_light_and_centroids(deposit, variance):
    """Centroids exactly for cic and tsc, wherever in a spaxel the star lies; tsc adds the same variance everywhere.
    `nearest` puts a star into its spaxel; the offset is (East, North) in arcsec: three spaxels East are three columns
    less. A star beyond the field is dark."""
    pipeline = pipeline_of("none", 5.0, deposit)
    moved = eqx.tree_at(lambda p: p.observation.offset, pipeline.parameters, jnp.asarray([0.6, -0.4]))
    places = [
        ((0.0, 0.0), None),
        ((0.31, -0.77), None),
        ((-2.5, 1.5), None),
        ((3.14, 2.72), None),
        ((0.49, -0.49), moved),
    ]
    every = white_light(pipeline(galaxy_of(np.random.default_rng(1).uniform(-1.5, 1.5, size=(N, 3)))))
    for place, parameters in places:
        light = white_light(pipeline(at(place), parameters or pipeline.parameters))
        assert light.sum() == pytest.approx(every.sum(), rel=1e-12)
        centre, variances = moments(light)
        east, north = np.add(place, (3, -2)) if parameters else place
        if deposit == "nearest":
            (lit,) = np.argwhere(light > 0)
            assert np.abs(lit - np.array([12 + north, 12 - east])).max() < 0.5 + 1e-9
        else:
            np.testing.assert_allclose(centre, (-east, north), atol=1e-6)
        if variance is not None:
            np.testing.assert_allclose(variances, variance, rtol=1e-6)
    assert white_light(pipeline(at((15, 1)))).sum() == 0


def test_a_point_source_is_a_moffat_integrated_over_spaxels():
    """All its light is in a field as large as the support."""
    light = light_of("moffat", 15.0, at((0, 0)))
    expected = moffat_in_spaxels(75, 0.8, 2.5, cut=15)
    np.testing.assert_allclose(light / light.sum(), expected, atol=3e-4 * expected.max())
    assert light.sum() == pytest.approx(light_of("none", 5.0, at((0, 0))).sum(), rel=1e-6)


def test_a_point_source_has_its_own_width_at_every_wavelength():
    cube = pipeline_of("chromatic", 15.0)(at((0, 0)))
    flux = np.asarray(cube.flux)
    for number, wavelength in enumerate(np.asarray(cube.wavelength)):
        fwhm = np.interp(wavelength, [4990, 5010], [1.2, 0.6])
        expected = moffat_in_spaxels(75, fwhm, 3.0, cut=15)
        found = flux[:, :, number] / flux[:, :, number].sum()
        np.testing.assert_allclose(found, expected, atol=1e-3 * expected.max())
    single = np.asarray(pipeline_of("none", 5.0)(at((0, 0))).flux).sum(axis=(0, 1))
    np.testing.assert_allclose(flux.sum(axis=(0, 1)), single, rtol=1e-6)


@pytest.mark.parametrize("psf", ["wide", "moffat", "chromatic", pytest.param("gaussians", marks=pytest.mark.slow)])
def test_every_kind_of_psf_lets_light_shine_in(psf):
    """The same image as in a larger field."""
    small, large = (np.asarray(pipeline_of(psf, fov)(patch()).flux) for fov in (3.0, 15.0))
    np.testing.assert_allclose(small, large[30:-30, 30:-30], rtol=1e-9, atol=1e-12 * large.max())


@pytest.mark.long
@pytest.mark.parametrize("psf", ["moffat", "chromatic", "gaussians"])
def test_every_kind_of_psf_is_the_same_on_eight_devices(psf):
    one, eight = (np.asarray(pipeline_of(psf, 3.0, n_devices=n)(patch()).flux) for n in (1, 8))
    np.testing.assert_allclose(eight, one, rtol=1e-9, atol=1e-12 * one.max())


@pytest.mark.parametrize(
    ("psf", "engine"),
    [
        pytest.param({"fwhm": 0.8}, {}, marks=pytest.mark.long),
        pytest.param(PSFS["moffat"], {}, marks=pytest.mark.long),
        pytest.param(PSFS["chromatic"], {}, marks=pytest.mark.long),
        ({"fwhm": 0.3}, {"deposit": "tsc", "oversampling": 3}),
        (PSFS["chromatic"], {"deposit": "tsc", "oversampling": 2}),
    ],
    ids=["gaussian", "moffat", "chromatic", "gaussian-finer", "chromatic-finer"],
)
def test_psf_before_projection_is_psf_after_it(psf, engine):
    """Method basis convolves coefficients, method direct the cube; also where several cells make a spaxel."""
    rng = np.random.default_rng(6)
    galaxy = galaxy_of(rng.normal(size=(30, 3)), velocity=rng.normal(0, 100, 30))
    cubes = [
        observe(
            configuration(instrument={"fov": 3.0, "wavelength": BINS, "psf": psf}, engine={"method": method, **engine}),
            galaxy,
        )
        for method in ("basis", "direct")
    ]
    found, expected = (np.asarray(cube.flux) for cube in cubes)
    np.testing.assert_allclose(found, expected, rtol=2e-3)
    velocity = [np.asarray(cube.mean_v_los) for cube in cubes]
    np.testing.assert_allclose(*velocity, atol=0.1)


@pytest.mark.parametrize("psf", ["moffat", "chromatic"])
def test_gradient_of_the_psf_is_a_finite_difference(psf):
    galaxy, pipeline = patch(), pipeline_of(psf, 3.0)
    weights = jnp.asarray(np.random.default_rng(8).normal(size=(15, 15, 5)))

    @jax.jit
    @jax.value_and_grad
    def weighted(widths):
        parameters = eqx.tree_at(lambda p: p.instrument.psf, pipeline.parameters, widths)
        return (pipeline(galaxy, parameters).flux * weights).sum()

    widths = pipeline.parameters.instrument.psf
    _, gradient = weighted(widths)
    for name in ("fwhm", "beta"):
        where = lambda p, name=name: getattr(p, name)  # noqa: E731
        slopes = [
            central_difference(lambda p: weighted(p)[0], widths, where, 1e-5, index)
            for index in np.ndindex(where(widths).shape)
        ]
        np.testing.assert_allclose(np.ravel(where(gradient)), slopes, rtol=1e-6, atol=1e-6 * np.abs(slopes).max())
