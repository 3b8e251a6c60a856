"""Calibration of posteriors: the rank of the truth among draws, for mocks whose true values are drawn from the prior.

    python tests/benchmarks/posterior_calibration.py [--mocks 50] [--output posterior_calibration.json]

6 x 6 spaxels of 0.5", 60 bins of 4 Angstrom about H and K, a PSF of 1.5", 400 stars, S/N = 30 per voxel at the median
wavelength of the brightest spaxel, 64-bit numbers; mocks are made with the model's own base draws. Where a posterior is
right, the rank of the true value among independent draws from it is uniform (Talts et al. 2018, arXiv:1804.06788), and
so is that of every other quantity, among them the posterior density itself (Modrak et al. 2023, arXiv:2211.02383),
which is what a posterior that is too narrow or too wide in all directions fails in. `whitened` are the latents in
coordinates in which the mock's Laplace approximation is N(0, 1), so that the ranks of one mock are nearly independent
of one another, and may be pooled: `all`. Everything is compiled once; mocks that are in the file are not done again.
"""

import argparse
import json
import os
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from fit_calibration import FREE as ALL
from fit_calibration import LEVELS, best_of, draw_mock, laplace_at, loss_of, make_problem

from rubix_like import load_config
from rubix_like.extend import import_optional
from rubix_like.inference.posterior.problem import with_rows
from rubix_like.inference.samplers.samplers import make_sampler

FREE = {
    name: ALL[name]
    for name in (
        "observation.inclination",
        "observation.position_angle",
        "observation.velocity_offset",
        "galaxy.stellar_mass",
        "galaxy.disc_scale_length",
        "galaxy.rotation_velocity",
    )
}
SMALL = {"fov": "3 arcsec", "psf": {"fwhm": "1.5 arcsec"}, "wavelength": {"start": 4100, "step": 4, "stop": 4336}}
METHODS = {
    "nuts": {"chains": 2, "warmup": 100, "draws": 200},
    "geovi": {"samples": 16, "draws": 198},
}
N_RANKED = 99
"""Independent draws among which the truth has a rank."""


def make(n_stars=400, free=FREE, instrument=SMALL, starts=2):
    """The problem whose data are to be replaced, in rows of devices as samplers want them."""
    return with_rows(make_problem("sobol", n_stars, instrument, starts=starts, free=free, precision="float64"), 1)


def settings_of(method, seed, **chosen):
    """Of a sampler."""
    section = "nuts" if method == "nuts" else "variational"
    sampling = {"method": method, "seed": seed, section: METHODS[method] | chosen}
    return load_config("quickstart", overrides={"fit": {"free": FREE, "sampling": sampling}}).fit.sampling


def sampler_of(method, seed, **chosen):
    """A sampler with these settings."""
    return make_sampler(settings_of(method, seed, **chosen))


def run(problem, method, best, approximation, seed=1, **chosen):
    """(draws of the latents (chain, draw, latent), losses (chain, draw), what there is to know of the run)."""
    sampler = sampler_of(method, seed, **chosen)
    began = time.process_time()
    *_, last = sampler.run(problem.posterior, problem.pipeline.mesh, best, approximation, None)
    sampled = sampler.sampled(last)
    told = {"processor": time.process_time() - began, "notes": list(sampled.notes)}
    if method == "nuts":
        told |= of_chains(sampled, sum(int(steps) for steps in last.steps["n_leapfrog"].sum(axis=1)))
    else:
        told |= {"iterations": last.n_iteration, "converged": last.converged, "error": float(last.error.max())}
    return sampled.latent, sampled.statistics["loss"], told


def of_chains(sampled, n_gradient):
    """R-hat (largest of all latents), independent draws (fewest), divergences, gradients."""
    arviz = import_optional("arviz", "posterior_calibration")
    columns = np.moveaxis(sampled.latent, 2, 0)
    return {
        "r_hat": max(float(arviz.rhat(own)) for own in columns),
        "ess_bulk": [float(arviz.ess(own, method="bulk")) for own in columns],
        "ess_tail": min(float(arviz.ess(own, method="tail")) for own in columns),
        "divergences": int(sampled.statistics["diverging"].sum()),
        "gradients": n_gradient,
    }


def independent(method, latent, loss):
    """The draws that are ranked: evenly spaced ones of the chains, or one of each pair of mirrored samples."""
    flat, losses = latent.reshape(-1, latent.shape[2]), loss.reshape(-1)
    chosen = np.arange(0, len(flat), 2)[:N_RANKED]
    if method == "nuts":
        chosen = np.linspace(0, len(flat) - 1, N_RANKED).round().astype(int)
    return flat[chosen], losses[chosen]


def ranks(draws, truth, noise):
    """Of the truth, between 0 and 1: uniform where both are of one distribution; `noise` spreads them out evenly."""
    return (np.sum(draws < truth, axis=0) + noise) / (len(draws) + 1)


def sample_mock(problem, number, methods):
    """Ranks of the truth among the draws of every method, and in Laplace's approximation; how the samplers went."""
    truth, own = draw_mock(problem, number, other=False)
    best, best_loss, converged = best_of(own)
    approximation = laplace_at(own, best)
    whiten = np.linalg.inv(np.linalg.cholesky(approximation.covariance))
    true_loss = float(loss_of(own.posterior, jnp.asarray(truth)))
    score, white = (truth - best) / approximation.sigma, whiten @ (truth - best)
    normal = scipy.stats.norm.cdf(np.concatenate([score, white]))
    joint = scipy.stats.chi2(len(truth)).cdf(2 * (true_loss - best_loss))
    found = {
        "number": number,
        "truth": truth.tolist(),
        "converged": converged,
        "sigma": approximation.sigma.tolist(),
        "best": best.tolist(),
        "ranks": {"laplace": [*normal, joint]},
        "runs": {},
    }
    noise = np.random.default_rng([13, number]).random(2 * len(truth) + 1)
    for method in methods:
        latent, loss, told = run(own, method, best, approximation, seed=number)
        draws, losses = independent(method, latent, loss)
        all_of = np.column_stack([draws, (draws - best) @ whiten.T, losses])
        found["ranks"][method] = ranks(all_of, np.concatenate([truth, white, [true_loss]]), noise).tolist()
        flat = latent.reshape(-1, latent.shape[2])
        found["runs"][method] = told | {"mean": flat.mean(axis=0).tolist(), "sigma": flat.std(axis=0).tolist()}
    return found


def chi_square(ranks):
    """p of equal numbers of ranks in bins of about 15."""
    count, _ = np.histogram(ranks, bins=max(5, len(ranks) // 15), range=(0, 1))
    return float(scipy.stats.chisquare(count).pvalue)


def summary(labels, mocks, method):
    """Of every parameter, of all whitened ones together, and of the posterior density: p of uniform ranks, coverage."""
    own = np.array([mock["ranks"][method] for mock in mocks])
    count = len(labels)
    columns = [*zip(labels, own[:, :count].T, strict=True)]
    columns += [("all, whitened", own[:, count : 2 * count].reshape(-1)), ("posterior density", own[:, -1])]
    return [
        {
            "parameter": label,
            "p_ks": float(scipy.stats.kstest(rank, "uniform").pvalue),
            "p_chi2": chi_square(rank),
            "coverage": [float(np.mean(np.abs(rank - 0.5) < level / 2)) for level in LEVELS],
        }
        for label, rank in columns
    ]


def table(lines):
    """The summary in Markdown."""
    head = "| | p (KS) | p (chi^2) | in 68 % | in 95 % |\n|---|---|---|---|---|"
    body = [
        f"| {own['parameter']} | {own['p_ks']:.2g} | {own['p_chi2']:.2g} "
        f"| {own['coverage'][0]:.0%} | {own['coverage'][1]:.0%} |"
        for own in lines
    ]
    return "\n".join([head, *body])


def told(mocks):
    """How the samplers went, over all mocks."""
    lines = [f"{sum(mock['converged'] for mock in mocks)} of {len(mocks)} best fits converged"]
    for method in mocks[0]["runs"]:
        runs = [mock["runs"][method] for mock in mocks]
        words = f"{method}: {np.median([run['processor'] for run in runs]):.1f} s of processor time a mock"
        if method == "nuts":
            fewest = [min(run["ess_bulk"]) for run in runs]
            words += (
                f", R-hat at most {max(run['r_hat'] for run in runs):.3f}, ESS at least {min(fewest):.0f} "
                f"(median {np.median(fewest):.0f}), {sum(run['divergences'] for run in runs)} divergences, "
                f"{np.median([run['gradients'] for run in runs]):.0f} gradients"
            )
        else:
            words += (
                f", {sum(run['converged'] for run in runs)} converged, in {max(run['iterations'] for run in runs)} "
                f"iterations at most, equations missed by {max(run['error'] for run in runs):.1g} sigma at most"
            )
        lines.append(words)
    return "\n".join(lines)


def main():
    """Sample, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mocks", type=int, default=50)
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=tuple(METHODS))
    parser.add_argument("--output", type=Path, default=Path("posterior_calibration.json"))
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    problem = make()
    labels = problem.posterior.free.labels
    mocks = json.loads(given.output.read_text())["mocks"] if given.output.exists() else []
    for number in range(len(mocks), given.mocks):
        began = time.process_time()
        mocks.append(sample_mock(problem, number, given.methods))
        found = {method: summary(labels, mocks, method) for method in mocks[0]["ranks"]}
        new = given.output.with_suffix(".new")
        new.write_text(json.dumps({"labels": labels, "summary": found, "mocks": mocks}))
        os.replace(new, given.output)
        print(f"{number + 1} of {given.mocks}, {time.process_time() - began:.0f} s of processor time", flush=True)
    for method in mocks[0]["ranks"]:
        print(f"\n{method}\n\n{table(summary(labels, mocks, method))}")
    print(f"\n{told(mocks)}")


if __name__ == "__main__":
    main()
