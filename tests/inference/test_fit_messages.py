"""A fit that cannot be is refused before it starts, with what was expected, what came and what to do."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rubix_like import ConfigError, Galaxy, Pipeline, load_config, load_galaxy, log_posterior, make_mesh
from rubix_like.inference.checks.notes import check_effects, check_start

INCLINATION = {"observation.inclination": {"uniform": ["20 deg", "80 deg"]}}
ROTATION = {"galaxy.rotation_velocity": {"uniform": [50, 300]}, "dust.a_v": {"uniform": [0, 1]}}


@functools.cache
def config(**overrides):
    return load_config(
        "quickstart",
        overrides={
            "galaxy.n_stars": 40,
            "instrument.fov": "1 arcsec",
            "instrument.wavelength.stop": "4780 Angstrom",
            "instrument.psf": None,
            "engine.deposit": "tsc",
            "engine.method": "direct",
            "engine.precision": "float64",
            "engine.velocity_range": "1000 km/s",
            "observation.align": "none",
            "dust": {"a_v": 0.1, "curve": "calzetti"},
            "noise": {"signal_to_noise": 30},
            "devices.data": 1,
            **{name.replace("__", "."): value for name, value in overrides.items()},
        },
    )


@functools.cache
def galaxy():
    return load_galaxy(config())


@functools.cache
def data():
    cube = Pipeline.from_config(config(), mesh=make_mesh(1))(galaxy())
    return log_posterior(config(), cube, ROTATION).problem.observed


@functools.cache
def posed():
    return log_posterior(config(), data(), ROTATION).problem.posterior


def changed(leaf_of, value):
    """The posterior with this number in place of others, which lies where they do: nothing is compiled again."""

    def filled(leaf):
        return jax.device_put(jnp.full_like(leaf, value), leaf.sharding)

    return eqx.tree_at(leaf_of, posed(), replace_fn=filled)


def refused(expected, free=INCLINATION, observed=None, run=None, given=None, **settings):
    """That a fit is refused with all of these words in its message."""
    with pytest.raises((ConfigError, ValueError)) as caught:
        log_posterior(run or config(), observed or data(), free, galaxy=given, **settings)
    for words in expected:
        assert words in str(caught.value)


def one(name, kind, *numbers):
    return {name: {kind: numbers}}


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        (one("observation.inclinatio", "uniform", 0, 1), ["did you mean 'observation.inclination'"]),
        (one("noise_scale", "uniform", 0, 1), ["fit.noise_scale"]),
        (one("observation.inclination", "uniform", "0 km/s", 1), ["quantity in deg", "'0 km/s'"]),
        (one("observation.inclination", "uniform", 0, float("nan")), ["finite", "nan"]),
        (one("observation.inclination", "uniform", -1000, 1000), ["within 360 deg"]),
        (one("observation.inclination", "normal", "galaxy", 3), ["'galaxy'", "galaxy.* and stars.*"]),
        (one("observation.velocity_offset", "normal", 0, 1e7), ["below that of light"]),
        (one("dust.a_v", "normal", 0, 1), ["reaches -4 mag at 4 sigma", "a number >= 0", "log_normal"]),
        (one("galaxy.disc_metallicity", "uniform", -1, 0.02), ["a number > 0"]),
        (one("galaxy.disc_log_age", "uniform", 9, 12), ["reaches 12", "<= 10.3"]),
        (one("galaxy.disc_log_age", "uniform", "1 Gyr", "5 Gyr"), ["'1 Gyr'", "log10(age / yr)"]),
        (one("galaxy.disc_log_age", "truncated_normal", 9, 0.1, 9.9, 10), ["mean near or between low and high"]),
        (one("galaxy.gas_fraction", "uniform", 0, 1), ["does not read it"]),
        (one("stars.log_age", "uniform", 8, 10), ["read from a file, or given"]),
        (one("instrument.psf.fwhm", "uniform", 0.5, 1), ["instrument.psf", "null"]),
        (one("observation.inclination", "normal", [1, 2], 3), ["one number for all", "(2,)"]),
    ],
)
def test_priors(free, expected):
    refused(expected, free)


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        (
            one("galaxy.stellar_mass", "log_normal", 1e10, 0.1),
            ["galaxy: {reader: synthetic}", "(galaxy=..., galaxies=...), or free"],
        ),
        (one("stars.initial_mass", "normal", "galaxy", 1e9), ["Msun at 4 sigma", "a number >= 0", "log_normal"]),
        (one("stars.initial_mass", "log_normal", [1e5, 1e6], 0.3), ["(40,)", "(2,)"]),
        (one("stars.initial_mass", "log_normal", [[1e5], [1e6, 2e6]], 0.3), ["lists of one length"]),
        (one("stars.metallicity", "uniform", 0.1, 3), ["reaches 3 at", "a number <= 1"]),
        (one("stars.metallicity", "uniform", 0.1, 0.3), ["overlaps with the SSP library's range", "0.05"]),
        (one("stars.log_age", "uniform", 0.1, 13), ["reaches 13 at", "a number <= 10.3"]),
        (
            one("stars.velocity", "normal", "galaxy", 50) | one("stars.v_los", "normal", "galaxy", 50),
            ["got both", "keep stars.v_los"],
        ),
    ],
)
def test_priors_of_stars(free, expected):
    refused(expected, free, given=galaxy())


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"noise_scale": {"normal": [1, 0.3]}}, ["fit.noise_scale", "above 0", "{normal: [1, 0.3]}"]),
        ({"sigma": 1.0}, ["fit.sigma", "got both"]),
        ({"windows": [(7000, 7500)]}, ["7000", "4750.00"]),
        ({"exclude": [(3000, 9000)]}, ["0 % of the wavelengths are selected", "fit.exclude"]),
        ({"start": {"dust.a_v": 1}}, ["fit.start", "'dust.a_v'", "observation.inclination"]),
        ({"start": {"observation.inclination": "10 deg"}}, ["inside its prior, {uniform: [20, 80]}, got 10"]),
        ({"start": {"observation.inclination": "abc"}}, ["fit.start.observation.inclination", "deg", "'abc'"]),
        ({"start": {"observation.inclination": [1, 2]}}, ["shape ()", "(2,)"]),
    ],
)
def test_settings(settings, expected):
    refused(expected, **settings)


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"optimiser": {"steps": 0}}, ["fit.optimiser.steps", ">= 1", "got 0"]),
        ({"windows": [[5000, 4700]]}, ["increasing wavelengths", "[5000, 4700]"]),
        ({"windows": []}, ["fit.windows"]),
        ({"start": [1]}, ["fit.start", "parameters with values"]),
        ({"free": {"dust.a_v": [0, 1]}}, ["fit.free", "one prior with its numbers", "[0, 1]"]),
        ({"free": {"dust.a_v": {"uniform": 3}}}, ["list of numbers", "got 3"]),
        ({"optimizer": {}}, ["did you mean 'optimiser'"]),
    ],
)
def test_sections(section, expected):
    with pytest.raises(ConfigError) as caught:
        load_config(config(), overrides={"fit": {"free": INCLINATION, **section}})
    for words in expected:
        assert words in str(caught.value)


def test_what_is_no_number_in_the_data_is_left_out_and_counted():
    flux, variance = data().flux.copy(), data().variance.copy()
    flux[0, 0, :3] = np.nan
    variance[1, 1, :2], variance[1, 2, 0], variance[1, 3, 0] = 0, np.inf, -1
    broken = dataclasses.replace(data(), flux=flux, variance=variance)
    problem = log_posterior(config(), broken, ROTATION).problem
    likelihood = problem.posterior.likelihood
    assert "3 (flux not finite), 4 (variance not finite or not > 0)" in "\n".join(problem.notes)
    assert int(np.sum(likelihood.inverse_sigma == 0)) == 7
    assert np.isfinite(likelihood.flux).all()
    assert np.isfinite(likelihood.inverse_sigma).all()


def test_data_without_anything_to_fit_are_refused():
    flux = data().flux
    refused(["got none", "variance not finite or not > 0"], observed=dataclasses.replace(data(), variance=0 * flux))
    refused(["got none", "(masked)"], observed=dataclasses.replace(data(), used=np.zeros(flux.shape, bool)))
    refused(["flux not finite"], observed=dataclasses.replace(data(), flux=np.nan * flux))
    refused(["expected a variance", "fit.sigma"], observed=dataclasses.replace(data(), variance=None))


def test_grids_that_do_not_overlap_are_refused():
    apart = {"name": "muse", "wavelength": {"start": 7000, "stop": 8000}}
    refused(["instrument.wavelength", "overlaps"], run=load_config(config(), overrides={"instrument": apart}))
    far = load_config(config(), overrides={"observation.redshift": 300, "observation.distance": "10 Mpc", "dust": None})
    refused(["SSP library 'popstar'", "redshift"], run=far)
    pipeline = Pipeline.from_config(load_config(config(), overrides={"instrument.fov": "2 arcsec"}), mesh=make_mesh(1))
    refused(["not on the grid of the data", "(5, 5,"], run=pipeline, given=galaxy())
    refused(
        ["a Galaxy, a model or a source of particles beside a pipeline"],
        run=Pipeline.from_config(config(), mesh=make_mesh(1)),
    )


def test_what_a_deposit_or_an_alignment_hides_is_refused():
    refused(["engine.deposit", "tsc"], run=load_config(config(), overrides={"engine.deposit": "nearest"}))
    for align in ("stars", "angular_momentum"):
        aligned = load_config(config(), overrides={"observation.align": align})
        refused(["observation.align", "'none'", f"got '{align}'"], ROTATION, run=aligned)


def test_a_parameter_without_effect_is_refused():
    assert check_effects(posed()) == ()
    face_on = changed(lambda p: p.forward.parameters.observation.inclination, 0.0)
    with pytest.raises(ConfigError, match=r"rotation_velocity.*without any effect.*observation\.inclination"):
        check_effects(face_on)


def test_a_model_without_light_or_numbers_is_refused():
    outside = changed(lambda p: p.forward.parameters.observation.offset, 1e3)
    with pytest.raises(ValueError, match=r"expected light.*got none at galaxy\.rotation_velocity = 175, dust.*offset"):
        check_effects(outside)
    hidden = eqx.tree_at(lambda p: p.likelihood.inverse_sigma, posed(), replace_fn=lambda leaf: 1e-30 * leaf)
    with pytest.raises(
        ValueError, match=r"expected errors that let the model's light be seen.*fit\.data_units.*fit\.sigma"
    ):
        check_effects(hidden)
    of_nothing = changed(lambda p: p.forward.parameters.observation.velocity_offset, jnp.nan)
    with pytest.raises(ValueError, match=r"expected finite fluxes.*dust\.a_v = 0\.5"):
        check_start(of_nothing, jnp.zeros(2))


@pytest.mark.slow
def test_stars_without_effect_are_counted():
    stars = galaxy().stars
    away = np.where(np.arange(40) < 10, 1e3, 0.0)[:, None] + 0.01 * np.asarray(stars.position)
    far = Galaxy(stars=dataclasses.replace(stars, position=away))
    problem = log_posterior(config(), data(), one("stars.v_los", "normal", "galaxy", 50), galaxy=far).problem
    (note,) = check_effects(problem.posterior)
    assert "stars.v_los: 10 of 40 values have no effect" in note


def test_priors_beyond_the_library_or_the_age_of_the_universe_are_told():
    free = one("galaxy.disc_metallicity", "uniform", 0.01, 0.09) | one("galaxy.disc_log_age", "uniform", 9, 10.25)
    notes = "\n".join(log_posterior(config(), data(), free).notes)
    assert "disc_metallicity: its prior, 0.01 to 0.09, leaves the SSP library's range, 0.0001 to 0.05" in notes
    assert "disc_log_age: its prior reaches 10.25, older than the Universe at redshift 0.05, 10.12" in notes


def test_lines_narrower_than_the_nodes_hold_are_refused():
    lines = {"wavelengths": 4540.0, "velocity_dispersion": 40}
    changes = {"pipeline": "lines", "lines": lines, "galaxy.n_gas": 20, "instrument.lsf": None}
    run = load_config(config(), overrides=changes | {"engine.method": "basis"})
    words = ["fit.free.lines.velocity_dispersion", "expected a prior above 20 km/s", "uniform: [5, 60]", "to twice"]
    refused(words, one("lines.velocity_dispersion", "uniform", 5, 60), run=run)
