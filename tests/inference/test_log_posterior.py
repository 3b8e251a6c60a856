"""The posterior as a function of a vector: against the formula by numpy and scipy, in every way it can be called."""

import functools
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from scipy.special import ndtr
from small import few_stars, mock_data, muse

from rubix_like import ConfigError, LogPosterior, Pipeline, load_config, log_posterior

CONFIG = {
    "observation": {"redshift": 0.05, "inclination": 0, "position_angle": 0},
    "instrument": muse(fov="0.6 arcsec"),
    "dust": {"a_v": 0.1, "curve": "calzetti"},
    "engine": {"method": "direct", "precision": "float64"},
    "devices": {"data": 1},
    "fit": {"free": {"observation.velocity_offset": {"normal": [0, "100 km/s"]}, "dust.a_v": {"uniform": [0, 2]}}},
}
PRIORS = (scipy.stats.norm(0, 100), scipy.stats.uniform(0, 2))
SHAPE, BAD = (3, 3, 31), (1, 2, 3)
POINT = np.array([0.4, -0.7])


@functools.cache
def galaxy():
    return few_stars(30, 0.1)


@functools.cache
def data():
    """Numbers about the model at the medians of the priors, one of them missing."""
    blank, generator = mock_data(SHAPE), np.random.default_rng(3)
    bare = log_posterior(CONFIG, blank, galaxy=galaxy())
    flux = bare.flux(np.zeros(2))
    sigma = 0.05 * flux.mean() * generator.uniform(1, 2, SHAPE)
    noisy = flux + sigma * generator.standard_normal(SHAPE)
    noisy[BAD] = np.nan
    return replace(blank, flux=noisy, variance=sigma**2, used=np.isfinite(noisy))


@functools.cache
def made():
    return log_posterior(CONFIG, data(), galaxy=galaxy())


def by_formula(x):
    """ln N(data; model, sigma) of the pipeline's own cube + ln p(v) + ln |dv / dx|."""
    velocity, a_v = (prior.ppf(ndtr(own)) for prior, own in zip(PRIORS, x, strict=True))
    changed = {"observation.velocity_offset": velocity, "dust.a_v": a_v, "noise": None, "engine.velocity_range": 600}
    instrument = {"instrument.fov": "0.6 arcsec"}
    model = Pipeline.from_config(load_config(CONFIG, overrides=changed | instrument), galaxy())(galaxy()).flux
    used = data().used
    deviation = (data().flux - np.asarray(model))[used] / np.sqrt(data().variance[used])
    found = np.sum(-0.5 * deviation**2) - 0.5 * np.sum(np.log(2 * np.pi * data().variance[used]))
    for prior, value, own in zip(PRIORS, (velocity, a_v), x, strict=True):
        jacobian = scipy.stats.norm.pdf(own) / prior.pdf(value)  # of the quantile function at Phi(x)
        found += prior.logpdf(value) + np.log(jacobian)
    return found


def test_the_value_is_that_of_the_formula():
    assert made()(POINT) == pytest.approx(by_formula(POINT), rel=1e-9)
    assert made()(POINT) - made()(-POINT) == pytest.approx(by_formula(POINT) - by_formula(-POINT), rel=1e-9)


def test_the_parts_add_up():
    own = made()
    assert own(POINT) == pytest.approx(own.log_likelihood(POINT) + own.log_prior(POINT), rel=1e-12)
    assert own.log_prior(POINT) == pytest.approx(scipy.stats.norm.logpdf(POINT).sum(), rel=1e-12)
    squares = [np.sum(own.residuals(x) ** 2) for x in (POINT, -POINT)]
    assert own(POINT) - own(-POINT) == pytest.approx(0.5 * (squares[1] - squares[0]), rel=1e-9)


def test_the_gradient_is_that_of_finite_differences():
    own, step = made(), 1e-4
    value, gradient = own.value_and_gradient(POINT)
    assert isinstance(gradient, np.ndarray)
    assert value == pytest.approx(own(POINT), rel=1e-12)
    expected = [(own(POINT + step * unit) - own(POINT - step * unit)) / (2 * step) for unit in np.eye(2)]
    np.testing.assert_allclose(gradient, expected, rtol=1e-5)
    np.testing.assert_allclose(jax.grad(own)(jnp.asarray(POINT)), expected, rtol=1e-5)


def test_it_goes_through_jit_and_vmap():
    own, points = made(), np.stack([POINT, -POINT, 0 * POINT])
    expected = [own(x) for x in points]
    np.testing.assert_allclose(jax.jit(jax.vmap(own))(points), expected, rtol=1e-9)
    assert isinstance(own(POINT), float)
    assert own(np.array([np.nan, 0.0])) == -np.inf
    assert jax.vmap(own.to_physical)(jnp.asarray(points))["dust.a_v"].shape == (3,)


def test_values_have_names_and_units():
    own = made()
    assert isinstance(own, LogPosterior)
    assert own.names == ("observation.velocity_offset", "dust.a_v")
    assert own.units == {"observation.velocity_offset": "km/s", "dust.a_v": "mag"}
    assert own.size == len(own.labels) == 2
    values = own.to_physical(POINT)
    assert values["dust.a_v"] == pytest.approx(scipy.stats.uniform(0, 2).ppf(ndtr(POINT[1])))
    np.testing.assert_allclose(own.to_unconstrained(values), POINT, rtol=1e-12)
    np.testing.assert_allclose(own.to_unconstrained({"observation.velocity_offset": "50000 m/s"}), [0.5, 0])
    np.testing.assert_allclose(jax.jit(own.to_unconstrained)(values), POINT, rtol=1e-12)
    assert own.draw(5, seed=1).shape == (5, 2)


def other_data():
    """Other numbers and errors; one voxel more without a number, one without an error."""
    generator = np.random.default_rng(8)
    flux, sigma = data().flux * generator.uniform(0.8, 1.2, SHAPE), np.sqrt(data().variance) * 1.5
    flux[0, 0, 5], sigma[2, 1, 7] = np.nan, 0.0
    return flux, sigma


def test_other_data_take_the_place_of_the_first():
    """As if the posterior had been made of them: compared with the sum over voxels by numpy."""
    flux, sigma = other_data()
    used = data().used & np.isfinite(flux) & (sigma > 0)
    own = made().with_data(flux, sigma)
    deviation = (flux - made().flux(POINT))[used] / sigma[used]
    expected = np.sum(scipy.stats.norm.logpdf(deviation) - np.log(sigma[used])) + scipy.stats.norm.logpdf(POINT).sum()
    assert own(POINT) == pytest.approx(expected, rel=1e-9)
    same_errors = made().with_data(flux)
    used = data().used & np.isfinite(flux)
    deviation = (flux - made().flux(POINT))[used] / np.sqrt(data().variance[used])
    expected = np.sum(scipy.stats.norm.logpdf(deviation) - 0.5 * np.log(data().variance[used]))
    assert same_errors.log_likelihood(POINT) == pytest.approx(expected, rel=1e-9)
    assert made()(POINT) == pytest.approx(by_formula(POINT), rel=1e-9)


def test_one_program_serves_all_data():
    """As arguments of a jitted function, and mapped over."""
    flux, sigma = other_data()
    traces = []

    def value(flux, sigma, x):
        traces.append(1)
        return made().with_data(flux, sigma)(x)

    many, program = np.stack([flux, 1.1 * flux, data().flux]), jax.jit(value)
    expected = [made().with_data(own, sigma)(POINT) for own in many]
    np.testing.assert_allclose([program(own, sigma, jnp.asarray(POINT)) for own in many], expected, rtol=1e-9)
    assert len(traces) == 1
    mapped = jax.jit(jax.vmap(value, in_axes=(0, None, None)))(many, sigma, jnp.asarray(POINT))
    np.testing.assert_allclose(mapped, expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda own: own(np.zeros(3)), r"expected a vector of 2 numbers .*got shape \(3,\)"),
        (lambda own: own.to_physical(np.zeros(7)), r"to_physical: expected 2 numbers .*got shape \(7,\)"),
        (lambda own: own.draw(-1), "count: expected a whole number of 1 or more, got -1"),
        (lambda own: own.to_unconstrained({"dust.av": 1}), "no free parameter.*did you mean 'dust.a_v'"),
        (lambda own: own.to_unconstrained({"dust.a_v": 3}), "expected a value inside its prior"),
        (lambda own: own.to_unconstrained({"dust.a_v": "3 km"}), "to_unconstrained: dust.a_v: "),
        (lambda own: log_posterior(CONFIG, data(), galaxy=galaxy(), model_error={}), "fit.model_error: expected null"),
        (lambda own: own.with_data(np.zeros((3, 3, 30))), r"flux: expected the shape \(3, 3, 31\).*got \(3, 3, 30\)"),
        (
            lambda own: own.with_data("m.fits", 1.0),
            "with_data: flux: expected an array .*, got 'm.fits'; give cube.flux",
        ),
        (lambda own: own.with_data(np.ones(SHAPE), "s.fits"), "with_data: sigma: expected an array .*, got 's.fits'"),
        (lambda own: own.with_data(np.ones(SHAPE), -1.0), "with_data: expected a voxel with a finite"),
        (lambda own: own.with_data(np.zeros(SHAPE), np.ones(31)), r"with_data: sigma: .* or one number, got \(31,\)"),
    ],
)
def test_faults_are_told(call, words):
    with pytest.raises((ConfigError, ValueError), match=words):
        call(made())


def test_noise_right_after_the_psf_is_left_out():
    """A list of stages on the cube that is shorter without its noise: the model is that of the list without."""
    prior = {"free": {"observation.velocity_offset": {"normal": [0, 100]}}}
    fluxes = []
    for cube, noise in (("psf, noise", {"signal_to_noise": 20}), ("psf", None)):
        path = Path(f"{len(cube)}.yaml").absolute()
        path.write_text(f"scene: [orient, point]\npaint: [stars]\ncube: [{cube}]\n")
        config = load_config({**CONFIG, "dust": None, "noise": noise, "fit": prior, "pipeline": str(path)})
        fluxes.append(log_posterior(config, data(), galaxy=galaxy()).flux(np.zeros(1)))
    np.testing.assert_array_equal(*fluxes)
