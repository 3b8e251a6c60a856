"""Cubes per second of a training set: one compiled program against loops over a pipeline.

`python tests/benchmarks/simulate.py [--n 1000] [--loop 40]`: cubes of 25 x 25 spaxels, 300 bins, of a synthetic galaxy
of 10^4 stars, with random inclination, width of the PSF, dust and signal to noise. In one process, in turns:

- `configuration`: a pipeline for the settings of every cube, as a change of the noise's level or of the PSF's width
  beyond what is planned needs it;
- `parameters`: one pipeline, called with the parameters and a noise key of every cube, the same particles in all;
- `simulate`: this package's training sets, with new particles in every cube and the same.

Wall and processor time per cube, medians over the turns, without compilations.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import jax
import numpy as np

import rubix_like as rl
from rubix_like import Parameters
from rubix_like.extend import Progress
from rubix_like.inference.simulation import training_sets as module

CONFIG = {
    "galaxy": {"reader": "synthetic", "n_stars": 10000},
    "observation": {"redshift": 0.05, "inclination": 40, "position_angle": 0, "align": "none"},
    "instrument": {
        "name": "muse",
        "fov": "5 arcsec",
        "psf": {"fwhm": "1.2 arcsec"},
        "wavelength": {"start": 4800, "stop": 5173.75},
    },
    "dust": {"a_v": 0.3},
    "noise": {"signal_to_noise": 20},
    "engine": {"method": "basis", "velocity_range": "1000 km/s"},
}
PRIORS = {
    "observation.inclination": {"uniform": [0, 90]},
    "instrument.psf.fwhm": {"uniform": [0.5, 1.2]},
    "dust.a_v": {"uniform": [0, 1]},
    "noise.signal_to_noise": {"log_uniform": [5, 50]},
}
TURNS = 3

Ways = dict[str, tuple[Callable[[int], None], int]]


def planned(particles: str, n: int) -> tuple[module.PlannedSimulations, module.Program]:
    """A compiled training set."""
    request = module.read_simulation_request(CONFIG, None, PRIORS, None, {"n": n, "particles": particles})
    work = module._planned(request, Progress())
    return work, work.program(Progress())


def ways(n: int, n_loop: int) -> Ways:
    """Name -> what makes that many cubes, and how many in a turn."""
    sets = {particles: planned(particles, n) for particles in ("new", "same")}
    values = sets["new"][0].draws.drawn(0, max(n, n_loop))
    galaxy = rl.load_galaxy(rl.load_config(CONFIG))
    pipeline = rl.Pipeline.from_config(CONFIG, galaxy)

    def overrides(number: int) -> dict[str, float]:
        return {name: float(own[number]) for name, own in values.items()}

    def by_configuration(count: int) -> None:
        for number in range(count):
            config = rl.load_config(CONFIG, overrides=overrides(number))
            own = rl.load_galaxy(config)
            rl.Pipeline.from_config(config, own)(own).flux.block_until_ready()

    def by_parameters(count: int) -> None:
        named = rl.load_config(CONFIG).numbers()
        for number in range(count):
            own = {name: np.asarray(value, np.float32) for name, value in (named | overrides(number)).items()}
            pipeline(galaxy, Parameters.of(own), key=jax.random.key(number)).flux.block_until_ready()

    def simulated(particles: str) -> Callable[[int], None]:
        work, program = sets[particles]

        def run(count: int) -> None:
            for batch in work.batches(program, 0, count):
                np.asarray(batch.flux)

        return run

    return {
        "configuration": (by_configuration, n_loop),
        "parameters": (by_parameters, n_loop),
        "simulate, new particles": (simulated("new"), n),
        "simulate, same particles": (simulated("same"), n),
    }


def measured(chosen: Ways) -> Iterator[tuple[str, float, float]]:
    """Name, wall and processor seconds per cube."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in chosen}
    for turn in range(TURNS + 1):
        for name, (work, count) in chosen.items():
            wall, processor = time.perf_counter(), time.process_time()
            work(count if turn else 2)  # the first turn compiles
            if turn:
                found[name].append(((time.perf_counter() - wall) / count, (time.process_time() - processor) / count))
    for name, own in found.items():
        yield name, *(statistics.median(column) for column in zip(*own, strict=True))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1000, help="cubes of a training set, per turn")
    parser.add_argument("--loop", type=int, default=40, help="cubes of a loop, per turn")
    options = parser.parse_args()
    rows = list(measured(ways(options.n, options.loop)))
    print("| | ms per cube | ms of processor time | cubes per second | times faster |\n|---|---|---|---|---|")
    for name, wall, processor in rows:
        ratios = f"{rows[0][1] / wall:.1f} ({rows[0][2] / processor:.1f} in processor time)"
        print(f"| {name} | {1e3 * wall:.1f} | {1e3 * processor:.1f} | {1 / wall:.1f} | {ratios} |")


if __name__ == "__main__":
    main()
