"""Scaling: time, processor time and memory against devices, processes, chunk and layout, for both methods.

    python tests/benchmarks/scaling.py                          # measure everything, then fit and print all tables
    python tests/benchmarks/scaling.py --tables strong memory   # some of it; merged with what is in --results
    python tests/benchmarks/scaling.py --show                   # tables, fit and prediction of what was measured before
    python tests/benchmarks/scaling.py --quick                  # every table with tiny sizes: does it still run?

Every group of rows runs in a process of its own with 8 virtual CPU devices (`cores` of the machine's cores, where a row
says so); the rows of a group take turns, so that other work on the machine meets all of them alike. Times are after
block_until_ready, medians; `wall` is what one waits for, `cpu` the processor time of all threads and processes, which
other work changes less. `processes` starts real processes that meet on the loopback interface through
jax.distributed. The cost model is in `scaling_model.py`.
"""

import argparse
import copy
import dataclasses
import functools
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import h5py
import jax
import jax.numpy as jnp
import numpy as np
from engine import disc
from jax.sharding import PartitionSpec
from measuring import described, show
from scaling_model import Sizes, fitted, show_fit, show_prediction

from rubix_like import Galaxy, Pipeline, load_config, load_galaxy, make_mesh, particle_shardings

CONFIG = {
    "ssp": {"library": "popstar"},
    "observation": {"redshift": 0.1, "align": "none"},
    "instrument": {
        "name": "muse",
        "pixel_scale": 0.2,
        "fov": 5.0,
        "wavelength": {"start": 4750.0, "stop": 9350.0, "step": 1.25},
        "psf": {"fwhm": 0.8},
        "lsf": {"fwhm": 2.6},
    },
    "engine": {"velocity_range": 500.0},
}
"""25 x 25 spaxels, 3681 bins, a PSF and a line spread; the velocity range is stated: all rows have the same nodes."""

PER_METHOD = {"basis": 400_000, "direct": 4_000}
"""Particles of a row that does not say otherwise: some tenths of a second on one core."""

N_DEVICES = 8

KINDS = ("argument", "output", "temp")
"""Of memory, as XLA calls them."""


def configured(row: dict[str, Any]) -> dict[str, Any]:
    config = copy.deepcopy(CONFIG)
    config["engine"]["method"] = row["method"]
    config["devices"] = {"data": row.get("data", 1), "wave": row.get("wave", 1)}
    if "output" in row:
        config["devices"]["output"] = row["output"]
    if "chunk" in row:
        config["engine"]["chunk"] = row["chunk"]
    if "side" in row:
        config["instrument"]["fov"] = 0.2 * row["side"]
    if "step" in row:
        config["instrument"]["wavelength"]["step"] = row["step"]
    return config


def planned(row: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    """(pipeline, what its compiled function takes); over several processes, each places its own slab."""
    galaxy = disc(row["size"])
    pipeline = Pipeline.from_config(load_config(configured(row)), galaxy)
    if jax.process_count() == 1:
        return pipeline, pipeline.arguments(galaxy)
    size, number = row["size"] // jax.process_count(), jax.process_index()
    own = jax.tree.map(lambda leaf: np.asarray(leaf)[number * size : (number + 1) * size], galaxy.stars)
    own = Galaxy(stars=dataclasses.replace(own, weight=np.ones(size, np.float32)))
    shardings = particle_shardings(own, pipeline.mesh)
    return pipeline, pipeline.arguments(jax.tree.map(jax.make_array_from_process_local_data, shardings, own))


def sizes_of(pipeline: Any, placed: Any) -> Sizes:
    """What the cost model goes by."""
    layout, painter, grid = pipeline.layout, pipeline.tables.paint[0].painter, pipeline.tables.grid
    n_wave = pipeline.plan.n_wave
    split, painted = layout.split, layout.painted
    n_particle = len(placed.stars.weight)
    basis = pipeline.plan.method == "basis"
    response = (painter.outliers if basis else painter).response if not basis or painter.outliers else None
    n_painted = n_wave if painted.is_whole else painted.n_own
    block, part = (1, 1) if response is None else response.matrix.shape[:2]
    return Sizes(
        method=pipeline.plan.method,
        n_particle=n_particle,
        n_data=layout.n_data,
        n_part=painted.n_shard,
        n_spaxel=int(grid.n_spaxel),
        n_seen=pipeline.tables.footprint.n_element,
        n_corner=int(grid.n_corner),
        n_painted=n_painted,
        n_finished=n_wave if split.is_whole else split.n_own,
        n_wave=n_wave,
        scatters=layout.scatters,
        gathered=layout.gathered,
        n_template=int(painter.axes.n_template),
        n_neighbour=int(painter.axes.n_corner),
        n_node=painter.nodes.n_node if basis else 0,
        rank=painter.rank if basis else 0,
        by_template=bool(basis and painter._by_template(n_particle // layout.n_data, grid)),
        by_rows=bool(basis and painter.by_rows),
        n_rest=0 if basis else int(painter.spectra.shape[1]),
        block=int(block),
        part=int(part),
        responds_late=bool(not basis and painter.responds == "sum"),
    )


@dataclasses.dataclass
class Prepared:
    """A row, compiled, with the times of its runs."""

    row: dict[str, Any]
    found: dict[str, Any]
    call: Any
    wall: list[float]
    cpu: list[float]


def prepare(row: dict[str, Any]) -> Prepared:
    pipeline, arguments = planned(row)
    lowered = pipeline.compiled(*arguments).lower(*arguments)
    start, own = time.perf_counter(), time.process_time()
    executable = lowered.compile()
    compiled = {"compile_wall": time.perf_counter() - start, "compile_cpu": time.process_time() - own}
    analysis = executable.memory_analysis()
    memory = {f"{name}_bytes": getattr(analysis, f"{name}_size_in_bytes") for name in KINDS}
    found = {**row, **compiled, **memory, "sizes": dataclasses.asdict(sizes_of(pipeline, arguments[2]))}
    return Prepared(row, found, lambda: executable(*arguments), [], [])


def measure_group(rows: list[dict[str, Any]], repeat: int) -> list[dict[str, Any]]:
    """All rows in this process, taking turns; without runs where `repeat` is 0."""
    prepared = [prepare(row) for row in rows]
    for turn in range(repeat + 1 if repeat else 0):
        for own in prepared:
            start, used = time.perf_counter(), time.process_time()
            jax.block_until_ready(own.call())
            if turn:  # the first is a warm-up
                own.wall.append(time.perf_counter() - start)
                own.cpu.append(time.process_time() - used)
    for own in prepared:
        if repeat:
            own.found |= {"wall": statistics.median(own.wall), "cpu": statistics.median(own.cpu)}
            own.found |= {"least_wall": min(own.wall), "least_cpu": min(own.cpu)}
    return [own.found for own in prepared]


def sums_over_processes(sizes: list[int], repeat: int) -> list[dict[str, Any]]:
    """Seconds to add up an array of float32 over the processes, by its bytes."""
    found = []
    for size in sizes:
        each = PartitionSpec("data")
        psum = functools.partial(jax.lax.psum, axis_name="data")
        add = jax.jit(jax.shard_map(psum, mesh=make_mesh(), in_specs=each, out_specs=PartitionSpec()))
        sharding = jax.NamedSharding(make_mesh(), each)
        whole = jax.make_array_from_process_local_data(sharding, jnp.ones(size // 4, jnp.float32))
        times = []
        for _ in range(2 * repeat + 1):
            start = time.perf_counter()
            jax.block_until_ready(add(whole))
            times.append(time.perf_counter() - start)
        found.append({"bytes": size, "wall": statistics.median(times[1:]), "least_wall": min(times[1:])})
    return found


def file_times(size: int, repeat: int) -> list[dict[str, Any]]:
    """Reading a table of `size` stars in HDF5 (80 bytes each in float64, without compression), writing a cube."""
    few = {"method": "basis", "size": 64, "data": 1, "side": 50}
    cube = Pipeline.from_config(load_config(configured(few)), disc(64))(disc(64))
    with tempfile.TemporaryDirectory() as folder:
        path, written = Path(folder) / "stars.hdf5", Path(folder) / "cube.fits"
        stars = disc(size).stars
        columns = {"position": stars.position, "velocity": stars.velocity, "initial_mass": stars.initial_mass}
        columns |= {"mass": stars.initial_mass, "log_age": stars.log_age, "metallicity": stars.metallicity}
        with h5py.File(path, "w") as file:
            for name, values in columns.items():
                file[name] = np.asarray(values, np.float64)
        config = load_config({**configured(few), "galaxy": {"reader": "table", "path": str(path)}})

        def bare() -> None:
            with h5py.File(path) as file:
                for name in columns:
                    file[name][()]

        calls = {
            "bare columns by h5py": bare,
            "a galaxy, its centre found": lambda: load_galaxy(config),
            "writing a cube": lambda: cube.write(written),
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
        for _ in range(repeat + 1):
            for name, call in calls.items():
                start, used = time.perf_counter(), time.process_time()
                call()
                times[name].append((time.perf_counter() - start, time.process_time() - used))
                written.unlink(missing_ok=True)
        cube.write(written)
        sizes = {name: (written if name.startswith("writing") else path).stat().st_size for name in calls}
    least = {name: [min(column) for column in zip(*own[1:], strict=True)] for name, own in times.items()}
    return [
        {"what": name, "bytes": sizes[name], "least_wall": own[0], "least_cpu": own[1]} for name, own in least.items()
    ]


def worker(request: dict[str, Any]) -> None:
    """One process of a measurement: sets JAX up and prints one JSON line."""

    if "processes" in request:
        jax.config.update("jax_num_cpu_devices", 1)
        jax.distributed.initialize(request["coordinator"], request["processes"], request["number"])
    else:
        jax.config.update("jax_num_cpu_devices", N_DEVICES)
    if "file_size" in request:
        rows = file_times(request["file_size"], request["repeat"])
    else:
        rows = measure_group(request["rows"], request["repeat"])
    found: dict[str, Any] = {"rows": rows}
    if request.get("sums"):
        found["sums"] = sums_over_processes(request["sums"], request["repeat"])
    print(json.dumps(found | {"device": jax.devices()[0].device_kind}))


def started(request: dict[str, Any]) -> "subprocess.Popen[str]":
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, __file__, "--worker", json.dumps(request)]
    if "cores" in request:  # for threads that begin as modules are imported, too
        cores = sorted(os.sched_getaffinity(0))[: request["cores"]]
        command = ["taskset", "--cpu-list", ",".join(map(str, cores)), *command]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def answer(process: "subprocess.Popen[str]") -> dict[str, Any]:
    lines = process.communicate()[0].splitlines()
    if process.returncode or not lines:
        raise SystemExit(f"a measuring process ended with {process.returncode}")
    return json.loads(lines[-1])


def run_group(rows: list[dict[str, Any]], repeat: int, **settings: Any) -> list[dict[str, Any]]:
    found = answer(started({"rows": rows, "repeat": repeat, **settings}))["rows"]
    return [settings | row for row in found]


def run_processes(rows: list[dict[str, Any]], n: int, repeat: int, sums: list[int]) -> tuple[list, list]:
    """The rows on `n` processes of one device each: the slowest one's wall time, the processor time of all."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    request = {"rows": rows, "repeat": repeat, "processes": n, "coordinator": coordinator, "sums": sums}
    answers = [answer(one) for one in [started({**request, "number": number}) for number in range(n)]]
    found = []
    for same in zip(*(own["rows"] for own in answers), strict=True):
        times = {key: max(own[key] for own in same) for key in ("wall", "least_wall")}
        times |= {key: sum(own[key] for own in same) for key in ("cpu", "least_cpu")}
        found.append(same[0] | times | {"processes": n})
    return found, [own | {"processes": n} for own in answers[0].get("sums", [])]


def scaled(options: argparse.Namespace, method: str, times: float = 1) -> int:
    """Particles: a multiple of all device counts and a size of its own class, so that nothing is padded."""
    size = PER_METHOD[method] * times * (0.02 if options.quick else 1)
    step = 64 if size < 20_000 else 4096
    return max(1, round(size / step)) * step


def table_strong(options: argparse.Namespace) -> dict[str, Any]:
    """The same particles on more devices; on one core, and on two."""
    counts, rows = (1, 2) if options.quick else (1, 2, 4, 8), []
    for method in options.methods:
        group = [{"method": method, "size": scaled(options, method), "data": n} for n in counts]
        for cores in (1, 2):
            rows += run_group(group[:2] if cores == 2 else group, options.repeat, cores=cores)
    return {"rows": rows}


def table_weak(options: argparse.Namespace) -> dict[str, Any]:
    """As many particles per device, on more devices."""
    counts, rows = (1, 2) if options.quick else (1, 2, 4, 8), []
    for method in options.methods:
        group = [{"method": method, "size": scaled(options, method, 0.25) * n, "data": n} for n in counts]
        rows += run_group(group, options.repeat, cores=1)
        rows += run_group(group[:2], options.repeat, cores=2)
    return {"rows": rows}


def table_layouts(options: argparse.Namespace) -> dict[str, Any]:
    """Ways to lay the bins over eight devices."""
    layouts = [{"data": 8}, {"data": 8, "output": "sharded"}, {"data": 4, "wave": 2}, {"data": 2, "wave": 4}]
    layouts += [{"data": 1, "wave": 8}]
    rows = []
    for method in options.methods:
        group = [{"method": method, "size": scaled(options, method), **own} for own in layouts]
        rows += run_group(group[1:3] if options.quick else group, options.repeat, cores=1)
    return {"rows": rows}


def table_sizes(options: argparse.Namespace) -> dict[str, Any]:
    """More particles, spaxels and bins on one device: what the cost model is fitted to beside the others."""
    changes: list[dict[str, Any]] = [{"times": 0.02}, {"times": 4}, {"side": 10}, {"side": 50}, {"step": 5.0}]
    rows = []
    for method in options.methods:
        group = [{"method": method, "data": 1, **change} for change in changes]
        group = [{**own, "size": scaled(options, method, own.pop("times", 1))} for own in group]
        rows += run_group(group[:1] if options.quick else group, options.repeat, cores=1)
    return {"rows": rows}


def table_processes(options: argparse.Namespace) -> dict[str, Any]:
    """The same particles over processes that meet on the loopback interface, and sums of arrays over them alone."""
    rows, sums = [], []
    lengths = [1 << 12] if options.quick else [1 << 12, 1 << 18, 1 << 22, 1 << 25]
    for n in (2,) if options.quick else (1, 2, 4):
        group = [{"method": m, "size": scaled(options, m), "data": n} for m in options.methods]
        found, added = run_processes(group, n, options.repeat, lengths)
        rows, sums = rows + found, sums + added
    return {"rows": rows, "sums": sums}


def table_memory(options: argparse.Namespace) -> dict[str, Any]:
    """Bytes per device as XLA counts them, by chunk and layout; nothing is run."""
    layouts: list[dict[str, Any]] = [{"data": 1}, {"data": 8}, {"data": 8, "output": "sharded"}]
    layouts += [{"data": 4, "wave": 2}, {"data": 4, "wave": 2, "output": "replicated"}, {"data": 2, "wave": 4}]
    chunks = [{"chunk": chunk} for chunk in (64, 1024, 8192, 65536)]
    rows = []
    for method in options.methods:
        size = scaled(options, method)
        group = [{"method": method, "size": size, **own} for own in [*layouts, *({"data": 8, **c} for c in chunks)]]
        rows += run_group(group[1:3] if options.quick else group, 0)
    return {"rows": rows}


def table_files(options: argparse.Namespace) -> dict[str, Any]:
    """Reading a galaxy and writing a cube, by one process."""
    return {"rows": run_group([], options.repeat, cores=1, file_size=1000 if options.quick else 300_000)}


TABLES = {
    "strong": table_strong,
    "weak": table_weak,
    "layouts": table_layouts,
    "sizes": table_sizes,
    "processes": table_processes,
    "memory": table_memory,
    "files": table_files,
}


def changes_of(row: dict[str, Any]) -> str:
    """The layout, and what else differs from the configuration."""
    side = [f"{row['side']} x {row['side']} spaxels"] if "side" in row else []
    step = [f"bins of {row['step']} A"] if "step" in row else []
    return ", ".join([layout_of(row), *side, *step])


def layout_of(row: dict[str, Any]) -> str:
    wave = row.get("wave", 1)
    mesh = f"{row['data']}" if wave == 1 else f"{row['data']} x {wave}"
    output = row.get("output", "replicated" if wave == 1 else "sharded")
    return mesh if output == "replicated" and wave == 1 else f"{mesh}, {output}"


def show_times(title: str, rows: list[dict[str, Any]], *, per_device: bool = False) -> None:
    """Times, and ratios to the row with the fewest devices on as many cores."""
    columns = ["method", "cores", "processes", "devices", "particles", "wall s", "wall ratio", "cpu s", "cpu ratio"]
    table = []
    for row in rows:
        same = [r for r in rows if r["method"] == row["method"] and r.get("cores") == row.get("cores")]
        size = row["data"] * row.get("wave", 1) if per_device else 1
        wall, cpu = row["least_wall"] / same[0]["least_wall"], row["least_cpu"] / same[0]["least_cpu"] / size
        cells = [row["method"], row.get("cores", "all"), row.get("processes", 1), changes_of(row), row["size"]]
        table.append([*cells, row["least_wall"], wall, row["least_cpu"], cpu])
    show(title, columns, table)


def show_memory(rows: list[dict[str, Any]]) -> None:
    columns = ["method", "devices", "chunk", "arguments MB", "output MB", "working space MB"]
    table = []
    for row in rows:
        sizes = [row[f"{name}_bytes"] / 1e6 for name in KINDS]
        table.append([row["method"], layout_of(row), row.get("chunk", "default"), *sizes])
    show("Memory per device", columns, table)


def show_compile(rows: list[dict[str, Any]]) -> None:
    table = [[row["method"], layout_of(row), row["compile_wall"], row["compile_cpu"]] for row in rows]
    show("Compiling", ["method", "devices", "wall s", "cpu s"], table)


def show_all(found: dict[str, Any]) -> None:
    titles = {
        "strong": "Strong scaling: the same particles on more devices",
        "weak": "Weak scaling: as many particles per device (the processor time's ratio is per device)",
        "layouts": "Layouts over eight devices",
        "sizes": "Sizes on one device",
        "processes": "Processes on the loopback interface",
    }
    for name, title in titles.items():
        if name in found:
            show_times(title, found[name]["rows"], per_device=name == "weak")
    sums = found.get("processes", {}).get("sums", [])
    table = [[row["processes"], row["bytes"] / 1e6, 1e3 * row["least_wall"]] for row in sums]
    show("Sums over processes", ["processes", "MB", "ms"], table)
    if "memory" in found:
        show_memory(found["memory"]["rows"])
    rows = found.get("files", {}).get("rows", [])
    table = [[r["what"], r["bytes"] / 1e6, r["least_wall"], r["bytes"] / 1e6 / r["least_cpu"]] for r in rows]
    show("Files", ["work", "MB", "wall s", "MB per cpu s"], table)
    if "strong" in found:
        show_compile([row for row in found["strong"]["rows"] if row.get("cores") == 1])


def main() -> None:
    parser = described(__doc__)
    parser.add_argument("--tables", nargs="+", choices=tuple(TABLES), default=list(TABLES))
    parser.add_argument("--methods", nargs="+", choices=tuple(PER_METHOD), default=list(PER_METHOD))
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--results", type=Path, default=Path("scaling.json"), help="all figures; merged with its own")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, few rows")
    parser.add_argument("--show", action="store_true", help="measure nothing")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        worker(json.loads(options.worker))
        return
    found = json.loads(options.results.read_text()) if options.results.exists() else {}
    for name in [] if options.show else options.tables:
        found[name] = TABLES[name](options)
        options.results.write_text(json.dumps(found, indent=1))
    show_all(found)
    if {"strong", "weak", "layouts", "sizes"} <= set(found):
        show_fit(found)
        show_prediction(fitted(found))


if __name__ == "__main__":
    main()
