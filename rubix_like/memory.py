"""How much memory a compiled run needs, and whether there is that much."""

from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from rubix_like.errors import ConfigError

_MEMINFO = Path("/proc/meminfo")


def needed_memory(compiled: Any) -> int:
    """Bytes on each device: arguments, results and working space of a compiled computation, as XLA counts them."""
    analysis = compiled.memory_analysis()
    return analysis.argument_size_in_bytes + analysis.output_size_in_bytes + analysis.temp_size_in_bytes


def available_memory() -> int | None:
    """Bytes that the host can give (Linux: MemAvailable); None where that is not known."""
    if not _MEMINFO.exists():
        return None
    fields = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024


def check_memory(compiled: Any, mesh: Mesh) -> None:
    """Raise ConfigError where a run on this host's processors needs more memory than there is, before it starts."""
    available = available_memory()
    if available is None or mesh.devices.flat[0].platform != "cpu":
        return
    needed = needed_memory(compiled) * mesh.size
    if needed > available:
        raise ConfigError(
            f"memory: expected at most {format_bytes(available)} (what is available), the run needs "
            f"{format_bytes(needed)}; make instrument.fov smaller, use fewer devices.data or a coarser instrument"
        )


def format_bytes(number: int | None) -> str:
    """`"1.2 GB"`; "unknown" for None."""
    if number is None:
        return "unknown"
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number / 1e3:.1f} kB"
