"""What comes out of sampling: values and their spread, the table, the file, ArviZ's form."""

import dataclasses
import functools
import re
from pathlib import Path

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.cube import Cube
from rubix_like.cube.meta import NOT_FITTED, Meta
from rubix_like.inference.checks.laplace import Laplace
from rubix_like.inference.checks.verdict import Verdict
from rubix_like.inference.posterior.free import Free, FreeParameter
from rubix_like.inference.posterior.priors import LogUniform, Normal, Uniform
from rubix_like.inference.posterior.quality import Quality, Scatter
from rubix_like.inference.results.sample_result import SampleResult, flat_values, values_of
from rubix_like.inference.samplers.convergence import convergence_of
from rubix_like.inference.samplers.samplers import Sampled
from rubix_like.runtime.files.writers import SAMPLES, written_by_us
from rubix_like.runtime.optional_packages import import_optional

FREE = Free(
    (
        FreeParameter(Uniform(20.0, 80.0), "observation.inclination", (), "deg"),
        FreeParameter(Normal(0.0, 1.0), "observation.offset", (2,), "arcsec"),
        FreeParameter(LogUniform(1e-3, 0.04), "stars.metallicity", (3,), ""),
    )
)

N_CHAIN, N_DRAW, N_LATENT = 3, 200, 6

MIXING = np.tril(np.random.default_rng(0).normal(0, 0.05, (N_LATENT, N_LATENT))) + 0.1 * np.eye(N_LATENT)
"""Of independent normal numbers into the latents."""


@functools.cache
def sampled():
    rng = np.random.default_rng(1)
    shape = (N_CHAIN, N_DRAW)
    statistics = {
        "loss": rng.gamma(3.0, size=shape),
        "energy": rng.gamma(6.0, size=shape),
        "acceptance_rate": rng.uniform(0.6, 1, shape),
        "n_leapfrog": np.full(shape, 7),
        "tree_depth": np.full(shape, 3),
        "diverging": np.arange(N_CHAIN * N_DRAW).reshape(shape) % 100 == 0,
    }
    latent = 0.3 + rng.standard_normal((*shape, N_LATENT)) @ MIXING.T
    keys = np.asarray(jax.random.split(jax.random.PRNGKey(4), N_CHAIN))
    return Sampled("nuts", latent, statistics, keys, np.array([0.5, 0.6, 0.7]))


def cube(content, flux, variance, mask):
    return Cube(
        flux=flux,
        mask=mask,
        bins=WavelengthBins(5000.0, 1.0, 5, "linear", "vacuum"),
        pixel_scale=0.2,
        variance=variance,
        meta=Meta({"fit_image": content}),
    )


@functools.cache
def result():
    rng = np.random.default_rng(2)
    shape = (2, 3, 5)
    mask = np.zeros(shape, np.int32)
    mask[0, 1, 2] = NOT_FITTED
    model, data, noise = rng.normal(10, 1, shape), rng.normal(10, 1, shape), rng.uniform(1, 2, shape)
    spread = rng.uniform(0.1, 0.2, shape)
    own, latent = sampled(), np.full(N_LATENT, 0.3)
    values = values_of(FREE, own.latent)
    return SampleResult(
        free=FREE,
        method=own.method,
        latent=own.latent,
        values=values,
        statistics=dict(own.statistics),
        step_size=own.step_size,
        keys=own.keys,
        diagnostics=convergence_of(own, flat_values(FREE, values)),
        best=latent,
        laplace=Laplace(FREE, latent, np.linalg.inv(MIXING @ MIXING.T) - np.eye(N_LATENT), MIXING @ MIXING.T),
        quality=Quality(31.5, 29, 6, 17.0),
        verdict=Verdict(0.5, {"chi^2": 0.5}, 0.5, 1.0, False, np.zeros(N_LATENT)),
        scatter=Scatter(29, 30.5, 0.65, 0.95),
        model=cube("model", model, spread, np.zeros_like(mask)),
        predictive=cube("predictive", model, spread + noise, mask),
        residual=cube("residual", data - model, noise, mask),
        config="fit: {}\n",
        versions={"jax": "0"},
        notes=("a note", "another"),
    )


@functools.cache
def variational():
    """Draws that are not chains', without a Gaussian approximation."""
    latent = result().latent[:1]
    own = Sampled("geovi", latent, {"loss": result().statistics["loss"][:1]}, result().keys[:1])
    values = values_of(FREE, latent)
    return dataclasses.replace(
        result(),
        method="geovi",
        latent=latent,
        values=values,
        statistics=dict(own.statistics),
        step_size=None,
        keys=own.keys,
        diagnostics=convergence_of(own, flat_values(FREE, values)),
        laplace=None,
    )


def test_values_go_through_the_priors():
    found = result().values
    assert {name: own.shape for name, own in found.items()} == {
        "observation.inclination": (3, 200),
        "observation.offset": (3, 200, 2),
        "stars.metallicity": (3, 200, 3),
    }
    for chain, draw in ((0, 0), (2, 137)):
        expected = FREE.values(jnp.asarray(result().latent[chain, draw]))
        for name, values in expected.items():
            np.testing.assert_allclose(found[name][chain, draw], values, rtol=1e-13)
    np.testing.assert_allclose(result().best_values["observation.offset"], [0.3, 0.3])


def test_mean_limits_and_covariance_are_those_of_the_draws():
    own, flat = result(), result().samples()
    assert flat["observation.offset"].shape == (600, 2)
    np.testing.assert_array_equal(flat["observation.offset"][200:400], own.values["observation.offset"][1])
    low, high = own.interval(0.9)
    for name, draws in flat.items():
        np.testing.assert_allclose(np.mean((draws >= low[name]) & (draws <= high[name]), axis=0), 0.9, atol=0.005)
        np.testing.assert_allclose(np.mean(draws < low[name], axis=0), 0.05, atol=0.003)
        np.testing.assert_allclose(own.mean[name], draws.mean(axis=0))
        np.testing.assert_allclose(own.sigma[name] ** 2, draws.var(axis=0))
    assert own.labels[3:] == ("stars.metallicity[0]", "stars.metallicity[1]", "stars.metallicity[2]")
    offset, metallicity = flat["observation.offset"][:, 1], flat["stars.metallicity"][:, 0]
    expected = np.mean((offset - offset.mean()) * (metallicity - metallicity.mean()))
    np.testing.assert_allclose(own.covariance()[2, 3], expected, rtol=1e-10)
    np.testing.assert_allclose(np.sqrt(np.diag(own.covariance()))[0], own.sigma["observation.inclination"])


def test_the_summary_has_a_row_for_each_number():
    verdict, *lines = result().summary().splitlines()
    assert verdict == "Verdict: the model describes the data: no misfit found (chi^2/dof 1, p 0.5)"
    assert lines[0].split("  ")[0] == "parameter"
    assert lines[0].endswith("R-hat  bulk ESS  tail ESS  unit    prior")
    row = lines[1].split()
    mean, sigma = result().mean["observation.inclination"], result().sigma["observation.inclination"]
    assert row[0] == "observation.inclination"
    np.testing.assert_allclose(float(row[1]), mean, atol=sigma / 50)
    np.testing.assert_allclose(float(row[2]), sigma, rtol=0.05)
    limits = [float(result().quantile(share)["observation.inclination"]) for share in (0.15865, 0.5, 0.84135)]
    np.testing.assert_allclose([float(word) for word in row[3:6]], limits, atol=sigma / 50)
    assert row[6] == f"{result().diagnostics.r_hat[0]:.3f}"
    assert row[7:9] == [f"{result().diagnostics.ess_bulk[0]:.0f}", f"{result().diagnostics.ess_tail[0]:.0f}"]
    assert lines[1].endswith("deg     uniform: [20, 80]")
    assert lines[7].startswith(
        "NUTS: 3 chains of 200 draws; 6 of 600 diverged; mean acceptance 0.80; 7 steps a draw; E-B"
    )
    assert lines[8].startswith("Best fit: chi^2 31.5 of 29 voxels, 23 degrees of freedom")
    assert lines[9].startswith("Predicted: 65.0 % of 29 voxels are within 1 sigma, 95.0 % within 2")
    assert lines[10:] == ["Note: a note", "Note: another"]
    assert str(result()) == result().summary()
    assert repr(result()) == "SampleResult(nuts, 6 numbers free, 3 chains of 200 draws)"


def test_the_summary_of_variational_draws_has_no_r_hat():
    _, *lines = variational().summary().splitlines()
    assert lines[1].split()[6:9] == ["-", "100", "100"]
    assert "geoVI: 200 draws from an approximation of the posterior" in lines
    assert repr(variational()) == "SampleResult(geovi, 6 numbers free, 200 draws)"


def parts_of(own):
    """Everything in a result, as words and arrays."""
    trees = (own.free, own.model, own.predictive, own.residual)
    laplace = [] if own.laplace is None else [own.laplace.latent, own.laplace.information, own.laplace.covariance]
    words = [own.method, own.config, own.versions, own.notes, own.quality, own.scatter, own.summary()]
    words += [*own.statistics, *own.values, *(jax.tree.structure(tree) for tree in trees)]
    arrays = [own.latent, own.best, own.keys, *own.values.values(), *own.statistics.values(), *laplace]
    arrays += [getattr(own.diagnostics, field.name) for field in dataclasses.fields(own.diagnostics)]
    arrays += [] if own.step_size is None else [own.step_size]
    return words, [np.asarray(leaf) for leaf in (*arrays, *jax.tree.leaves(trees))]


@pytest.mark.parametrize("made", [result, variational])
def test_a_result_is_read_back_equal(made, tmp_path):
    own = made()
    path = own.write(tmp_path / "fit_samples.h5")
    read = SampleResult.read(path)
    (words, arrays), (same_words, same_arrays) = parts_of(read), parts_of(own)
    assert [str(word) for word in words] == [str(word) for word in same_words]
    assert len(arrays) == len(same_arrays)
    for one, other in zip(arrays, same_arrays, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    assert written_by_us(path).kind == SAMPLES


def test_the_file_says_what_is_in_it(tmp_path):
    with h5py.File(result().write(tmp_path / "fit_samples.h5")) as file:
        assert (file.attrs["format"], file.attrs["layout"], file.attrs["method"]) == ("rubix_like samples", 3, "nuts")
        own = file["parameters/observation.offset"]
        np.testing.assert_array_equal(own["draws"][()], result().values["observation.offset"])
        np.testing.assert_array_equal(own["median"][()], result().quantile(0.5)["observation.offset"])
        np.testing.assert_array_equal(own["r_hat"][()], result().diagnostics.r_hat[1:3])
        assert own["draws"].attrs["unit"] == "arcsec"
        assert own["r_hat"].attrs["unit"] == ""
        assert list(file["labels"].asstr()) == list(result().labels)
        described = []
        file.visititems(lambda name, item: described.append((name, "description" in item.attrs)))
        plain = ("model", "predictive", "residual", "config", "notes", "versions", "scatter", "verdict")
        groups = ("parameters", "latent", "statistics")
        without = [name for name, is_described in described if not is_described and name.split("/")[0] not in plain]
        assert sorted(without) == sorted(groups)


def test_the_page_on_the_file_names_all_that_is_in_it(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "sample-file.md").read_text(encoding="utf-8")
    found = set()
    with h5py.File(result().write(tmp_path / "fit_samples.h5")) as file:
        found |= set(file) | set(file.attrs) | set(file["scatter"].attrs)
        for group in ("statistics", "latent", "parameters/observation.offset"):
            found |= set(file[group])
    assert [name for name in sorted(found) if not re.search(rf"[`/]{name}[`/]", page)] == []


def test_what_is_no_file_of_samples_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no such result: .*sampling writes to its fit\.sampling\.output"):
        SampleResult.read(tmp_path / "absent.h5")
    result().model.write(tmp_path / "cube.h5")
    with pytest.raises(ValueError, match=r"not a complete file of samples .*'rubix_like cube'.*SampleResult\.write"):
        SampleResult.read(tmp_path / "cube.h5")
    path = result().write(tmp_path / "cut.h5")
    with h5py.File(path, "a") as file:
        del file["keys"]
    with pytest.raises(ValueError, match="not a complete file of samples"):
        SampleResult.read(path)


def test_arviz_gets_named_axes_and_its_own_names():
    own = result()
    data, arviz = own.to_arviz(), import_optional("arviz", "this test")
    assert data.posterior["stars.metallicity"].dims == ("chain", "draw", "star")
    assert data.posterior["observation.offset"].dims == ("chain", "draw", "observation.offset_axis_0")
    assert data.posterior["observation.inclination"].attrs["units"] == "deg"
    np.testing.assert_array_equal(data.posterior["stars.metallicity"], own.values["stars.metallicity"])
    names = {"lp", "energy", "acceptance_rate", "n_steps", "tree_depth", "diverging", "step_size"}
    assert set(data.sample_stats) == names
    np.testing.assert_array_equal(data.sample_stats["lp"], -own.statistics["loss"])
    np.testing.assert_array_equal(data.sample_stats["step_size"][:, 7], own.step_size)
    r_hat, bulk = arviz.rhat(data), arviz.ess(data, method="bulk")
    for name in FREE.names:
        np.testing.assert_allclose(own.by_name(own.diagnostics.r_hat)[name], r_hat[name], rtol=1e-12)
        np.testing.assert_allclose(own.by_name(own.diagnostics.ess_bulk)[name], bulk[name], rtol=1e-12)
    np.testing.assert_allclose(arviz.bfmi(data), own.diagnostics.e_bfmi)
    used = np.asarray(own.residual.mask) == 0
    flux = data.observed_data["flux"].values
    np.testing.assert_array_equal(np.isnan(flux), ~used)
    np.testing.assert_allclose(flux[used], np.asarray(own.residual.flux + own.predictive.flux)[used])
    np.testing.assert_allclose(data.constant_data["sigma"].values[used] ** 2, np.asarray(own.residual.variance)[used])
    assert set(variational().to_arviz().sample_stats) == {"lp"}


@pytest.mark.parametrize("name", ["model", "predictive", "residual"])
def test_a_cube_without_its_variance_is_refused(tmp_path, name):
    path = result().write(tmp_path / "cut.h5")
    with h5py.File(path, "a") as file:
        file.move(f"{name}/variance", f"{name}/varia~ce")
    with pytest.raises(ValueError, match=f"{name}/variance: expected a variance in every voxel, got none"):
        SampleResult.read(path)


def test_cubes_of_different_shapes_are_refused(tmp_path):
    path = result().write(tmp_path / "mixed.h5")
    with h5py.File(path, "a") as file:
        for own in ("flux", "variance", "mask"):
            values = file[f"predictive/{own}"][...][:-1]
            del file[f"predictive/{own}"]
            file[f"predictive/{own}"] = values
    with pytest.raises(ValueError, match="predictive/flux: expected the shape of model/flux"):
        SampleResult.read(path)
