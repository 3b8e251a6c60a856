"""Compiling quickly instead of well: most of the time of the tests goes into programs that run for milliseconds."""

import os

import jax

FLAGS = "--xla_cpu_use_fusion_emitters=false" if jax.__version_info__ < (0, 11) else ""
"""XLA's newer way to write fused loops takes half of its time; a later JAX may know no other, and XLA ends a process
that gives it a flag it does not know."""


def compile_quickly() -> None:
    """In this process; those that it starts without `quick_environment` compile as users' do.

    XLA reads its flags once, with its first devices.
    """
    jax.config.update("jax_disable_most_optimizations", True)
    given = os.environ.get("XLA_FLAGS")
    os.environ["XLA_FLAGS"] = f"{given or ''} {FLAGS}"
    jax.devices()
    del os.environ["XLA_FLAGS"]
    if given is not None:
        os.environ["XLA_FLAGS"] = given


def quick_environment() -> dict[str, str]:
    """For processes that are to compile as this one does."""
    if not jax.config.read("jax_disable_most_optimizations"):
        return {}
    return {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}"}
