"""A PSF given as images at several wavelengths: from its file to the cube, and to a fit of data that numpy and scipy
made, against scipy's convolution of every bin."""

import functools

import jax
import numpy as np
import pytest
from astropy.io import fits
from observing import check_fit, configuration
from scipy.signal import fftconvolve
from small import few_stars, muse

from rubix_like import Pipeline, load_config, make_mesh

PIXEL, FINE, REACH = 0.2, 4, 6
"""arcsec; the file's pixels along a spaxel's side; spaxels on each side that its images reach."""

SIDE = 5
RANGES = {"few bins": (5000.0, 5300.0, 10.0), "many bins": (4750.0, 9350.0, 10.0)}


@functools.cache
def planes(first, last):
    """Wavelengths, and images on fine pixels: a core that narrows and a tail to one side that grows with wavelength."""
    table = np.array([first + 0.1 * (last - first), first + 0.4 * (last - first), last])
    n = FINE * (2 * REACH + 1)
    y, x = (np.indices((n, n)) - (n - 1) / 2) / FINE
    images = []
    for sigma, tail in ((1.6, 0.0), (1.2, 0.2), (0.9, 0.5)):
        core = np.exp(-0.5 * (x**2 + (y / 1.2) ** 2) / sigma**2) / sigma**2
        images.append(core + tail * np.exp(-0.5 * ((x - 2.0) ** 2 + (y + 1.0) ** 2)))
    return table, np.array(images)


def at_each(wavelength, first, last):
    """The image on spaxels at each wavelength, of light 1: linear between the planes, constant beyond them."""
    table, images = planes(first, last)
    side = 2 * REACH + 1
    binned = images.reshape(len(table), side, FINE, side, FINE).sum(axis=(2, 4))
    binned /= binned.sum(axis=(1, 2), keepdims=True)
    return np.stack(
        [np.interp(wavelength, table, pixel) for pixel in binned.reshape(len(table), -1).T], axis=1
    ).reshape(len(wavelength), side, side)


def convolved(painted, wavelength, first, last):
    """Every bin's image of the wider field convolved by scipy with the PSF of its wavelength."""
    images = at_each(wavelength, first, last)
    return np.stack([fftconvolve(painted[:, :, k], own, mode="valid") for k, own in enumerate(images)], axis=2)


@pytest.fixture(scope="module")
def psfs(tmp_path_factory):
    """The section `psf` of each range, with its file."""
    folder, found = tmp_path_factory.mktemp("psf"), {}
    for name, (first, last, _) in RANGES.items():
        table, images = planes(first, last)
        side = PIXEL / FINE / 3600
        sky = {"CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN", "CUNIT1": "deg", "CUNIT2": "deg"}
        header = fits.Header({"CDELT1": -side, "CDELT2": side, **sky})
        path = folder / f"{name}.fits".replace(" ", "_")
        fits.writeto(path, images, header)
        found[name] = {"kind": "image", "file": str(path), "wavelength": table.tolist(), "enclosed": 0.9999999}
    return found


def config_of(name, psf, side=SIDE, **engine):
    instrument = muse(*RANGES[name], fov=side * PIXEL, psf=psf)
    return configuration(instrument=instrument, engine={"tolerance": 1e-3, **engine})


@functools.cache
def galaxy():
    return few_stars(60, 1.5)


@functools.cache
def painted(name, method):
    """The cube before the PSF, as wide as it reaches."""
    config = config_of(name, None, SIDE + 2 * REACH, method=method)
    return np.asarray(Pipeline.from_config(config, galaxy(), mesh=make_mesh(1))(galaxy()).flux)


def cube_of(name, psf, method, in_slabs, n_devices=1):
    """The pipeline and its cube, of all stars at once or of three parts one after the other."""
    pipeline = Pipeline.from_config(config_of(name, psf, method=method), galaxy(), mesh=make_mesh(n_devices))
    if not in_slabs:
        return pipeline, np.asarray(pipeline(galaxy()).flux)
    parts = [jax.tree.map(lambda leaf, part=part: leaf[part], galaxy()) for part in np.split(np.arange(60), 3)]
    return pipeline, np.asarray(pipeline.observe_slabs(parts).flux)


WAYS = [
    pytest.param("few bins", "direct", False, 1, marks=pytest.mark.slow(2)),
    pytest.param("few bins", "direct", True, 1, marks=pytest.mark.slow(2)),
    pytest.param("many bins", "basis", False, 1, marks=pytest.mark.slow(4)),
    pytest.param("many bins", "basis", True, 8, marks=pytest.mark.slow(4)),
]


@pytest.mark.parametrize(("name", "method", "in_slabs", "n_devices"), WAYS)
def test_every_bin_is_convolved_with_the_image_of_its_wavelength(name, method, in_slabs, n_devices, psfs):
    """To the tolerance of `basis`, where the PSF acts on coefficients, and to rounding where it acts on each bin; no
    light is lost, and rows and columns are those of the file."""
    pipeline, found = cube_of(name, psfs[name], method, in_slabs, n_devices)
    stage, wavelength = pipeline.tables.cube[0], pipeline.frame.bins.wavelength
    assert stage.psf.reach == REACH
    assert any("in 10 % of the bins, which lie beyond, the PSF is" in note for note in pipeline.notes)
    assert pipeline.frame.meta["psf_kind"] == "image"
    expected = convolved(painted(name, method), wavelength, *RANGES[name][:2])
    error = 1e-7
    if method == "basis":
        assert pipeline.tables.paint[0].painter.by_terms
        error = pipeline.frame.meta["basis_psf_error"]
        assert 0 < error < 0.5e-3
    rms = np.sqrt(((found - expected) ** 2).mean(axis=2))
    assert (rms / expected.mean(axis=2).max()).max() < error
    assert np.abs(found - expected).max() < 10 * error * expected.max()
    mirrored = convolved(painted(name, method)[::-1], wavelength, *RANGES[name][:2])[::-1]
    assert np.abs(found - mirrored).max() > 0.01 * expected.max()


TRUTH = {"observation.velocity_offset": 60.0, "dust.a_v": 0.4}


@pytest.mark.slow(6)
def test_a_fit_finds_what_numpy_and_scipy_observed(psfs):
    """Stars painted without a PSF on a wide field, convolved bin by bin, with noise of 0.1 % of the mean: both numbers
    within 4 sigma, residuals as large as the noise; with the PSF of one wavelength for all they are not."""
    first, last, step = RANGES["few bins"]
    stars = few_stars(30, 0.2)
    instrument = muse(first, last, step, psf=psfs["few bins"])
    config = {
        "observation": {"redshift": 0.05, "inclination": 0, "position_angle": 0},
        "instrument": instrument,
        "dust": {"a_v": 0.1, "curve": "calzetti"},
        "engine": {"method": "direct", "precision": "float64"},
        "devices": {"data": 1},
        "fit": {
            "free": {"observation.velocity_offset": {"normal": [0, 100]}, "dust.a_v": {"uniform": [0, 1]}},
            "starts": 1,
            "candidates": 1,
        },
    }
    wide = {"instrument.psf": None, "instrument.fov": (SIDE + 2 * REACH) * PIXEL}
    wide = load_config(config, overrides=wide | TRUTH)
    pipeline = Pipeline.from_config(wide, stars, mesh=make_mesh(1))
    flux = convolved(np.asarray(pipeline(stars).flux), pipeline.frame.bins.wavelength, first, last)
    check_fit(config, flux, stars, TRUTH)
    mean = at_each(pipeline.frame.bins.wavelength, first, last).mean(axis=0)
    one = np.stack(
        [fftconvolve(np.asarray(pipeline(stars).flux)[:, :, k], mean, "valid") for k in range(flux.shape[2])], 2
    )
    assert ((one - flux) ** 2).mean() > 100 * (1e-3 * flux.mean()) ** 2
