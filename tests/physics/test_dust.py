"""Dust screen: magnitudes and colours against published curves worked out here, place, gradient, compilations."""

import functools

import dust_extinction.averages
import equinox as eqx
import independent
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from astropy import units
from astropy.io import fits
from independent import calzetti
from observing import central_difference, configuration, galaxy_of, observe
from speclite import filters

from rubix_like import ConfigError, Pipeline, make_mesh
from rubix_like.physics.dust_curves import CURVES

WIDE = {"start": 3500.0, "stop": 7100.0, "step": 5.0, "medium": "vacuum"}


@functools.cache
def cube_of(redshift=0.0, medium="vacuum", **dust):
    """A cube whose only lit spaxel is behind a screen, or behind none; and its wavelengths and flux."""
    config = configuration(
        observation={"redshift": redshift, "distance": "10 Mpc"},
        instrument={"wavelength": {**WIDE, "medium": medium}},
        dust=dust or None,
    )
    cube = observe(config, galaxy_of(log_age=9.5))
    return cube, np.asarray(cube.wavelength), np.asarray(cube.flux).sum(axis=(0, 1))


def magnitude(wavelength, flux, band):
    """Bessell's B or V (AB) through speclite."""
    density = flux * 1e-20 * units.erg / (units.s * units.cm**2 * units.AA)
    return float(filters.load_filter(f"bessell-{band}").get_ab_magnitude(density, wavelength * units.AA))


def cardelli(wavelength, r_v):
    """Cardelli, Clayton & Mathis (1989), eqs. 1 and 3 (1.1-3.3 per micron)."""
    y = 1e4 / wavelength - 1.82
    a = [1, 0.17699, -0.50447, -0.02427, 0.72085, 0.01979, -0.77530, 0.32999]
    b = [0, 1.41338, 2.28305, 1.07233, -5.38434, -0.62251, 5.30260, -2.09002]
    return np.polynomial.polynomial.polyval(y, a) + np.polynomial.polynomial.polyval(y, b) / r_v


PUBLISHED = {"calzetti": (calzetti, 4.05), "cardelli": (cardelli, 3.1)}


def dimming(wavelength, flux, curve, r_v, band, a_v=1.0):
    """Magnitudes that a published curve takes from a spectrum in a band: photons, trapezoid rule."""
    response = filters.load_filter(f"bessell-{band}")
    weight = flux * wavelength * np.interp(wavelength, response.wavelength, response.response, left=0.0, right=0.0)
    screen = 10 ** (-0.4 * a_v * curve(wavelength, r_v))
    return -2.5 * np.log10(np.trapezoid(weight * screen, wavelength) / np.trapezoid(weight, wavelength))


@pytest.mark.parametrize("r_v", [None, 3.6])
@pytest.mark.parametrize("name", PUBLISHED)
def test_one_magnitude_in_v_and_the_curves_colour(name, r_v):
    """V by 1.00 mag, B - V by the published curve's value to 0.005 mag (1 / R_V, less what wide bands lose)."""
    curve, own = PUBLISHED[name]
    _, wavelength, bare = cube_of()
    *_, dusty = cube_of(a_v=1.0, r_v=r_v, curve=name)
    lost = {band: magnitude(wavelength, dusty, band) - magnitude(wavelength, bare, band) for band in "BV"}
    expected = {band: dimming(wavelength, bare, curve, r_v or own, band) for band in "BV"}
    assert lost["V"] == pytest.approx(1.0, abs=0.015)
    assert lost["V"] == pytest.approx(expected["V"], abs=0.005)
    assert lost["B"] - lost["V"] == pytest.approx(expected["B"] - expected["V"], abs=0.005)
    assert lost["B"] - lost["V"] == pytest.approx(1 / (r_v or own), rel=0.15)


@pytest.mark.parametrize(("name", "r_v", "points"), [
    # Gordon et al. (2003), table 4: A(lambda) / A(V) of the SMC bar at 0.44, 0.55, 0.65 um
    ("smc", None, {4400.0: 1.374, 5500.0: 1.0, 6500.0: 0.801}),
    # Cardelli et al. (1989), table 3: A(lambda) / A(V) at the effective wavelengths of U, B, V, R, I for R(V) = 3.1
    ("cardelli", 3.1, {3650.0: 1.569, 4400.0: 1.337, 5500.0: 1.0, 7000.0: 0.751, 9000.0: 0.479}),
])  # fmt: skip
def test_published_tables(name, r_v, points):
    curve = CURVES.find(name)
    found = curve(np.array(list(points)), r_v or curve.r_v)
    np.testing.assert_allclose(found, list(points.values()), atol=0.02)


@pytest.mark.parametrize("name", CURVES.names())
def test_every_curve(name):
    """One in V, E(B - V) about A(V) / R(V), falling to the red, defined to the ends of its range and of R(V)."""
    curve = CURVES.find(name)
    low, high = curve.wavelength_range
    if low < 4400 and high > 5500:
        at_b, at_v = curve(np.array([4400.0, 5500.0]), curve.r_v)
        assert at_v == pytest.approx(1.0, abs=0.003 if curve.sloped or name.islower() else 0.03)
        assert at_b - at_v == pytest.approx(1 / curve.r_v, rel=0.1 if name.islower() else 0.2)
    red = curve(np.linspace(max(low, 3500.0), min(high, 9500.0 if low < 9000.0 else 60000.0), 200), curve.r_v)
    assert (np.diff(red) < 0.01).all()
    if name in dust_extinction.averages.__all__:
        published = getattr(dust_extinction.averages, name)()
        assert curve.r_v == published.Rv
        assert low >= 1e4 / published.x_range[1] - 0.5
        assert high <= 1e4 / published.x_range[0] + 0.5
    for r_v in {curve.r_v, max(curve.r_v_range[0], 3.7 if name == "calzetti" else 0.0), curve.r_v_range[1]}:
        curve.check_r_v(r_v)
        assert np.isfinite(curve(np.geomspace(low * 1.0001, high * 0.9999, 500), r_v)).all()
    for outside in (low - 1.0, high + 1.0):
        with pytest.raises(ConfigError, match=r"dust\.curve: expected bins within .*choose another curve"):
            curve(np.array([0.5 * (low + high), outside]), curve.r_v)


def test_slopes():
    """Kriek & Conroy (2013), eqs. 1 to 3, and a power law; a curve without a slope takes none."""
    micron = np.array([0.15, 0.2175, 0.3, 0.45, 0.55, 0.65, 0.9])
    for slope in (-0.4, 0.0, 0.3):
        drude = (0.85 - 1.9 * slope) * (micron * 0.035) ** 2 / ((micron**2 - 0.2175**2) ** 2 + (micron * 0.035) ** 2)
        expected = (calzetti(1e4 * micron) + drude / 4.05) * (micron / 0.55) ** slope
        np.testing.assert_allclose(CURVES.find("kriek_conroy")(1e4 * micron, 4.05, slope), expected, rtol=1e-12)
    np.testing.assert_allclose(CURVES.find("power_law")(1e4 * micron, 5.9), (micron / 0.55) ** -0.7, rtol=1e-12)
    np.testing.assert_allclose(CURVES.find("power_law")(1e4 * micron, 5.9, -1.3), (micron / 0.55) ** -1.3, rtol=1e-12)
    with pytest.raises(ConfigError, match=r"dust\.slope: expected null, since the curve has no slope"):
        configuration(dust={"a_v": 1.0, "curve": "calzetti", "slope": -0.3})


def test_galaxy_and_foreground_at_redshift_0_1(tmp_path):
    """The curve at lambda / 1.1 or at lambda, in vacuum though the bins are in air; the header says which."""
    _, wavelength, bare = cube_of(0.1, "air")
    vacuum = independent.air_to_vacuum(wavelength)
    for place, stretch in (("galaxy", 1.1), ("foreground", 1.0)):
        cube, _, dusty = cube_of(0.1, "air", a_v=0.7, curve="cardelli", place=place)
        np.testing.assert_allclose(-2.5 * np.log10(dusty / bare), 0.7 * cardelli(vacuum / stretch, 3.1), rtol=1e-9)
        header = fits.getheader(cube.write(tmp_path / f"{place}.fits"))
        assert [header[key] for key in ("DUSTAV", "DUSTRV", "DUSTCRV", "DUSTLOC")] == [0.7, 3.1, "cardelli", place]


def test_no_dust_and_none_of_it_are_equal():
    np.testing.assert_array_equal(cube_of(a_v=0.0)[2], cube_of()[2])


STARS = galaxy_of(np.random.default_rng(1).normal(size=(20, 3)) * 0.3, np.linspace(-100, 100, 20))


@functools.cache
def screened(**dust):
    """A pipeline with a PSF, of few bins."""
    instrument = {"psf": {"fwhm": 0.5}, "wavelength": {**WIDE, "stop": 3700.0}}
    observation = {"redshift": 0.0, "distance": "10 Mpc"}
    config = configuration(observation=observation, instrument=instrument, dust=dust or None)
    return Pipeline.from_config(config, STARS, mesh=make_mesh(1))


def behind(pipeline, a_v):
    return eqx.tree_at(lambda p: p.dust.a_v, pipeline.parameters, a_v)


def test_a_screen_commutes_with_the_psf():
    """The same factor in all spaxels, whatever the stars' light was blurred by; mean velocities stay."""
    bare, dusty = screened()(STARS), screened(a_v=0.8)(STARS)
    factor = 10 ** (-0.32 * calzetti(bare.wavelength))
    np.testing.assert_allclose(np.asarray(dusty.flux), np.asarray(bare.flux) * factor, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(dusty.mean_v_los), np.asarray(bare.mean_v_los), rtol=1e-13)


def test_gradient_in_a_v():
    """dF / dA_V = -0.4 ln 10 k F; the same by finite differences."""
    pipeline = screened(a_v=0.8)
    weights = jnp.linspace(1.0, 2.0, pipeline.plan.n_wave)

    @jax.jit
    @jax.value_and_grad
    def light(a_v):
        return (pipeline(STARS, behind(pipeline, a_v)).flux.sum(axis=(0, 1)) * weights).sum()

    found = float(light(jnp.asarray(0.8))[1])
    curve = calzetti(pipeline.frame.bins.wavelength)
    flux = np.asarray(pipeline(STARS).flux).sum(axis=(0, 1))
    assert found == pytest.approx(-0.4 * np.log(10) * np.sum(np.asarray(weights) * curve * flux), rel=1e-10)
    expected = central_difference(lambda a_v: light(a_v)[0], jnp.asarray(0.8), lambda a_v: a_v, 1e-4)
    assert found == pytest.approx(float(expected), rel=1e-7)


def test_another_a_v_or_curve_is_not_another_compilation():
    first, other = screened(a_v=0.8), screened(a_v=1.3, curve="gordon", r_v=2.7, place="foreground")
    cubes = [first(STARS)]
    compiled = first.compiled(*first.arguments(STARS))
    size = compiled._cache_size()
    assert size > 0
    cubes += [first(STARS, behind(first, jnp.asarray(0.9))), other(STARS)]
    assert compiled._cache_size() == size
    totals = [float(np.asarray(cube.flux).sum()) for cube in cubes]
    assert totals[0] > totals[1] > totals[2] > 0


@pytest.mark.parametrize(
    ("dust", "message"),
    [
        ({"a_v": -0.1}, "dust.a_v: expected a number >= 0, got -0.1"),
        ({"r_v": 3.1}, r"dust.a_v: expected a quantity in mag \(>= 0, <= 1e\+06\), got none"),
        ({"a_v": 1, "curve": "calzeti"}, "dust.curve: unknown dust curve 'calzeti'; did you mean 'calzetti'?"),
        ({"a_v": 1, "curve": "cardelli", "r_v": 1.5}, "dust.r_v: expected a value from 2 to 6 .null: 3.1; Milky Way"),
        ({"a_v": 1, "curve": "smc", "r_v": 3.1}, "dust.r_v: expected 2.74, the curve's only one"),
        (
            {"kind": "partcles"},
            "dust: kind: expected one of screen, particles, got 'partcles'; did you mean 'particles'",
        ),
        ({"kind": "particles", "a_v": 1}, "unknown key 'dust.a_v'; the gas in front of a star"),
        ({"kind": "particles", "curv": "smc"}, "unknown key 'dust.curv'; did you mean 'curve'"),
        (
            {"kind": "particles", "birth_slope": -1},
            "dust.birth_slope: expected null, since the curve has no slope .Milky Way",
        ),
        ({"kind": "particles", "birth_curve": "smk"}, "dust.birth_curve: unknown dust curve 'smk'; did you mean 'smc'"),
        (
            {"kind": "particles", "birth_curve": "smc", "a_v_birth": 12},
            r"dust.largest: expected at least a_v_birth \(12 mag\), got 10 mag",
        ),
        ({"kind": "particles", "cells": 3}, "dust.cells: expected a number >= 4, got 3"),
        ({"kind": "particles", "opacity": "3 mag"}, r"dust.opacity: expected a quantity in mag pc2 / Msun"),
        ({"kind": "particles", "foreground": {"r_v": 3}}, r"dust.foreground.a_v: expected a quantity in mag"),
        ({"a_v": 1, "place": "between"}, "dust.place: expected one of galaxy, foreground, got 'between'"),
    ],
)
def test_settings_that_are_refused(dust, message):
    with pytest.raises(ConfigError, match=message):
        configuration(dust=dust)


def bare_pipeline(**sections):
    config = configuration(**({"dust": {"a_v": 1.0}} | sections))
    return Pipeline.from_config(config, galaxy_of(log_age=9.5), mesh=make_mesh(1))


@pytest.mark.parametrize(
    ("start", "stop", "dust", "redshift", "words"),
    [
        (1150.0, 1300.0, {}, 0.0, "expected bins within 1200-22000 Angstrom"),
        (1150.0, 1300.0, {"place": "foreground"}, 0.1, "got 1150-1300"),
        (15000.0, 21000.0, {"r_v": 3.1}, 0.0, r"r_v: expected one with which the curve dims all bins, got 3\.1"),
    ],
)
def test_bins_that_are_refused(start, stop, dust, redshift, words):
    """The rest wavelength counts for dust in the galaxy; a small r_v would brighten the infrared."""
    wavelength = {"start": start, "stop": stop, "step": 50.0, "medium": "vacuum"}
    observation = {"redshift": redshift, "distance": "10 Mpc"}
    with pytest.raises(ConfigError, match=words):
        bare_pipeline(dust={"a_v": 1.0, **dust}, instrument={"wavelength": wavelength}, observation=observation)


def test_the_stage_has_its_place(tmp_path):
    """A pipeline without it says so; it comes before noise, which needs a stage, too."""

    def pipeline_of(stages, **sections):
        path = tmp_path / "bare.yaml"
        path.write_text(f"scene: [orient, point]\npaint: [stars]\ncube: [{stages}]\n")
        return bare_pipeline(pipeline=str(path), **sections)

    pipeline = pipeline_of("psf, aperture, noise")
    assert "the pipeline 'bare' has no stage 'dust': the section dust has no effect" in pipeline.notes
    assert not [key for key in pipeline.frame.meta if key.startswith("dust")]
    noise = {"signal_to_noise": 10}
    with pytest.raises(ConfigError, match="expected 'dust' before 'noise'"):
        pipeline_of("psf, noise, dust", noise=noise)(galaxy_of(log_age=9.5))
    with pytest.raises(ConfigError, match="expected a pipeline with the stage 'noise', got 'bare'"):
        pipeline_of("psf, dust", noise=noise)
