"""A sampler of another package: the one in the docstring of the interface, announced by an entry point."""

import dataclasses
import inspect
import json
import re
import sys
from pathlib import Path

import equinox as eqx
import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from command_line import printed
from curved import half_square
from free_numbers import free_of, normal_about
from installed_package import write_dist_info
from jax.sharding import AxisType
from small import fit_section
from small_results import of_draws, sample_result

from rubix_like import ConfigError, Cube, SampleResult, load_config
from rubix_like.extend import AbstractChainSampler, Footprint, WavelengthBins
from rubix_like.inference.samplers.convergence import convergence_of, notes_on_sampling
from rubix_like.inference.samplers.samplers import make_sampler

N_LATENT = 2
FREE = free_of(*((f"p{number}", {"normal": [0, 1]}) for number in range(N_LATENT)))


class Linear(eqx.Module):
    """Data that are linear in the latents, so that the posterior is normal."""

    design: jax.Array
    data: jax.Array

    def residuals(self, latent):
        return {"data": self.data - self.design @ latent, "prior": latent}

    def loss(self, latent):
        return half_square(self.residuals(latent))


DESIGN, DATA = np.array([[3.0, 1.0], [1.0, 2.0], [0.5, -1.0]]), np.array([2.0, 0.5, -1.0])
COVARIANCE = np.linalg.inv(DESIGN.T @ DESIGN + np.eye(N_LATENT))
MEAN = COVARIANCE @ DESIGN.T @ DATA
POSTERIOR = Linear(jnp.asarray(DESIGN), jnp.asarray(DATA))


@pytest.fixture
def metropolis(tmp_path, monkeypatch):
    """The sampler of the docstring in a module of its own, installed as `metropolis`."""
    (source,) = re.findall(r"```python\n(.*?)```", inspect.getdoc(AbstractChainSampler), re.S)
    (tmp_path / "metropolis.py").write_text(source)
    write_dist_info(tmp_path, "metropolis", "[rubix_like.samplers]\nmetropolis = metropolis:MetropolisSampler\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "metropolis", raising=False)
    return tmp_path


def mesh_of(rows, columns):
    axes, types = ("sample", "data"), (AxisType.Auto,) * 2
    return jax.make_mesh((rows, columns), axes, axis_types=types, devices=jax.devices()[: rows * columns])


def sampler_of(**chosen):
    return make_sampler(fit_section(sampling={"method": "metropolis", "metropolis": chosen, "seed": 3}).sampling)


def run(sampler, mesh, begun=None):
    return list(sampler.run(POSTERIOR, mesh, MEAN, normal_about(FREE, MEAN, COVARIANCE), begun))


@pytest.mark.usefixtures("metropolis")
def test_it_draws_from_a_known_posterior_and_goes_on_after_an_end():
    sampler = sampler_of(jump=1.2, warmup=100, draws=2000)
    states = run(sampler, mesh_of(2, 1))
    sampled = sampler.sampled(states[-1])
    found = convergence_of(sampled, sampled.latent)
    assert found.r_hat.max() < 1.02
    error = np.sqrt(np.diag(COVARIANCE) / found.ess_bulk)
    flat = sampled.latent.reshape(-1, N_LATENT)
    assert (np.abs(flat.mean(axis=0) - MEAN) < 4 * error).all()
    np.testing.assert_allclose(np.cov(flat, rowvar=False), COVARIANCE, atol=5 * (error**2).max() ** 0.5 * 0.5)
    assert 0.2 < sampled.statistics["moved"].mean() < 0.8
    assert sampled.statistics["moved"].dtype == bool
    middle = states[len(states) // 2]
    begun = sampler.read({name: np.array(own) for name, own in middle.arrays().items()})
    assert type(begun) is type(middle)
    np.testing.assert_array_equal(run(sampler, mesh_of(1, 1), begun)[-1].steps["latent"], states[-1].steps["latent"])
    words, done, total = sampler.progress(states[-1])
    assert re.fullmatch(r"4 chains drawing, \d\d % of jumps made, step", words)
    assert done == total == 2100


@pytest.mark.usefixtures("metropolis")
def test_its_section_is_read_checked_and_written():
    config = load_config(
        "fit_synthetic", overrides={"fit.sampling.method": "metropolis", "fit.sampling.metropolis.jump": "0.5"}
    )
    assert config.fit.sampling.section.jump == 0.5
    assert load_config({**dict(config)}).fit.sampling == config.fit.sampling
    assert "metropolis:\n      chains: 4" in config.to_yaml()
    assert (
        "jump" in json.loads(printed("schema"))["$defs"]["SamplingSettings"]["properties"]["metropolis"]["properties"]
    )
    wrong = {"fit.sampling.metropolis": {"jumps": 1.0, "draws": 0}}
    with pytest.raises(ConfigError, match=r"unknown key 'fit.sampling.metropolis.jumps'"):
        load_config("fit_synthetic", overrides=wrong)
    with pytest.raises(ConfigError, match=r"fit.sampling.metropolis.draws: expected a number >= 1, got 0"):
        load_config("fit_synthetic", overrides=wrong)


def test_a_name_that_is_not_installed_is_refused():
    with pytest.raises(ConfigError, match=r"fit.sampling.method: expected one of nuts, geovi, got 'metropolis'"):
        load_config("fit_synthetic", overrides={"fit.sampling.method": "metropolis"})
    with pytest.raises(ConfigError, match=r"unknown key 'fit.sampling.metropolis'"):
        load_config("fit_synthetic", overrides={"fit.sampling.metropolis.jump": 1})


def result_of(sampled):
    voxels = np.ones((1, 1, 3))
    cube = Cube(
        flux=voxels,
        mask=np.zeros(voxels.shape, np.int32),
        bins=WavelengthBins(5000.0, 1.0, 3, "linear", "vacuum"),
        footprint=Footprint(1, 1, 0.2),
        variance=voxels,
    )
    cubes = dict.fromkeys(("model", "predictive", "residual"), cube)
    verdict = dataclasses.replace(sample_result().verdict, moved=np.zeros(N_LATENT))
    changed = {"free": FREE, "best": MEAN, "laplace": None, "verdict": verdict, **cubes}
    return dataclasses.replace(sample_result(), **changed, **of_draws(FREE, sampled))


@pytest.mark.usefixtures("metropolis")
def test_its_draws_have_a_table_notes_a_file_and_pictures(tmp_path):
    sampler = sampler_of(chains=2, warmup=20, draws=30)
    sampled = sampler.sampled(run(sampler, mesh_of(1, 1))[-1])
    own = result_of(sampled)
    line = r"Metropolis: 2 chains of 30 draws; \d\d % of jumps made"
    assert re.search(line, own.summary())
    assert repr(own) == "SampleResult(metropolis, 2 numbers free, 2 chains of 30 draws)"
    notes = notes_on_sampling(sampler, FREE, sampled, own.diagnostics)
    assert "raise fit.sampling.metropolis.draws" in str(notes)
    read = SampleResult.read(own.write(tmp_path / "own.h5"))
    np.testing.assert_array_equal(read.statistics["moved"], sampled.statistics["moved"])
    assert read.summary() == own.summary()
    assert set(own.to_arviz().sample_stats) == {"lp", "moved", "step_size"}
    assert {path.name for path in own.plot(tmp_path / "own")} == {
        "own_corner.png",
        "own_trace.png",
        "own_predictive.png",
    }
    with pytest.raises(ValueError, match=r"its attribute 'method' is 'absent', expected one of nuts, geovi, metro"):
        SampleResult.read(Path(absent(own, tmp_path)))


def absent(own, folder):
    """A file whose sampler is not installed."""

    path = own.write(folder / "absent.h5")
    with h5py.File(path, "a") as file:
        file.attrs["method"] = "absent"
    return path
