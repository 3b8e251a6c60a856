"""Models of one's own, and samplers and optimisers of others on `log_posterior`."""

import functools
import re
from pathlib import Path
from typing import ClassVar

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from installed_package import write_dist_info
from small import mock_data, muse

from rubix_like import ConfigError, Galaxy, Stars, load_config, load_galaxy, log_posterior
from rubix_like.extend import AbstractGalaxyModel
from rubix_like.galaxy.galaxy_model import named_leaves

PAGE = Path(__file__).resolve().parents[2] / "docs" / "own-inference.md"
CONFIG = {
    "observation": {"redshift": 0.05, "inclination": 60, "position_angle": 0},
    "instrument": muse(5000, 5200, fov="0.6 arcsec"),
    "engine": {"method": "direct", "precision": "float64", "deposit": "tsc"},
    "devices": {"data": 1},
}
FREE = {
    "galaxy.ring.mass": {"log_normal": ["1e9 Msun", 0.3]},
    "galaxy.velocity": {"normal": [100, 50]},
}


class Ring(eqx.Module):
    mass: float = 1e9
    radius: float = 0.2


class Rotating(AbstractGalaxyModel):
    """Stars on a ring."""

    ring: Ring = Ring()
    velocity: float = 100.0
    count: int = eqx.field(static=True, default=12)
    units: ClassVar = {"ring.mass": "Msun"}

    def draws(self):
        return 2 * np.pi * np.arange(self.count) / self.count

    def sample(self, draws):
        x, y, zero = jnp.cos(draws), jnp.sin(draws), jnp.zeros_like(draws)
        position = self.ring.radius * jnp.stack([x, y, zero], axis=1)
        velocity = self.velocity * jnp.stack([-y, x, zero], axis=1)
        return Galaxy(stars=Stars(position, velocity, zero + self.ring.mass / self.count, zero + 9.5, zero + 0.02))


class Emitting(AbstractGalaxyModel):
    """The same by named parameters."""

    mass: float = 1e9
    velocity: float = 100.0

    def emitters(self, parameters):
        model = Rotating(Ring(parameters["mass"]), parameters["velocity"])
        return model.sample(jnp.asarray(model.draws(), jnp.result_type(parameters["mass"])))


class Misspelt(AbstractGalaxyModel):
    ring: Ring = Ring()
    units: ClassVar = {"ring.mas": "Msun"}


class Fast(AbstractGalaxyModel):
    velocity: float = 100.0
    units: ClassVar = {"velocity": "kmps"}


class Bare(AbstractGalaxyModel):
    """Stars without their galaxy."""

    ring: Ring = Ring()
    velocity: float = 100.0
    units: ClassVar = {"ring.mass": "Msun"}

    def sample(self, draws):
        return Rotating(self.ring, self.velocity).sample(Rotating().draws()).stars


@functools.cache
def data(error=0.01):
    """The cube of the model at other values, without noise; `error`: sigma in units of its mean."""
    blank = mock_data((3, 3, 21))
    bare = log_posterior(CONFIG, blank, FREE, model=Rotating())
    flux = bare.flux(bare.to_unconstrained({"galaxy.ring.mass": 1.3e9, "galaxy.velocity": 130.0}))
    return mock_data((3, 3, 21), flux=flux, variance=np.full(flux.shape, (error * flux.mean()) ** 2))


@functools.cache
def made():
    return log_posterior(CONFIG, data(), FREE, model=Rotating())


def test_the_numbers_of_a_model_are_free_by_name():
    assert list(named_leaves(Rotating())) == ["ring.mass", "ring.radius", "velocity"]
    own = made()
    assert own.units == {"galaxy.ring.mass": "Msun", "galaxy.velocity": ""}
    truth = own.to_unconstrained({"galaxy.ring.mass": 1.3e9, "galaxy.velocity": 130.0})
    value, gradient = own.value_and_gradient(truth)
    at_truth = value - own.log_prior(truth)
    sigma = np.sqrt(data().variance)
    assert at_truth == pytest.approx(-np.sum(np.log(sigma * np.sqrt(2 * np.pi))), rel=1e-9)
    np.testing.assert_allclose(gradient, -truth, atol=1e-5)  # that of the prior alone: the residuals are 0
    steps = [(own(0.1 + 1e-5 * unit) - own(0.1 - 1e-5 * unit)) / 2e-5 for unit in np.eye(2)]
    np.testing.assert_allclose(own.value_and_gradient(np.full(2, 0.1))[1], steps, rtol=1e-4)


def test_flux_is_proportional_to_the_mass():
    own = made()
    one, two = (own.flux(own.to_unconstrained({"galaxy.ring.mass": mass})) for mass in (1e9, 2e9))
    np.testing.assert_allclose(two, 2 * one, rtol=1e-9)


def test_emitters_by_named_parameters_are_the_same_galaxy():
    free = {name.replace("ring.", ""): prior for name, prior in FREE.items()} | {
        "galaxy.mass": {"log_normal": [1e9, 0.3]}
    }
    own = log_posterior(
        CONFIG, data(), {name: free[name] for name in ("galaxy.mass", "galaxy.velocity")}, model=Emitting()
    )
    assert own(np.array([0.2, -0.1])) == pytest.approx(made()(np.array([0.2, -0.1])), rel=1e-9)


READER = '''
from rubix_like.extend import AbstractModelReader
from test_own_inference import Ring, Rotating


class RingReader(AbstractModelReader):
    """A ring of stars."""

    reader: str = "ring"
    mass: float = 1e9

    def model(self):
        return Rotating(Ring(self.mass))
'''


def test_a_configuration_names_a_model_by_its_reader(tmp_path, monkeypatch):
    (tmp_path / "ring_reader.py").write_text(READER)
    write_dist_info(tmp_path, "ring", "[rubix_like.readers]\nring = ring_reader:RingReader\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = load_config(CONFIG | {"galaxy": {"reader": "ring", "mass": 1e9}})
    assert float(load_galaxy(config).stars.initial_mass.sum()) == pytest.approx(1e9)
    own = log_posterior(config, data(), FREE)
    assert own(np.array([0.2, -0.1])) == pytest.approx(made()(np.array([0.2, -0.1])), rel=1e-9)


@pytest.mark.parametrize(
    ("free", "others", "words"),
    [
        ({"galaxy.velocty": {"normal": [0, 1]}}, {}, "unknown parameter 'galaxy.velocty' of the model; did you mean"),
        (FREE, {"galaxy": Rotating().sample(Rotating().draws())}, "a galaxy or a model in its place, got both"),
        ({"galaxy.velocity": {"normal": ["1 kpc", 1]}}, {}, "galaxy.velocity"),
        (FREE, {"model": None}, r"ring\.mass: expected a galaxy with a part 'ring', got galaxy: null; .*as model="),
        (FREE, {"model": Misspelt()}, r"units: unknown parameter 'ring\.mas' of Misspelt; did you mean 'ring\.mass'"),
        (FREE, {"model": Fast()}, "units: unknown unit 'kmps' of 'velocity' of Fast"),
        (FREE, {"model": Bare()}, r"Bare\.sample: expected a Galaxy, got Stars; return rl\.Galaxy\(stars="),
    ],
)
def test_faults_are_told(free, others, words):
    with pytest.raises(ConfigError, match=words):
        log_posterior(CONFIG, data(), free, **{"model": Rotating()} | others)


def test_a_model_is_no_class():
    with pytest.raises(ConfigError, match=r"^model: expected .*got the class Rotating; call it: Rotating\(\)"):
        log_posterior(CONFIG, data(), FREE, model=Rotating)


def test_a_model_has_sample_or_emitters():
    class Nothing(AbstractGalaxyModel):
        mass: float = 1.0

    with pytest.raises(NotImplementedError, match=r"Nothing: expected a method sample\(draws\) or emitters"):
        Nothing().sample(None)


def test_the_model_of_the_page_is_thirty_lines():
    (source,) = re.findall(r"# two_discs.py\n(.*?)```", PAGE.read_text(), re.S)
    body = source[source.index("class Disc") :]
    assert len([line for line in body.splitlines() if line.strip()]) <= 30


@pytest.mark.long
def test_the_model_of_the_page_is_fitted_and_sampled(tmp_path, monkeypatch):
    """Its first three examples, with their assertions."""
    module, fitted, sampled = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)[:3]
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "two_discs.py").write_text(module)
    namespace = {"__name__": "example"}
    exec(fitted, namespace)
    exec(sampled, namespace)
    assert namespace["drawn"].n_chain == 2


@pytest.mark.slow(20)
def test_optimisers_and_samplers_of_others_take_it():
    """optax's end, and NUTS of blackjax: mean and scatter are those of the grid of the posterior itself."""
    own = log_posterior(CONFIG, data(1.0), FREE, model=Rotating())
    axes = np.linspace(-1, 1, 41)
    with jax.numpy_dtype_promotion("standard"):
        optimiser = optax.adam(0.1)
        place, state = jnp.zeros(2), optimiser.init(jnp.zeros(2))
        for _ in range(80):
            gradient = own.value_and_gradient(place)[1]
            step, state = optimiser.update(-gradient, state)
            place = optax.apply_updates(place, step)
        kernel = blackjax.nuts(own, step_size=0.7, inverse_mass_matrix=np.array([0.07, 1.0]) ** 2)
        chain, step = kernel.init(place), jax.jit(kernel.step)
        draws = []
        for key in jax.random.split(jax.random.key(1), 150):
            chain, _ = step(key, chain)
            draws.append(np.asarray(chain.position))
    grid = np.mean(draws, axis=0) + np.stack(np.meshgrid(axes, axes), axis=-1).reshape(-1, 2) * [0.4, 4.5]
    density = np.asarray(jax.jit(jax.vmap(own))(grid))
    weight = np.exp(density - density.max())
    mean = weight @ grid / weight.sum()
    sigma = np.sqrt(weight @ (grid - mean) ** 2 / weight.sum())
    assert (np.abs(np.asarray(place) - mean) < 0.3 * sigma).all()
    assert (np.abs(np.mean(draws, axis=0) - mean) < 0.4 * sigma).all()  # 150 draws
    np.testing.assert_allclose(np.std(draws, axis=0), sigma, rtol=0.3)
