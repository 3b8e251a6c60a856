"""Fits to the spectra of fibres: chi^2 on the fibres, from a cube or a file, and what errors are worth without it."""

import dataclasses
import importlib.util
from pathlib import Path

import numpy as np
import pytest
from astropy.io import fits
from small import BEHIND_DUST, few_stars

import rubix_like as rl
from rubix_like import ConfigError, Pipeline, load_config, log_posterior
from rubix_like.cube.observed.observed_spectrum import fibres_from, read_fibres
from rubix_like.cube.survey_files.spectra_files import write_spectra
from rubix_like.inference.best_fit import on_grid, set_alone

FIBRES = {"bundle": "manga-19", "rings": 1, "transparency": [1, 0.6, 0.8], "dead": [6]}
CONFIG = {
    **BEHIND_DUST,
    "observation": {"redshift": 0.02, "distance": "90 Mpc", "align": "none", "field_angle": 30, "ra": 150, "dec": 2},
    "instrument": {
        "name": "sami_blue",
        "fov": "6.5 arcsec",
        "aperture": None,
        "psf": {"kind": "gaussian", "fwhm": 1.5},
        "lsf": None,
        "wavelength": {"start": 5000, "stop": 5040, "step": 10},
        "fibres": FIBRES,
    },
    "noise": {"signal_to_noise": 20},
    "fit": {"free": {"dust.a_v": {"uniform": [0, 2]}}},
}


@pytest.fixture(scope="module")
def observed():
    """A cube with the spectra of its fibres, and the galaxy."""
    galaxy = few_stars(40, 0.3)
    return Pipeline.from_config(load_config(CONFIG))(galaxy), galaxy


@pytest.mark.slow(15)
def test_the_likelihood_is_that_of_the_fibres_and_of_the_cube_by_its_covariance(observed, tmp_path):
    """Model spectra of another pipeline at the same dust; chi^2 by numpy on the fibres, and by the pseudo-inverse of
    the covariance of spaxels: with both degrees of freedom are the number of spectra, not of spaxels."""
    cube, galaxy = observed
    pipeline = Pipeline.from_config(load_config(CONFIG, overrides={"noise": None}))
    write_spectra(cube, (tmp_path / "rss.fits",), "manga")
    own, again = (
        log_posterior(CONFIG, {"manga": {"fibres": given}}, galaxy=galaxy)
        for given in (cube, str(tmp_path / "rss.fits"))
    )
    found = []
    for a_v in (0.2, 0.5):
        x = own.to_unconstrained({"dust.a_v": a_v})
        model = pipeline(galaxy, {"dust.a_v": a_v})
        rest = np.asarray(cube.fibres.flux) - np.asarray(model.fibres.flux)
        of_fibres = float(np.sum(rest**2 / np.asarray(cube.fibres.variance)))
        residual = np.asarray(cube.flux) - np.asarray(model.flux)
        covariances = [cube.covariance(own_wave) for own_wave in cube.wavelength]
        of_cube = sum(one.chi2(residual[:, :, number]) for number, one in enumerate(covariances))
        assert of_fibres == pytest.approx(of_cube, rel=1e-6)
        found.append((own.log_likelihood(x), again.log_likelihood(x), -0.5 * of_fibres))
    ours, read, expected = np.diff(np.array(found), axis=0)[0]
    np.testing.assert_allclose(ours, expected, rtol=1e-6)
    np.testing.assert_allclose(read, expected, rtol=1e-3)
    assert own.problem.posterior.likelihood.flux.size == rest.size == 18 * cube.bins.n_wave
    assert covariances[0].rank == 18
    alone = set_alone(own.problem, *own.problem.sets)
    column = (np.asarray(spectra, np.float64)[:, None] for spectra in (cube.fibres.flux, cube.fibres.variance))
    made = on_grid(alone, "residual", *column, of_data=True)
    good = np.asarray(cube.mask) == 0
    np.testing.assert_array_equal(np.asarray(made.mask) == 0, good)
    np.testing.assert_allclose(made.flux[good], np.asarray(cube.flux)[good], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(made.variance[good], np.asarray(cube.variance)[good], rtol=1e-6)
    assert made.covariance(cube.wavelength[1]).rank == 18


def test_spectra_are_read_back_as_they_were_written(observed, tmp_path):
    cube, _ = observed
    write_spectra(cube, (tmp_path / "rss.fits",), "manga")
    read, known = read_fibres(tmp_path / "rss.fits"), fibres_from(cube, "a cube")
    for name in ("flux", "variance"):
        np.testing.assert_allclose(getattr(read.spectra, name), getattr(known.spectra, name), rtol=1e-6)
    np.testing.assert_allclose(np.hypot(read.east - known.east, read.north - known.north), 0, atol=1e-6)
    assert read.spectra.used.all()
    np.testing.assert_allclose(read.spectra.wavelength, cube.wavelength)
    assert (read.spectra.medium, read.spectra.ra) == (cube.medium, pytest.approx(150))
    with fits.open(tmp_path / "rss.fits") as hdus:
        hdus["YPOS"].data[2, 1] = np.nan
        hdus.writeto(tmp_path / "nowhere.fits")
    with pytest.raises(ValueError, match="expected finite places"):
        read_fibres(tmp_path / "nowhere.fits")
    cube.write(tmp_path / "cube.fits")
    with pytest.raises(ValueError, match="expected row-stacked spectra as MaNGA writes them"):
        read_fibres(tmp_path / "cube.fits")
    bits = np.zeros(cube.fibres.flux.shape, np.int32)
    bits[3, 1] = 32
    hit = dataclasses.replace(cube, fibres=dataclasses.replace(cube.fibres, bits=bits))
    np.testing.assert_array_equal(np.argwhere(~fibres_from(hit, "a cube").spectra.used[:, 0]), [[3, 1]])
    with pytest.raises(ValueError, match="expected a cube that holds the spectra of its fibres"):
        fibres_from(dataclasses.replace(cube, fibres=None), "a cube")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"instrument": {"fibres": None}}, "expected an instrument with fibres, got one without"),
        ({"instrument": {"fibres": {**FIBRES, "dead": []}}}, "expected spectra of the 21 fibres of all exposures"),
        ({"instrument": {"fibres": {**FIBRES, "pitch": 2.6}}}, "got some up to .* arcsec off; give their places"),
        ({"pixel_scale": 0.5}, "pixel_scale: expected null for spectra of fibres"),
    ],
)
def test_fibres_that_do_not_go_with_the_instrument_are_refused(observed, changes, words):
    cube, galaxy = observed
    with pytest.raises(ConfigError, match=words):
        log_posterior(CONFIG, {"manga": {"fibres": cube, **changes}}, galaxy=galaxy)


@pytest.mark.slow(15)
def test_spectra_seen_through_refraction_need_a_model_with_it(tmp_path):
    """Places of a file are compared at all wavelengths that are fitted; at 4700 Angstrom light lands more than half an
    arcsec from that at 7000."""
    refraction = {"zenith_distance": 55, "zenith_angle": [10, 14, 18], "wavelength": 7000}
    wide = {"start": 4700, "stop": 9300, "step": 1150}
    seen = {"instrument.wavelength": wide, "instrument.fibres": {**FIBRES, "refraction": refraction}}
    config, galaxy = load_config(CONFIG, seen), few_stars(40, 0.3)
    cube = Pipeline.from_config(config)(galaxy)
    path = tmp_path / "rss.fits"
    write_spectra(cube, (path,), "manga")
    part = cube.cut((6000, 9000))
    np.testing.assert_array_equal(part.fibres.places.moved, cube.fibres.places.moved[:, 2:4])
    own, again = (log_posterior(config, {"manga": {"fibres": given}}, galaxy=galaxy) for given in (cube, str(path)))
    x = own.to_unconstrained({"dust.a_v": 0.3})
    assert again.log_likelihood(x) == pytest.approx(own.log_likelihood(x), rel=1e-3)
    without = {"fibres": str(path), "instrument": {"wavelength": wide, "fibres": FIBRES}}
    with pytest.raises(
        ConfigError, match=r"some 0\.[5-9]\d* arcsec off at 4700 Angstrom, where refraction moves light"
    ):
        log_posterior(CONFIG, {"manga": without}, galaxy=galaxy)
    log_posterior(CONFIG, {"manga": {**without, "windows": [[7000, 7100]]}}, galaxy=galaxy)


@pytest.mark.long
def test_errors_of_fits_are_right_on_the_fibres_and_too_small_without_covariance():
    """Laplace errors of 60 mocks, a Gauss-Newton step from the truth: pulls of fits to the fibres, and to the spaxels
    with their covariance, spread by 1, those to the spaxels, as if they were independent, by far more."""
    path = Path(__file__).resolve().parents[1] / "benchmarks" / "fibre_fits.py"
    spec = importlib.util.spec_from_file_location("fibre_fits", path)
    mocks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mocks)
    config = mocks.configuration(n_wave=4)
    cube = rl.run(config, quiet=True)
    noise = mocks.draws(cube, 60, seed=3)
    found = {name: mocks.first_step_pulls(own, noise[name]) for name, own in mocks.posteriors(cube, config).items()}
    spread = {name: np.sqrt(np.mean(own**2)) for name, own in found.items()}
    for name in ("fibres", "covariance"):
        assert abs(spread[name] - 1) < 3 / np.sqrt(2 * found[name].size)
    assert spread["spaxels"] > 1.5
