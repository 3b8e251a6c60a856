"""Likelihoods beside that of independent normal errors, against the densities of scipy."""

import functools
from dataclasses import replace
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from free_numbers import free_of
from scipy.special import polygamma
from small import few_stars, fit_section, mock_data, muse

from rubix_like import ConfigError, fit, load_config, log_posterior, sample
from rubix_like.extend import AbstractErrorDistribution, AbstractResiduals
from rubix_like.inference.likelihoods.kinds import make_correlation
from rubix_like.inference.likelihoods.voxel_errors import StudentT, information_of_location, normal_scores
from rubix_like.inference.posterior.posterior import Likelihood, with_nuisance_information

SHAPE, BAD = (2, 3, 21), (1, 2, 3)
TRUTH = {"observation.velocity_offset": 60.0, "dust.a_v": 0.4}
CONFIG = {
    "observation": {"redshift": 0.05, "inclination": 0, "position_angle": 0},
    "instrument": muse(5000, 5200, fov="0.6 arcsec"),
    "dust": {"a_v": 0.1, "curve": "calzetti"},
    "engine": {"method": "direct", "precision": "float64"},
    "devices": {"data": 1},
    "fit": {
        "free": {"observation.velocity_offset": {"normal": [0, 100]}, "dust.a_v": {"uniform": [0, 1]}},
        "starts": 1,
        "candidates": 1,
    },
}
POINT = np.array([0.5, -0.3])


class Logistic(AbstractErrorDistribution):
    """That of scipy."""

    kind: ClassVar = "logistic"
    width: Any = 0.55

    def log_density(self, residual):
        half = residual / (2 * self.width)
        return -2 * jnp.logaddexp(half, -half) - jnp.log(self.width)


class Ratio(AbstractResiduals):
    """ln(data / model) over the data's relative error."""

    kind: ClassVar = "ratio"

    def residuals(self, residual, data, model, inverse_sigma):
        ratio = jnp.log(jnp.where(inverse_sigma > 0, data / model, 1.0))
        return ratio * data * inverse_sigma


class Wide(AbstractErrorDistribution):
    """Without its normalisation."""

    kind: ClassVar = "wide"

    def log_density(self, residual):
        return -residual * residual


@functools.cache
def galaxy():
    return few_stars(30, 0.1)


@functools.cache
def data(outliers=0):
    """The model at the truth with noise of 2 %; some voxels are off by 40 sigma on one side, in the reddest bins."""
    blank, generator = mock_data(SHAPE), np.random.default_rng(4)
    bare = log_posterior(CONFIG, blank, galaxy=galaxy())
    flux = bare.flux(bare.to_unconstrained(TRUTH))
    sigma = np.full(SHAPE, 0.02 * flux.mean())
    noisy = flux + sigma * generator.standard_normal(SHAPE)
    places = generator.choice(flux.size, outliers, replace=False)
    noisy.flat[places] += 40 * sigma[0, 0, 0]
    noisy[BAD] = np.nan
    return replace(blank, flux=noisy, variance=sigma**2, used=np.isfinite(noisy))


def posterior_with(likelihood, further=None, **settings):
    free = CONFIG["fit"]["free"] | (further or {})
    return log_posterior(CONFIG, data(), free, galaxy=galaxy(), likelihood=likelihood, **settings)


@functools.cache
def plain():
    return posterior_with({})


@functools.cache
def flux_at(*x):
    """The model, which other likelihoods share."""
    return plain().flux(np.array(x))


def residuals_of(model):
    used = data().used
    return (data().flux - model)[used] / np.sqrt(data().variance[used])


@pytest.mark.parametrize(
    ("likelihood", "distribution"),
    [
        ({}, scipy.stats.norm()),
        ({"kind": "student_t", "degrees_of_freedom": 3}, scipy.stats.t(3)),
        ({"kind": "logistic", "parameters": {"width": 0.4}}, scipy.stats.logistic(scale=0.4)),
    ],
)
def test_the_likelihood_is_that_of_the_distribution(likelihood, distribution):
    made = posterior_with(likelihood) if likelihood else plain()
    residual = residuals_of(flux_at(*POINT))
    expected = distribution.logpdf(residual).sum() - 0.5 * np.log(data().variance[data().used]).sum()
    assert made.log_likelihood(POINT) == pytest.approx(expected, rel=1e-9)


def test_its_parameters_and_the_noise_scale_can_be_free():
    further = {"likelihood.degrees_of_freedom": {"log_uniform": [1, 50]}}
    made = posterior_with({"kind": "student_t"}, further, noise_scale={"log_uniform": [0.5, 2]})
    for nu, scale in ((2.0, 0.7), (20.0, 1.5)):
        x = made.to_unconstrained({**TRUTH, "likelihood.degrees_of_freedom": nu, "noise_scale": scale})
        density = scipy.stats.t(nu).logpdf(residuals_of(flux_at(*x[:2])) / scale) - np.log(scale)
        expected = density.sum() - 0.5 * np.log(data().variance[data().used]).sum()
        value, gradient = made.value_and_gradient(x)
        assert value - made.log_prior(x) == pytest.approx(expected, rel=1e-9)
    values = [[made.value_and_gradient(x + change)[0] for change in (step, -step)] for step in 1e-5 * np.eye(4)]
    np.testing.assert_allclose(gradient, [(high - low) / 2e-5 for high, low in values], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("nu", [1.0, 4.0])
def test_the_information_is_fishers(nu):
    """Lange, Little & Taylor 1989, J. Am. Stat. Assoc. 84, 881, appendix B."""
    assert float(information_of_location(StudentT(nu))) == pytest.approx((nu + 1) / (nu + 3), rel=1e-5)
    names = ("noise_scale", "likelihood.degrees_of_freedom")
    free = free_of(*((name, {"log_uniform": [0.5, 50]}) for name in names))
    latent = free.latent({"noise_scale": 1.2, "likelihood.degrees_of_freedom": nu + 1e-3})
    likelihood = Likelihood(jnp.zeros((1, 2, 5)), jnp.ones((1, 2, 5)), errors=StudentT(4.0))
    found = np.asarray(with_nuisance_information(jnp.full((2, 2), 7.0), free, jnp.asarray(latent), likelihood))
    slope = free.slopes(latent) / [1.2, 1.0]
    degrees = 0.25 * (polygamma(1, nu / 2) - polygamma(1, (nu + 1) / 2)) - (nu + 5) / (2 * nu * (nu + 1) * (nu + 3))
    crossed = -2 / ((nu + 1) * (nu + 3))
    expected = 10 * np.array([[2 * nu / (nu + 3), crossed], [crossed, degrees]]) * np.outer(slope, slope)
    np.testing.assert_allclose(found, expected, rtol=1e-2)


def test_scores_are_the_quantiles_of_a_normal_distribution():
    residual = np.array([-50.0, -3.0, 0.0, 0.2, 4.0])
    found = normal_scores(StudentT(3.0), residual)
    np.testing.assert_allclose(found, scipy.stats.norm.ppf(scipy.stats.t(3).cdf(residual)), atol=2e-4)


def covariance_of(size):
    half = np.tril(np.random.default_rng(size).normal(0, 0.2, (size, size))) + np.eye(size)
    return 3.0 * half @ half.T


@pytest.mark.parametrize(("between", "size"), [("spaxels", 6), ("wavelengths", 21), ("voxels", 126)])
def test_correlated_errors_are_a_multivariate_normal_distribution(between, size, tmp_path):
    matrix = covariance_of(size)
    np.save(tmp_path / "matrix.npy", matrix)
    made = posterior_with({"covariance": {"between": between, "matrix": str(tmp_path / "matrix.npy")}})
    roots = np.sqrt(np.diag(matrix))
    correlation = matrix / np.outer(roots, roots)
    whole = {
        "spaxels": lambda: np.einsum("st,wv->swtv", correlation, np.eye(21)).reshape(126, 126),
        "wavelengths": lambda: np.einsum("st,wv->swtv", np.eye(6), correlation).reshape(126, 126),
        "voxels": lambda: correlation,
    }[between]()
    used, sigma = data().used.ravel(), np.sqrt(data().variance).ravel()
    covariance = (whole * np.outer(sigma, sigma))[np.ix_(used, used)]
    difference = (data().flux - flux_at(*POINT)).ravel()[used]
    expected = scipy.stats.multivariate_normal(np.zeros(used.sum()), covariance).logpdf(difference)
    assert made.log_likelihood(POINT) == pytest.approx(expected, rel=1e-9)


def test_residuals_can_be_ones_own():
    made = posterior_with({"kind": "ratio"})
    used, model = data().used, flux_at(*POINT)
    expected = (np.log(data().flux / model) * data().flux / np.sqrt(data().variance))[used]
    residual = made.residuals(POINT)
    assert 0.5 * np.sum(residual**2) == pytest.approx(0.5 * np.sum(expected**2) + 0.5 * np.sum(POINT**2), rel=1e-9)


@pytest.mark.slow(18)
def test_outliers_pull_less_where_tails_are_heavy():
    """A tenth of the voxels is off by 40 sigma. The errors are those of Fisher's information; the verdict is silent."""
    free = CONFIG["fit"]["free"] | {"likelihood.degrees_of_freedom": {"log_uniform": [0.5, 50]}}
    with_tails = fit(CONFIG, data(12), free, galaxy=galaxy(), likelihood={"kind": "student_t"})
    normal = fit(CONFIG, data(12), galaxy=galaxy())
    name = "dust.a_v"
    assert with_tails.converged
    assert abs(with_tails.values[name] - TRUTH[name]) < 4 * with_tails.sigma[name]
    assert abs(normal.values[name] - TRUTH[name]) > 4 * normal.sigma[name]
    assert normal.verdict.misfit
    assert not normal.notes or not any("normal scores" in note for note in normal.notes)
    assert with_tails.values["likelihood.degrees_of_freedom"] < 2
    assert any("chi^2 of the residuals is no test of the model" in note for note in with_tails.notes)
    assert "chi^2" not in with_tails.verdict.tests
    assert 0.8 < with_tails.quality.reduced < 1.2


@pytest.mark.parametrize(
    ("likelihood", "words"),
    [
        ({"kind": "studentt"}, "unknown likelihood 'studentt'; did you mean 'student_t'"),
        ({"kind": "gaussian", "degrees_of_freedom": 3}, "degrees_of_freedom: expected null"),
        ({"kind": "logistic", "parameters": {"widht": 3}}, "unknown parameter 'widht'.*'width'"),
        ({"kind": "wide"}, r"integral is 1, got 1\.772 for 'wide'"),
        ({"kind": "student_t", "covariance": {"between": "spaxels", "matrix": [[1]]}}, "expected kind gaussian"),
        ({"covariance": {"between": "spaxels", "matrix": [[1, 0], [0, 1]]}}, r"expected shape \(6, 6\)"),
        ({"covariance": {"between": "spaxels", "matrix": "none.npy"}}, r"a file of numpy .*none\.npy: No such file"),
        ({"covariance": {"between": "spaxels", "matrix": __file__}}, r"a file of numpy .*\.py, which is none"),
    ],
)
def test_faults_are_told(likelihood, words):
    with pytest.raises(ConfigError, match=words):
        posterior_with(likelihood)


def test_what_does_not_go_with_other_errors_is_refused():
    student = {"kind": "student_t"}
    with pytest.raises(ConfigError, match=r"likelihood.width: expected a parameter of the likelihood 'student_t'"):
        posterior_with(student, {"likelihood.width": {"uniform": [0, 1]}})
    with pytest.raises(ConfigError, match="sampler of chains, such as nuts, for errors distributed as 'student_t'"):
        sample(CONFIG, data(), galaxy=galaxy(), likelihood=student, sampling={"method": "geovi"})
    for likelihood, words in (
        (student, r"likelihood\.kind: expected gaussian beside polynomial, got 'student_t'"),
        (
            {"covariance": "data"},
            r"likelihood\.covariance: expected auto or null beside polynomial, got data; leave one of them out",
        ),
    ):
        with pytest.raises(ConfigError, match=words):
            load_config(CONFIG, overrides={"fit.polynomial.degree": 2, "fit.likelihood": likelihood})


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ([[1, 0.5], [0.2, 1]], "symmetric matrix, got halves that differ by up to 0.3"),
        ([[1, 2], [2, 1]], "positive definite.*add a little"),
        ([[1, np.nan], [np.nan, 1]], "finite numbers, got nan in row 0, column 1"),
        ([[1, 0.5], [0.5, -2]], "a diagonal above 0, got -2 in row 1"),
        ([["1", "0"], ["0", "1"]], "which holds no real numbers but the type <U1"),
        (np.array([{}]), "which is damaged, or holds objects"),
        ("a damaged header", "which is damaged, or holds objects"),
    ],
)
def test_what_is_no_covariance_is_refused(matrix, words, tmp_path):
    path = tmp_path / "matrix.npy"
    np.save(path, np.eye(2) if isinstance(matrix, str) else matrix)
    if isinstance(matrix, str):
        content = path.read_bytes()
        path.write_bytes(content[:40] + bytes(64) + content[104:])
    section = {"covariance": {"between": "spaxels", "matrix": str(path)}}
    with pytest.raises(ConfigError, match=words):
        make_correlation(fit_section(likelihood=section).likelihood.covariance, np.ones((1, 2, 3), bool))
