"""The verdict on a fit: silent where the model is true, and not where it is wrong; its sums against dense matrices."""

import dataclasses
import functools
import importlib.util
import re
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from small import few_stars, mock_data, muse

from rubix_like import fit, load_config, log_posterior, run
from rubix_like.inference.best_fit import describe_best
from rubix_like.inference.checks.misfit import HALVES, Region, halves_of, measure_misfit
from rubix_like.inference.checks.verdict import Verdict, moves_of
from rubix_like.inference.posterior.posterior import ModelError, group_of, linear_of, models_at, tangents_at

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "fit_real_galaxy.py"

SHAPE = (5, 5, 31)
N_VOXEL = 5 * 5 * 31
TRUTH = {"observation.velocity_offset": 20.0, "dust.a_v": 0.4}
CONFIG = {
    "observation": {"redshift": 0.05, "inclination": 0, "position_angle": 0},
    "instrument": muse(),
    "dust": {"a_v": 0.1, "curve": "calzetti"},
    "engine": {"method": "direct", "precision": "float64", "velocity_range": "1000 km/s"},
    "devices": {"data": 1},
    "fit": {"free": {"observation.velocity_offset": {"normal": [0, 50]}, "dust.a_v": {"uniform": [0, 1]}}, "starts": 1},
}
DISC = {
    **{key: CONFIG[key] for key in ("dust", "engine", "devices")},
    "galaxy": {"reader": "synthetic", "n_stars": 600, "draws": "sobol", "disc_scale_length": 0.4, "bulge_fraction": 0},
    "observation": {"redshift": 0.05, "inclination": 50, "position_angle": 40, "align": "none"},
    "instrument": muse(5000, 6000, fov="2 arcsec"),
    "fit": {
        "free": {
            "observation.inclination": {"uniform": [20, 80]},
            "observation.position_angle": {"uniform": [10, 70]},
            "galaxy.stellar_mass": {"log_normal": [1e10, 0.3]},
            "galaxy.disc_scale_length": {"log_uniform": [0.2, 0.8]},
            "galaxy.disc_log_age": {"uniform": [9.3, 9.9]},
        },
        "starts": 1,
    },
}
"""A disc in 10 x 10 spaxels and 101 bins, without a bulge."""

SETTINGS = {
    "plain": {},
    "disc": {},
    "polynomial": {"fit.polynomial": {"degree": 3, "sigma": 0.02}},
    "scale": {"fit.noise_scale": {"log_uniform": [0.5, 3]}},
}


@functools.cache
def galaxy():
    return few_stars(60, 0.25)


def model_at(posterior, latent):
    """By the program that a verdict uses, too."""
    return np.asarray(models_at(posterior, latent).flux)[0]


@functools.cache
def posed(kind="plain"):
    """A problem without data, with an error of 2 % of the mean flux, and the model at the truth."""
    config = load_config(DISC if kind == "disc" else CONFIG, overrides=SETTINGS[kind])
    blank = mock_data((10, 10, 101) if kind == "disc" else SHAPE)
    problem = log_posterior(config, blank, galaxy=None if kind == "disc" else galaxy()).problem
    truth = DISC["observation"] | DISC["galaxy"] | {"stellar_mass": 1e10, "disc_log_age": 9.6}
    truth = {name: truth[name.partition(".")[2]] for name in DISC["fit"]["free"]} if kind == "disc" else TRUTH
    latent = problem.posterior.free.latent(truth | ({"noise_scale": 1.0} if kind == "scale" else {}))
    flux = model_at(problem.posterior, latent)
    return problem, latent, flux, 0.02 * flux.mean()


def with_data(kind, flux, model_error=None):
    problem, _, _, sigma = posed(kind)
    changes = {"flux": jnp.asarray(flux), "inverse_sigma": jnp.full(flux.shape, 1 / sigma), "model_error": model_error}
    return with_likelihood(problem, **changes)


def with_likelihood(problem, **changes):
    likelihood = dataclasses.replace(problem.posterior.likelihood, **changes)
    return dataclasses.replace(problem, posterior=dataclasses.replace(problem.posterior, likelihood=likelihood))


def noisy(kind, number, size=1.0):
    """The problem with a mock of the model."""
    _, _, flux, sigma = posed(kind)
    return with_data(kind, flux + size * sigma * np.random.default_rng([3, number]).standard_normal(flux.shape))


def linear_at(posterior, latent):
    """J^T J, J^T r and the loss."""
    found = linear_of(posterior, group_of(posterior, latent), tangents_at(posterior, latent))
    return [np.asarray(part)[0] for part in (found.matrix, found.gradient, found.loss)]


def best_of(problem, latent, steps=12):
    """By Gauss-Newton steps, halved where they lead up."""
    at, (matrix, gradient, loss) = np.asarray(latent), linear_at(problem.posterior, latent)
    for _ in range(steps):
        step = -np.linalg.solve(matrix, gradient)
        fall = -step @ gradient
        tried = ((place, linear_at(problem.posterior, place)) for place in (at + step * 0.5**half for half in range(6)))
        better = next((found for found in tried if found[1][2] < loss), None)
        if better is None:
            break
        at, (matrix, gradient, loss) = better
        if fall < 1e-4:
            break
    return at


def judged(problem, kind="plain"):
    return describe_best(problem, best_of(problem, posed(kind)[1])).verdict


def dense(kind):
    """Derivatives (voxels x latents and coefficients) of the residuals by differences and from the formula, in units
    of sigma, and the covariance 1 - G (G^T G + 1)^-1 G^T of the residuals of a fit."""
    problem, latent, flux, sigma = posed(kind)
    columns = []
    for unit in np.eye(len(latent)) * 1e-4:
        above, below = (model_at(problem.posterior, latent + way * unit) for way in (1, -1))
        columns.append((above - below).ravel() / 2e-4 / sigma)
    if kind == "polynomial":
        basis = np.polynomial.legendre.legvander(np.linspace(-1, 1, SHAPE[2]), 3)[:, 1:]
        for y, x in np.ndindex(SHAPE[:2]):
            for term in basis.T:
                column = np.zeros(SHAPE)
                column[y, x] = 0.02 * term * flux[y, x] / sigma
                columns.append(column.ravel())
    design = np.stack(columns, axis=1)
    inner = np.linalg.inv(design.T @ design + np.eye(design.shape[1]))
    return design, np.eye(N_VOXEL) - design @ inner @ design.T


def forms(light):
    """The matrices K of the sums, as dense ones."""
    index = np.arange(N_VOXEL).reshape(SHAPE)
    found = {"chi_square": np.eye(N_VOXEL)}
    for axis in range(3):
        first, second = np.take(index, range(SHAPE[axis] - 1), axis), np.take(index, range(1, SHAPE[axis]), axis)
        pairs = np.zeros((N_VOXEL, N_VOXEL))
        pairs[first.ravel(), second.ravel()] = pairs[second.ravel(), first.ravel()] = 0.5
        found[f"neighbours {axis}"] = pairs
    for name, groups in (("spaxels", index.reshape(25, 31)), ("bins", index.reshape(25, 31).T)):
        weights = np.zeros((len(groups), N_VOXEL))
        for row, members in zip(weights, groups, strict=True):
            row[members] = light.ravel()[members] / max(np.linalg.norm(light.ravel()[members]), 1e-300)
        found[name] = weights.T @ weights
    return found


def sums_of(residue):
    """By the names of the matrices."""
    found = {name: getattr(residue, name) for name in ("chi_square", "spaxels", "bins")}
    return found | {
        f"neighbours {axis}": jax.tree.map(lambda sums, axis=axis: sums[axis], residue.neighbours) for axis in range(3)
    }


def measured(problem, latent, flux, regions=()):
    light = flux / posed()[3]
    halves = halves_of(light)
    residue = measure_misfit(problem.posterior, latent, jnp.asarray(light), halves, locate=lambda sums: regions)
    return jax.device_get(residue), light


@pytest.mark.parametrize("kind", ["plain", "polynomial", "particles"])
def test_means_and_variances_are_those_of_dense_matrices(kind):
    """tr(K C), and 2 tr(K^2) or less; with other draws U also tr(U^T K U) / n, U less what the fit follows."""
    settings = "plain" if kind == "particles" else kind
    _, latent, flux, _ = posed(settings)
    design, covariance = dense(settings)
    error, others = None, np.zeros((0, N_VOXEL))
    if kind == "particles":
        others = np.random.default_rng(8).standard_normal((6, N_VOXEL)) * 0.3
        held_out = jnp.asarray(others.reshape(6, *SHAPE))
        error = ModelError(jnp.zeros(SHAPE), jnp.zeros((1, *SHAPE)), jnp.zeros(1), held_out)
        others = others @ covariance
    residue, light = measured(with_data(settings, flux, error), latent, flux)
    for name, form in forms(light).items():
        found = sums_of(residue)[name]
        spread = np.einsum("ki,ij,lj->kl", others, form, others, optimize=True)
        expected = np.sum(form * covariance) + np.trace(spread) / 6
        scale = np.sqrt(2 * np.sum(form * form))
        np.testing.assert_allclose(found.mean, expected, atol=2e-3 * scale, err_msg=name)
        whole = covariance + others.T @ others / 6
        exact = 2 * np.sum((form @ whole) * (whole @ form))
        assert 0.98 * exact < found.variance < 1.6 * exact, name
    assert design.shape[1] == (77 if kind == "polynomial" else 2)


@pytest.mark.parametrize("kind", ["plain", "polynomial"])
def test_smooth_tests_are_those_of_dense_matrices(kind):
    """(Q r)^T (Q C Q^T)^-1 Q r with the light times Legendre's polynomials, along the bins and of the rank by light and
    powers of the place, but for combinations of which the fit leaves less than a tenth."""
    _, latent, flux, sigma = posed(kind)
    noise = np.random.default_rng(4).standard_normal(SHAPE)
    residue, light = measured(with_data(kind, flux + sigma * noise), latent, flux)
    _, covariance = dense(kind)
    legendre = np.polynomial.legendre.legvander
    square = np.sum(light**2, axis=2)
    rank = np.array([square[square <= least].sum() for least in square.ravel()]) / square.sum()
    y, x = (np.linspace(-1, 1, 5)[index] for index in np.indices((5, 5)))
    maps = [*legendre(2 * rank - 1, 3).T.reshape(4, 5, 5), x, y, x**2, x * y, y**2]
    factors = {"smooth spectrum of the light": legendre(np.linspace(-1, 1, 31), 7).T[:, None, None]}
    factors["smooth map of the light"] = np.stack(maps)[..., None]
    for name, of_test in factors.items():
        templates = np.linalg.qr((light * of_test).reshape(len(of_test), -1).T)[0].T
        variance, axes = np.linalg.eigh(templates @ covariance @ templates.T)
        along = (axes.T @ templates @ noise.ravel())[variance > 0.1]
        expected = np.sum(along**2 / variance[variance > 0.1])
        assert residue.smooth[name].value == pytest.approx(expected, rel=2e-2)
        assert residue.smooth[name].mean == residue.smooth[name].variance / 2 == len(along)


@pytest.mark.parametrize("kind", ["plain", pytest.param("polynomial", marks=pytest.mark.long)])
def test_a_part_of_the_data_moves_values_to_where_a_fit_of_it_alone_is(kind):
    """Least squares of the residuals of each half, and without some bins or spaxels, linear in latents and
    coefficients, by dense matrices."""
    problem = noisy(kind, 0)
    latent = best_of(problem, posed(kind)[1])
    found = describe_best(problem, latent)
    regions = [Region("a range", np.zeros(SHAPE)), Region("a corner", np.zeros(SHAPE))]
    regions[0].voxels[:, :, 7:15] = regions[1].voxels[:2, :3] = 1
    residue, light = measured(problem, latent, np.asarray(found.evaluated.flux), regions)
    moves = moves_of(residue, latent)
    halves = halves_of(light)
    assert len(halves.masks) == 2 * len(HALVES) == len(moves.step) - len(regions)
    assert moves.words[-3:] == ("with the redder half of the data alone", "without a range", "without a corner")
    design, _ = dense(kind)
    data = np.asarray(problem.posterior.likelihood.flux - posed(kind)[2]).ravel() / posed(kind)[3]
    begin = np.concatenate([posed(kind)[1], np.zeros(design.shape[1] - 2)])

    def best(weight):
        weighted = (design * weight[:, None]).T
        return np.linalg.solve(weighted @ design + np.eye(design.shape[1]), weighted @ data - begin)[:2]

    for number, weight in enumerate([*halves.masks, *(1 - region.voxels for region in regions)]):
        expected = best(weight.ravel()) - best(np.ones(N_VOXEL))
        spread = moves.scatter[number]
        np.testing.assert_allclose(moves.step[number] / spread, expected / spread, atol=0.08)


def test_it_is_silent_where_the_model_is_true():
    """Of 120 mocks none has a misfit of p < 1e-3 by more than chance; the probability of each test is uniform."""
    found = [judged(noisy("plain", number)) for number in range(120)]
    good = [verdict for verdict in found if not verdict.misfit]
    assert len(good) >= 119
    for name in found[0].tests:
        side = "greater" if "a range of bins" in name else "two-sided"  # those are cautious
        p = [verdict.tests[name] for verdict in found]
        assert scipy.stats.kstest(p, "uniform", alternative=side).pvalue > 1e-3, name
    assert all(verdict.sentence.startswith("Verdict: the model describes the data") for verdict in good)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["polynomial", pytest.param("scale", marks=pytest.mark.long)])
def test_it_is_silent_where_continua_or_the_noise_are_free(kind):
    """With errors that are half of the noise where their scale is free."""
    found = [judged(noisy(kind, number, 2.0 if kind == "scale" else 1.0), kind) for number in range(20)]
    assert not any(verdict.misfit for verdict in found)
    assert min(min(verdict.tests.values()) for verdict in found) > 1e-4


def wrong_stars(**changed):
    """The model at the truth of other stars than those that are fitted."""
    posterior = posed()[0].posterior
    stars = dataclasses.replace(posterior.forward.source.held.stars, **changed)
    return model_at(eqx.tree_at(lambda p: p.forward.source.held.stars, posterior, stars), posed()[1])


def wrong(case):
    """A mock of something else than the model, with noise."""
    _, _, flux, sigma = posed()
    stars = posed()[0].posterior.forward.source.held.stars
    if case == "a second disc":
        half = jnp.arange(60) % 2 == 0
        flux = wrong_stars(position=jnp.where(half[:, None], 1.3 * stars.position, stars.position))
    if case == "other ages":
        flux = wrong_stars(log_age=stars.log_age - 0.25)
    if case == "a line":
        flux = flux + 1.5 * sigma * np.exp(-0.5 * ((np.arange(31) - 12) / 1.5) ** 2)
    if case == "a clump":
        flux = flux.copy()
        flux[1:3, 3] *= 1.05
    return with_data("plain", flux + sigma * np.random.default_rng(6).standard_normal(SHAPE))


@pytest.mark.parametrize("case", ["a second disc", "other ages", "a line", "a clump"])
def test_a_model_that_is_wrong_is_called_so(case):
    verdict = judged(wrong(case))
    assert verdict.misfit
    assert verdict.doubtful.all()
    assert (verdict.enlarged > 1).all()
    assert verdict.sentence.startswith("Verdict: the model does not describe the data (chi^2/dof ")
    assert "; the errors of all values hold for this model only" in verdict.sentence
    if case == "a clump":
        assert re.search(r", most of all in the spaxel 0\.\d+ arcsec \S*West", verdict.sentence)
    else:
        assert verdict.matters


@pytest.mark.parametrize("first", [25, 40])
def test_a_place_on_which_the_values_hang_is_found_and_left_out(first):
    """0.5 sigma in 20 of 101 bins, on one side of the median of the light and on both: the values move by several of
    their errors, as in a fit to the other bins alone; one step knows that to a third."""
    _, latent, flux, sigma = posed("disc")
    place = (np.arange(101) >= first) & (np.arange(101) < first + 20)
    noise = np.random.default_rng([3, 0]).standard_normal(flux.shape)
    problem = with_data("disc", flux + sigma * (noise + 0.5 * place))
    best = best_of(problem, latent)
    found = describe_best(problem, best)
    low, high = re.search(r"; without (\d+) to (\d+) Angstrom a value moves by ", found.verdict.sentence).groups()
    used = (5000 + 10 * np.arange(101) < int(low)) | (5000 + 10 * np.arange(101) > int(high))
    assert np.mean(used != place) > 0.95
    inverse_sigma = jnp.asarray(np.asarray(problem.posterior.likelihood.inverse_sigma) * used)
    alone = with_likelihood(problem, inverse_sigma=inverse_sigma)
    moved = np.abs(best_of(alone, best) - best) / found.laplace.sigma
    assert found.verdict.moved.max() == pytest.approx(moved.max(), rel=0.35)
    assert found.verdict.moved.max() > 2
    assert (found.verdict.enlarged**2 >= 1 + found.verdict.moved**2).all()
    assert found.verdict.doubtful.all()


def test_a_bulge_that_the_model_does_not_have_marks_every_value():
    disc, latent, flux, _ = posed("disc")
    fraction = jnp.full_like(disc.posterior.forward.source.base.bulge_fraction, 0.1)
    other = model_at(eqx.tree_at(lambda p: p.forward.source.base.bulge_fraction, disc.posterior, fraction), latent)
    silent = judged(noisy("disc", 5), "disc")
    assert not silent.misfit
    assert not silent.doubtful.any()
    assert (silent.enlarged == 1).all()
    problem = with_data("disc", other + np.asarray(noisy("disc", 5).posterior.likelihood.flux) - flux)
    found = describe_best(problem, best_of(problem, latent))
    off = np.abs(found.laplace.latent - np.asarray(latent)) / found.laplace.sigma
    assert (off > 3).sum() >= 3
    assert found.verdict.doubtful.all()
    assert np.median(off / found.verdict.enlarged) < 2


def test_a_free_noise_scale_does_not_hide_a_misfit():
    """At the values that fit best and about the largest scale of its prior, to which chi^2 drives it."""
    problem = wrong("other ages")
    data = problem.posterior.likelihood
    scaled = with_likelihood(posed("scale")[0], flux=data.flux, inverse_sigma=data.inverse_sigma)
    values = problem.posterior.free.values(best_of(problem, posed()[1])) | {"noise_scale": 2.99}
    verdict = describe_best(scaled, np.asarray(scaled.posterior.free.latent(values))).verdict
    assert verdict.scale_free
    assert "chi^2" not in verdict.tests
    assert verdict.misfit


def test_noise_free_data_are_no_misfit():
    """Of errors that are only nominal: residuals far below them say nothing, however much alike neighbours are."""
    _, latent, flux, sigma = posed()
    smooth = flux + 0.02 * sigma * np.sin(np.arange(31) / 5)
    verdict = describe_best(with_data("plain", smooth), np.asarray(latent)).verdict
    assert not verdict.misfit
    assert verdict.sentence.endswith("but chi^2 is too low: the errors of the data are too large")


@pytest.mark.slow(25)
def test_a_galaxy_of_a_simulation_is_no_disc(real_data):
    """Illustris-1 420815, as docs/examples/fit_real_galaxy.py fits it, with fewer spaxels, bins, stars and steps."""
    spec = importlib.util.spec_from_file_location("fit_real_galaxy", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    small = {"instrument.pixel_scale": "2 arcsec", "instrument.wavelength.step": "10 Angstrom", "devices.data": 1}
    common = {**example.COMMON, **small}
    path = real_data / "galaxies" / "illustris1_z0_subhalo420815_stars.hdf5"
    seen = {"galaxy": {"path": str(path)}, "noise": {"signal_to_noise": 30, "seed": 1}}
    mock = run(load_config("quickstart", overrides=common | seen))
    model = {"galaxy": {"reader": "synthetic", "n_stars": 2048, "draws": "sobol"}, "observation.align": "none"}
    names = ("observation.inclination", "galaxy.stellar_mass", "galaxy.disc_scale_length", "galaxy.disc_log_age")
    result = fit(
        load_config("quickstart", overrides=common | model),
        mock,
        free={name: example.FREE[name] for name in names},
        starts=1,
        start={name: value for name, value in example.BY_EYE.items() if name in names},
        optimiser={"steps": 12, "tolerance": 1.0},
        discreteness=None,
    )
    first = result.summary().splitlines()[0]
    assert "the model does not describe the data (chi^2/dof " in first
    assert ", most of all " in first
    assert "; the errors of all values hold for this model only" in first
    assert result.verdict.doubtful.all()
    assert result.verdict.reduced > 3
    assert result.verdict.moved.max() > 5


def test_without_room_for_derivatives_halves_are_not_compared(monkeypatch):
    """Silent on the model, and not on another: the tests assume the least favourable following of the noise."""
    problem = noisy("plain", 1)
    latent = best_of(problem, posed()[1])
    with_derivatives = describe_best(problem, latent)
    monkeypatch.setattr("rubix_like.inference.best_fit._COPIES", 10**12)
    found = describe_best(problem, latent)
    assert set(found.verdict.tests) == {name for name in with_derivatives.verdict.tests if "half" not in name}
    assert not found.verdict.misfit
    np.testing.assert_allclose(found.laplace.covariance, with_derivatives.laplace.covariance, rtol=1e-9)
    assert judged(wrong("other ages")).misfit


def test_derivatives_that_are_not_finite_are_no_verdict():
    _, latent, flux, _ = posed()
    residue, _ = measured(with_data("plain", np.where(np.arange(31) == 3, np.nan, flux)), latent, flux)
    assert np.isnan(residue.smooth["smooth map of the light"].value)


NOTHING = {"chi^2": 0.4, "runs along x": 0.3}
BAD = {"chi^2": 0.0, "runs along x": 1e-5}


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ((0.42, NOTHING, 0.5, 1.003, False), "the model describes the data: no misfit found (chi^2/dof 1.003, p 0.42)"),
        (
            (1e-5, BAD, 0.5, 16.84, False),
            "the model does not describe the data (chi^2/dof 16.84, p 1e-05 by chi^2); the errors of all values hold "
            "for this model only",
        ),
        (
            (1e-5, BAD, 0.5, 16.84, False, [0.0, 0.0, 0.0], "in the spaxel 2 arcsec West of the centre"),
            "the model does not describe the data (chi^2/dof 16.84, p 1e-05 by chi^2), most of all in the spaxel "
            "2 arcsec West of the centre; the errors of all values hold for this model only",
        ),
        (
            (0.0, {"runs along x": 0.0}, 0.5, 1.01, True, [0.2, 0.0, 4.0]),
            "the model does not describe the data (chi^2/dof 1.01, p < 1e-06 by runs along x); the errors of all "
            "values hold for this model only; without a part of the data a value moves by 4 times its error",
        ),
        (
            (1e-4, NOTHING, 0.5, 1.02, False),
            "the model does not describe the data (chi^2/dof 1.02, p 0.0001 by runs along x); the errors of all values "
            "hold for this model only; leaving out any one part of the data moves no value by more than its error, but "
            "an error common to all data would not show in this way",
        ),
        (
            (0.5, NOTHING, 1e-9, 0.4, False),
            "no misfit is found (chi^2/dof 0.4, p 0.5), but chi^2 is too low: the errors of the data are too large",
        ),
        (
            (float("nan"), {}, 1.0, float("nan"), False),
            "the model cannot be judged: there are not more voxels than numbers that are fitted",
        ),
    ],
)
def test_the_sentence(own, expected):
    moved = np.array(own[5]) if len(own) > 5 else np.zeros(3)
    verdict = Verdict(*own[:5], moved, where=own[6] if len(own) > 6 else "")
    assert verdict.sentence == f"Verdict: {expected}"
    assert verdict.doubtful.all() == verdict.misfit == ("this model only" in expected)
    assert verdict.matters == (verdict.misfit and "moves no value" not in expected)
    unfinished = dataclasses.replace(verdict, trouble="the search has not converged (it ran out)")
    assert unfinished.sentence == f"Verdict: the search has not converged (it ran out); at the best values {expected}"


def test_errors_are_enlarged_by_the_misfit_and_by_the_moves():
    """sqrt(scatter + moved^2); what is not known adds nothing, but does not matter in no case."""
    known = Verdict(1e-7, BAD, 0.5, 1.02, False, np.array([0.0, 3.0, 20.0]), without="without a place", scatter=4.0)
    np.testing.assert_allclose(known.enlarged, np.sqrt([4, 13, 404]))
    assert known.sentence.endswith("; without a place a value moves by 20 times its error")
    old = dataclasses.replace(known, scatter=float("nan"), reduced=9.0)
    np.testing.assert_allclose(old.enlarged, np.sqrt([9, 18, 409]))
    unknown = dataclasses.replace(known, moved=np.full(3, np.nan))
    assert unknown.matters
    assert unknown.sentence.endswith("; the errors of all values hold for this model only")
    np.testing.assert_allclose(unknown.enlarged, 2)
    np.testing.assert_array_equal(dataclasses.replace(known, p=0.5).enlarged, 1)
