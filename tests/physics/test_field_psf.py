"""A PSF that varies over the field: against sums by numpy and scipy, one convolution for each place of the grid."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from astropy.io import fits
from independent import moffat_in_spaxels
from observing import check_fit, configuration, galaxy_of
from scipy.signal import fftconvolve
from scipy.stats import norm
from small import few_stars, muse, psf_settings

from rubix_like import ConfigError, Pipeline, load_config, make_mesh
from rubix_like.instrument.blur import blur
from rubix_like.instrument.field_psf import FieldPSF
from rubix_like.instrument.psf import PSFParameters

PIXEL, SIDE = 0.2, 9
X, Y = [-0.8, 0.7], [-0.6, 0.0, 0.9]
"""arcsec: columns and rows of the grid."""

WIDTH = np.array([[1.0, 1.5], [0.8, 1.2], [1.1, 0.9]])
BETA = np.array([[2.5, 3.0], [2.5, 4.0], [2.2, 2.5]])
TABLE = [4750.0, 9350.0]
SLOPE = [1.1, 0.9]

PLACES = [(row, column) for row in range(len(Y)) for column in range(len(X))]


def places(**keys):
    """The grid, its places in an order of their own."""
    listed = [
        {"at": [X[column], Y[row]], **{key: value[row][column] for key, value in keys.items()}}
        for row, column in PLACES
    ]
    return listed[::-1]


PSFS = {
    "gaussian": {"fwhm": 0.5, "enclosed": 0.99, "field": places(width=WIDTH)},
    "moffat": {"kind": "moffat", "fwhm": 0.5, "beta": 2.5, "enclosed": 0.9, "field": places(width=WIDTH, beta=BETA)},
    "components": {
        "kind": "gaussians",
        "components": [{"fwhm": 0.5, "fraction": 2}, {"fwhm": 0.9, "fraction": 1}],
        "enclosed": 0.99,
        "field": places(width=WIDTH),
    },
    "chromatic": {
        "kind": "moffat",
        "wavelength": TABLE,
        "fwhm": [0.6, 0.5],
        "beta": 2.5,
        "enclosed": 0.9,
        "field": places(width=[[[own * slope for slope in SLOPE] for own in row] for row in WIDTH]),
    },
}


@functools.cache
def galaxy():
    return few_stars(30, 1.5)


def config(psf, side=SIDE, wavelengths=(5000, 5030, 10), **engine):
    return configuration(instrument=muse(*wavelengths, fov=side * PIXEL, psf=psf), engine=engine)


def cube_of(psf, n_devices=1, stars=None, **keys):
    stars = stars or galaxy()
    pipeline = Pipeline.from_config(config(psf, **keys), stars, mesh=make_mesh(n_devices))
    return pipeline, np.asarray(pipeline(stars).flux)


def gaussian(n, fwhm):
    sigma, offset = fwhm / np.sqrt(8 * np.log(2)) / PIXEL, np.arange(n) - n // 2
    along = norm.cdf((offset + 0.5) / sigma) - norm.cdf((offset - 0.5) / sigma)
    return np.outer(along, along) / along.sum() ** 2


def at(name, row, column, n, wavelength):
    """The image of a place, by the formula."""
    width = WIDTH[row, column]
    if name == "gaussian":
        return gaussian(n, 0.5 * width)
    if name == "components":
        return (2 * gaussian(n, 0.5 * width) + gaussian(n, 0.9 * width)) / 3
    if name == "moffat":
        return moffat_in_spaxels(n, 0.5 * width, BETA[row, column])
    fwhm = np.interp(wavelength, TABLE, np.array([0.6, 0.5]) * width * SLOPE)
    return moffat_in_spaxels(n, fwhm, 2.5)


def bilinear(number, nodes, places):
    return np.interp(places, nodes, np.eye(len(nodes))[number])


def summed(painted, reach, image_of):
    """Each plane of the wider field, weighted for every place and convolved by scipy."""
    (n_y, n_x, n_wave), total = painted.shape, 0.0
    x, y = ((n_x - 1) / 2 - np.arange(n_x)) * PIXEL, (np.arange(n_y) - (n_y - 1) / 2) * PIXEL
    for row, column in PLACES:
        weight = bilinear(row, Y, y)[:, None] * bilinear(column, X, x)[None, :]
        planes = [
            fftconvolve(painted[:, :, k] * weight, image_of(row, column, 2 * reach + 1, k), mode="valid")
            for k in range(n_wave)
        ]
        total = total + np.stack(planes, axis=2)
    return total


CASES = [
    pytest.param("gaussian", 1e-12),
    pytest.param("components", 1e-12, marks=pytest.mark.long),
    pytest.param("moffat", 1e-3, marks=pytest.mark.long),
    pytest.param("chromatic", 1e-3, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "error"), CASES)
def test_every_place_has_its_psf(name, error):
    """Gaussians to rounding, Moffats to the error of their images; the header says how many and how wide."""
    pipeline, found = cube_of(PSFS[name])
    reach, wavelength = pipeline.tables.cube[0].psf.reach, pipeline.frame.bins.wavelength
    painted = cube_of(None, side=SIDE + 2 * reach)[1]
    expected = summed(painted, reach, lambda row, column, n, k: at(name, row, column, n, wavelength[k]))
    np.testing.assert_allclose(found, expected, atol=error * expected.max(), rtol=0)
    meta = pipeline.frame.meta
    assert meta["psf_places"] == len(PLACES)
    if name == "gaussian":
        middle = np.array([bilinear(row, Y, 0.0) * bilinear(column, X, 0.0) for row, column in PLACES])
        assert meta["psf_fwhm"] == pytest.approx(0.5 * middle @ WIDTH.reshape(-1))
        assert (meta["psf_fwhm_smallest"], meta["psf_fwhm_largest"]) == pytest.approx((0.4, 0.75))


@pytest.mark.slow
def test_coefficients_go_through_the_psfs_of_all_places():
    """Method basis, in which a chromatic PSF acts on coefficients by terms: within the error in the header of method
    direct, which convolves every bin; the same on 8 devices."""
    keys = {"wavelengths": (4750, 9350, 10), "tolerance": 1e-3, "method": "basis"}
    pipeline, found = cube_of(PSFS["chromatic"], **keys)
    assert pipeline.tables.paint[0].painter.by_terms
    error = pipeline.frame.meta["basis_psf_error"]
    assert 0 < error < 0.5e-3
    reach, wavelength = pipeline.tables.cube[0].psf.reach, pipeline.frame.bins.wavelength
    every = slice(0, None, 90)
    painted = cube_of(None, side=SIDE + 2 * reach, **keys)[1][:, :, every]
    expected = summed(painted, reach, lambda row, column, n, k: at("chromatic", row, column, n, wavelength[every][k]))
    np.testing.assert_allclose(found[:, :, every], expected, atol=1e-3 * expected.max(), rtol=0)
    on_eight = cube_of(PSFS["chromatic"], n_devices=8, **keys)[1]
    np.testing.assert_allclose(on_eight, found, atol=1e-12 * found.max(), rtol=0)


def blurred(fwhm, beta, image, settings):
    field = FieldPSF.build(settings, PIXEL, np.array([5000.0, 6000.0]))
    widths = PSFParameters(fwhm=fwhm, beta=beta)
    return field.blurred(image, field.images_at(widths, np.asarray(5000.0)), blur)


@functools.cache
def light():
    """A random image with an empty margin of 12 spaxels, and the sections of a narrow PSF that reaches as far."""
    image = np.zeros((40, 36, 1))
    image[12:-12, 12:-12] = np.random.default_rng(1).uniform(0, 1, (16, 12, 1))
    settings = psf_settings(PSFS["moffat"] | {"enclosed": 0.85})
    return jnp.asarray(image), settings, jax.jit(functools.partial(blurred, settings=settings))


def test_no_light_is_lost_and_gradients_are_differences():
    """All light arrives, to rounding; derivatives by FWHM and beta, which vary at all places together."""
    image, settings, function = light()
    place = np.asarray(settings.fwhm), np.asarray(settings.beta)
    found = function(*place, image)
    assert FieldPSF.build(settings, PIXEL, np.array([5000.0, 6000.0])).psf.reach <= 6
    assert float(found.sum()) == pytest.approx(float(image.sum()), rel=1e-13)
    weight = np.random.default_rng(2).standard_normal(found.shape)
    slopes = jax.jit(jax.grad(lambda *own: jnp.sum(function(*own, image) * weight), argnums=(0, 1)))(*place)
    for number, slope in enumerate(slopes):
        ends = [[own + sign * 1e-4 * (n == number) for n, own in enumerate(place)] for sign in (1, -1)]
        sides = [float(np.sum(np.asarray(function(*end, image)) * weight)) for end in ends]
        assert float(slope) == pytest.approx((sides[0] - sides[1]) / 2e-4, rel=1e-6)


@pytest.mark.slow
def test_images_of_places(tmp_path):
    """One file for each place, in any orientation: rows, columns and places are where they belong."""
    cut, n = 5, 7
    y, x = (np.indices((cut * n, cut * n)) - (cut * n - 1) / 2) / cut

    def image(row, column):
        core = np.exp(-(x**2 + y**2) / (1 + row))
        return core + 0.3 * np.exp(-((x - 1 - column) ** 2 + (y - row) ** 2))

    names = [[str(tmp_path / f"{row}_{column}.fits") for column in range(len(X))] for row in range(len(Y))]
    for row, column in PLACES:
        fits.writeto(names[row][column], image(row, column))
    scale = [[PIXEL / cut] * len(X)] * len(Y)
    psf = {"kind": "image", "enclosed": 0.999999, "field": places(file=names, file_scale=scale)}
    pipeline, found = cube_of(psf)
    reach = pipeline.tables.cube[0].psf.reach
    assert reach == n // 2

    def binned(row, column, n, k):
        own = image(row, column).reshape(n, cut, n, cut).sum(axis=(1, 3))
        return own / own.sum()

    expected = summed(cube_of(None, side=SIDE + 2 * reach)[1], reach, binned)
    np.testing.assert_allclose(found, expected, atol=1e-12 * expected.max(), rtol=0)


@pytest.mark.slow
def test_fibres_behind_it():
    """A fibre's light: that of each place's PSF alone, times the weights of the places that the stars lie at."""
    kpc = (0.1, 0.5)
    instrument = {
        "fibres": {
            "bundle": "manga-19",
            "arrangement": "hexagon",
            "rings": 1,
            "pitch": 0.9,
            "diameter": 0.8,
            "dithers": [[0, 0], [0.2, 0.1]],
            "cube": {"method": "shepard", "sigma": 0.3, "limit": 0.9},
            "spectra": "none",
        }
    }

    def fibres(psf, place):
        star = galaxy_of([(place[0], place[1], 0.0)])
        settings = config(psf, side=9, deposit="nearest")
        settings = load_config(settings, overrides={"instrument.fibres": instrument["fibres"]})
        return np.asarray(Pipeline.from_config(settings, star, mesh=make_mesh(1))(star).fibres.flux)

    scale = np.asarray(Pipeline.from_config(config(None), galaxy(), mesh=make_mesh(1)).tables.arcsec_per_kpc)
    x, y = (PIXEL * np.round(own * scale / PIXEL) for own in kpc)  # the middle of its spaxel
    found = fibres(PSFS["gaussian"], kpc)
    expected = 0.0
    for row, column in PLACES:
        share = bilinear(row, Y, y) * bilinear(column, X, x)
        if share > 0:
            expected = expected + share * fibres({"fwhm": 0.5 * WIDTH[row, column], "enclosed": 0.9999}, kpc)
    np.testing.assert_allclose(found, expected, rtol=2e-6)


WRONG = {
    "expected each place of a grid once": places(width=WIDTH)[1:],
    "a PSF of kind gaussian may differ by width; got beta": places(beta=BETA),
    "expected one value, or one per wavelength (psf.wavelength is not given), got 2": places(
        width=[[[1.0, 2.0]] * 2] * 3
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_fields_are_refused(message):
    with pytest.raises(ConfigError) as found:
        config({"fwhm": 0.5, "field": WRONG[message]})
    assert message in str(found.value)


@pytest.mark.long
def test_a_fit_finds_the_seeing():
    """Of a cube that scipy summed over the places, with noise of 0.1 % of its mean: the FWHM, of which all places have
    their multiples, and a velocity within 4 sigma."""
    stars, truth = few_stars(30, 0.3), {"observation.velocity_offset": 60.0}
    given = config(PSFS["gaussian"], side=7, wavelengths=(5000, 5300, 10), method="direct")
    given = load_config(given, overrides={"engine.deposit": "nearest", "devices.data": 1})
    wide = load_config(given, overrides={"instrument.psf": None, "instrument.fov": (7 + 20) * PIXEL, **truth})
    pipeline = Pipeline.from_config(wide, stars, mesh=make_mesh(1))
    painted = np.asarray(pipeline(stars).flux)
    flux = summed(painted, 10, lambda row, column, n, k: gaussian(n, 0.5 * WIDTH[row, column]))
    section = {
        "free": {
            "observation.velocity_offset": {"normal": [0, 100]},
            "instrument.psf.fwhm": {"uniform": ["0.3 arcsec", "0.7 arcsec"]},
        },
        "starts": 1,
        "candidates": 1,
    }
    settings = load_config(given, overrides={"instrument.psf.enclosed": 0.9999999, "fit": section})
    check_fit(settings, flux, stars, truth | {"instrument.psf.fwhm": 0.5})
