"""The model of a fit: the cube that a pipeline gives for the same values, for many starts at once."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from free_numbers import parameter
from problems import posed

from rubix_like import Pipeline, load_config, load_galaxy, make_mesh
from rubix_like.inference.checkpoint import fingerprint_of

FREE = {
    "observation.inclination": {"uniform": ["20 deg", "80 deg"]},
    "observation.offset": {"normal": [0, "0.3 arcsec"]},
    "instrument.psf.fwhm": {"uniform": [0.5, 1.5]},
    "dust.a_v": {"uniform": [0, 1]},
    "galaxy.rotation_velocity": {"uniform": [50, 300]},
    "galaxy.stellar_mass": {"log_normal": ["1e10 Msun", 0.3]},
}
VALUES = {
    "observation.inclination": 40.0,
    "observation.offset": jnp.asarray([0.2, -0.1]),
    "instrument.psf.fwhm": 0.9,
    "dust.a_v": 0.4,
    "galaxy.rotation_velocity": 120.0,
    "galaxy.stellar_mass": 2e10,
}


@functools.cache
def config():
    return load_config(
        "quickstart",
        overrides={
            "galaxy.n_stars": 300,
            "instrument.fov": "2 arcsec",
            "instrument.wavelength.stop": "4800 Angstrom",
            "instrument.psf.fwhm": "0.8 arcsec",
            "engine.deposit": "tsc",
            "engine.method": "direct",
            "engine.precision": "float64",
            "engine.velocity_range": "1000 km/s",
            "observation.align": "none",
            "dust": {"a_v": 0.1, "curve": "calzetti"},
            "noise": {"signal_to_noise": 30, "keep_truth": True},
        },
    )


@functools.cache
def mock():
    """The cube of other values than the configuration's."""
    changed = load_config(config(), overrides={name: np.asarray(value).tolist() for name, value in VALUES.items()})
    return Pipeline.from_config(changed, mesh=make_mesh(1))(load_galaxy(changed))


@functools.cache
def problem(n_sample=1, n_devices=1):
    return posed(n_sample, load_config(config(), overrides={"devices.data": n_devices}), mock(), FREE)


def test_the_model_is_the_noiseless_cube_of_these_values():
    posterior, expected = problem().posterior, mock().truth
    model = jax.jit(lambda posterior, latent: posterior.model(latent))(posterior, posterior.free.latent(VALUES))
    # the margin painted for the widest PSF of the prior holds light that the narrower margin gives back
    np.testing.assert_allclose(model, expected, rtol=2e-3, atol=2e-3 * float(jnp.max(expected)))


def test_starts_at_once_are_each_the_model_of_one():
    alone = problem().posterior
    latents = alone.free.draw(3, 4)
    one = jax.jit(jax.value_and_grad(lambda latent, posterior: posterior.loss(latent)))
    expected = [one(latent, alone) for latent in latents]
    together = problem(4, 8).posterior
    several = jax.jit(
        jax.vmap(
            jax.value_and_grad(lambda latent, posterior: posterior.loss(latent)),
            in_axes=(0, None),
            spmd_axis_name="sample",
        )
    )
    losses, gradients = several(latents, together)
    np.testing.assert_allclose(losses, [float(loss) for loss, _ in expected], rtol=1e-12)
    np.testing.assert_allclose(gradients, np.stack([gradient for _, gradient in expected]), rtol=1e-9, atol=1e-9)


def test_stars_of_a_given_galaxy_take_their_own_values():
    galaxy = load_galaxy(config())
    values = {"stars.initial_mass": jnp.arange(300.0), "stars.velocity": jnp.ones((300, 3))}
    free = {"stars.initial_mass": {"normal": ["galaxy", 1e5]}, "stars.velocity": {"normal": ["galaxy", 50]}}
    found = posed(1, config(), mock(), free, galaxy=galaxy)
    changed = found.posterior.forward.source.galaxy(values).stars
    np.testing.assert_array_equal(changed.initial_mass, np.arange(300.0))
    np.testing.assert_array_equal(changed.velocity, 1.0)
    assert eqx.tree_equal(changed.position, galaxy.stars.position)


def test_windows_cut_the_data_and_choose_its_bins():
    settings = {"windows": [[4760, 4770], [4780, "479 nm"]], "exclude": [[4783, 4784]]}
    found = posed(1, config(), mock(), FREE, **settings)
    cut, chosen = found.observed, (np.asarray(found.posterior.likelihood.inverse_sigma) > 0).any(axis=(0, 1))
    assert cut.wavelength[0] >= 4760
    assert cut.wavelength[-1] <= 4790
    kept = cut.wavelength[chosen]
    assert not np.any((kept > 4770) & (kept < 4780))
    assert not np.any((kept >= 4783) & (kept <= 4784))
    assert chosen.sum() == len(kept) > 10


def test_fits_with_other_priors_or_starts_are_others():
    """Also where the numbers of the priors are the same."""
    fit = problem()
    same = fingerprint_of(fit)
    started = fingerprint_of(dataclasses.replace(fit, start=jnp.zeros(fit.posterior.free.n_latent)))
    assert {name for name in same if same[name] != started[name]} == {"start"}
    psf = fit.posterior.free.parameters[2].prior
    name, other = "instrument.psf.fwhm", {"log_uniform": [psf.low, psf.high]}
    posterior = eqx.tree_at(lambda p: p.free.parameters[2].prior, fit.posterior, parameter(name, other).prior)
    changed = fingerprint_of(dataclasses.replace(fit, posterior=posterior))
    assert {name for name in same if same[name] != changed[name]} == {"free parameters or priors"}


def test_a_mesh_for_starts_needs_devices_that_they_divide():
    with pytest.raises(ValueError, match="divides 8 devices"):
        problem(3, 8)
