"""Readers of snapshots from their settings, and the rows of a file as they leave it."""

from rubix_like import load_config
from rubix_like.readers.mapped_files import open_snapshot

__all__ = ["open_snapshot", "reader_of"]


def reader_of(settings=None, /, **more):
    """The reader of a section `galaxy` with these settings: its `load()` gives the galaxy as the file has it."""
    return load_config(
        {
            "galaxy": {"reader": "auto", **(settings or {}), **more},
            "observation": {"redshift": 0.05},
            "instrument": {"name": "muse"},
        }
    ).galaxy
