"""Compiled programs on disk: what was compiled once is not compiled again by the next process."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from rubix_like.runtime.arrays_on_disk import COMPILED_LIMIT_BYTES, compiled_folder

_SHORTEST_SECONDS = 0.02
"""Programs that take less to compile are not kept."""

_ENABLED = "jax_enable_compilation_cache"
_FOLDER = "jax_compilation_cache_dir"


def keep_programs() -> None:
    """From now on JAX keeps what it compiles, in the folder of compiled programs; nothing where there can be none."""
    for name, value in _settings().items():
        jax.config.update(name, value)


@contextmanager
def programs_kept() -> Iterator[None]:
    """Inside, JAX keeps what it compiles, as the commands do; afterwards its settings are as before.

    Where JAX has a cache of its own (`jax_compilation_cache_dir`) or none is wanted (`jax_enable_compilation_cache`),
    nothing is changed.
    """
    wanted = getattr(jax.config, _ENABLED) and getattr(jax.config, _FOLDER) is None
    before = {name: getattr(jax.config, name) for name in _settings()} if wanted else {}
    if not before:
        yield
        return
    keep_programs()
    compilation_cache.reset_cache()  # JAX looks for a cache once, at its first program
    try:
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()


def _settings() -> dict[str, Any]:
    """JAX's settings for the folder; none where it cannot be made."""
    folder = compiled_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return {}
    return {
        _FOLDER: str(folder),
        "jax_persistent_cache_min_compile_time_secs": _SHORTEST_SECONDS,
        "jax_compilation_cache_max_size": COMPILED_LIMIT_BYTES,
    }
