"""Settings of JAX for a command: 64-bit numbers and the cache of compiled programs."""

import jax

from rubix_like.runtime.arrays_on_disk import COMPILED_LIMIT_BYTES, compiled_folder


def set_up_jax(precision: str) -> None:
    """64-bit numbers where asked for, and a cache of compiled programs that outlives the command."""
    jax.config.update("jax_enable_x64", precision == "float64")
    folder = compiled_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # no cache: every command compiles anew
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.02)
    jax.config.update("jax_compilation_cache_max_size", COMPILED_LIMIT_BYTES)
