"""Several sets of data in one fit: what each sees of the galaxy, and the posterior of all, by formulas in numpy."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from astropy.coordinates import SkyCoord
from astropy.io import fits
from small import few_stars, fit_section, mock_data, muse

from rubix_like import ConfigError, Pipeline, load_config, log_posterior, make_mesh
from rubix_like.cube.observed.observed_spectrum import read_spectrum
from rubix_like.cube.observed.reading_observed import read_image
from rubix_like.extend import Footprint, WavelengthBins
from rubix_like.inference.data_grid import cells_of, displacement_of
from rubix_like.inference.data_sets import band_of
from rubix_like.inference.samplers.predictive import models_of_draws, predict

SHAPE = (3, 3, 31)
CONFIG = {
    "observation": {"redshift": 0.05, "inclination": 0, "position_angle": 0},
    "instrument": muse(fov="0.6 arcsec", lsf={"fwhm": "40 Angstrom"}),
    "dust": {"a_v": 0.1, "curve": "calzetti"},
    "engine": {"method": "direct", "precision": "float64", "velocity_range": 900, "deposit": "tsc"},
    "devices": {"data": 1},
}
FREE = {"observation.velocity_offset": {"normal": [0, "100 km/s"]}, "dust.a_v": {"uniform": [0, 2]}}
DEGREE, SIGMA_C, SIGMA_SKY = 2, 0.05, 3.0
SECOND = {
    "scale": {"log_normal": [1, 0.1]},
    "shift": {"normal": [0, "0.1 arcsec"]},
    "velocity_shift": {"normal": [0, "20 km/s"]},
    "lsf_scale": {"uniform": [1.0, 1.4]},
    "polynomial": {"degree": DEGREE, "sigma": SIGMA_C},
    "sky": {"sigma": SIGMA_SKY},
}
VALUES = {
    "observation.velocity_offset": 60.0,
    "dust.a_v": 0.4,
    "data.second.scale": 1.1,
    "data.second.shift": np.array([0.07, -0.04]),
    "data.second.velocity_shift": -15.0,
    "data.second.lsf_scale": 1.2,
    "data.second.polynomial": np.array([0.03, -0.02]),
    "data.second.sky": np.array([2.0]),
}
_HALF = np.random.default_rng(1).normal(size=(31, 31)) + 6 * np.eye(31)
MATRIX = _HALF @ _HALF.T
"""Covariance of the spectrum's bins, up to their variances."""

VARIANCE = np.random.default_rng(2).uniform(1, 2, (1, 1, 31))
CURVE = np.array([[5050.0, 0.0], [5100.0, 0.7], [5180.0, 1.0], [5240.0, 0.0]])
"""A band: Angstrom in vacuum, response."""


@functools.cache
def galaxy():
    return few_stars(30, 0.1)


def mock(n_wave=31, **changes):
    """Data with a place on the sky."""
    return replace(mock_data((3, 3, n_wave)), ra=150.0, dec=2.0, **changes)


def cube_of(**overrides):
    """What a pipeline of its own makes, without noise."""
    config = load_config({**CONFIG, "noise": None}, overrides=overrides)
    return np.asarray(Pipeline.from_config(config, galaxy(), make_mesh(1))(galaxy()).flux)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("sets")
    np.savetxt(place / "curve.txt", CURVE)
    return place


@pytest.fixture(scope="module")
def posed(folder):
    """A cube with all nuisances, an image and a spectrum."""
    image = replace(mock(1), bins=band_of(str(folder / "curve.txt"), "filter").whole)
    spectrum = replace(mock_data((1, 1, 31)), footprint=Footprint(1, 1, 1.0), variance=VARIANCE)
    correlated = {"between": "wavelengths", "matrix": MATRIX.tolist()}
    aperture = {"size": "0.5 arcsec", "pixel_scale": "0.1 arcsec"}
    sets = {
        "second": {"cube": mock(), "nuisance": SECOND},
        "picture": {"image": image, "filter": str(folder / "curve.txt"), "bins": 40, "instrument": {"lsf": None}},
        "fibre": {"spectrum": spectrum, "aperture": aperture, "covariance": correlated},
    }
    return log_posterior(CONFIG, sets, FREE, galaxy=galaxy())


@pytest.fixture(scope="module")
def seen(posed):
    """The model of each set at `VALUES`."""
    return posed.flux(posed.to_unconstrained(VALUES))


RUN = {"observation.velocity_offset": 60.0, "dust.a_v": 0.4}


def test_nuisances_are_those_of_their_formulas(seen):
    """Shifts by a pipeline of these settings; the wider line spread by one that has it, to 1 % of the light between the
    ends; the calibration and the sky by numpy."""
    shifts = {"observation.velocity_offset": 45.0, "observation.offset": [0.07, -0.04]}
    wider = {"instrument.lsf": {"fwhm": "48 Angstrom"}}
    cube = cube_of(**{**RUN, **shifts, **wider})
    x = np.linspace(-1, 1, 31)
    continuum = 1 + 0.03 * x - 0.02 * 0.5 * (3 * x**2 - 1)
    expected = 1.1 * continuum * cube + 2.0
    error = np.abs(seen["second"] - expected)[:, :, 8:-8]
    unchanged = np.abs(1.1 * continuum * cube_of(**{**RUN, **shifts}) + 2.0 - expected)[:, :, 8:-8]
    assert error.max() < 2e-3 * cube.max()
    assert error.max() < 0.1 * unchanged.max()


def test_an_image_is_the_mean_flux_density_in_its_band(seen):
    """int F R lambda dlambda / int R lambda dlambda, by numpy's sum on a grid a hundred times as fine."""
    fine = {"start": 5052.375, "stop": 5237.625, "step": 4.75, "medium": "vacuum", "sampling": "linear"}
    cube = cube_of(**RUN, **{"instrument.wavelength": fine, "instrument.lsf": None})
    edges = 5050.0 + 4.75 * np.arange(41)
    grid = np.linspace(5050.0, 5240.0, 40001)
    grid = 0.5 * (grid[1:] + grid[:-1])
    weight = np.interp(grid, *CURVE.T) * grid
    spectrum = cube[:, :, np.searchsorted(edges, grid) - 1]
    np.testing.assert_allclose(seen["picture"][:, :, 0], spectrum @ weight / weight.sum(), rtol=1e-5)
    np.savetxt("wide.txt", np.concatenate([[[1000.0, 0.0]], CURVE, [[9000.0, 0.0]]]))
    band = band_of("wide.txt", "filter")  # cut to where it responds
    assert band.wavelength[[0, -1]].tolist() == [5050.0, 5240.0]
    assert band.weights(WavelengthBins(5000.0, 50.0, 7, "linear", "vacuum")).sum() == pytest.approx(1.0)


def test_a_spectrum_is_the_sum_inside_its_aperture(seen):
    cube = cube_of(**RUN, **{"instrument.pixel_scale": "0.1 arcsec", "instrument.fov": "0.5 arcsec"})
    place = (np.arange(400) - 199.5) * 0.5 / 400
    inside = np.hypot(place[:, None], place) < 0.25
    share = inside.reshape(5, 80, 5, 80).mean(axis=(1, 3))
    np.testing.assert_allclose(seen["fibre"][0, 0], np.einsum("yxw,yx->w", cube, share), rtol=0.01)
    _, share = cells_of(load_sets(fibre={"spectrum": "a", "aperture": {"size": [0.7]}})["fibre"].aperture)
    assert share.sum() * (0.7 / 15) ** 2 == pytest.approx(np.pi * 0.35**2, rel=2e-3)


def load_sets(**sets):
    return load_config({**CONFIG, "fit": {"free": FREE, "data": sets}}).fit.data


def test_the_posterior_is_the_sum_of_all_sets(posed, seen):
    """Normal densities of every voxel, those of the spectrum with correlated bins, and N(x; 0, 1)."""
    x = posed.to_unconstrained(VALUES)
    expected = scipy.stats.norm.logpdf(x).sum()
    used = np.asarray(posed.problem.posterior.likelihood.inverse_sigma).ravel()[: 9 * 31 + 9] > 0
    row = np.concatenate([seen["second"].ravel(), seen["picture"].ravel()])
    expected += scipy.stats.norm.logpdf(1.0 - row[used]).sum()  # flux and variance of the mock are 1
    sigma = np.sqrt(VARIANCE.ravel() / np.diag(MATRIX))
    covariance = MATRIX * np.outer(sigma, sigma)
    expected += scipy.stats.multivariate_normal.logpdf(1.0 - seen["fibre"].ravel(), cov=covariance)
    assert posed.log_likelihood(x) + posed.log_prior(x) == pytest.approx(expected, rel=1e-9)
    assert 0 < np.count_nonzero(~used) < 9 * 16  # the ends of the broadened spectra
    assert any("bins at the ends are left out" in note for note in posed.notes)


def test_draws_are_judged_set_by_set(posed, seen):
    """ln(likelihood) of each spaxel by scipy, none of correlated errors; discrepancies of each set on its own axes."""
    x = posed.to_unconstrained(VALUES)
    settings = fit_section(sampling={"predictive": 2}).sampling
    draws = np.stack([x, x])[None]
    found = predict(posed.problem, draws, settings)
    used = np.asarray(posed.problem.posterior.likelihood.inverse_sigma) > 0
    assert found.pointwise is None
    assert found.sets["fibre"].pointwise is None
    for data_set in posed.problem.sets[:2]:
        density = np.where(data_set.unpacked(used), scipy.stats.norm.logpdf(1.0 - seen[data_set.name]), 0)
        values = found.sets[data_set.name].pointwise.values
        assert values.shape == (1, 2, *data_set.shape[:2], 1)
        np.testing.assert_allclose(values[0, 1, :, :, 0], density.sum(axis=2), rtol=1e-7)
    fitted = posed.problem.sets[0].unpacked(used)
    drawn = models_of_draws(posed.problem, draws, 2, settings.log_likelihood).each[0].data[0, 0]
    residual = np.where(fitted, 1.0 - seen["second"], 0)
    light = np.where(fitted, seen["second"], 0)
    products = [np.sum(np.moveaxis(residual, axis, 0)[1:] * np.moveaxis(residual, axis, 0)[:-1]) for axis in range(3)]
    spaxels = np.sum(np.sum(light * residual, axis=2) ** 2 / np.sum(light**2, axis=2))
    along, size = np.sum(light * residual, axis=(0, 1)), np.sum(light**2, axis=(0, 1))
    bins = np.sum(along[size > 0] ** 2 / size[size > 0])
    expected = [np.sum(residual**2), *products, spaxels, bins, np.abs(residual).max()]
    np.testing.assert_allclose(drawn, expected, rtol=1e-7)
    assert "correlation along x of second" in found.checks
    assert {f"correlation along {axis} of fibre" for axis in ("y", "x")}.isdisjoint(found.checks)
    assert "correlation along wavelength of picture" not in found.checks
    assert "chi^2 of fibre" in found.checks


def test_the_gradient_is_that_of_finite_differences():
    """By all nuisances of one set."""
    posed = log_posterior(CONFIG, {"second": {"cube": mock(), "nuisance": SECOND}}, FREE, galaxy=galaxy())
    x, step = posed.to_unconstrained(VALUES), 1e-4
    _, gradient = posed.value_and_gradient(x)
    for number, label in enumerate(posed.labels):
        ends = [posed.value_and_gradient(x + change * np.eye(posed.size)[number])[0] for change in (step, -step)]
        assert gradient[number] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=2e-3, abs=1e-3), label


def test_the_galaxy_is_displaced_by_the_places_of_the_fields():
    config = load_config({**CONFIG, "observation": {**CONFIG["observation"], "offset": [1.0, -2.0]}})
    other = mock()
    other = replace(other, ra=150.002, dec=1.9995)
    east, north = displacement_of(config, other, mock())
    frames = [SkyCoord(data.ra, data.dec, unit="deg").skyoffset_frame() for data in (mock(), other)]
    galaxy = SkyCoord(1 / 3600, -2 / 3600, unit="deg", frame=frames[0]).transform_to(frames[1])
    assert east + 1.0 == pytest.approx(galaxy.lon.wrap_at("180d").arcsec, abs=1e-5)
    assert north - 2.0 == pytest.approx(galaxy.lat.arcsec, abs=1e-5)


def test_the_aperture_of_a_spectrum_that_comes_first_places_the_other_sets(folder):
    """An image 1 arcsec to the North sees the galaxy 1 arcsec to the South of its centre."""
    band = str(folder / "curve.txt")
    image = replace(mock(1), dec=2.0 + 1 / 3600, bins=band_of(band, "filter").whole)
    spectrum = replace(mock_data((1, 1, 31)), footprint=Footprint(1, 1, 1.0))
    aperture = {"size": "0.5 arcsec", "pixel_scale": "0.1 arcsec", "ra": 150.0, "dec": 2.0}
    sets = {
        "fibre": {"spectrum": spectrum, "aperture": aperture},
        "picture": {"image": image, "filter": band, "instrument": {"lsf": None}},
    }
    placed = log_posterior(CONFIG, sets, FREE, galaxy=galaxy()).problem.posterior.forward.sets
    np.testing.assert_allclose([model.displacement for model in placed], [[0, 0], [0, -1]], atol=1e-4)


def test_an_image_is_read_with_its_errors_and_its_place(tmp_path):
    """A flux per Hz becomes one per Angstrom at the pivot wavelength: F_lambda = F_nu c / lambda_p^2."""
    rng = np.random.default_rng(2)
    values, sigma = rng.uniform(1, 2, (4, 5)), rng.uniform(0.1, 0.2, (4, 5))
    header = fits.Header({"CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN", "CRPIX1": 3.0, "CRPIX2": 2.5, "CRVAL1": 150.0})
    for key, value in {"CRVAL2": 2.0, "CD1_1": -1e-4, "CD2_2": 1e-4, "BUNIT": "uJy"}.items():
        header[key] = value
    mask = np.zeros((4, 5), np.int16)
    mask[1, 2] = 4
    images = [fits.ImageHDU(own, header, name) for name, own in (("SCI", values), ("ERR", sigma), ("DQ", mask))]
    fits.HDUList([fits.PrimaryHDU(), *images]).writeto(tmp_path / "image.fits")
    np.savetxt(tmp_path / "curve.txt", CURVE)
    band = band_of(str(tmp_path / "curve.txt"), "filter")
    own = read_image(tmp_path / "image.fits", band.whole, None, None)
    grid = np.linspace(5050, 5240, 200001)
    response = np.interp(grid, *CURVE.T)
    pivot = np.sqrt(np.sum(response * grid) / np.sum(response / grid))
    factor = 1e-29 * 2.99792458e18 / pivot**2 / 1e-20
    np.testing.assert_allclose(own.flux[:, :, 0], factor * values, rtol=1e-6)
    np.testing.assert_allclose(own.variance[:, :, 0], (factor * sigma) ** 2, rtol=1e-6)
    assert (own.used[:, :, 0] == (mask == 0)).all()
    assert (own.ra, own.dec, own.pixel_scale) == pytest.approx((150.0, 2.0, 0.36))


@pytest.mark.parametrize("sampling", ["linear", "log"])
def test_a_spectrum_is_read_from_a_table(tmp_path, sampling):
    wavelength = np.geomspace(5000, 5100, 20) if sampling == "log" else np.linspace(5000, 5100, 20)
    unit = "1e-17 erg/s/cm2/Angstrom"
    columns = {"WAVELENGTH": (wavelength, None), "FLUX": (np.arange(20.0), unit), "SIGMA": (np.full(20, 0.5), unit)}
    made = [fits.Column(name, "D", unit, array=own) for name, (own, unit) in columns.items()]
    fits.BinTableHDU.from_columns(made).writeto(tmp_path / "spectrum.fits")
    own = read_spectrum(tmp_path / "spectrum.fits", "vacuum", None)
    assert (own.shape, own.sampling, own.medium) == ((1, 1, 20), sampling, "vacuum")
    np.testing.assert_allclose(own.flux[0, 0], 1000 * np.arange(20.0))
    np.testing.assert_allclose(own.variance, 500.0**2)
    np.testing.assert_allclose(own.wavelength, wavelength, rtol=1e-9)


OTHER = {"cube": "b.fits"}
REFUSED = {
    "expected names of letters": ({"a b": OTHER}, {}),
    "unknown key 'fit.data.b.cubes'": ({"b": {"cubes": "b.fits"}}, {}),
    "image: expected filter beside it, got none": ({"b": {"image": "b.fits"}}, {}),
    "spectrum: expected aperture beside it": ({"b": {"spectrum": "b.fits"}}, {}),
    "expected one of cube, image, spectrum and fibres": ({"b": {"cube": "b", "spectrum": "c"}}, {}),
    "polynomial: expected none of an image": ({"b": {"image": "b", "filter": "c", "nuisance": {"polynomial": 2}}}, {}),
    "bins: expected none of a cube, whose data have their own, got 32": ({"b": {**OTHER, "bins": 32}}, {}),
    "pixel_scale: expected null for a spectrum": (
        {"b": {"spectrum": "b", "aperture": {"size": 1}, "pixel_scale": 0.2}},
        {},
    ),
    "covariance: expected auto, null or a matrix, got data; data of kind fibres are independent": (
        {"b": {"fibres": "b.fits", "covariance": "data"}},
        {},
    ),
    "windows: expected null beside several data sets": ({"b": OTHER}, {"windows": [[5000, 5100]]}),
    "auto or null beside several data sets, got data; each set has its own: fit.data.b.covariance": (
        {"b": OTHER},
        {"likelihood": {"covariance": "data"}},
    ),
    "give it as fit.data.b.nuisance.psf_fwhm": ({"b": OTHER}, {"free": {"instrument.psf.fwhm": {"uniform": [1, 2]}}}),
    "give it as fit.data.b.nuisance.scale": ({"b": OTHER}, {"free": {"data.b.scale": {"uniform": [1, 2]}}}),
    "fit.data.b: expected cube: FILE, or data given in Python, got neither": ({"b": {}}, {}),
    "expected an ObservedCube of shape (1, 1, wave) with an aperture": (
        {"b": {"spectrum": mock_data(SHAPE), "aperture": {"size": 1}}},
        {},
    ),
    "fit.data.b.nuisance.psf_fwhm: expected an instrument with a psf": (
        {"b": {"cube": mock_data(SHAPE), "nuisance": {"psf_fwhm": {"uniform": [1, 2]}}}},
        {},
    ),
    "fit.data.b.nuisance.lsf_scale: expected a prior above 0": (
        {"b": {"cube": mock_data(SHAPE), "nuisance": {"lsf_scale": {"normal": [1, 0.5]}}}},
        {},
    ),
    "fit.data.b: instrument.wavelength: expected a range that overlaps": (
        {"b": {"cube": mock_data(SHAPE), "instrument": {"wavelength": {"start": 8000, "stop": 8100}}}},
        {},
    ),
    "data.b.nuisance.sky.templates: expected a table of text": (
        {"b": {"cube": mock_data(SHAPE), "nuisance": {"sky": {"templates": "none.txt", "sigma": 1}}}},
        {},
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_is_refused(message):
    sets, settings = REFUSED[message]
    with pytest.raises((ConfigError, FileNotFoundError)) as error:
        log_posterior(CONFIG, sets, **{"free": FREE, **settings}, galaxy=galaxy())
    assert message in str(error.value)


def test_several_sets_need_a_configuration_that_has_them():
    run = {"observation": {"redshift": 0.05}, "instrument": {"name": "muse"}, "fit": {"data": {"b": OTHER, "c": OTHER}}}
    with pytest.raises(ConfigError, match=r"fit\.data: the configuration has the data sets b, c, got one cube"):
        log_posterior(run, mock_data(SHAPE), {"dust.a_v": {"uniform": [0, 1]}})
    pipeline = Pipeline.from_config(load_config(CONFIG), galaxy(), make_mesh(1))
    with pytest.raises(ConfigError, match="expected one cube beside a pipeline"):
        log_posterior(pipeline, {"a": mock(), "b": mock()}, FREE, galaxy=galaxy())


def test_the_same_data_twice_are_noted():
    """Voxels that two sets fit count twice, which halves the variance of what is fitted."""
    windows = {"first": [[5000, 5145]], "apart": [[5146, 5300]], "overlapping": [[5136, 5300]]}
    sets = {name: {"cube": mock(), "windows": window} for name, window in windows.items()}
    sets["brighter"] = replace(mock(), flux=2 * mock().flux)
    notes = [note for note in log_posterior(CONFIG, sets, FREE, galaxy=galaxy()).notes if "the same data" in note]
    assert [note.partition(", which count twice")[0] for note in notes] == [
        "first and overlapping hold the same data in 9 voxels",
        f"apart and overlapping hold the same data in {9 * 16} voxels",
    ]
