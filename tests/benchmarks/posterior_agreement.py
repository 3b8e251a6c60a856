"""One mock, one posterior, three ways: NUTS, geoVI and Laplace, in units of what NUTS finds; and their times.

    python tests/benchmarks/posterior_agreement.py [--cases round curved] [--stars 2000] [--output agreement.json]

`round`: 10 x 10 spaxels of 0.5", 300 bins, S/N 30, ten numbers that the data determine. `curved`: 6 x 6 spaxels, 60
bins, with dust, mass and age, which do nearly the same to so short a spectrum, so that the posterior is a bent valley
that ends where there is no dust. "Off" is the mean less that of NUTS, "wide" the standard deviation over that of NUTS.
Processor times are without compilation; `per independent draw`: over the fewest independent draws of all latents.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path

import jax
import numpy as np
from fit_calibration import FREE as ALL
from fit_calibration import MANGA, best_of, draw_mock, laplace_at
from posterior_calibration import SMALL, make, of_chains, sampler_of

CURVED = ("dust.a_v", "galaxy.stellar_mass", "galaxy.disc_log_age", "observation.velocity_offset")
CASES = {
    "round": (MANGA, {name: prior for name, prior in ALL.items() if name != "dust.a_v"}),
    "curved": (SMALL, {name: ALL[name] for name in CURVED}),
}
NUTS = {
    "round": {"chains": 4, "warmup": 150, "draws": 150},
    "curved": {"chains": 4, "warmup": 300, "draws": 600, "target_acceptance": 0.95},
}
VARIATIONAL = {"samples": 16, "draws": 800}


@dataclasses.dataclass(frozen=True)
class Found:
    """Mean and standard deviation of the latents, their Monte Carlo errors, independent draws, processor time."""

    mean: np.ndarray
    sigma: np.ndarray
    mean_error: np.ndarray
    sigma_error: np.ndarray
    independent: float
    processor: float
    more: dict


def by_laplace(problem):
    """(its mean and standard deviation, the approximation, the best fit); timed at the second call."""
    best_of(problem)
    began = time.process_time()
    best, loss, _ = best_of(problem)
    approximation = laplace_at(problem, best)
    seconds = time.process_time() - began
    none, more = np.zeros(len(best)), {"mean loss": loss + len(best) / 2}
    return Found(best, approximation.sigma, none, none, np.inf, seconds, more), approximation, best


def by_nuts(problem, best, approximation, **chosen):
    """Chains; the first two groups of steps, in which everything is compiled, are not timed."""
    sampler = sampler_of("nuts", 1, **chosen)
    began = []
    for state in sampler.run(problem.posterior, problem.pipeline.mesh, best, approximation, None):
        last = state
        began.append(time.process_time())
    sampled = sampler.sampled(last)
    more = of_chains(sampled, int(last.steps["n_leapfrog"].sum()))
    more["mean loss"] = float(sampled.statistics["loss"].mean())
    count = np.array(more["ess_bulk"])
    flat = sampled.latent.reshape(-1, len(best))
    mean, sigma = flat.mean(axis=0), flat.std(axis=0)
    squares = (flat - mean) ** 2
    fewer = np.minimum(count, more["ess_tail"])
    sigma_error = squares.std(axis=0) / np.sqrt(fewer) / (2 * sigma)
    return Found(mean, sigma, sigma / np.sqrt(count), sigma_error, count.min(), began[-1] - began[1], more)


def by_variational(problem, best, **chosen):
    """geoVI, timed at the second call; pairs are the independent ones, of which the mean is better known."""
    sampler = sampler_of("geovi", 1, **chosen)
    for _ in range(2):
        began = time.process_time()
        *_, last = sampler.run(problem.posterior, problem.pipeline.mesh, best, None, None)
        seconds = time.process_time() - began
    latent = last.latent
    pairs = latent.reshape(len(latent) // 2, 2, -1)
    mean, sigma = latent.mean(axis=0), latent.std(axis=0)
    squares = ((pairs - mean) ** 2).mean(axis=1)
    mean_error = pairs.mean(axis=1).std(axis=0) / np.sqrt(len(pairs))
    n_mean = len(last.keys) - len(pairs)
    mean_error = np.hypot(mean_error, pairs.mean(axis=1).std(axis=0) / np.sqrt(n_mean))
    sigma_error = squares.std(axis=0) / np.sqrt(len(pairs)) / (2 * sigma)
    more = {"iterations": last.n_iteration, "converged": last.converged, "mean loss": float(last.loss.mean())}
    more["missing its equation by 0.01 sigma"] = int(np.sum(last.error > 0.01))
    return Found(mean, sigma, mean_error, sigma_error, len(latent), seconds, more)


def compare(problem, nuts, variational=VARIATIONAL):
    """What all three find, by name; (truth, results)."""
    truth, own = draw_mock(problem, 0, other=False)
    normal, approximation, best = by_laplace(own)
    found = {"nuts": by_nuts(own, best, approximation, **nuts)}
    return truth, found | {"geovi": by_variational(own, best, **variational), "laplace": normal}


def table(labels, truth, found):
    """Means and standard deviations in Markdown."""
    nuts, others = found["nuts"], [name for name in found if name != "nuts"]
    head = "| parameter | sigma by NUTS | truth off | " + " | ".join(f"{name} off | wide" for name in others) + " |"
    lines = [head, "|" + "---|" * (3 + 2 * len(others))]
    for number, label in enumerate(labels):
        unit = nuts.sigma[number]
        cells = [f"`{label}`", f"{unit:.4f}", f"{(truth[number] - nuts.mean[number]) / unit:+.2f}"]
        for own in (found[name] for name in others):
            off = (own.mean[number] - nuts.mean[number]) / unit
            error = np.hypot(own.mean_error[number], nuts.mean_error[number]) / unit
            ratio = own.sigma[number] / unit
            relative = np.hypot(own.sigma_error[number] / own.sigma[number], nuts.sigma_error[number] / unit)
            cells += [f"{off:+.2f} ± {error:.2f}", f"{ratio:.2f} ± {ratio * relative:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def times(found):
    """Processor times in Markdown."""
    lines = ["| | processor s | independent draws | ms per independent draw | |", "|---|---|---|---|---|"]
    for name, own in found.items():
        words = ", ".join(f"{key} {float(value):.4g}" for key, value in own.more.items() if key != "ess_bulk")
        count = "any number" if np.isinf(own.independent) else f"{own.independent:.0f}"
        each = "" if np.isinf(own.independent) else f"{1000 * own.processor / own.independent:.1f}"
        lines.append(f"| {name} | {own.processor:.1f} | {count} | {each} | {words} |")
    return "\n".join(lines)


def as_json(found):
    """Of arrays lists."""
    return {name: jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), vars(own)) for name, own in found.items()}


def main():
    """Compare, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=tuple(CASES), default=tuple(CASES))
    parser.add_argument("--stars", type=int, default=2000)
    parser.add_argument("--output", type=Path, default=Path("agreement.json"))
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    everything = {}
    for case in given.cases:
        instrument, free = CASES[case]
        problem = make(given.stars if case == "round" else 400, free, instrument)
        truth, found = compare(problem, NUTS[case])
        labels = problem.posterior.free.labels
        everything[case] = {"labels": labels, "truth": truth.tolist()} | as_json(found)
        given.output.write_text(json.dumps(everything))
        print(f"\n{case}\n\n{table(labels, truth, found)}\n\n{times(found)}", flush=True)


if __name__ == "__main__":
    main()
