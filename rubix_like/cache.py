"""What is kept on disk between runs, all of it together: what it holds, and how to empty it."""

from pathlib import Path

from rubix_like import disk_cache
from rubix_like.memory import format_bytes
from rubix_like.resources import cache_directory

COMPILED_LIMIT_BYTES: int = 500_000_000
"""JAX removes the least recently used compiled programs so that no more than this is kept."""


def compiled_folder() -> Path:
    """Where JAX keeps compiled programs for the command line."""
    return cache_directory() / "compiled"


def cache_lines() -> list[str]:
    """What `rubix-like cache info` prints: folder, and number, size and limit of the files of each kind."""
    libraries = disk_cache.entries_of(cache_directory() / "ssp", "*.h5")
    kinds = (
        ("engine", "basis spectra and projection matrices", disk_cache.stored(), disk_cache.LIMIT_BYTES),
        ("compiled", "compiled programs", _programs(), COMPILED_LIMIT_BYTES),
        ("ssp", "SSP libraries (kept by `cache clear`)", libraries, None),
    )
    lines = [f"folder      {cache_directory()}"]
    for name, text, entries, limit in kinds:
        size = format_bytes(sum(size for _, size, _ in entries))
        most = "" if limit is None else f" of at most {format_bytes(limit)}"
        lines.append(f"{name:<11} {len(entries)} file{'' if len(entries) == 1 else 's'}, {size}{most}: {text}")
    return lines


def clear_cache() -> tuple[int, int]:
    """Removes what can be made again without a network; returns the number of files and bytes."""
    (n_arrays, array_bytes), (n_programs, program_bytes) = disk_cache.clear(), disk_cache.remove(_programs())
    return n_arrays + n_programs, array_bytes + program_bytes


def _programs() -> list[tuple[Path, int, float]]:
    """JAX's compiled programs; its lock and the times of last use beside them are left alone."""
    return disk_cache.entries_of(compiled_folder(), "*-cache")
