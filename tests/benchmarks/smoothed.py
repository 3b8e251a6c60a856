"""Processor seconds of a cube by the deposits `nearest` and `smoothed`.

`python tests/benchmarks/smoothed.py [--galaxy FILE]`: few stars of a synthetic galaxy by NIRSpec's
prism, whose spaxels are finer than its stars are wide, and with FILE (../shared/data or your own) stars of a simulation
by MUSE.
"""

import argparse
from pathlib import Path
from typing import Any

from measuring import head, medians

import rubix_like as rl

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
    every = {deposit: settings | {"engine": {"deposit": deposit}} for deposit in DEPOSITS}
    galaxies = {deposit: rl.load_galaxy(own) for deposit, own in every.items()}
    pipelines = {deposit: rl.Pipeline.from_config(own, galaxies[deposit]) for deposit, own in every.items()}
    calls = {deposit: lambda deposit=deposit: pipelines[deposit](galaxies[deposit]).flux for deposit in DEPOSITS}
    return medians(calls, pairs) | {"method": pipelines["smoothed"].plan.method}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--galaxy", type=Path, help="a file of a simulation for the case of MUSE")
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    cases = {"nirspec_prism, 2000 synthetic stars": PRISM}
    if options.galaxy is not None:
        cases[f"muse, {options.galaxy.name}"] = MUSE | {"galaxy": {"path": str(options.galaxy.resolve())}}
    print(head("case", "nearest", "smoothed", "method"))
    for name, settings in cases.items():
        found = measure(settings, options.pairs)
        print(f"| {name} | {found['nearest']:.2g} | {found['smoothed']:.2g} | {found['method']} |", flush=True)


if __name__ == "__main__":
    main()
