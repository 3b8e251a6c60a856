"""Physical exposures: electrons and noise against independent arithmetic and ESO's exposure time calculator."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from astropy import constants, units
from scipy.special import erf
from small import exposure_settings, few_stars, instrument_settings, muse

import rubix_like as rl
from rubix_like import ConfigError, Parameters
from rubix_like.extend import Footprint, PaintedCube, WavelengthBins
from rubix_like.forward.stages.noise import ExposureNoise

SMALL = {"wavelength": {"start": 6980.0, "stop": 7020.0, "step": 1.25}}
DETECTOR = {"collecting_area": 2.0, "throughput": 0.25, "read_noise": 4.0, "dark_current": 7.2, "pixels_per_voxel": 3}


def instrument(**changes):
    return instrument_settings({"name": "muse", **SMALL, **changes})


def exposure(time=600.0, count=1, sky="none"):
    return exposure_settings(time=time, count=count, sky=sky)


def built(exposure, settings):
    return ExposureNoise.build(exposure, settings, WavelengthBins.build(settings.wavelength))


def bins_of(settings):
    return settings.wavelength.start + settings.wavelength.step * np.arange(settings.wavelength.n_wave)


def drawn(model, flux, seed=1):
    footprint = Footprint.of(flux.shape, 0.2)
    cube = PaintedCube(footprint.elements(jnp.asarray(flux)), jnp.zeros((footprint.n_element, 2)), footprint)
    parameters = Parameters.of({"noise.exposure.time": jnp.asarray(model.time)})
    noise, variance = model.draw(cube, parameters, jax.random.key(seed))
    return np.asarray(footprint.images(noise)), np.asarray(footprint.images(variance))


def test_electrons_of_a_source():
    """F dlambda lambda / (h c) A t throughput with astropy's units, in vacuum and for several exposures."""
    settings = instrument(detector=DETECTOR, wavelength={"start": 5000, "stop": 5004, "step": 2, "medium": "vacuum"})
    model = built(exposure(time=300, count=4), settings)
    wavelength = bins_of(settings) * units.Angstrom
    flux = 1e-20 * units.Unit("erg / (s cm2 Angstrom)")
    photon = constants.h * constants.c / wavelength
    electrons = flux * 2 * units.Angstrom / photon * 2 * units.m**2 * 1200 * units.s * 0.25
    np.testing.assert_allclose(model.gain, electrons.to_value(""), rtol=1e-10)
    np.testing.assert_allclose(model.background, 7.2 / 3600 * 1200 * 3, rtol=1e-12)
    assert float(model.read_variance) == pytest.approx(4 * 3 * 16)


def test_electrons_of_the_sky(tmp_path):
    """A flat sky of 100 photons/s/m2/um/arcsec2 and a transmission of 0.5, which dims the source and not the sky."""
    path = tmp_path / "sky.ecsv"
    path.write_text(
        "# %ECSV 1.0\n# ---\n# datatype:\n# - {name: wavelength, datatype: float64}\n"
        "# - {name: emission, datatype: float64}\n# - {name: transmission, datatype: float64}\n"
        "wavelength emission transmission\n4000 100 0.5\n9000 100 0.5\n"
    )
    wavelength = {"start": 5000, "stop": 5004, "step": 2, "medium": "vacuum"}
    settings = instrument(detector=DETECTOR, wavelength=wavelength, pixel_scale=0.5)
    model = built(exposure(sky=str(path)), settings)
    dark = 7.2 / 3600 * 600 * 3
    np.testing.assert_allclose(model.background - dark, 100 * 2e-4 * 0.25 * 2 * 600 * 0.25, rtol=1e-9)
    without = built(exposure(), settings)
    np.testing.assert_allclose(model.gain, 0.5 * without.gain, rtol=1e-12)


def test_throughput_is_linear_between_its_wavelengths_and_constant_beyond():
    detector = {**DETECTOR, "wavelength": [6990.0, 7010.0], "throughput": [0.1, 0.3]}
    settings = instrument(detector=detector)
    number = instrument(detector={**DETECTOR, "throughput": 0.2})
    gain, flat = (built(exposure(), one).gain for one in (settings, number))
    expected = np.interp(bins_of(settings), [6990, 7010], [0.1, 0.3])
    np.testing.assert_allclose(gain / flat * 0.2, expected, rtol=2e-2)  # the bins at the ends hold a bend
    np.testing.assert_allclose((gain / flat * 0.2)[[0, 16, -1]], [0.1, 0.2, 0.3], rtol=1e-9)


def test_a_new_throughput_does_without_the_table_of_the_preset():
    detector = instrument(detector={"throughput": 0.4}).detector
    assert (detector.throughput, detector.wavelength, detector.read_noise) == ((0.4,), None, 3.0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("level", [0.0, 1.0, 3e3])
def test_variance_is_that_of_the_noise(level, dtype):
    """Of no light, of little, of much: chi^2 = 1.00, mean 0, and the variance is that of expected electrons."""
    model = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), built(exposure(sky="dark"), instrument()))
    flux = np.full((60, 60, 33), level, dtype)
    noise, variance = drawn(model, flux)
    assert noise.dtype == variance.dtype == dtype
    normalised = noise / np.sqrt(variance)
    assert np.mean(normalised.astype(np.float64) ** 2) == pytest.approx(1.0, abs=0.02)  # 1.2e5 voxels: 0.004
    assert np.mean(normalised.astype(np.float64)) == pytest.approx(0.0, abs=0.015)
    expected = level * model.gain + model.background + model.read_variance
    np.testing.assert_allclose(variance[0, 0], expected / model.gain**2, rtol=1e-5)


def test_nothing_at_all_has_no_noise_and_divides_by_nothing():
    """No light, no sky, no dark current, no read noise: variance 0, noise 0; no NaN."""
    settings = instrument(detector={"read_noise": 0, "dark_current": 0})
    flux = np.zeros((2, 2, 33))
    flux[0, 0] = 50.0
    flux[1, 1] = -1e-9
    noise, variance = drawn(built(exposure(), settings), flux)
    assert np.all(noise[1] == 0)
    assert np.all(variance[1] == 0)
    assert np.all(variance[0, 0] > 0)
    assert np.all(np.isfinite(noise))


def test_bright_sky_is_noisier_than_dark_and_dark_than_none():
    electrons = [built(exposure(sky=sky), instrument()).background.mean() for sky in ("none", "dark", "bright")]
    assert electrons[0] < electrons[1] < electrons[2]


MUSE_OF_THE_CALCULATOR = {"name": "muse", "wavelength": {"medium": "vacuum"}}
"""Its sky has the lines of the night where they are in vacuum."""


def moffat_box(fwhm, beta, n=5, scale=0.2, fine=41):
    """Fractions of a point source's light in n x n spaxels about it, by summing fine squares."""
    alpha = fwhm / 2 / np.sqrt(2 ** (1 / beta) - 1)
    x = (np.arange(n * fine) - (n * fine - 1) / 2) * scale / fine
    profile = (beta - 1) / (np.pi * alpha**2) * (1 + (x[None, :] ** 2 + x[:, None] ** 2) / alpha**2) ** -beta
    return (profile * (scale / fine) ** 2).reshape(n, fine, n, fine).sum(axis=(1, 3))


def test_the_check_point_of_the_eso_calculator():
    """ESO's calculator for MUSE (as quoted in pyetc's tests): a line of 5e-18 erg/s/cm2 at 7000 A, FWHM 2.5 A, of a
    point source with an image quality of 0.7 arcsec (Moffat, beta 8), dark sky, airmass 1, 2 x 1800 s, 5 x 5 spaxels
    x 5 bins: S/N 7.69, source 753 e-, sky 6226 e-, transmission without atmosphere 32.3 %."""
    settings = instrument_settings(MUSE_OF_THE_CALCULATOR)
    model = built(exposure(time=1800, count=2, sky="dark"), settings)
    wavelength = bins_of(settings)
    edges = np.append(wavelength - 0.625, wavelength[-1] + 0.625)
    line = np.diff(erf((edges - 7000) / (2.5 / 2.355) / np.sqrt(2))) / 2
    flux = 5e-18 / 1e-20 * moffat_box(0.7, 8.0)[:, :, None] * line / 1.25
    _, variance = drawn(model, flux)
    box = slice(1798, 1803)
    np.testing.assert_allclose(wavelength[box], 7000 + 1.25 * np.arange(-2, 3))
    gain = np.asarray(model.gain)[box]
    source = np.sum(flux[:, :, box] * gain)
    dark = 3.0 * 125
    sky = 25 * np.sum(model.background[box]) - dark
    ratio = source / np.sqrt(np.sum(variance[:, :, box] * gain**2))
    assert sky == pytest.approx(6226, rel=0.1)
    assert source == pytest.approx(753, rel=0.1)
    assert ratio == pytest.approx(7.69, rel=0.1)
    assert ratio == pytest.approx(source / np.sqrt(source + sky + dark + 2 * 125 * 9), rel=1e-9)
    photons = 1e-20 * 1e4 * 1.25 * 7000 / 1.986446e-8 * 48.5 * 3600
    in_air = built(exposure(time=1800, count=2), settings)
    assert np.asarray(in_air.gain)[1800] / photons == pytest.approx(0.323, rel=0.05)


def test_the_continuum_check_point_of_the_eso_calculator():
    """From the same place: 23 mag/arcsec2 (AB, at 6400 A) at 8000 A, 3600 s, 1 arcsec2: source 340 e-, sky 2170 e-,
    S/N 6.41, at airmass 1.2, where the sky is brighter than ours at the zenith (by 1.14 in ESO's sky model)."""
    settings = instrument_settings(MUSE_OF_THE_CALCULATOR)
    model = built(exposure(time=3600, sky="dark"), settings)
    band = np.abs(bins_of(settings) - 8000) < 0.1
    per_arcsec2 = 3631e-23 * 10 ** (-0.4 * 23) * 2.99792458e18 / 6400**2 / 1e-20
    flux = np.full((5, 5, settings.wavelength.n_wave), per_arcsec2 / 25)
    _, variance = drawn(model, flux)
    gain = np.asarray(model.gain)[band]
    source = np.sum(flux[:, :, band] * gain)
    assert source == pytest.approx(340, rel=0.1)
    assert 25 * (model.background[band][0] - 3) == pytest.approx(2170 / 1.14, rel=0.1)
    assert source / np.sqrt(np.sum(variance[:, :, band] * gain**2)) == pytest.approx(6.41, rel=0.1)


def test_without_a_detector_an_exposure_is_refused():
    with pytest.raises(ConfigError, match=r"instrument\.detector: expected collecting_area, throughput, .*'muse'"):
        built(exposure(), instrument(detector=None))


def test_beyond_the_sky_an_exposure_is_refused():
    far = {"start": 9900, "stop": 10100, "step": 10}
    with pytest.raises(ConfigError, match=r"noise\.exposure\.sky: expected a sky that covers .*got 'dark'"):
        built(exposure(sky="dark"), instrument(wavelength=far))
    built(exposure(sky="none"), instrument(wavelength=far))


def test_an_opaque_atmosphere_is_refused(tmp_path):
    path = tmp_path / "sky.ecsv"
    path.write_text(
        "# %ECSV 1.0\n# ---\n# datatype:\n# - {name: wavelength, datatype: float64}\n"
        "# - {name: emission, datatype: float64}\n# - {name: transmission, datatype: float64}\n"
        "wavelength emission transmission\n4000 1 0.5\n7000 1 0\n8000 1 0\n"
    )
    with pytest.raises(ConfigError, match=r"a transmission of 0 in .* bins from 70"):
        built(exposure(sky=str(path)), instrument())


FAINT = {"collecting_area": 1e-6, "throughput": 1e-6, "read_noise": 1e6, "dark_current": 0}
LOST = {
    "inf": (
        {"noise.exposure.time": 1e-3, "instrument.detector": FAINT},
        lambda pipeline, galaxy: pipeline(galaxy),
        "got NaN or inf in 125 voxels.*stage 'noise' makes them first",
    ),
    "0": (
        {"noise.signal_to_noise": 1e6, "observation.distance": "1e6 Mpc"},
        lambda pipeline, galaxy: pipeline.observe_slabs([galaxy]),
        "noise: expected a variance above 0 in some voxels, got 0 in all",
    ),
}


@pytest.mark.parametrize(("settings", "observe", "words"), LOST.values(), ids=LOST)
def test_cubes_whose_variance_is_lost_in_32_bits_are_refused(settings, observe, words):
    """(1e6 electrons / gain)^2 above 3.4e38, and the square of 1e-6 of the flux of a star of 1e-7 Msun at 1 Tpc."""
    run = {"galaxy": None, "observation": {"redshift": 0.05, "align": "none"}, "devices": {"data": 1}}
    config = rl.load_config({**run, "instrument": muse(5000, 5040, 10), "engine": {"velocity_range": 600}}, settings)
    galaxy, pipeline = few_stars(20, 0.3), rl.Pipeline.from_config(config)
    stars = dataclasses.replace(galaxy.stars, initial_mass=galaxy.stars.initial_mass * 1e-15)
    with pytest.raises(ValueError, match=words):
        observe(pipeline, rl.Galaxy(stars))
