"""Fits from Python: what comes out, that it can be read back, that a fit which was ended goes on bit for bit."""

import functools
import io
import re
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from astropy.io import fits
from free_numbers import free_of, normal_about, search_of, statuses
from scipy.special import ndtr
from small import few_stars, mock_data, muse

from rubix_like import ConfigError, Cube, FitResult, fit, load_config, log_posterior, read_observed
from rubix_like.extend import Footprint, Progress, WavelengthBins
from rubix_like.inference.checks import notes as diagnosis
from rubix_like.inference.checks.notes import other_optima
from rubix_like.inference.checks.uncertainties import laplace
from rubix_like.inference.results.result_pictures import view_of

TRUTH = {"observation.velocity_offset": 60.0, "dust.a_v": 0.4}
CONFIG = {
    "observation": {"redshift": 0.05, "inclination": 0, "position_angle": 0},
    "instrument": muse(),
    "dust": {"a_v": 0.1, "curve": "calzetti"},
    "engine": {"method": "direct", "precision": "float64"},
    "devices": {"data": 1},
    "fit": {
        "free": {"observation.velocity_offset": {"normal": [0, 100]}, "dust.a_v": {"uniform": [0, 1]}},
        "starts": 2,
        "candidates": 1,
    },
}
NOT_FITTED = 8
"""Bit of a mask (docs/fits.md)."""

BAD = (2, 3, 4)
"""A voxel without a number."""


@functools.cache
def galaxy():
    return few_stars(30, 0.2)


@functools.cache
def data():
    """The model at the truth with noise of a tenth of a per cent of its mean."""
    blank = mock_data((5, 5, 31))
    config = load_config(CONFIG)
    bare = log_posterior(config, blank, galaxy=galaxy())
    flux = bare.flux(bare.to_unconstrained(TRUTH))
    sigma = 1e-3 * flux.mean()
    noisy = flux + sigma * np.random.default_rng(2).standard_normal(flux.shape)
    noisy[BAD] = np.nan
    return replace(blank, flux=noisy, variance=np.full(flux.shape, sigma**2), used=np.isfinite(noisy))


@functools.cache
def fitted():
    return fit(CONFIG, data(), galaxy=galaxy())


def leaves_of(result):
    """Everything in a result but its configuration, which names its file, as text and arrays."""
    starts = result.starts.arrays()
    laplace = [result.laplace.latent, result.laplace.information, result.laplace.covariance]
    cubes = [replace(cube, meta=cube.meta.replace(config="")) for cube in (result.model, result.residual)]
    trees = (result.free, *cubes, result.parameters, result.galaxy)
    plain = [repr(jax.tree.structure(tree)) for tree in trees]
    plain += [repr(result.quality), repr(result.versions), repr(result.notes), str(result)]
    arrays = [*result.values.values(), *result.sigma.values(), result.covariance, result.latent, *laplace]
    return plain, [*arrays, *starts.values(), *(np.asarray(leaf) for leaf in jax.tree.leaves(trees))]


def assert_same(one, other):
    (words, arrays), (same_words, same_arrays) = leaves_of(one), leaves_of(other)
    assert words == same_words
    assert len(arrays) == len(same_arrays)
    for first, second in zip(arrays, same_arrays, strict=True):
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(first, second)


def test_the_truth_is_found_within_its_uncertainty(tmp_path):
    result = fitted()
    assert result.converged
    assert result.labels == tuple(TRUTH)
    low, high = result.interval(0.9999)
    for name, truth in TRUTH.items():
        assert low[name] < truth < high[name], name
        assert 0 < result.sigma[name] < 30
    assert 0.8 < result.quality.reduced < 1.2
    assert result.quality.n_voxel == 5 * 5 * 31 - 1
    assert result.quality.degrees_of_freedom == result.quality.n_voxel - 2
    assert float(result.parameters.dust.a_v) == pytest.approx(float(result.values["dust.a_v"]), rel=1e-6)
    assert result.galaxy is None
    np.testing.assert_allclose(np.diag(result.covariance), [float(sigma) ** 2 for sigma in result.sigma.values()])
    (tmp_path / "again.yaml").write_text(result.config)
    assert load_config(tmp_path / "again.yaml").fit.free == load_config(CONFIG).fit.free


def test_model_and_residuals_add_up_to_the_data():
    result, observed = fitted(), data()
    used = observed.used
    np.testing.assert_allclose((result.model.flux + result.residual.flux)[used], observed.flux[used], rtol=1e-12)
    np.testing.assert_array_equal(result.residual.mask != 0, ~used)
    assert result.residual.mask[BAD] == NOT_FITTED
    np.testing.assert_allclose(result.residual.variance, observed.variance)
    pull = (result.residual.flux / np.sqrt(result.residual.variance))[used]
    assert np.sum(pull**2) == pytest.approx(result.quality.chi_square)
    assert result.residual.wcs_cards == result.model.wcs_cards


def test_samples_have_the_covariance_of_the_values():
    result = fitted()
    drawn = result.samples(4000, seed=3)
    together = np.cov(np.stack(list(drawn.values())))
    scale = np.sqrt(np.diag(result.covariance))
    np.testing.assert_allclose(together / np.outer(scale, scale), result.covariance / np.outer(scale, scale), atol=0.08)
    np.testing.assert_array_equal(drawn["dust.a_v"], result.samples(4000, seed=3)["dust.a_v"])


def test_a_result_is_read_back_equal_and_nothing_else_is_read(tmp_path):
    """The page of the documentation names all that is in the file."""
    result = fitted()
    particles = replace(result, galaxy=jax.tree.map(jnp.asarray, galaxy()))
    for number, written in enumerate((result, particles)):
        path = written.write(tmp_path / f"fit_{number}.h5")
        assert_same(FitResult.read(path), written)
        assert FitResult.read(path).config == written.config
    page = (Path(__file__).parents[2] / "docs" / "fit-file.md").read_text(encoding="utf-8")
    with h5py.File(path, "a") as file:
        parameter = file["parameters/observation.velocity_offset"]
        assert parameter["value"][()] == result.values["observation.velocity_offset"]
        assert parameter.attrs["unit"] == "km/s"
        assert parameter["sigma"].attrs["unit"] == "km/s"
        assert list(file["labels"].asstr()) == list(result.labels)
        found = {name for name, part in file.items() if not getattr(part, "is_scale", False)}  # axes apart
        found |= set(file.attrs) | set(file["verdict"].attrs)
        for group in ("latent", "edges", "verdict", "starts", "parameters/dust.a_v"):
            found |= set(file[group])
        assert [name for name in sorted(found) if not re.search(rf"[`/]{name}[`/]", page)] == []
        file.attrs["layout"] = 1
    with pytest.raises(ValueError, match=r"its layout is 1, that of another version; this one reads layout 4: run it"):
        FitResult.read(path)
    with pytest.raises(FileNotFoundError, match="no such result"):
        FitResult.read(tmp_path / "absent.h5")
    result.model.write(tmp_path / "cube.h5")
    with pytest.raises(ValueError, match=r"not a complete result of a fit .*'rubix_like cube'"):
        FitResult.read(tmp_path / "cube.h5")


def test_a_result_without_uncertainties_is_read_back(tmp_path):
    nothing = {name: np.full_like(value, np.nan) for name, value in fitted().values.items()}
    result = replace(fitted(), laplace=None, covariance=None, sigma=nothing, notes=("too many",))
    read = FitResult.read(result.write(tmp_path / "fit.h5"))
    assert read.laplace is None
    assert read.covariance is None
    assert np.isnan(read.interval()[0]["dust.a_v"])
    assert "too many" in read.summary()
    with pytest.raises(ValueError, match="expected a Gaussian approximation, got none: too many"):
        read.samples(3)


def interrupted_after(count):
    """A progress during which Ctrl-C is pressed when a fit shows its `count`-th step."""
    progress, seen = Progress(), []

    @contextmanager
    def step(name, label):
        def report(what, done, total):
            seen.append(name)
            if seen.count("fit") == count:
                raise KeyboardInterrupt

        yield report

    progress.step = step
    return progress


def test_a_fit_that_was_ended_goes_on_where_it_was(tmp_path):
    """Ended twice, between two steps: the best so far is written, and says that it is no more than that."""
    output = tmp_path / "fit.h5"
    for count, step in ((1, 1), (3, 3)):
        with pytest.raises(
            KeyboardInterrupt, match=rf"stopped after step {step} of start 1 of .*the same command goes on"
        ):
            fit(CONFIG, data(), galaxy=galaxy(), output=output, progress=interrupted_after(count))
        so_far = FitResult.read(output)
        assert not so_far.converged
        assert "the search has not converged (it was interrupted" in so_far.summary().splitlines()[0]
        assert so_far.starts.n_step.sum() == step
    files = {"fit.h5", "fit_model.fits", "fit_residual.fits"}
    assert {path.name for path in tmp_path.iterdir()} == {*files, ".fit.h5.rubix-like-checkpoint.npz"}
    free = {**CONFIG["fit"]["free"], "dust.a_v": {"uniform": [0, 2]}}
    with pytest.raises(ConfigError, match=r"differs in: free parameters or priors\. Write"):
        fit(CONFIG, data(), free, galaxy=galaxy(), output=output)
    shown = io.StringIO()
    result = fit(CONFIG, data(), galaxy=galaxy(), output=output, progress=Progress(shown))
    assert "fitting 2 numbers, going on after" in shown.getvalue()
    assert_same(result, fitted())
    assert_same(FitResult.read(output), result)
    assert {path.name for path in tmp_path.iterdir()} == files
    residual = Cube.read(tmp_path / "fit_residual.fits")
    np.testing.assert_allclose(residual.flux[data().used], result.residual.flux[data().used], rtol=1e-6)
    assert read_observed(tmp_path / "fit_residual.fits").used.sum() == result.quality.n_voxel
    with pytest.raises(KeyboardInterrupt, match=r"fit\.h5 still has the result of before, and the same command"):
        fit(CONFIG, data(), galaxy=galaxy(), output=output, restart=True, progress=interrupted_after(1))
    assert FitResult.read(output).converged


def test_a_fit_without_files_says_where_it_was_interrupted():
    with pytest.raises(KeyboardInterrupt, match="the fit stopped after step 2 of start 1 of "):
        fit(CONFIG, data(), galaxy=galaxy(), progress=interrupted_after(2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"polynomal": {"degree": 3}}, "unknown key 'fit.polynomal'; did you mean 'polynomial'"),
        ({"optimiser": {"name": "lbfg"}}, r"fit\.optimiser\.name: .*did you mean 'lbfgs'"),
        ({"output": "fit.fits"}, r"fit\.output: expected a path that ends in \.h5"),
        ({"free": {"dust.av": {"uniform": [0, 1]}}}, "unknown parameter 'dust.av'; did you mean 'dust.a_v'"),
        ({"free": {}}, r"fit\.free: expected at least one parameter"),
        ({"data": None}, r"data: expected an observed cube, got none; give its file, or fit\.data"),
        ({"output": "absent/fit.h5"}, "absent does not exist"),
        (
            {"data": "fit_model.fits", "output": "fit.h5"},
            r"fit\.output: .*'fit_model\.fits' \(fit.data\).*choose another name",
        ),
        ({"data_medium": "air"}, r"fit\.data_medium: expected null for data given in Python.* got 'air'; leave it out"),
        ({"data_pixel_scale": "0 arcsec"}, r"fit\.data_pixel_scale: expected a number > 0"),
    ],
)
def test_what_cannot_be_fitted_is_refused_before_anything_is_computed(settings, message, tmp_path):
    given = {"data": data(), **settings}
    with pytest.raises((ConfigError, OSError), match=message):
        fit(CONFIG, given.pop("data"), galaxy=galaxy(), **given)
    assert list(tmp_path.iterdir()) == []


def test_draws_of_the_model_error_are_not_those_of_the_galaxy():
    config = {**CONFIG, "galaxy": {"reader": "synthetic", "seed": 1003}}
    with pytest.raises(ConfigError, match=r"other draws than the galaxy's, 1003, got 1000 to 1063; set it to 1004"):
        fit(config, data(), model_error={})


def test_what_the_header_of_the_data_does_not_say_can_be_given(tmp_path):
    wavelengths = {"CRVAL3": 5000.0, "CDELT3": 10.0, "CRPIX3": 1.0, "CUNIT3": "Angstrom", "CTYPE3": "LAMBDA"}
    path = tmp_path / "bare.fits"
    fits.writeto(path, np.ones((31, 5, 5)), fits.Header(wavelengths))
    stated = {"data_pixel_scale": "0.3 arcsec", "data_medium": "air", "data_units": "1e-19 erg/s/cm2/Angstrom"}
    for name in stated:
        given = {other: value for other, value in stated.items() if other != name}
        with pytest.raises(ValueError, match=rf"of a fit: fit\.{name}\)"):
            fit(CONFIG, path, galaxy=galaxy(), sigma=1.0, **given)
    config = {**CONFIG, "fit": CONFIG["fit"] | {"data": path, "sigma": 1.0} | stated}
    observed = log_posterior(config, galaxy=galaxy()).problem.observed
    assert (observed.pixel_scale, observed.medium) == (0.3, "air")
    np.testing.assert_allclose(observed.flux, 10.0)


def test_priors_can_be_given_as_objects():
    normal, uniform = (type(parameter.prior) for parameter in fitted().free.parameters)
    free, scale = {"dust.a_v": uniform(0.0, 2.0)}, normal(1.0, 0.1)
    settings = log_posterior(CONFIG, data(), free, galaxy=galaxy(), noise_scale=scale).problem.settings
    assert settings.free == {"dust.a_v": {"uniform": (0.0, 2.0)}}
    assert settings.noise_scale == {"normal": (1.0, 0.1)}


FREE = free_of(
    ("observation.inclination", {"uniform": [20, 80]}, (), "deg"),
    ("observation.offset", {"normal": [0, 1]}, (2,), "arcsec"),
)


def approximation(covariance, latent=(0.0, 0.0, 0.0)):
    return normal_about(FREE, latent, covariance)


def ends(loss, status, latent=None):
    """A search with these ends."""
    return search_of(loss, status, np.zeros((len(loss), 3)) if latent is None else latent)


DONE, STUCK, FAILED = statuses("CONVERGED", "STEPS_USED_UP", "LOSS_NOT_FINITE")


def test_values_at_the_edge_and_values_that_are_not_determined_are_named():
    small = np.diag([1e-4, 1e-4, 1e-4])
    assert diagnosis.notes_on_values(FREE, np.zeros(3), approximation(small)) == []
    assert diagnosis.notes_on_values(FREE, np.array([1.99, 0, 0]), approximation(small)) == []
    (note,) = diagnosis.notes_on_values(FREE, np.array([2.0, 0, 0]), approximation(small))
    assert note.startswith("observation.inclination is at the edge of its prior ({uniform: [20, 80]})")
    (note,) = diagnosis.notes_on_values(FREE, np.zeros(3), approximation(np.diag([1e-4, 1e-4, 0.95])))
    assert "hardly determine observation.offset[1]" in note
    joined = small.copy()
    joined[0, 2] = joined[2, 0] = -0.99e-4
    (note,) = diagnosis.notes_on_values(FREE, np.zeros(3), approximation(joined))
    assert note.endswith("observation.inclination and observation.offset[1] (-0.990)")
    (note,) = diagnosis.notes_on_values(FREE, np.zeros(3), "too many")
    assert note == "no uncertainties: too many"


def test_starts_that_ended_elsewhere_are_named():
    normal, best = approximation(np.diag([1e-4, 1e-4, 1e-4])), np.zeros(3)

    def notes(*arguments):
        return diagnosis.notes_on_search(FREE, ends(*arguments), best, normal)

    assert notes([5.0, 5.2], [DONE, DONE]) == []
    (note,) = notes([5.0, 25.0], [DONE, DONE])
    assert "1 of 2 starts ended elsewhere, at a loss higher by 20" in note
    (note,) = notes([5.0, 5.1], [DONE, DONE], [[0, 0, 0], [0.2, 0, 0]])
    assert note.startswith("1 start ended at another place that fits as well (loss higher by 0.1); it differs in ")
    (note,) = notes([5.0, np.inf], [DONE, FAILED])
    assert note.startswith("start 2 failed: the loss is not a finite number")
    assert "has not converged" in notes([5.0], [STUCK])[0]


ELSEWHERE = [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("loss", "status", "latent", "expected"),
    [
        ([5.0, 5.3], [DONE, DONE], [[0, 0, 0], ELSEWHERE], [(0.3, (2,))]),
        ([5.3, 5.0, 5.2], [DONE, DONE, DONE], [ELSEWHERE, [0, 0, 0], ELSEWHERE], [(0.2, (3, 1))]),
        ([5.0, 9.4, 5.1], [DONE, DONE, DONE], [[0, 0, 0], [0, 2, 0], ELSEWHERE], [(0.1, (3,)), (4.4, (2,))]),
        ([5.0, 5.3], [DONE, DONE], [[0, 0, 0], [0.04, 0, 0]], []),
        ([5.0, 9.6], [DONE, DONE], [[0, 0, 0], ELSEWHERE], []),
        ([5.0, 5.3], [DONE, STUCK], [[0, 0, 0], ELSEWHERE], []),
        ([5.0, np.inf], [DONE, FAILED], [[0, 0, 0], ELSEWHERE], []),
    ],
)
def test_other_optima(loss, status, latent, expected):
    """A place is another one beyond 5 sigma (0.01 here), and told up to a loss higher by 4.5."""
    normal = approximation(np.diag([1e-4, 1e-4, 1e-4]))
    found = other_optima(FREE, ends(loss, status, latent), np.zeros(3), normal)
    assert [(pytest.approx(place.excess), place.starts) for place in found] == expected
    assert all("observation.inclination" in place.differing or place.latent[1] == 2 for place in found)
    assert other_optima(FREE, ends(loss, status, latent), np.zeros(3), None) == ()


def test_two_optima_are_told_in_the_first_line_and_both_are_shown(tmp_path):
    result = fitted()
    starts, shift = result.starts, np.array([8.0, -8.0]) * result.laplace.sigma
    latent = np.stack([result.latent, result.latent + shift])
    loss = starts.loss[starts.best] + np.array([0.0, 0.5])
    result = replace(result, starts=replace(starts, latent=latent, loss=loss, status=np.full(2, DONE, np.int32)))
    lines = result.summary().splitlines()
    assert lines[0].endswith("; but there are two optima (below)")
    place = next(number for number, line in enumerate(lines) if line.startswith("Another optimum: 1 start ended"))
    row = lines[place + 2].split()
    assert row[0] == "observation.velocity_offset"
    value = float(np.asarray(result.free.flat(latent[1]))[0])
    assert float(row[2]) == pytest.approx(value, rel=1e-5)
    assert abs(float(row[3])) == pytest.approx(8.0, abs=0.1)
    assert str(FitResult.read(result.write(tmp_path / "fit.h5"))) == str(result)


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        ("observation.inclination", "galaxy.rotation_velocity", "V sin i"),
        ("galaxy.disc.rotation.velocity", "observation.inclination", "V sin i"),
        ("observation.inclination", "galaxy.disc.height.scale_height", "seen more edge-on looks as round"),
        ("instrument.psf.fwhm", "galaxy.disc_scale_length", "seeing"),
        ("galaxy.log_age", "galaxy.metallicity", "redden alike"),
        ("observation.velocity_offset", "galaxy.metallicity", None),
    ],
)
def test_known_degeneracies_are_named(one, other, why):
    """The reason from a correlation of 0.8 on, the correlation of others from 0.95 on."""
    free = free_of(*((name, {"normal": [0, 1]}) for name in (one, other)))
    for correlation in (-0.98, 0.85, 0.75):
        notes = diagnosis.notes_on_spread(free, np.full(2, 0.01), np.array([[1.0, correlation], [correlation, 1.0]]))
        assert sum(note.startswith("determined together") for note in notes) == (abs(correlation) > 0.95)
        assert sum(why is not None and why in note for note in notes) == (why is not None and abs(correlation) > 0.8)


@pytest.mark.slow(5)
@pytest.mark.parametrize(("inclination", "height", "why"), [(10, None, "V sin i"), (85, 0.2, "more edge-on")])
def test_discs_nearly_face_on_and_edge_on_are_named(inclination, height, why):
    """A thin disc of gas and a thick one, of S/N 16 and 24, by Laplace's approximation at the truth."""
    gas = {
        "name": "gas",
        "lines": {"wavelengths": [5000.0], "flux": 1e3},
        "light": {"profile": "exponential", "scale_length": 1.0},
        "rotation": {"curve": "arctan", "velocity": 200, "turnover_radius": 0.3},
        "dispersion": 35,
    }
    truth = {"observation.inclination": inclination, "galaxy.gas.rotation.velocity": 200}
    free = {"observation.inclination": {"isotropic": [0, 90]}, "galaxy.gas.rotation.velocity": {"uniform": [10, 450]}}
    if height is not None:
        gas["height"] = {"profile": "sech2", "scale_height": height}
        truth["galaxy.gas.height.scale_height"] = height
        free["galaxy.gas.height.scale_height"] = {"log_uniform": [0.01, 1]}
    run = {
        "galaxy": {"reader": "components", "components": [gas]},
        "observation": {"redshift": 0, "distance": "206.264806 Mpc", "inclination": inclination, "position_angle": 90},
        "instrument": {"name": "muse", "psf": {"kind": "gaussian", "fwhm": 0.8}, "lsf": {"fwhm": 1.2}},
        "pipeline": "lines",
        "engine": {"method": "basis", "velocity_range": 900},
        "devices": {"data": 1},
    }
    bins, footprint = WavelengthBins(4988.0, 0.6, 41, "linear", "vacuum"), Footprint.of((14, 14), 0.5)
    data = replace(mock_data((14, 14, 41)), bins=bins, footprint=footprint)
    data = replace(data, variance=np.full((14, 14, 41), 0.7**2))
    posed = log_posterior(run, data, free)
    found = laplace(posed.problem.posterior, jnp.asarray(posed.to_unconstrained(truth)))
    notes = diagnosis.notes_on_spread(found.free, found.own_sigma, found.correlation)
    assert any(why in note for note in notes), notes


def test_the_summary_has_a_row_for_each_number():
    verdict, *lines = fitted().summary().splitlines()
    assert verdict.startswith("Verdict: the model describes the data: no misfit found (chi^2/dof ")
    assert lines[0].split()[:2] == ["parameter", "value"]
    assert " +- " in lines[1]
    assert lines[1].startswith("observation.velocity_offset")
    assert lines[1].endswith("km/s  normal: [0, 100]")
    assert any(line.startswith("chi^2 ") and "774 voxels, 772 degrees of freedom" in line for line in lines)
    assert "of 2 is the best: it converged" in fitted().summary()
    assert repr(fitted()).startswith("FitResult(2 numbers free, chi^2 = ")
    assert diagnosis.trouble_of(ends([5.0], [DONE])) == ""
    trouble = replace(fitted().verdict, trouble=diagnosis.trouble_of(ends([5.0, 7.0], [STUCK, DONE])))
    begin = "Verdict: the search has not converged (it made as many steps as fit.optimiser.steps allows); at the best "
    assert replace(fitted(), verdict=trouble).summary().startswith(begin)


def at_the_edge():
    """The fit with a dust that lies against the lower end of its prior: its density over the latent is given."""
    result = fitted()
    place = result.labels.index("dust.a_v")
    latent = np.where(np.arange(2) == place, -2.5, result.latent)
    none = result.edges
    at = np.linspace(-6.0, 0.0, none.latent.shape[1])
    value, weight = ndtr(at), np.exp(-0.5 * at**2)
    density = weight * np.exp(-0.5 * (value / 0.02) ** 2)
    there = {"index": np.array([place]), "lower_loss": np.zeros(1), "lower_at": np.full(1, -2.5)}
    edges = replace(none, latent=at[None], density=density[None], **there)
    sigma = {**result.sigma, "dust.a_v": np.full((), np.nan)}
    starts = replace(result.starts, latent=np.tile(latent, (len(result.starts.loss), 1)))
    return replace(result, latent=latent, edges=edges, sigma=sigma, starts=starts)


def test_a_value_at_the_edge_of_its_prior_is_a_limit(tmp_path):
    """Half of a normal distribution of 0.02 about the end of the prior, 0: 95 % are below 1.96 times 0.02."""
    result = at_the_edge()
    (reach,) = result.limits().values()
    assert reach.sign == "<"
    assert reach.high == pytest.approx(1.96 * 0.02, rel=0.01)
    low, high = result.interval()
    assert low["dust.a_v"] == 0
    assert high["dust.a_v"] == pytest.approx(0.02, rel=0.01)
    (row,) = [line for line in result.summary().splitlines() if line.startswith("dust.a_v")]
    assert row.split()[1:7] == ["<", f"{reach.high:.3g}", "(95", "%)", "-", "-"]
    path = result.write(tmp_path / "fit.h5")
    read = FitResult.read(path)
    assert str(read) == str(result)
    assert read.limits() == result.limits()
    with h5py.File(path) as file:
        limited, other = (file[f"parameters/{name}"] for name in ("dust.a_v", "observation.velocity_offset"))
        assert (limited["kind"][()], other["kind"][()]) == (b"upper limit", b"value")
        assert limited["limit"][()] == reach.high
        assert np.isnan(limited["sigma"][()])
        assert (limited["low"][()], limited["high"][()]) == (0, high["dust.a_v"])
    view = view_of(result).inferred
    assert view.limits[result.labels.index("dust.a_v")].words == f"< {reach.high:.3g} (95 %)"


def test_all_uncertainties_are_marked_and_enlarged_where_the_model_does_not_describe_the_data(tmp_path):
    moved = np.array([0.0, 3.2])
    known = replace(fitted().verdict, p=1e-7, moved=moved, without="without a place", scatter=1.44)
    result = replace(fitted(), verdict=known)
    verdict, head, first, second, legend, *rest = result.summary().splitlines()
    assert verdict.startswith("Verdict: the model does not describe the data (chi^2/dof ")
    assert verdict.endswith(
        "; the errors of all values hold for this model only; without a place a value moves by 3.2 times its error"
    )
    assert "84 %  enlarged error  unit" in head
    enlarged = result.enlarged_sigma
    for row, name, factor in zip((first, second), result.labels, np.sqrt([1.44, 1.44 + 3.2**2]), strict=True):
        assert enlarged[name] == pytest.approx(factor * result.sigma[name])
        assert f"{enlarged[name]:.2g}" in row.split()
    assert legend.startswith("enlarged error: the model does not describe the data; ")
    assert any(line.startswith("Assumed: SSP library popstar, ") for line in rest)
    assert "enlarged error" not in fitted().summary()
    np.testing.assert_allclose(result.to_table()["enlarged_sigma"], [enlarged[name] for name in result.labels])
    path = result.write(tmp_path / "fit.h5")
    assert str(FitResult.read(path)) == str(result)
    with h5py.File(path) as file:
        marks = [bool(file[f"parameters/{name}/doubtful"][()]) for name in result.labels]
        assert marks == [True, True]
        assert file[f"parameters/{result.labels[1]}/enlarged_sigma"][()] == enlarged[result.labels[1]]
        np.testing.assert_array_equal(file["verdict/enlarged"], result.verdict.enlarged)
        assert file["verdict"].attrs["text"] == verdict
        assert list(file["verdict/tests"].asstr()) == list(result.verdict.tests)
    with h5py.File(path, "a") as file:  # as an older version wrote it
        for name in ("without", "scatter"):
            del file["verdict"].attrs[name]
        del file["verdict/enlarged"], file[f"parameters/{result.labels[1]}/enlarged_sigma"]
    old = FitResult.read(path).verdict
    assert old.doubtful.all()
    np.testing.assert_allclose(old.enlarged, np.sqrt(max(1, old.reduced) + moved**2))
    assert view_of(result).title.endswith("the model does not describe the data")


def test_what_a_fit_without_64_bits_or_without_room_costs_is_said():
    assert diagnosis.notes_on_precision() == []
    with jax.enable_x64(False):
        assert "32-bit numbers" in diagnosis.notes_on_precision()[0]
    assert diagnosis.notes_on_size("levenberg_marquardt", 20, 30_000) == []
    assert diagnosis.notes_on_size("lbfgs", 4000, 30_000) == []
    (note,) = diagnosis.notes_on_size("levenberg_marquardt", 4000, 30_000)
    assert "conjugate gradients" in note
