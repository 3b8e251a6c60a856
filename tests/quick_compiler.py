"""Compiling quickly instead of well: most of the time of the tests goes into programs that run for milliseconds."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

FLAGS = "--xla_cpu_use_fusion_emitters=false" if jax.__version_info__ < (0, 11) else ""
"""XLA's newer way to write fused loops takes half of its time; a later JAX may know no other, and XLA ends a process
that gives it a flag it does not know."""


def compile_quickly() -> None:
    """In this process; those that it starts without `quick_environment` compile as users' do.

    XLA reads its flags once, with its first devices.
    """
    jax.config.update("jax_disable_most_optimizations", True)
    given = os.environ.get("XLA_FLAGS")
    os.environ["XLA_FLAGS"] = f"{given or ''} {FLAGS}".strip()  # XLA takes a blank for the name of a file
    jax.devices()
    del os.environ["XLA_FLAGS"]
    if given is not None:
        os.environ["XLA_FLAGS"] = given


@contextlib.contextmanager
def optimised_programs() -> Iterator[None]:
    """Compiles as a run does: for what takes longer to compute than to compile. What has been compiled stays as it
    is: such programs need sizes of their own."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


def quick_environment() -> dict[str, str]:
    """For processes that are to compile as this one does."""
    if not jax.config.read("jax_disable_most_optimizations"):
        return {}
    return {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}".strip()}


@contextlib.contextmanager
def kept_programs(folder: Path) -> Iterator[None]:
    """Compiles a program once, also where it is traced anew: for fits that differ in their data alone."""
    own = {
        "jax_enable_compilation_cache": True,
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0,
    }
    before = {name: getattr(jax.config, name) for name in own}
    _set(own)
    try:
        yield
    finally:
        _set(before)


def _set(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
