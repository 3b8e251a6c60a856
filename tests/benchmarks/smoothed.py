"""Processor seconds of a cube by the deposits `nearest` and `smoothed`, of this checkout and of an older one.

`python tests/benchmarks/smoothed.py [--before CHECKOUT] [--galaxy FILE]`: few stars of a synthetic galaxy by NIRSpec's
prism, whose spaxels are finer than its stars are wide, and with FILE (../shared/data or your own) stars of a simulation
by MUSE.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PRISM = {
    "galaxy": {"reader": "synthetic", "n_stars": 2000},
    "observation": {"redshift": 0.5},
    "instrument": {"name": "nirspec_prism"},
}
MUSE = {
    "observation": {"redshift": 0.03},
    "instrument": {"name": "muse", "fov": "20 arcsec"},
    "ssp": {"library": "bc03-lr"},
}
DEPOSITS = ("nearest", "smoothed")


def measure(settings: dict[str, Any], pairs: int) -> dict[str, float | str]:
    """Medians of alternating calls, after one of each."""
    import jax  # noqa: PLC0415

    import rubix_like as rl  # noqa: PLC0415

    every = {deposit: settings | {"engine": {"deposit": deposit}} for deposit in DEPOSITS}
    galaxies = {deposit: rl.load_galaxy(own) for deposit, own in every.items()}
    pipelines = {deposit: rl.Pipeline.from_config(own, galaxies[deposit]) for deposit, own in every.items()}
    times: dict[str, list[float]] = {deposit: [] for deposit in DEPOSITS}
    for number in range(pairs + 1):
        for deposit, pipeline in pipelines.items():
            start = time.process_time()
            jax.block_until_ready(pipeline(galaxies[deposit]).flux)
            if number:
                times[deposit].append(time.process_time() - start)
    found: dict[str, float | str] = {deposit: statistics.median(own) for deposit, own in times.items()}
    return found | {"method": pipelines["smoothed"].plan.method}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="another checkout, whose times are printed beside")
    parser.add_argument("--galaxy", type=Path, help="a file of a simulation for the case of MUSE")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is not None:
        print(json.dumps(measure(json.loads(options.case), options.pairs)))
        return
    cases = {"nirspec_prism, 2000 synthetic stars": PRISM}
    if options.galaxy is not None:
        cases[f"muse, {options.galaxy.name}"] = MUSE | {"galaxy": {"path": str(options.galaxy.resolve())}}
    here = Path(__file__).parents[2]
    print("| case | code | nearest | smoothed | method |\n|---|---|---|---|---|")
    for name, settings in cases.items():
        for title, checkout in (("before", options.before), ("now", here)):
            if checkout is None:
                continue
            words = [sys.executable, __file__, "--pairs", str(options.pairs), "--case", json.dumps(settings)]
            environment = os.environ | {"PYTHONPATH": str(checkout)}
            done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            found = json.loads(done.stdout.splitlines()[-1])
            print(f"| {name} | {title} | {found['nearest']:.2g} | {found['smoothed']:.2g} | {found['method']} |")


if __name__ == "__main__":
    main()
