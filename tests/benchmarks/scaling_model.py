"""What a run costs, by counting what it does, at rates fitted to measurements or taken from data sheets.

Per device: deposits into the histogram (`basis`) or values of spectra (`direct`) for its own particles; flops and bytes
for the sums, which do not depend on the number of particles; bytes that are added up over the devices. On the virtual
devices of one machine the processor time of all devices together is modelled, on real ones the time of one.
"""

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from measuring import show
from scipy.optimize import nnls

MEASURED = Path(__file__).with_name("scaling.json")
"""The measurements that docs/scaling.md shows."""

BYTES_PER_PARTICLE = 40
"""Position, velocity, birth mass, log age, metallicity and weight in float32."""


@dataclass(frozen=True)
class Sizes:
    """A run: its particles, mesh (`n_data` x `n_part` devices), field, bins and tables.

    `n_spaxel`, `n_seen`: with and without what the PSF needs beyond the field; `gathered`: every device gets the whole
    cube; `n_painted`, `n_finished`: bins of a device while painting, and once sums are added up; `block`, `part`: of
    the detector's response (`direct`); `by_template`, `by_rows`, `responds_late`: ways that the engine chose.
    """

    method: str
    n_particle: int
    n_data: int
    n_part: int
    n_spaxel: int
    n_seen: int
    n_corner: int
    n_painted: int
    n_finished: int
    n_wave: int
    scatters: bool
    gathered: bool
    n_template: int
    n_neighbour: int
    n_node: int
    rank: int
    by_template: bool
    by_rows: bool
    n_rest: int
    block: int
    part: int
    responds_late: bool

    @property
    def n_device(self) -> int:
        return self.n_data * self.n_part

    @property
    def n_coefficient(self) -> int:
        """Columns of the histogram of coefficients: velocity nodes times basis spectra."""
        return self.n_node * self.rank

    @property
    def n_fine(self) -> int:
        """Fine bins of a device."""
        return (self.n_painted + self.block - 1) * self.part

    @property
    def projects_early(self) -> bool:
        """Whether a device projects its own sums before they are added up: they are smaller so."""
        return self.n_coefficient > self.n_painted

    @property
    def n_summed(self) -> int:
        """Columns per spaxel that are added up over "data"."""
        if self.method == "direct":
            return self.n_fine if self.responds_late else self.n_painted
        return self.n_painted if self.projects_early else self.n_coefficient


def operations(sizes: Sizes) -> dict[str, float]:
    """What one device does in a run."""
    count = direct_operations if sizes.method == "direct" else basis_operations
    summed = 4 * sizes.n_spaxel * sizes.n_summed
    added = 0.0 if sizes.n_data == 1 else summed * (1 if sizes.scatters else 2) * (sizes.n_data - 1) / sizes.n_data
    cube = 4 * sizes.n_seen * sizes.n_finished
    found = {
        "deposits": 0.0,
        "row_deposits": 0.0,
        "values": 0.0,
        "flops": 0.0,
        "bytes": 0.0,
        "sent": added,
        "runs": 1.0,
    }
    found |= count(sizes)
    found["bytes"] += 3 * cube + BYTES_PER_PARTICLE * sizes.n_particle / sizes.n_data
    return found


def direct_operations(sizes: Sizes) -> dict[str, float]:
    """A spectrum per particle; the response on the sums; the PSF on the device's bins of the cube."""
    local = sizes.n_particle / sizes.n_data
    response = 2 * sizes.n_spaxel * sizes.block * sizes.part
    response *= sizes.n_finished if sizes.responds_late else sizes.n_painted
    return {
        "values": local * sizes.n_fine,
        "flops": response + psf_flops(sizes, sizes.n_finished),
        "bytes": 4.0 * sizes.n_spaxel * (2 * sizes.n_fine + 2 * sizes.n_summed),
    }


def basis_operations(sizes: Sizes) -> dict[str, float]:
    """Deposits per particle; the product with the templates' coefficients, the PSF on them, the projection."""
    local, cells = sizes.n_particle / sizes.n_data, sizes.n_spaxel * sizes.n_node
    columns = sizes.n_template if sizes.by_template else sizes.rank
    reduction = 2.0 * cells * sizes.n_template * sizes.rank if sizes.by_template else 0.0
    late = sizes.n_finished * sizes.n_data if sizes.by_rows else sizes.n_finished
    rows = sizes.n_spaxel / sizes.n_data if sizes.by_rows else sizes.n_spaxel if sizes.projects_early else sizes.n_seen
    bins = sizes.n_painted if sizes.projects_early else late
    blurred = sizes.n_finished if sizes.projects_early or sizes.by_rows else sizes.n_coefficient
    shares = local * sizes.n_corner * 4
    return {
        "deposits": shares * sizes.n_neighbour if sizes.by_template else 0.0,
        "row_deposits": 0.0 if sizes.by_template else shares * sizes.rank,
        "flops": reduction + 2.0 * rows * sizes.n_coefficient * bins + psf_flops(sizes, blurred),
        "bytes": 8.0 * 2 * cells * columns + 4.0 * sizes.n_spaxel * (2 * sizes.n_coefficient + 2 * sizes.n_summed),
    }


def psf_flops(sizes: Sizes, columns: int) -> float:
    """A Gaussian along both sides of a square field, as two matrix products."""
    side, seen = math.sqrt(sizes.n_spaxel), math.sqrt(sizes.n_seen)
    return 2.0 * seen * side * (side + seen) * columns


def memory(sizes: Sizes) -> dict[str, float]:
    """Bytes on each device: particles, and most of them again in chunks; tables; the sums while painting, or what the
    cube is made from, whichever is more; the cube."""
    particles = 1.6 * BYTES_PER_PARTICLE * sizes.n_particle / sizes.n_data
    cells = sizes.n_spaxel * sizes.n_node
    cube = 4.0 * sizes.n_seen * (sizes.n_wave if sizes.gathered else sizes.n_finished)
    summed = 4.0 * sizes.n_spaxel * sizes.n_summed
    if sizes.method == "direct":
        tables = 4.0 * sizes.n_template * sizes.n_rest
        return {"particles": particles, "tables": tables, "sums": 12.0 * sizes.n_spaxel * sizes.n_fine, "cube": cube}
    columns = sizes.n_template if sizes.by_template else sizes.rank
    tables = 4.0 * (sizes.n_coefficient * sizes.n_painted + sizes.n_template * sizes.rank)
    histogram = min(8.0 * cells * columns, max(2.0**29, 4.0 * sizes.n_spaxel * sizes.n_painted))
    return {"particles": particles, "tables": tables, "sums": max(histogram + summed, cube), "cube": cube}


@dataclass(frozen=True)
class Rates:
    """Seconds per operation of a method."""

    deposits: float
    row_deposits: float
    values: float
    flops: float
    bytes: float
    sent: float
    runs: float

    def seconds(self, sizes: Sizes) -> float:
        """Of one device."""
        return sum(getattr(self, name) * number for name, number in operations(sizes).items())


FITTED_TABLES = ("strong", "weak", "layouts", "sizes")


def fitted_rows(found: dict[str, Any], method: str) -> list[tuple[Sizes, float]]:
    """(sizes, processor seconds of all devices) of every measured row on one core."""
    rows = [row for name in FITTED_TABLES for row in found[name]["rows"]]
    chosen = [row for row in rows if row["method"] == method and row["cores"] == 1]
    return [(Sizes(**row["sizes"]), row["least_cpu"]) for row in chosen]


def fitted(found: dict[str, Any]) -> dict[str, Rates]:
    """Non-negative rates of one core with the smallest relative errors."""
    result = {}
    for method in ("basis", "direct"):
        rows = fitted_rows(found, method)
        names = [field.name for field in dataclasses.fields(Rates)]
        counts = np.array([[sizes.n_device * operations(sizes)[name] for name in names] for sizes, _ in rows])
        scale = np.maximum(counts.max(axis=0), 1.0)
        seconds = np.array([seconds for _, seconds in rows])
        rates = nnls(counts / scale / seconds[:, None], np.ones(len(rows)))[0] / scale
        result[method] = Rates(**dict(zip(names, rates.tolist(), strict=True)))
    return result


def errors(found: dict[str, Any], method: str) -> np.ndarray:
    """Modelled over measured processor time, minus 1, of every row."""
    rates = fitted(found)[method]
    return np.array([size.n_device * rates.seconds(size) / seconds - 1 for size, seconds in fitted_rows(found, method)])


def show_fit(found: dict[str, Any]) -> None:
    names = [field.name for field in dataclasses.fields(Rates)]
    rates = fitted(found)
    table = [[method, *(getattr(own, name) for name in names)] for method, own in rates.items()]
    show("Seconds of one core per operation", ["method", *names], table)
    table = []
    for method in rates:
        off = np.abs(errors(found, method))
        table.append([method, len(off), float(np.median(off)), float(off.max())])
    show("Modelled against measured processor time", ["method", "rows", "median error", "largest"], table)


@dataclass(frozen=True)
class Machine:
    """Real accelerators: rates per device and second."""

    n_device: int
    deposits: float
    row_deposits: float
    values: float
    flops: float
    bytes: float
    link: float
    hop: float
    read: float
    converted: float
    centred: float
    copied: float
    written: float
    memory: float


H100 = Machine(
    n_device=64,
    deposits=5e9,
    row_deposits=2e10,
    values=2e11,
    flops=0.5 * 67e12,
    bytes=0.6 * 3.35e12,
    link=0.7 * 50e9,
    hop=10e-6,
    read=1e9,
    converted=0.7e-6,
    centred=6.0,
    copied=25e9,
    written=1e9,
    memory=80e9,
)
"""64 H100 SXM, 8 in each node. Data sheets: 67 TFLOP/s in float32, 3.35 TB/s, 80 GB (NVIDIA H100), NDR InfiniBand with
400 Gbit/s for each GPU; NVLink (450 GB/s each way) is faster, so the network between nodes decides. Assumed: the shares
of those rates, atomic additions of 64 bits at random places (5e9/s) and in rows (2e10/s), values of spectra (2e11/s), a
hop; each process has a GPU, reads 1 GB/s, takes 0.7 us of its host per particle and pass and 6 s to find the centre
(as the measured machine does), copies 25 GB/s to the device, and writes 1 GB/s where it writes."""


N_PASSES = 3
"""Over the file: two for the bulk velocity, one to paint."""


def predicted(sizes: Sizes, machine: Machine = H100, bytes_in_file: int = 52) -> dict[str, float]:
    """Seconds by part, one after the other, of a run that is compiled already."""
    did = operations(sizes)
    hops = 2 * math.ceil(math.log2(max(sizes.n_device, 2)))
    cube = 4.0 * sizes.n_seen * sizes.n_wave
    n_writer = sizes.n_device if sizes.scatters or sizes.n_part > 1 else 1
    read = sizes.n_particle / sizes.n_data * (bytes_in_file / machine.read + machine.converted)
    return {
        "reading": N_PASSES * read,
        "centre": machine.centred,
        "placing": BYTES_PER_PARTICLE * sizes.n_particle / sizes.n_data / machine.copied,
        "painting": sum(did[name] / getattr(machine, name) for name in ("deposits", "row_deposits", "values")),
        "sums": did["bytes"] / machine.bytes + did["flops"] / machine.flops,
        "adding up": did["sent"] / machine.link + hops * machine.hop,
        "writing": cube / n_writer / machine.written,
    }


CASES = {
    "basis, 25 x 25, replicated": ("basis", 25, 1, False),
    "basis, 300 x 300, replicated": ("basis", 300, 1, False),
    "basis, 300 x 300, sharded": ("basis", 300, 1, True),
    "basis, 300 x 300, wave 8": ("basis", 300, 8, True),
    "direct, 25 x 25, replicated": ("direct", 25, 1, False),
    "direct, 300 x 300, wave 8": ("direct", 300, 8, True),
}


def case(method: str, side: int, n_part: int, sharded: bool, n_particle: int = 10**9, n_device: int = 64) -> Sizes:
    """MUSE's 3681 bins by bc03-miles at the default tolerance: 96 basis spectra, 27 velocity nodes, 1326 templates."""
    n_wave, rank, n_node = 3681, 96, 27
    n_data = n_device // n_part
    n_painted = math.ceil(n_wave / n_part)
    n_finished = math.ceil(n_wave / n_device) if sharded else n_painted
    basis = method == "basis"
    n_coefficient = n_node * rank
    return Sizes(
        method=method,
        n_particle=n_particle,
        n_data=n_data,
        n_part=n_part,
        n_spaxel=(side + 14) ** 2,
        n_seen=side * side,
        n_corner=1,
        n_painted=n_painted,
        n_finished=n_finished,
        n_wave=n_wave,
        scatters=sharded,
        gathered=not sharded,
        n_template=1326,
        n_neighbour=4,
        n_node=n_node if basis else 0,
        rank=rank if basis else 0,
        by_template=basis and side <= 50,
        by_rows=basis and sharded and n_finished < n_coefficient <= n_painted,
        n_rest=6000,
        block=13,
        part=2,
        responds_late=not sharded,
    )


def show_prediction(rates: dict[str, Rates]) -> None:
    """For 1e9 particles, and what changes where the scatter is slower or faster."""
    table = []
    for name, own in CASES.items():
        sizes = case(*own)
        parts, room = predicted(sizes), memory(sizes)
        table.append([name, *parts.values(), sum(parts.values()), *(number / 1e9 for number in room.values())])
    parts = ["reading", "centre", "placing", "painting", "sums", "adding up", "writing", "all"]
    columns = ["case", *(f"{part} s" for part in parts), *(f"{r} GB" for r in ("particles", "tables", "sums", "cube"))]
    show("1e9 particles on 64 GPUs, predicted", columns, table)
    table = []
    for rate in (5e8, 5e9, 5e10):
        machine = dataclasses.replace(H100, deposits=rate, row_deposits=4 * rate, values=40 * rate)
        painting = [predicted(case(*own), machine)["painting"] for own in CASES.values()]
        table.append([f"{rate:.0e}", *painting])
    show(
        "Seconds of painting, by random additions per second (in rows 4 times, values 40 times as many)",
        ["rate", *CASES],
        table,
    )
    for method, own in rates.items():
        one = dataclasses.replace(case(method, 25, 1, False, n_device=1), by_template=method == "basis")
        print(f"\none core of the measured machine, {method}: {own.seconds(one) / 3600:.3g} h for the same particles")


def stored() -> dict[str, Any]:
    return json.loads(MEASURED.read_text())
