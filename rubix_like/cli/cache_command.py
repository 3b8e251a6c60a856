"""The commands `rubix-like cache info | clear`."""

import argparse

from rubix_like.runtime.arrays_on_disk import cache_lines, clear_cache
from rubix_like.runtime.resources import cache_directory
from rubix_like.runtime.words import counted, format_bytes


def print_cache(options: argparse.Namespace) -> None:  # noqa: ARG001
    """`rubix-like cache info`."""
    for line in cache_lines():
        print(line)


def empty_cache(options: argparse.Namespace) -> None:  # noqa: ARG001
    """`rubix-like cache clear`."""
    n_files, n_bytes = clear_cache()
    print(f"Removed {counted(n_files, 'file')} ({format_bytes(n_bytes)}) from {cache_directory()}")
