"""Training sets: cube i is the same whatever is computed with it, and that of a pipeline with these parameters."""

import dataclasses
import json
import re
from pathlib import Path

import equinox as eqx
import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from command_line import main
from small import few_stars, muse
from small_results import manifest_of, some_simulations

from rubix_like import (
    ConfigError,
    Pipeline,
    fit,
    load_config,
    load_galaxy,
    load_simulations,
    make_mesh,
    simulate,
    simulate_observations,
)
from rubix_like.extend import Progress, draw_base
from rubix_like.inference.posing import pose_model
from rubix_like.inference.simulation import training_sets as module
from rubix_like.inference.simulation.parameter_draws import PriorDraws, words_for
from rubix_like.inference.simulation.simulation_files import open_folder, shard_path, write_shard
from rubix_like.runtime.mesh.mesh import pad_on_host

PRIORS = {
    "observation.inclination": {"uniform": ["10 deg", "80 deg"]},
    "instrument.psf.fwhm": {"uniform": [0.3, "0.6 arcsec"]},
    "noise.signal_to_noise": {"log_uniform": [5, 50]},
    "dust.a_v": {"truncated_normal": [0.5, 0.3, 0, 2]},
}


def settings(**sections):
    """A field of 5 x 5 spaxels and 31 bins of a disc of 40 stars."""
    return {
        "galaxy": {"reader": "synthetic", "n_stars": 40},
        "observation": {"redshift": 0.05, "inclination": 30, "position_angle": 20, "align": "none"},
        "instrument": muse(psf={"fwhm": "0.5 arcsec"}),
        "dust": {"a_v": 0.1},
        "noise": {"signal_to_noise": 20, "keep_truth": True},
        "engine": {"method": "basis", "precision": "float64", "velocity_range": "900 km/s", "deposit": "nearest"},
        "devices": {"data": 1},
        **sections,
    }


@pytest.fixture(scope="module")
def made():
    """Nine simulations in batches of seven and two."""
    return simulate(settings(), priors=PRIORS, n=9, seed=4, batch=7)


@pytest.mark.parametrize(("batch", "n"), [(1, 9), pytest.param(16, 18, marks=pytest.mark.slow(1))])
def test_a_simulation_does_not_depend_on_the_others_of_its_batch(made, batch, n):
    """Bit for bit: parameters, particles, noise."""
    other = simulate(settings(), priors=PRIORS, n=n, seed=4, batch=batch)
    assert other.number.tolist() == list(range(n))
    for name, values in made.parameters.items():
        np.testing.assert_array_equal(other.parameters[name][:9], values)
    for name in ("flux", "variance", "truth"):
        np.testing.assert_array_equal(getattr(other, name)[:9], getattr(made, name))


@pytest.mark.slow(3)
@pytest.mark.parametrize(("devices", "at_once"), [(1, 4), (4, 1)])
def test_several_at_once_and_devices_change_rounding_alone(made, devices, at_once):
    other = simulate(settings(devices={"data": devices}), priors=PRIORS, n=11, seed=4, at_once=at_once)
    np.testing.assert_array_equal(other.table()[:9], made.table())
    np.testing.assert_allclose(other.flux[:9], made.flux, rtol=0, atol=1e-12 * made.flux.max())


def test_parameters_are_drawn_from_their_priors():
    """Kolmogorov-Smirnov against scipy's distributions, and correlations of independent columns."""
    free = module._planned(request_of(), Progress()).model.free
    values = PriorDraws(free, 7).drawn(0, 2000)
    expected = {
        "observation.inclination": scipy.stats.uniform(10, 70),
        "instrument.psf.fwhm": scipy.stats.uniform(0.3, 0.3),
        "noise.signal_to_noise": scipy.stats.loguniform(5, 50),
        "dust.a_v": scipy.stats.truncnorm(-0.5 / 0.3, 1.5 / 0.3, 0.5, 0.3),
    }
    for name, distribution in expected.items():
        assert scipy.stats.kstest(values[name], distribution.cdf).pvalue > 1e-3
    assert np.abs(np.corrcoef(np.stack(list(values.values()))) - np.eye(4)).max() < 0.1
    np.testing.assert_array_equal(PriorDraws(free, 7).drawn(70, 73)["dust.a_v"], values["dust.a_v"][70:73])


def request_of(**given):
    return module.read_simulation_request(settings(), None, PRIORS, None, given)


@pytest.mark.slow(2)
def test_the_cubes_are_those_of_a_pipeline(made):
    """With the parameters of a simulation in a configuration of its own, and the same particles in all."""
    found = simulate(settings(), priors=PRIORS, n=3, seed=4, particles="same")
    for number in range(3):
        values = {name: float(own[number]) for name, own in found.parameters.items()}
        config = load_config(settings(), overrides=values | {"noise.keep_truth": True})
        cube = Pipeline.from_config(config, mesh=make_mesh(1))(load_galaxy(config))
        peak = float(jnp.max(cube.truth))
        # the margin painted for the widest PSF of the prior holds light that a narrower margin gives back
        np.testing.assert_allclose(found.truth[number], cube.truth, rtol=0, atol=3e-3 * peak)
        np.testing.assert_allclose(found.variance[number], cube.variance, rtol=2e-2)
    assert np.abs(found.truth - made.truth[:3]).max() > 0.05 * found.truth.max()  # other particles


def test_the_noise_has_its_variance(made):
    pulls = ((made.flux - made.truth) / np.sqrt(made.variance)).ravel()
    assert scipy.stats.kstest(pulls, "norm").pvalue > 1e-3
    first, second = (((made.flux - made.truth) / np.sqrt(made.variance))[own].ravel() for own in (0, 1))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.2


@pytest.mark.slow(2)
def test_draws_that_are_given():
    """Their cubes are those of the priors' draws of the same values; rows give the number."""
    values = {"observation.inclination": [20.0, 70.0], "noise.signal_to_noise": np.array([10.0, 10.0])}
    values |= {"instrument.psf.fwhm": ["0.5 arcsec", 0.4], "dust.a_v": [0.0, 0.0]}
    found = simulate(settings(), draws=values, seed=4)
    assert len(found) == 2
    np.testing.assert_array_equal(found.parameters["observation.inclination"], [20.0, 70.0])
    brightest = found.truth.sum(axis=3).reshape(2, -1).argmax(axis=1)
    spectra = found.truth.reshape(2, 25, 31)[np.arange(2), brightest]
    sigma = np.sqrt(found.variance[:, 0, 0, 0])
    np.testing.assert_allclose(np.median(spectra, axis=1) / sigma, 10.0, rtol=1e-6)


@pytest.mark.slow(2)
def test_longer_exposures_have_less_noise():
    """Photons of source and sky grow with the time, so relative variances fall as 1 / time without read noise."""
    detector = {"collecting_area": 50, "throughput": 0.3, "read_noise": 0, "dark_current": 0}
    config = settings(noise={"exposure": {"time": "900 s", "sky": "dark"}}, instrument=muse(detector=detector))
    draws = {"noise.exposure.time": [900.0, 3600.0]}
    found = simulate(config, draws=draws, particles="same")
    np.testing.assert_allclose(found.variance[0] / found.variance[1], 4.0, rtol=1e-9)
    alone = Pipeline.from_config(config, load_galaxy(config), mesh=make_mesh(1))(load_galaxy(config))
    np.testing.assert_allclose(found.variance[0], alone.variance, rtol=1e-9)


def pair(**sections):
    """Two observations, of which the second has no PSF, on other spaxels and bins."""
    other = {"name": "muse", "fov": "0.6 arcsec", "wavelength": {"start": 6000, "stop": 6100, "step": 10}}
    several = {"wide": {}, "small": {"instrument": other | {"psf": None}, **sections}}
    return settings() | {"observations": several}


OF_PAIR = {
    "observation.inclination": {"uniform": ["10 deg", "80 deg"]},
    "observations.wide.instrument.psf.fwhm": {"uniform": [0.3, 0.6]},
    "observations.wide.noise.signal_to_noise": {"uniform": [5, 50]},
}


def test_sets_of_two_instruments_show_the_same_galaxies(tmp_path):
    """The same parameters and particles in both; each cube is that of a pipeline; noise differs; files keep all."""
    kept = simulate_observations(pair(), priors=OF_PAIR, n=3, seed=4, particles="same", output=tmp_path / "sets")
    assert [one.flux for one in kept.values()] == [None, None]
    sets = {name: load_simulations(tmp_path / "sets" / name) for name in kept}
    wide, small = sets["wide"], sets["small"]
    assert (wide.labels, small.labels) == (
        ("observation.inclination", "instrument.psf.fwhm", "noise.signal_to_noise"),
        ("observation.inclination",),
    )
    np.testing.assert_array_equal(*(own.parameters["observation.inclination"] for own in (wide, small)))
    galaxy = load_galaxy(settings())
    widest = pair() | {"instrument": muse(psf={"fwhm": "0.6 arcsec"})}  # sets are planned for the end of the prior
    pipelines = Pipeline.from_config(widest, galaxy).observations
    for name, made in sets.items():
        for row in range(3):
            values = {key: column[row] for key, column in made.parameters.items()}
            truth = np.asarray(pipelines[name](galaxy, values).truth)
            np.testing.assert_allclose(made.truth[row], truth, rtol=0, atol=1e-10 * truth.max())
    noise = [((own.flux - own.truth) / np.sqrt(own.variance))[0].ravel()[:99] for own in (wide, small)]
    assert abs(np.corrcoef(*noise)[0, 1]) < 0.4  # 4 sigma
    with pytest.raises(FileNotFoundError, match=r"give one of the sets in it .*small, .*wide"):
        load_simulations(tmp_path / "sets")
    for place in (tmp_path / "sets" / "wide", tmp_path / "sets" / "wide" / "simulations.json"):
        with pytest.raises(ConfigError, match=r"simulate\.output: expected a folder"):
            simulate_observations(pair(), priors=OF_PAIR, n=3, output=place)


def test_particles_and_draws_of_two_instruments():
    """New particles are the same in both, seen in equal observations; given draws hold for those that have them."""
    draws = {"observation.inclination": [20, 70], "observations.first.noise.signal_to_noise": [10, 20]}
    twins = settings() | {"observations": {"first": {}, "second": {}}}
    sets = simulate_observations(twins, draws=draws, seed=2)
    np.testing.assert_array_equal(sets["first"].truth, sets["second"].truth)
    assert np.abs(sets["first"].truth[0] - sets["first"].truth[1]).max() > 0
    np.testing.assert_array_equal(sets["first"].parameters["noise.signal_to_noise"], [10, 20])


@pytest.mark.parametrize(
    ("call", "config", "priors", "message"),
    [
        (simulate, pair, OF_PAIR, r"observations: expected null for a training set.* use rubix_like\.simulate_observ"),
        (simulate_observations, settings, PRIORS, r"observations: expected some by name, got null; use rubix_like\.si"),
        (simulate_observations, pair, PRIORS, r"expected the observation whose number 'instrument\.psf\.fwhm' is"),
        (
            simulate_observations,
            pair,
            {"observations.small.instrument.psf.fwhm": {"uniform": [1, 2]}},
            r"simulate\.free: expected a parameter that the observation wide has, too",
        ),
        (
            simulate_observations,
            lambda: settings() | {"observations": {"a": {}, "b": {}}},
            {
                f"{name}observation.velocity_offset": {"normal": [0, 50]}
                for name in ("", "observations.a.", "observations.b.")
            },
            r"simulate\.free\.observation\.velocity_offset: expected it once for each observation, got it again",
        ),
    ],
)
def test_what_cannot_be_simulated_of_several(call, config, priors, message):
    with pytest.raises(ConfigError, match=message):
        call(config(), priors=priors, n=2)


@pytest.mark.slow(2)
def test_a_sink_gets_every_batch_on_the_devices():
    batches = []
    found = simulate(settings(), priors=PRIORS, n=5, seed=4, batch=2, sink=batches.append)
    assert [batch.number.tolist() for batch in batches] == [[0, 1], [2, 3], [4]]
    assert all(isinstance(batch.flux, jax.Array) for batch in batches)
    assert found.flux is None
    assert found.labels == tuple(PRIORS)


def galaxies():
    """Of 30, 37 and 33 stars."""
    return [few_stars(number, 0.4) for number in (30, 37, 33)]


@pytest.mark.slow(2)
def test_galaxies_in_turn():
    """Each cube is that of a pipeline with its own galaxy, aligned by its own stars."""
    config = settings(galaxy=None, noise=None, observation=settings()["observation"] | {"align": "stars"})
    draws = {"observation.inclination": [10.0, 30.0, 50.0, 70.0]}
    found = simulate(config, draws=draws, galaxies=galaxies())
    assert found.galaxy.tolist() == [0, 1, 2, 0]
    for number in range(4):
        own = load_config(config, overrides={"observation.inclination": 10.0 + 20 * number})
        galaxy = galaxies()[number % 3]
        expected = np.asarray(Pipeline.from_config(own, galaxy, mesh=make_mesh(1))(galaxy).flux)
        np.testing.assert_allclose(found.flux[number], expected, rtol=0, atol=1e-10 * expected.max())


def with_stars(galaxy, **columns):
    return dataclasses.replace(galaxy, stars=dataclasses.replace(galaxy.stars, **columns))


def neighbour_lengths(galaxy, number):
    """The distances to the `number`-th other star, from all pairs."""
    position = np.asarray(galaxy.stars.position, dtype=float)
    distance = np.linalg.norm(position[:, None] - position[None], axis=2)
    return np.sort(distance, axis=1)[:, number]


MIXED = [
    ({}, 32, "smoothing lengths of the stars of 1 of 2 galaxies are made: the distance to neighbour 32"),
    (
        {"galaxy": {"path": "none.hdf5", "smoothing_length": "neighbours", "neighbours": 5}},
        5,
        "smoothing lengths of the stars of 2 of 2 galaxies are made: the distance to neighbour 5",
    ),
]
NO_MASS = "stars.mass is left out: 1 of 2 galaxies have it, no simulation reads it"
TWO_VIEWS = {"observation.inclination": [30.0, 30.0]}


def mixed():
    """Two galaxies, of which the first alone has masses and lengths, and both without; the lengths of the first."""
    one, other = galaxies()[:2]
    lengths = neighbour_lengths(one, 3)
    return [with_stars(one, smoothing_length=lengths, mass=0.6 * one.stars.initial_mass), other], [one, other], lengths


@pytest.mark.parametrize(("sections", "number", "note"), MIXED)
def test_lengths_that_only_some_galaxies_have_are_made(caplog, sections, number, note):
    """Masses, which no simulation reads, are left out; each cube is that of its galaxy alone."""
    engine = settings()["engine"] | {"deposit": "smoothed"}
    config = settings(noise=None, engine=engine, **({"galaxy": None} | sections))
    given, bare, lengths = mixed()
    lengths = [neighbour_lengths(bare[0], number) if sections else lengths, neighbour_lengths(bare[1], number)]
    found = simulate(config, draws=TWO_VIEWS, galaxies=given)
    for flux, galaxy, length in zip(found.flux, bare, lengths, strict=True):
        alone = with_stars(galaxy, smoothing_length=length)
        expected = np.asarray(Pipeline.from_config(config, alone, mesh=make_mesh(1))(alone).flux)
        np.testing.assert_allclose(flux, expected, rtol=0, atol=1e-7 * expected.max())
    assert note in caplog.text
    assert NO_MASS in caplog.text


def test_columns_that_no_simulation_reads_are_left_out(caplog):
    config = settings(noise=None, galaxy=None)
    given, bare, _ = mixed()
    found = simulate(config, draws=TWO_VIEWS, galaxies=given)
    np.testing.assert_array_equal(found.flux, simulate(config, draws=TWO_VIEWS, galaxies=bare).flux)
    assert "stars.smoothing_length is left out: 1 of 2 galaxies have it, no simulation reads it" in caplog.text
    assert NO_MASS in caplog.text


@pytest.mark.parametrize(
    ("devices", "wave"),
    [
        pytest.param(2, 1, marks=pytest.mark.slow(2)),
        pytest.param(8, 1, marks=pytest.mark.slow(3)),
        pytest.param(4, 2, marks=pytest.mark.slow(3)),
    ],
)
def test_vmap_over_galaxies_on_any_mesh(devices, wave):
    """Three galaxies of 30, 37 and 33 stars, padded to one size: each as it is alone."""
    built = Pipeline.from_config(settings(noise=None), galaxies()[1], mesh=make_mesh(devices, wave=wave))
    padded = [eqx.tree_at(lambda galaxy: galaxy.stars, own, pad_on_host(own.stars, 40)) for own in galaxies()]
    stack = jax.tree.map(lambda *leaves: jnp.stack(leaves), *padded)
    expected = np.stack([np.asarray(built(galaxy).flux) for galaxy in galaxies()])
    found = jax.jit(jax.vmap(lambda galaxy: built(galaxy).flux))(stack)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * expected.max())


@pytest.mark.slow(2)
def test_files_go_on_where_they_were_stopped(tmp_path, made):
    """Two of three files made; a damaged one is made again; more simulations can be added."""
    folder, keys = tmp_path / "set", {"priors": PRIORS, "seed": 4, "shard": 4, "batch": 7}
    found = simulate(settings(), n=7, output=folder, **keys)
    assert found.flux is None
    assert found.n_kept == 0
    kept = shard_path(folder, 0).stat().st_mtime_ns
    shard_path(folder, 1).write_bytes(b"half of it")
    assert simulate(settings(), n=9, output=folder, **keys).n_kept == 4
    assert shard_path(folder, 0).stat().st_mtime_ns == kept
    again = load_simulations(folder)
    np.testing.assert_array_equal(again.flux, made.flux)
    np.testing.assert_array_equal(again.table(), made.table())
    assert again.units["observation.inclination"] == "deg"
    part = load_simulations(folder, 3, 6)
    np.testing.assert_array_equal(part.variance, made.variance[3:6])
    assert load_simulations(folder, cubes=False).truth is None
    with h5py.File(shard_path(folder, 2)) as file:
        assert file["flux"].attrs["unit"] == "1e-20 erg s-1 cm-2 Angstrom-1"
        assert file["parameters/instrument.psf.fwhm"].attrs["unit"] == "arcsec"


@pytest.mark.slow(2)
def test_files_of_another_set_are_not_replaced(tmp_path):
    folder = tmp_path / "set"
    simulate(settings(), priors=PRIORS, n=2, output=folder)
    other = settings(dust={"a_v": 0.2, "curve": "cardelli"})
    priors = PRIORS | {"dust.a_v": {"uniform": [0, 2]}}
    words = "seed; free parameters or priors; model; simulate.particles or variance"
    with pytest.raises(ConfigError, match=f"differs in: {words}.*overwrite=True"):
        simulate(other, priors=priors, n=2, seed=2, particles="same", output=folder)
    with pytest.raises(ConfigError, match=r"at most 1 simulations \(simulate.n\), got 2"):
        simulate(settings(), priors=PRIORS, n=1, output=folder)
    simulate(settings(), priors=PRIORS, n=1, seed=2, output=folder, restart=True)
    assert len(load_simulations(folder)) == 1
    shard_path(folder, 0).unlink()
    with pytest.raises(ValueError, match="goes on where it was stopped"):
        load_simulations(folder)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"priors": {"observation.inclinatoin": {"uniform": [0, 1]}}},
            r"simulate.free: unknown .*'observation.inclination'",
        ),
        ({"priors": {}}, "simulate.free: expected at least one parameter"),
        ({"priors": {"dust.a_v": {"uniform": [0, "1 km"]}}}, r"simulate.free.dust.a_v: uniform.*mag"),
        ({"priors": {"dust.a_v": {"uniform": [-1, 1]}}}, r"simulate.free.dust.a_v: expected a prior within"),
        (
            {"priors": {"lines.luminosity": {"uniform": [0, 1]}}},
            r"simulate.free.lines.luminosity: expected a run whose",
        ),
        (
            {"priors": {"stars.v_los": {"uniform": [0, 1]}}},
            r"simulate.free.stars.v_los: expected a galaxy that is read",
        ),
        ({"priors": PRIORS, "n": 0}, r"simulate.n: .*1"),
        ({"priors": PRIORS, "draws": {"dust.a_v": [1.0]}}, "draws or priors, got both"),
        ({"draws": {"dust.a_v": [1.0, 2.0]}, "n": 3}, "n: expected the number of draws, 2, got 3"),
        ({"draws": {"dust.a_v": [1.0], "observation.inclination": [1.0, 2.0]}}, "draws.observation.inclination: .* 1"),
        (
            {"draws": {"dust.a_v": [1.0, -2.0]}},
            r"draws.dust.a_v: expected values within .* limits, got -2 mag: expected",
        ),
        (
            {"draws": {"observation.position_angle": [0.0, 400.0]}},
            "angles within 360 deg of each other, got 0 to 400 deg",
        ),
        ({"draws": {"dust.a_v": [1.0, np.nan]}}, "draws.dust.a_v: expected a finite"),
        ({"priors": PRIORS, "sink": print, "output": "x"}, "sink or output, got both"),
        ({"priors": PRIORS, "galaxies": []}, "galaxies: expected at least one"),
    ],
)
def test_what_cannot_be_simulated(keys, message):
    with pytest.raises(ConfigError, match=message):
        simulate(settings(), **keys)


def test_a_folder_with_other_files(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(ConfigError, match=r"expected an empty folder, or one of simulations"):
        simulate(settings(), priors=PRIORS, n=1, output=tmp_path)
    with pytest.raises(ConfigError, match=r"expected a folder, got the file"):
        simulate(settings(), priors=PRIORS, n=1, output=tmp_path / "thesis.tex")


def test_a_manifest_that_is_none(tmp_path):
    with pytest.raises(FileNotFoundError, match="no simulations in"):
        load_simulations(tmp_path)
    for text in ("", "{}", "[]", json.dumps({"format": "rubix_like simulations", "layout": 1, "n": -1})):
        (tmp_path / "simulations.json").write_text(text)
        with pytest.raises(ValueError, match="does not describe simulations"):
            load_simulations(tmp_path)


def test_new_particles_have_room_for_the_fastest_of_a_million_cubes():
    """Against the chi distribution of the length of three normals; the same particles in all cubes need less."""
    engine = {"method": "basis", "precision": "float64"}
    galaxy = {
        "reader": "synthetic",
        "n_stars": 40,
        "disc_dispersion": 60,
        "rotation_velocity": 150,
        "bulge_fraction": 0,
    }
    limits = {}
    for particles in ("new", "same"):
        own = {"free": {"observation.inclination": {"uniform": [0, 90]}}, "particles": particles, "n": 2}
        config = settings(engine=engine, galaxy=galaxy, simulate=own)
        request = module.read_simulation_request(config, None, None, None, {})
        limits[particles] = float(pose_model(request.config, None, lambda *_: None).pipeline.velocity_limit)
    fastest = 60 * scipy.stats.chi(3).isf(1e-3 / (1e6 * 40))
    assert fastest < limits["new"] < 2 * (fastest + 150)
    assert limits["same"] < fastest


@pytest.mark.slow(2)
def test_stars_that_are_too_fast_name_the_simulations():
    engine = settings()["engine"] | {"velocity_range": "100 km/s"}
    with pytest.raises(ValueError, match=r"simulations 0 to 1: galaxy: .*engine.velocity_range"):
        simulate(settings(engine=engine), draws={"observation.inclination": [80.0, 85.0]})


@pytest.mark.parametrize("kind", ["random", pytest.param("sobol", marks=pytest.mark.slow(2))])
def test_new_particles_are_as_many_and_as_even(kind):
    """Against the distributions; Sobol points stay even: their mean is nearer to 1/2 than that of independent ones."""
    base = draw_base(2048, 10, 1, kind)
    other = jax.jit(lambda base, key: base.anew(key))(base, jax.random.key(3))
    assert jax.tree.structure(other) == jax.tree.structure(base)
    uniform, normal = (np.asarray(own) for own in (other.disc.uniform, other.disc.normal))
    assert uniform.shape == base.disc.uniform.shape
    assert 0 < uniform.min() < uniform.max() < 1
    assert scipy.stats.kstest(uniform[:, 2], "uniform").pvalue > 1e-3
    assert scipy.stats.kstest(normal[:, 1], "norm").pvalue > 1e-3
    assert abs(np.corrcoef(uniform[:, 0], np.asarray(base.disc.uniform)[:, 0])[0, 1]) < 0.9
    if kind == "sobol":
        assert np.abs(uniform.mean(axis=0) - 0.5).max() < 0.3 * np.sqrt(1 / 12 / len(uniform))


def test_the_command(tmp_path, capsys):
    """From a configuration whose priors are those of its fit; the last lines say where and how to look."""
    config = load_config(settings(fit={"free": PRIORS}, simulate={"n": 3, "output": "set"}))
    (tmp_path / "run.yaml").write_text(config.to_yaml())
    assert main(["simulate", "run.yaml", "--n", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 simulations: cubes of 5 x 5 x 31 (y, x, wavelength)"
    assert lines[-1] == "In Python: simulations = rubix_like.load_simulations('set')"
    assert len(load_simulations("set")) == 2
    assert main(["inspect", "set/simulations_00000.h5"]) == 0
    assert "0 to 1 of their set" in capsys.readouterr().out
    assert main(["simulate", "run.yaml", "--n", "2"]) == 0
    assert capsys.readouterr().out.startswith("2 simulations (0 new, 2 kept): cubes of 5 x 5 x 31")
    assert main(["simulate", "run.yaml", "--set", "simulate.seed=8"]) == 2
    assert "differs in: seed" in capsys.readouterr().err
    described = Path("set/simulations.json").read_text()
    Path("set/simulations.json").write_text(described.replace('"files": "hdf5"', '"files": "zarr"'))
    assert main(["simulate", "run.yaml"]) == 2
    assert "differs in: format of the files (simulate.files: zarr)" in capsys.readouterr().err


def test_xarray_opens_a_set(tmp_path):
    """As the page says; coordinates are those of the simulations."""
    simulations = some_simulations(n=20)
    manifest = manifest_of(simulations, "hdf5", shard=8)
    (tmp_path / "simulations").mkdir()
    for number, rows in enumerate((slice(8), slice(8, 16), slice(16, 20))):
        write_shard(rows_of(simulations, rows), manifest, tmp_path / "simulations", number)
    page = (Path(__file__).parents[2] / "docs" / "training-sets.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(import xarray\n.*?)```", page, re.S)
    found: dict = {}
    exec(example.replace("wave=5050", "wave=1667"), found)
    cubes, drawn = found["cubes"], found["drawn"]
    assert cubes.flux.dims == ("simulation", "y", "x", "wave")
    np.testing.assert_array_equal(cubes.variance, simulations.variance)
    for axis, values in {"simulation": "number", "wave": "wavelength", "x": "x", "y": "y"}.items():
        np.testing.assert_array_equal(cubes.coords[axis], getattr(simulations, values))
    assert (cubes.mask.dims, cubes.x.unit) == (("y", "x", "wave"), "arcsec")
    np.testing.assert_array_equal(found["one"], simulations.flux[9, :, :, 1])
    for name, values in simulations.parameters.items():
        np.testing.assert_array_equal(drawn[name], values)
    assert drawn["dust.a_v"].unit == "mag"


def rows_of(simulations, rows):
    """Some of them, with their cubes."""
    arrays = {name: getattr(simulations, name)[rows] for name in ("number", "galaxy", "flux", "variance")}
    values = {name: column[rows] for name, column in simulations.parameters.items()}
    return dataclasses.replace(simulations, parameters=values, **arrays)


def test_draws_have_no_prior_in_words():
    assert words_for("draws", "fit.free.x: expected a prior above 0; x: its prior, 1 to 2") == (
        "draws.x: expected a range of draws above 0; x: its range of draws, 1 to 2"
    )
    assert words_for("simulate.free", "fit.free.x: its prior") == "simulate.free.x: its prior"


def test_files_bring_everything_back(tmp_path):
    """Whole, a part of it, without cubes; what is damaged is refused, and made again."""
    made = some_simulations()
    manifest = manifest_of(made, "hdf5")
    manifest.write(tmp_path)
    write_shard(made, manifest, tmp_path, 0)
    left = tmp_path / f".rubix-like-other-0123456789ab-{shard_path(tmp_path, 0).name}"  # by a killed process
    left.touch()
    assert open_folder(tmp_path, manifest, 100) == []
    assert not left.exists()
    for start, stop in ((0, 7), (2, 5), (6, 7)):
        found, cut = load_simulations(tmp_path, start, stop), slice(start, stop)
        for name in ("number", "galaxy", "flux", "variance"):
            own = getattr(found, name)
            np.testing.assert_array_equal(own, getattr(made, name)[cut], strict=name in ("flux", "variance"))
        for name in ("wavelength", "mask", "x", "y"):
            np.testing.assert_array_equal(getattr(found, name), getattr(made, name))
        for name, values in made.parameters.items():
            np.testing.assert_array_equal(found.parameters[name], values[cut])
        assert (found.units, found.truth) == (made.units, None)
    assert load_simulations(tmp_path, cubes=False).flux is None
    path = shard_path(tmp_path, 0)
    content = bytearray(path.read_bytes())
    place = content.find(np.asarray(made.flux[3]).tobytes()[:16])
    assert place > 0
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not a complete file of simulations"):
        load_simulations(tmp_path)
    path.write_bytes(content[:200])
    assert open_folder(tmp_path, manifest, 100) == [0]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("wavelength", np.zeros_like, "wavelength: expected finite positive values in increasing order"),
        ("wavelength", lambda values: values[::-1], "wavelength: expected finite positive values in increasing order"),
        ("flux", np.zeros_like, r"flux: has no checksum \(fletcher32\)"),
    ],
)
def test_an_array_that_another_program_replaced(tmp_path, name, change, message):
    manifest = manifest_of(some_simulations(), "hdf5")
    manifest.write(tmp_path)
    write_shard(some_simulations(), manifest, tmp_path, 0)
    with h5py.File(shard_path(tmp_path, 0), "r+") as file:
        values = file[name][()]
        del file[name]
        file[name] = change(values)
    with pytest.raises(ValueError, match=message):
        load_simulations(tmp_path)


def test_a_folder_says_what_is_in_it(tmp_path, capsys):
    """Also where files are missing, and as JSON."""
    made = some_simulations()
    manifest = dataclasses.replace(manifest_of(made, "hdf5"), n=21)
    manifest.write(tmp_path)
    for number in (0, 2):
        write_shard(dataclasses.replace(made, number=made.number + 7 * number), manifest, tmp_path, number)
    assert main(["inspect", str(tmp_path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)["facts"]
    assert facts["kind"] == "training set"
    assert facts["simulations"] == "14 of 21; the same command makes the others"
    assert facts["cubes"] == "2 x 3 x 4 (y, x, wavelength): flux, variance"
    assert facts["wavelengths"] == "1666.67 to 1667.67 Angstrom"
    values = made.parameters["dust.a_v"]
    assert facts["dust.a_v"] == f"{values.min():.4g} to {values.max():.4g} mag (given draws)"
    assert facts["galaxies"] == "2, in turn"
    assert facts["files"].startswith("2 (hdf5), ")
    assert main(["inspect", str(tmp_path)]) == 0
    assert f"rubix_like.load_simulations({str(tmp_path)!r})" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="is a training set that rubix-like wrote; expected a galaxy's") as refused:
        load_galaxy(str(tmp_path))
    assert str(refused.value).endswith(f"; open it with rl.load_simulations({str(tmp_path)!r})")


def test_a_fit_has_no_noise_to_free():
    with pytest.raises(ConfigError, match=r"fit.free.noise.signal_to_noise: .*simulate.free.noise.signal_to_noise"):
        fit(settings(), "cube.fits", {"noise.signal_to_noise": {"uniform": [1, 2]}})


def dusty_settings(**sections):
    """With dust in the gas, without noise."""
    return settings(
        galaxy={"reader": "synthetic", "n_stars": 40, "n_gas": 30},
        dust={"kind": "particles", "cells": 16, "cold": None},
        noise=None,
        **sections,
    )


@pytest.mark.slow(3)
@pytest.mark.parametrize("devices", [pytest.param(1, marks=pytest.mark.long), 2])
def test_vmap_over_galaxies_with_dust(devices):
    config = load_config(dusty_settings())
    galaxy = load_galaxy(config)
    built = Pipeline.from_config(config, galaxy, mesh=make_mesh(devices))
    dimmer = jnp.asarray([1.0, 0.5])
    stack = jax.vmap(lambda factor: jax.tree.map(lambda leaf: leaf * factor.astype(leaf.dtype), galaxy.gas))(dimmer)
    found = jax.jit(jax.vmap(lambda gas: built(eqx.tree_at(lambda own: own.gas, galaxy, gas)).flux))(stack)
    expected = np.stack([built(eqx.tree_at(lambda own: own.gas, galaxy, own)).flux for own in _each(stack)])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * expected.max())


def _each(stack):
    return [jax.tree.map(lambda leaf, number=number: leaf[number], stack) for number in range(2)]


@pytest.mark.slow(3)
def test_dust_of_the_particles_and_no_scale_of_the_noise():
    """As a pipeline with dust in the gas; the noise of a fit has a scale, that of a simulation its own level."""
    dusty = dusty_settings(fit={"noise_scale": {"log_normal": [1, 0.3]}})
    found = simulate(dusty, priors={"dust.opacity": {"uniform": [2, 8]}}, n=2, seed=4, particles="same")
    assert list(found.parameters) == ["dust.opacity"]
    for number in range(2):
        config = load_config(dusty, overrides={"dust.opacity": float(found.parameters["dust.opacity"][number])})
        cube = Pipeline.from_config(config, mesh=make_mesh(1))(load_galaxy(config))
        np.testing.assert_allclose(found.flux[number], cube.flux, rtol=0, atol=3e-3 * float(cube.flux.max()))
    assert np.abs(found.flux[0] - found.flux[1]).max() > 1e-3 * found.flux.max()
