"""Evidence, and errors that are enlarged on request: of a fit that is linear in what is free, against numpy."""

import functools

import numpy as np
import pytest
import scipy.stats
from linear_masses import CONFIG, MEAN, SHAPE, columns, data, galaxy, posterior_by_numpy

from rubix_like import ConfigError, FitResult, fit, load_config, log_posterior
from rubix_like.inference.best_fit import describe_best


@functools.cache
def plain():
    return fit(CONFIG, data(), galaxy=galaxy())


def test_laplace_is_exact_where_the_model_is_linear():
    """ln det of the covariance of all voxels, 189 x 189."""
    masses, covariance, evidence = posterior_by_numpy(data())
    own = plain()
    np.testing.assert_allclose(own.values["stars.initial_mass"], masses, rtol=1e-4)
    np.testing.assert_allclose(own.covariance, covariance, rtol=1e-6, atol=1e-3)
    assert own.evidence.log_evidence == pytest.approx(evidence, abs=1e-4)
    assert own.evidence.method == "Laplace"
    assert np.isnan(own.evidence.error)
    assert f"ln evidence {evidence:.8g} (Laplace)"[:20] in own.summary()


def test_continua_are_integrated_over():
    """Without any freedom but theirs: the covariance of the voxels of a spaxel is sigma^2 + (M P) c^2 (M P)^T."""
    narrow = {"fit.free": {"stars.initial_mass": {"normal": [MEAN, 1e-6 * MEAN]}}}
    width, degree = 0.2, 3
    config = load_config(CONFIG, overrides=narrow | {"fit.polynomial": {"degree": degree, "sigma": width}})
    problem = log_posterior(config, data(), galaxy=galaxy()).problem
    found = describe_best(problem, np.zeros(3)).evidence
    model, sigma = columns().sum(axis=1).reshape(-1, SHAPE[2]), np.sqrt(data().variance.ravel()[0])
    basis = np.polynomial.legendre.legvander(np.linspace(-1, 1, SHAPE[2]), degree)[:, 1:]
    expected = 0.0
    for flux, own in zip(data().flux.reshape(-1, SHAPE[2]), model, strict=True):
        design = width * own[:, None] * basis
        covariance = sigma**2 * np.eye(SHAPE[2]) + design @ design.T
        expected += scipy.stats.multivariate_normal(own, covariance).logpdf(flux)
    assert found.log_evidence == pytest.approx(expected, abs=1e-3)


def test_errors_are_enlarged_on_request_alone_and_it_is_said(tmp_path):
    """With errors that are half of the noise."""
    masses, covariance, evidence = posterior_by_numpy(data(2.0))
    inflated = fit(CONFIG, data(2.0), galaxy=galaxy(), inflate_sigma=True)
    factor = np.sqrt(inflated.quality.reduced)
    assert 1.7 < factor < 2.3
    assert inflated.inflation == pytest.approx(factor)
    np.testing.assert_allclose(inflated.values["stars.initial_mass"], masses, rtol=1e-4)
    np.testing.assert_allclose(inflated.covariance, factor**2 * covariance, rtol=1e-6, atol=1e-3)
    np.testing.assert_allclose(
        inflated.samples(20000)["stars.initial_mass"].std(axis=0) ** 2 / factor**2, np.diag(covariance), rtol=0.05
    )
    assert inflated.evidence.log_evidence == pytest.approx(evidence, abs=1e-4)
    first = inflated.summary().splitlines()[0]
    assert first.endswith(f"; sigma is inflated by {factor:.3g}, the root of chi^2/dof (fit.inflate_sigma)")
    again = FitResult.read(inflated.write(tmp_path / "fit.h5"))
    assert again.inflation == inflated.inflation
    assert again.evidence.log_evidence == inflated.evidence.log_evidence
    np.testing.assert_array_equal(again.sigma["stars.initial_mass"], inflated.sigma["stars.initial_mass"])
    assert plain().inflation == 1
    assert "inflated" not in plain().summary()


def test_a_free_noise_scale_takes_the_place_of_enlarged_errors():
    with pytest.raises(ConfigError, match=r"inflate_sigma: expected false beside noise_scale"):
        load_config(CONFIG, overrides={"fit.inflate_sigma": True, "fit.noise_scale": {"log_uniform": [0.5, 2]}})
