"""Sampling from Python: what comes out, the same on all devices, and a sampling that was ended goes on bit for bit."""

import functools

import jax
import numpy as np
import pytest

from rubix_like import ConfigError, Cube, Pipeline, SampleResult, fit, load_config, load_galaxy, sample

TRUTH = {"observation.velocity_offset": 40.0, "galaxy.stellar_mass": 1.2e10}
CONFIG = {
    "galaxy": {"reader": "synthetic", "n_stars": 60, "draws": "sobol", "stellar_mass": 1e10},
    "observation": {"redshift": 0.05, "inclination": 40, "position_angle": 0, "align": "none"},
    "instrument": {
        "name": "muse",
        "fov": "1 arcsec",
        "psf": None,
        "lsf": None,
        "wavelength": {"start": 5000, "stop": 5400, "step": 10},
    },
    "dust": None,
    "engine": {"method": "direct", "precision": "float64", "deposit": "tsc"},
    "noise": {"signal_to_noise": 20, "seed": 3},
    "fit": {
        "free": {
            "observation.velocity_offset": {"normal": [0, 100]},
            "galaxy.stellar_mass": {"log_normal": [1e10, 0.5]},
        },
        "starts": 1,
        "candidates": 1,
        "sampling": {"nuts": {"chains": 3, "warmup": 60, "draws": 40}, "predictive": 7},
    },
}


@functools.cache
def data() -> Cube:
    config = load_config(CONFIG, overrides={**TRUTH, "devices.data": 1})
    galaxy = load_galaxy(config)
    return Pipeline.from_config(config, galaxy=galaxy)(galaxy)


@functools.cache
def sampled(n_device: int, groups: int) -> SampleResult:
    config = load_config(CONFIG, overrides={"devices.data": n_device})
    return sample(config, data(), sampling={"groups": groups})


def test_the_truth_is_among_the_draws():
    found = sampled(1, 1)
    print(found)
    assert found.latent.shape == (3, 40, 2)
    for name, truth in TRUTH.items():
        assert abs(found.mean[name] - truth) < 4 * found.sigma[name]


@pytest.mark.parametrize(("n_device", "groups"), [(8, 1), (8, 2), (8, 4), (8, 8), (2, 2)])
def test_draws_are_the_same_on_any_devices(n_device, groups):
    one, other = sampled(1, 1), sampled(n_device, groups)
    np.testing.assert_array_equal(one.keys, other.keys)
    np.testing.assert_allclose(one.latent, other.latent, rtol=0, atol=1e-9)
