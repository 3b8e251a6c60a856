"""What draws predict: mean and variance over meshes of devices against models computed one by one."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from curved import curved
from problems import posed
from small import few_stars, fit_section, mock_data, muse
from small_results import sample_result

from rubix_like import load_config
from rubix_like.extend import Sampled
from rubix_like.inference import fitting as assembly
from rubix_like.inference.best_fit import describe_best
from rubix_like.inference.posterior.posterior import ModelError, models_at
from rubix_like.inference.posterior.problem import placed
from rubix_like.inference.samplers.predictive import (
    DISCREPANCIES,
    evenly,
    models_of_draws,
    moments_and_each,
    notes_on_checks,
    predictive_of,
    predictive_p,
)
from rubix_like.inference.samplers.samplers import make_sampler

DEGREE, WIDTH = 2, 0.05
"""Of the continuum's polynomial: its highest degree, the standard deviation of its coefficients."""

N_WAVE = 31

CONFIG = {
    "observation": {"redshift": 0.05, "inclination": 0, "position_angle": 0},
    "instrument": muse(fov="1.2 arcsec"),
    "dust": {"a_v": 0.1, "curve": "calzetti"},
    "engine": {"method": "direct", "precision": "float64", "velocity_range": "500 km/s"},
    "fit": {
        "free": {"observation.velocity_offset": {"normal": [0, 30]}, "dust.a_v": {"uniform": [0, 1]}},
        "noise_scale": {"log_uniform": [0.5, 2]},
        "polynomial": {"degree": DEGREE, "sigma": WIDTH},
        "exclude": [[5265, 5285]],
    },
}

MESHES = {"1x1": (1, 1), "2x4": (2, 4), "8x1": (8, 1)}

NOTHING = curved(bend=0.0)
"""A posterior that is not asked."""

NOT_FITTED = 8
"""Bit of a mask (docs/fits.md)."""

UNUSED = (2, 3, 4)
"""A voxel without data."""


@functools.cache
def galaxy():
    return few_stars(41, 0.2)


@functools.cache
def problem(mesh="1x1"):
    n_sample, n_data = MESHES[mesh]
    rng = np.random.default_rng(2)
    shape = (6, 6, N_WAVE)
    used = np.ones(shape, bool)
    used[UNUSED] = False
    flux = rng.normal(400, 300, shape)
    data = mock_data(shape, flux=flux, variance=rng.uniform(0.5, 2, shape) * 300**2, used=used)
    config = load_config(CONFIG, overrides={"devices.data": n_sample * n_data})
    return posed(n_sample, config, data, galaxy=galaxy())


LATENT = np.random.default_rng(3).normal(0, 0.8, (1, 5, 3))
"""Five draws: neither two nor eight rows divide them."""


@functools.cache
def moments(mesh):
    return models_of_draws(problem(mesh), LATENT, 128).moments


@functools.cache
def predicted(mesh):
    return predictive_of(problem(mesh), moments(mesh))


def continuum(model, sigma):
    """The best polynomial of every spaxel, by least squares with a row for each voxel and each coefficient."""
    likelihood = problem().posterior.likelihood
    weight, flux = np.asarray(likelihood.inverse_sigma) / sigma, np.asarray(likelihood.flux)
    x = np.linspace(-1, 1, model.shape[2])
    basis = np.stack([x, 1.5 * x**2 - 0.5], axis=1)
    factor = np.ones_like(model)
    for y, column in np.ndindex(model.shape[:2]):
        own, w = model[y, column], weight[y, column]
        design = np.concatenate([(own * w)[:, None] * basis, np.eye(DEGREE) / WIDTH])
        target = np.concatenate([(flux[y, column] - own) * w, np.zeros(DEGREE)])
        factor[y, column] += basis @ np.linalg.lstsq(design, target, rcond=None)[0]
    return factor


@functools.cache
def one_by_one():
    """The models of the draws and their noise scales, each by itself on one device."""
    posterior = problem().posterior
    cubes, scales = [], []
    for latent in LATENT[0]:
        values = posterior.free.values(jnp.asarray(latent))
        flux = np.asarray(models_at(posterior, latent).flux)[0]
        scales.append(float(values["noise_scale"]))
        cubes.append(flux * continuum(flux, scales[-1]))
    return np.array(cubes), np.array(scales)


@pytest.mark.parametrize("mesh", ["1x1", "2x4", pytest.param("8x1", marks=pytest.mark.slow)])
def test_mean_and_variance_are_those_of_models_one_by_one(mesh):
    cubes, scales = one_by_one()
    found, own = predicted(mesh), problem()
    size, spread = cubes.mean(), cubes.var(axis=0)
    noise = own.observed.variance * np.mean(scales**2)
    assert spread.mean() > 1e-4 * size**2
    np.testing.assert_allclose(found.model.flux, cubes.mean(axis=0), rtol=0, atol=1e-10 * size)
    np.testing.assert_allclose(found.model.variance, spread, rtol=0, atol=1e-10 * size**2)
    np.testing.assert_allclose(found.predictive.flux, found.model.flux, rtol=1e-14)
    np.testing.assert_allclose(found.predictive.variance, spread + noise, rtol=1e-10)
    np.testing.assert_allclose(found.residual.flux, own.observed.flux - found.model.flux, rtol=0, atol=1e-10 * size)
    np.testing.assert_allclose(found.residual.variance, noise, rtol=1e-12)


def test_masks_and_places_are_those_of_the_fit():
    found = predicted("1x1")
    left_out = np.asarray(problem().posterior.likelihood.inverse_sigma) == 0
    assert 1 < left_out.sum() < left_out.size / 2
    assert left_out[UNUSED]
    for cube in (found.predictive, found.residual):
        np.testing.assert_array_equal((np.asarray(cube.mask) & NOT_FITTED) > 0, left_out)
    assert not (np.asarray(found.model.mask) & NOT_FITTED).any()
    names = [cube.meta["fit_image"] for cube in (found.model, found.predictive, found.residual)]
    assert names == ["model", "predictive", "residual"]
    assert found.model.wcs_cards == found.residual.wcs_cards


def test_the_scatter_is_that_of_the_data_about_what_is_predicted():
    found = predicted("1x1")
    used = np.asarray(found.predictive.mask) == 0
    pull = (problem().observed.flux - found.predictive.flux)[used] / np.sqrt(found.predictive.variance[used])
    assert found.scatter.n_voxel == used.sum()
    np.testing.assert_allclose(found.scatter.chi_square, np.sum(pull**2), rtol=1e-10)
    np.testing.assert_allclose(found.scatter.within_one, np.mean(np.abs(pull) < 1))
    np.testing.assert_allclose(found.scatter.within_two, np.mean(np.abs(pull) < 2))
    assert 0 < found.scatter.within_one < found.scatter.within_two


def test_a_model_error_shifts_and_widens_what_is_predicted():
    rng = np.random.default_rng(5)
    own = problem()
    shape = own.observed.shape
    error = ModelError(
        offset=jnp.asarray(rng.normal(size=shape)),
        modes=jnp.asarray(rng.normal(size=(2, *shape))),
        strength=jnp.asarray([0.5, 2.0]),
        held_out=jnp.zeros((0, *shape)),
    )
    likelihood = replace(own.posterior.likelihood, model_error=error)
    changed = predictive_of(replace(own, posterior=replace(own.posterior, likelihood=likelihood)), moments("1x1"))
    plain, sigma = predicted("1x1"), np.sqrt(own.observed.variance)
    np.testing.assert_allclose(changed.predictive.flux, plain.predictive.flux + error.offset * sigma, rtol=1e-12)
    extra = sigma**2 * (0.5 * error.modes[0] ** 2 + 2.0 * error.modes[1] ** 2)
    np.testing.assert_allclose(changed.predictive.variance, plain.predictive.variance + extra, rtol=1e-12)
    np.testing.assert_allclose(changed.model.variance, plain.model.variance, rtol=1e-12)


def test_a_result_is_put_together():
    """Of five draws, one of which moves the galaxy out of the velocities that the model is made for."""
    own = problem()
    latent = LATENT.copy()
    latent[0, 1, 0] = 100.0
    keys = np.zeros((1, 2), np.uint32)
    drawn = Sampled("geovi", latent, {"loss": np.arange(-7.0, -2.0)[None]}, keys, notes=("of the sampler",))
    config, found = load_config(CONFIG), describe_best(own, np.zeros(3))
    sampler = make_sampler(fit_section(sampling={"method": "geovi"}).sampling)
    result = assembly.make_sample_result(own, sampler, drawn, np.zeros(3), found, config, notes=("of the fit",))
    np.testing.assert_allclose(result.best_values["dust.a_v"], 0.5)
    np.testing.assert_allclose(result.values["observation.velocity_offset"], 30 * latent[:, :, 0])
    assert result.config == config.to_yaml()
    assert result.quality.n_voxel == result.scatter.n_voxel == np.sum(own.posterior.likelihood.inverse_sigma > 0)
    beginnings = (
        "of the fit",
        f"a draw has a loss lower by {result.quality.loss + 7:.3g} than the best fit",
        "of the sampler",
        "the 5 draws are geoVI's",
        "up to 20 % of the draws of observation.velocity_offset are at the edge",
        f"in the models of the draws {41 / 5:.3g} stars, on average, are faster than the model is made for (",
    )
    places = [[note.startswith(words) for note in result.notes].index(True) for words in beginnings]
    assert places == sorted(places)


@pytest.mark.parametrize("n_row", [1, 2, 8])
@pytest.mark.parametrize("count", [1, 5, 16])
def test_moments_of_small_deviations_about_a_large_mean(n_row, count):
    mesh = jax.make_mesh((n_row, 8 // n_row), ("sample", "data"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    samples = 1e6 + np.random.default_rng(count).normal(size=(count, 3))

    @jax.jit
    def computed(samples):
        def kernel(_, sample, factor):
            return {"own": factor * sample}, None

        return moments_and_each(kernel, mesh, NOTHING, samples, 2.0)[0]

    found = computed(placed(samples, mesh))
    assert float(found.count) == count
    np.testing.assert_allclose(found.mean["own"], 2 * samples.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(found.variance["own"], 4 * samples.var(axis=0), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(("total", "count"), [(10, 3), (7, 7), (5, 9), (1000, 128), (1, 1)])
def test_draws_are_chosen_evenly(total, count):
    chosen = evenly(total, count)
    assert len(chosen) == min(total, count)
    gaps = np.diff(chosen)
    assert (gaps > 0).all()
    assert chosen[0] >= 0
    assert chosen[-1] < total
    if len(gaps):
        assert gaps.max() - gaps.min() <= 1
        assert abs(chosen[0] - (total - 1 - chosen[-1])) <= 1


@pytest.mark.parametrize(
    ("method", "losses", "words"),
    [
        ("geovi", [11.0, 12.0, 13.0], None),
        (
            "geovi",
            [20.0, 30.0, 40.0],
            "the mean loss of the draws is 20 above that of the best fit, where about 1.5 is",
        ),
        ("nuts", [20.0, 30.0, 40.0], None),
        ("nuts", [8.0, 12.0, 13.0], "a draw has a loss lower by 2 than the best fit"),
    ],
)
def test_draws_that_fit_too_well_or_too_badly_are_told(method, losses, words):
    """Of three latents; chains may wander, an approximation may not."""
    drawn = Sampled(method, np.zeros((1, 3, 3)), {"loss": np.array([losses])}, np.zeros((1, 2), np.uint32))
    found = assembly._on_best(drawn, replace(sample_result().quality, loss=10.0))
    assert [note.startswith(words) for note in found] == ([] if words is None else [True])


def test_the_likelihood_of_each_spaxel_and_the_checks_are_those_of_numpy():
    """ln N(data; model of each draw, sigma s); discrepancies from the residuals, and those of replicated data near
    their own expectations."""
    cubes, scales = one_by_one()
    own = problem()
    used = np.asarray(own.posterior.likelihood.inverse_sigma) > 0
    sigma = np.sqrt(np.where(used, own.observed.variance, 1.0))
    drawn = models_of_draws(own, LATENT, 128, "voxels", 3)
    for number, (cube, scale) in enumerate(zip(cubes, scales, strict=True)):
        density = scipy.stats.norm.logpdf(own.observed.flux, cube, scale * sigma)
        np.testing.assert_allclose(drawn.each[0].pointwise[0, number], np.where(used, density, 0), rtol=1e-7, atol=1e-9)
        residual = np.where(used, (own.observed.flux - cube) / sigma / scale, 0)
        found = dict(zip(DISCREPANCIES, drawn.each[0].data[0, number], strict=True))
        assert found["chi^2"] == pytest.approx(np.sum(residual**2), rel=1e-7)
        assert found["largest residual"] == pytest.approx(np.abs(residual).max(), rel=1e-7)
        pairs = np.sum(residual[:, 1:] * residual[:, :-1])
        assert found["correlation along x"] == pytest.approx(pairs, rel=1e-6)
        free = used.sum() - DEGREE * np.sum(used.any(axis=2))
        replicated = drawn.each[0].replicated[0, number]
        assert abs(replicated[0] - free) < 5 * np.sqrt(2 * free)
    by_spaxel = models_of_draws(own, LATENT, 128, "spaxels", 3).each[0].pointwise
    np.testing.assert_allclose(by_spaxel[..., 0], drawn.each[0].pointwise.sum(axis=-1), rtol=1e-9)


def test_p_of_a_check_is_the_share_of_draws_further_away():
    """(k + 1) / (n + 2), so that sixteen draws give neither 0 nor 1."""
    data = np.array([[3.0] * 7, [1.0] * 7, [2.0] * 7, [9.0] * 7])
    replicated = np.array([[4.0] * 7, [1.0] * 7, [1.0] * 7, [1.0] * 7])
    assert set(predictive_p(data, replicated, (2, 2, 2)).values()) == {0.5}
    for value, expected in ((-1.0, 17 / 18), (1.0, 1 / 18)):
        found = predictive_p(np.full((16, 7), value), np.zeros((16, 7)), (2, 2, 2))
        assert list(found.values()) == pytest.approx([expected] * len(DISCREPANCIES))
        assert notes_on_checks(found) == []
    assert notes_on_checks(dict.fromkeys(DISCREPANCIES, 0.5)) == []
    assert set(DISCREPANCIES) - set(predictive_p(data, replicated, (1, 2, 1))) == {
        "correlation along y",
        "correlation along wavelength",
    }
    (note,) = notes_on_checks({"chi^2": 0.001, "runs": 0.3})
    assert "further from the model" in note
    (note,) = notes_on_checks({"chi^2": 1.0, "runs": 0.3})
    assert "nearer to the model" in note
