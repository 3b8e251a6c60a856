"""How often a fit gets to the best place: mocks like `fit_synthetic`'s, each fitted with many seeds of its starts.

    python tests/benchmarks/fit_starts.py [--seeds 20] [--set starts_from=prior candidates=1] [--output starts.json]

Eight mocks, made as `rubix-like run` makes them: the packaged configuration `fit_synthetic` as it is, and seven with
2000 random draws on one device: its own inclination and a signal-to-noise ratio of 30, and 20, 50 or 80 deg with 10 or
50. Seeds change where the starts are, so that one compiled step serves all of them. A fit has reached the best place
when its loss is within 1 of the lowest known: of all seeds, and of a search begun at the truth. `--set` changes
settings of the section `fit`. The table goes to the screen, everything into the JSON file.
"""

import argparse
import dataclasses
import itertools
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import rubix_like as rl
from rubix_like.inference.posterior.posterior import linearised
from rubix_like.inference.search.search import search

PAIRS = ((55, 30), *itertools.product((20, 50, 80), (10, 50)))
DRAWS = {"galaxy.n_stars": 2000, "galaxy.draws": "random", "devices.data": 1}
SETUPS = {"as configured": {}} | {
    f"{angle} deg, S/N {ratio}": {"observation.inclination": angle, "noise.signal_to_noise": ratio, **DRAWS}
    for angle, ratio in PAIRS
}
NEAR = 1.0
"""Of the lowest loss."""

INSIDE = 3.0
"""Latent of a true value at the limit of its prior, or beyond."""


def make_problem(setup, **settings):
    """The fit of a mock that the same configuration makes."""
    config = rl.load_config("fit_synthetic", overrides=SETUPS[setup])
    return rl.log_posterior(config, rl.run(config), **settings).problem


def truth_of(problem, setup):
    """The latents of the mock's own values."""
    free = problem.posterior.free
    config = rl.load_config("fit_synthetic", overrides=SETUPS[setup])
    galaxy = config.galaxy.build()
    values = {}
    for parameter in free.parameters:
        section, name = parameter.name.split(".")
        low, high = (float(parameter.prior.value(jnp.asarray(end))) for end in (-INSIDE, INSIDE))
        own = getattr(galaxy if section == "galaxy" else getattr(config, section), name)
        values[parameter.name] = np.clip(float(own), low, high)
    return free.latent(values)


def end_of(problem, **changed):
    """The end of a search: its state; its loss, whether it has converged, steps of all starts, starts given up, seconds
    one waits and of the processor."""
    begin, processor = time.perf_counter(), time.process_time()
    *_, last = search(dataclasses.replace(problem, **changed))
    best = last.best
    return last, {
        "loss": float(last.loss[best]),
        "losses": last.loss[~last.given_up].tolist(),
        "converged": bool(last.converged[best]),
        "reason": last.reasons()[best],
        "steps": int(last.n_step.sum()),
        "given_up": int(last.given_up.sum()),
        "starts": len(last.loss),
        "latent": last.latent[best].tolist(),
        "seconds": time.perf_counter() - begin,
        "processor": time.process_time() - processor,
    }


def ends_of(problem, truth, seeds):
    """Ends (state, numbers) of searches with every seed, which of them have reached the best place, the end of a search
    begun at the truth, and the lowest loss of all."""
    alone = problem.settings.model_copy(update={"starts": 1})
    _, at_truth = end_of(problem, settings=alone, start=truth)
    ends = [end_of(problem, settings=problem.settings.model_copy(update={"seed": seed})) for seed in seeds]
    lowest = min(numbers["loss"] for numbers in (at_truth, *(numbers for _, numbers in ends)))
    return ends, [numbers["loss"] < lowest + NEAR for _, numbers in ends], at_truth, lowest


def fit_setup(setup, seeds, **settings):
    """One mock, fitted with every seed."""
    problem = make_problem(setup, **settings)
    ends, reached, truth, lowest = ends_of(problem, truth_of(problem, setup), seeds)
    ends = [numbers | {"reached": there} for (_, numbers), there in zip(ends, reached, strict=True)]
    return {"setup": setup, "truth": truth, "lowest": lowest, "ends": ends}


def compiled():
    """How often the model with its slopes was compiled: once for all."""
    return {"model and slopes": linearised._cache_size()}


def row_of(found):
    """One row of the table."""
    ends, count = found["ends"], len(found["ends"])
    reached = sum(own["reached"] for own in ends)
    both = sum(own["reached"] and own["converged"] for own in ends)
    steps, given_up = (np.mean([own[key] for own in ends]) for key in ("steps", "given_up"))
    seconds = np.median([own["seconds"] for own in ends])
    return f"| {found['setup']} | {reached}/{count} | {both}/{count} | {steps:.0f} | {given_up:.2f} | {seconds:.2g} |"


def setting_of(text):
    """`name=value`, the value a number where it can be one."""
    name, _, value = text.partition("=")
    return name, int(value) if value.isdigit() else value


def main():
    """Fit, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--setups", nargs="+", choices=SETUPS, default=list(SETUPS))
    parser.add_argument("--set", nargs="+", type=setting_of, default=[], metavar="NAME=VALUE")
    parser.add_argument("--output", type=Path, default=Path("starts.json"))
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    found = []
    print("| mock | reached | reached and converged | steps | given up | s |\n|---|---|---|---|---|---|")
    for setup in given.setups:
        found.append(fit_setup(setup, range(1, given.seeds + 1), **dict(given.set)))
        print(row_of(found[-1]), flush=True)
        given.output.write_text(json.dumps({"settings": dict(given.set), "setups": found}))
    print(f"compiled: {compiled()}")


if __name__ == "__main__":
    main()
