"""Free-form populations inside a fit: against a matrix that is written out, and a cube of two ages that numpy made."""

import copy
from dataclasses import replace

import foreign_cube
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from test_components_fit import FREE, SMALL, configuration

import rubix_like as rl
from rubix_like import ConfigError
from rubix_like.inference.populations.weight_draws import PROPER
from rubix_like.inference.solved_populations import followed_by_weights

AGES, METALS = (8.3, 9.1, 9.6, 10.0), (0.008, 0.02)
TRUE_AGES = {8.9: 0.3, 10.0: 0.7}
"""log10(age / yr) and shares of the mass in the foreign cube, all of Z = 0.02."""


def free_form(**population):
    """The small fit with a free-form population of these settings, 2 other parameters free."""
    config = configuration()
    (disc,) = config["galaxy"]["components"]
    disc["population"] = {"history": "free_form", "log_ages": AGES, "metallicities": METALS, **population}
    disc["light"]["scale_length"], disc["rotation"]["velocity"] = "0.8 kpc", "200 km/s"
    config["observation"]["inclination"], config["instrument"]["psf"]["fwhm"] = 50, 0.9
    free = ("galaxy.disc.rotation.velocity", "galaxy.disc.light.scale_length")
    config["fit"] = {"free": {name: FREE[name] for name in free}, "starts": 1}
    return config


@pytest.fixture(scope="module")
def two_ages(tmp_path_factory):
    """A foreign cube of two ages from 4600 to 6000 Angstrom, with noise."""
    wavelength = foreign_cube.population(foreign_cube.POPSTAR)[0]

    def population(library):
        total = np.zeros_like(wavelength)
        for age, share in TRUE_AGES.items():
            with pytest.MonkeyPatch.context() as patch:
                patch.setitem(foreign_cube.TRUTH, "galaxy.disc_log_age", age)
                total += share * single(library)[1]
        return wavelength, total

    place, single = tmp_path_factory.mktemp("two_ages") / "two.fits", foreign_cube.population
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**SMALL, "N_SPAXEL": 8, "FIRST": 4600.0, "LAST": 6000.0, "STEP": 10.0}.items():
            patch.setattr(foreign_cube, name, value)
        patch.setattr(foreign_cube, "population", population)
        foreign_cube.write_foreign_cube(place, seed=1)
    return place


def smoothness_by_hand(light):
    """Rows of the prior for 4 ages and 2 metallicities, by loops over their definition."""
    width = np.array([0.8, 0.65, 0.45, 0.4])
    width, share = width / width.mean(), light / light.mean()
    rows = []
    for metal in range(2):
        for age in range(1, 3):
            row = np.zeros((2, 4))
            row[metal, age - 1 : age + 2] = np.array([1, -2, 1]) / width[age - 1 : age + 2]
            rows.append(row.ravel() * share)
    for age in range(4):
        row = np.zeros((2, 4))
        row[:, age] = np.array([-1, 1]) / width[age]
        rows.append(row.ravel() * share)
    return np.concatenate([rows, np.sqrt(PROPER) * np.diag(share / np.tile(width, 2))])


@pytest.mark.slow(25)
def test_the_solution_is_that_of_scipy_and_its_gradient_that_of_differences(two_ages):
    """The matrix of the model with each node alone, columns by single populations, solved by scipy."""
    config = free_form(smoothness=5.0)
    config["galaxy"]["points"], config["engine"]["precision"] = 2048, "float64"
    own = rl.log_posterior(config, two_ages)
    x = own.to_unconstrained({}) + 0.05
    value, gradient = own.value_and_gradient(x)
    for number in range(len(x)):
        step = 1e-4 * np.eye(len(x))[number]
        assert gradient[number] == pytest.approx((own(x + step) - own(x - step)) / 2e-4, rel=1e-5)

    likelihood = own.problem.posterior.likelihood
    inverse_sigma = np.asarray(likelihood.inverse_sigma)
    single, columns = copy.deepcopy(config), []
    single["galaxy"]["components"][0]["population"] = {"log_age": 9.0, "metallicity": 0.02}
    names = ("galaxy.disc.population.metallicity", "galaxy.disc.population.log_age")
    single["fit"]["free"] |= {names[0]: {"log_uniform": [0.001, 0.05]}, names[1]: {"uniform": [8.0, 10.2]}}
    of_nodes = rl.log_posterior(single, two_ages)
    for metal in METALS:
        for age in AGES:
            at = of_nodes.to_unconstrained({**own.to_physical(x), names[0]: metal, names[1]: age})
            columns.append((np.asarray(of_nodes.flux(at)) * inverse_sigma).ravel())
    mixtures = own.problem.posterior.forward.mixtures
    rows = 8 * np.sqrt(5.0) * smoothness_by_hand(np.asarray(mixtures.coefficients[0])[:, 0])
    design = np.concatenate([np.array(columns).T, rows])
    target = np.concatenate([(np.asarray(likelihood.flux) * inverse_sigma).ravel(), np.zeros(len(rows))])
    weights, norm = scipy.optimize.nnls(design, target)
    solved = own.problem.posterior.forward.solved(own.problem.posterior.free.values(jnp.asarray(x)))
    np.testing.assert_allclose(solved.weights, weights, rtol=1e-5, atol=1e-6 * weights.max())
    free = design[:, weights > 0]
    hat = free[: -len(rows)] @ np.linalg.solve(free.T @ free, free[: -len(rows)].T)
    followed = followed_by_weights(own.problem.posterior, jnp.asarray(x)).reshape(-1, len(hat))
    np.testing.assert_allclose(followed.T @ followed, hat, atol=1e-5 * hat.max())
    assert np.sum(followed**2) == pytest.approx(np.trace(hat), rel=1e-6)
    residuals = np.asarray(own.residuals(x))
    assert np.sum(residuals**2) - np.sum(x**2) == pytest.approx(norm**2, rel=1e-6)
    assert value < 0


@pytest.mark.long
def test_a_fit_finds_velocities_and_masses_at_once(two_ages, tmp_path):
    """Of the cube that numpy made; what was found is in the file of the result."""
    config = free_form(metallicities=[0.02], log_ages=[8.0, 8.45, 8.9, 9.35, 9.7, 10.0])
    config["galaxy"]["points"] = 4096
    result = rl.fit(config, two_ages, output=tmp_path / "fit.h5")
    assert result.converged
    assert abs(result.quality.reduced - 1) < 5 * np.sqrt(2 / result.quality.n_voxel)
    assert 1 < result.quality.n_solved < 6
    assert result.quality.degrees_of_freedom == result.quality.n_voxel - 2 - round(result.quality.n_solved)
    for name, true in (("galaxy.disc.rotation.velocity", 210.0), ("galaxy.disc.light.scale_length", 0.8)):
        assert abs(result.values[name] - true) < 3 * result.sigma[name], name
    found = result.populations["disc"]
    wavelength = foreign_cube.population(foreign_cube.POPSTAR)[0]
    seen, light = (wavelength > 4500) & (wavelength < 5900), {}
    for age, share in TRUE_AGES.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(foreign_cube.TRUTH, "galaxy.disc_log_age", age)
            light[age] = share * foreign_cube.population(foreign_cube.POPSTAR)[1][seen].sum()
    expected = sum(age * own for age, own in light.items()) / sum(light.values())
    assert found.mean_log_age("light").value[0] == pytest.approx(expected, abs=0.12)
    for interval, true in ((found.total_mass(), [1e10]), (found.history([7.7, 9.125, 10.3]), [3e9, 7e9])):
        half = 0.5 * (interval.high - interval.low).ravel()
        assert (np.abs(interval.value.ravel() - true) < 3 * half).all(), (interval, true)
        assert (half < 0.25 * np.array(true)).all()
    total = float(np.sum(result.galaxy.stars.initial_mass))
    assert total == pytest.approx(found.mass.sum(), rel=1e-4)
    again = rl.FitResult.read(tmp_path / "fit.h5").populations["disc"]
    np.testing.assert_array_equal(again.draws, found.draws)
    assert again.labels == found.labels == ("disc",)
    short = {"nuts": {"chains": 1, "warmup": 5, "draws": 4}}
    drawn = rl.sample(config, two_ages, fitted=tmp_path / "fit.h5", sampling=short)
    assert drawn.quality.loss == pytest.approx(result.quality.loss, abs=1e-3)
    with pytest.raises(ConfigError, match=r"the free-form populations of disc, got none; fit again"):
        rl.sample(config, two_ages, fitted=replace(result, populations={}), sampling=short)


def test_given_weights_are_masses_of_the_nodes():
    """Emitters of each node have its share of the mass, as a histogram of them says."""
    weights = (1.0, 0.0, 2.0, 3.0, 0.5, 0.5, 0.0, 1.0)
    galaxy = rl.load_config(free_form(weights=weights)).galaxy.build()
    stars = galaxy.emitters(galaxy.points((16384,))).stars
    shares = np.histogram2d(
        np.asarray(stars.metallicity),
        np.asarray(stars.log_age),
        [[0, 0.01, 0.1], [0, 8.5, 9.3, 9.8, 11]],
        weights=np.asarray(stars.initial_mass),
    )[0].ravel()
    np.testing.assert_allclose(shares / shares.sum(), np.array(weights) / 8, atol=0.004)


@pytest.mark.parametrize(
    ("population", "words"),
    [
        ({"log_ages": [9.0, 8.0]}, "increasing log_ages"),
        ({"weights": [1.0, 2.0]}, "a weight for each of 8 nodes"),
        ({"weights": [0.0] * 8}, "at least one is above 0"),
        ({"smoothness": 0.0}, "expected a number > 0"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(population, words):
    with pytest.raises(ConfigError, match=words):
        rl.load_config(free_form(**population))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"free": {"galaxy.disc.mass": {"log_normal": [1e10, 0.3]}}}, "follows from the weights"),
        ({"noise_scale": {"log_uniform": [0.5, 2]}}, "fit.noise_scale: expected the default"),
        ({"polynomial": {"degree": 2}}, "fit.polynomial: expected the default"),
    ],
    ids=str,
)
@pytest.mark.slow(5)
def test_what_does_not_go_with_solving_is_refused(two_ages, changes, words):
    config = free_form()
    config["galaxy"]["points"] = 512
    config["fit"] |= {**changes, "free": config["fit"]["free"] | changes.get("free", {})}
    with pytest.raises(ConfigError, match=words):
        rl.log_posterior(config, two_ages)
