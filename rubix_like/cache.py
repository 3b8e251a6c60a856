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
    engine = [size for _, size, _ in disk_cache.stored()]
    kinds = (
        ("engine", "basis spectra and projection matrices", engine, disk_cache.LIMIT_BYTES),
        ("compiled", "compiled programs", _sizes(_compiled_files()), COMPILED_LIMIT_BYTES),
        ("ssp", "SSP libraries (kept by `cache clear`)", _sizes(list((cache_directory() / "ssp").glob("*.h5"))), None),
    )
    lines = [f"folder      {cache_directory()}"]
    for name, text, sizes, limit in kinds:
        most = "" if limit is None else f" of at most {format_bytes(limit)}"
        lines.append(
            f"{name:<11} {len(sizes)} file{'' if len(sizes) == 1 else 's'}, {format_bytes(sum(sizes))}{most}: {text}"
        )
    return lines


def clear_cache() -> tuple[int, int]:
    """Removes what can be made again without a network; returns the number of files and bytes."""
    n_files, n_bytes = disk_cache.clear()
    compiled = _compiled_files()
    sizes = _sizes(compiled)
    for path in compiled:
        path.unlink(missing_ok=True)
    return n_files + len(sizes), n_bytes + sum(sizes)


def _compiled_files() -> list[Path]:
    """The programs; JAX's lock and the times of last use beside them are left alone."""
    return list(compiled_folder().glob("*-cache"))


def _sizes(paths: list[Path]) -> list[int]:
    """Bytes of the files that are still there."""
    sizes = []
    for path in paths:
        try:
            sizes.append(path.stat().st_size)
        except OSError:  # removed by another process
            continue
    return sizes
