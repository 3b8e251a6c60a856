"""Arrays that took long to work out, kept on disk under the hash of what they were made from.

Nothing depends on it: a file that is missing or damaged is made again, a folder that cannot be written is left alone.
"""

import hashlib
import io
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from rubix_like.runtime.files.outputs import replacing
from rubix_like.runtime.resources import cache_directory
from rubix_like.runtime.words import counted, format_bytes
from rubix_like.version import __version__

LIMIT_BYTES: int = 2_000_000_000
"""The least recently used files are removed so that no more than this is kept."""

_LAYOUT = "6"
"""Part of every key, with the version: to be raised when what is stored, or how it is worked out, changes."""

_ARCHIVE = b"PK\x03\x04"
_HASH_BYTES = 32

_PROGRAM = re.compile(r".+-[0-9a-f]{64}-cache")
"""JAX's names of compiled programs."""

_LOG = logging.getLogger("rubix_like")


def key_of(*parts: Any) -> str:
    """`digest_of` for what is stored: another one for each version of the package and of what is stored."""
    return digest_of(*parts, start=f"{_LAYOUT} {__version__};", size=20)


def digest_of(*parts: Any, start: str = "", size: int = 6) -> str:
    """The hash of arrays (values, shapes and types) and of anything else by its text, in `size` bytes as hex digits."""
    digest = hashlib.blake2b(start.encode(), digest_size=size)
    for part in parts:
        if isinstance(part, ndarray):
            digest.update(f"{part.shape} {part.dtype.str};".encode())
            digest.update(np.ascontiguousarray(part).view(np.uint8).data)
        else:
            digest.update(f"{part!r};".encode())
    return digest.hexdigest()


def remembered(
    kind: str, key: str, names: Sequence[str], make: Callable[[], Mapping[str, ndarray]]
) -> Mapping[str, ndarray]:
    """The arrays called `names` stored under `key`, or else those that `make` gives, which are then stored."""
    path = folder() / f"{kind}-{key}.npz"
    arrays: Mapping[str, ndarray] | None = _load(path, names)
    if arrays is None:
        arrays = make()
        _store(path, arrays)
    return arrays


def folder() -> Path:
    """The folder of the files."""
    return cache_directory() / "engine"


def stored() -> list[tuple[Path, int, float]]:
    """(path, bytes, time of last use) of every file, the least recently used first."""
    return [entry for entry in entries_of(folder(), "*.npz") if _is_kept_result(entry[0])]


def entries_of(place: Path, pattern: str) -> list[tuple[Path, int, float]]:
    """(path, bytes, time of last change) of the files of a folder, the oldest first; those that are still there."""
    found = []
    for path in place.glob(pattern):
        try:
            status = path.stat()
        except OSError:  # removed by another process
            continue
        found.append((path, status.st_size, status.st_mtime))
    return sorted(found, key=lambda entry: entry[2])


def _load(path: Path, names: Sequence[str]) -> dict[str, ndarray] | None:
    try:
        content = path.read_bytes()
    except OSError as error:
        _LOG.info("not kept from an earlier run: %s", error)
        return None
    arrays, payload = {}, content[_HASH_BYTES:]
    if content[:_HASH_BYTES] == _checksum(payload):
        with np.load(io.BytesIO(payload), allow_pickle=False) as file:
            arrays = {name: file[name] for name in names if name in file.files}
    if len(arrays) < len(names):
        _LOG.warning("the cached file %s is damaged: it is made again", path)
        return None
    try:
        os.utime(path)
    except OSError:
        _LOG.info("the time of last use of %s could not be set", path)
    return arrays


def _is_kept_result(path: Path) -> bool:
    """Whether a file begins as `_store` makes it: an .npz file of others begins with the archive."""
    try:
        with path.open("rb") as file:
            return file.read(_HASH_BYTES + len(_ARCHIVE))[_HASH_BYTES:] == _ARCHIVE
    except OSError:  # removed by another process, or a folder
        return False


def _checksum(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=_HASH_BYTES).digest()


def _store(path: Path, arrays: Mapping[str, ndarray]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            stream = io.BytesIO()
            np.savez(stream, allow_pickle=False, **dict(arrays))
            payload = stream.getvalue()
            temporary.write_bytes(_checksum(payload) + payload)
        others = [(old, size) for old, size, _ in stored() if old != path]
        excess = len(payload) + _HASH_BYTES + sum(size for _, size in others) - LIMIT_BYTES
        for old, size in others:  # the least recently used first
            if excess > 0:
                old.unlink(missing_ok=True)
                excess -= size
    except OSError as error:
        _LOG.info("not kept for later runs: %s", error)


COMPILED_LIMIT_BYTES: int = 500_000_000
"""JAX removes the least recently used compiled programs so that no more than this is kept."""


def compiled_folder() -> Path:
    """The folder in which JAX keeps compiled programs for the command line."""
    return cache_directory() / "compiled"


def cache_lines() -> list[str]:
    """Lines of `rubix-like cache info`: folder, and number, size and limit of the files of each kind."""
    libraries = entries_of(cache_directory() / "ssp", "*.h5")
    kinds = (
        ("engine", "basis spectra and projection matrices", stored(), LIMIT_BYTES),
        ("compiled", "compiled programs", _programs(), COMPILED_LIMIT_BYTES),
        ("ssp", "SSP libraries (kept by `cache clear`)", libraries, None),
    )
    lines = [f"folder      {cache_directory()}"]
    for name, text, entries, limit in kinds:
        size = format_bytes(sum(size for _, size, _ in entries))
        most = "" if limit is None else f" of at most {format_bytes(limit)}"
        lines.append(f"{name:<11} {counted(len(entries), 'file')}, {size}{most}: {text}")
    return lines


def clear_cache() -> tuple[int, int]:
    """Removes what can be made again without a network; returns the number of files and bytes."""
    entries = [*stored(), *_programs()]
    for path, _, _ in entries:
        path.unlink(missing_ok=True)
    return len(entries), sum(size for _, size, _ in entries)


def _programs() -> list[tuple[Path, int, float]]:
    """JAX's compiled programs; its lock and the times of last use beside them are left alone."""
    return [entry for entry in entries_of(compiled_folder(), "*-cache") if _PROGRAM.fullmatch(entry[0].name)]
