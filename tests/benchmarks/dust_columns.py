"""Table of columns of dust against an exact sum over kernels, and of their time: real galaxies and a clumpy disc.

    python tests/benchmarks/dust_columns.py --data ../shared/data/galaxies [--cells 128,256] [--clumpy 1e4,1e6]
    python tests/benchmarks/dust_columns.py --before FILE [--data FOLDER] [--clumpy 1e4,1e6]
    python tests/benchmarks/dust_columns.py --synthesizer PYTHON [--cells 256] [--clumpy 1e4,1e5,1e6]

A(V) is 4.9 mag per Msun/pc2, of stars with more than 0.05 mag. `wide`: only gas whose smoothing length is at least 4
cells, in both sums. `ratio`: median of the column over the exact one; `error`: median of its absolute relative error,
`bias`: of the mean A(V); `transmission`: mean absolute error of 10^(-0.4 A(V)). `s`: processor seconds of all threads
for sums, running sums and columns of all stars, the least of three. GIZMO's gas has lengths and metallicities of its
own; that of TNG100 gets the distance to its 32nd neighbour and Z = 0.02, and the clumpy disc has half of its gas in
clumps of 150 pc.

With --before the same columns are found by the `Pyramid` of FILE, an earlier version of the module (git show
COMMIT:rubix_like/forward/fields/pyramid.py), and by this one, in turns. `rms` is the error relative to the column where
that is above a tenth of the largest, `worst` the largest error over the largest column, `time` the ratio of processor
seconds (least of three each). Beside the galaxies there are single clouds, regular lattices and sparse gas.

With --synthesizer the columns of the clumpy disc are compared with those that Synthesizer's tree finds for the same
particles and kernel: PYTHON is an interpreter that has it (pip install cosmos-synthesizer, in an environment of its
own). `tree s` are its processor seconds in one thread.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import h5py
import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial import cKDTree

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "physics"))

from kernel_columns import exact_columns

from rubix_like import Gas
from rubix_like.engine.cost import rates_here
from rubix_like.engine.kernels.kernel import build_kernel, sum_deposits
from rubix_like.extend import Factors, Footprint
from rubix_like.forward.fields.dust_column import Pyramid

A_V = 4.9e-6
"""mag per Msun / kpc^2."""

N_EXACT = 10_000
"""Stars whose columns are summed exactly."""


class Case(NamedTuple):
    """Stars and dust on the sky, kpc and Msun; `half`: half the side of the field."""

    name: str
    stars: np.ndarray
    gas: np.ndarray
    dust: np.ndarray
    length: np.ndarray
    half: float


def tilted(case: Case, inclination: float) -> Case:
    """The same, turned about the x axis."""
    cosine, sine = np.cos(np.deg2rad(inclination)), np.sin(np.deg2rad(inclination))
    turn = np.array([[1, 0, 0], [0, cosine, -sine], [0, sine, cosine]])
    return case._replace(name=f"{case.name}, {inclination:g} deg", stars=case.stars @ turn.T, gas=case.gas @ turn.T)


def gizmo(folder: Path) -> Case:
    """The isolated disc, its axes along the box's."""
    with h5py.File(folder / "gizmo_isolated_C16.hdf5") as file:
        gas = file["PartType0"]
        position, mass, length = (gas[name][:] for name in ("Coordinates", "Masses", "SmoothingLength"))
        metals = gas["Metallicity"][:, 0]
        stars = np.concatenate([file[kind]["Coordinates"][:] for kind in ("PartType2", "PartType4")])
    centre = np.median(stars, axis=0)
    dust = 0.4 * metals * mass.astype(float) * 1e10
    return Case("GIZMO disc", stars - centre, position - centre, dust, length.astype(float), 12.0)


def tng(folder: Path) -> Case:
    """TNG100-1 394242, its gas with assumed metals and the lengths of neighbours."""
    with h5py.File(folder / "tng100_394242_kinematics.h5") as file:
        stars, gas = (np.stack([file[kind][axis][:] for axis in "xyz"], axis=1) for kind in ("stars", "gas"))
        mass = file["gas"]["m"][:].astype(float)
    centre = np.median(stars, axis=0)
    length = cKDTree(gas).query(gas, k=33)[0][:, -1]
    return Case("TNG100 394242", stars - centre, gas - centre, 0.4 * 0.02 * mass, length, 20.0)


def clumpy(count: int) -> Case:
    """An exponential disc of dust, half of it in clumps, and an older disc of stars."""
    rng = np.random.default_rng(1)

    def disc(scale: float, height: float) -> np.ndarray:
        radius, angle = rng.gamma(2.0, scale, count), rng.uniform(0, 2 * np.pi, count)
        z = height * np.arctanh(rng.uniform(-0.9999, 0.9999, count))
        return np.stack([radius * np.cos(angle), radius * np.sin(angle), z], axis=1)

    gas, stars = disc(4.0, 0.2), disc(2.5, 0.4)
    centres = gas[rng.integers(0, count, max(count // 300, 1))]
    inside = rng.uniform(size=count) < 0.5
    n_inside = int(inside.sum())
    gas[inside] = centres[rng.integers(0, len(centres), n_inside)] + rng.normal(0, 0.15, (n_inside, 3))
    length = np.maximum(cKDTree(gas).query(gas, k=33, workers=-1)[0][:, -1], 0.02)
    return Case(f"clumpy disc, {count:.0e}".replace("e+0", "e"), stars, gas, np.full(count, 4e7 / count), length, 15.0)


def columns(pyramid: Pyramid, case: Case) -> tuple[np.ndarray, float]:
    """Columns in front of all stars (Msun / kpc^2), and the processor seconds that they take."""
    n_cell, chunk, kernel = pyramid.levels.n_cell, rates_here().chunk, build_kernel("auto")

    def contribute(gas: Gas) -> tuple[tuple[Factors], tuple[()]]:
        cell, amount = pyramid.parts(gas.position, gas.smoothing_length, gas.dust_mass * gas.weight)
        one = jnp.ones((len(cell), 1), amount.dtype)
        return (Factors(cell, amount, one, one),), ()

    @jax.jit
    def found(gas: Gas, stars: jax.Array) -> jax.Array:
        (sums,), _ = sum_deposits(contribute, gas, kernel, ((n_cell + 1, 1),), (), chunk, jnp.float32)
        return pyramid.in_front(sums[:n_cell, 0]).at(stars)

    one = np.ones(len(case.gas))
    gas = Gas(case.gas, case.gas, one, one, smoothing_length=case.length, dust_mass=case.dust, weight=one)
    placed = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), (gas, case.stars))
    out, seconds = timed(lambda: jax.block_until_ready(found(*placed)))
    return np.asarray(out, dtype=float), seconds


def timed(call: Callable[[], jax.Array]) -> tuple[jax.Array, float]:
    """What a call returns, and the least processor seconds of three."""
    out, seconds = call(), []
    for _ in range(3):
        start = time.process_time()
        out = call()
        seconds.append(time.process_time() - start)
    return out, min(seconds)


def row(case: Case, cells: int, chosen: np.ndarray, *, wide: bool) -> str:
    """One row of the table."""
    pyramid = Pyramid.over(Footprint(1, 1, jnp.float32(2 * case.half)), cells, "cic")
    if wide:
        own = case.length >= 4 * 2 * case.half / cells
        case = case._replace(gas=case.gas[own], dust=case.dust[own], length=case.length[own])
    found, seconds = columns(pyramid, case)
    found = found[chosen] * A_V
    truth = exact_columns(case.stars[chosen], case.gas, case.dust, case.length) * A_V
    dim = truth > 0.05
    named = f"| {case.name} | {cells} | {'wide' if wide else 'all'} | {len(case.gas)} | {np.median(truth):.2f} |"
    if not dim.any():
        return f"{named} | | | | {seconds:.2g} |"
    ratio = found[dim] / truth[dim]
    bias = found[dim].mean() / truth[dim].mean() - 1
    lost = np.abs(10 ** (-0.4 * found) - 10 ** (-0.4 * truth)).mean()
    return (
        f"{named} {np.median(ratio):.3f} | {100 * np.median(np.abs(ratio - 1)):.1f} % | {100 * bias:+.1f} % | "
        f"{lost:.4f} | {seconds:.2g} |"
    )


def by_tree(case: Case, python: str) -> tuple[np.ndarray, float]:
    """The columns that Synthesizer's tree finds (Msun / kpc^2), and its processor seconds."""
    script = Path(__file__).with_name("synthesizer_columns.py")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(source, stars=case.stars, gas=case.gas, dust=case.dust, length=case.length)
        environment = {**os.environ, "SYNTHESIZER_DIR": folder, "PYTHONPATH": ""}
        subprocess.run([python, script, source, target], env=environment, check=True, stdout=subprocess.DEVNULL)
        with np.load(target) as data:
            return data["columns"], float(data["seconds"])


def tree_row(case: Case, cells: int, python: str) -> str:
    """One row of the table beside Synthesizer."""
    found, seconds = columns(Pyramid.over(Footprint(1, 1, jnp.float32(2 * case.half)), cells, "cic"), case)
    truth, tree_seconds = by_tree(case, python)
    dim = (truth * A_V > 0.05) & (np.abs(case.stars[:, :2]) < 0.97 * case.half).all(axis=1)
    ratio = found[dim] / truth[dim]
    low, middle, high = np.percentile(ratio, [10, 50, 90])
    return (
        f"| {case.name} | {cells} | {middle:.3f} | {low:.2f}-{high:.2f} | {seconds:.2g} | {tree_seconds:.2g} | "
        f"{tree_seconds / seconds:.2g} |"
    )


def beside_tree(cases: Iterable[Case], cells: Iterable[int], python: str) -> None:
    """Print the table beside Synthesizer."""
    print("| galaxy | cells | ratio | 10-90 % | s | tree s | tree s / s |")
    print("|---|---|---|---|---|---|---|")
    for case in cases:
        for number in cells:
            print(tree_row(case, number, python), flush=True)


def table(cases: Iterable[Case], cells: Iterable[int]) -> list[str]:
    """The rows of all cases."""
    rows = []
    for case in cases:
        inside = np.flatnonzero((np.abs(case.stars[:, :2]) < 0.97 * case.half).all(axis=1))
        rng = np.random.default_rng(0)
        chosen = inside if len(inside) <= N_EXACT else rng.choice(inside, N_EXACT, replace=False)
        for number in cells:
            for wide in (False, True):
                rows.append(row(case, number, chosen, wide=wide))
                print(rows[-1], flush=True)
    return rows


def clouds(least: float, most: float) -> Case:
    """Single clouds anywhere on 128 cells, of lengths (cells) between these, and stars behind them."""
    rng, n = np.random.default_rng(4), int(128 // (2 * most + 2))
    line = (np.arange(n) - 0.5 * (n - 1)) * (2 * most + 2)
    places = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2) + rng.uniform(-1, 1, (n**2, 2))
    length = np.exp(rng.uniform(np.log(least), np.log(most), n**2))
    radius, angle = length[:, None] * rng.uniform(0, 1, (n**2, 400)) ** 0.5, rng.uniform(0, 2 * np.pi, (n**2, 400))
    x, y = places[:, :1] + radius * np.cos(angle), places[:, 1:] + radius * np.sin(angle)
    stars = np.stack([x, y, np.full_like(x, 900.0)], axis=-1).reshape(-1, 3)
    return Case(f"clouds of {least:g}-{most:g} cells", stars, np.insert(places, 2, 0, axis=1), length**2, length, 64.0)


def lattice(length: float) -> Case:
    """A slab of six layers of gas of a length (cells of 128), 0.675 lengths apart, and stars behind it."""
    rng, between = np.random.default_rng(5), 0.675 * length
    n = int(192 / between)
    line = (np.arange(n) - 0.5 * (n - 1)) * between
    gas = np.stack(np.meshgrid(line, line, (np.arange(6) - 2.5) * between), axis=-1).reshape(-1, 3)
    stars = np.insert(rng.uniform(-62, 62, (N_EXACT, 2)), 2, 900.0, axis=1)
    return Case(f"lattice of {length:g} cells", stars, gas, np.ones(len(gas)), np.full(len(gas), length), 64.0)


def sparse() -> Case:
    """Sixty wide particles, and stars among and behind them."""
    rng = np.random.default_rng(1)
    gas, length = rng.normal(size=(60, 3)) * [30, 30, 8], rng.uniform(16, 32, 60)
    stars = rng.uniform(-62, 62, (N_EXACT, 3)) + np.array([0, 0, 40])
    return Case("60 particles of 16-32 cells", stars, gas, np.ones(60), length, 64.0)


def versions(cases: Iterable[tuple[Case, int]], file: Path) -> None:
    """Print the table of this module and an earlier one, in turns on the same particles."""
    spec = importlib.util.spec_from_file_location("earlier", file)
    earlier = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(earlier)
    print("| particles | cells | rms before | rms | worst before | worst | time |")
    print("|---|---|---|---|---|---|---|")
    for case, cells in cases:
        inside = np.flatnonzero((np.abs(case.stars[:, :2]) < 0.97 * case.half).all(axis=1))
        chosen = np.random.default_rng(0).permutation(inside)[:N_EXACT]
        truth = exact_columns(case.stars[chosen], case.gas, case.dust, case.length)
        high, rms, worst, times = truth > 0.1 * truth.max(), [], [], []
        for kind in (earlier.Pyramid, Pyramid):
            pyramid = kind.over(Footprint(1, 1, jnp.float32(2 * case.half)), cells, "cic")
            found, seconds = columns(pyramid, case)
            error = found[chosen] - truth
            rms.append(100 * np.sqrt(np.mean((error[high] / truth[high]) ** 2)))
            worst.append(100 * np.abs(error).max() / truth.max())
            times.append(seconds)
        shown = f"{rms[0]:.1f} % | {rms[1]:.1f} % | {worst[0]:.0f} % | {worst[1]:.0f} %"
        print(f"| {case.name} | {cells} | {shown} | {times[1] / times[0]:.2f} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the real galaxies")
    parser.add_argument("--cells", default="128,256", help="cells on a side")
    parser.add_argument("--clumpy", default="1e4,1e6", help="particles of the clumpy disc")
    parser.add_argument("--before", metavar="FILE", type=Path, help="an earlier version of the module, to compare with")
    parser.add_argument("--synthesizer", metavar="PYTHON", help="an interpreter that has Synthesizer, to compare with")
    arguments = parser.parse_args()
    cells = [int(own) for own in arguments.cells.split(",")]
    counts = [int(float(own)) for own in arguments.clumpy.split(",")] if arguments.clumpy else []
    turned = [tilted(clumpy(own), 60.0) for own in counts]
    if arguments.synthesizer:
        beside_tree(turned, cells, arguments.synthesizer)
        return
    real = [gizmo(arguments.data), tng(arguments.data)] if arguments.data else []
    galaxies = [*(tilted(case, angle) for case in real for angle in (0.0, 60.0)), *turned]
    if arguments.before:
        small = [*(clouds(*lengths) for lengths in ((2, 4), (4, 8), (8, 16))), *map(lattice, (4, 5, 7, 12)), sparse()]
        versions([*((case, 128) for case in small), *((case, cells[-1]) for case in galaxies)], arguments.before)
        return
    print("| galaxy | cells | gas | particles | median A(V) | ratio | error | bias | transmission | s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    table(galaxies, cells)


if __name__ == "__main__":
    main()
