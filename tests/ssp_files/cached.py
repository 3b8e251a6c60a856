"""The place in the user's cache where a library lies (docs/ssp.md)."""

from rubix_like.extend import cache_directory


def cached_library(name):
    return cache_directory() / "ssp" / f"{name}.h5"
