"""Parameters of a call beyond what the pipeline is planned for are refused; the widest that it holds are right."""

import functools

import jax
import numpy as np
import pytest
from small import few_stars, muse

import rubix_like as rl

FWHM, BETA = "instrument.psf.fwhm", "instrument.psf.beta"
DISPERSION = "lines.velocity_dispersion"
GALAXY = few_stars(200, 0.3)
RUN = {
    "galaxy": None,
    "observation": {"redshift": 0.02, "align": "none"},
    "engine": {"velocity_range": 600, "precision": "float64", "deposit": "nearest"},
    "devices": {"data": 1},
}
FIELD = [{"at": [-1, 0]}, {"at": [1, 0], "width": 1.5}]
PSFS = {
    "gaussian": ({"fwhm": 0.8}, {FWHM: 0.931}, {FWHM: 0.94}),
    "moffat": ({"kind": "moffat", "fwhm": 0.4, "beta": 3.0}, {FWHM: 0.43}, {FWHM: 0.5}),
    "wings": ({"kind": "moffat", "fwhm": 0.4, "beta": 3.0}, {BETA: 2.95}, {BETA: 2.5}),
    "by wavelength": ({"fwhm": [0.7, 0.8], "wavelength": [5000, 5060]}, {FWHM: [0.93, 0.3]}, {FWHM: [0.3, 0.94]}),
    "over the field": ({"fwhm": 0.4, "field": FIELD}, {FWHM: 0.44}, {FWHM: 0.62}),
}
"""A PSF, the widest that a pipeline planned for it holds (about), and one that it does not."""


def planned(psf):
    return rl.Pipeline.from_config({**RUN, "instrument": muse(5000, 5060, 20, psf=psf)})


@functools.cache
def planned_for(name):
    return planned(PSFS[name][0])


def beyond(radius, fwhm, beta):
    """Light of a profile beyond a radius, by its integral."""
    if beta is None:
        return 2.0 ** (-((2 * radius / fwhm) ** 2))
    alpha2 = fwhm**2 / (4 * (2 ** (1 / beta) - 1))
    return (1 + radius**2 / alpha2) ** (1 - beta)


@pytest.mark.parametrize("name", ["gaussian", "over the field"])
def test_the_widest_psf_is_that_of_a_pipeline_planned_for_it(name):
    """To 0.4 % of the peak, for its light beyond the margin."""
    psf, widest, _ = PSFS[name]
    right = planned(psf | {key.removeprefix("instrument.psf."): value for key, value in widest.items()})
    expected = np.asarray(right(GALAXY).flux)
    flux = planned_for(name)(GALAXY, widest).flux
    np.testing.assert_allclose(flux, expected, rtol=0, atol=4e-3 * expected.max())


@pytest.mark.parametrize("name", PSFS)
def test_psfs_wider_than_the_margin_are_refused(name):
    """The light of the widest beyond the margin, by the profile's integral, is little; that of a wider one is more."""
    (psf, widest, wider), pipeline = PSFS[name], planned_for(name)
    pipeline.chosen(widest)
    factor = max(place.get("width", 1) for place in psf.get("field", [{}]))
    given = {key: psf.get(key.rpartition(".")[2]) for key in (FWHM, BETA)}
    losses = []
    for values in (given | widest, given | wider):
        losses.append(beyond(0.2 * pipeline.plan.margin, factor * np.max(values[FWHM]), values[BETA]))
    assert losses[0] < 3e-3
    assert losses[1] > max(losses[0], 1.7e-3)
    with pytest.raises(rl.ConfigError, match=r"parameters\['instrument.psf.fwhm'\]: expected at most .* arcsec.* got"):
        pipeline(GALAXY, wider)
    with pytest.raises(rl.ConfigError, match=r"rl.Pipeline.from_config with instrument.psf.fwhm of"):
        pipeline.observe_slabs([GALAXY], wider)


def test_traced_widths_are_not_judged():
    pipeline = planned_for("gaussian")
    jax.eval_shape(lambda fwhm: pipeline(GALAXY, {FWHM: fwhm}).flux, 5.0)
    jax.eval_shape(lambda pipeline: pipeline(GALAXY, {FWHM: 0.8}).flux, pipeline)


def test_lines_narrower_than_the_nodes_are_refused():
    """Without a line spread nodes are planned for half of the configured dispersion (before: a cube of NaN)."""
    config = {**RUN, "pipeline": "lines", "instrument": muse(5080, 5130, 1.25)}
    config["engine"] = {**RUN["engine"], "method": "basis"}
    config["lines"] = {"wavelengths": "[O III] 5007", "particles": "stars", "velocity_dispersion": 60}
    pipeline = rl.Pipeline.from_config(config)
    flux = np.asarray(pipeline(GALAXY, {DISPERSION: 30}).flux)
    config["lines"]["velocity_dispersion"] = 30
    right = np.asarray(rl.Pipeline.from_config(config)(GALAXY).flux)
    np.testing.assert_allclose(flux, right, rtol=0, atol=2e-3 * right.max())
    with pytest.raises(
        rl.ConfigError,
        match=rf"parameters\['{DISPERSION}'\]: expected at least 30 km/s .* got 29; .*{DISPERSION} of 29",
    ):
        pipeline(GALAXY, {DISPERSION: 29})
