"""Whether `engine.method: auto` takes the faster method: both timed in alternating runs, over a grid of sizes.

    python tests/benchmarks/methods.py                                 # the whole grid: hours, and up to 15 GB
    python tests/benchmarks/methods.py --sizes 1e3 1e4 1e5 --sides 25 100 --results methods.jsonl

The galaxy and the instrument are those of `engine.py`, on a field of `side` x `side` spaxels. A cell is right if `auto`
takes at most 1.3 times as long as the faster method, or 20 ms longer: medians of five alternating pairs of calls, or of
two where one method takes three times as long as the other. Where `direct` would take over a minute by its rate, both
are timed, and decided, at 1/100 of the particles; such cells are marked. Times are processor seconds of all cores,
which other work on the machine disturbs least. Cells that the file of results holds are not timed again, but decided.
Needs `rubix-like ssp get bc03-lr` and `bc03-miles`.
"""

import argparse
import copy
import itertools
import json
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
from engine import CONFIG, disc
from measuring import peak_gb, records, show

from rubix_like import Pipeline, load_config
from rubix_like.engine.cost import rates_here
from rubix_like.engine.source_planning import OnBins, basis_size
from rubix_like.extend import make_setup, resolve, take_census

LIBRARIES = ("popstar", "bc03-lr", "bc03-miles")
PRECISIONS = ("float32", "float64")
SIZES = (1e3, 1e4, 1e5, 1e6, 1e7)
SIDES = (25, 100, 300)
METHODS = ("basis", "direct")

RIGHT = 1.3
"""Times the faster method's seconds that `auto` may take."""

SLACK = 0.02
LONGEST = 60.0
"""Seconds of `direct` by its rate beyond which a cell has fewer particles."""

FEWER = 100
CLEAR = 3.0


def configuration(group: dict[str, Any], method: str) -> Any:
    config = copy.deepcopy(CONFIG)
    config["ssp"] = {"library": group["library"]}
    config["instrument"]["fov"] = 0.2 * group["side"]
    config["engine"] = {"method": method, "precision": group["precision"]}
    return load_config(config)


def planned(config: Any, galaxy: Any) -> Any:
    """What a run knows before painters are built, and its stars' plan."""
    resolved = resolve(config)
    return make_setup(config, resolved, take_census(config, resolved, [galaxy]))


def decided(group: dict[str, Any], galaxy: Any) -> dict[str, Any]:
    """The method that `auto` takes, why, and the sizes that it goes by."""
    setup = planned(configuration(group, "auto"), galaxy)
    plan = setup.sources["stars"]
    size = basis_size(setup.library.templates(), plan.spread, setup.config.engine.tolerance)
    n_node = 2 * (math.ceil(plan.motion.limit / size.step) + 1) + 1
    return {"auto": plan.method, "reason": plan.reason, "rank": size.rank, "nodes": n_node}


def direct_seconds(group: dict[str, Any], size: float) -> float:
    """What `direct` takes for so many particles, by its rates."""
    spread = planned(configuration(group, "direct"), disc(100)).sources["stars"].spread
    rates, bins = rates_here(), OnBins.of_spectra(spread)
    return size * (bins.n_fine * rates.direct_value + bins.n_rest * rates.rest_value)


def timed(group: dict[str, Any], galaxy: Any, pairs: int) -> dict[str, Any]:
    """Processor and wall seconds of both methods, in alternating calls."""
    pipelines = {method: Pipeline.from_config(configuration(group, method), galaxy) for method in METHODS}
    times: dict[str, list[tuple[float, float]]] = {method: [] for method in METHODS}
    for number in range(pairs + 1):
        for method, pipeline in pipelines.items():
            start = time.process_time(), time.perf_counter()
            jax.block_until_ready(pipeline(galaxy).flux)
            if number:
                times[method].append((time.process_time() - start[0], time.perf_counter() - start[1]))
        if number == 2:
            first, second = (times[method][-1][0] for method in METHODS)
            if max(first, second) > CLEAR * min(first, second):
                break
    found: dict[str, Any] = {"pairs": len(times["basis"])}
    for method, own in times.items():
        processor, wall = (statistics.median(column) for column in zip(*own, strict=True))
        found |= {method: processor, f"{method}_wall": wall}
    meta = pipelines["basis"].frame.meta
    return found | {key: meta[key] for key in meta if key.startswith("basis_")} | {"peak_gb": peak_gb()}


def measure(group: dict[str, Any], known: dict[str, Any], pairs: int) -> None:
    """Prints a JSON line for each size of a group: a library, a precision and a side."""
    jax.config.update("jax_enable_x64", group["precision"] == "float64")
    for size in group["sizes"]:
        cell = {"library": group["library"], "precision": group["precision"], "side": group["side"], "size": size}
        fewer = direct_seconds(group, size) > LONGEST
        done = cell | {"size": size / FEWER if fewer else size}
        galaxy = disc(int(done["size"]))
        if name_of(done) not in known:
            known[name_of(done)] = timed(group, galaxy, pairs)
        found = known[name_of(done)]
        print(json.dumps({**found, **cell, "fewer": fewer, **decided(group, galaxy)}), flush=True)


def name_of(cell: dict[str, Any]) -> str:
    return " ".join(str(cell[key]) for key in ("library", "precision", "side")) + f" {cell['size']:.0e}"


def run_group(group: dict[str, Any], known: dict[str, Any], options: argparse.Namespace) -> None:
    """`measure` in a process of its own; its lines are appended to the results as they come."""
    command = [sys.executable, __file__, "--group", json.dumps([group, known, options.pairs])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            with options.results.open("a") as results:
                results.write(line)


def results_of(path: Path) -> dict[str, dict[str, Any]]:
    """The last line of each cell."""
    return {name_of(cell): cell for cell in records(path)}


def table(cells: list[dict[str, Any]]) -> None:
    """A row per library, precision and side; columns of sizes: times of both methods, and what `auto` takes."""
    sizes = sorted({cell["size"] for cell in cells})
    rows, wrong = [], []
    for library, precision, side in itertools.product(LIBRARIES, PRECISIONS, SIDES):
        own = {
            cell["size"]: cell
            for cell in cells
            if (cell["library"], cell["precision"], cell["side"]) == (library, precision, side)
        }
        rows.append([library, precision, f"{side} x {side}", *(entry(own.get(size)) for size in sizes)])
        wrong += [cell for cell in own.values() if not is_right(cell)]
    columns = ["library", "precision", "spaxels", *(f"{size:.0e}" for size in sizes)]
    show("processor seconds: basis, direct, what auto takes", columns, rows)
    worst = max(cells, key=ratio)
    print(f"\n{len(cells)} cells, {len(wrong)} wrong: {', '.join(map(name_of, wrong)) or 'none'}")
    print(f"largest ratio to the faster method: {ratio(worst):.2f} ({name_of(worst)})")


def table_of_sizes(cells: list[dict[str, Any]]) -> None:
    """What `auto` estimates of each basis, beside what was planned."""
    found = {
        (cell["library"], cell["rank"], cell["nodes"], cell["basis_rank"], cell["basis_velocity_nodes"])
        for cell in cells
    }
    columns = ["library", "rank estimated", "nodes", "rank planned", "nodes"]
    show("size of the basis", columns, [list(row) for row in sorted(found)])


def ratio(cell: dict[str, Any]) -> float:
    """Times the faster method's seconds that `auto` takes."""
    return cell[cell["auto"]] / min(cell[method] for method in METHODS)


def is_right(cell: dict[str, Any]) -> bool:
    """Within the ratio, or the slack, of the faster method."""
    return ratio(cell) <= RIGHT or cell[cell["auto"]] <= min(cell[method] for method in METHODS) + SLACK


def entry(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "not run"
    marks = ("/100" if cell["fewer"] else "") + ("" if is_right(cell) else " WRONG")
    return f"{cell['basis']:.2g}, {cell['direct']:.2g} {cell['auto']}{marks}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Tables for docs/benchmarks.md")
    parser.add_argument("--sizes", nargs="+", type=float, default=SIZES)
    parser.add_argument("--sides", nargs="+", type=int, default=SIDES)
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=LIBRARIES)
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--results", type=Path, default=Path("methods.jsonl"), help="a line per cell")
    parser.add_argument("--group", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.group is not None:
        measure(*json.loads(options.group))
        return
    for side, precision, library in itertools.product(options.sides, options.precisions, options.libraries):
        group = {"library": library, "precision": precision, "side": side, "sizes": list(options.sizes)}
        run_group(group, results_of(options.results), options)
    cells = list(results_of(options.results).values())
    table(cells)
    table_of_sizes(cells)


if __name__ == "__main__":
    main()
