"""Calibration of fits: mocks of synthetic galaxies drawn from the prior, fitted; how often intervals hold the truth.

    python tests/benchmarks/fit_calibration.py [--mocks 100] [--data same] [--draws sobol] [--output calibration.json]

10 x 10 spaxels of 0.5", 300 bins, a PSF of about 2.5", 5000 stars, S/N = 30 per voxel at the median wavelength of the
brightest spaxel; every true value is drawn from its prior. `--data same`: mocks made with the model's own base draws;
the rank of the truth in the fit's normal distribution of the latents, Phi((truth - best) / sigma), is then uniform if
best values and covariance are right. `--data other`: every mock has base draws of its own, and is fitted with
`fit.model_error`; `ignored` is the same fit without it. A table goes to the screen, everything into the JSON file.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

from rubix_like import Pipeline, load_config, load_galaxy, make_mesh
from rubix_like.extend import Progress, observed_from
from rubix_like.inference.checks.uncertainties import laplace
from rubix_like.inference.posing import pose
from rubix_like.inference.posterior.model_error import with_model_error
from rubix_like.inference.request import read_request
from rubix_like.inference.search.search import search

FREE = {
    "observation.inclination": {"uniform": ["30 deg", "70 deg"]},
    "observation.position_angle": {"uniform": ["10 deg", "80 deg"]},
    "observation.offset": {"normal": [0, "0.2 arcsec"]},
    "observation.velocity_offset": {"normal": [0, "30 km/s"]},
    "instrument.psf.fwhm": {"uniform": ["2.3 arcsec", "2.7 arcsec"]},
    "dust.a_v": {"uniform": [0, 1]},
    "galaxy.stellar_mass": {"log_normal": ["1e10 Msun", 0.3]},
    "galaxy.disc_scale_length": {"log_uniform": ["0.5 kpc", "1.5 kpc"]},
    "galaxy.rotation_velocity": {"uniform": ["80 km/s", "200 km/s"]},
    "galaxy.disc_log_age": {"uniform": [9.3, 9.9]},
}
MANGA = {"fov": "5 arcsec", "wavelength": {"start": 3800, "step": 3, "stop": 4697}}
LEVELS = (0.6827, 0.95)
MODEL_SEED, DATA_SEED = 1, 50000


def make_problem(
    draws="sobol",
    n_stars=5000,
    instrument=None,
    ssp="popstar",
    n_model_error=64,
    starts=2,
    free=FREE,
    devices=1,
    settings=None,
    **engine,
):
    """A posterior whose data are to be replaced by mocks: everything is compiled once for all of them.

    `settings`: others of the fit's.
    """
    instrument = instrument or MANGA
    grid = {"sampling": "linear", "medium": "vacuum", **instrument["wavelength"]}
    config = load_config(
        "quickstart",
        overrides={
            "galaxy": {"reader": "synthetic", "n_stars": n_stars, "seed": MODEL_SEED, "draws": draws},
            "galaxy.disc_scale_length": 1.0,
            "galaxy.bulge_dispersion": 60,
            "ssp.library": ssp,
            "instrument": {"name": "manga", "aperture": None, **instrument, "wavelength": grid},
            "observation.align": "none",
            "dust": {"a_v": 0.3, "curve": "calzetti"},
            "engine": {"method": "basis", "tolerance": 1e-2, "deposit": "tsc", "velocity_range": 450, **engine},
            "noise": {"signal_to_noise": 30},
            "devices.data": devices,
        },
    )
    observed = observed_from(Pipeline.from_config(config, mesh=make_mesh(1))(load_galaxy(config)))
    model_error = None if "polynomial" in (settings or {}) else {"draws": n_model_error}
    own = {"starts_from": "prior", "model_error": model_error, **(settings or {})}
    request = read_request(config, observed, free, None, {"starts": starts, **own})
    return pose(request, None, Progress())


@jax.jit
def model_of(posterior, latent):
    """Flux."""
    return posterior.model(latent)


@jax.jit
def loss_of(posterior, latent):
    """Half chi^2, that of the prior included."""
    return posterior.loss(latent)


def draw_mock(problem, number, other, signal_to_noise=30.0):
    """(true latents, the problem with the mock's data); `other`: made with base draws of its own."""
    generator = np.random.default_rng([11, number])
    posterior = problem.posterior
    truth = generator.standard_normal(posterior.free.n_latent)
    maker = posterior
    if other:
        draws = posterior.forward.source.draws.others(DATA_SEED + number)
        maker = eqx.tree_at(lambda p: p.forward.source.draws, posterior, draws)
    flux = np.asarray(model_of(maker, jnp.asarray(truth)), np.float64)
    brightest = np.unravel_index(flux.mean(axis=2).argmax(), flux.shape[:2])
    sigma = np.median(flux[brightest]) / signal_to_noise
    data = jnp.asarray(flux + sigma * generator.standard_normal(flux.shape))
    leaves = (data, jnp.full_like(data, 1 / sigma))
    posterior = eqx.tree_at(lambda p: (p.likelihood.flux, p.likelihood.inverse_sigma), posterior, leaves)
    model_error = problem.settings.model_error
    if model_error is not None:
        model_error = model_error.model_copy(update={"seed": 10**6 + 1000 * number})
    settings = problem.settings.model_copy(update={"seed": number, "model_error": model_error})
    return truth, dataclasses.replace(problem, posterior=posterior, settings=settings)


def best_of(problem):
    """(latents, loss, whether it has converged) of the best start."""
    *_, last = search(problem)
    return last.latent[last.best], float(last.loss[last.best]), bool(last.converged[last.best])


def laplace_at(problem, latent):
    """Laplace's approximation of the posterior about these latents."""
    return laplace(problem.posterior, jnp.asarray(latent))


def score(truth, latent, covariance):
    """(truth - best) / sigma of every latent."""
    return (truth - latent) / np.sqrt(np.diag(covariance))


def fit_mock(problem, number, other):
    """Scores of one mock, without and with model error; sigma of the latents; how the search went."""
    truth, own = draw_mock(problem, number, other)
    latent, loss, converged = best_of(own)
    plain = laplace_at(own, latent)
    found = {
        "truth": truth,
        "best": latent,
        "sigma": plain.sigma,
        "ignored" if other else "same": score(truth, latent, plain.covariance),
        "converged": converged,
        "below": loss <= float(loss_of(own.posterior, jnp.asarray(truth))) + 0.01,
    }
    if other:
        changed = with_model_error(own, jnp.asarray(latent))
        latent, _, converged = best_of(changed)
        approximation = laplace_at(changed, latent)
        precision = np.linalg.inv(approximation.information + np.eye(len(latent)))
        found |= {
            "best": latent,
            "sigma": approximation.sigma,
            "weights": score(truth, latent, precision),
            "other": score(truth, latent, approximation.covariance),
            "converged": converged,
        }
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in found.items()}


def summary(labels, rows, kind):
    """Of every parameter: p of uniform ranks (Kolmogorov-Smirnov), coverage of the intervals; the last row: pooled."""
    scores = np.array([row[kind] for row in rows])
    sigma = np.median([row["sigma"] for row in rows], axis=0)
    columns = [(label, sigma[number], scores[:, number]) for number, label in enumerate(labels)]
    return [
        {
            "parameter": label,
            "sigma": float(width),
            "p": float(scipy.stats.kstest(scipy.stats.norm.cdf(own), "uniform").pvalue),
            "mean": float(own.mean()),
            "scatter": float(own.std()),
            "coverage": [float(np.mean(np.abs(own) < scipy.stats.norm.ppf(0.5 + level / 2))) for level in LEVELS],
        }
        for label, width, own in [*columns, ("all", np.nan, scores.reshape(-1))]
    ]


def table(lines):
    """The summary in Markdown."""
    head = "| parameter | sigma of the latent | p (ranks) | scatter | in 68 % | in 95 % |\n|---|---|---|---|---|---|"
    body = [
        f"| `{own['parameter']}` | {own['sigma']:.3f} | {own['p']:.2f} | {own['scatter']:.2f} "
        f"| {own['coverage'][0]:.0%} | {own['coverage'][1]:.0%} |"
        for own in lines
    ]
    return "\n".join([head, *body])


def main():
    """Fit, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mocks", type=int, default=100)
    parser.add_argument("--data", choices=("same", "other"), default="same")
    parser.add_argument("--draws", choices=("sobol", "random"), default="sobol")
    parser.add_argument("--model-error-draws", type=int, default=64)
    parser.add_argument("--ssp", default="popstar")
    parser.add_argument("--output", type=Path, default=Path("calibration.json"))
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    problem = make_problem(given.draws, ssp=given.ssp, n_model_error=given.model_error_draws)
    labels, rows, begin = problem.posterior.free.labels, [], time.perf_counter()
    for number in range(given.mocks):
        rows.append(fit_mock(problem, number, given.data == "other"))
        seconds = time.perf_counter() - begin
        print(f"{number + 1} of {given.mocks}, {seconds:.0f} s, converged: {rows[-1]['converged']}", flush=True)
        kinds = ("ignored", "weights", "other") if given.data == "other" else ("same",)
        found = {kind: summary(labels, rows, kind) for kind in kinds}
        given.output.write_text(json.dumps({"labels": labels, "summary": found, "mocks": rows}))
    for kind, lines in found.items():
        print(f"\n{kind}\n{table(lines)}")
    below = sum(row["below"] for row in rows)
    print(f"\n{sum(row['converged'] for row in rows)} of {len(rows)} converged; {below} with a loss below the truth's")


if __name__ == "__main__":
    main()
