"""Time of lines and nebulae beside that of the stars: as many young stars, or gas particles, on MUSE's whole range.

    python tests/benchmarks/lines.py --size 1e6 --repeat 5

All pipelines are compiled first, then called in turn in one process; times are those of the compiled function. Needs
`rubix-like ssp get bc03-miles`.
"""

import argparse
import functools
import statistics
from typing import Any

import numpy as np
from measuring import head, in_turns

import rubix_like as rl

LINES = {"wavelengths": [float(own) for own in np.linspace(4800, 9300, 60)], "velocity_dispersion": "20 km/s"}
CASES: dict[str, dict[str, Any]] = {
    "stellar": {},
    "lines, 60 of gas": {"pipeline": "lines", "lines": LINES},
    "nebular, stars": {"pipeline": "nebular"},
    "nebular, star_forming_gas": {"pipeline": "nebular", "nebular": {"source": "star_forming_gas"}},
}
CONFIG: dict[str, Any] = {
    "pipeline": "stellar",
    "ssp": {"library": "bc03-miles"},
    "observation": {"redshift": 0.0, "distance": "20 Mpc", "align": "none"},
    "instrument": {
        "name": "muse",
        "fov": "5 arcsec",
        "psf": None,
        "wavelength": {"start": 4750, "stop": 9350, "step": 1.25},
    },
    "engine": {"method": "basis"},
    "devices": {"data": 1},
}
"""25 x 25 spaxels, 3681 bins."""


def galaxy(size: int) -> rl.Galaxy:
    """Young stars and as many gas particles that form stars, all in the field."""
    dice = np.random.default_rng(1)

    def particles() -> tuple[np.ndarray, np.ndarray]:
        position = dice.uniform(-0.2, 0.2, (size, 3)).astype(np.float32)
        return position, np.clip(dice.normal(0, 120, (size, 3)), -500, 500).astype(np.float32)

    metals = 10 ** dice.uniform(-3, -1.5, (2, size)).astype(np.float32)
    ages = dice.uniform(6.0, 7.4, size).astype(np.float32)
    stars = rl.Stars(*particles(), np.full(size, 1e4, np.float32), ages, metals[0])
    rate = dice.uniform(0, 1e-5, size).astype(np.float32)
    gas = rl.Gas(*particles(), np.full(size, 1e4, np.float32), metals[1], star_formation_rate=rate)
    return rl.Galaxy(stars=stars, gas=gas)


def main() -> None:
    """Print a table of medians, and of what each pipeline adds to the stars in units of their time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=float, default=1e6, help="young stars, and gas particles")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    particles, calls = galaxy(int(options.size)), {}
    for name, changes in CASES.items():
        pipeline = rl.Pipeline.from_config(rl.load_config(CONFIG | changes), particles)
        calls[name] = functools.partial(pipeline.lower(particles).compile(), *pipeline.arguments(particles))
    times = in_turns(calls, options.repeat)
    print(head("pipeline", "processor s", "beside the stars"))
    stars = statistics.median(times["stellar"])
    for name, each in times.items():
        beside = [own - star * name.startswith("nebular") for own, star in zip(each, times["stellar"], strict=True)]
        print(f"| {name} | {statistics.median(each):.2f} | {statistics.median(beside) / stars:.2f} |")


if __name__ == "__main__":
    main()
