"""Time of a catalogue: many views of one galaxy, 100 x 100 x 3681 voxels each, of one checkout or of two in turn.

    python tests/benchmarks/catalogue.py --views 30 --other ../before

Each checkout works in a process of its own, which first makes two views, so that all is compiled; then they take turns,
some views each. Wall and processor seconds per view, medians over the turns. Needs `rubix-like ssp get bc03-lr`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parents[2]


def config_of(options: argparse.Namespace) -> dict[str, Any]:
    """The run: MUSE's whole range, its PSF and LSF, no noise unless asked for."""
    noise = {"noise": {"signal_to_noise": 30}} if options.noise else {}
    return {
        "galaxy": {"reader": "synthetic", "n_stars": int(options.stars)},
        "ssp": {"library": "bc03-lr"},
        "observation": {"redshift": 0.05},
        "instrument": {"name": "muse", "fov": "20 arcsec"},
        "engine": {"method": options.method},
        **noise,
    }


def serve() -> None:
    """Make the catalogues that lines of the standard input ask for, and answer with wall and processor seconds."""
    import rubix_like as rl  # that of PYTHONPATH  # noqa: PLC0415

    print(json.dumps(str(Path(rl.__file__).parents[1])), flush=True)
    for line in sys.stdin:
        config, views = json.loads(line)
        rows = [{"name": f"v{angle}", "observation.inclination": f"{angle} deg"} for angle in views]
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            wall, processor = time.perf_counter(), time.process_time()
            outcome = rl.run_catalogue(config, [{"name": "disc"}], rows, output=f"{folder}/cubes")
            seconds = time.perf_counter() - wall, time.process_time() - processor
            size = statistics.mean(file.stat().st_size for file in Path(folder).glob("cubes/*.fits"))
        print(json.dumps([*seconds, outcome.n_done, size]), flush=True)


class Checkout:
    """A process that computes with the package of one checkout."""

    def __init__(self, place: Path) -> None:
        environment = os.environ | {"PYTHONPATH": str(place), "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, str(Path(__file__).resolve()), "--serve"]
        self.process = subprocess.Popen(
            command,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert json.loads(self._line()) == str(place.resolve())
        self.turns: list[tuple[float, float]] = []
        self.size = 0.0

    def make(self, config: dict[str, Any], views: list[int]) -> None:
        """A catalogue of these inclinations in degrees."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([config, views]) + "\n")
        self.process.stdin.flush()
        wall, processor, n_done, self.size = json.loads(self._line())
        assert n_done == len(views)
        self.turns.append((wall / n_done, processor / n_done))

    def medians(self) -> tuple[float, float]:
        """Wall and processor seconds per view, without the first turn."""
        wall, processor = zip(*self.turns[1:], strict=True)
        return statistics.median(wall), statistics.median(processor)

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


def main() -> None:
    """Print seconds per view of each checkout, and how many times as fast the first is."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--views", type=int, default=30)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--stars", type=float, default=1e4)
    parser.add_argument("--method", default="auto")
    parser.add_argument("--noise", action="store_true")
    parser.add_argument("--other", type=Path, help="folder of another checkout, made with git worktree")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    places = [HERE, *([] if options.other is None else [options.other.resolve()])]
    checkouts, config, step = [Checkout(place) for place in places], config_of(options), options.views // options.turns
    for views in (
        [0, 45],
        *(
            [number * 89 // options.views for number in range(first, first + step)]
            for first in range(0, options.views, step)
        ),
    ):
        for checkout in checkouts:
            checkout.make(config, views)
    for place, checkout in zip(places, checkouts, strict=True):
        wall, processor = checkout.medians()
        print(f"{place}: {wall:.2f} s a view, {processor:.2f} s of processor time, {checkout.size / 1e6:.0f} MB")
    if len(checkouts) > 1:
        new, old = (checkout.medians() for checkout in checkouts)
        print(f"{old[0] / new[0]:.2f} times as fast; {old[1] / new[1]:.2f} times in processor time")


if __name__ == "__main__":
    main()
