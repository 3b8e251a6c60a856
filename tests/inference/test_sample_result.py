"""What comes out of sampling: values and their spread, the table, the file, ArviZ's form."""

import dataclasses
import functools
import re
import shutil
import warnings
from html import unescape
from pathlib import Path

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_results import FREE, fit_result, of_draws, sample_result

from rubix_like import SampleResult
from rubix_like.extend import Sampled, import_optional
from rubix_like.inference.checks.uncertainties import Evidence
from rubix_like.inference.results.results import SetResult
from rubix_like.inference.samplers.predictive import Pointwise
from rubix_like.runtime.files.writers import SAMPLES, written_by_us


@functools.cache
def variational():
    """Draws that are not chains', without a Gaussian approximation."""
    latent = sample_result().latent[:1]
    own = Sampled("geovi", latent, {"loss": sample_result().statistics["loss"][:1]}, sample_result().keys[:1])
    return dataclasses.replace(sample_result(), **of_draws(FREE, own), laplace=None)


def test_values_go_through_the_priors():
    found = sample_result().values
    assert {name: own.shape for name, own in found.items()} == {
        "observation.inclination": (3, 200),
        "observation.offset": (3, 200, 2),
        "stars.metallicity": (3, 200, 3),
    }
    for chain, draw in ((0, 0), (2, 137)):
        expected = FREE.values(jnp.asarray(sample_result().latent[chain, draw]))
        for name, values in expected.items():
            np.testing.assert_allclose(found[name][chain, draw], values, rtol=1e-13)
    np.testing.assert_allclose(sample_result().best_values["observation.offset"], [0.3, 0.3])


@pytest.mark.parametrize("result", [fit_result, sample_result])
@pytest.mark.parametrize("probability", [68.0, -1.0, 0.0, float("nan")])
def test_what_is_no_probability_is_refused(result, probability):
    for method in (result().interval, result().limits):
        with pytest.raises(ValueError, match=rf": expected a probability between 0 and 1, got {probability}"):
            method(probability)
    with pytest.raises(ValueError, match=r"share: expected a probability between 0 and 1, got 16\.0; e\.g\. 0\.16"):
        sample_result().quantile(16.0)
    flat = sample_result().samples()["observation.inclination"]
    assert sample_result().quantile(0.0)["observation.inclination"] == flat.min()


def test_mean_limits_and_covariance_are_those_of_the_draws():
    own, flat = sample_result(), sample_result().samples()
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
    verdict, *lines = sample_result().summary().splitlines()
    assert verdict == "Verdict: the model describes the data: no misfit found (chi^2/dof 1, p 0.5)"
    assert lines[0].split("  ")[0] == "parameter"
    assert lines[0].endswith("R-hat  bulk ESS  tail ESS  unit    prior")
    row = lines[1].split()
    mean, sigma = sample_result().mean["observation.inclination"], sample_result().sigma["observation.inclination"]
    assert row[0] == "observation.inclination"
    np.testing.assert_allclose(float(row[1]), mean, atol=sigma / 50)
    np.testing.assert_allclose(float(row[2]), sigma, rtol=0.05)
    limits = [float(sample_result().quantile(share)["observation.inclination"]) for share in (0.15865, 0.5, 0.84135)]
    np.testing.assert_allclose([float(word) for word in row[3:6]], limits, atol=sigma / 50)
    assert row[6] == f"{sample_result().diagnostics.r_hat[0]:.3f}"
    assert row[7:9] == [
        f"{sample_result().diagnostics.ess_bulk[0]:.0f}",
        f"{sample_result().diagnostics.ess_tail[0]:.0f}",
    ]
    assert lines[1].endswith("deg     uniform: [20, 80]")
    assert lines[7].startswith(
        "NUTS: 3 chains of 200 draws; 6 of 600 diverged; mean acceptance 0.80; 7 steps a draw; E-B"
    )
    assert lines[8].startswith("Best fit: chi^2 31.5 of 29 voxels, 23 degrees of freedom")
    assert lines[9].startswith("Predicted: 65.0 % of 29 voxels are within 1 sigma, 95.0 % within 2")
    assert lines[10:] == ["Note: a note", "Note: another"]
    assert str(sample_result()) == sample_result().summary()
    assert repr(sample_result()) == "SampleResult(nuts, 6 numbers free, 3 chains of 200 draws)"


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


@pytest.mark.parametrize("made", [sample_result, variational])
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


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return sample_result().write(tmp_path_factory.mktemp("samples") / "fit_samples.h5")


def test_the_file_and_its_page_say_what_is_in_it(written):
    page = (Path(__file__).parents[2] / "docs" / "sample-file.md").read_text(encoding="utf-8")
    with h5py.File(written) as file:
        assert (file.attrs["format"], file.attrs["layout"], file.attrs["method"]) == ("rubix_like samples", 3, "nuts")
        offset = file["parameters/observation.offset"]
        np.testing.assert_array_equal(offset["draws"][()], sample_result().values["observation.offset"])
        np.testing.assert_array_equal(offset["median"][()], sample_result().quantile(0.5)["observation.offset"])
        np.testing.assert_array_equal(offset["r_hat"][()], sample_result().diagnostics.r_hat[1:3])
        assert (offset["draws"].attrs["unit"], offset["r_hat"].attrs["unit"]) == ("arcsec", "")
        assert list(file["labels"].asstr()) == list(sample_result().labels)
        described = []
        file.visititems(lambda name, item: described.append((name, "description" in item.attrs)))
        plain = ("model", "predictive", "residual", "config", "notes", "versions", "scatter", "verdict")
        groups = ("parameters", "latent", "statistics", "posterior", "sample_stats")
        others = [name for name, is_described in described if not is_described and name.split("/")[0] not in plain]
        assert sorted(others) == sorted(groups)
        names = {name for name, item in file.items() if not (isinstance(item, h5py.Dataset) and item.is_scale)}
        names |= (
            set(file.attrs) | set(file["scatter"].attrs) | set(file["statistics"]) | set(file["latent"]) | set(offset)
        )
        assert [name for name in sorted(names) if not re.search(rf"[`/]{name}[`/]", page)] == []


@pytest.mark.parametrize(("page", "made"), [("sample-file", sample_result), ("fit-file", fit_result)])
def test_xarray_and_arviz_open_the_file(page, made):
    """As its page says; all groups of it, in which no axis is without a name."""
    result = made()
    path = result.write("fit_samples.h5" if made is sample_result else "fit.h5")
    text = (Path(__file__).parents[2] / "docs" / f"{page}.md").read_text(encoding="utf-8")
    found: dict = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        exec(*re.findall(r"```python\n([^`]*import xarray\n.*?)```", text, re.S), found)
    if made is sample_result:
        for name, draws in result.values.items():
            np.testing.assert_array_equal(found["data"].posterior[name], draws)
        assert found["data"].posterior["stars.metallicity"].dims == ("chain", "draw", "star")
        statistics = found["data"].sample_stats
        assert set(statistics) == set(result.to_arviz().sample_stats) - {"step_size"}
        np.testing.assert_array_equal(statistics["lp"], -result.statistics["loss"])
        np.testing.assert_allclose(found["predicted"], result.predictive.flux.sum(axis=2))
    else:
        assert float(found["inclination"].sigma) == result.sigma["observation.inclination"]
        np.testing.assert_allclose(found["spectrum"], result.model.flux.sum(axis=(0, 1)), rtol=1e-6)
    tree = import_optional("xarray", "this test").open_datatree(path)
    assert {place for place in tree.groups if place.count("/") == 1} - {"/"} == {
        f"/{name}" for name, group in h5py.File(path).items() if isinstance(group, h5py.Group)
    }
    for place in tree.groups:
        assert all(len(set(values.dims)) == values.ndim for values in tree[place].data_vars.values())


def without(name):
    return lambda file: file.move(name, f"{name}~")


def with_a_smaller_cube(file):
    for name in ("flux", "variance", "mask"):
        values = file[f"predictive/{name}"][...][:-1]
        del file[f"predictive/{name}"]
        file[f"predictive/{name}"] = values


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("keys"), "not a complete file of samples"),
        (with_a_smaller_cube, "predictive/flux: expected the shape of model/flux"),
        *(
            (without(f"{cube}/variance"), f"{cube}/variance: expected a variance in every voxel, got none")
            for cube in ("model", "predictive", "residual")
        ),
    ],
)
def test_a_file_that_is_not_whole_is_refused(written, tmp_path, change, message):
    path = shutil.copy(written, tmp_path / "changed.h5")
    with h5py.File(path, "a") as file:
        change(file)
    with pytest.raises(ValueError, match=message):
        SampleResult.read(path)


def test_what_is_no_file_of_samples_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no such result: .*sampling writes to its fit\.sampling\.output"):
        SampleResult.read(tmp_path / "absent.h5")
    sample_result().model.write(tmp_path / "cube.h5")
    with pytest.raises(ValueError, match=r"not a complete file of samples .*'rubix_like cube'.*SampleResult\.write"):
        SampleResult.read(tmp_path / "cube.h5")


def test_arviz_gets_named_axes_and_its_own_names():
    own = sample_result()
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


def test_what_a_notebook_shows_of_results():
    """The words of the summary, its table as one of HTML."""
    for result in (sample_result(), fit_result()):
        html = result._repr_html_()
        assert html.count("<tr>") == len(result.labels) + 1
        assert "observation.offset[1]" in html
        assert result.summary().splitlines()[0] in unescape(html)


def with_likelihood(of_voxels):
    """A result with ln(likelihood) of points, normal and about -3, its evidence and checks."""
    own = sample_result()
    shape = (3, 40, 2, 3, 5 if of_voxels else 1)
    values = -3 + 0.1 * np.random.default_rng(5).standard_normal(shape)
    return dataclasses.replace(
        own,
        pointwise=Pointwise(values, np.arange(2, 202, 5)),
        checks={"chi^2": 0.4, "largest residual": 0.004},
        evidence=Evidence(-12.5, np.nan, "Laplace"),
    )


@pytest.mark.parametrize("of_voxels", [False, True])
def test_arviz_compares_models_by_the_likelihood_of_points(of_voxels):
    """lppd and p_waic by numpy's formulas (Watanabe 2010; Vehtari, Gelman & Gabry 2017); points without data do not
    count."""
    own, arviz = with_likelihood(of_voxels), import_optional("arviz", "this test")
    data = own.to_arviz()
    used = np.asarray(own.residual.mask) == 0
    chosen = own.pointwise.values[:, :, used] if of_voxels else own.pointwise.values.reshape(3, 40, -1)
    assert data.log_likelihood["flux"].dims == ("chain", "draw", "voxel" if of_voxels else "spaxel")
    np.testing.assert_array_equal(data.log_likelihood["flux"], chosen)
    np.testing.assert_array_equal(data.log_likelihood["draw"], own.pointwise.draws)
    flat = chosen.reshape(120, -1)
    expected = np.sum(np.log(np.mean(np.exp(flat), axis=0)) - flat.var(axis=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert float(arviz.waic(data).elpd_waic) == pytest.approx(expected, rel=1e-6)
        assert float(arviz.loo(data).elpd_loo) == pytest.approx(expected, rel=1e-2)
    assert "log_likelihood" not in sample_result().to_arviz().groups()


def test_what_points_say_the_checks_and_the_evidence_come_back_from_the_file(written, tmp_path):
    own = with_likelihood(of_voxels=False)
    again = SampleResult.read(own.write(tmp_path / "points.h5"))
    np.testing.assert_array_equal(again.pointwise.values, own.pointwise.values)
    np.testing.assert_array_equal(again.pointwise.draws, own.pointwise.draws)
    assert again.checks == own.checks
    assert again.evidence.log_evidence == -12.5
    assert "Predictive checks, p: chi^2 0.4, largest residual 0.004" in again.summary()
    assert "ln evidence -12.5 (Laplace)" in again.summary()
    plain = SampleResult.read(written)
    assert (plain.evidence, plain.pointwise, plain.checks) == (None, None, {})


def test_points_of_several_sets_come_back_and_are_compared_together(tmp_path):
    """ArviZ's leave-one-out takes the points of all sets; with one set left out there are none."""
    own = sample_result()
    used = np.asarray(own.residual.mask) == 0
    values = np.where(
        used.any(axis=2, keepdims=True), np.random.default_rng(3).normal(size=(3, 50, *used.shape[:2], 1)), 0
    )
    draws = np.arange(0, 200, 4)
    sets = {
        name: SetResult("cube", own.model, own.residual, own.predictive, Pointwise(factor * values, draws))
        for name, factor in (("a", 1.0), ("b", 2.0))
    }
    joint = dataclasses.replace(own, sets=sets)
    path = joint.write(tmp_path / "joint.h5")
    posterior = import_optional("xarray", "this test").open_dataset(path, group="posterior")
    assert posterior["observation.inclination"].dims == ("chain", "draw"), "not by the draws that points are kept of"
    read = SampleResult.read(path)
    np.testing.assert_array_equal(read.sets["b"].pointwise.values, 2 * values)
    np.testing.assert_array_equal(read.sets["b"].pointwise.draws, draws)
    data = read.to_arviz()
    found, n_point = data.log_likelihood["flux"], int(used.any(axis=2).sum())
    assert found.shape == (3, 50, 2 * n_point)
    chosen = values[:, :, used.any(axis=2), 0]
    np.testing.assert_array_equal(found, np.concatenate([chosen, 2 * chosen], axis=2))
    assert list(data.log_likelihood["data_set"].values) == ["a"] * n_point + ["b"] * n_point
    assert set(data.observed_data) == {"a.flux", "b.flux"}
    assert data.constant_data["b.sigma"].dims == ("b.y", "b.x", "b.wave")
    silent = dataclasses.replace(sets["b"], pointwise=None)
    assert "log_likelihood" not in dataclasses.replace(own, sets=sets | {"b": silent}).to_arviz().groups()
