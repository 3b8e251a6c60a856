"""Time and memory of the engine: against particles, bins, spaxels and tolerance, against `direct`, RUBIX and a bound.

    python tests/benchmarks/engine.py                          # all tables, as Markdown, and the figure
    python tests/benchmarks/engine.py --tables particles bound --sizes 1e4 1e5 --repeat 3
    python tests/benchmarks/engine.py --tables peer --peer PYTHON_WITH_RUBIX --peer-script run_rubix.py --sizes 1e6

Every row runs in a process of its own (so that its peak memory is its own) and prints one JSON line; times are after
block_until_ready, medians. The same work for RUBIX: its MUSE grid (25 x 25 spaxels, 3721 bins, given below), the BC03
low-resolution library in both, an exponential disc at redshift 0.1, no PSF, LSF or noise on our side; its own script
prints one JSON line with `run_median_s` (its pipeline jitted once; `--mode grad`: the gradient of the sum of squares of
its cube by every star's properties, beside the same of ours); ours and its runs alternate.
Needs `rubix-like ssp get bc03-lr` and `bc03-miles`, and matplotlib for the figure.
"""

import argparse
import copy
import functools
import itertools
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from measuring import by_peer, described, medians, peak_gb, peer_options, run_row, show, timed

from rubix_like import Galaxy, Pipeline, Stars, load_config
from rubix_like.engine import cost
from rubix_like.forward.model import LIGHT_PASS, Group, PassInputs, finish

CONFIG = {
    "ssp": {"library": "bc03-lr"},
    "observation": {"redshift": 0.1, "align": "none"},
    "instrument": {
        "name": "muse",
        "pixel_scale": 0.2,
        "fov": 5.0,
        "wavelength": {"start": 4700.15, "stop": 9350.15, "step": 1.25},
        "psf": None,
        "lsf": None,
    },
    "engine": {"method": "basis"},
}
"""RUBIX's MUSE grid: 25 x 25 spaxels of 0.2 arcsec, 3721 bins of 1.25 Angstrom."""

LIBRARIES = ("bc03-lr", "bc03-miles")


def disc(n_stars: int) -> Any:
    """An exponential disc with flat ages and log-flat metallicities, inclined by 60 degrees."""
    rng = np.random.default_rng(42)
    radius, angle = rng.gamma(2.0, 3.0, n_stars), rng.uniform(0, 2 * np.pi, n_stars)
    position = np.stack([radius * np.cos(angle), radius * np.sin(angle), rng.laplace(0.0, 0.3, n_stars)], axis=1)
    speed = 200.0 * np.tanh(radius)
    velocity = np.stack([-speed * np.sin(angle), speed * np.cos(angle), np.zeros(n_stars)], axis=1)
    velocity += rng.normal(0, 30.0, (n_stars, 3))
    cosine, sine = 0.5, np.sqrt(0.75)
    turn = np.array([[1, 0, 0], [0, cosine, -sine], [0, sine, cosine]])
    stars = Stars(
        position=jnp.asarray(position @ turn.T, jnp.float32),
        velocity=jnp.asarray(velocity @ turn.T, jnp.float32),
        initial_mass=jnp.full(n_stars, 1e10 / n_stars, jnp.float32),
        log_age=jnp.asarray(np.log10(rng.uniform(1e9, 1e10, n_stars)), jnp.float32),
        metallicity=jnp.asarray(10 ** rng.uniform(-3, np.log10(0.04), n_stars), jnp.float32),
    )
    return Galaxy(stars=stars)


def measure(row: dict[str, Any]) -> dict[str, Any]:
    """One row in this process: plan, first call, run, its parts, gradient, peak memory."""
    config = copy.deepcopy(CONFIG)
    for dotted, value in row["set"].items():
        section, key = dotted.split(".")
        config[section][key] = value
    galaxy, repeat = disc(int(row["size"])), row["repeat"]
    start = time.perf_counter()
    pipeline = Pipeline.from_config(load_config(config), galaxy)
    found: dict[str, Any] = {"plan": time.perf_counter() - start}
    found["first"], found["run"] = timed(lambda: pipeline(galaxy).flux, repeat)
    found |= {key: pipeline.frame.meta[key] for key in pipeline.frame.meta if key.startswith("basis_")}
    if row.get("parts"):
        found |= parts(pipeline, galaxy, repeat)
    found["peak_gb"] = peak_gb()
    if row.get("gradient"):
        loss = jax.jit(jax.value_and_grad(lambda galaxy: jnp.sum(pipeline(galaxy).flux ** 2)))
        found["gradient"] = timed(lambda: loss(galaxy), repeat)[1]
        found["gradient_peak_gb"] = peak_gb()
    return found | {"device": jax.devices()[0].device_kind, "n_wave": pipeline.plan.n_wave}


def parts(pipeline: Any, galaxy: Any, repeat: int) -> dict[str, float]:
    """Seconds to paint (the part that sees particles) and to project, and the bound on both."""
    tables, parameters, placed, _ = pipeline.arguments(galaxy)
    plan, painting = pipeline.plan, painting_of(pipeline)
    partial = jax.block_until_ready(painting(tables, parameters, placed.stars))
    finishing = jax.jit(functools.partial(finish, pipeline.plan, pipeline.layout, key=None))
    found = {
        "paint": timed(lambda: painting(tables, parameters, placed.stars), repeat)[1],
        "project": timed(lambda: finishing(tables, parameters, {}, partial), repeat)[1],
    }
    painter = tables.paint[0].painter
    if plan.method == "basis":
        sizes = (tables.grid.n_spaxel, painter.nodes.n_node, painter.rank, painter.axes.n_template)
        found |= bound(*sizes, plan.n_wave, len(galaxy.stars.initial_mass), repeat)
    return found


def painting_of(pipeline: Any) -> Any:
    """The compiled function from (tables, parameters, placed stars) to the sums over all stars."""
    whole, split, group = PartitionSpec(), PartitionSpec("data"), Group.of(pipeline.plan, pipeline.layout)

    def painted(tables: Any, parameters: Any, stars: Any) -> Any:
        return LIGHT_PASS.added(group, PassInputs.of(tables, parameters, None), (stars,))[0]

    specs = (whole, whole, split)
    return jax.jit(jax.shard_map(painted, mesh=pipeline.mesh, in_specs=specs, out_specs=whole))


def bound(
    n_spaxel: int, n_node: int, rank: int, n_template: int, n_wave: int, n_stars: int, repeat: int
) -> dict[str, float]:
    """numpy's float32 matrix products of the same shapes, and the scatter of 16 numbers per star and nothing else."""
    rng = np.random.default_rng(1)
    left = rng.random((rank, n_template), dtype=np.float32), rng.random((n_spaxel, n_node * rank), dtype=np.float32)
    right = (
        rng.random((n_template, n_spaxel * n_node), dtype=np.float32),
        rng.random((n_node * rank, n_wave), dtype=np.float32),
    )
    products = sum(timed(lambda a=a, b=b: np.matmul(a, b), repeat)[1] for a, b in zip(left, right, strict=True))
    chunk = 8192
    n_chunk = max(1, n_stars // chunk)
    n_cell = n_spaxel * n_node * n_template
    corner = rng.integers(0, n_template - 221, (n_chunk, chunk, 1, 1)) + np.array([0, 1, 220, 221])[:, None]
    place = rng.integers(0, n_spaxel * n_node - 4, (n_chunk, chunk, 1, 1)) + np.arange(4)
    cell = jnp.asarray((corner * (n_spaxel * n_node) + place).reshape(n_chunk, -1).astype(np.int32))

    def scatter(cell: Any) -> Any:
        with jax.enable_x64(True):
            start = jnp.zeros(n_cell, jnp.float64)
            ones = jnp.ones(16 * chunk, jnp.float64)
            return jax.lax.scan(
                lambda sums, own: (sums.at[own].add(ones, mode="promise_in_bounds"), None), start, cell
            )[0].astype(jnp.float32)

    compiled = jax.jit(scatter)
    scattered = timed(lambda: compiled(cell), repeat)[1] * n_stars / (n_chunk * chunk)
    return {"bound_products": products, "bound_scatter": scattered}


def row_of(size: float, repeat: int, **row: Any) -> dict[str, Any]:
    """`measure` in a process of its own."""
    return run_row(__file__, {"size": size, "repeat": repeat, "set": {}, **row})


def table_particles(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for library in LIBRARIES:
        for size in options.sizes:
            basis = row_of(size, options.repeat, gradient=size <= 1e6, set={"ssp.library": library})
            direct = {}
            if size <= options.direct_up_to:
                changed = {"ssp.library": library, "engine.method": "direct"}
                direct = row_of(size, options.repeat, gradient=size <= 1e4, set=changed)
            rows.append({"library": library, "n_stars": size, "basis": basis, "direct": direct})
    columns = ["library", "particles", "rank", "nodes", "plan s", "first call s", "run s", "value and gradient s"]
    columns += ["/ run", "peak GB", "with gradient", "direct s", "its gradient s", "direct / basis"]
    table = []
    for row in rows:
        b, d = row["basis"], row["direct"]
        ratio = b["gradient"] / b["run"] if "gradient" in b else None
        cells = [row["library"], f"{row['n_stars']:.0e}"]
        cells += [b.get(k) for k in ("basis_rank", "basis_velocity_nodes", "plan", "first", "run", "gradient")]
        cells += [ratio, b.get("peak_gb"), b.get("gradient_peak_gb"), d.get("run"), d.get("gradient")]
        table.append([*cells, d["run"] / b["run"] if "run" in d else None])
    show("Particles (25 x 25 x 3721)", columns, table)
    return rows


def table_bound(options: argparse.Namespace) -> list[dict[str, Any]]:
    sizes = [size for size in options.sizes if size >= 1e5]
    rows = [
        row_of(size, options.repeat, parts=True, set={"ssp.library": library})
        for library, size in itertools.product(LIBRARIES, sizes)
    ]
    table = []
    for row in rows:
        best = row["bound_products"] + row["bound_scatter"]
        cells = [row["set"]["ssp.library"], f"{row['size']:.0e}", row["paint"], row["project"], row["run"]]
        table.append([*cells, row["bound_products"], row["bound_scatter"], best, best / row["run"]])
    columns = ["library", "particles", "paint s", "project s", "run s", "sgemm s", "scatter s", "bound s"]
    columns.append("bound / run")
    show("Against the bound: numpy's sgemm of the same shapes and the bare scatter", columns, table)
    return rows


def compare_pieces(row: dict[str, Any]) -> dict[str, Any]:
    """Processor seconds with every particle added, and with those outside the field passed over, run in turn."""
    config = copy.deepcopy(CONFIG)
    config["engine"]["deposit"] = row["deposit"]
    galaxy, here, calls = disc(int(row["size"])), cost.rates_here(), {}
    for passes_over in (False, True):
        cost.RATES[jax.default_backend()] = here._replace(passes_over=passes_over)
        jax.clear_caches()
        pipeline = Pipeline.from_config(load_config(config), galaxy)

        def cube(galaxy: Any, pipeline: Any = pipeline) -> Any:
            return pipeline(galaxy).flux

        def loss(galaxy: Any, cube: Any = cube) -> Any:
            return jnp.sum(cube(galaxy) ** 2)

        for name, function in (("run", cube), ("gradient", jax.value_and_grad(loss))):
            compiled = jax.jit(function).lower(galaxy).compile()
            calls[f"{name}, {passes_over}"] = functools.partial(compiled, galaxy)
    return medians(calls, row["repeat"])


def table_pieces(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = [row_of(1e6, options.repeat, compare="pieces", deposit=deposit) for deposit in ("nearest", "tsc")]
    keys = [f"{name}, {over}" for name in ("run", "gradient") for over in (False, True)]
    table = []
    for row in rows:
        run, run_over, gradient, gradient_over = (row[key] for key in keys)
        cells = [row["deposit"], run, run_over, run / run_over, gradient, gradient_over, gradient / gradient_over]
        table.append([*cells, gradient_over / run_over])
    columns = ["deposit", "all s", "seen s", "ratio", "gradient, all s", "seen s", "ratio", "gradient / run"]
    show("Particles outside the field passed over (1e6 particles, bc03-lr, processor time)", columns, table)
    return rows


def table_wavelengths(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for n_wave in (500, 1000, 2000, 4000, 8000):
        wavelength = {"start": 4700.15, "stop": 4700.15 + 4650.0, "step": 4650.0 / (n_wave - 1)}
        changed = {"ssp.library": "bc03-miles", "instrument.wavelength": wavelength}
        rows.append(row_of(1e6, options.repeat, parts=True, set=changed))
    keys = ("n_wave", "basis_rank", "basis_velocity_nodes", "paint", "project", "run", "peak_gb")
    columns = ["bins", "rank", "nodes", "paint s", "project s", "run s", "peak GB"]
    table = [[row.get(key) for key in keys] for row in rows]
    show("Wavelengths (1e6 particles, bc03-miles, the same range)", columns, table)
    return rows


def table_spaxels(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for side in (10, 25, 50, 100, 300):
        rows.append(row_of(1e6, min(options.repeat, 3), parts=side <= 100, set={"instrument.fov": 0.2 * side}))
        rows[-1]["side"] = side
    keys = ("basis_rank", "basis_velocity_nodes", "paint", "project", "run", "peak_gb")
    table = [[f"{row['side']} x {row['side']}", *(row.get(k) for k in keys)] for row in rows]
    columns = ["spaxels", "rank", "nodes", "paint s", "project s", "run s", "peak GB"]
    show("Spaxels (1e6 particles, bc03-lr, 3721 bins)", columns, table)
    return rows


def table_tolerance(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for tolerance in (1e-2, 3e-3, 1e-3, 3e-4, 1e-4):
        changed = {"ssp.library": "bc03-miles", "engine.tolerance": tolerance}
        rows.append(row_of(1e6, options.repeat, parts=True, set=changed) | {"tolerance": tolerance})
    keys = ("tolerance", "basis_rank", "basis_velocity_nodes", "basis_velocity_step", "basis_spectrum_error")
    keys += ("basis_local_error", "paint", "project", "run")
    columns = ["tolerance", "rank", "nodes", "step km/s", "error of a spectrum", "of one bin"]
    columns += ["paint s", "project s", "run s"]
    show("Tolerance, rank (1e6 particles, bc03-miles)", columns, [[row.get(k) for k in keys] for row in rows])
    return rows


PEER_WORDS = {
    "linear": ("--method", "linear"),
    "cubic": ("--method", "cubic"),
    "gradient": ("--mode", "grad"),
}
"""Further words to RUBIX's script."""


def table_peer(options: argparse.Namespace) -> list[dict[str, Any]]:
    if options.peer is None:
        return []
    rows = []
    for size in options.peer_sizes:
        pairs: dict[str, list[tuple[float, float, float]]] = {method: [] for method in PEER_WORDS}
        for _ in range(options.pairs):
            for method, times in pairs.items():
                row = row_of(size, 1, gradient=method == "gradient")
                theirs = by_peer(options, size, "1", *PEER_WORDS[method])
                if "run_median_s" in theirs:
                    mine = row["gradient" if method == "gradient" else "run"]
                    times.append((mine, theirs["run_median_s"], theirs["peak_rss_gb"]))
                print(json.dumps([size, method, row, theirs]), file=sys.stderr, flush=True)
        for method, times in ((method, times) for method, times in pairs.items() if times):  # not where it was killed
            mine, theirs, memory = (statistics.median(column) for column in zip(*times, strict=True))
            ratio = statistics.median(theirs / mine for mine, theirs, _ in times)
            rows.append({"n_stars": size, "method": method, "ours": mine, "peer": theirs, "gb": memory, "ratio": ratio})
    columns = ["particles", "RUBIX interpolation, or its gradient", "rubix_like s", "RUBIX s", "RUBIX peak GB", "ratio"]
    table = [[f"{r['n_stars']:.0e}", r["method"], r["ours"], r["peer"], r["gb"], r["ratio"]] for r in rows]
    show(f"RUBIX 0.0.5 (medians of {options.pairs} pairs, bc03-lr in both, 25 x 25 x 3721)", columns, table)
    return rows


TABLES = {
    "particles": table_particles,
    "bound": table_bound,
    "pieces": table_pieces,
    "wavelengths": table_wavelengths,
    "spaxels": table_spaxels,
    "tolerance": table_tolerance,
    "peer": table_peer,
}


def draw(found: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Time against particles for both methods and RUBIX, and against bins and spaxels."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (an optional extra)

    figure = Figure(figsize=(11, 3.6), layout="constrained")
    by_stars, by_bins, by_spaxels = figure.subplots(1, 3)
    for library, mark in zip(LIBRARIES, "os", strict=True):
        rows = [row for row in found.get("particles", []) if row["library"] == library]
        for method, line in (("basis", "-"), ("direct", ":")):
            points = [(row["n_stars"], row[method]["run"]) for row in rows if "run" in row[method]]
            if points:
                by_stars.plot(*zip(*points, strict=True), mark + line, label=f"{method}, {library}")
    for method in ("linear", "cubic"):
        points = [(row["n_stars"], row["peer"]) for row in found.get("peer", []) if row["method"] == method]
        if points:
            by_stars.plot(*zip(*points, strict=True), "^--", label=f"RUBIX 0.0.5, {method}")
    for axis, name, x in ((by_bins, "wavelengths", "n_wave"), (by_spaxels, "spaxels", "side")):
        for key in ("paint", "project", "run"):
            points = [(row[x] ** (2 if x == "side" else 1), row[key]) for row in found.get(name, []) if key in row]
            if points:
                axis.plot(*zip(*points, strict=True), "o-", label=key)
    for axis, label in ((by_stars, "particles"), (by_bins, "bins"), (by_spaxels, "spaxels")):
        axis.set(xscale="log", yscale="log", xlabel=label, ylabel="seconds")
        axis.grid(alpha=0.3)
        if axis.lines:
            axis.legend(fontsize=7)
    figure.savefig(path)


def main() -> None:
    parser = described(__doc__)
    parser.add_argument("--tables", nargs="+", choices=tuple(TABLES), default=list(TABLES))
    parser.add_argument("--sizes", nargs="+", type=float, default=[1e3, 1e4, 1e5, 1e6, 1e7])
    parser.add_argument("--peer-sizes", nargs="+", type=float, default=[1e4, 1e5, 1e6])
    parser.add_argument("--direct-up-to", type=float, default=1e4)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=5)
    peer_options(parser)
    parser.add_argument(
        "--results", type=Path, default=Path("benchmarks.json"), help="all figures; merged with its own"
    )
    parser.add_argument("--figure", type=Path, help="picture to draw from the results, e.g. docs/benchmarks.svg")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row is not None:
        row = json.loads(options.row)
        print(json.dumps(compare_pieces(row) if "compare" in row else measure(row)))
        return
    found = json.loads(options.results.read_text()) if options.results.exists() else {}
    for name in options.tables:
        found[name] = TABLES[name](options) or found.get(name, [])
        options.results.write_text(json.dumps(found))
    if options.figure is not None:
        draw(found, options.figure)


if __name__ == "__main__":
    main()
