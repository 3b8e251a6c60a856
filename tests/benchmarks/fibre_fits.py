"""Whether errors of fits to cubes of fibres are right: with the covariance (on the fibres' spectra, or of spaxels),
and without.

    python tests/benchmarks/fibre_fits.py --mocks 100

A disc is seen through 19 fibres of MaNGA in three exposures. Its inclination, mass and scale length are fitted
to many draws of noise: to the spectra of the fibres, to the spaxels with their covariance, and to the spaxels as if
their errors were independent.
Each fit is a few Gauss-Newton steps from the truth, its errors those of Laplace's approximation; all mocks go through
one compiled program. Printed are the spread of (value - truth) / sigma, 1 for right errors, and the share of truths
within one and two sigma, 68 and 95 per cent for right ones.
"""

import argparse
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import rubix_like as rl

TRUTH = {
    "observation.inclination": 50.0,
    "galaxy.disc.mass": 1e10,
    "galaxy.disc.light.scale_length": 0.8,
}

_STEPS = 3


def configuration(n_wave: int = 10) -> dict[str, Any]:
    """A disc behind 19 fibres."""
    return {
        "galaxy": {
            "reader": "components",
            "points": 600,
            "components": [
                {
                    "name": "disc",
                    "mass": "1e10 Msun",
                    "light": {"profile": "exponential", "scale_length": "0.8 kpc"},
                    "dispersion": 45,
                    "population": {"log_age": 9.5, "metallicity": 0.02},
                }
            ],
        },
        "observation": {"redshift": 0.02, "inclination": 50, "position_angle": 120},
        "instrument": {
            "name": "manga_fibres",
            "fibres": "manga-19",
            "fov": "12.5 arcsec",
            "lsf": None,
            "wavelength": {"start": 5000, "stop": 5000 * 10 ** (4e-4 * (n_wave - 1)), "step": 4e-4, "sampling": "log"},
        },
        "pipeline": "stellar",
        "noise": {"signal_to_noise": 25},
        "devices": {"data": 1},
        "fit": {
            "free": {
                "observation.inclination": {"uniform": [20, 80]},
                "galaxy.disc.mass": {"log_normal": [1e10, 0.3]},
                "galaxy.disc.light.scale_length": {"log_uniform": [0.3, 3]},
            },
            "starts": 1,
        },
    }


def posteriors(cube: rl.Cube, config: dict[str, Any]) -> dict[str, Any]:
    """The posteriors of fits to the fibres and to the spaxels, with their covariance and without."""
    made = {
        "fibres": rl.log_posterior(config, {"manga": {"fibres": cube}}),
        "covariance": rl.log_posterior(config, cube, likelihood={"covariance": "data"}),
        "spaxels": rl.log_posterior(config, cube, likelihood={"covariance": None}),
    }
    return {name: own.problem.posterior for name, own in made.items()}


def pulls(posterior: Any, noise: np.ndarray) -> np.ndarray:
    """(value - truth) / sigma of each latent, for data that are the model at the truth and a draw of noise."""
    free = posterior.free
    truth = jnp.asarray(np.ravel(free.latent(TRUTH)))
    flux = posterior.model(truth).astype(posterior.likelihood.flux.dtype)

    def one(own: jax.Array) -> jax.Array:
        likelihood = dataclasses.replace(posterior.likelihood, flux=flux + own)
        fitted = dataclasses.replace(posterior, likelihood=likelihood)

        def flat(latent: jax.Array) -> jax.Array:
            return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(fitted.residuals(latent))])

        def step(latent: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            rest, along = jax.linearize(flat, latent)
            slope = jax.vmap(along)(jnp.eye(latent.size, dtype=latent.dtype)).T
            covariance = jnp.linalg.inv(slope.T @ slope)
            return latent - covariance @ (slope.T @ rest), jnp.sqrt(jnp.diag(covariance))

        best, sigma = jax.lax.scan(step, truth, None, length=_STEPS)
        return (best - truth) / sigma[-1]

    return np.asarray(jax.jit(lambda draws: jax.lax.map(one, draws))(jnp.asarray(noise)))


def first_step_pulls(posterior: Any, noise: np.ndarray) -> np.ndarray:
    """The same after the first step alone, from one linearisation of the model at the truth."""
    truth = jnp.asarray(np.ravel(posterior.free.latent(TRUTH)))
    flux = posterior.model(truth).astype(posterior.likelihood.flux.dtype)
    likelihood = dataclasses.replace(posterior.likelihood, flux=flux)
    at_truth = dataclasses.replace(posterior, likelihood=likelihood)

    def flat(latent: jax.Array) -> jax.Array:
        return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(at_truth.residuals(latent))])

    both = jax.jit(lambda latent: (jax.jacfwd(flat)(latent), flat(latent)))
    slope, rest = (np.asarray(own) for own in both(truth))
    scaled, errors = jnp.asarray(noise * np.asarray(likelihood.inverse_sigma)), likelihood.errors
    whitened = scaled if errors is None else jax.vmap(lambda own: errors.residuals(own, own, own, own))(scaled)
    voxels = np.asarray(whitened).reshape(len(noise), -1)
    all_rest = np.concatenate([voxels, np.broadcast_to(rest[voxels.shape[1] :], (len(noise), truth.size))], axis=1)
    covariance = np.linalg.inv(slope.T @ slope)
    return -(all_rest @ slope) @ covariance / np.sqrt(np.diag(covariance))


def draws(cube: rl.Cube, n_mock: int, seed: int) -> dict[str, np.ndarray]:
    """Noise of the fibres as the data of each fit have it: (mock, 1, 1, voxel) and (mock, y, x, wave)."""
    variance = np.asarray(cube.fibres.variance, np.float64)
    fibres = np.random.default_rng(seed).standard_normal((n_mock, *variance.shape)) * np.sqrt(variance)
    matrix = cube.fibres.weights.matrix()
    spaxels = np.stack([(matrix @ own).reshape(cube.shape) for own in fibres])
    return {"fibres": fibres.reshape(n_mock, 1, 1, -1), "covariance": spaxels, "spaxels": spaxels}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mocks", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    config = configuration()
    cube = rl.run(config, quiet=True)
    noise = draws(cube, arguments.mocks, arguments.seed)
    print("| fit | parameter | spread of pulls | within 1 sigma | within 2 sigma |\n|---|---|---|---|---|")
    for name, posterior in posteriors(cube, config).items():
        found = pulls(posterior, noise[name])
        for label, own in zip(posterior.free.labels, found.T, strict=True):
            inside = [np.mean(np.abs(own) < limit) for limit in (1, 2)]
            print(f"| {name} | {label} | {own.std():.2f} | {inside[0]:.0%} | {inside[1]:.0%} |", flush=True)


if __name__ == "__main__":
    main()
