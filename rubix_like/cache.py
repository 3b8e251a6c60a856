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
    kinds = (
        ("engine", "basis spectra and projection matrices", _engine_sizes(), disk_cache.LIMIT_BYTES),
        ("compiled", "compiled programs", _sizes(compiled_folder()), COMPILED_LIMIT_BYTES),
        ("ssp", "SSP libraries (kept by `cache clear`)", _sizes(cache_directory() / "ssp"), None),
    )
    lines = [f"folder      {cache_directory()}"]
    for name, text, sizes, limit in kinds:
        most = "" if limit is None else f" of at most {format_bytes(limit)}"
        lines.append(f"{name:<11} {len(sizes)} files, {format_bytes(sum(sizes))}{most}: {text}")
    return lines


def clear_cache() -> tuple[int, int]:
    """Removes what can be made again without a network; returns the number of files and bytes."""
    n_files, n_bytes = disk_cache.clear()
    compiled = _sizes(compiled_folder())
    for path in _files(compiled_folder()):
        path.unlink(missing_ok=True)
    return n_files + len(compiled), n_bytes + sum(compiled)


def _engine_sizes() -> list[int]:
    return [size for _, size, _ in disk_cache.stored()]


def _sizes(folder: Path) -> list[int]:
    return [path.stat().st_size for path in _files(folder)]


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*") if path.is_file()]
