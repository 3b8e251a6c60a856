"""How long a cube through fibres takes beside one of spaxels: 127 fibres, three exposures, MaNGA's 4563 bins; and one
of two cameras, whose spectra are joined.

    python tests/benchmarks/fibres.py                          # 1e6 stars: minutes, and some GB
    python tests/benchmarks/fibres.py --sizes 1e4 1e5 --rounds 3

Prints the median seconds of a call, compiled before, of all in alternating runs, and their ratios; of two cameras both
calls and the joining. `--cpu`: processor seconds, for a machine that others use too.
"""

import argparse
import statistics
import time
from typing import Any

import jax

import rubix_like as rl
from rubix_like.config.loading import arms_of
from rubix_like.cube.arms import join_arms
from rubix_like.cube.bins import WavelengthBins
from rubix_like.forward.pipeline import Pipeline
from rubix_like.readers.galaxy_loading import load


def config_of(name: str, n_stars: int, noise: bool) -> Any:
    return rl.load_config(
        {
            "galaxy": {"reader": "synthetic", "n_stars": n_stars},
            "observation": {"redshift": 0.03, "align": "none", "inclination": 40},
            "instrument": {"name": name},
            "engine": {"deposit": "nearest"},
            "noise": {"signal_to_noise": 30} if noise else None,
        }
    )


def seconds(pipelines: list[Pipeline], galaxy: Any, whole: Any, clock: Any) -> float:
    start = clock()
    cubes = []
    for pipeline in pipelines:
        cube = pipeline(galaxy)
        jax.block_until_ready((cube.flux, cube.variance))
        cubes.append(cube)
    if len(cubes) > 1:
        join_arms(cubes, WavelengthBins.build(whole.instrument.wavelength), whole.instrument.label, "")
    return clock() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e6])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--noise", action="store_true", help="with noise and its variance")
    parser.add_argument("--cpu", action="store_true", help="processor seconds")
    arguments = parser.parse_args()
    clock = time.process_time if arguments.cpu else time.perf_counter
    names = ("manga", "manga_fibres", "manga_arms_fibres")
    print(
        "| stars | method | spaxels (s) | fibres (s) | ratio | two cameras (s) | ratio |\n|---|---|---|---|---|---|---|"
    )
    for size in map(int, arguments.sizes):
        runs = {}
        for name in names:
            config = config_of(name, size, arguments.noise)
            galaxy, info = load(config)
            own = list(arms_of(config).values()) or [config]
            pipelines = [Pipeline.from_config(arm, galaxy, info=info) for arm in own]
            seconds(pipelines, galaxy, config, clock)
            runs[name] = pipelines, galaxy, config, []
        for _ in range(arguments.rounds):
            for pipelines, galaxy, config, times in runs.values():
                times.append(seconds(pipelines, galaxy, config, clock))
        spaxels, fibres, arms = (statistics.median(times) for *_, times in runs.values())
        method = runs["manga_fibres"][0][0].plan.method
        print(
            f"| {size} | {method} | {spaxels:.2f} | {fibres:.2f} | {fibres / spaxels:.2f} | {arms:.2f} | "
            f"{arms / spaxels:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
