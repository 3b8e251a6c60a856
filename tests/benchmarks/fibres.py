"""How long a cube through fibres takes beside one of spaxels: 127 fibres, three exposures, MaNGA's 4563 bins.

    python tests/benchmarks/fibres.py                          # 1e6 stars: minutes, and some GB
    python tests/benchmarks/fibres.py --sizes 1e4 1e5 --rounds 3

Prints the median seconds of a call, compiled before, of both in alternating runs, and their ratio.
"""

import argparse
import statistics
import time
from typing import Any

import jax

import rubix_like as rl
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


def seconds(pipeline: Pipeline, galaxy: Any) -> float:
    start = time.perf_counter()
    cube = pipeline(galaxy)
    jax.block_until_ready((cube.flux, cube.variance))
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e6])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--noise", action="store_true", help="with noise and its variance")
    arguments = parser.parse_args()
    print("| stars | method | spaxels (s) | fibres (s) | ratio |\n|---|---|---|---|---|")
    for size in map(int, arguments.sizes):
        runs = {}
        for name in ("manga", "manga_fibres"):
            config = config_of(name, size, arguments.noise)
            galaxy, info = load(config)
            pipeline = Pipeline.from_config(config, galaxy, info=info)
            seconds(pipeline, galaxy)
            runs[name] = pipeline, galaxy, []
        for _ in range(arguments.rounds):
            for pipeline, galaxy, times in runs.values():
                times.append(seconds(pipeline, galaxy))
        spaxels, fibres = (statistics.median(times) for _, _, times in runs.values())
        method = runs["manga_fibres"][0].plan.method
        print(f"| {size} | {method} | {spaxels:.2f} | {fibres:.2f} | {fibres / spaxels:.2f} |", flush=True)


if __name__ == "__main__":
    main()
