"""How long a cube through fibres takes beside one of spaxels: 127 fibres, three exposures, MaNGA's 4563 bins; and one
of two cameras, whose spectra are joined.

    python tests/benchmarks/fibres.py                          # 1e6 stars: minutes, and some GB
    python tests/benchmarks/fibres.py --sizes 1e4 1e5 --rounds 3

Prints the median seconds of a call, compiled before, of all in alternating runs, and their ratios; of two cameras the
program of both and the joining, and, with `--apart`, a program of each and the joining. `--cpu`: processor seconds,
for a machine that others use too.
"""

import argparse
import statistics
import time
from typing import Any

import jax

import rubix_like as rl
from rubix_like import Pipeline
from rubix_like.config.loading import arms_of
from rubix_like.cube.arms import join_arms
from rubix_like.extend import WavelengthBins, resolve, take_census
from rubix_like.forward.pipeline import PipelineGroup, alike_groups, plan_together


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


def calls_of(config: Any, galaxy: Any, info: Any, *, apart: bool) -> list[Any]:
    """What makes the cube of a run, or those of its arms: one program of all arms, or of each."""
    arms = arms_of(config)
    if not arms or apart:
        return [Pipeline.from_config(own, galaxy, info=info) for own in arms.values() or [config]]
    resolved = {name: resolve(own) for name, own in arms.items()}
    census = {name: take_census(own, resolved[name], [galaxy]) for name, own in arms.items()}
    (pipelines,) = alike_groups(list(plan_together(arms, resolved, census, info).values()))

    def together(galaxy: Any) -> tuple[Any, ...]:
        every = PipelineGroup(pipelines).observed(galaxy)
        return tuple(pipeline.to_cube(observed) for pipeline, observed in zip(pipelines, every, strict=True))

    return [together]


def seconds(calls: list[Any], galaxy: Any, whole: Any, clock: Any) -> float:
    start = clock()
    cubes = []
    for call in calls:
        made = call(galaxy)
        cubes += made if isinstance(made, tuple) else [made]
        jax.block_until_ready([(cube.flux, cube.variance) for cube in cubes])
    if len(cubes) > 1:
        join_arms(cubes, WavelengthBins.build(whole.instrument.wavelength), whole.instrument.label, "")
    return clock() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e6])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--noise", action="store_true", help="with noise and its variance")
    parser.add_argument("--cpu", action="store_true", help="processor seconds")
    parser.add_argument("--apart", action="store_true", help="two cameras also by a program of each")
    arguments = parser.parse_args()
    clock = time.process_time if arguments.cpu else time.perf_counter
    names = ["manga", "manga_fibres", "manga_arms_fibres", *(["apart"] if arguments.apart else [])]
    more = " apart (s) | ratio |" if arguments.apart else ""
    print(f"| stars | method | spaxels (s) | fibres (s) | ratio | two cameras (s) | ratio |{more}")
    print("|---|---|---|---|---|---|---|" + "---|---|" * arguments.apart)
    for size in map(int, arguments.sizes):
        runs = {}
        for name in names:
            config = config_of("manga_arms_fibres" if name == "apart" else name, size, arguments.noise)
            galaxy, info = rl.load_galaxy(config), rl.load_galaxy_info(config)
            calls = calls_of(config, galaxy, info, apart=name == "apart")
            seconds(calls, galaxy, config, clock)
            runs[name] = calls, galaxy, config, []
        for _ in range(arguments.rounds):
            for calls, galaxy, config, times in runs.values():
                times.append(seconds(calls, galaxy, config, clock))
        spaxels, *others = (statistics.median(times) for *_, times in runs.values())
        method = runs["manga_fibres"][0][0].plan.method
        columns = [f"{spaxels:.2f}", *(f"{own:.2f} | {own / spaxels:.2f}" for own in others)]
        print(f"| {size} | {method} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main()
