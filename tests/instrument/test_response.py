"""The detector's response to light in fine bins, against integrals of Gaussians and moments worked out here."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm
from small import instrument_settings

from rubix_like import SSPLibrary
from rubix_like.config.sections.instrument import instrument_fwhm
from rubix_like.extend import WavelengthBins, to_vacuum
from rubix_like.instrument.detector import LineSpread, plan_response

SIGMA = 1 / np.sqrt(8 * np.log(2))
LINEAR = WavelengthBins(first=5000.0, step=1.25, n_wave=80, sampling="linear", medium="vacuum")
LOG = WavelengthBins(first=5000.0, step=1e-4, n_wave=80, sampling="log", medium="vacuum")


def library(fwhm):
    wavelength = np.arange(3000.0, 9000.0, 2.0)
    return SSPLibrary(
        spectra=np.ones((2, 2, len(wavelength))),
        log_age=np.array([6.0, 10.0]),
        metallicity=np.array([0.01, 0.02]),
        rest_wavelength=wavelength,
        fwhm=np.full(len(wavelength), fwhm),
    )


def lsf_settings(**keys):
    return instrument_settings({"name": "muse", "lsf": keys}).lsf


def spread(bins, fwhm, library_fwhm=2.0, redshift=0.0, **settings):
    lsf = None if fwhm is None else lsf_settings(fwhm=fwhm, **settings)
    return LineSpread(bins, library(library_fwhm).templates(), redshift, lsf)


def seen(plan, light):
    return np.asarray(plan.response.apply(jnp.asarray(light)[None, :]))[0]


def gaussian_light(plan, centre, sigma):
    """A line of unit light in the fine bins."""
    return np.diff(norm.cdf(plan.fine_edges, centre, sigma))


@pytest.mark.parametrize("bins", [LINEAR, LOG], ids=["linear", "log"])
def test_without_lsf_the_fine_bins_are_the_detectors(bins):
    plan = plan_response(bins, spread(bins, None))
    np.testing.assert_array_equal(plan.fine_edges, bins.edges)
    light = np.random.default_rng(1).random(80)
    np.testing.assert_allclose(seen(plan, light), light / np.diff(bins.edges), rtol=1e-14)


def test_a_library_coarser_than_the_instrument_is_not_spread():
    plan = plan_response(LINEAR, spread(LINEAR, 3.0, library_fwhm=4.0))
    np.testing.assert_array_equal(plan.fine_edges, LINEAR.edges)
    light = np.random.default_rng(1).random(80)
    np.testing.assert_allclose(seen(plan, light), light / 1.25, rtol=1e-14)


def test_fine_edges_are_in_vacuum_and_flux_is_per_angstrom_of_air():
    bins = WavelengthBins(first=5000.0, step=1.25, n_wave=80, sampling="linear", medium="air")
    plan = plan_response(bins, spread(bins, None))
    np.testing.assert_allclose(plan.fine_edges, to_vacuum(bins.edges), rtol=1e-14)
    np.testing.assert_allclose(seen(plan, np.full(80, 1.25)), 1.0, rtol=1e-12)


@pytest.mark.parametrize("bins", [LINEAR, LOG], ids=["linear", "log"])
@pytest.mark.parametrize("fwhm", [2.05, 2.5, 3.5, 8.0])
def test_line_spread_keeps_light_and_centre_and_adds_its_variance(bins, fwhm):
    """From a kernel far below a bin to several bins: variance = line + kernel + bin^2/12 (a box of a bin's width)."""
    plan = plan_response(bins, spread(bins, fwhm))
    centre, sigma = bins.at(np.array([39.3]))[0], 1.5
    width = np.diff(bins.edges)
    flux = seen(plan, gaussian_light(plan, centre, sigma)) * width
    mean = flux @ bins.wavelength / flux.sum()
    variance = flux @ (bins.wavelength - mean) ** 2 / flux.sum()
    expected = sigma**2 + (fwhm**2 - 4.0) * SIGMA**2 + width[39] ** 2 / 12
    np.testing.assert_allclose(flux.sum(), 1.0, rtol=1e-9)
    np.testing.assert_allclose(mean, centre, atol=2e-3)
    np.testing.assert_allclose(variance, expected, rtol=5e-3)


@pytest.mark.parametrize("fwhm", [2.5, 3.5, 8.0])
def test_line_profile_is_the_gaussian_integrated_over_bins(fwhm):
    plan = plan_response(LINEAR, spread(LINEAR, fwhm))
    sigma = np.hypot(1.5, np.sqrt(fwhm**2 - 4.0) * SIGMA)
    for centre in (5049.0, 5049.3, 5050.0):
        expected = np.diff(norm.cdf(LINEAR.edges, centre, sigma)) / 1.25
        assert np.abs(seen(plan, gaussian_light(plan, centre, 1.5)) - expected).max() < 5e-3 * expected.max()


@pytest.mark.parametrize(("fwhm", "allowed"), [(2.02, 0.03), (2.05, 0.02), (2.1, 0.01), (2.4, 0.003)])
def test_a_spread_below_a_fine_bin_is_a_gaussian(fwhm, allowed):
    """A line half a fine bin wide, anywhere in one, spread by 0.4 to 1.8 fine bins (sigma): against its integral over
    bins. What remains, up to `allowed` of the peak, is that light has no place within a fine bin; a line as wide as any
    library's has none of it."""
    plan = plan_response(LINEAR, spread(LINEAR, fwhm))
    kernel, fine = np.sqrt(fwhm**2 - 4.0) * SIGMA, np.diff(plan.fine_edges)[0]
    for sigma, bound in ((0.5 * fine, allowed), (1.5, 3e-5)):
        for centre in 5050 + fine * np.random.default_rng(3).uniform(-2, 2, 12):
            expected = np.diff(norm.cdf(LINEAR.edges, centre, np.hypot(sigma, kernel))) / 1.25
            assert np.abs(seen(plan, gaussian_light(plan, centre, sigma)) - expected).max() < bound * expected.max()


def test_a_flat_spectrum_stays_flat_to_the_last_bin():
    """Light from beyond the detector's ends is spread into it."""
    plan = plan_response(LINEAR, spread(LINEAR, 8.0))
    assert plan.fine_edges[0] < LINEAR.edges[0] - 8.0
    assert plan.fine_edges[-1] > LINEAR.edges[-1] + 8.0
    np.testing.assert_allclose(seen(plan, np.diff(plan.fine_edges)), 1.0, rtol=1e-6)


def test_redshift_stretches_the_librarys_width():
    kernel, effective, instrument = spread(LINEAR, 8.0, library_fwhm=3.0, redshift=0.5).widths(LINEAR.wavelength)
    np.testing.assert_allclose(kernel, np.sqrt(64.0 - 4.5**2))
    np.testing.assert_allclose(effective, 8.0)
    np.testing.assert_allclose(instrument, 8.0)


def test_a_width_measured_on_pixels_holds_the_bin():
    pixel = 1.25**2 / 12 / SIGMA**2
    kernel, effective, _ = spread(LINEAR, 8.0, includes_pixel=True).widths(LINEAR.wavelength)
    np.testing.assert_allclose(kernel, np.sqrt(64.0 - 4.0 - pixel))
    np.testing.assert_allclose(effective, 8.0)
    kernel, effective, _ = spread(LINEAR, 1.0, includes_pixel=True).widths(LINEAR.wavelength)
    np.testing.assert_array_equal(kernel, 0.0)
    np.testing.assert_allclose(effective, np.sqrt(4.0 + pixel))


def test_effective_width_without_lsf_is_the_librarys():
    _, effective, _ = spread(LINEAR, None, library_fwhm=3.0, redshift=0.1).widths(LINEAR.wavelength)
    np.testing.assert_allclose(effective, 3.3)


@pytest.mark.parametrize(
    ("lsf", "expected"),
    [
        ({"polynomial": [1.0, 1e-3]}, [5.0, 6.5, 10.0]),
        ({"polynomial": [6.04, -9.187e-4, 5.866e-8]}, [3.30376, 2.761615, 2.52316]),
        ({"fwhm": "0.25 nm"}, [2.5, 2.5, 2.5]),
        ({"resolving_power": 2700}, [4000 / 2700, 5500 / 2700, 9000 / 2700]),
        ({"resolving_power": ["2e3"]}, [2.0, 2.75, 4.5]),
        ({"wavelength": [5000, 6000], "fwhm": [2, 4]}, [2.0, 3.0, 4.0]),
        ({"wavelength": [5000, 6000], "resolving_power": [1000, 2000]}, [4.0, 5500 / 1500, 4.5]),
        ({"wavelength": [5000, 5500], "resolving_power": [1000, 3000]}, [4.0, 5500 / 3000, 3.0]),
    ],
)
def test_ways_to_state_a_width(lsf, expected):
    found = instrument_fwhm(lsf_settings(**lsf), np.array([4000.0, 5500.0, 9000.0]))
    np.testing.assert_allclose(found, expected, rtol=1e-7)
