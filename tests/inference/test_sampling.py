"""Sampling from Python: what comes out and where it goes, the same on all devices, going on after an end."""

import dataclasses
import functools
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from problems import end_of_chains, posed
from quick_compiler import quick_environment
from small import TWO_FREE, muse, small_disc

from rubix_like import ConfigError, Cube, Pipeline, SampleResult, fit, load_config, load_galaxy, run, sample
from rubix_like.extend import Progress

REPOSITORY = Path(__file__).resolve().parents[2]
MESHES = (
    (8, 2, 3),
    *((4, 4, 3), (8, 8, 3), (2, 2, 3), (8, 1, 3), (8, 4, 8)),
    *((2, 1, 3), (8, 4, 3), (8, 2, 4), (8, 8, 8), (6, 3, 4)),
)
"""Devices, rows of the mesh, chains."""
TRUTH = {"observation.velocity_offset": 40.0, "galaxy.stellar_mass": 1.2e10}
CONFIG = {
    **small_disc(60),
    "instrument": muse(5000, 5400, 10),
    "engine": {"method": "direct", "precision": "float64", "deposit": "tsc", "velocity_range": 1000},
    "noise": {"signal_to_noise": 20, "seed": 3},
    "fit": {
        **TWO_FREE,
        "candidates": 1,
        "sampling": {"nuts": {"chains": 3, "warmup": 40, "draws": 30}, "predictive": 7},
    },
}


FOUR = {**CONFIG, "devices": {"data": 4}}
"""On four devices: each more takes its time where there are fewer cores."""


@functools.cache
def data() -> Cube:
    config = load_config(CONFIG, overrides={**TRUTH, "devices.data": 1})
    galaxy = load_galaxy(config)
    return Pipeline.from_config(config, galaxy=galaxy)(galaxy)


@functools.cache
def fitted():
    return fit(load_config(CONFIG, overrides={"devices.data": 1}), data())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A whole sampling with its files: the folder, the result, what it told."""
    told = io.StringIO()
    folder = tmp_path_factory.mktemp("samples")
    result = sample(FOUR, data(), fitted=fitted(), output=folder / "own.h5", progress=Progress(told))
    return folder, result, told.getvalue()


@pytest.mark.slow(45)
def test_the_truth_is_among_the_draws(made):
    _, found, _ = made
    assert found.latent.shape == (3, 30, 2)
    assert found.method == "nuts"
    for name, truth in TRUTH.items():
        assert abs(found.mean[name] - truth) < 5 * found.sigma[name]
    np.testing.assert_array_equal(found.best, fitted().latent)


@pytest.mark.slow(45)
def test_files_are_complete_and_checkpoints_gone(made):
    folder, found, told = made
    assert {path.name for path in folder.iterdir()} == {"own.h5", "own_model.fits", "own_predictive.fits"}
    again = SampleResult.read(folder / "own.h5")
    np.testing.assert_array_equal(again.latent, found.latent)
    assert "sampling by nuts" in told
    assert found.summary() in str(again)


def draws(n_device, groups, chains):
    """The draws of a real model on a mesh, and the keys."""
    chosen = {"devices.data": n_device, "fit.sampling.nuts.chains": chains}
    spread, best = posed(groups, load_config(CONFIG, overrides=chosen), data()), fitted()
    settings, mesh = spread.settings.sampling, spread.pipeline.mesh
    end = end_of_chains(spread.posterior, mesh, settings, best.latent, best.laplace.covariance)
    return end.keys, end.draws


@functools.cache
def alone(chains):
    return draws(1, 1, chains)


@pytest.mark.long
@pytest.mark.parametrize(("n_device", "groups", "chains"), MESHES)
def test_draws_of_a_real_model_are_the_same_on_any_devices(n_device, groups, chains):
    """Stars along "data", chains along "sample", numbers that divide the rows and others."""
    keys, one = alone(chains)
    other_keys, other = draws(n_device, groups, chains)
    np.testing.assert_array_equal(keys, other_keys)
    np.testing.assert_allclose(one["latent"], other["latent"], rtol=0, atol=1e-9)
    np.testing.assert_array_equal(one["n_leapfrog"], other["n_leapfrog"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sampling": {"groups": 3}}, "fit.sampling.groups: expected a number that divides the 8 devices, got 3"),
        ({"sampling": {"chains": 3}}, "unknown key 'fit.sampling.chains'"),
        ({"sampling": {"method": "hmc"}}, "fit.sampling.method"),
        ({"fitted": "absent.h5"}, "no such result: absent.h5"),
        ({"sampling": {"output": "draws.txt"}}, "expected a path that ends in .h5 or .hdf5, got 'draws.txt'"),
        (
            {"fitted": "fit_samples.h5", "output": "fit_samples.h5"},
            r"which is 'fit_samples.h5' \(fitted\) and would be",
        ),
        ({"output": "fit.h5"}, r"got 'fit.h5', which is 'fit.h5' \(result of the fit\) and would be replaced"),
    ],
)
def test_what_cannot_be_sampled_is_refused(given, message, tmp_path):
    with pytest.raises((ConfigError, FileNotFoundError), match=message):
        sample(CONFIG, data(), **given)
    assert not list(tmp_path.glob("*.h5"))


@pytest.mark.slow(45)
def test_the_fit_of_other_priors_is_refused():
    free = {**CONFIG["fit"]["free"], "observation.velocity_offset": {"normal": [0, 50]}}
    with pytest.raises(ConfigError, match="with other priors; fit again"):
        sample(CONFIG, data(), free, fitted=fitted())


class Ended(io.StringIO):
    """What is told is read until certain words come: then Ctrl-C is pressed."""

    def __init__(self, words):
        super().__init__()
        self.words = words

    def write(self, text):
        if self.words in text:
            raise KeyboardInterrupt
        return super().write(text)


@pytest.mark.slow(45)
def test_a_sampling_goes_on_with_what_it_began_with_only(made, tmp_path):
    """With the same settings and best fit; anew where it is told to; a note where the fit was another."""
    again = functools.partial(sample, FOUR, data(), output=tmp_path / "own.h5")
    best, checkpoint = fitted(), tmp_path / ".own.h5.rubix-like-checkpoint.npz"
    with pytest.raises(KeyboardInterrupt):
        again(fitted=best, progress=Progress(Ended("models of the draws")))
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint.name]
    with pytest.raises(ConfigError, match=r"differs in: best fit to begin at \(fitted\)\. Write"):
        again(fitted=dataclasses.replace(best, latent=best.latent + 0.1))
    with pytest.raises(ConfigError, match=r"differs in: fit\.sampling\.seed\. Write"):
        again(fitted=best, sampling={"seed": 2})
    kept = checkpoint.read_bytes()
    other = dataclasses.replace(best, quality=dataclasses.replace(best.quality, loss=best.quality.loss + 100))
    told = io.StringIO()
    found = again(fitted=other, progress=Progress(told))
    assert "going on after 70 of 70" in told.getvalue()
    np.testing.assert_array_equal(found.latent, made[1].latent)
    assert found.notes[:-1] == made[1].notes
    assert f"had {other.quality.loss:.6g} there" in found.notes[-1]
    checkpoint.write_bytes(kept)
    with pytest.raises(KeyboardInterrupt):
        again(fitted=best, restart=True, progress=Progress(Ended("the posterior about the best values")))
    assert not checkpoint.exists()


def start(output, n_device):
    """The command in a process of its own, on some devices."""
    environment = {**os.environ, **quick_environment(), "PYTHONPATH": str(REPOSITORY)}
    environment["JAX_NUM_CPU_DEVICES"] = str(n_device)
    command = [
        sys.executable,
        "-m",
        "rubix_like.cli",
        "sample",
        "run.yaml",
        "--fitted",
        "fit.h5",
        "--output",
        output,
    ]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def steps_kept():
    """How many steps are in the checkpoint."""
    path = Path(".stopped.h5.rubix-like-checkpoint.npz")
    if not path.exists():
        return 0
    with np.load(path) as file:
        return int(file["n_done"])


def kill(number, n_device):
    """Start, wait for a checkpoint with more steps, and end it by `number`; how it ended."""
    before, process = steps_kept(), start("stopped.h5", n_device)
    while process.poll() is None and steps_kept() <= before:
        time.sleep(0.01)
    process.send_signal(number)
    process.communicate(timeout=600)
    return process.returncode


@pytest.mark.long
@pytest.mark.parametrize("signals", [[signal.SIGKILL], [signal.SIGTERM, signal.SIGKILL]])
def test_kills_change_nothing(signals, tmp_path, monkeypatch):
    """Killed in the middle and gone on with, on another number of devices: the draws are those of the whole."""
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))
    sampling = {"nuts": {"chains": 2, "warmup": 100, "draws": 100}, "predictive": 4}
    section = {**CONFIG["fit"], "data": "cube.fits", "sampling": sampling}
    Path("run.yaml").write_text(json.dumps({**CONFIG, "fit": section}))
    run("run.yaml", output="cube.fits")
    fit("run.yaml", output="fit.h5")
    whole = sample("run.yaml", fitted="fit.h5")
    for number in signals:
        assert kill(number, 1) == (-number if number == signal.SIGKILL else 128 + number)
    last = start("stopped.h5", 2)
    out, errors = last.communicate()
    assert last.returncode == 0, errors
    assert "going on after" in errors
    assert "Draws written to stopped.h5, the mean model to stopped_model.fits, the prediction to stopped_pred" in out
    found = SampleResult.read("stopped.h5")
    np.testing.assert_array_equal(whole.keys, found.keys)
    np.testing.assert_allclose(whole.latent, found.latent, rtol=0, atol=1e-9)
    left = {path.name for path in tmp_path.iterdir() if path.name.startswith((".", "stopped"))}
    assert left == {"stopped.h5", "stopped_model.fits", "stopped_predictive.fits"}
