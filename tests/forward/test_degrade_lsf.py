"""The stage degrade_lsf: lines get as wide as stated, light and the level of a continuum stay."""

import jax.numpy as jnp
import numpy as np
import pytest
from building import build_stage
from small import SPREAD_FROM_BEYOND, muse

from rubix_like import ConfigError, Parameters, Pipeline, load_config
from rubix_like.extend import Footprint, PaintedCube, make_setup, resolve

BASE = {
    "observation": {"redshift": 0.05, "align": "none"},
    "instrument": muse(5000, 7000, "5 Angstrom", fov="0.6 arcsec", lsf={"fwhm": "60 Angstrom"}),
    "engine": {"method": "direct", "precision": "float64", "velocity_range": 500},
}


def stage_for(options, **changes):
    config = load_config(BASE, changes)
    setup = make_setup(config, resolve(config), None)
    return build_stage("cube", "degrade_lsf", setup, options), setup, Parameters.build(config, "float64")


def applied(stage, parameters, spectrum):
    flux = jnp.broadcast_to(jnp.asarray(spectrum), (2, len(spectrum)))
    return np.asarray(stage(painted(flux), parameters, None).flux)[1]


def painted(flux, **arrays):
    return PaintedCube(flux, jnp.zeros((len(flux), 2)), Footprint(len(flux), 1, 0.2), **arrays)


@pytest.mark.parametrize("sampling", ["linear", "log"])
@pytest.mark.parametrize("wanted", [62.0, 75.0, 120.0])
def test_a_line_gets_the_width_that_takes_the_cube_to_the_wanted_one(wanted, sampling):
    """Within 1 %, also where the kernel is narrower than a bin (62: sigma = 6.6 A of 5 A bins); its light is kept."""
    log = {"instrument.wavelength.sampling": "log", "instrument.wavelength.step": 4e-4} if sampling == "log" else {}
    stage, setup, parameters = stage_for({"fwhm": wanted}, **log)
    bins = setup.instrument.bins
    effective = setup.sources["stars"].spread.widths(bins.wavelength)[1]
    line = np.zeros(bins.n_wave)
    middle = bins.n_wave // 2
    line[middle] = 1.0
    after = applied(stage, parameters, line) * np.diff(bins.edges)
    assert after.sum() == pytest.approx(np.diff(bins.edges)[middle], rel=1e-10)
    offset = bins.wavelength - bins.wavelength @ after / after.sum()
    fwhm = np.sqrt(8 * np.log(2) * (offset**2 @ after) / after.sum())
    assert fwhm == pytest.approx(np.sqrt(wanted**2 - effective[middle] ** 2), rel=0.01)
    np.testing.assert_allclose(np.asarray(stage.lsf_fwhm), wanted, rtol=1e-10)


def test_a_flat_continuum_stays_and_ends_are_flagged():
    stage, _, parameters = stage_for({"fwhm": "100 Angstrom"})
    np.testing.assert_allclose(applied(stage, parameters, np.full(401, 3.0)), 3.0, rtol=1e-12)
    bits = stage.report().wave_bits
    assert (bits[[0, -1]] == SPREAD_FROM_BEYOND).all()
    flagged = np.flatnonzero(bits)
    sigma = np.sqrt(100.0**2 - 60.0**2) / np.sqrt(8 * np.log(2)) / 5.0
    assert (flagged < 201).sum() == pytest.approx(3 * sigma, abs=1.5)
    assert (flagged >= 201).sum() == pytest.approx(3 * sigma, abs=1.5)


def test_a_sharper_cube_is_not_to_be_had():
    """Bins stay as they are, and the user is told; the stated LSF is the true one."""
    stage, setup, parameters = stage_for({"fwhm": "20 Angstrom"})
    spectrum = np.random.default_rng(1).uniform(size=401)
    np.testing.assert_allclose(applied(stage, parameters, spectrum), spectrum, rtol=1e-14)
    report = stage.report()
    effective = setup.sources["stars"].spread.widths(setup.instrument.bins.wavelength)[1]
    np.testing.assert_allclose(report.lsf_fwhm, effective)
    assert "already coarser than wanted in 100 %" in report.notes[0]
    assert not report.wave_bits.any()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "expected exactly one of"),
        ({"fwhm": "1 km/s"}, "expected a quantity in Angstrom"),
        ({"width": 3}, "stage 'degrade_lsf' has no option 'width'"),
        ({"fwhm": "3000 Angstrom"}, "narrower than the detector's 401 bins"),
    ],
)
def test_wrong_options_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        stage_for(options)


def test_noise_comes_after():
    stage, _, parameters = stage_for({"fwhm": "100 Angstrom"})
    flux = jnp.ones((1, 401))
    with pytest.raises(ConfigError, match="expected 'degrade_lsf' before 'noise'"):
        stage(painted(flux, variance=flux), parameters, None)


def test_in_a_pipeline_it_sets_lsf_mask_and_header(tmp_path):
    path = tmp_path / "coarse.yaml"
    path.write_text("scene: [orient, point]\npaint: [stars]\ncube: [psf, {degrade_lsf: {fwhm: 100 Angstrom}}, noise]\n")
    pipeline = Pipeline.from_config(load_config(BASE, {"pipeline": str(path)}))
    np.testing.assert_allclose(pipeline.frame.lsf_fwhm, 100.0, rtol=1e-10)
    assert pipeline.frame.wave_bits[0] & SPREAD_FROM_BEYOND
    assert pipeline.frame.meta["lsf_degraded"] is True


def test_twice_is_refused(tmp_path):
    """The second one would start from the instrument's width, not from the first one's."""
    path = tmp_path / "twice.yaml"
    stages = "{degrade_lsf: {fwhm: 80 Angstrom}}, {degrade_lsf: {fwhm: 100 Angstrom}}"
    path.write_text(f"scene: [orient, point]\npaint: [stars]\ncube: [psf, {stages}, noise]\n")
    with pytest.raises(ConfigError, match=r"expected one 'degrade_lsf'.*got 2"):
        Pipeline.from_config(load_config(BASE, {"pipeline": str(path)}))
