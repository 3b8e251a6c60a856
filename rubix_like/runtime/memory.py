"""How much memory a run needs, and whether there is that much."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rubix_like.errors import ConfigError
from rubix_like.runtime.exit_codes import MEMORY_REMEDY
from rubix_like.runtime.words import format_bytes

if TYPE_CHECKING:
    from jax.sharding import Mesh

BYTES_PER_VOXEL: int = 12
"""Least that a cube takes on the host: its flux, its mask and the light that it is made from, 4 bytes each."""

_MEMINFO = Path("/proc/meminfo")
_STATUS = Path("/proc/self/status")

_IDLE_BYTES = 350_000_000
"""What Python with the package, JAX and an SSP library takes on the host."""

_COMPILED_BYTES = 225_000_000
"""What planning and compiling a run takes beside that."""


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that a compiled run takes on each device, and at its peak on the host (which holds the CPU's devices)."""

    device: int
    host: int


def memory_need(compiled: Any, mesh: "Mesh", mask_and_writing_bytes: int) -> MemoryNeed:
    """Memory of a compiled run on the devices, and of this process on the host: the run, then its result, the mask and
    the writing, block by block."""
    return need_of(
        device_bytes(compiled), compiled.memory_analysis().output_size_in_bytes, mesh, mask_and_writing_bytes
    )


def device_bytes(compiled: Any) -> int:
    """Arguments, results and working space of a compiled function on each device, as XLA counts them."""
    analysis = compiled.memory_analysis()
    needed = analysis.argument_size_in_bytes + analysis.output_size_in_bytes + analysis.temp_size_in_bytes
    return needed - analysis.alias_size_in_bytes


def need_of(device: int, result: int, mesh: "Mesh", mask_and_writing_bytes: int, reading: int = 0) -> MemoryNeed:
    """The need of a run that takes `device` bytes on each device, ends with `result` bytes there, and takes `reading`
    bytes on the host while it lasts."""
    if not _is_host(mesh):
        return MemoryNeed(device, max(reading, result + mask_and_writing_bytes))
    n_own = len(mesh.local_devices)
    return MemoryNeed(device, max(device * n_own + reading, result * n_own + mask_and_writing_bytes))


def available_memory() -> int | None:
    """Bytes that the host can give (Linux: MemAvailable, within the limits of control groups); None where that is not
    known."""
    if not _MEMINFO.exists():
        return None
    fields = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) * 1024
    allowed = free_memory()
    return available if allowed is None else min(available, allowed)


def making_bytes(n_particles: int, itemsize: int) -> int:
    """Peak memory on the host of making so many synthetic particles, in numbers of `itemsize` bytes: the base
    draws (nine of 8 bytes), and twenty numbers each."""
    return n_particles * (130 + 20 * itemsize)


def check_making(n_particles: int, itemsize: int) -> None:
    """Raise ConfigError where so many synthetic particles cannot be made: to be called before they are."""
    needed = making_bytes(n_particles, itemsize)
    made = f"making {n_particles} synthetic particles takes {format_bytes(needed)}"
    _require(needed, f"{made}; set galaxy.n_stars or n_gas lower")


def process_bytes(need: MemoryNeed, making: int | None) -> int:
    """Peak memory of a whole process on the host: Python, JAX and compiled programs beside the compiled run, or
    while `making` bytes of particles are made (None: they were read in this process; what it has taken so far)."""
    lines = _STATUS.read_text().splitlines() if _STATUS.exists() else []
    peak = 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    loading = peak if making is None else _IDLE_BYTES + making
    return max(loading, _IDLE_BYTES + _COMPILED_BYTES + need.host)


def check_cube_fits(n_x: int, n_y: int, n_wave: int, n_processes: int = 1) -> None:
    """Raise ConfigError where not even the bare cube fits into memory: to be called before anything is planned.

    `n_processes`: each of so many holds its part of the bins.
    """
    needed = BYTES_PER_VOXEL * n_x * n_y * n_wave // n_processes
    where = f" in each of {n_processes} processes" if n_processes > 1 else ""
    cube = f"a cube of {n_x} x {n_y} spaxels x {n_wave} bins"
    _require(needed, f"{cube} takes at least {format_bytes(needed)}{where}; {MEMORY_REMEDY}")


def fits_memory(need: MemoryNeed) -> bool:
    """Whether the host has as much memory as a compiled run takes, so far as is known."""
    available = available_memory()
    return available is None or need.host <= available


def check_memory(need: MemoryNeed, mesh: "Mesh") -> None:
    """Raise ConfigError where the host has less memory than a compiled run takes, before it starts."""
    fewer = ", devices.data fewer" if _is_host(mesh) and mesh.size > 1 else ""
    _require(need.host, f"the run takes {format_bytes(need.host)}; {MEMORY_REMEDY}{fewer}")


def _is_host(mesh: "Mesh") -> bool:
    return mesh.devices.flat[0].platform == "cpu"


def _require(needed: int, came: str) -> None:
    available = available_memory()
    if available is not None and needed > available:
        raise ConfigError(f"memory: expected at most {format_bytes(available)} (what is available), but {came}")


_MEMBERSHIP = Path("/proc/self/cgroup")

_ROOT = Path("/sys/fs/cgroup")

_NO_LIMIT = 1 << 60


def free_memory(membership: Path = _MEMBERSHIP, root: Path = _ROOT) -> int | None:
    """Bytes that all groups of this process have left, files that can be dropped included; None without a limit.

    Version 2 of the control groups (memory.max) and version 1 (memory.limit_in_bytes); `membership` is the file that
    names the groups, `root` where they are mounted.
    """
    rooms = map(_room, _groups(membership, root))
    return min((room for room in rooms if room is not None), default=None)


def _groups(membership: Path, root: Path) -> Iterator[Path]:
    """Folders of the groups that limit memory, each with those above it; in a container only the mounted root."""
    if not membership.exists():
        return
    for line in membership.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = root / "memory" if controllers else root
        inner = top / path.lstrip("/")
        yield from (group for group in (inner, *inner.parents) if group.is_relative_to(top) and group.is_dir())


def _room(group: Path) -> int | None:
    for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        bound = _number(group / limit)
        current = _number(group / used)
        if bound is not None and current is not None and bound < _NO_LIMIT:
            statistics = group / "memory.stat"
            lines = statistics.read_text().splitlines() if statistics.exists() else []
            fields = dict(line.split() for line in lines)
            dropped = fields.get("total_inactive_file", fields.get("inactive_file", 0))  # when there is need
            return max(bound - current + int(dropped), 0)
    return None


def _number(path: Path) -> int | None:
    """The number in a file; None without it, and for 'max'."""
    if not path.exists():
        return None
    text = path.read_text().strip()
    return int(text) if text.isdigit() else None
