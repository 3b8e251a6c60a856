"""Settings of JAX for a command: 64-bit numbers and the cache of compiled programs."""

import jax

from rubix_like.runtime.compiled_programs import keep_programs


def set_up_jax(precision: str) -> None:
    """64-bit numbers where asked for, and a cache of compiled programs that outlives the command."""
    jax.config.update("jax_enable_x64", precision == "float64")
    keep_programs()
