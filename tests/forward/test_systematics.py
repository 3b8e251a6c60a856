"""Systematic errors: mean and rms as asked for, against formulas in numpy and scipy; the truth and what each error adds
to it explain the data; the same on eight devices; off, the same program."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from astropy.io import fits
from astropy.table import Table
from building import build_stage
from jax.sharding import AxisType, PartitionSpec
from scipy.ndimage import gaussian_filter1d
from scipy.special import ndtr
from small import COSMIC_RAY, DETECTOR_GAP, NO_DATA, SATURATED, few_stars, muse
from test_fibres import run as fibre_run
from test_fibres import three_stars

import rubix_like as rl
from rubix_like import ConfigError, Parameters, Pipeline, load_config
from rubix_like.extend import BinSplit, Footprint, PaintedCube, make_setup, resolve, resource
from rubix_like.forward.systematics.calibration_errors import (
    SHIFT_REACH,
    WIDTH_REACH,
    SmoothErrors,
    shifted_light,
    spread_light,
)
from rubix_like.inference.posterior.model_settings import without_noise
from rubix_like.runtime.mesh.bin_split import padded, wave_specs

LSF = 2.6
EVERYTHING = {
    "keep_contributions": True,
    "sky_residual": {"shift": "0.05 pixel", "lsf": "2 %", "lines": 0.01, "continuum": "0.5 %"},
    "flat_field": {"rms": "1 %", "correlation": "50 Angstrom"},
    "flux_calibration": {"rms": "3 %", "correlation": "100 Angstrom", "absolute": "2 %"},
    "telluric": {"residual": "5 %"},
    "cosmic_rays": {"rate": "1 %", "flagged": "50 %"},
    "wavelength_solution": {"rms": "0.05 pixel"},
    "lsf_variation": {"rms": "3 %", "correlation": "100 Angstrom"},
    "missing": [{"x": [0, 2], "wavelength": [6810, 6820]}],
    "gaps": [[6840, 6845]],
}
EXPOSURE = {"exposure": {"time": "600 s", "count": 4}}


def config(systematics, noise=EXPOSURE, stop=7000, fov="4 arcsec", **instrument):
    return load_config(
        {
            "observation": {"redshift": 0.05, "align": "none"},
            "instrument": muse(6800, stop, "1.25 Angstrom", fov=fov, **{"lsf": {"fwhm": LSF}, **instrument}),
            "engine": {"method": "direct", "precision": "float64", "velocity_range": 500},
            "noise": noise,
            **({} if systematics is None else {"systematics": systematics}),
        }
    )


SETUPS = {}
"""Setups of runs without errors by their instruments: errors and noise are made of a setup, and no part of it."""


def built(systematics, *names, **changes):
    """Stages of a run on 20 x 20 spaxels and 161 bins, its setup and parameters."""
    settings = config(systematics, **changes)
    instrument = settings.instrument.model_dump_json()
    if instrument not in SETUPS:
        plain = config(None, **changes | {"noise": None})
        SETUPS[instrument] = make_setup(plain, resolve(plain), None)
    setup = dataclasses.replace(SETUPS[instrument], config=settings)
    stages = [build_stage("systematics", name, setup) for name in names]
    return stages, setup, Parameters.build(settings, "float64")


def flat_cube(setup, flux=1.0, variance=None):
    n_y, n_x = setup.instrument.footprint.shape
    shape = (n_y * n_x, setup.instrument.bins.n_wave)
    own = jnp.broadcast_to(jnp.asarray(flux, jnp.float64), shape)
    noisy = None if variance is None else jnp.full(shape, variance)
    return PaintedCube(own, jnp.zeros((shape[0], 2)), Footprint(n_y, n_x, 0.2), variance=noisy)


def after(systematics, name, key=1, flux=1.0, variance=None, **changes):
    """The cube after one stage."""
    (stage,), setup, parameters = built(systematics, name, **changes)
    return eqx.filter_jit(stage)(flat_cube(setup, flux, variance), parameters, jax.random.key(key)), setup


def line(n_bin, place, sigma):
    return np.diff(ndtr((np.arange(n_bin + 1) - 0.5 - place) / sigma))


@pytest.mark.parametrize(("sigma", "most"), [(0.85, 0.1), (1.0, 0.052), (1.2, 0.022), (1.5, 0.006), (2.0, 0.001)])
def test_a_shift_moves_a_line_and_keeps_its_light(sigma, most):
    """Against the integrals of the shifted Gaussian; the error is a part of the largest change."""
    light = line(60, 30.2, sigma)
    for shift in (-0.3, 0.05, 0.9):
        padded_light = jnp.asarray(np.pad(light, SHIFT_REACH))[None]
        moved = np.asarray(shifted_light(padded_light, jnp.full_like(padded_light, shift)))[0]
        exact = line(60, 30.2 + shift, sigma)
        assert np.abs(moved - exact).max() < most * np.abs(exact - light).max()
        assert moved.sum() == pytest.approx(1, abs=1e-14)


@pytest.mark.parametrize(("sigma", "most"), [(1.0, 0.06), (1.2, 0.033), (1.5, 0.016)])
def test_a_wider_line_keeps_its_light(sigma, most):
    light = line(60, 30.2, sigma)
    for change in (-0.05, 0.03):
        padded_light = jnp.asarray(np.pad(light, WIDTH_REACH))[None]
        added = jnp.full_like(padded_light, sigma**2 * ((1 + change) ** 2 - 1))
        wider, exact = np.asarray(spread_light(padded_light, added))[0], line(60, 30.2, sigma * (1 + change))
        assert np.abs(wider - exact).max() < most * np.abs(exact - light).max()
        assert wider.sum() == pytest.approx(1, abs=1e-14)


def test_smooth_errors_have_the_variance_and_correlation_asked_for():
    """Of the shapes exactly exp(-d^2 / (2 L^2)); of 4000 draws within their own errors."""
    wavelength = np.linspace(5000, 5300, 121)
    smooth = SmoothErrors.build(0.02, 40.0, wavelength, "flat_field")
    distance = wavelength[:, None] - wavelength
    shapes = np.asarray(smooth.shapes)
    np.testing.assert_allclose(shapes.T @ shapes / 0.02**2, np.exp(-0.5 * (distance / 40) ** 2), atol=2e-7)
    drawn = np.asarray(smooth.draw(jax.random.key(3), np.arange(4000)))
    assert np.abs(drawn.mean(axis=0)).max() < 4.5 * 0.02 / np.sqrt(4000)
    np.testing.assert_allclose(drawn.std(axis=0), 0.02, rtol=4.5 / np.sqrt(2 * 4000))
    correlation = np.corrcoef(drawn[:, 20], drawn[:, 20 + 16])[0, 1]  # 40 Angstrom apart
    assert correlation == pytest.approx(np.exp(-0.5), abs=4.5 * (1 - np.exp(-1)) / np.sqrt(4000))
    with pytest.raises(ConfigError, match=r"flat_field\.correlation: expected at least 2 bins \(5 Angstrom\), got 4"):
        SmoothErrors.build(0.02, 4.0, wavelength, "flat_field")


def test_flat_field_errors_are_those_of_each_spaxel():
    cube, setup = after({"flat_field": {"rms": "1 %", "correlation": "50 Angstrom"}}, "flat_field", variance=4.0)
    error = np.asarray(cube.flux) - 1
    n = setup.instrument.footprint.n_element
    assert np.abs(error.mean(axis=0)).max() < 4.5 * 0.01 / np.sqrt(n)
    np.testing.assert_allclose(error.std(axis=0), 0.01, rtol=4.5 / np.sqrt(2 * n))
    np.testing.assert_allclose(cube.variance, 4.0 * np.asarray(cube.flux) ** 2, rtol=1e-12)


def test_flux_calibration_errors_are_shared_and_average_over_exposures():
    """Of 800 keys: rms^2 = (3 %)^2 + (2 %)^2, over 4 exposures; all spaxels alike."""
    section = {"flux_calibration": {"rms": "3 %", "correlation": "100 Angstrom", "absolute": "2 %"}}
    (stage,), setup, parameters = built(section, "flux_calibration")
    cube = flat_cube(setup)
    keys = jax.vmap(jax.random.key)(jnp.arange(800, dtype=jnp.uint32))
    two = eqx.tree_at(lambda own: own.number, stage, stage.number[:2])
    small = PaintedCube(cube.flux[:2], cube.moments[:2], Footprint(1, 2, 0.2))
    error = np.asarray(jax.vmap(lambda key: two(small, parameters, key).flux)(keys)) - 1
    np.testing.assert_array_equal(error[:, 0], error[:, 1])
    rms = np.hypot(0.03, 0.02) / 2
    assert np.abs(error[:, 0].mean(axis=0)).max() < 4.5 * rms / np.sqrt(800)
    np.testing.assert_allclose(error[:, 0].std(axis=0), rms, rtol=4.5 / np.sqrt(1600))


def dark_table():
    """The embedded sky as astropy reads it."""
    return Table.read(resource("skies", "dark"), format="fits")


def test_telluric_bands_are_those_of_the_table():
    """Left as it is, the flux falls by the table's transmission over that of clear windows at both sides; of a residual
    mean and rms are those asked for."""
    cube, setup = after({"telluric": {"left": 1}}, "telluric", noise=None)
    bins = setup.instrument.bins
    vacuum = bins.to_vacuum(bins.wavelength)
    table = dark_table()
    depth = -np.log(np.interp(vacuum, table["wavelength"], table["transmission"]))
    clear = np.interp(
        vacuum,
        [6830, 7080],
        [np.interp(own, table["wavelength"], -np.log(table["transmission"])) for own in (6830, 7080)],
    )
    found = -np.log(np.asarray(cube.flux)[0])
    assert found.max() > 0.2  # the B band of O2
    np.testing.assert_allclose(found, depth - clear, atol=0.012)
    (stage,), _, parameters = built({"telluric": {"left": "10 %", "residual": "4 %"}}, "telluric")
    one = eqx.tree_at(lambda own: own.number, stage, stage.number[:1])
    small = PaintedCube(jnp.ones((1, bins.n_wave)), jnp.zeros((1, 2)), Footprint(1, 1, 0.2))
    keys = jax.vmap(jax.random.key)(jnp.arange(800, dtype=jnp.uint32))
    peak = int(np.argmax(found))
    amounts = (
        -np.log(np.asarray(jax.vmap(lambda key: one(small, parameters, key).flux)(keys))[:, 0, peak]) / found[peak]
    )
    assert amounts.mean() == pytest.approx(0.1, abs=4.5 * 0.02 / np.sqrt(800))
    assert amounts.std() == pytest.approx(0.02, rel=4.5 / np.sqrt(1600))  # 4 exposures


def sky_flux(setup):
    """The sky in a spectrum, as flux above the atmosphere (1e-20 erg/s/cm2/Angstrom), on a fine grid of 0.05 Angstrom:
    at its own resolution of 3.1 Angstrom, which is wider than the instrument's."""
    table = dark_table()
    energy = 6.62607015e-27 * 2.99792458e18 / np.asarray(table["wavelength"])
    density = table["emission"] / 1e4 / 1e4 * 0.2**2 * energy / table["transmission"] / 1e-20
    grid = np.arange(6650, 7150, 0.05)
    return grid, np.interp(grid, table["wavelength"], np.asarray(density))


def in_bins(grid, values, edges):
    light = np.append(0, np.cumsum(0.5 * (values[1:] + values[:-1]) * np.diff(grid)))
    return np.diff(np.interp(edges, grid, light)) / np.diff(edges)


@pytest.mark.parametrize("kind", ["shift", "lsf", "lines", "continuum"])
def test_sky_residuals_are_the_difference_of_two_skies(kind):
    """For each kind the singular pattern of 400 spectra is that of numpy's sky less the sky with the error, and its
    strength has the mean and rms asked for."""
    rms = {"shift": 0.05, "lsf": 0.02, "lines": 0.01, "continuum": 0.005}[kind]
    cube, setup = after({"sky_residual": {kind: rms}}, "sky_residual", flux=0.0)
    bins = setup.instrument.bins
    edges = bins.to_vacuum(bins.edges)
    grid, sky = sky_flux(setup)
    if kind == "shift":
        expected = (in_bins(grid, np.interp(grid - 0.01, grid, sky), edges) - in_bins(grid, sky, edges)) / 0.01 * 1.25
    elif kind == "lsf":
        wider = gaussian_filter1d(sky, np.sqrt(1.02**2 - 1) * 3.1 / 2.35482 / 0.05)
        expected = in_bins(grid, wider - sky, edges) / 0.02
    else:
        vacuum = bins.to_vacuum(bins.wavelength)
        middle = np.array([np.median(sky[np.abs(grid - own) <= 100]) for own in vacuum])
        expected = in_bins(grid, sky, edges) - middle if kind == "lines" else middle
    residual = np.asarray(cube.flux)
    strength = residual @ expected / (expected @ expected)
    shape = np.linalg.svd(residual, full_matrices=False)[2][0]
    shape = shape * (shape @ expected) / (shape @ shape)
    tolerance = {"shift": 0.05, "lsf": 0.15, "lines": 0.1, "continuum": 0.05}[kind]
    assert np.abs(shape - expected)[5:-5].max() < tolerance * np.abs(expected).max()
    n = len(residual)
    assert abs(strength.mean()) < 4.5 * rms / 2 / np.sqrt(n)
    assert strength.std() == pytest.approx(rms / 2, rel=0.05 + 4.5 / np.sqrt(2 * n))


def moments_of(spectra):
    places = np.arange(spectra.shape[1])
    total = spectra.sum(axis=1)
    mean = spectra @ places / total
    return total, mean, spectra @ places**2 / total - mean**2


def test_wavelength_solutions_shift_lines():
    """Of 400 spectra the centroids of a line scatter as asked, and none loses light."""
    light = line(161, 80.3, 1.5)
    for section, rms in (({"rms": "0.05 pixel"}, 0.05), ({"velocity": "4 km/s"}, 4 / 299792.458 * 6900 / 1.25)):
        cube, setup = after({"wavelength_solution": section}, "wavelength_solution", flux=light)
        total, place, _ = moments_of(np.asarray(cube.flux))
        n = setup.instrument.footprint.n_element
        np.testing.assert_allclose(total, 1, atol=1e-12)
        assert place.mean() == pytest.approx(80.3, abs=4.5 * rms / np.sqrt(n))
        assert place.std() == pytest.approx(rms, rel=0.005 + 4.5 / np.sqrt(2 * n))


def test_line_spreads_vary_as_asked():
    sigma = LSF / 2.35482 / 1.25
    cube, setup = after({"lsf_variation": {"rms": "3 %"}}, "lsf_variation", flux=line(161, 80.3, 1.5))
    total, place, variance = moments_of(np.asarray(cube.flux))
    error = np.sqrt(1 + (variance - 1.5**2 - 1 / 12) / sigma**2) - 1
    n = setup.instrument.footprint.n_element
    np.testing.assert_allclose(total, 1, atol=1e-12)
    np.testing.assert_allclose(place, 80.3, atol=1e-10)
    assert error.mean() == pytest.approx(0, abs=4.5 * 0.03 / np.sqrt(n))
    assert error.std() == pytest.approx(0.03, rel=4.5 / np.sqrt(2 * n))


def test_cosmic_rays_are_as_many_and_as_strong_as_asked():
    section = {"cosmic_rays": {"rate": "2 %", "strength": 8, "flagged": "75 %"}}
    cube, _ = after(section, "cosmic_rays", flux=0.0, variance=9.0)
    strength, bits = np.asarray(cube.flux) / 3, np.asarray(cube.bits)
    hits = strength > 0
    n, n_hit = hits.size, hits.sum()
    assert n_hit / n == pytest.approx(0.02, abs=4.5 * np.sqrt(0.02 * 0.98 / n))
    assert strength[hits].mean() == pytest.approx(8, rel=4.5 / np.sqrt(n_hit))
    assert strength[hits].std() == pytest.approx(8, rel=4.5 * np.sqrt(2 / n_hit))
    assert set(np.unique(bits)) == {0, COSMIC_RAY}
    assert not bits[~hits].any()
    assert (bits[hits] > 0).mean() == pytest.approx(0.75, abs=4.5 * np.sqrt(0.75 * 0.25 / n_hit))


@pytest.mark.slow
def test_a_long_hit_covers_neighbouring_bins():
    longer, _ = after({"cosmic_rays": {"rate": "0.2 %", "length": 3}}, "cosmic_rays", flux=0.0, variance=9.0)
    hits = np.asarray(longer.flux)[:, 2:] > 0
    assert hits.mean() == pytest.approx(0.006, abs=4.5 * np.sqrt(3 * 0.006 / hits.size))


def test_saturated_voxels_hold_what_a_pixel_can():
    """Electrons by hand: flux x bin x lambda / (h c) x area x time x throughput, and those of the dark current."""
    detector = {"collecting_area": 50, "throughput": 0.2, "read_noise": 3, "dark_current": 36, "pixels_per_voxel": 2}
    changes = {"noise": {"exposure": {"time": "100 s", "count": 4, "sky": "none"}}, "detector": detector}
    ramp = np.linspace(0, 2e6, 161)
    cube, setup = after({"saturation": {"level": 20000}}, "saturation", flux=ramp, **changes)
    bins = setup.instrument.bins
    photons = 1e-20 * 1.25 * bins.to_vacuum(bins.wavelength) / (6.62607015e-27 * 2.99792458e18) * 50e4
    electrons = ramp * photons * 400 * 0.2 + 36 / 3600 * 400 * 2
    full = electrons >= 20000 * 4 * 2
    assert 20 < full.sum() < 140
    np.testing.assert_array_equal(np.asarray(cube.bits)[7], np.where(full, SATURATED, 0))
    np.testing.assert_array_equal(np.asarray(cube.flux)[7, ~full], ramp[~full])
    np.testing.assert_allclose((np.asarray(cube.flux)[7] * photons * 80 + 8)[full], 160000, rtol=1e-6)


def test_missing_regions_and_gaps_are_flagged_and_dark():
    section = {"missing": [{"x": [3, 5], "y": [0, 1]}, {"wavelength": [6810, 6812]}], "gaps": [[6900, 6902.4]]}
    cube, setup = after(section, "missing")
    bits = setup.instrument.footprint.images(np.asarray(cube.bits))
    edges = setup.instrument.bins.edges
    expected = np.zeros_like(bits)
    expected[0:2, 3:6] |= NO_DATA
    for (low, high), bit in (((6810, 6812), NO_DATA), ((6900, 6902.4), DETECTOR_GAP)):
        expected[:, :, (edges[1:] > low) & (edges[:-1] < high)] |= bit
    np.testing.assert_array_equal(bits, expected)
    flux = setup.instrument.footprint.images(np.asarray(cube.flux))
    np.testing.assert_array_equal(flux, expected == 0)
    n_x = setup.instrument.n_x
    (wide,), *_ = built({"missing": [{"x": [n_x - 1, 99]}]}, "missing")
    (note,) = wide.report().notes
    assert note == f"systematics.missing.0: columns {n_x - 1} to 99 are asked for, but the field has 0 to {n_x - 1}"


@pytest.fixture(scope="module")
def observed():
    """The same stars with all errors, and without."""
    settings = {"fov": "1.6 arcsec", "stop": 6850}
    galaxy = few_stars(20, 0.4)
    noisy = {**EXPOSURE, "keep_truth": True}
    names = {"with": EVERYTHING, "without": None, "empty": {}}
    pipelines = {name: Pipeline.from_config(config(own, noisy, **settings), galaxy) for name, own in names.items()}
    return galaxy, pipelines, {name: own(galaxy) for name, own in pipelines.items()}


@pytest.mark.slow
def test_truth_and_contributions_explain_the_data(observed):
    """chi^2 of what is left is 1 within 4.5 standard errors; with the truth alone it is not. The noise is that of the
    run without errors."""
    _, _, cubes = observed
    cube, without = cubes["with"], cubes["without"]
    good = np.asarray(cube.mask) == 0
    np.testing.assert_allclose(cube.truth, without.truth, rtol=1e-12)
    added = sum(np.asarray(own) for own in cube.contributions.values())
    kinds = {"cosmic_rays", "flat_field", "flux_calibration", "lsf_variation", "sky_residual", "telluric"}
    assert set(cube.contributions) == kinds | {"wavelength_solution"}
    rest = np.asarray(cube.flux) - np.asarray(cube.truth)
    chi2, plain = (float(np.mean((own**2 / np.asarray(cube.variance))[good])) for own in (rest - added, rest))
    assert chi2 == pytest.approx(1, abs=4.5 * np.sqrt(2 / good.sum()))
    assert plain > 1.3
    first = (rest - added)[good] / np.sqrt(np.asarray(cube.variance))[good]
    second = ((np.asarray(without.flux) - np.asarray(without.truth)) / np.sqrt(np.asarray(without.variance)))[good]
    assert np.corrcoef(first, second)[0, 1] > 0.999


@pytest.mark.slow
def test_the_model_of_a_fit_is_the_true_light(observed):
    galaxy, pipelines, cubes = observed
    np.testing.assert_allclose(without_noise(pipelines["with"])(galaxy).flux, cubes["without"].truth, rtol=1e-12)


@pytest.mark.slow
def test_off_is_the_same_program_and_the_same_bytes(observed, tmp_path):
    galaxy, pipelines, cubes = observed
    texts = [pipelines[name].lower(galaxy).as_text() for name in ("without", "empty")]
    assert texts[0] == texts[1]
    for name in ("flux", "variance", "mask"):
        np.testing.assert_array_equal(getattr(cubes["without"], name), getattr(cubes["empty"], name))
    assert "systematics" not in config(None).to_yaml()
    cubes["without"].write(tmp_path / "off.fits")
    with fits.open(tmp_path / "off.fits") as hdus:
        assert not any("SYST" in key for key in hdus[0].header)
        assert [hdu.name for hdu in hdus] == ["PRIMARY", "DATA", "STAT", "VAR", "LSF", "CONFIG"]


@pytest.mark.slow
def test_flags_and_contributions_are_in_the_files(tmp_path):
    """The cube's file has the flags, the truth's what each error adds; both are read as they were."""
    settings = config(EVERYTHING, {"signal_to_noise": 20}, 6850, "1 arcsec")
    changes = {"galaxy": {"reader": "synthetic", "n_stars": 20}, "output.path": str(tmp_path / "own.fits")}
    cube = rl.run(load_config(settings, overrides=changes), quiet=True)
    back, truth = rl.Cube.read(tmp_path / "own.fits"), rl.Cube.read(tmp_path / "own_truth.fits")
    np.testing.assert_array_equal(back.mask, cube.mask)
    assert int(np.bitwise_or.reduce(np.asarray(cube.mask), axis=None)) & (NO_DATA | DETECTOR_GAP)
    np.testing.assert_allclose(truth.flux, cube.truth, rtol=1e-6)
    assert list(truth.contributions) == list(cube.contributions)
    for name, own in cube.contributions.items():
        np.testing.assert_allclose(truth.contributions[name], own, rtol=1e-6)
    with fits.open(tmp_path / "own.fits") as hdus:
        assert hdus[0].header["SYSTEMAT"].startswith("lsf_variation, wavelength_solution, cosmic_rays")
        assert hdus["DQ"].header["DQBIT6"] == "cosmic ray"
    with fits.open(tmp_path / "own_truth.fits") as hdus:
        assert "SYSTEMAT" not in hdus[0].header
        assert hdus["FLAT_FIELD"].header["SYSTERR"] == "flat_field"
    box = cube.cut(size="0.4 arcsec")
    assert box.contributions["flat_field"].shape == box.shape


@pytest.mark.slow
def test_errors_of_fibres_come_before_the_cube():
    """Flat fields are those of fibres, flux calibrations those of exposures; flagged bins of spectra are left out of
    the cube, as numpy's sums over the others say, and of its covariance."""
    systematics = {
        "keep_contributions": True,
        "flat_field": {"rms": "2 %"},
        "flux_calibration": {"absolute": "5 %"},
        "cosmic_rays": {"rate": "10 %", "flagged": 1},
        "missing": [{"fibres": [2, 3], "exposures": [1], "wavelength": [5000, 5020]}],
        "gaps": [[5055, 5070]],
    }
    pipeline = Pipeline.from_config(fibre_run(noise={"signal_to_noise": 30}, systematics=systematics))
    cube = pipeline(three_stars(float(pipeline.tables.arcsec_per_kpc))[1])
    assert cube.meta["systematics"] == "cosmic_rays, flat_field, flux_calibration, missing, gaps"
    fibres, truth = cube.fibres, np.asarray(cube.fibres.truth)
    places, good = fibres.places, fibres.good
    error = np.asarray(fibres.contributions["flat_field"]) / (truth + fibres.contributions["cosmic_rays"])
    for number in np.unique(places.number):
        own = error[places.number == number]
        np.testing.assert_allclose(own, own[0, 0], rtol=1e-9)
    assert len(np.unique(error.round(12))) == len(np.unique(places.number))
    before = sum((fibres.contributions[name] for name in ("cosmic_rays", "flat_field")), start=truth)
    error = np.asarray(fibres.contributions["flux_calibration"]) / np.asarray(before)
    for number in (1, 2, 3):
        np.testing.assert_allclose(error[places.exposure == number], error[places.exposure == number][0, 0], rtol=1e-9)
    bits = np.asarray(fibres.bits)
    missing = np.isin(places.number, [2, 3]) & (places.exposure == 1)
    np.testing.assert_array_equal((bits & NO_DATA > 0).any(axis=1), missing)
    assert (bits[:, -1] & DETECTOR_GAP > 0).all()
    assert 0.04 < (bits & COSMIC_RAY > 0).mean() < 0.2
    matrix = fibres.weights.matrix().toarray()
    for number in range(good.shape[1]):
        kept = matrix * good[:, number]
        whole, left = matrix.sum(axis=1), kept.sum(axis=1)
        kept *= np.where(left > 0, whole / np.where(left > 0, left, 1), 0)[:, None]
        for name, expected in (
            ("flux", kept @ np.asarray(fibres.flux)[:, number]),
            ("truth", kept @ truth[:, number]),
            ("variance", kept**2 @ np.asarray(fibres.variance)[:, number]),
        ):
            image = np.asarray(getattr(cube, name))[:, :, number].ravel()
            np.testing.assert_allclose(image, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max() + 1e-300)
        flags = np.asarray(cube.mask)[:, :, number].ravel()
        np.testing.assert_array_equal((flags & ~2 > 0)[whole > 0], (left < whole / 2)[whole > 0])
    covariance = cube.covariance(5024)
    np.testing.assert_allclose(covariance.variance, np.asarray(cube.variance)[:, :, 2], rtol=1e-9)
    model = sum((np.asarray(own) for own in fibres.contributions.values()), start=truth)
    chi2, n = float(fibres.chi2(model).sum()), int(good.sum())
    assert chi2 == pytest.approx(n, abs=4.5 * np.sqrt(2 * n))


ALL_NAMES = ("lsf_variation", "wavelength_solution", "cosmic_rays", "flat_field", "sky_residual", "telluric")


def chain(stages, parameters, key, split, flux, variance):
    """All stages on a device's part of a cube."""
    cube = PaintedCube(flux, jnp.zeros((flux.shape[0], 2)), Footprint(flux.shape[0], 1, 0.2), split=split)
    for number, stage in enumerate(stages):
        if number == 2:
            cube = eqx.tree_at(lambda c: c.variance, cube, variance, is_leaf=lambda own: own is None)
        cube = stage(cube, parameters, jax.random.fold_in(key, stage.key_number))
    return cube.flux, cube.variance, cube.bits


@pytest.mark.slow
def test_eight_devices_make_the_same_errors():
    """161 bins in eight uneven parts; also the derivatives of the whole chain are those of differences."""
    names = (*ALL_NAMES, "flux_calibration", "missing")
    stages, _, parameters = built(EVERYTHING, *names, fov="0.8 arcsec")
    rng = np.random.default_rng(4)
    flux = jnp.asarray(rng.uniform(50, 100, (16, 161)))
    variance, key = jnp.full_like(flux, 4.0), jax.random.key(7)
    alone = jax.jit(lambda flux: chain(stages, parameters, key, BinSplit(), flux, variance))(flux)
    split = BinSplit(161, 8, ("wave", "data"))
    parts = padded(stages, split)
    mesh = jax.make_mesh((4, 2), ("data", "wave"), axis_types=(AxisType.Auto,) * 2)  # as runs have it
    bins = PartitionSpec(None, split.axes)
    inner = jax.shard_map(
        lambda own, flux, variance: chain(own, parameters, key, split, flux, variance),
        mesh=mesh,
        in_specs=(wave_specs(parts, split.axes), bins, bins),
        out_specs=bins,
        check_vma=False,
    )
    wide = [jnp.pad(own, ((0, 0), (0, split.n_padded - 161)), mode="edge") for own in (flux, variance)]
    together = jax.jit(inner)(parts, *wide)
    for one, many in zip(alone, together, strict=True):
        np.testing.assert_allclose(one, many[:, :161], rtol=1e-12)
    direction = jnp.asarray(rng.normal(size=flux.shape))

    @jax.jit
    def light(flux):
        return (chain(stages, parameters, key, BinSplit(), flux, variance)[0] * direction).sum()

    slope = float((jax.grad(light)(flux) * direction).sum())
    step = 1e-3
    difference = (light(flux + step * direction) - light(flux - step * direction)) / (2 * step)
    assert slope == pytest.approx(float(difference), rel=1e-7)


def build_all(systematics, changes):
    before, after_noise = config(systematics, **changes).systematics.stages
    return built(systematics, *before, *after_noise, **changes)


@pytest.mark.parametrize(
    ("systematics", "changes", "words"),
    [
        ({"cosmic_rays": {"rate": 0.01}}, {"noise": None}, "cosmic_rays: expected noise"),
        ({"saturation": {"level": 1e4}}, {"noise": {"signal_to_noise": 9}}, "saturation: expected noise.exposure"),
        ({"lsf_variation": {"rms": 0.01}}, {"lsf": None}, "lsf_variation: expected an instrument with a line spread"),
        ({"wavelength_solution": {"velocity": 50}}, {}, r"velocity: expected at most 0.3 bins \(16.1 km/s\), got 50"),
        ({"missing": [{"fibres": [1]}]}, {}, "missing.0.fibres: expected null for an instrument without fibres"),
        ({"missing": [{"x": [20, 50]}]}, {}, "missing.0: expected a region that the instrument sees"),
        ({"missing": [{"wavelength": [1, 2]}]}, {}, "missing.0.wavelength: expected one that the detector has"),
        ({"gaps": [[5000, 5010]]}, {}, "gaps: expected gaps in the detector's range"),
        ({"telluric": {"left": 1, "sky": "none"}}, {}, "telluric.sky: expected a sky with an atmosphere, got 'none'"),
        ({"sky_residual": {}}, {}, "expected shift or lsf or lines or continuum above 0"),
        ({"flat_field": {"rms": "2 pixel"}}, {}, "expected a fraction"),
        ({"wavelength_solution": {}}, {}, "expected exactly one of rms"),
        ({"missing": [{"x": [5, 3]}]}, {}, "x: expected the lower end first"),
        ({"gaps": [6900, 6910]}, {}, r"gaps: expected a list of gaps, got one; write \[\[6900, 6910\]\]"),
    ],
)
def test_what_cannot_be_is_refused_in_words(systematics, changes, words):
    with pytest.raises(ConfigError, match=words):
        build_all(systematics, changes)


def test_contributions_are_refused_where_a_file_has_no_place_for_them():
    whole = {"systematics": {"keep_contributions": True}, "output": {"path": "cube.h5"}}
    whole |= {"instrument": {"name": "muse"}, "observation": {"redshift": 0.05}}
    with pytest.raises(ConfigError, match=r"keep_contributions: expected an output.path that ends in .fits, got 'cube"):
        load_config(whole)


@pytest.mark.parametrize(
    ("systematics", "perfect"), [({"sky_residual": {"lines": 0.01}}, False), ({"gaps": [[6900, 6910]]}, True)]
)
def test_the_noise_model_says_whether_the_sky_is_subtracted_without_error(systematics, perfect):
    pipeline = Pipeline.from_config(config(systematics))
    assert pipeline.frame.meta["noise_model"].endswith("sky subtracted without error") == perfect
    assert pipeline.frame.meta["systematics"] == next(iter(systematics))
