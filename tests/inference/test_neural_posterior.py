"""The example docs/examples/neural_posterior.py, smaller: its ranks are uniform, and its posterior knows something."""

import importlib.util
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "neural_posterior.py"

CONFIG = {
    "galaxy": {"reader": "synthetic", "n_stars": 300},
    "observation": {"redshift": 0.05, "inclination": 40, "position_angle": 0, "align": "none"},
    "instrument": {
        "name": "muse",
        "fov": "6 arcsec",
        "pixel_scale": "1 arcsec",
        "psf": None,
        "lsf": None,
        "wavelength": {"start": 4800, "stop": 5190, "step": 10},
    },
    "dust": {"a_v": 0.3},
    "noise": {"signal_to_noise": 20},
    "engine": {"method": "basis", "velocity_range": "1000 km/s"},
    "devices": {"data": 1},
}
PRIORS = {"observation.inclination": {"uniform": [0, 90]}, "dust.a_v": {"uniform": [0, 1]}}


@pytest.fixture(scope="module")
def example():
    """With the rules of promotion that a user has."""
    spec = importlib.util.spec_from_file_location("neural_posterior", EXAMPLE)
    found = importlib.util.module_from_spec(spec)
    sys.modules["neural_posterior"] = found  # where its classes look for themselves
    spec.loader.exec_module(found)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield found


def test_the_flow_is_a_density(example):
    """From (0, 1) onto itself and back again; its slope is the one whose integral it is."""
    raw = 2 * jax.random.normal(jax.random.key(0), (3 * example.N_BIN + 1,))
    x = np.linspace(0.0, 1.0, 4001)
    y, log_slope = (np.asarray(own) for own in jax.jit(jax.vmap(lambda x: example.spline(raw, x, inverse=False)))(x))
    assert y[[0, -1]] == pytest.approx([0, 1], abs=1e-6)
    assert np.all(np.diff(y) > 0)
    integral = scipy.integrate.cumulative_trapezoid(np.exp(log_slope), x, initial=0)
    np.testing.assert_allclose(integral, y, atol=1e-3)
    back, _ = jax.jit(jax.vmap(lambda y: example.spline(raw, y, inverse=True)))(jnp.asarray(y))
    np.testing.assert_allclose(back, x, atol=2e-5)


@pytest.mark.long
def test_a_small_posterior(example):
    """6 x 6 spaxels, 40 bins, two parameters: ranks of 300 fresh cubes, and errors of the mean against the prior's."""
    with jax.enable_x64(False):
        examples, compression = example.simulate_examples(CONFIG, PRIORS, 2400, 1, None, n_coefficient=6)
        posterior, losses = example.train(examples, epochs=16, rate=2e-3)
        fresh, _ = example.simulate_examples(CONFIG, PRIORS, 300, 2, compression)
        found = example.check(posterior, fresh, n_draw=200)
    assert losses[-1, 1] < losses[0, 1] - 0.5
    assert np.all(found.p_values > 1e-3), found.p_values
    assert np.all(found.errors < [0.6, 0.4]), found.errors
